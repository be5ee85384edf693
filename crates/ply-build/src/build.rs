//! `ply build`: the directory's manifest, its resolved graph, what ships, one image. Source: spec, "Images, the
//! build, the store".
//!
//! What can be refused by looking at the directory is refused before anything is fetched, and nothing of the
//! directory but `ply.lock` and the image is ever written.

use crate::record::{self, Known, Record};
use crate::ship::addons::{self, Addon, AddonTarget};
use crate::ship::{self, Decision, EntryKind, Include, Rules};
use crate::walk::{Listing, Stat, full, walk};
use crate::{BuildError, entrypoint};
use ply_image::{
    Access, Attr, Dirs, Image, LEVEL_BUILD, Lasts, LayerStack, Origin, PackOptions, Pending, ScanOptions,
    Source, Store, Tree, pack, write_atomic,
};
use ply_manifest::{
    Arch, Composition, Diagnostic, Diagnostics, Digest, Document, FaultKind, ImageName, Kind, Lock, Manifest,
    Place,
};
use ply_source::{Fetcher, Mode, Resolved};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the image goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// `<name>-<version>-linux-<arch>.img` in the directory itself.
    Folder,
    /// This file (`-o`).
    File(PathBuf),
    /// The store; nothing but `ply.lock` is written to the directory.
    Store,
}

/// What `ply build` is asked.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// The directory.
    pub dir: PathBuf,
    /// Where the image goes.
    pub output: Output,
    /// What the image is for; the fetcher resolves for the same.
    pub arch: Arch,
    /// Whether a lock that would change is an error (`--locked`).
    pub locked: bool,
    /// Whether credential-shaped names may ship (`--allow-secrets`).
    pub allow_secrets: bool,
    /// A manifest that stands in for a `ply.toml` that isn't there. Then no lock is written to the directory.
    pub manifest: Option<String>,
    /// The folders of ply on this host: the store, and the records by which an unchanged build is skipped.
    pub dirs: Dirs,
    /// Threads for packing; 0 is one a core. The bytes never depend on it.
    pub threads: usize,
    /// `SOURCE_DATE_EPOCH` in seconds: the time of every entry; 0 where it is not set.
    pub epoch: u32,
}

impl BuildRequest {
    /// `ply build DIR` without flags, for this host's arch.
    pub fn new(dir: impl Into<PathBuf>, dirs: Dirs) -> Self {
        Self {
            dir: dir.into(),
            output: Output::Folder,
            arch: Arch::HOST,
            locked: false,
            allow_secrets: false,
            manifest: None,
            dirs,
            threads: 0,
            epoch: 0,
        }
    }
}

/// What a build made.
#[derive(Debug, Clone)]
pub struct Built {
    /// The image's name.
    pub image: ImageName,
    /// Its digest.
    pub digest: Digest,
    /// Where it is: in the directory, at `-o`, or in the store.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether it was there already, made of the same content.
    pub skipped: bool,
    /// Whether `ply.lock` was written.
    pub lock_changed: bool,
    /// What shipped.
    pub shipped: Shipped,
    /// What was left out by rule, as paths of the directory; a folder ends in `/` and stands for all below it.
    pub left_out: Vec<String>,
    /// What the person should know: one sentence each.
    pub notices: Vec<String>,
    /// The manifest.
    pub manifest: Manifest,
    /// The resolved graph, in layer order.
    pub lock: Lock,
}

/// What shipped, in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shipped {
    /// Files and symlinks.
    pub files: u64,
    /// Their content in bytes, before compression.
    pub bytes: u64,
    /// Whether `include` chose them; otherwise everything shipped.
    pub chosen: bool,
    /// The top entries of the directory that shipped, sorted: name (a folder ends in `/`), files, bytes.
    pub top: Vec<(String, u64, u64)>,
}

/// Builds the image of a directory.
pub fn build(request: &BuildRequest, fetcher: &Fetcher) -> Result<Built, BuildError> {
    Job::new(request)?.run(fetcher)
}

