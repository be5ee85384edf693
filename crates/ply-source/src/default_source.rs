//! Which source answers for a package that names none, and who said so. Source of the order: `spec` on sources:
//! the manifest's `default`, `PLY_REGISTRY`, `default_source` in `config.toml`, the official registry.

use crate::SourceError;
use ply_image::Dirs;
use ply_manifest::{Config, Manifest, SourceSpec};
use std::fmt;
use std::path::PathBuf;

/// The environment variable that names the default source.
pub(crate) const REGISTRY_VARIABLE: &str = "PLY_REGISTRY";

/// A source, and where it was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultSource {
    /// The source.
    pub spec: SourceSpec,
    /// Who said so.
    pub from: SourceOrigin,
}

/// Where a default source was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceOrigin {
    /// `--source` on the command line.
    Flag,
    /// `default` in the manifest's `[build.sources]`.
    Manifest,
    /// `PLY_REGISTRY`.
    Environment,
    /// `default_source` in this `config.toml`.
    Config(PathBuf),
    /// Nobody said anything: the official registry.
    Official,
}

impl fmt::Display for SourceOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("--source"),
            Self::Manifest => f.write_str("[build.sources] default in the manifest"),
            Self::Environment => f.write_str(REGISTRY_VARIABLE),
            Self::Config(path) => write!(f, "{}", path.display()),
            Self::Official => f.write_str("the built-in default"),
        }
    }
}

impl DefaultSource {
    /// The official registry.
    pub fn official() -> Self {
        Self { spec: SourceSpec::Http(SourceSpec::OFFICIAL.to_owned()), from: SourceOrigin::Official }
    }

    /// The default source of this host: `PLY_REGISTRY`, else `config.toml` in the config folder, else the official
    /// registry. Errors: either of the first two holds something that is not a source.
    pub fn find(dirs: &Dirs) -> Result<Self, SourceError> {
        Self::choose(std::env::var(REGISTRY_VARIABLE).ok().as_deref(), dirs)
    }

    /// [`Self::find`] with the value of `PLY_REGISTRY` given; an empty one counts as none.
    pub fn choose(registry: Option<&str>, dirs: &Dirs) -> Result<Self, SourceError> {
        if let Some(text) = registry.filter(|t| !t.is_empty()) {
            let spec = text
                .parse()
                .map_err(|error| SourceError::BadSource { said_in: REGISTRY_VARIABLE.to_owned(), error })?;
            return Ok(Self { spec, from: SourceOrigin::Environment });
        }
        let path = dirs.config.join("config.toml");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::official()),
            Err(error) => return Err(SourceError::Read { path, error }),
        };
        let config = Config::parse(&text, &path.display().to_string()).map_err(SourceError::Config)?;
        Ok(match config.default_source {
            Some(spec) => Self { spec, from: SourceOrigin::Config(path) },
            None => Self::official(),
        })
    }

    /// What answers for `manifest`: its own `default` where it has one, else this.
    pub fn for_manifest(&self, manifest: &Manifest) -> Self {
        match manifest.build.sources.get("default") {
            Some(spec) => Self { spec: spec.clone(), from: SourceOrigin::Manifest },
            None => self.clone(),
        }
    }
}
