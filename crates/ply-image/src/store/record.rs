//! The record in each entry's folder, and what a manifest says of the image that it is in.

use super::entry::DAMAGED;
use super::{IMAGE, LOCK, MANIFEST, TEMPORARY, lock};
use crate::bounded::{OWN_FILE_MAX, read_at_most};
use crate::error::{ImageError, Result};
use crate::image::RULES;
use ply_manifest::{ImageName, PackageName, Version};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The format of what this ply writes, and the newest that it reads.
const FORMAT: u32 = 1;
/// The record's name in an entry's folder.
pub(crate) const RECORD: &str = "entry.json";

/// What the store knows of an entry beyond its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    format: u32,
    /// The image's name.
    pub(crate) image: ImageName,
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// Whether it has a lock.
    pub(crate) has_lock: bool,
    /// The sizes of the manifest and of the lock beside it, in bytes. Entries of the first plys don't say them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beside: Option<(u64, u64)>,
    /// Where it was fetched from, and the order in which that was last seen.
    pub(crate) sources: BTreeMap<String, u64>,
    /// What the file looked like, where the source was a folder.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) files: BTreeMap<String, SourceFile>,
    /// The number of the rules by which [`Image::check`](crate::Image::check) found it good; 0 where it was entered
    /// before there were any.
    #[serde(default)]
    pub(crate) checked: u32,
}

/// What a file looked like when its bytes were taken. As long as it looks like that, its bytes are the same: no write
/// to it leaves the time of its last change alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    bytes: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl SourceFile {
    /// Of a file that is open, before its first byte is read. None where it changed within the clock's last ticks: a
    /// further change would not be seen.
    pub fn of(meta: &std::fs::Metadata) -> Option<Self> {
        let settled = SystemTime::now() - Duration::from_millis(50);
        let since = settled.duration_since(UNIX_EPOCH).unwrap_or_default();
        let changed = (meta.ctime(), meta.ctime_nsec());
        let limit = (since.as_secs().cast_signed(), i64::from(since.subsec_nanos()));
        let modified = (meta.mtime(), meta.mtime_nsec());
        (changed < limit).then_some(Self { bytes: meta.len(), inode: meta.ino(), modified, changed })
    }
}

#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

impl Record {
    pub(crate) fn new(image: ImageName, bytes: u64, manifest: &str, lock: Option<&str>) -> Self {
        let beside = Some((manifest.len() as u64, lock.map_or(0, str::len) as u64));
        Self {
            format: FORMAT,
            image,
            bytes,
            has_lock: lock.is_some(),
            beside,
            sources: BTreeMap::new(),
            files: BTreeMap::new(),
            checked: RULES,
        }
    }

    /// The record of an entry that can be used: marked as damaged by nobody, its files all there and of the size that
    /// they had. What is not whole counts as absent, so that it is fetched or built again.
    pub(super) fn of_whole(folder: &Path) -> Result<Option<Self>> {
        let record = match Self::read(folder) {
            Err(ImageError::BadRecord { .. }) => return Ok(None),
            other => other?,
        };
        Ok(record.filter(|record| record.is_whole(folder)))
    }

    fn is_whole(&self, folder: &Path) -> bool {
        let is = |name: &str, bytes: Option<u64>| {
            std::fs::symlink_metadata(folder.join(name))
                .is_ok_and(|m| m.is_file() && bytes.is_none_or(|bytes| m.len() == bytes))
        };
        is(IMAGE, Some(self.bytes))
            && is(MANIFEST, self.beside.map(|(manifest, _)| manifest))
            && (!self.has_lock || is(LOCK, self.beside.map(|(_, lock)| lock)))
            && !folder.join(DAMAGED).exists()
    }

    /// The record of a folder; none where the folder or the record is gone.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(RECORD);
        let text = match read_at_most(&path, OWN_FILE_MAX) {
            Ok(text) => text,
            Err(e)
                if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            Err(e) => return Err(ImageError::io("read", &path)(e)),
        };
        let bad = |e: serde_json::Error| ImageError::BadRecord { path: path.clone(), why: e.to_string() };
        // The number first: what else a newer format holds is not ours to read.
        let FormatOnly { format } = serde_json::from_slice(&text).map_err(bad)?;
        if format > FORMAT {
            return Err(ImageError::NewerFormat { path, found: format, known: FORMAT });
        }
        serde_json::from_slice(&text).map(Some).map_err(bad)
    }

    /// Puts the record in the place of the one in `folder`, by way of `store`, the folder above. Says whether the
    /// folder was still there.
    pub(crate) fn replace(&self, store: &Path, folder: &Path) -> Result<bool> {
        let temporary = store.join(format!("{TEMPORARY}{}.json", lock::token()));
        self.write(&temporary)?;
        let at = folder.join(RECORD);
        match std::fs::rename(&temporary, &at) {
            Ok(()) => Ok(true),
            Err(e) => {
                let _ = std::fs::remove_file(&temporary);
                if e.kind() == std::io::ErrorKind::NotFound {
                    Ok(false)
                } else {
                    Err(ImageError::io("write", &at)(e))
                }
            }
        }
    }

    /// Writes the record to a file of this name and syncs it.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|e| ImageError::BadRecord { path: path.to_owned(), why: e.to_string() })?;
        text.push(b'\n');
        write_synced(path, &text)
    }
}

/// Writes a new file and syncs it.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).map_err(ImageError::io("create", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(ImageError::io("write", path))
}

/// Syncs a folder, so that the names in it last.
pub(crate) fn sync_dir(path: &Path) -> Result<()> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(ImageError::io("sync", path))
}

/// Name and version that a manifest declares, whatever else is in it.
pub(crate) fn identity(text: &str) -> std::result::Result<(PackageName, Version), String> {
    #[derive(Deserialize)]
    struct Declared {
        package: Option<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        name: Option<String>,
        version: Option<String>,
    }
    let declared: Declared = toml::from_str(text).map_err(|e| e.message().to_owned())?;
    let Package { name, version } = declared.package.ok_or("it has no [package]")?;
    let name = name.ok_or("it has no name")?.parse().map_err(|e: ply_manifest::NounError| e.message)?;
    let version =
        version.ok_or("it has no version")?.parse().map_err(|e: ply_manifest::NounError| e.message)?;
    Ok((name, version))
}