/// The text of a directory's `ply.toml`, and the name that errors show for it.
pub(crate) fn manifest_text(dir: &Path) -> Result<(String, String), BuildError> {
    let path = dir.join("ply.toml");
    let shown = match dir.to_str() {
        Some("." | "" | "./") => "ply.toml".to_owned(),
        _ => path.display().to_string(),
    };
    if !dir.is_dir() {
        return Err(BuildError::NotADirectory(dir.to_owned()));
    }
    let bytes = std::fs::read(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => BuildError::NoManifest(dir.to_owned()),
        _ => BuildError::io("read", &path, e),
    })?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let line = e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        let message = format!("line {line} is not UTF-8");
        BuildError::Manifest(
            Diagnostic { file: shown.clone(), place: None, message, hint: None, kind: FaultKind::Rule }
                .into(),
        )
    })?;
    Ok((text, shown))
}

/// What a directory is, with `ply.toml` read.
pub(crate) fn read_document(text: &str, shown: &str) -> Result<Document, BuildError> {
    Document::parse(text, shown).map_err(BuildError::Manifest)
}

/// `[build] include`, ready to match.
pub(crate) fn include(manifest: &Manifest, text: &str, shown: &str) -> Result<Include, BuildError> {
    Include::parse(&manifest.build.include).map_err(|(entry, why)| {
        let message = format!("{entry:?} in include: {why}");
        BuildError::IncludeInvalid(include_fault(text, shown, &entry, message).into())
    })
}

/// An `include` entry that matches nothing is an error, with its place.
pub(crate) fn all_match(
    include: &Include,
    listing: &Listing,
    text: &str,
    shown: &str,
) -> Result<(), BuildError> {
    let unmatched = include.unmatched(&listing.entries);
    if unmatched.is_empty() {
        return Ok(());
    }
    let fault = |entry: &String| {
        include_fault(text, shown, entry, format!("{entry:?} in include matches nothing in the directory"))
    };
    Err(BuildError::IncludeMatchesNothing(Diagnostics(unmatched.iter().map(fault).collect())))
}

fn include_fault(text: &str, shown: &str, entry: &str, message: String) -> Diagnostic {
    // The entry stands under [build] in a grouped manifest, under [package] in a flat one.
    let document = toml_edit::Document::parse(text).ok();
    let span = document.as_ref().and_then(|document| {
        let lists = ["build", "package"].map(|table| document.get(table)?.get("include")?.as_array());
        let mut values = lists.into_iter().flatten().flatten();
        values.find(|v| v.as_str() == Some(entry))?.span()
    });
    Diagnostic {
        file: shown.to_owned(),
        place: span.map(|span| Place::of(text, span.start)),
        message,
        hint: Some("an entry is a path or a glob beneath the directory, as in \"dist/\" or \"src/**/*.py\"; make what it names before the build".to_owned()),
        kind: FaultKind::Rule,
    }
}

/// One build. The steps are in the order of [`Job::run`].
struct Job<'r> {
    request: &'r BuildRequest,
    text: String,
    /// The name that errors show for the manifest.
    shown: String,
    manifest: Manifest,
    image: ImageName,
    /// The image's place, but for one that goes into the store.
    target: Option<PathBuf>,
    lock_path: PathBuf,
    /// The record's path without its extension.
    record: PathBuf,
    notices: Vec<String>,
}

impl<'r> Job<'r> {
    fn new(request: &'r BuildRequest) -> Result<Self, BuildError> {
        let dir = &request.dir;
        let (text, shown) = match &request.manifest {
            Some(text) if dir.is_dir() => (text.clone(), "ply.toml".to_owned()),
            Some(_) => return Err(BuildError::NotADirectory(dir.clone())),
            None => manifest_text(dir)?,
        };
        let manifest = match read_document(&text, &shown)? {
            Document::Package(manifest) => *manifest,
            Document::Composition(Composition { .. }) => return Err(BuildError::Composition(dir.clone())),
        };
        let image = ImageName {
            name: manifest.package.name.clone(),
            version: manifest.package.version.clone(),
            arch: request.arch,
        };
        let target = match &request.output {
            Output::Folder => Some(dir.join(image.to_string())),
            Output::File(file) if file.is_dir() => Some(file.join(image.to_string())),
            Output::File(file) => Some(file.clone()),
            Output::Store => None,
        };
        let real = dir.canonicalize().map_err(|e| BuildError::io("read", dir, e))?;
        let place = target.as_ref().map(|t| real_path(t).into_os_string()).unwrap_or_default();
        let stand_in: &[u8] = if request.manifest.is_some() { b"stand-in" } else { b"" };
        let name = record::name(&[
            real.as_os_str().as_bytes(),
            place.as_bytes(),
            request.arch.as_str().as_bytes(),
            stand_in,
        ]);
        let record = record::folder(&request.dirs.data).join(name);
        // A directory without a ply.toml is left as it is: its lock stands with the record.
        let lock_path =
            if request.manifest.is_some() { record.with_extension("lock") } else { dir.join("ply.lock") };
        Ok(Self { request, text, shown, manifest, image, target, lock_path, record, notices: Vec::new() })
    }

