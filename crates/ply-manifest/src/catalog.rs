//! What a source says that it has: `state.json` (the catalog) and `index.json` (the list of file names).
//! Source: the registries reference, "Catalog" and "Version listing".
//!
//! A catalog is read in one pass into typed structs, so a field of another type fails it whole; keys that
//! this ply doesn't know are ignored. What has the right type and still is no package, no version or no
//! digest is left out and told of: one bad entry must not hide the others.

use crate::diagnostic::floor_boundary;
use crate::{
    Arch, Diagnostic, Diagnostics, Digest, FaultKind, ImageName, Owner, PackageName, Place, Version,
};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// The most bytes of a catalog or an index.
const MOST_BYTES: usize = 64 << 20;

/// `state.json`, valid entries only.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Catalog {
    /// The packages, in the order of the file.
    pub packages: Vec<CatalogPackage>,
    /// What was left out and why, one line each.
    #[serde(skip)]
    pub skipped: Vec<String>,
}

/// One package of a catalog.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CatalogPackage {
    /// Who published it; absent in a minimal catalog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Owner>,
    /// The package.
    pub name: PackageName,
    /// `app`, `layer`, `stack`, or what a newer registry says.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// One line about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its licence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// Its page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub homepage: Option<String>,
    /// What there is of it, one entry a version and arch.
    pub versions: Vec<CatalogVersion>,
}

/// One version for one arch (or of a stack, for none).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CatalogVersion {
    /// The version.
    pub version: Version,
    /// The arch: as written, else from the file's name. None for a stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<Arch>,
    /// The image's file name, beside the package's index. `null` for a stack.
    pub img: Option<ImageName>,
    /// The full URL, where there is one; it wins over `img`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src: Option<String>,
    /// The digest of the bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
    /// The size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// When it was pushed, as the registry writes it (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pushed_at: Option<String>,
    /// The URL of the version's manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// Whether the registry hashed the bytes itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    /// The paths that must persist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// The host paths that it asks for, as the registry renders them.
    #[serde(skip_serializing_if = "serde_json::Value::is_null")]
    pub links: serde_json::Value,
    /// What it publishes, as the registry renders it.
    #[serde(skip_serializing_if = "serde_json::Value::is_null")]
    pub publish: serde_json::Value,
    /// What it depends on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<CatalogDependency>,
    /// Its params, as the registry renders them.
    #[serde(skip_serializing_if = "serde_json::Value::is_null")]
    pub params: serde_json::Value,
}

/// One dependency of a version; the manifest stays the source of truth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogDependency {
    /// The package.
    pub name: String,
    /// The range as written.
    #[serde(default)]
    pub version: String,
}

#[derive(Deserialize)]
struct RawCatalog {
    packages: Vec<RawPackage>,
}

#[derive(Deserialize)]
struct RawPackage {
    namespace: Option<String>,
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    description: Option<String>,
    license: Option<String>,
    homepage: Option<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    versions: Vec<RawVersion>,
}

#[derive(Deserialize)]
struct RawVersion {
    version: String,
    arch: Option<String>,
    img: Option<String>,
    src: Option<String>,
    sha256: Option<String>,
    bytes: Option<u64>,
    pushed_at: Option<String>,
    manifest: Option<String>,
    verified: Option<bool>,
    #[serde(default, deserialize_with = "null_is_empty")]
    volumes: Vec<String>,
    #[serde(default)]
    links: serde_json::Value,
    #[serde(default)]
    publish: serde_json::Value,
    #[serde(default, deserialize_with = "null_is_empty")]
    dependencies: Vec<CatalogDependency>,
    #[serde(default)]
    params: serde_json::Value,
}

fn null_is_empty<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::<Vec<T>>::deserialize(d)?.unwrap_or_default())
}

impl Catalog {
    /// Reads `state.json`. `file` is the name that errors show.
    pub fn parse(text: &str, file: &str) -> Result<Self, Diagnostics> {
        let raw: RawCatalog = json(text, file, '{', "an object with packages")?;
        let mut catalog = Self::default();
        for package in raw.packages {
            let name = match package.name.parse::<PackageName>() {
                Ok(name) => name,
                Err(error) => {
                    catalog.skipped.push(error.message);
                    continue;
                }
            };
            let namespace = match package.namespace.map(|n| n.parse::<Owner>()).transpose() {
                Ok(namespace) => namespace,
                Err(error) => {
                    catalog.skipped.push(format!("{name}: {}", error.message));
                    continue;
                }
            };
            let mut versions = Vec::with_capacity(package.versions.len());
            for raw in package.versions {
                let said = raw.version.clone();
                match raw.check(&name) {
                    Ok(version) => versions.push(version),
                    Err(why) => catalog.skipped.push(format!("{name} {said:?}: {why}")),
                }
            }
            catalog.packages.push(CatalogPackage {
                namespace,
                name,
                kind: package.kind,
                description: package.description,
                license: package.license,
                homepage: package.homepage,
                versions,
            });
        }
        Ok(catalog)
    }
}

