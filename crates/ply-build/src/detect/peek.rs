//! A look into a directory: names, small texts, never through a symlink that leaves it.

use ply_manifest::PackageName;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The most that is read of one file, in bytes: manifests and source files are smaller.
const MOST: u64 = 1024 * 1024;

/// A directory that is being recognised.
pub(super) struct Peek {
    root: PathBuf,
    /// The names at the top, sorted; those that are no UTF-8 are left out.
    pub(super) top: Vec<String>,
    /// The folder's name, folded to the grammar of package names.
    pub(super) name: PackageName,
}

impl Peek {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let root = dir.canonicalize()?;
        let mut top = Vec::new();
        for entry in root.read_dir()? {
            if let Ok(name) = entry?.file_name().into_string() {
                top.push(name);
            }
        }
        top.sort();
        let folder = root.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let name = PackageName::fold(&folder)
            .unwrap_or_else(|| "app".parse().unwrap_or_else(|_| unreachable!("a package name")));
        Ok(Self { root, top, name })
    }

    pub(super) fn is_file(&self, path: &str) -> bool {
        self.root.join(path).is_file()
    }

    pub(super) fn is_dir(&self, path: &str) -> bool {
        self.root.join(path).is_dir()
    }

    /// The first of `paths` that is a file.
    pub(super) fn first<'a>(&self, paths: &[&'a str]) -> Option<&'a str> {
        paths.iter().find(|p| self.is_file(p)).copied()
    }

    /// The text of a file beneath the directory; none where there is none, or it is no text or beyond the limit.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let file = File::open(self.root.join(path)).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut text = String::new();
        file.take(MOST).read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// The names in a folder, sorted; empty where there is none.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .root
            .join(folder)
            .read_dir()
            .into_iter()
            .flatten()
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// The bytes of an executable regular file, for a look at its header; none where it is not executable.
    pub(super) fn executable(&self, path: &str) -> Option<Vec<u8>> {
        let full = self.root.join(path);
        let meta = full.symlink_metadata().ok()?;
        if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
            return None;
        }
        // What is asked for stands in front: headers and, for a linked program, its dynamic section.
        let mut bytes = Vec::new();
        let mut file = File::open(full).ok()?;
        let mut magic = [0; 4];
        file.read_exact(&mut magic).ok()?;
        if &magic != b"\x7fELF" {
            return None;
        }
        bytes.extend_from_slice(&magic);
        file.take(64 * MOST).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }
}
