//! From a manifest and a lock to a graph in the store and the lock that says so.

use crate::fetcher::Fetcher;
use crate::mvs::{Facts, Graph, Listing, Pick, Prefer, Universe, solve};
use crate::{Entry, SourceError, parallel};
use ply_manifest::{
    Arch, ImageName, Lock, LockedPackage, Manifest, Owner, PackageName, Range, SourceSpec, nearest,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What resolution may do with a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Keep it as it is while it satisfies the manifest, else change as little as needed.
    Keep,
    /// Refuse to change it (`--locked`), and ask no source for anything that it does not hold.
    Locked,
    /// Move these to the newest in range; all where the list is empty.
    Update(Vec<PackageName>),
}

/// A resolved graph: everything is in the store.
#[derive(Debug, Clone)]
pub struct Resolution {
    /// What `ply.lock` should say.
    pub lock: Lock,
    /// The packages in layer order: dependents above dependencies, the base last.
    pub packages: Vec<Resolved>,
    /// Whether `lock` differs from what was given, so that it has to be written.
    pub changed: bool,
}

/// One package of a resolved graph.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Its image in the store.
    pub entry: Entry,
    /// Its manifest.
    pub manifest: Arc<Manifest>,
    /// Where it is taken from, as its lock line says.
    pub source: SourceSpec,
    /// Who asks for it, as `name version`, sorted; the root is among them by its own name.
    pub requested_by: Vec<String>,
    /// Whether it is the base.
    pub base: bool,
}

impl Fetcher {
    /// Resolves `manifest` for the fetcher's arch, by Minimal Version Selection, and puts every package of the graph into the store.
    /// `existing` is the lock next to the manifest: what it holds stays while it satisfies, and its digests are the trust. Digests for other
    /// archs and pinned members stay as they are. No connection is opened where the store holds all that the lock names.
    ///
    /// # Errors
    /// Those of resolution, each with the chain of who asked for what; those of fetching; with [`Mode::Locked`]
    /// [`SourceError::LockWouldChange`].
    pub fn resolve(
        &self,
        manifest: &Manifest,
        existing: Option<&Lock>,
        mode: Mode,
    ) -> Result<Resolution, SourceError> {
        let options = self.options();
        let root = Facts::of(manifest, options.arch, options.source.as_ref(), &options.default_source.spec)?;
        let locked: BTreeMap<&PackageName, &LockedPackage> =
            existing.into_iter().flat_map(|lock| &lock.packages).map(|p| (&p.name, p)).collect();
        let prefer = |name: &PackageName| {
            let newest = matches!(&mode, Mode::Update(names) if names.is_empty() || names.contains(name));
            match locked.get(name) {
                _ if newest => Prefer::Newest,
                Some(package) => Prefer::Locked(package.version.clone()),
                None => Prefer::Lowest,
            }
        };
        let mut world = World {
            fetcher: self,
            locked: &locked,
            closed: mode == Mode::Locked,
            refused: BTreeSet::new(),
            present: self.read_locked(existing),
            found: BTreeMap::new(),
        };
        let graph = solve(&root, options.arch, &prefer, &mut world);
        let graph = match graph {
            Err(SourceError::LockWouldChange { .. }) => {
                return Err(SourceError::LockWouldChange { changes: world.refused.into_iter().collect() });
            }
            graph => graph?,
        };
        if let Mode::Update(names) = &mode {
            check_names(&graph, names, &root)?;
        }
        let packages = graph
            .nodes
            .into_iter()
            .map(|node| {
                let (entry, manifest) = world.found.remove(&node.pick).expect("what was selected was read");
                let kept = locked.get(&node.pick.name).filter(|p| p.version == node.pick.version);
                let source = kept.map_or(node.pick.source, |p| p.source.clone());
                Resolved { entry, manifest, source, requested_by: node.requested_by, base: node.base }
            })
            .collect::<Vec<_>>();
        let lock = new_lock(&packages, existing, &locked, options.arch);
        let changed = existing.map_or(!lock.packages.is_empty(), |existing| *existing != lock);
        if mode == Mode::Locked && changed {
            return Err(SourceError::LockWouldChange { changes: differences(existing, &lock) });
        }
        Ok(Resolution { lock, packages, changed })
    }
}

