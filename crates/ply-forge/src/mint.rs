//! From a tree of files and a manifest to an image, whole or not at all.

use crate::closure::Unresolved;
use crate::error::{ForgeError, Result};
use crate::files::{Data, Entry, Files};
use crate::inventory::Line;
use ply_image::{Access, Attr, LEVEL_FORGE, Lasts, PackOptions, Source, Tree};
use ply_manifest::{Arch, Digest, ImageName, Manifest};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// An image that was made.
#[derive(Debug, Clone)]
pub struct Minted {
    /// Its file name.
    pub image: ImageName,
    /// Its sha256.
    pub digest: Digest,
    /// Where it is.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// How many files it holds.
    pub files: u64,
    /// The manifest inside, as text.
    pub manifest_text: String,
    /// The same, read.
    pub manifest: Manifest,
    /// Debian's packages inside; the one that was asked for first, in a base by name.
    pub packages: Vec<Line>,
    /// Libraries that are needed and that nothing holds.
    pub unresolved: Vec<Unresolved>,
    /// What was left out or is missing, one sentence each.
    pub notes: Vec<String>,
}

/// What goes into an image, before it is packed.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) files: Files,
    pub(crate) manifest_text: String,
    pub(crate) manifest: Manifest,
    pub(crate) lock_text: Option<String>,
    pub(crate) arch: Arch,
    /// A base keeps modes and owners; everything else is reduced to 0755 and 0644 of root.
    pub(crate) is_base: bool,
    pub(crate) packages: Vec<Line>,
    pub(crate) unresolved: Vec<Unresolved>,
    pub(crate) notes: Vec<String>,
}

impl Draft {
    /// The file name that the manifest gives.
    pub(crate) fn image(&self) -> ImageName {
        let package = &self.manifest.package;
        ImageName { name: package.name.clone(), version: package.version.clone(), arch: self.arch }
    }

    /// Packs into `dir`, under the image's own name; an older file of that name is replaced in one step.
    pub(crate) fn pack(self, dir: &Path, threads: usize) -> Result<Minted> {
        let mut minted = self.pack_beside(dir, threads)?;
        let path = dir.join(minted.image.to_string());
        fs::rename(&minted.path, &path).map_err(|e| {
            let _ = fs::remove_file(&minted.path);
            ForgeError::file("cannot write", &path)(e)
        })?;
        minted.path = path;
        sync_dir(dir)?;
        Ok(minted)
    }

    /// Packs into a temporary file in `dir`, for the caller to rename or remove.
    pub(crate) fn pack_beside(self, dir: &Path, threads: usize) -> Result<Minted> {
        fs::create_dir_all(dir).map_err(ForgeError::file("cannot create", dir))?;
        let image = self.image();
        let tree = self.tree()?;
        let mut options = PackOptions::new(LEVEL_FORGE);
        options.threads = threads;
        options.keep_owners = self.is_base;
        let (path, mut file) = temporary(dir, &image.to_string())?;
        let packed = ply_image::pack(&tree, &options, &mut file)
            .map_err(|e| ForgeError::Image(e.to_string()))
            .and_then(|packed| {
                file.sync_all().map(|()| packed).map_err(ForgeError::file("cannot write", &path))
            });
        let packed = packed.inspect_err(|_| drop(fs::remove_file(&path)))?;
        Ok(Minted {
            image,
            digest: packed.digest,
            path,
            bytes: packed.bytes,
            files: packed.files,
            manifest_text: self.manifest_text,
            manifest: self.manifest,
            packages: self.packages,
            unresolved: self.unresolved,
            notes: self.notes,
        })
    }

    fn tree(&self) -> Result<Tree> {
        let wrong = |e: ply_image::ImageError| ForgeError::Image(e.to_string());
        let mut tree = Tree::new();
        for (path, entry) in self.files.iter() {
            let at = Path::new(OsStr::from_bytes(path));
            match entry {
                Entry::Dir(meta) => tree.add_dir(at, attr(meta.mode, meta.uid, meta.gid)),
                Entry::Link(target) => tree.add_symlink(at, OsStr::from_bytes(target), Attr::mode(0o777)),
                Entry::File(meta, data) => {
                    let source = match data {
                        Data::Bytes(bytes) => Source::Bytes(bytes.to_vec()),
                        Data::Spooled(path) => Source::Path(path.as_path().to_path_buf()),
                    };
                    tree.add_file(at, source, attr(meta.mode, meta.uid, meta.gid))
                }
            }
            .map_err(wrong)?;
        }
        let own = [(".manifest.toml", Some(&self.manifest_text)), (".lock.toml", self.lock_text.as_ref())];
        for (name, text) in own {
            if let Some(text) = text {
                let bytes = Source::Bytes(text.clone().into_bytes());
                tree.add_file(name, bytes, Attr::mode(0o644)).map_err(wrong)?;
            }
        }
        Ok(tree)
    }
}

fn attr(mode: u32, uid: u32, gid: u32) -> Attr {
    Attr { mode: (mode & 0o7777) as u16, uid, gid, xattrs: Vec::new() }
}

/// A fresh file beside the one that it will become.
fn temporary(dir: &Path, name: &str) -> Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".{name}.{}.{number}.tmp", std::process::id()));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    Ok((path.clone(), file.map_err(ForgeError::file("cannot create", path))?))
}

/// Writes a published file, whole or not at all.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    ply_image::write_atomic(path, bytes, Access::Umask, Lasts::PowerCut)
        .map_err(ForgeError::file("cannot write", path))
}

/// Makes a rename last.
pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(ForgeError::file("cannot sync", dir))
}