    fn run(mut self, fetcher: &Fetcher) -> Result<Built, BuildError> {
        let dir = &self.request.dir;
        ply_image::sweep_pending(dir);
        let rules = self.rules()?;
        let listing = walk(dir, &rules)?;
        all_match(&rules.include, &listing, &self.text, &self.shown)?;
        let decision = ship::decide(&listing.entries, &rules)?;
        self.refuse_reserved(&listing, &decision)?;
        let (lock, packages, lock_changed) = self.resolve(fetcher)?;
        // Written beside its place now, so that what keeps it from being written is told before there is an image; put
        // there once the image is: a build that is refused leaves no lock.
        let pending = lock_changed.then(|| self.prepare_lock(&lock)).transpose()?;
        self.refuse_foreign_addons(&listing, &decision, &packages)?;

        let embedded = self.embedded_lock(&lock);
        let made = self.pack_or_skip(&listing, &decision, embedded.as_deref())?;
        if let Some(pending) = pending {
            pending
                .place(&self.lock_path, Lasts::PowerCut)
                .map_err(|e| BuildError::io("write", &self.lock_path, e))?;
        }
        // What goes into the store is about to run, and a run looks itself.
        if self.target.is_some() {
            self.notices.extend(self.entrypoint_notice(&made, &packages));
        }
        Ok(Built {
            shipped: shipped(&listing, &decision, !rules.include.is_empty()),
            image: self.image,
            digest: made.digest,
            path: made.path,
            bytes: made.bytes,
            skipped: made.skipped,
            lock_changed: lock_changed && self.request.manifest.is_none(),
            left_out: decision.left_out,
            notices: self.notices,
            manifest: self.manifest,
            lock,
        })
    }

    fn rules(&self) -> Result<Rules, BuildError> {
        let mut outputs = Vec::new();
        if let Some(target) = &self.target
            && let Ok(dir) = self.request.dir.canonicalize()
            && let Ok(beneath) = real_path(target).strip_prefix(&dir)
        {
            outputs.push(beneath.as_os_str().as_bytes().to_vec());
        }
        Ok(Rules {
            include: include(&self.manifest, &self.text, &self.shown)?,
            allow_secrets: self.request.allow_secrets,
            base: self.manifest.kind() == Kind::Base,
            outputs,
        })
    }

    /// A base stands at `/`, where two names are the image's own.
    fn refuse_reserved(&self, listing: &Listing, decision: &Decision) -> Result<(), BuildError> {
        let reserved = |path: &[u8]| path == b".manifest.toml" || path == b".lock.toml";
        let found = decision.ships.iter().map(|n| &listing.entries[*n]).find(|e| reserved(&e.path));
        match found {
            Some(entry) if self.manifest.kind() == Kind::Base => Err(BuildError::Reserved(entry.shown())),
            _ => Ok(()),
        }
    }