/// The lock of a graph: each package with the digests for other archs that it had, and the pinned members as they were.
fn new_lock(
    packages: &[Resolved],
    existing: Option<&Lock>,
    locked: &BTreeMap<&PackageName, &LockedPackage>,
    arch: Arch,
) -> Lock {
    let package = |resolved: &Resolved| {
        let image = &resolved.entry.name;
        let before = locked.get(&image.name).filter(|p| p.version == image.version);
        let mut digest = before.map(|p| p.digest.clone()).unwrap_or_default();
        digest.insert(arch, resolved.entry.digest);
        LockedPackage {
            name: image.name.clone(),
            version: image.version.clone(),
            source: resolved.source.clone(),
            digest,
        }
    };
    Lock {
        packages: packages.iter().map(package).collect(),
        services: existing.map(|lock| lock.services.clone()).unwrap_or_default(),
    }
}

/// What a new lock changes, in words, by name.
fn differences(before: Option<&Lock>, after: &Lock) -> Vec<String> {
    let by_name = |lock: &Lock| -> BTreeMap<PackageName, LockedPackage> {
        lock.packages.iter().map(|p| (p.name.clone(), p.clone())).collect()
    };
    let (old, new) = (before.map(by_name).unwrap_or_default(), by_name(after));
    let names: BTreeSet<&PackageName> = old.keys().chain(new.keys()).collect();
    let mut changes = Vec::new();
    for name in names {
        match (old.get(name), new.get(name)) {
            (None, Some(added)) => changes.push(format!("{name} {} is added", added.version)),
            (Some(gone), None) => changes.push(format!("{name} {} is removed", gone.version)),
            (Some(a), Some(b)) if a.version != b.version => {
                changes.push(format!("{name} goes from {} to {}", a.version, b.version));
            }
            (Some(a), Some(b)) if a != b => changes.push(format!("{name} {} gets another digest", a.version)),
            _ => {}
        }
    }
    if changes.is_empty() {
        changes.push("the order of the layers".to_owned());
    }
    changes
}

/// `ply update NAME` of a name that the graph does not have.
fn check_names(graph: &Graph, names: &[PackageName], root: &Facts) -> Result<(), SourceError> {
    let known: BTreeSet<&str> = graph.nodes.iter().map(|node| node.pick.name.as_str()).collect();
    match names.iter().find(|name| !known.contains(name.as_str())) {
        None => Ok(()),
        Some(name) => Err(SourceError::NotADependency {
            name: name.clone(),
            root: root.label(),
            nearest: nearest(name.as_str(), known).map(str::to_owned),
        }),
    }
}

/// What exists, as resolution sees it: the lock first, then the sources.
struct World<'a> {
    fetcher: &'a Fetcher,
    locked: &'a BTreeMap<&'a PackageName, &'a LockedPackage>,
    /// Whether nothing but the lock counts.
    closed: bool,
    /// What was asked for beside the lock, in words.
    refused: BTreeSet<String>,
    /// What the lock holds and the store has.
    present: BTreeMap<PackageName, Entry>,
    found: BTreeMap<Pick, (Entry, Arc<Manifest>)>,
}

