//! The store as this crate sees it.

use ply_manifest::{Diagnostics, Digest, ImageName, Lock, Manifest};
use std::path::PathBuf;

/// The store.
#[derive(Debug, Clone, Default)]
pub struct Store;

/// One image in the store.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The digest.
    pub digest: Digest,
    /// The image's file.
    pub image: PathBuf,
    /// Its name.
    pub name: ImageName,
    /// Its size.
    pub bytes: u64,
}

impl Entry {
    /// The manifest.
    pub fn manifest(&self) -> Result<Manifest, Diagnostics> {
        Err(Diagnostics(Vec::new()))
    }

    /// The lock.
    pub fn lock(&self) -> Result<Option<Lock>, Diagnostics> {
        Ok(None)
    }
}
