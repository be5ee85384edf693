//! What the verbs use: one value that finds, fetches, resolves.

use crate::http::Client;
use crate::sources::Known;
use crate::{Entry, FetchOptions, SourceError, parallel};
use ply_manifest::{Digest, ImageName, Lock, LockedPackage, Manifest, Owner, PackageName, Range, SourceSpec};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Finds, fetches and resolves packages. Opens no connection before it needs one; shared between threads. What a source says of
/// itself is read once, so that one command sees one state of it.
pub struct Fetcher {
    options: FetchOptions,
    client: Client,
    pub(crate) known: Known,
    pub(crate) manifests: Mutex<BTreeMap<Digest, Arc<Manifest>>>,
}

impl Fetcher {
    /// A fetcher. Nothing is opened yet.
    pub fn new(options: FetchOptions) -> Self {
        let client = Client::new(options.network.clone(), options.insecure);
        Self { options, client, known: Known::default(), manifests: Mutex::default() }
    }

    /// What it was made of.
    pub fn options(&self) -> &FetchOptions {
        &self.options
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// What answers for a package whose manifest says nothing: `--source`, else the default.
    pub fn usual_source(&self) -> &SourceSpec {
        self.options.source.as_ref().unwrap_or(&self.options.default_source.spec)
    }

    /// The image of a locked package for the fetcher's arch: from the store, else from `--source` or `PLY_REGISTRY`, the lock's source,
    /// the default; whoever has the digest serves.
    ///
    /// # Errors
    /// [`SourceError::NoDigest`]; where one place was asked its own error, else [`SourceError::Missing`] with what each said.
    pub fn ensure(&self, package: &LockedPackage) -> Result<Entry, SourceError> {
        self.ensure_locked(package)
    }

    /// [`Self::ensure`] for the packages of a lock, several at once, in the lock's order. Opens no connection where the store has all.
    ///
    /// # Errors
    /// Those of the first package in the lock's order that can't be had.
    pub fn ensure_lock(&self, lock: &Lock) -> Result<Vec<Entry>, SourceError> {
        parallel::each(self.options.network.parallel, &lock.packages, |package| self.ensure_locked(package))
            .into_iter()
            .collect()
    }

    /// An image by its digest, as a lock of another kind pins it (a composition's member): from the store, else from `--source` or
    /// `PLY_REGISTRY`, else the default.
    ///
    /// # Errors
    /// As [`Self::ensure`].
    pub fn ensure_digest(
        &self,
        image: &ImageName,
        digest: Digest,
        owner: Option<&Owner>,
    ) -> Result<Entry, SourceError> {
        self.by_digest(image, digest, None, &owner.cloned().unwrap_or_default())
    }

    /// The image at a URL. One whose file name is an image's is not fetched again; any other is, each time.
    ///
    /// # Errors
    /// Those of the network; [`SourceError::WrongName`], [`SourceError::NoImage`].
    pub fn url(&self, url: &str) -> Result<Entry, SourceError> {
        self.image_at(url)
    }

    /// The images of a package that a source lists, all archs, lowest version first; of the usual source where none is given.
    ///
    /// # Errors
    /// [`SourceError::CantList`] for a forge, [`SourceError::NoIndex`], those of the network.
    pub fn versions(
        &self,
        name: &PackageName,
        source: Option<&SourceSpec>,
    ) -> Result<Vec<ImageName>, SourceError> {
        let source = source.unwrap_or_else(|| self.usual_source());
        self.images(source, &Owner::default(), name, &Range::Any)
    }
}
