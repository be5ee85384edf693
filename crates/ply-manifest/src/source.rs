//! Where packages come from: a source template. One template gives one URL; nothing is probed.

use crate::noun::{NounError, serde_by_text};
use crate::{ImageName, Owner, PackageName};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A source, as written in `[build.sources]`, `--source` or `PLY_REGISTRY`. Prints as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SourceSpec {
    /// `file:///dir` or a bare absolute path; may hold `{package}` and `{owner}`.
    Folder(String),
    /// `https://…` or `http://…`; may hold `{package}` and `{owner}`.
    Http(String),
    /// `github:owner/repo`: release `v<version>`, asset named as the image.
    Github(String),
    /// `gitlab:group/project`: the release's permalink.
    Gitlab(String),
}

impl SourceSpec {
    /// The official registry, used where nothing else is said.
    pub const OFFICIAL: &str = "https://registry.plybox.sh/{owner}/{package}";

    /// The template as written.
    pub fn template(&self) -> &str {
        match self {
            Self::Folder(t) | Self::Http(t) | Self::Github(t) | Self::Gitlab(t) => t,
        }
    }

    /// Whether a reference with an owner can be looked up here.
    pub fn takes_owner(&self) -> bool {
        self.template().contains("{owner}")
    }

    /// Whether the versions that exist can be listed; forges can't.
    pub fn lists(&self) -> bool {
        matches!(self, Self::Folder(_) | Self::Http(_))
    }

    /// The place of `package`: a folder's path or a URL prefix without a trailing slash, or for a forge the
    /// project as written.
    pub fn prefix(&self, owner: &Owner, package: &PackageName) -> String {
        let filled =
            self.template().replace("{owner}", owner.as_str()).replace("{package}", package.as_str());
        let path = filled.strip_prefix("file://").unwrap_or(&filled);
        path.trim_end_matches('/').to_owned()
    }

    /// The URL (or path) of one image.
    pub fn image(&self, owner: &Owner, image: &ImageName) -> String {
        let prefix = self.prefix(owner, &image.name);
        match self {
            Self::Folder(_) | Self::Http(_) => format!("{prefix}/{image}"),
            Self::Github(_) => {
                let project = prefix.trim_start_matches("github:");
                format!("https://github.com/{project}/releases/download/v{}/{image}", image.version)
            }
            Self::Gitlab(_) => {
                let project = prefix.trim_start_matches("gitlab:");
                format!("https://gitlab.com/{project}/-/releases/v{}/downloads/{image}", image.version)
            }
        }
    }

    /// Where the catalog (`state.json`) stands: the template with `/{package}` removed. None for a forge.
    pub fn catalog(&self, owner: &Owner) -> Option<String> {
        self.lists().then(|| {
            let filled = self.template().replace("/{package}", "").replace("{owner}", owner.as_str());
            let path = filled.strip_prefix("file://").unwrap_or(&filled);
            format!("{}/state.json", path.trim_end_matches('/'))
        })
    }

    /// The folder, where this source is one; `{package}` and `{owner}` still unfilled.
    pub fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::Folder(t) => Some(PathBuf::from(t.strip_prefix("file://").unwrap_or(t))),
            _ => None,
        }
    }
}

impl SourceSpec {
    /// The part of a folder source that stands before any hole: it has to be there, whatever the package.
    pub fn root(&self) -> Option<PathBuf> {
        let folder = self.folder()?;
        let fixed = |part: &std::path::Component<'_>| !part.as_os_str().to_string_lossy().contains('{');
        Some(folder.components().take_while(fixed).collect())
    }
}

impl FromStr for SourceSpec {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = |why: &str| {
            NounError::new(format!("{s:?} is not a source: {why}")).hint(
                "write an https:// URL, file:///DIR, an absolute path, github:OWNER/REPO or gitlab:GROUP/PROJECT",
            )
        };
        let mut rest = s;
        while let Some(open) = rest.find(['{', '}']) {
            let hole = ["{package}", "{owner}"].into_iter().find(|h| rest[open..].starts_with(h));
            let hole = hole.ok_or_else(|| wrong("only {package} and {owner} are expanded"))?;
            rest = &rest[open + hole.len()..];
        }
        let folder = s.starts_with('/') || s.starts_with("file://");
        if s.chars().any(|c| c.is_control() || (c.is_whitespace() && !folder)) {
            return Err(wrong("it holds a space or a control character"));
        }
        let project = |p: &str, exact: bool| {
            let parts: Vec<&str> = p.split('/').collect();
            let well = |part: &&str| !part.is_empty() && *part != "." && *part != "..";
            parts.iter().all(well) && if exact { parts.len() == 2 } else { parts.len() >= 2 }
        };
        if let Some(path) = s.strip_prefix("file://") {
            return if path.starts_with('/') {
                Ok(Self::Folder(s.to_owned()))
            } else {
                Err(wrong("file:// is followed by an absolute path"))
            };
        }
        if s.starts_with('/') {
            return Ok(Self::Folder(s.to_owned()));
        }
        if let Some(repo) = s.strip_prefix("github:") {
            return if project(repo, true) {
                Ok(Self::Github(s.to_owned()))
            } else {
                Err(wrong("github: is followed by OWNER/REPO"))
            };
        }
        if let Some(path) = s.strip_prefix("gitlab:") {
            return if project(path, false) {
                Ok(Self::Gitlab(s.to_owned()))
            } else {
                Err(wrong("gitlab: is followed by GROUP/PROJECT"))
            };
        }
        if let Some(rest) = s.strip_prefix("https://").or_else(|| s.strip_prefix("http://")) {
            let host = rest.split(['/', '?', '#']).next().unwrap_or("");
            if host.is_empty() || host.contains('{') {
                return Err(wrong("it names no host"));
            }
            if host.contains('@') {
                return Err(wrong("it holds a login"));
            }
            return Ok(Self::Http(s.to_owned()));
        }
        Err(wrong("its form is not known"))
    }
}

impl fmt::Display for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.template())
    }
}

serde_by_text!(SourceSpec);
