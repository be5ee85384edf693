//! The catalog, `state.json`: what a source says of its packages. Optional, additive, and never trusted further than the source
//! itself: entries that are not understood are passed over, a digest is one more check. Source: the registries reference, "Catalog".

use crate::place::Place;
use crate::{Found, SourceError};
use ply_manifest::{Arch, Digest, ImageName, Owner, PackageName, Version};
use serde::Deserialize;
use std::collections::BTreeSet;

/// A catalog as it is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    packages: Vec<Listed>,
}

/// One package of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listed {
    owner: Option<Owner>,
    name: PackageName,
    kind: Option<String>,
    description: Option<String>,
    license: Option<String>,
    versions: Vec<ListedVersion>,
}

/// One version for one arch; a stack has no arch.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ListedVersion {
    version: Version,
    arch: Option<Arch>,
    src: Option<String>,
    sha256: Option<Digest>,
}

/// What a catalog says of one image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Said {
    /// Where it is, where that is not beside the index.
    pub(crate) src: Option<String>,
    /// What its bytes are.
    pub(crate) digest: Option<Digest>,
}

#[derive(Deserialize)]
struct RawCatalog {
    #[serde(default)]
    packages: Vec<RawPackage>,
}

#[derive(Deserialize)]
struct RawPackage {
    #[serde(alias = "owner")]
    namespace: Option<String>,
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    description: Option<String>,
    license: Option<String>,
    #[serde(default)]
    versions: Vec<RawVersion>,
}

#[derive(Deserialize)]
struct RawVersion {
    version: String,
    arch: Option<String>,
    img: Option<String>,
    src: Option<String>,
    sha256: Option<String>,
}

impl Catalog {
    /// Reads a catalog. Errors: not JSON of its shape.
    pub(crate) fn parse(text: &[u8], place: &Place) -> Result<Self, SourceError> {
        let raw: RawCatalog = serde_json::from_slice(text).map_err(|error| SourceError::BadDocument {
            url: place.to_string(),
            what: "a catalog",
            why: error.to_string(),
        })?;
        Ok(Self { packages: raw.packages.into_iter().filter_map(listed).collect() })
    }

    /// What it says of an image of `owner`.
    pub(crate) fn says(&self, owner: &Owner, image: &ImageName) -> Option<Said> {
        self.of(owner, &image.name)
            .flat_map(|package| &package.versions)
            .find(|v| v.version == image.version && v.arch == Some(image.arch))
            .map(|v| Said { src: v.src.clone(), digest: v.sha256 })
    }

    /// The images of a package that it lists.
    pub(crate) fn images(&self, owner: &Owner, name: &PackageName) -> Vec<ImageName> {
        let image = |v: &ListedVersion| {
            Some(ImageName { name: name.clone(), version: v.version.clone(), arch: v.arch? })
        };
        self.of(owner, name).flat_map(|package| package.versions.iter().filter_map(image)).collect()
    }

    /// The names that it lists for an owner.
    pub(crate) fn names(&self, owner: &Owner) -> BTreeSet<PackageName> {
        let own = |p: &&Listed| p.owner.as_ref().is_none_or(|o| o == owner);
        self.packages.iter().filter(own).map(|p| p.name.clone()).collect()
    }

    /// All packages, as `search` shows them.
    pub(crate) fn found(&self) -> Vec<Found> {
        let one = |package: &Listed| {
            let mut versions: Vec<Version> = package.versions.iter().map(|v| v.version.clone()).collect();
            versions.sort_by(|a, b| b.cmp(a));
            versions.dedup();
            let newest = versions.first()?;
            let archs: BTreeSet<Arch> =
                package.versions.iter().filter(|v| v.version == *newest).filter_map(|v| v.arch).collect();
            Some(Found::new(
                package.owner.clone(),
                package.name.clone(),
                package.kind.clone(),
                package.description.clone(),
                package.license.clone(),
                versions,
                archs.into_iter().collect(),
            ))
        };
        self.packages.iter().filter_map(one).collect()
    }

    fn of<'c>(&'c self, owner: &'c Owner, name: &'c PackageName) -> impl Iterator<Item = &'c Listed> {
        self.packages.iter().filter(move |p| p.name == *name && p.owner.as_ref().is_none_or(|o| o == owner))
    }
}