    /// The new lock, beside its place.
    fn prepare_lock(&self, lock: &Lock) -> Result<Pending, BuildError> {
        if let Some(folder) = self.lock_path.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|e| BuildError::io("create", folder, e))?;
        }
        Pending::holding(&self.lock_path, lock.to_string().as_bytes(), Access::Kept)
            .map_err(|e| BuildError::io("write", &self.lock_path, e))
    }

    /// The graph of the manifest, and whether its lock has to be written.
    fn resolve(&self, fetcher: &Fetcher) -> Result<(Lock, Vec<Resolved>, bool), BuildError> {
        let existing = self.existing_lock()?;
        let build = &self.manifest.build;
        if existing.is_none() && build.base.is_none() && build.dependencies.is_empty() {
            return Ok((Lock::default(), Vec::new(), false));
        }
        let mode = if self.request.locked { Mode::Locked } else { Mode::Keep };
        let resolution = fetcher.resolve(&self.manifest, existing.as_ref(), mode)?;
        let changed = existing.as_ref() != Some(&resolution.lock);
        Ok((resolution.lock, resolution.packages, changed))
    }

    fn existing_lock(&self) -> Result<Option<Lock>, BuildError> {
        match std::fs::read_to_string(&self.lock_path) {
            Ok(text) => {
                let shown = self.lock_path.display().to_string();
                let shown = shown.strip_prefix("./").unwrap_or(&shown);
                Lock::parse(&text, shown).map(Some).map_err(BuildError::Lock)
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(BuildError::io("read", &self.lock_path, e)),
        }
    }

    fn refuse_foreign_addons(
        &self,
        listing: &Listing,
        decision: &Decision,
        packages: &[Resolved],
    ) -> Result<(), BuildError> {
        let ships = || decision.ships.iter().map(|n| &listing.entries[*n]);
        let mut found = Vec::new();
        for entry in ships().filter(|e| matches!(e.kind, EntryKind::File(_)) && addons::is_addon(&e.path)) {
            let path = full(&self.request.dir, &entry.path);
            let data = std::fs::read(&path).map_err(|e| BuildError::io("read", &path, e))?;
            if let Some(platform) = addons::platform(&data) {
                found.push(Addon { path: entry.path.clone(), platform });
            }
        }
        let folders: BTreeSet<Vec<u8>> = ships()
            .filter_map(|e| match e.path.strip_suffix(b"package.json")? {
                [] => Some(Vec::new()),
                [folder @ .., b'/'] => Some(folder.to_vec()),
                _ => None,
            })
            .collect();
        let base = packages.iter().find(|p| p.base).and_then(|p| p.manifest.layer.abi.as_ref());
        let abi = base.map(|abi| abi.for_arch(self.request.arch));
        let files = addons::foreign(&found, &folders, AddonTarget::new(self.request.arch, abi.as_deref()));
        if files.is_empty() {
            Ok(())
        } else {
            Err(BuildError::ForeignAddons { files, arch: self.request.arch })
        }
    }

    /// `/.lock.toml`: the graph of a runnable package, for this arch only.
    fn embedded_lock(&self, lock: &Lock) -> Option<String> {
        if self.manifest.kind() != Kind::App || lock.packages.is_empty() {
            return None;
        }
        let arch = self.request.arch;
        let packages = lock.packages.iter().cloned().map(|mut p| {
            p.digest.retain(|a, _| *a == arch);
            p
        });
        Some(Lock { packages: packages.collect(), ..Lock::default() }.to_string())
    }

    fn pack_or_skip(
        &self,
        listing: &Listing,
        decision: &Decision,
        lock: Option<&str>,
    ) -> Result<Made, BuildError> {
        let record_path = self.record.with_extension("record");
        let earlier = Record::read(&record_path);
        // A base keeps owners and xattrs, which the fingerprint doesn't look at: it is always packed.
        let skippable = self.manifest.kind() != Kind::Base;
        let Content { fingerprint, files, hashed_ns } =
            self.fingerprint(listing, decision, lock, earlier.as_ref())?;
        if skippable
            && let Some(earlier) = earlier.filter(|r| r.fingerprint == fingerprint)
            && let Some(made) = self.made_before(&earlier)
        {
            let output = self.target.as_ref().and_then(|t| t.metadata().ok()).map(|m| Stat::of(&m));
            let again = Record { output, hashed_ns, files, ..earlier.clone() };
            if again != earlier {
                let _ = again.write(&record_path);
            }
            return Ok(made);
        }
        ply_image::sweep_pending(&record::folder(&self.request.dirs.data));
        let tree = self.tree(listing, decision, lock)?;
        let made = self.pack(&tree)?;
        // A file that changed since it was hashed was packed as it is now: then nothing is remembered.
        let still = decision.ships.iter().all(|n| {
            let path = full(&self.request.dir, &listing.entries[*n].path);
            let dir = listing.entries[*n].kind == EntryKind::Dir;
            dir || path.symlink_metadata().is_ok_and(|m| Stat::of(&m) == listing.stats[*n])
        });
        let output = self.target.as_ref().and_then(|t| t.metadata().ok()).map(|m| Stat::of(&m));
        if still && skippable && output.is_some() == self.target.is_some() {
            let record = Record { fingerprint, image: made.digest, output, hashed_ns, files };
            if record.write(&record_path).is_ok()
                && let Ok(real) = self.request.dir.canonicalize()
            {
                let at = self.record.with_extension("dir");
                let _ = write_atomic(&at, real.as_os_str().as_bytes(), Access::Umask, Lasts::PowerCut);
            }
        }
        Ok(made)
    }

    /// What the image is made of, as one digest, and that of each file.
    fn fingerprint(
        &self,
        listing: &Listing,
        decision: &Decision,
        lock: Option<&str>,
        earlier: Option<&Record>,
    ) -> Result<Content, BuildError> {
        let dir = &self.request.dir;
        let regular = |n: &&usize| matches!(listing.entries[**n].kind, EntryKind::File(_));
        let files: Vec<(PathBuf, &[u8], Stat)> = decision
            .ships
            .iter()
            .filter(regular)
            .map(|n| {
                (full(dir, &listing.entries[*n].path), listing.entries[*n].path.as_slice(), listing.stats[*n])
            })
            .collect();
        let hashed_ns = record::now_ns();
        let digests = record::digests(&files, earlier, self.request.threads)?;
        let known: HashMap<Vec<u8>, Known> = files
            .iter()
            .zip(digests)
            .map(|((_, path, stat), digest)| (path.to_vec(), Known { digest, stat: *stat }))
            .collect();
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        // The writer is part of what an image is made of: another ply builds again.
        add(env!("CARGO_PKG_VERSION").as_bytes());
        add(&LEVEL_BUILD.to_le_bytes());
        add(&self.request.epoch.to_le_bytes());
        add(self.image.to_string().as_bytes());
        add(self.text.as_bytes());
        add(lock.unwrap_or("").as_bytes());
        for n in &decision.ships {
            let entry = &listing.entries[*n];
            add(&entry.path);
            match entry.kind {
                EntryKind::File(_) => {
                    add(if listing.stats[*n].is_executable() { b"program" } else { b"file" });
                    add(known[&entry.path].digest.as_bytes());
                }
                EntryKind::Symlink => {
                    let path = full(dir, &entry.path);
                    let target = std::fs::read_link(&path).map_err(|e| BuildError::io("read", &path, e))?;
                    add(b"symlink");
                    add(target.as_os_str().as_bytes());
                }
                EntryKind::Dir => add(b"folder"),
                EntryKind::Fifo | EntryKind::Socket | EntryKind::Device => add(b"special"),
            }
        }
        let fingerprint = Digest::from_bytes(hash.finalize().into());
        Ok(Content { fingerprint, files: known, hashed_ns })
    }

    /// The image of an earlier build, where it is still there and still those bytes.
    fn made_before(&self, earlier: &Record) -> Option<Made> {
        let digest = earlier.image;
        let Some(target) = &self.target else {
            let entry = Store::open(&self.request.dirs).ok()?.get(&digest).ok()??;
            return Some(Made { digest, path: entry.image, bytes: entry.bytes, skipped: true });
        };
        let stat = Stat::of(&target.symlink_metadata().ok().filter(|m| m.is_file())?);
        let unchanged = earlier.output == Some(stat) && record::is_settled(&stat, earlier.hashed_ns);
        let same = unchanged || record::digest_of(target).is_ok_and(|d| d == digest);
        same.then(|| Made { digest, path: target.clone(), bytes: stat.size, skipped: true })
    }

    /// What keeps the entrypoint from starting. A run would refuse; a build says it, since the image may be meant for
    /// another day.
    fn entrypoint_notice(&self, made: &Made, packages: &[Resolved]) -> Option<String> {
        let mut images = vec![Image::open(&made.path).ok()?];
        for package in packages {
            images.push(Image::open(&package.entry.image).ok()?);
        }
        let layers: Vec<&Manifest> = packages.iter().map(|p| &*p.manifest).collect();
        let stack = LayerStack::new(images);
        let found = entrypoint::problem(&self.manifest, self.request.arch, &stack, &layers, true);
        found.ok()?.map(|problem| match problem.hint {
            Some(hint) => format!("{} ({hint})", problem.message),
            None => problem.message,
        })
    }

    fn tree(&self, listing: &Listing, decision: &Decision, lock: Option<&str>) -> Result<Tree, BuildError> {
        let mut takes: HashSet<&[u8]> = HashSet::new();
        for n in &decision.ships {
            let path = listing.entries[*n].path.as_slice();
            takes.insert(path);
            takes.extend(path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| &path[..at]));
        }
        let filter = |path: &Path, _: bool| takes.contains(path.as_os_str().as_bytes());
        let keep_owners = self.manifest.kind() == Kind::Base;
        let options = ScanOptions {
            prefix: self.prefix().into(),
            keep_owners,
            skip_special: false,
            filter: Some(&filter),
        };
        let mut tree = Tree::new();
        tree.scan_into(&self.request.dir, &options)?;
        let text = |text: &str| Source::Bytes(text.as_bytes().to_vec());
        tree.add_file(".manifest.toml", text(&self.text), Attr::mode(0o644))?;
        if let Some(lock) = lock {
            tree.add_file(".lock.toml", text(lock), Attr::mode(0o644))?;
        }
        Ok(tree)
    }

    /// Where the directory stands in the image. Source: spec, "The image".
    fn prefix(&self) -> String {
        match self.manifest.kind() {
            Kind::Base => String::new(),
            Kind::Layer => format!("opt/{}", self.image.stem()),
            Kind::App | Kind::Composition => format!("opt/{}", self.image.name),
        }
    }

    fn pack(&self, tree: &Tree) -> Result<Made, BuildError> {
        let options = PackOptions {
            level: LEVEL_BUILD,
            threads: self.request.threads,
            epoch: self.request.epoch,
            keep_owners: self.manifest.kind() == Kind::Base,
        };
        let Some(target) = &self.target else {
            let store = Store::open(&self.request.dirs)?;
            let origin = Origin { source: None, image: self.image.clone() };
            let (entry, packed) = store.pack(tree, &options, origin)?;
            return Ok(Made {
                digest: packed.digest,
                path: entry.image,
                bytes: packed.bytes,
                skipped: false,
            });
        };
        let wrong = |e| BuildError::io("write", target, e);
        let mut pending = Pending::create(parent(target), Access::Umask).map_err(wrong)?;
        let packed = pack(tree, &options, pending.file())?;
        pending.place(target, Lasts::PowerCut).map_err(wrong)?;
        Ok(Made { digest: packed.digest, path: target.clone(), bytes: packed.bytes, skipped: false })
    }
}

