//! What can go wrong with images and the store, one variant a cause, each a sentence for the person who reads it.

use ply_manifest::{Digest, ImageName};
use std::io;
use std::path::{Path, PathBuf};

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, ImageError>;

/// An error of packing, reading, extracting or storing images.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The operating system refused something.
    #[error("can't {action} {path}: {error}", path = shown(path))]
    Io {
        /// The verb: read, write, create…
        action: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A file changed between the look at the tree and the end of packing.
    #[error("{path} changed while it was packed", path = shown(.0))]
    Changed(PathBuf),
    /// A file was gone when its turn came.
    #[error("{path} vanished while it was packed", path = shown(.0))]
    Vanished(PathBuf),
    /// Something that an image can't hold.
    #[error("an image can't hold a {kind}: {path}", path = shown(path))]
    Special {
        /// Socket, device or fifo.
        kind: &'static str,
        /// Where it is.
        path: PathBuf,
    },
    /// A path that can't stand in an image.
    #[error("{path} can't be in an image: {why}", path = shown(path))]
    BadPath {
        /// The path as given.
        path: PathBuf,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// The tree is larger than the format allows.
    #[error("the image has too many {0}")]
    TooMany(&'static str),
    /// Not squashfs at all.
    #[error("{image} is not an image: {why}", image = shown(image))]
    NotAnImage {
        /// The file.
        image: PathBuf,
        /// What was found instead.
        why: &'static str,
    },
    /// squashfs, of a kind that ply doesn't read.
    #[error("{image} can't be read: {what}", image = shown(image))]
    Unsupported {
        /// The file.
        image: PathBuf,
        /// Which kind.
        what: String,
    },
    /// An image whose bytes contradict themselves.
    #[error("{image} is damaged: {why}", image = shown(image))]
    Damaged {
        /// The file.
        image: PathBuf,
        /// What is wrong in it.
        why: String,
    },
    /// A path that the image doesn't have.
    #[error("{image} has no {path}", image = shown(image), path = shown(path))]
    Missing {
        /// The file.
        image: PathBuf,
        /// The path inside.
        path: PathBuf,
    },
    /// A path that is there but is something else.
    #[error("{path} in {image} is not a {wanted}", image = shown(image), path = shown(path))]
    WrongKind {
        /// The file.
        image: PathBuf,
        /// The path inside.
        path: PathBuf,
        /// File, directory or symlink.
        wanted: &'static str,
    },
    /// More bytes than the caller's limit.
    #[error("{path} in {image} is larger than {limit} bytes", image = shown(image), path = shown(path))]
    TooLarge {
        /// The file.
        image: PathBuf,
        /// The path inside.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// An image that holds what none may.
    #[error("{image} is refused: {path} {what}", image = shown(image), path = shown(path))]
    Forbidden {
        /// The file.
        image: PathBuf,
        /// The path inside.
        path: PathBuf,
        /// What it is or has.
        what: String,
    },
    /// Extraction would write more than the limit, or than the disk has.
    #[error("{image} unpacks to {bytes} bytes, more than {limit}", image = shown(image))]
    Bomb {
        /// The file.
        image: PathBuf,
        /// What it would write, in bytes.
        bytes: u64,
        /// The limit and where it comes from.
        limit: String,
    },
    /// Symlinks that lead to each other.
    #[error("too many symlinks on the way to {path}", path = shown(.0))]
    LinkLoop(PathBuf),
    /// A file without `/.manifest.toml`.
    #[error("{image} is no image of ply: it has no /.manifest.toml", image = shown(.0))]
    NoManifest(PathBuf),
    /// The manifest inside an image can't be read.
    #[error("the manifest in {image} is not valid: {why}", image = shown(image))]
    BadManifest {
        /// The image.
        image: PathBuf,
        /// The first fault.
        why: String,
    },
    /// The lock inside an image can't be read.
    #[error("the lock in {image} is not valid: {why}", image = shown(image))]
    BadLock {
        /// The image.
        image: PathBuf,
        /// The first fault.
        why: String,
    },
    /// The name outside and the name inside differ.
    #[error("an image named {claimed} holds {inside}")]
    WrongName {
        /// What its file name or its source says.
        claimed: Box<ImageName>,
        /// `NAME VERSION` of the manifest inside.
        inside: String,
    },
    /// What arrived is not what was asked for.
    #[error("{image} has the digest {found}, not {expected}")]
    WrongDigest {
        /// The image.
        image: Box<ImageName>,
        /// The digest that was asked for.
        expected: Digest,
        /// The digest of what arrived.
        found: Digest,
    },
    /// A digest that the store doesn't have.
    #[error("the store has no image {0}")]
    NotInStore(Digest),
    /// A running image is never removed.
    #[error("{0} is running")]
    Running(Digest),
    /// Another ply works on the store.
    #[error("another ply is adding to the store: {path}", path = shown(.0))]
    Busy(PathBuf),
    /// A file that a newer ply wrote.
    #[error("{path} has format {found}, this ply reads up to {known}", path = shown(path))]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format number.
        found: u32,
        /// The newest that is known here.
        known: u32,
    },
    /// A file of the store that can't be read.
    #[error("the store's own record is not valid: {path}: {why}", path = shown(path))]
    BadRecord {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        why: String,
    },
}

impl ImageError {
    /// What to type or do next, where one can tell.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Changed(_) | Self::Vanished(_) => "run it again when nothing writes there".to_owned(),
            Self::Io { action: "open", error, .. } if error.kind() == io::ErrorKind::NotFound => {
                "check the path; a package of a registry is written NAME@RANGE, as redis@8".to_owned()
            }
            Self::Io { action: "read" | "open", error, .. }
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                "check its owner and mode: ls -ld".to_owned()
            }
            Self::Special { .. } => "remove it, or leave it out with include".to_owned(),
            Self::Damaged { image, .. }
            | Self::NotAnImage { image, .. }
            | Self::Unsupported { image, .. }
            | Self::NoManifest(image)
            | Self::BadManifest { image, .. }
            | Self::BadLock { image, .. }
            | Self::Io { action: "read" | "open", path: image, .. }
                if is_in_store(image) =>
            {
                DAMAGED_HINT.to_owned()
            }
            Self::Damaged { .. } => "fetch or build it again".to_owned(),
            Self::NotAnImage { .. } => {
                "ply build makes images; a transfer that broke off leaves a torn one".to_owned()
            }
            Self::NotInStore(_) => "ply store ls lists what it has".to_owned(),
            Self::BadRecord { .. } => DAMAGED_HINT.to_owned(),
            Self::Forbidden { .. } => "ask whoever made it, or build it again without that entry".to_owned(),
            Self::WrongDigest { .. } => {
                "the source changed an image or the transfer is damaged; the lock's digest wins".to_owned()
            }
            Self::WrongName { inside, .. } => format!("name the file after what it holds: {inside}"),
            Self::NoManifest(_) => "ply build makes images from a directory with a ply.toml".to_owned(),
            Self::NewerFormat { .. } => "a newer ply wrote it; update ply".to_owned(),
            Self::Running(_) => "stop what runs it first, with ply stop".to_owned(),
            Self::Busy(_) => "try again when it has finished".to_owned(),
            _ => return None,
        })
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { action, path, error }
    }

    pub(crate) fn os(action: &'static str, path: &Path) -> impl FnOnce(rustix::io::Errno) -> Self {
        let path = path.to_owned();
        move |errno| Self::Io { action, path, error: errno.into() }
    }
}

/// What to type where an image in the store is not what it was.
pub const DAMAGED_HINT: &str = "ply verify finds what is damaged in the store; the next run or build then fetches it again, or ply fetch NAME does";

/// Whether a path is of an entry of a store: its folder is named after a digest.
fn is_in_store(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    folder.is_some_and(|name| name.parse::<Digest>().is_ok())
}

/// A path for a terminal: control characters and bytes that are not UTF-8 are escaped, since the names come
/// from images (CVE-2023-28101 is what happens otherwise).
pub(crate) fn shown(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes();
    match std::str::from_utf8(bytes) {
        Ok(text) => text
            .chars()
            .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
            .collect(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}
