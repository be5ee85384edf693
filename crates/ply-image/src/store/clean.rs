//! How images leave: one that is named, or all that nobody needs. A running one stays whatever is asked.

use super::entry::TREE_TEMPORARY;
use super::lock::{self, try_exclusive};
use super::{IMAGE, Store, TEMPORARY, TREE};
use crate::error::{ImageError, Result};
use ply_manifest::{Digest, ImageName};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a clean-up removed, or would remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Removed images, by digest, with their names where the record could be read.
    pub removed: Vec<(Digest, Option<ImageName>)>,
    /// Images that nobody asked to keep but that are running.
    pub running: Vec<Digest>,
    /// Temporary leftovers.
    pub leftovers: usize,
    /// What that freed, in bytes on the disk.
    pub freed: u64,
}

impl Store {
    /// Removes one image, with its extracted tree. Whether somebody needs it is the caller's to know.
    ///
    /// # Errors
    /// [`ImageError::NotInStore`], [`ImageError::Running`], [`ImageError::Io`].
    pub fn remove(&self, digest: &Digest) -> Result<()> {
        let place = self.folder(digest);
        if !place.is_dir() {
            return Err(ImageError::NotInStore(*digest));
        }
        let Some(_lock) = alone(&place)? else { return Err(ImageError::Running(*digest)) };
        self.put_aside(&place)
    }

    /// Removes every image that is not in `keep` and not running, and leftovers that nobody works on. With
    /// `dry_run` only tells what it would do.
    ///
    /// # Errors
    /// [`ImageError::Busy`] where another command holds the store for long, [`ImageError::Io`].
    pub fn gc(&self, keep: &BTreeSet<Digest>, dry_run: bool) -> Result<GcReport> {
        let _hold = self.hold_alone()?;
        let mut report = GcReport::default();
        for digest in self.digests()? {
            let place = self.folder(&digest);
            if keep.contains(&digest) {
                self.clean_entry(&place, dry_run, &mut report)?;
                continue;
            }
            let Some(_lock) = alone(&place)? else {
                report.running.push(digest);
                continue;
            };
            let name = super::record::Record::read(&place).ok().flatten().map(|record| record.image);
            report.freed += size_of(&place);
            if !dry_run {
                self.put_aside(&place)?;
            }
            report.removed.push((digest, name));
        }
        for path in self.leftovers()? {
            if let Ok(open) = File::open(&path)
                && try_exclusive(&open, &path)?
            {
                self.drop_leftover(&path, dry_run, &mut report)?;
            }
        }
        Ok(report)
    }

    /// Unfinished extractions in an entry that stays.
    fn clean_entry(&self, place: &Path, dry_run: bool, report: &mut GcReport) -> Result<()> {
        let unfinished: Vec<PathBuf> = std::fs::read_dir(place)
            .map_err(ImageError::io("read", place))?
            .flatten()
            .filter(|e| e.file_name().as_encoded_bytes().starts_with(TREE_TEMPORARY.as_bytes()))
            .map(|e| e.path())
            .collect();
        let lock = place.join(".extract");
        if unfinished.is_empty() {
            return Ok(());
        }
        if let Ok(open) = File::open(&lock)
            && !try_exclusive(&open, &lock)?
        {
            return Ok(());
        }
        for path in unfinished {
            self.drop_leftover(&path, dry_run, report)?;
        }
        Ok(())
    }

    fn drop_leftover(&self, path: &Path, dry_run: bool, report: &mut GcReport) -> Result<()> {
        report.leftovers += 1;
        report.freed += size_of(path);
        if dry_run { Ok(()) } else { crate::extract::remove_tree(path) }
    }

    fn leftovers(&self) -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(self.dir()).map_err(ImageError::io("read", self.dir()))?;
        let mut found: Vec<PathBuf> = entries
            .flatten()
            .filter(|e| e.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes()))
            .map(|e| e.path())
            .collect();
        found.sort();
        Ok(found)
    }
}

/// The lock that a removal needs; none where the image is running. An entry without an image can't run.
pub(super) fn alone(place: &Path) -> Result<Option<Option<File>>> {
    let path = place.join(IMAGE);
    match File::open(&path) {
        Ok(file) => Ok(try_exclusive(&file, &path)?.then_some(Some(file))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Some(None)),
        Err(e) => Err(ImageError::io("open", &path)(e)),
    }
}

/// What a path takes on the disk, with everything below it. What can't be read counts nothing.
pub(super) fn size_of(path: &Path) -> u64 {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return 0 };
    let below = if meta.is_dir() {
        std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| size_of(&e.path())).sum()
    } else {
        0
    };
    meta.blocks() * 512 + below
}

impl super::Entry {
    /// What its extracted tree takes on the disk, in bytes; 0 where there is none.
    pub fn tree_bytes(&self) -> u64 {
        size_of(&self.dir.join(TREE))
    }

    /// Removes its extracted tree, where there is one. The caller is who could extract it.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn remove_tree(&self) -> Result<()> {
        let tree = self.tree();
        let aside = self.dir.join(format!("{TREE_TEMPORARY}{}", lock::token()));
        match std::fs::rename(&tree, &aside) {
            Ok(()) => crate::extract::remove_tree(&aside),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(ImageError::io("remove", &tree)(e)),
        }
    }
}