/// What an image is made of.
struct Content {
    /// All of it, as one digest.
    fingerprint: Digest,
    /// Each file.
    files: HashMap<Vec<u8>, Known>,
    /// When the files were hashed, in nanoseconds since 1970.
    hashed_ns: i128,
}

struct Made {
    digest: Digest,
    path: PathBuf,
    bytes: u64,
    skipped: bool,
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The real path of a file that may not be there yet.
fn real_path(path: &Path) -> PathBuf {
    match (parent(path).canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

fn shipped(listing: &Listing, decision: &Decision, chosen: bool) -> Shipped {
    let mut top: BTreeMap<Vec<u8>, (bool, u64, u64)> = BTreeMap::new();
    for n in &decision.ships {
        let entry = &listing.entries[*n];
        let first = entry.path.split(|b| *b == b'/').next().unwrap_or_default();
        let below = first.len() < entry.path.len();
        let row = top.entry(first.to_vec()).or_default();
        row.0 |= below || entry.kind == EntryKind::Dir;
        match entry.kind {
            EntryKind::File(size) => (row.1, row.2) = (row.1 + 1, row.2 + size),
            EntryKind::Dir => {}
            _ => row.1 += 1,
        }
    }
    let (files, bytes) = top.values().fold((0, 0), |(f, b), row| (f + row.1, b + row.2));
    let shown = |name: Vec<u8>, folder| {
        format!("{}{}", String::from_utf8_lossy(&name), if folder { "/" } else { "" })
    };
    let top =
        top.into_iter().map(|(name, (folder, files, bytes))| (shown(name, folder), files, bytes)).collect();
    Shipped { files, bytes, chosen, top }
}
