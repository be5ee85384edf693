//! Why a package could not be minted: one variant a cause, each one sentence in the user's words.

use ply_source::SourceError;
use std::io;
use std::path::PathBuf;

/// A fault of minting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForgeError {
    /// A file or folder of this machine could not be used.
    #[error("{what} {path:?}: {source}")]
    File {
        /// What was being done, as in "cannot read".
        what: &'static str,
        /// Which one.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// apt has no source for Debian, and no mirror was given.
    #[error("apt on this machine has no source for Debian")]
    NoMirror,
    /// A file of apt's configuration can't be read as one.
    #[error("apt's {file:?} is not understood: {why}")]
    AptConfig {
        /// The file.
        file: PathBuf,
        /// The rule it breaks.
        why: String,
    },
    /// A URL did not answer with what was asked for.
    #[error("{url} could not be fetched: {why}")]
    Fetch {
        /// The URL.
        url: String,
        /// What came instead.
        why: String,
    },
    /// The network, in the words of ply's client.
    #[error(transparent)]
    Network(Box<SourceError>),
    /// Bytes are not the ones that the index promised.
    #[error("{url} is not what its index promises: expected sha256:{expected}, got sha256:{found}")]
    WrongBytes {
        /// The URL.
        url: String,
        /// The digest in the index, hex.
        expected: String,
        /// The digest of what came, hex.
        found: String,
    },
    /// The release file of a suite carries no signature that this machine trusts.
    #[error("{url} has no signature that this machine trusts: {why}")]
    Signature {
        /// The release file.
        url: String,
        /// The words of the checker.
        why: String,
    },
    /// `gpgv` is not installed.
    #[error("signatures can't be checked: gpgv is not installed")]
    NoGpgv,
    /// No keyring of the archive is installed.
    #[error("signatures can't be checked: no keyring of the Debian archive is installed")]
    NoKeyring,
    /// A release file or a package list does not have the form of one.
    #[error("{url} is not understood: {why}")]
    Index {
        /// Where it came from.
        url: String,
        /// The rule it breaks.
        why: String,
    },
    /// The release file is older than its own date of expiry.
    #[error("{url} expired on {until}")]
    Expired {
        /// The release file.
        url: String,
        /// Its `Valid-Until`.
        until: String,
    },
    /// No such package in the suite.
    #[error("Debian {suite} has no package {name:?} for {arch}")]
    NoPackage {
        /// What was asked for.
        name: String,
        /// The suite.
        suite: String,
        /// The arch, as ply names it.
        arch: String,
        /// The nearest name in the suite.
        nearest: Option<String>,
    },
    /// A dependency that nothing in the suite satisfies.
    #[error("{package} needs {wanted:?}, which nothing in Debian {suite} provides")]
    NoProvider {
        /// Who asks.
        package: String,
        /// The relation as written.
        wanted: String,
        /// The suite.
        suite: String,
    },
    /// An archive breaks a rule that every honest one keeps.
    #[error("{archive} is refused: {why}")]
    Archive {
        /// The archive's file name.
        archive: String,
        /// Which entry does what.
        why: String,
    },
    /// A word that is not a suite.
    #[error("{0:?} is not a suite of Debian")]
    Suite(String),
    /// A text that can't be folded to a name or a version of ply's grammar.
    #[error("{0}")]
    Noun(#[from] ply_manifest::NounError),
    /// A recipe is not understood.
    #[error("{file}: {why}")]
    Recipe {
        /// The file.
        file: String,
        /// The rule it breaks.
        why: String,
        /// What to write instead.
        hint: Option<String>,
    },
    /// Recipes that need each other in a circle.
    #[error("recipes depend on each other in a circle: {0}")]
    Cycle(String),
    /// What a recipe depends on can't be resolved from the registry.
    #[error(transparent)]
    Resolution(Box<SourceError>),
    /// The bytes of a published version would change.
    #[error("{name} is already in the registry with other bytes")]
    Published {
        /// The image's file name.
        name: String,
    },
    /// Packing or reading an image.
    #[error("{0}")]
    Image(String),
    /// Libraries that nothing of the closure holds.
    #[error("{package}: {count} needed libraries were not found: {list}")]
    Unresolved {
        /// The package.
        package: String,
        /// How many.
        count: usize,
        /// `FILE needs LIBRARY`, joined.
        list: String,
    },
}

impl ForgeError {
    /// The next thing to type or to install, where one can tell.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoMirror => Some("name a mirror with --mirror URL".to_owned()),
            Self::NoGpgv => Some("install the package gpgv".to_owned()),
            Self::NoKeyring => Some("install the package debian-archive-keyring".to_owned()),
            Self::Signature { .. } => Some(
                "the keyring may be too old for this suite: update the package debian-archive-keyring"
                    .to_owned(),
            ),
            Self::NoPackage { nearest: Some(near), .. } => Some(format!("did you mean {near:?}?")),
            Self::Suite(_) => Some("write a code name, as in trixie or bookworm".to_owned()),
            Self::Noun(e) => e.hint.clone(),
            Self::Network(e) | Self::Resolution(e) => e.hint(),
            Self::Recipe { hint, .. } => hint.clone(),
            Self::Published { .. } => {
                Some("a published version never changes: raise the version in the recipe".to_owned())
            }
            Self::Unresolved { .. } => Some(
                "add the package that holds them with --with PACKAGE, or leave them out with --skip-so NAME"
                    .to_owned(),
            ),
            Self::Fetch { .. } => {
                Some("check the network, or name another mirror with --mirror URL".to_owned())
            }
            _ => None,
        }
    }

    /// A closure for `map_err` on what was done with a path.
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}

/// The result of minting.
pub type Result<T, E = ForgeError> = std::result::Result<T, E>;
