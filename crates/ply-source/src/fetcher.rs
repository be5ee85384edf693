//! What the verbs use: one value that finds, fetches, resolves.

use crate::{Entry, FetchOptions, Found, Outdated, SourceError, Tree};
use ply_manifest::{ImageName, Lock, LockedPackage, Manifest, PackageName, Reference, SourceSpec};

/// Finds, fetches and resolves packages. Opens no connection before it needs one; shared between threads.
pub struct Fetcher {
    options: FetchOptions,
}

/// What resolution may do with a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Keep it as it is while it satisfies the manifest, else change as little as needed.
    Keep,
    /// Refuse to change it (`--locked`).
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
    /// Whether `lock` differs from what was given.
    pub changed: bool,
}

/// One package of a resolved graph.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Its image in the store.
    pub entry: Entry,
    /// Its manifest.
    pub manifest: std::sync::Arc<Manifest>,
    /// Who asks for it, as `name version`, sorted; the root is among them by its own name.
    pub requested_by: Vec<String>,
    /// Whether it is the base.
    pub base: bool,
}

impl Fetcher {
    /// A fetcher. Nothing is opened yet.
    pub fn new(options: FetchOptions) -> Self {
        Self { options }
    }

    /// What it was made of.
    pub fn options(&self) -> &FetchOptions {
        &self.options
    }

    /// Resolves `manifest` for the fetcher's arch, by Minimal Version Selection, and puts every package of the graph
    /// into the store. `existing` is the lock next to the manifest.
    pub fn resolve(
        &self,
        manifest: &Manifest,
        existing: Option<&Lock>,
        mode: Mode,
    ) -> Result<Resolution, SourceError> {
        let _ = (manifest, existing, mode);
        Err(unbuilt())
    }

    /// The image of a locked package for the fetcher's arch: from the store, else from whoever has the digest.
    pub fn ensure(&self, package: &LockedPackage) -> Result<Entry, SourceError> {
        let _ = package;
        Err(unbuilt())
    }

    /// [`Self::ensure`] for a whole lock, several at once, in the lock's order.
    pub fn ensure_lock(&self, lock: &Lock) -> Result<Vec<Entry>, SourceError> {
        lock.packages.iter().map(|package| self.ensure(package)).collect()
    }

    /// The newest image that a reference allows, fetched. Where no source answers, the newest that the store holds, with
    /// a notice.
    pub fn lookup(&self, reference: &Reference) -> Result<Entry, SourceError> {
        let _ = reference;
        Err(unbuilt())
    }

    /// The image at a URL.
    pub fn url(&self, url: &str) -> Result<Entry, SourceError> {
        let _ = url;
        Err(unbuilt())
    }

    /// The images of a package that a source lists, all archs, lowest version first; from the default source where none is
    /// given.
    pub fn versions(
        &self,
        name: &PackageName,
        source: Option<&SourceSpec>,
    ) -> Result<Vec<ImageName>, SourceError> {
        let _ = (name, source);
        Err(unbuilt())
    }

    /// The packages whose name or description holds every word of `term`, best first.
    pub fn search(&self, term: &str) -> Result<Vec<Found>, SourceError> {
        let _ = term;
        Err(unbuilt())
    }

    /// For each dependency of `manifest` and its base: locked, newest in range, newest.
    pub fn outdated(&self, manifest: &Manifest, lock: &Lock) -> Result<Vec<Outdated>, SourceError> {
        let _ = (manifest, lock);
        Err(unbuilt())
    }

    /// Who brings what, with sizes.
    pub fn tree(&self, manifest: &Manifest, lock: &Lock) -> Result<Tree, SourceError> {
        let _ = (manifest, lock);
        Err(unbuilt())
    }
}

fn unbuilt() -> SourceError {
    SourceError::Store("not built yet".to_owned())
}
