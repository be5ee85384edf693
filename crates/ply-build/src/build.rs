//! `ply build`: the directory's manifest, its resolved graph, what ships, one image. Source: spec, "Images, the
//! build, the store".

use ply_image::Dirs;
use ply_manifest::{Arch, Digest, ImageName, Lock, Manifest};
use std::path::PathBuf;

/// Where the image goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// `<name>-<version>-linux-<arch>.img` in the directory itself.
    Folder,
    /// This file (`-o`).
    File(PathBuf),
    /// The store; nothing but `ply.lock` is written to the directory.
    Store,
}

/// What `ply build` is asked.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// The directory.
    pub dir: PathBuf,
    /// Where the image goes.
    pub output: Output,
    /// What the image is for.
    pub arch: Arch,
    /// Whether a lock that would change is an error (`--locked`).
    pub locked: bool,
    /// Whether credential-shaped names may ship (`--allow-secrets`).
    pub allow_secrets: bool,
    /// A manifest that stands in for a `ply.toml` that isn't there. Then no lock is written to the directory.
    pub manifest: Option<String>,
    /// The folders of ply on this host: the store, and the records by which an unchanged build is skipped.
    pub dirs: Dirs,
    /// Threads for packing; 0 is one a core. The bytes never depend on it.
    pub threads: usize,
    /// `SOURCE_DATE_EPOCH` in seconds: the time of every entry; 0 where it is not set.
    pub epoch: u32,
}

impl BuildRequest {
    /// `ply build DIR` without flags, for this host's arch.
    pub fn new(dir: impl Into<PathBuf>, dirs: Dirs) -> Self {
        Self {
            dir: dir.into(),
            output: Output::Folder,
            arch: Arch::HOST,
            locked: false,
            allow_secrets: false,
            manifest: None,
            dirs,
            threads: 0,
            epoch: 0,
        }
    }
}

/// What a build made.
#[derive(Debug, Clone)]
pub struct Built {
    /// The image's name.
    pub image: ImageName,
    /// Its digest.
    pub digest: Digest,
    /// Where it is: in the directory, at `-o`, or in the store.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether it was there already, made of the same content.
    pub skipped: bool,
    /// Whether `ply.lock` was written.
    pub lock_changed: bool,
    /// What shipped.
    pub shipped: Shipped,
    /// What was left out by rule, as paths of the directory; a folder ends in `/` and stands for all below it.
    pub left_out: Vec<String>,
    /// What the person should know: one sentence each.
    pub notices: Vec<String>,
    /// The manifest.
    pub manifest: Manifest,
    /// The resolved graph, in layer order.
    pub lock: Lock,
}

/// What shipped, in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shipped {
    /// Files and symlinks.
    pub files: u64,
    /// Their content in bytes, before compression.
    pub bytes: u64,
    /// Whether `include` chose them; otherwise everything shipped.
    pub chosen: bool,
    /// The top entries of the directory that shipped, sorted: name (a folder ends in `/`), files, bytes.
    pub top: Vec<(String, u64, u64)>,
}
