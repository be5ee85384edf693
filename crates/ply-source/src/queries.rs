//! Questions about sources and locks: `run NAME`, `search`, `outdated`, `tree`.

use crate::catalog;
use crate::fetcher::Fetcher;
use crate::listing::newest;
use crate::mvs::Facts;
use crate::place::owner_of;
use crate::sources::present;
use crate::{Entry, Found, Outdated, SourceError, Tree, TreeNode};
use ply_image::Image;
use ply_manifest::{
    Arch, Dependency, ImageName, Lock, Manifest, Owner, PackageName, Range, Reference, SourceSpec, Version,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most packages of a folder whose images are opened for their descriptions.
const MOST_OPENED: usize = 500;

impl Fetcher {
    /// The newest image that a reference allows, fetched, from `--source` or the default. Where no source can be reached, the newest
    /// that the store holds, with a notice.
    ///
    /// # Errors
    /// [`SourceError::NoOwner`], [`SourceError::NoSuchPackage`], [`SourceError::NotInRange`], [`SourceError::OtherArch`],
    /// [`SourceError::CantList`], those of fetching.
    pub fn lookup(&self, reference: &Reference) -> Result<Entry, SourceError> {
        let source = self.usual_source().clone();
        let owner = owner_of(reference, &source)?;
        match self.lookup_at(reference, &source, &owner) {
            Err(error) if error.is_offline() => match self.newest_in_store(reference)? {
                Some(entry) => {
                    self.options().progress.notice(&format!(
                        "{source} can't be asked; taking the newest {reference} of the store, {}",
                        entry.name.version
                    ));
                    Ok(entry)
                }
                None => Err(error),
            },
            result => result,
        }
    }

    fn lookup_at(
        &self,
        reference: &Reference,
        source: &SourceSpec,
        owner: &Owner,
    ) -> Result<Entry, SourceError> {
        let (name, range, arch) = (&reference.name, &reference.range, self.options().arch);
        let image = |version: Version| ImageName { name: name.clone(), version, arch };
        if let Range::Exact(version) = range {
            return self.take(source, owner, &image(version.clone()), None);
        }
        let images = self.images(source, owner, name, range)?;
        let there: Vec<Version> =
            images.iter().filter(|i| i.arch == arch).map(|i| i.version.clone()).collect();
        if let Some(version) = there.iter().filter(|v| range.contains(v)).max() {
            return self.take(source, owner, &image(version.clone()), None);
        }
        let (name, origin) = (name.clone(), source.to_string());
        if images.is_empty() {
            let nearest = self.nearest_name(source, owner, &name);
            return Err(SourceError::NoSuchPackage { name, origin, nearest, asks: Vec::new() });
        }
        let range = range.clone();
        if images.iter().any(|i| i.arch != arch && range.contains(&i.version)) {
            return Err(SourceError::OtherArch { name, range, arch, origin });
        }
        Err(SourceError::NotInRange {
            name,
            range: Box::new(range),
            origin,
            asks: Vec::new(),
            versions: there,
        })
    }

    fn newest_in_store(&self, reference: &Reference) -> Result<Option<Entry>, SourceError> {
        let entries = self.options().store.find(&reference.name, self.options().arch)?;
        Ok(entries
            .into_iter()
            .filter(|e| reference.range.contains(&e.name.version))
            .max_by(|a, b| a.name.version.cmp(&b.name.version).then(b.digest.cmp(&a.digest))))
    }

    /// The packages of the usual source whose name or description holds every word of `term`, best first; all where it is empty.
    ///
    /// # Errors
    /// [`SourceError::NotThere`] where the source has neither a catalog nor a listing; those of the network.
    pub fn search(&self, term: &str) -> Result<Vec<Found>, SourceError> {
        let source = self.usual_source().clone();
        let words: Vec<String> = term.split_whitespace().map(str::to_lowercase).collect();
        let rank = |found: &Found| -> Option<u8> {
            let name = found.name.as_str();
            let about = found.description.as_deref().unwrap_or("").to_lowercase();
            let here = |word: &String| name.contains(word.as_str()) || about.contains(word.as_str());
            if !words.iter().all(here) {
                return None;
            }
            let first = words.first().map_or("", String::as_str);
            Some(match () {
                () if name == first => 0,
                () if name.starts_with(first) => 1,
                () if name.contains(first) => 2,
                () => 3,
            })
        };
        let mut ranked: Vec<(u8, Found)> =
            self.everything(&source)?.into_iter().filter_map(|found| Some((rank(&found)?, found))).collect();
        ranked.sort_by(|a, b| (a.0, &a.1.name, &a.1.owner).cmp(&(b.0, &b.1.name, &b.1.owner)));
        Ok(ranked.into_iter().map(|(_, found)| found).collect())
    }

    /// All that a source has: what its catalog says and, of a folder, what is in it. Someone who copies an image into a
    /// registry's folder finds it there, and a folder's images say themselves what they are.
    fn everything(&self, source: &SourceSpec) -> Result<Vec<Found>, SourceError> {
        present(source)?;
        let owner = Owner::default();
        let catalog = self.catalog(source, &owner)?;
        let known = catalog.is_some();
        let mut found = catalog.map(|catalog| catalog::found(&catalog)).unwrap_or_default();
        if known && source.folder().is_none() {
            return Ok(found);
        }
        for scanned in self.scanned(source, &owner, known)? {
            let own = |f: &&mut Found| f.name == scanned.name && f.owner.as_ref().is_none_or(|o| *o == owner);
            match found.iter_mut().find(own) {
                Some(said) => said.add(scanned),
                None => found.push(scanned),
            }
        }
        Ok(found)
    }

    /// All that the listing of a source shows. `known`: there is a catalog, so that nothing is no error.
    fn scanned(&self, source: &SourceSpec, owner: &Owner, known: bool) -> Result<Vec<Found>, SourceError> {
        let names = self.listed(source, owner);
        if names.is_empty() && !known && source.folder().is_none() {
            let place = source.catalog(owner);
            return Err(SourceError::NotThere {
                what: "a catalog (state.json)".to_owned(),
                place: place.unwrap_or_else(|| source.to_string()),
                origin: source.to_string(),
                asks: Vec::new(),
            });
        }
        let few = names.len() <= MOST_OPENED;
        let one = |name: PackageName| -> Option<Found> {
            let images = self.images(source, owner, &name, &Range::Any).ok()?;
            let mut versions: Vec<Version> = images.iter().map(|i| i.version.clone()).collect();
            versions.dedup();
            versions.reverse();
            let top = versions.first()?;
            let archs: BTreeSet<Arch> = images.iter().filter(|i| i.version == *top).map(|i| i.arch).collect();
            let manifest = images.last().filter(|_| few).and_then(|i| manifest_in_folder(source, owner, i));
            let line = |text: &Option<String>| text.as_deref().map(catalog::one_line);
            let package = manifest.as_ref().map(|m| &m.package);
            Some(Found::new(
                None,
                name,
                manifest.as_ref().map(|m| m.kind().to_string()),
                package.and_then(|p| line(&p.description)),
                package.and_then(|p| line(&p.license)),
                versions,
                archs.into_iter().collect(),
            ))
        };
        Ok(names.into_iter().filter_map(one).collect())
    }

    /// For each dependency of `manifest`, by name, and then its base: locked, newest in range, newest, for the fetcher's arch. A source
    /// that can't list gives neither of the latter.
    ///
    /// # Errors
    /// [`SourceError::UnknownAlias`], [`SourceError::NoIndex`], those of the network.
    pub fn outdated(&self, manifest: &Manifest, lock: &Lock) -> Result<Vec<Outdated>, SourceError> {
        let (owner, arch) = (Owner::default(), self.options().arch);
        let root = self.facts(manifest)?;
        let wanted: Vec<(PackageName, SourceSpec)> =
            root.asks.iter().map(|ask| (ask.name.clone(), ask.source.clone())).collect();
        self.read_listings(&wanted, &owner);
        let mut rows = Vec::new();
        for ask in root.asks.iter().filter(|ask| !ask.base).chain(root.base()) {
            let images = match self.images(&ask.source, &owner, &ask.name, &ask.range) {
                Err(SourceError::CantList { .. }) => Vec::new(),
                images => images?,
            };
            let versions: Vec<Version> =
                images.into_iter().filter(|i| i.arch == arch).map(|i| i.version).collect();
            rows.push(Outdated {
                name: ask.name.clone(),
                range: ask.range.clone(),
                locked: lock.packages.iter().find(|p| p.name == ask.name).map(|p| p.version.clone()),
                in_range: versions.iter().filter(|v| ask.range.contains(v)).max().cloned(),
                newest: newest(&versions),
            });
        }
        Ok(rows)
    }

    /// Who brings what, with sizes. What the lock names and the store lacks is fetched.
    ///
    /// # Errors
    /// As [`Self::ensure`]; a lock that lacks a package that something asks for is [`SourceError::StaleLock`].
    pub fn tree(&self, manifest: &Manifest, lock: &Lock) -> Result<Tree, SourceError> {
        let entries = self.ensure_lock(lock)?;
        let mut locked = BTreeMap::new();
        for entry in entries {
            let facts = self.facts(&*self.manifest_of(&entry)?)?;
            locked.insert(entry.name.name.clone(), (Arc::new(facts), entry));
        }
        let root = self.facts(manifest)?;
        let mut shown = BTreeSet::new();
        let children = children(&root, &root, &locked, &mut shown)?;
        let bytes = locked.values().map(|(_, entry)| entry.bytes).sum();
        Ok(Tree { name: root.name.clone(), version: root.version.clone(), children, bytes })
    }

    fn facts(&self, manifest: &Manifest) -> Result<Facts, SourceError> {
        let options = self.options();
        Facts::of(manifest, options.arch, options.source.as_ref(), &options.default_source.spec)
    }

    /// The versions that answer one dependency of a manifest, all archs, lowest first; for `ply add`.
    ///
    /// # Errors
    /// As [`Self::versions`]; [`SourceError::UnknownAlias`].
    pub fn versions_for(
        &self,
        manifest: &Manifest,
        name: &PackageName,
        dependency: &Dependency,
    ) -> Result<Vec<ImageName>, SourceError> {
        let mut asking = manifest.clone();
        asking.build.dependencies = BTreeMap::from([(name.clone(), dependency.clone())]);
        let facts = self.facts(&asking)?;
        let ask = facts.asks.iter().find(|ask| !ask.base).expect("the one dependency");
        self.images(&ask.source, &Owner::default(), name, &dependency.range)
    }
}

/// The lines below one package. A package is drawn with its children once, where it is met first.
fn children(
    of: &Facts,
    root: &Facts,
    locked: &BTreeMap<PackageName, (Arc<Facts>, Entry)>,
    shown: &mut BTreeSet<PackageName>,
) -> Result<Vec<TreeNode>, SourceError> {
    let mut nodes = Vec::new();
    for ask in of.asks.iter().filter(|ask| !ask.base).chain(of.base()) {
        let base = root.base().is_some_and(|base| base.name == ask.name);
        // What a layer says of a base is a constraint: the base hangs below the root alone.
        if base && !std::ptr::eq(of, root) || ask.base && !base {
            continue;
        }
        let Some((facts, entry)) = locked.get(&ask.name) else {
            return Err(SourceError::StaleLock { name: ask.name.clone() });
        };
        let first = shown.insert(ask.name.clone());
        let below = if first { children(facts, root, locked, shown)? } else { Vec::new() };
        nodes.push(TreeNode {
            name: ask.name.clone(),
            version: facts.version.clone(),
            range: ask.range.clone(),
            base,
            digest: Some(entry.digest),
            bytes: Some(entry.bytes),
            repeated: !first && facts.asks.iter().any(|ask| !ask.base),
            children: below,
        });
    }
    Ok(nodes)
}

/// The manifest of an image in a folder source, where it can be read.
fn manifest_in_folder(source: &SourceSpec, owner: &Owner, image: &ImageName) -> Option<Manifest> {
    source.folder()?;
    let text = Image::open(source.image(owner, image)).ok()?.manifest_text().ok()?;
    Manifest::parse(&text, ".manifest.toml").ok()
}
