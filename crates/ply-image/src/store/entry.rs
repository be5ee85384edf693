//! One image in the store.

use super::lock::{self, FileLock};
use super::record::{self, Record, SourceFile};
use super::{IMAGE, LOCK, MANIFEST, TREE};
use crate::bounded::read_text_at_most;
use crate::error::{ImageError, Result};
use crate::extract::{ExtractOptions, Owners};
use crate::image::{Image, LOCK_PATH, MANIFEST_PATH, RULES, TEXT_LIMIT};
use ply_manifest::{Digest, ImageName, Lock, Manifest};
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Says that an entry's bytes were found to be wrong.
pub(super) const DAMAGED: &str = "damaged";
/// Whoever extracts holds a lock on this file.
const EXTRACTING: &str = ".extract";
/// An extraction that is not finished.
pub(super) const TREE_TEMPORARY: &str = ".tree-";

/// One image in the store, with what was read from it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its folder.
    pub dir: PathBuf,
    /// The image file.
    pub image: PathBuf,
    /// The manifest beside it.
    pub manifest_path: PathBuf,
    /// The lock beside it, where the image has one.
    pub lock_path: Option<PathBuf>,
    /// Its name; the manifest inside has the same.
    pub name: ImageName,
    /// The size of the image file.
    pub bytes: u64,
    /// Where it was fetched from last; none for what was built or inserted from a file.
    pub source: Option<String>,
    pub(crate) sources: BTreeMap<String, u64>,
    files: BTreeMap<String, SourceFile>,
    checked: u32,
}

impl Entry {
    /// Reads an entry's record; none where it is not there, not whole or known to be damaged.
    pub(super) fn load(dir: &Path, digest: Digest) -> Result<Option<Self>> {
        Ok(Record::of_whole(dir)?.map(|record| Self::from_record(dir, digest, record)))
    }

    pub(super) fn from_record(dir: &Path, digest: Digest, record: Record) -> Self {
        let source = record.sources.iter().max_by_key(|(_, when)| **when).map(|(source, _)| source.clone());
        Self {
            digest,
            dir: dir.to_owned(),
            image: dir.join(IMAGE),
            manifest_path: dir.join(MANIFEST),
            lock_path: record.has_lock.then(|| dir.join(LOCK)),
            name: record.image,
            bytes: record.bytes,
            source,
            sources: record.sources,
            files: record.files,
            checked: record.checked,
        }
    }

    /// What the file of this source, a path, looked like when it was copied; none where that is not known.
    pub fn source_file(&self, source: &str) -> Option<SourceFile> {
        self.files.get(source).copied()
    }

    /// The manifest's text.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn manifest_text(&self) -> Result<String> {
        read_text_at_most(&self.manifest_path, TEXT_LIMIT)
            .map_err(ImageError::io("read", &self.manifest_path))
    }

    /// The lock's text, where the image has one.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn lock_text(&self) -> Result<Option<String>> {
        match &self.lock_path {
            Some(path) => read_text_at_most(path, TEXT_LIMIT).map(Some).map_err(ImageError::io("read", path)),
            None => Ok(None),
        }
    }

    /// The manifest.
    ///
    /// # Errors
    /// [`ImageError::BadManifest`], [`ImageError::Io`].
    pub fn manifest(&self) -> Result<Manifest> {
        Manifest::parse(&self.manifest_text()?, MANIFEST_PATH)
            .map_err(|why| ImageError::BadManifest { image: self.image.clone(), why: first(&why) })
    }

    /// The lock, where the image has one.
    ///
    /// # Errors
    /// [`ImageError::BadLock`], [`ImageError::Io`].
    pub fn lock(&self) -> Result<Option<Lock>> {
        let Some(text) = self.lock_text()? else { return Ok(None) };
        Lock::parse(&text, LOCK_PATH)
            .map(Some)
            .map_err(|why| ImageError::BadLock { image: self.image.clone(), why: first(&why) })
    }

    /// Opens the image for reading.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn open(&self) -> Result<Image> {
        Image::open(&self.image)
    }

    /// Makes sure that the image may be mounted or extracted: [`Image::check`] is done when it enters the store, and
    /// here, once, for what an older ply entered. The store's own record remembers it.
    ///
    /// # Errors
    /// As [`Image::check`].
    pub fn check(&self) -> Result<()> {
        if self.checked >= RULES {
            return Ok(());
        }
        self.open()?.check()?;
        let (Some(store), Some(mut record)) = (self.dir.parent(), Record::read(&self.dir)?) else {
            return Ok(());
        };
        record.checked = RULES;
        // Where it can't be written it is looked at again the next time.
        let _ = record.replace(store, &self.dir);
        Ok(())
    }

    /// Where the image is or would be extracted to.
    pub fn tree(&self) -> PathBuf {
        self.dir.join(TREE)
    }

    /// Whether it was extracted.
    pub fn is_extracted(&self) -> bool {
        self.tree().is_dir()
    }

    /// Extracts the image into `tree/`, whole or not at all, once: the second call does nothing. Owners are kept,
    /// so the caller is root or in a user namespace that maps the ids. Returns whether something was extracted.
    ///
    /// # Errors
    /// As [`Image::extract`].
    pub fn extract_tree(&self, threads: usize) -> Result<bool> {
        if self.is_extracted() {
            return Ok(false);
        }
        let _lock = FileLock::exclusive(&self.dir.join(EXTRACTING))?;
        if self.is_extracted() {
            return Ok(false);
        }
        lock::remove_leftovers(&self.dir, TREE_TEMPORARY);
        let temporary = self.dir.join(format!("{TREE_TEMPORARY}{}", lock::token()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&temporary)
            .map_err(ImageError::io("create", &temporary))?;
        let options = ExtractOptions { threads, owners: Owners::Image, ..ExtractOptions::default() };
        let done = self.open()?.extract(&temporary, &options).and_then(|_| {
            // Without it a crash could leave names without bytes under the final name.
            sync_filesystem(&temporary)?;
            let tree = self.tree();
            std::fs::rename(&temporary, &tree).map_err(ImageError::io("create", &tree))?;
            record::sync_dir(&self.dir)
        });
        if done.is_err() {
            let _ = crate::extract::remove_tree(&temporary);
        }
        done.map(|()| true)
    }
}

/// One sync for thousands of files.
fn sync_filesystem(dir: &Path) -> Result<()> {
    let open = std::fs::File::open(dir).map_err(ImageError::io("open", dir))?;
    rustix::fs::syncfs(&open).map_err(ImageError::os("sync", dir))
}

/// The first of a file's faults: one that nobody mends, inside an image, is likely to have many.
fn first(faults: &ply_manifest::Diagnostics) -> String {
    faults.0.first().map(ToString::to_string).unwrap_or_default()
}
