//! An app's folder as the verbs of dependencies see it: the manifest and the lock beside it.

use crate::failure::Failure;
use ply_manifest::{Lock, Manifest};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// `ply.toml` as text and value, and `ply.lock` where there is one.
pub(crate) struct Folder {
    pub(crate) manifest_path: PathBuf,
    pub(crate) manifest_text: String,
    pub(crate) manifest: Manifest,
    pub(crate) lock_path: PathBuf,
    pub(crate) lock: Option<Lock>,
}

impl Folder {
    /// Reads both. Errors: no `ply.toml`, or either file is wrong.
    pub(crate) fn read(dir: &Path) -> Result<Self, Failure> {
        let manifest_path = dir.join("ply.toml");
        let manifest_text = std::fs::read_to_string(&manifest_path).map_err(|why| match why.kind() {
            ErrorKind::NotFound => Failure::new(format!("{} is not there", manifest_path.display()))
                .hint("ply init writes one; --dir names another folder"),
            _ => Failure::new(format!("{} can't be read: {why}", manifest_path.display())),
        })?;
        let manifest = Manifest::parse(&manifest_text, &manifest_path.display().to_string())?;
        let lock_path = dir.join("ply.lock");
        let lock = match std::fs::read_to_string(&lock_path) {
            Ok(text) => Some(Lock::parse(&text, &lock_path.display().to_string())?),
            Err(why) if why.kind() == ErrorKind::NotFound => None,
            Err(why) => return Err(Failure::new(format!("{} can't be read: {why}", lock_path.display()))),
        };
        Ok(Self { manifest_path, manifest_text, manifest, lock_path, lock })
    }

    /// The lock, or the error that there is none yet.
    pub(crate) fn lock(&self) -> Result<&Lock, Failure> {
        self.lock.as_ref().ok_or_else(|| {
            Failure::new(format!("{} is not there", self.lock_path.display()))
                .hint("ply build resolves the dependencies and writes it")
        })
    }

    /// Writes one of the two files whole: a temporary file beside it, then a rename.
    pub(crate) fn replace(path: &Path, text: &str) -> Result<(), Failure> {
        ply_image::write_atomic(path, text.as_bytes(), ply_image::Access::Kept, ply_image::Lasts::PowerCut)
            .map_err(|why| Failure::new(format!("{} can't be written: {why}", path.display())))
    }
}