fn listed(raw: RawPackage) -> Option<Listed> {
    let name: PackageName = raw.name.parse().ok()?;
    let versions = raw.versions.into_iter().filter_map(|v| version(&name, v)).collect();
    Some(Listed {
        owner: raw.namespace.and_then(|text| text.parse().ok()),
        name,
        kind: raw.kind.map(one_line),
        description: raw.description.map(one_line),
        license: raw.license.map(one_line),
        versions,
    })
}

fn version(name: &PackageName, raw: RawVersion) -> Option<ListedVersion> {
    let version: Version = raw.version.parse().ok()?;
    // The arch from the file's name where it is not said; a file that names another package says nothing here.
    let named = |text: &String| text.rsplit('/').next().and_then(|file| file.parse::<ImageName>().ok());
    let image = raw.img.as_ref().and_then(named).or_else(|| raw.src.as_ref().and_then(named));
    if image.as_ref().is_some_and(|image| image.name != *name || image.version != version) {
        return None;
    }
    let arch = match raw.arch {
        Some(arch) => Some(arch.parse().ok()?),
        None => image.map(|image| image.arch),
    };
    let sha256 = match raw.sha256 {
        Some(hex) => Some(format!("sha256:{}", hex.strip_prefix("sha256:").unwrap_or(&hex)).parse().ok()?),
        None => None,
    };
    Some(ListedVersion { version, arch, src: raw.src, sha256 })
}

/// A text from outside as one line without control characters, which could steer a terminal.
fn one_line(text: String) -> String {
    let plain = |c: char| if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) { ' ' } else { c };
    text.chars().take(300).map(plain).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(text: &str) -> Catalog {
        Catalog::parse(text.as_bytes(), &Place::Url("https://reg.example/state.json".into())).unwrap()
    }

    #[test]
    fn a_minimal_catalog_and_a_full_one_are_read_alike() {
        let sha = "0".repeat(64);
        let text = format!(
            r#"{{ "extra": 1, "packages": [
              {{ "name": "ffmpeg", "versions": [
                {{ "version": "6.1.1", "img": "ffmpeg-6.1.1-linux-x64.img" }},
                {{ "version": "6.1.1", "img": "ffmpeg-6.1.1-linux-arm64.img", "sha256": "{sha}" }},
                {{ "version": "nonsense", "img": "x" }},
                {{ "version": "6.1.2", "img": "other-6.1.2-linux-x64.img" }} ] }},
              {{ "namespace": "me", "name": "tool", "type": "app", "description": "a \u001b[31mred\ntool", "versions": [
                {{ "version": "1.0.0", "arch": "x64", "src": "https://else.example/t.img", "manifest": "https://x", "verified": false,
                   "dependencies": [{{ "name": "a", "version": "1" }}] }} ] }},
              {{ "name": "Bad Name", "versions": [] }},
              {{ "namespace": "ply", "name": "umami", "type": "stack", "versions": [
                {{ "version": "3.0.0", "img": null, "src": "https://reg.example/umami-3.0.0.toml" }} ] }}
            ] }}"#
        );
        let catalog = catalog(&text);
        let (ply, me) = (Owner::default(), "me".parse().unwrap());
        let image = |text: &str| text.parse::<ImageName>().unwrap();
        assert_eq!(catalog.says(&ply, &image("ffmpeg-6.1.1-linux-x64.img")), Some(Said::default()));
        let arm = catalog.says(&ply, &image("ffmpeg-6.1.1-linux-arm64.img")).unwrap();
        assert_eq!(arm.digest.unwrap().hex(), sha);
        assert_eq!(catalog.images(&ply, &"ffmpeg".parse().unwrap()).len(), 2);
        assert_eq!(catalog.says(&ply, &image("tool-1.0.0-linux-x64.img")), None);
        let tool = catalog.says(&me, &image("tool-1.0.0-linux-x64.img")).unwrap();
        assert_eq!(tool.src.as_deref(), Some("https://else.example/t.img"));
        let found = catalog.found();
        assert_eq!(found.len(), 3);
        assert_eq!(found[1].description.as_deref(), Some("a  [31mred tool"));
        assert!(found[2].archs.is_empty());
    }

    #[test]
    fn what_is_no_catalog_is_said_to_be_none() {
        for text in
            ["", "[]x", "<html>", r#"{"packages": 3}"#, r#"{"packages": [{"name": "a", "versions": {}}]}"#]
        {
            let error =
                Catalog::parse(text.as_bytes(), &Place::Url("https://r/state.json".into())).unwrap_err();
            assert!(error.to_string().starts_with("https://r/state.json is not a catalog: "), "{error}");
        }
        assert_eq!(catalog("{}"), Catalog::default());
    }
}
