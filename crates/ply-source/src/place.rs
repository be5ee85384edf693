//! Where one file of a source stands: a path or a URL, from the source's template.

use crate::SourceError;
use ply_manifest::{ImageName, Owner, PackageName, Reference, SourceSpec};
use std::fmt;
use std::path::PathBuf;

/// A file of a source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In a folder.
    File(PathBuf),
    /// On a server.
    Url(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Url(url) => f.write_str(url),
        }
    }
}

impl Place {
    fn of(source: &SourceSpec, text: String) -> Self {
        match source {
            SourceSpec::Folder(_) => Self::File(PathBuf::from(text)),
            _ => Self::Url(text),
        }
    }

    /// The one place of an image. A `+` of a version is literal in a path (RFC 3986, 3.3); forges get it as `%2B`, the form
    /// in which they name such an asset themselves.
    pub(crate) fn image(source: &SourceSpec, owner: &Owner, image: &ImageName) -> Self {
        let text = source.image(owner, image);
        match source {
            SourceSpec::Github(_) | SourceSpec::Gitlab(_) => Self::Url(text.replace('+', "%2B")),
            _ => Self::of(source, text),
        }
    }

    /// The folder of a package, or its `index.json`; none for a forge.
    pub(crate) fn listing(source: &SourceSpec, owner: &Owner, package: &PackageName) -> Option<Self> {
        let prefix = source.prefix(owner, package);
        match source {
            SourceSpec::Folder(_) => {
                Some(Self::File(PathBuf::from(if prefix.is_empty() { "/" } else { &prefix })))
            }
            SourceSpec::Http(_) => Some(Self::Url(format!("{prefix}/index.json"))),
            _ => None,
        }
    }

    /// The catalog, `state.json`; none for a forge.
    pub(crate) fn catalog(source: &SourceSpec, owner: &Owner) -> Option<Self> {
        Some(Self::of(source, source.catalog(owner)?))
    }
}

/// The owner that a reference is looked up under. Errors: the reference names one, and the source has no place for it.
pub(crate) fn owner_of(reference: &Reference, source: &SourceSpec) -> Result<Owner, SourceError> {
    match &reference.owner {
        Some(_) if !source.takes_owner() => {
            Err(SourceError::NoOwner { reference: reference.clone(), template: source.template().to_owned() })
        }
        Some(owner) => Ok(owner.clone()),
        None => Ok(Owner::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_template_gives_one_place() {
        let image: ImageName = "node-22.6.0+1.deb13u2-linux-x64.img".parse().unwrap();
        let table = [
            (
                "https://reg.example/{owner}/{package}",
                "https://reg.example/ply/node/node-22.6.0+1.deb13u2-linux-x64.img",
                "https://reg.example/ply/node/index.json",
                "https://reg.example/ply/state.json",
            ),
            (
                "http://127.0.0.1:8000/",
                "http://127.0.0.1:8000/node-22.6.0+1.deb13u2-linux-x64.img",
                "http://127.0.0.1:8000/index.json",
                "http://127.0.0.1:8000/state.json",
            ),
            ("file:///srv/p", "/srv/p/node-22.6.0+1.deb13u2-linux-x64.img", "/srv/p", "/srv/p/state.json"),
            (
                "/srv/{package}",
                "/srv/node/node-22.6.0+1.deb13u2-linux-x64.img",
                "/srv/node",
                "/srv/state.json",
            ),
        ];
        for (template, at, listing, catalog) in table {
            let source: SourceSpec = template.parse().unwrap();
            let owner = Owner::default();
            assert_eq!(Place::image(&source, &owner, &image).to_string(), at);
            assert_eq!(Place::listing(&source, &owner, &image.name).unwrap().to_string(), listing);
            assert_eq!(Place::catalog(&source, &owner).unwrap().to_string(), catalog);
        }
        let forges = [
            (
                "github:me/tools",
                "https://github.com/me/tools/releases/download/v22.6.0%2B1.deb13u2/node-22.6.0%2B1.deb13u2-linux-x64.img",
            ),
            (
                "gitlab:a/b/c",
                "https://gitlab.com/a/b/c/-/releases/v22.6.0%2B1.deb13u2/downloads/node-22.6.0%2B1.deb13u2-linux-x64.img",
            ),
        ];
        for (template, at) in forges {
            let source: SourceSpec = template.parse().unwrap();
            assert_eq!(Place::image(&source, &Owner::default(), &image).to_string(), at);
            assert_eq!(Place::listing(&source, &Owner::default(), &image.name), None);
            assert_eq!(Place::catalog(&source, &Owner::default()), None);
        }
    }

    #[test]
    fn an_owner_needs_a_template_with_a_place_for_it() {
        let reference: Reference = "me/tool@1".parse().unwrap();
        let with: SourceSpec = SourceSpec::OFFICIAL.parse().unwrap();
        assert_eq!(owner_of(&reference, &with).unwrap().as_str(), "me");
        let without: SourceSpec = "https://reg.example/{package}".parse().unwrap();
        assert_eq!(
            owner_of(&reference, &without).unwrap_err().to_string(),
            "me/tool@1 names an owner, and the source has no {owner} in it: https://reg.example/{package}"
        );
        assert_eq!(owner_of(&"tool".parse().unwrap(), &without).unwrap().as_str(), "ply");
    }
}
