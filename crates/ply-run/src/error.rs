//! Why a run, or a command to one, did not do what was asked: one variant a cause, each one sentence.

use ply_manifest::{Diagnostics, NounError, RunName};
use std::io;
use std::path::PathBuf;

/// ply's own failures.
pub const EXIT_PLY: u8 = 125;
/// An entrypoint that can't be executed.
pub const EXIT_NOT_EXECUTABLE: u8 = 126;
/// An entrypoint that isn't there.
pub const EXIT_NOT_FOUND: u8 = 127;
/// A command line that makes no sense.
pub const EXIT_USAGE: u8 = 2;

/// Why a run, or a command to a run, did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A flag whose part comes later.
    #[error("this version of ply can't do it yet: {0}")]
    NotBuilt(String),
    /// Flags that make no sense.
    #[error("{message}")]
    Usage {
        /// The sentence.
        message: String,
        /// What to write instead.
        hint: String,
    },
    /// A manifest, overlay, lock or env file with faults.
    #[error("{0}")]
    File(#[from] Diagnostics),
    /// A noun that doesn't parse.
    #[error("{0}")]
    Noun(#[from] NounError),
    /// Anything that is one sentence with a hint, found before the launch.
    #[error("{message}")]
    Refused {
        /// The sentence.
        message: String,
        /// The next thing to type.
        hint: Option<String>,
    },
    /// The program is not in the image.
    #[error("{message}")]
    NoEntrypoint {
        /// The sentence.
        message: String,
        /// Near names.
        hint: Option<String>,
    },
    /// The program is there and can't be executed.
    #[error("{message}")]
    NotExecutable {
        /// The sentence.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// What a run parent in the background told before the app ran.
    #[error("{message}")]
    Background {
        /// Its exit code.
        code: u8,
        /// The sentence.
        message: String,
        /// The next thing to type.
        hint: Option<String>,
    },
    /// Somebody else runs under this name.
    #[error("{name} runs already: its run parent is process {pid}")]
    Running {
        /// The name.
        name: RunName,
        /// The pid of the first.
        pid: u32,
    },
    /// Nothing runs under this name.
    #[error("nothing runs under the name {0}")]
    NotRunning(String),
    /// A file of ply's own, or one that the user named, can't be used.
    #[error("{what}: {path}: {why}", path = path.display())]
    Io {
        /// What was to be done.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        why: io::Error,
    },
    /// A file of ply's own in a format of a newer ply.
    #[error("{path} has format {found}, and this ply reads up to {known}", path = path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// What this ply reads.
        known: u32,
    },
}

impl RunError {
    /// A usage error with what to write instead.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: hint.into() }
    }

    /// A refusal with the next thing to type.
    pub fn refused(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused { message: message.into(), hint: Some(hint.into()) }
    }

    /// A refusal without a hint.
    pub fn plain(message: impl Into<String>) -> Self {
        Self::Refused { message: message.into(), hint: None }
    }

    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |why| Self::Io { what, path, why }
    }

    /// The next thing to type, where one can tell.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotBuilt(_) => Some("leave it out: it would not be acted on".to_owned()),
            Self::Usage { hint, .. } => Some(hint.clone()),
            Self::File(diagnostics) => diagnostics.0.iter().find_map(|d| d.hint.clone()),
            Self::Noun(noun) => noun.hint.clone(),
            Self::Background { hint, .. }
            | Self::Refused { hint, .. }
            | Self::NoEntrypoint { hint, .. }
            | Self::NotExecutable { hint, .. } => hint.clone(),
            Self::Running { name, .. } => {
                Some(format!("stop it with ply stop {name}, or run this one under another --name"))
            }
            Self::NotRunning(_) => Some("ply ps lists what runs".to_owned()),
            Self::Io { why, .. } if why.kind() == io::ErrorKind::StorageFull => {
                Some("free some space, ply gc may help".to_owned())
            }
            Self::Io { why, .. } if why.kind() == io::ErrorKind::PermissionDenied => {
                Some("check its owner and mode: ls -ld".to_owned())
            }
            Self::Io { .. } => None,
            Self::Newer { .. } => Some("use the newer ply that wrote it".to_owned()),
        }
    }

    /// The exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage { .. } | Self::NotBuilt(_) | Self::Noun(_) => EXIT_USAGE,
            Self::Background { code, .. } => *code,
            Self::NoEntrypoint { .. } => EXIT_NOT_FOUND,
            Self::NotExecutable { .. } => EXIT_NOT_EXECUTABLE,
            _ => EXIT_PLY,
        }
    }
}

impl RunError {
    /// A launch that failed: the sentence, the hint and the exit code are the sandbox's.
    pub fn from_launch(error: ply_sandbox::LaunchError) -> Self {
        let (message, hint) = (error.to_string(), error.hint());
        match error.exit_code() {
            EXIT_NOT_FOUND => Self::NoEntrypoint { message, hint },
            EXIT_NOT_EXECUTABLE => Self::NotExecutable { message, hint },
            _ => Self::Refused { message, hint },
        }
    }

    /// What the store or an image says.
    pub fn from_image(error: ply_image::ImageError) -> Self {
        Self::Refused { message: error.to_string(), hint: error.hint() }
    }

    /// What the wire says.
    pub fn from_source(error: ply_source::SourceError) -> Self {
        Self::Refused { message: error.to_string(), hint: error.hint() }
    }

    /// What a build says.
    pub(crate) fn from_build(error: ply_build::BuildError) -> Self {
        use ply_build::BuildError as E;
        match error {
            E::Manifest(all) | E::Lock(all) | E::IncludeMatchesNothing(all) | E::IncludeInvalid(all) => {
                Self::File(all)
            }
            other => Self::Refused { message: other.to_string(), hint: other.hint() },
        }
    }
}