impl World<'_> {
    fn refuse(&mut self, what: String) -> SourceError {
        self.refused.insert(what);
        SourceError::LockWouldChange { changes: Vec::new() }
    }

    fn locked(&self, pick: &Pick) -> Option<&LockedPackage> {
        let arch = self.fetcher.options().arch;
        let package = self.locked.get(&pick.name).filter(|p| p.version == pick.version)?;
        package.digest.contains_key(&arch).then_some(package)
    }

    /// The image of a pick where the store has it: found without a source, and without threads, of which a deep graph would start
    /// some in each of its rounds.
    fn in_store(&self, pick: &Pick) -> Result<Option<Entry>, SourceError> {
        match self.locked(pick) {
            Some(package) => match self.present.get(&package.name) {
                Some(entry) => Ok(Some(entry.clone())),
                None => self.fetcher.locked_in_store(package),
            },
            None if self.closed => Ok(None),
            None => self.fetcher.taken_before(&pick.source, &Owner::default(), &self.image(pick)),
        }
    }

    fn image(&self, pick: &Pick) -> ImageName {
        let (name, version) = (pick.name.clone(), pick.version.clone());
        ImageName { name, version, arch: self.fetcher.options().arch }
    }

    /// The image of a pick, fetched.
    fn fetched(&self, pick: &Pick) -> Result<Entry, SourceError> {
        match self.locked(pick) {
            Some(package) => self.fetcher.ensure_locked(package),
            None => self.fetcher.take(&pick.source, &Owner::default(), &self.image(pick), None),
        }
    }

    /// What `--locked` says of a pick that the lock does not hold.
    fn unlocked(&self, pick: &Pick) -> String {
        match self.locked.get(&pick.name) {
            Some(p) if p.version == pick.version => {
                format!("{} {} gets a digest for {}", pick.name, pick.version, self.fetcher.options().arch)
            }
            Some(p) => format!("{} goes from {} to {}", pick.name, p.version, pick.version),
            None => format!("{} {} is added", pick.name, pick.version),
        }
    }

    /// Keeps the entry of a pick, and gives what its manifest says.
    fn facts(&mut self, pick: &Pick, entry: Entry) -> Result<Arc<Facts>, SourceError> {
        let options = self.fetcher.options();
        let manifest = self.fetcher.manifest_of(&entry)?;
        let facts =
            Facts::of(&manifest, options.arch, options.source.as_ref(), &options.default_source.spec)?;
        self.found.insert(pick.clone(), (entry, manifest));
        Ok(Arc::new(facts))
    }
}

impl Universe for World<'_> {
    fn list(&mut self, wanted: &[(PackageName, SourceSpec)]) -> Vec<Result<Listing, SourceError>> {
        if self.closed {
            let why = |name: &PackageName| match self.locked.get(name) {
                Some(package) => format!("{name} {} no longer satisfies", package.version),
                None => format!("{name} is added"),
            };
            let refusals: Vec<String> = wanted.iter().map(|(name, _)| why(name)).collect();
            return refusals.into_iter().map(|what| Err(self.refuse(what))).collect();
        }
        let (owner, arch) = (Owner::default(), self.fetcher.options().arch);
        self.fetcher.read_listings(wanted, &owner);
        let listing = |(name, source): &(PackageName, SourceSpec)| {
            let images = self.fetcher.images(source, &owner, name, &Range::Any)?;
            let mut listing = Listing::default();
            for image in images {
                match image.arch == arch {
                    true => listing.versions.push(image.version),
                    false => listing.other_arch.push(image.version),
                }
            }
            Ok(listing)
        };
        wanted.iter().map(listing).collect()
    }

    fn read(&mut self, wanted: &[Pick]) -> Vec<Result<Arc<Facts>, SourceError>> {
        let mut entries: Vec<Option<Result<Entry, SourceError>>> =
            wanted.iter().map(|pick| self.in_store(pick).transpose()).collect();
        let missing: Vec<usize> = (0..wanted.len()).filter(|at| entries[*at].is_none()).collect();
        let (open, away): (Vec<usize>, Vec<usize>) =
            missing.into_iter().partition(|at| !self.closed || self.locked(&wanted[*at]).is_some());
        let fetched =
            parallel::each(self.fetcher.options().network.parallel, &open, |at| self.fetched(&wanted[*at]));
        for (at, entry) in open.into_iter().zip(fetched) {
            entries[at] = Some(entry);
        }
        for at in away {
            let what = self.unlocked(&wanted[at]);
            entries[at] = Some(Err(self.refuse(what)));
        }
        let entries = entries.into_iter().zip(wanted);
        entries
            .map(|(entry, pick)| entry.expect("each was answered").and_then(|e| self.facts(pick, e)))
            .collect()
    }

    fn nearest(&mut self, name: &PackageName, source: &SourceSpec) -> Option<String> {
        self.fetcher.nearest_name(source, &Owner::default(), name)
    }
}
