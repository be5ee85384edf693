//! The list of a directory's entries, as the rules want it, with what the file system said of each.

use crate::BuildError;
use crate::ship::{Entry, EntryKind, Rules};
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What the file system said of an entry: two equal ones, some seconds old, mean the same content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) size: u64,
    pub(crate) mtime_ns: i128,
    pub(crate) ctime_ns: i128,
    pub(crate) ino: u64,
    pub(crate) dev: u64,
    pub(crate) mode: u32,
}

impl Stat {
    pub(crate) fn of(meta: &Metadata) -> Self {
        let ns = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self {
            size: meta.size(),
            mtime_ns: ns(meta.mtime(), meta.mtime_nsec()),
            ctime_ns: ns(meta.ctime(), meta.ctime_nsec()),
            ino: meta.ino(),
            dev: meta.dev(),
            mode: meta.mode(),
        }
    }

    /// Whether the owner may execute it: all that an image keeps of a mode.
    pub(crate) fn is_executable(&self) -> bool {
        self.mode & 0o100 != 0
    }
}

/// A directory's entries, sorted by their paths' bytes; `stats[n]` is of `entries[n]`.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    pub(crate) stats: Vec<Stat>,
}

/// The full path of an entry.
pub(crate) fn full(dir: &Path, path: &[u8]) -> PathBuf {
    dir.join(std::ffi::OsStr::from_bytes(path))
}

/// Lists `dir` as far as the rules want to look. Symlinks are entries and never followed; what vanishes between
/// two looks is not there.
pub(crate) fn walk(dir: &Path, rules: &Rules) -> Result<Listing, BuildError> {
    let mut found = Vec::new();
    let mut todo = vec![Vec::new()];
    while let Some(folder) = todo.pop() {
        let at = full(dir, &folder);
        let listing = match at.read_dir() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !folder.is_empty() => continue,
            other => other.map_err(|e| BuildError::io("read", &at, e))?,
        };
        for child in listing {
            let child = child.map_err(|e| BuildError::io("read", &at, e))?;
            let mut path = folder.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&child.file_name().into_vec());
            let meta = match child.metadata() {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                other => other.map_err(|e| BuildError::io("read", &child.path(), e))?,
            };
            let kind = kind(&meta);
            if kind == EntryKind::Dir && rules.descends(&path) {
                todo.push(path.clone());
            }
            found.push((Entry { path, kind }, Stat::of(&meta)));
        }
    }
    found.sort_by(|a, b| a.0.path.cmp(&b.0.path));
    let (entries, stats) = found.into_iter().unzip();
    Ok(Listing { entries, stats })
}

fn kind(meta: &Metadata) -> EntryKind {
    let kind = meta.file_type();
    if kind.is_dir() {
        EntryKind::Dir
    } else if kind.is_symlink() {
        EntryKind::Symlink
    } else if kind.is_fifo() {
        EntryKind::Fifo
    } else if kind.is_socket() {
        EntryKind::Socket
    } else if kind.is_file() {
        EntryKind::File(meta.size())
    } else {
        EntryKind::Device
    }
}