impl RawVersion {
    fn check(self, name: &PackageName) -> Result<CatalogVersion, String> {
        let version: Version = self.version.parse().map_err(|e: crate::NounError| e.message)?;
        let img = self.img.map(|i| i.parse::<ImageName>()).transpose().map_err(|e| e.message)?;
        if let Some(img) = &img
            && (img.name != *name || img.version != version)
        {
            return Err(format!("its file is named {img}"));
        }
        let said = self.arch.map(|a| a.parse::<Arch>()).transpose().map_err(|e| e.message)?;
        let from_src = || {
            let last = self.src.as_deref()?.rsplit('/').next()?;
            last.parse::<ImageName>().ok().map(|i| i.arch)
        };
        let from_img = img.as_ref().map(|i| i.arch);
        if let (Some(said), Some(named)) = (said, from_img)
            && said != named
        {
            return Err(format!("it says {said}, and its file is for {named}"));
        }
        let arch = said.or(from_img).or_else(from_src);
        let digest = |text: String| {
            let text = if text.starts_with("sha256:") { text } else { format!("sha256:{text}") };
            text.parse::<Digest>().map_err(|e| e.message)
        };
        Ok(CatalogVersion {
            version,
            arch,
            img,
            sha256: self.sha256.map(digest).transpose()?,
            src: self.src,
            bytes: self.bytes,
            pushed_at: self.pushed_at,
            manifest: self.manifest,
            verified: self.verified,
            volumes: self.volumes,
            links: self.links,
            publish: self.publish,
            dependencies: self.dependencies,
            params: self.params,
        })
    }
}

/// Prints `state.json`, one value a line, in the order of the packages.
impl fmt::Display for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string_pretty(self).map_err(|_| fmt::Error)?;
        writeln!(f, "{text}")
    }
}

/// `index.json`: the images of one package, sorted, each once. Other names are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Index {
    /// The images.
    pub images: Vec<ImageName>,
}

impl Index {
    /// Reads `index.json`, an array whose file names of images are taken and whose rest is ignored. `file`
    /// is the name that errors show.
    pub fn parse(text: &str, file: &str) -> Result<Self, Diagnostics> {
        let names: Vec<serde_json::Value> = json(text, file, '[', "an array of file names")?;
        let mut images: Vec<ImageName> =
            names.iter().filter_map(|name| name.as_str()?.parse().ok()).collect();
        images.sort();
        images.dedup();
        Ok(Self { images })
    }
}

/// Prints `index.json`, one name a line.
impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string_pretty(&self.images).map_err(|_| fmt::Error)?;
        writeln!(f, "{text}")
    }
}

/// A place as serde_json counts it (lines from 1, bytes from 1) in characters.
fn place(text: &str, line: usize, column: usize) -> Place {
    let text = text.split('\n').nth(line - 1).unwrap_or("");
    let before = floor_boundary(text, column.saturating_sub(1));
    Place { line, column: text[..before].chars().count() + 1 }
}

/// JSON that begins with `first`: serde would take an array where a struct is meant.
fn json<T: serde::de::DeserializeOwned>(
    text: &str,
    file: &str,
    first: char,
    expected: &str,
) -> Result<T, Diagnostics> {
    let fault = |place, message| {
        Diagnostics::from(Diagnostic {
            file: file.to_owned(),
            place,
            message,
            hint: None,
            kind: FaultKind::Rule,
        })
    };
    if text.len() > MOST_BYTES {
        return Err(fault(None, format!("it has {} bytes, and the most is {MOST_BYTES}", text.len())));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().chars().next().is_some_and(|c| c != first) {
        return Err(fault(None, format!("it must be {expected}")));
    }
    serde_json::from_str(text).map_err(|error| {
        let whole = error.to_string();
        let said = whole.rsplit_once(" at line ").map_or(whole.as_str(), |(said, _)| said);
        let place = (error.line() > 0).then(|| place(text, error.line(), error.column()));
        fault(place, said.to_owned())
    })
}
