//! What a person names: a registry reference, and WHAT a command acts on, told apart by form alone.

use crate::noun::{NounError, serde_by_text};
use crate::{Owner, PackageName, Range};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// `[owner/]name[@range]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The namespace, where one was written.
    pub owner: Option<Owner>,
    /// The package.
    pub name: PackageName,
    /// Which versions will do; any where none was written.
    pub range: Range,
}

impl FromStr for Reference {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let (path, range) = match s.split_once('@') {
            Some((path, range)) => (path, range.parse()?),
            None => (s, Range::Any),
        };
        let (owner, name) = match path.split_once('/') {
            Some((owner, name)) => (Some(owner.parse()?), name),
            None => (None, path),
        };
        if let (None, Some((before, tag))) = (s.find('@'), name.split_once(':')) {
            let error = NounError::new(format!("{s:?} is not a package: a version follows @"));
            return Err(match before.parse::<PackageName>() {
                Ok(_) => {
                    let front = path.strip_suffix(name).unwrap_or_default();
                    // A tag that is no range is another tool's word for some version.
                    let tag = tag.parse::<Range>().map_or_else(|_| String::new(), |_| format!("@{tag}"));
                    error.hint(format!("write {front}{before}{tag}"))
                }
                Err(_) => error.hint("write NAME@RANGE, as in redis@8"),
            });
        }
        Ok(Self { owner, name: name.parse()?, range })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(owner) = &self.owner {
            write!(f, "{owner}/")?;
        }
        write!(f, "{}", self.name)?;
        if self.range == Range::Any { Ok(()) } else { write!(f, "@{}", self.range) }
    }
}

/// WHAT a command acts on. The form alone decides: nothing is looked up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// Begins with `./`, `../`, `/` or `~`, or is `.`, `..` or `~`: a directory or a file.
    Path(PathBuf),
    /// Ends in `.img`, without a path in front: a file of the current folder.
    File(PathBuf),
    /// `http://` or `https://`.
    Url(String),
    /// `docker://image:tag`, without the scheme.
    Docker(String),
    /// `git+https://…`, whole.
    Git(String),
    /// Anything else: a registry reference.
    Reference(Reference),
}

impl FromStr for Target {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let path = ["./", "../", "/", "~/"].iter().any(|p| s.starts_with(p)) || [".", "..", "~"].contains(&s);
        if path || s.starts_with('~') {
            return Ok(Self::Path(PathBuf::from(s)));
        }
        if let Some((scheme, rest)) = s.split_once("://") {
            if rest.is_empty() || s.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return Err(NounError::new(format!("{s:?} is not a URL"))
                    .hint("write one as https://example.com/app-1.0.0-linux-x64.img"));
            }
            return match scheme {
                "http" | "https" => Ok(Self::Url(s.to_owned())),
                "file" if rest.starts_with('/') => Ok(Self::Path(PathBuf::from(rest))),
                "docker" => Ok(Self::Docker(rest.to_owned())),
                "git+https" | "git+http" | "git+ssh" | "git+file" => Ok(Self::Git(s.to_owned())),
                _ => Err(NounError::new(format!("{s:?} has a scheme that ply does not know: {scheme}"))
                    .hint("known are https, http, file, docker and git+https")),
            };
        }
        if s.ends_with(".img") {
            return Ok(Self::File(PathBuf::from(s)));
        }
        s.parse().map(Self::Reference)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) | Self::File(path) => write!(f, "{}", path.display()),
            Self::Url(url) | Self::Git(url) => f.write_str(url),
            Self::Docker(image) => write!(f, "docker://{image}"),
            Self::Reference(reference) => reference.fmt(f),
        }
    }
}

serde_by_text!(Reference, Target);
