//! Why a build was refused: one variant a cause, each worded for the person who reads it.

use ply_manifest::{Arch, Diagnostics};
use std::io;
use std::path::{Path, PathBuf};

/// Why a build was refused.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No `ply.toml` in the directory.
    #[error("no ply.toml in {}", .0.display())]
    NoManifest(PathBuf),
    /// The directory is none.
    #[error("not a directory: {}", .0.display())]
    NotADirectory(PathBuf),
    /// The manifest's faults, each with its place.
    #[error("{0}")]
    Manifest(Diagnostics),
    /// The lock's faults, each with its place.
    #[error("{0}")]
    Lock(Diagnostics),
    /// The directory holds a composition.
    #[error("{} is a composition: it has no image of its own", .0.display())]
    Composition(PathBuf),
    /// `include` entries that match nothing, each with its place in the manifest.
    #[error("{0}")]
    IncludeMatchesNothing(Diagnostics),
    /// An `include` entry that is no path or glob beneath the directory, with its place in the manifest.
    #[error("{0}")]
    IncludeInvalid(Diagnostics),
    /// Credential-shaped names that would ship.
    #[error("{} would ship: {}", if .0.len() == 1 { "a file that looks like a credential" } else { "files that look like credentials" }, .0.join(", "))]
    Secrets(Vec<String>),
    /// Native addons for another platform, and nothing for the target in their packages.
    #[error("{} not for linux-{arch}: {}", if .files.len() == 1 { "a native addon is" } else { "native addons are" }, .files.join(", "))]
    ForeignAddons {
        /// Each file and what it is for, as `path (macOS arm64)`.
        files: Vec<String>,
        /// The target.
        arch: Arch,
    },
    /// Sockets, devices (and fifos, but for a base) among what ships.
    #[error("{} can't be in an image: {}", if .0.len() == 1 { "a special file" } else { "special files" }, .0.join(", "))]
    SpecialFiles(Vec<String>),
    /// A name of the directory that an image needs for itself.
    #[error("{0} is a name that the image needs for itself")]
    Reserved(String),
    /// A package could not be resolved or fetched.
    #[error(transparent)]
    Source(Box<ply_source::SourceError>),
    /// The image could not be packed, or the store refused it.
    #[error(transparent)]
    Image(Box<ply_image::ImageError>),
    /// A file or folder could not be read or written.
    #[error("can't {verb} {}: {error}", path.display())]
    Io {
        /// `read`, `write`, `create`.
        verb: &'static str,
        /// What.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl From<ply_source::SourceError> for BuildError {
    fn from(error: ply_source::SourceError) -> Self {
        Self::Source(Box::new(error))
    }
}

impl From<ply_image::ImageError> for BuildError {
    fn from(error: ply_image::ImageError) -> Self {
        Self::Image(Box::new(error))
    }
}

impl BuildError {
    pub(crate) fn io(verb: &'static str, path: &Path, error: io::Error) -> Self {
        Self::Io { verb, path: path.to_owned(), error }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoManifest(dir) => format!("write one with: ply init {}", dir.display()),
            Self::Manifest(all)
            | Self::Lock(all)
            | Self::IncludeMatchesNothing(all)
            | Self::IncludeInvalid(all) => return all.0.iter().find_map(|d| d.hint.clone()),
            Self::Composition(dir) => {
                format!("run it with: ply up {} (and publish it with: ply push)", dir.display())
            }
            Self::Secrets(_) => "list in [build] include what should ship; or remove or move these; or, if they are meant to be in the image, build with --allow-secrets".to_owned(),
            Self::ForeignAddons { arch, .. } => format!(
                "install the dependencies on a linux-{arch} machine, or with npm: npm install --os=linux --cpu={arch}"
            ),
            Self::SpecialFiles(_) => "remove them, or list in [build] include what should ship".to_owned(),
            Self::Reserved(_) => "rename it, or list in [build] include what should ship".to_owned(),
            Self::Source(error) => return error.hint(),
            Self::Image(error) => return error.hint(),
            Self::Io { verb: "write" | "create", error, .. } if error.kind() == io::ErrorKind::NotFound => {
                "make the folder first, or write elsewhere with -o FILE".to_owned()
            }
            Self::Io { verb: "write" | "create", error, .. }
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                "write the image where you may with -o FILE; ply.lock stands beside ply.toml".to_owned()
            }
            Self::Io { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                "check its owner and mode: ls -ld".to_owned()
            }
            Self::NotADirectory(_) | Self::Io { .. } => return None,
        };
        Some(hint)
    }
}
