//! Packages of the npm registry as bytes: the official Node binary is one. The registry is the one that this
//! machine's npm uses; what it says of a tarball's digest is checked, and against the recipe where that pins one.

use crate::archive::{Compression, Limits, decompressor, unpack};
use crate::download::{Downloads, Expected, Wanted};
use crate::error::{ForgeError, Result};
use crate::files::{Files, Spool};
use crate::recipe::Npm;
use ply_manifest::{Arch, Range, Version};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

/// What npm itself falls back to where nobody configured anything (`npm help 7 config`, "registry").
const NPM_DEFAULT: &str = "https://registry.npmjs.org";
/// The largest document about a package that is read.
const DOCUMENT_MAX: u64 = 128 << 20;

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    versions: BTreeMap<String, Release>,
}

#[derive(Deserialize)]
struct Release {
    dist: Dist,
}

#[derive(Deserialize)]
struct Dist {
    tarball: String,
    integrity: Option<String>,
}

/// A tarball to mint from.
#[derive(Debug, Clone)]
pub(crate) struct Tarball {
    pub(crate) package: String,
    pub(crate) version: Version,
    wanted: Wanted,
}

/// Finds the tarball of a recipe for an arch. With an exact version and a pinned digest that the cache has, nothing is
/// asked of the network.
pub(crate) fn find(npm: &Npm, arch: Arch, file: &str, downloads: &Downloads) -> Result<Tarball> {
    let wrong = |why: String| ForgeError::Recipe { file: file.to_owned(), why, hint: None };
    let package =
        npm.packages.get(&arch).ok_or_else(|| wrong(format!("it names no npm package for {arch}")))?;
    let pinned = npm.integrity.get(&arch);
    if let (Range::Exact(version), Some(expected)) = (&npm.version, pinned)
        && downloads.cached(expected).is_some()
    {
        let wanted = Wanted { url: format!("{package}@{version}"), expected: expected.clone(), bytes: None };
        return Ok(Tarball { package: package.clone(), version: version.clone(), wanted });
    }
    let url = format!("{}/{}", registry(), package.replace('/', "%2f"));
    let document = downloads.fresh(&url, DOCUMENT_MAX)?;
    let (bytes, _) = document.ok_or_else(|| ForgeError::Fetch {
        url: url.clone(),
        why: "the registry has no such package".to_owned(),
    })?;
    let understood = |why: String| ForgeError::Index { url: url.clone(), why };
    let document: Document = serde_json::from_slice(&bytes).map_err(|e| understood(e.to_string()))?;
    let suitable = document.versions.into_iter().filter_map(|(v, r)| Some((v.parse::<Version>().ok()?, r)));
    let newest = suitable.filter(|(v, _)| npm.version.contains(v)).max_by(|a, b| a.0.cmp(&b.0));
    let (version, release) =
        newest.ok_or_else(|| understood(format!("it has no version {} of {package}", npm.version)))?;
    let said = release.dist.integrity.as_deref().and_then(Expected::integrity);
    let said = said.ok_or_else(|| understood(format!("it gives no sha512 for {package} {version}")))?;
    if let Some(pinned) = pinned
        && *pinned != said
    {
        return Err(wrong(format!(
            "the registry's digest of {package} {version} is not the one that is pinned here"
        )));
    }
    let wanted = Wanted { url: release.dist.tarball, expected: said, bytes: None };
    Ok(Tarball { package: package.clone(), version, wanted })
}

impl Tarball {
    /// What it is, as one line for a digest of inputs.
    pub(crate) fn identity(&self) -> String {
        format!("{} {} {:?}", self.package, self.version, self.wanted.expected)
    }

    /// Unpacks it. Every npm tarball has one folder at its top, whose name says nothing.
    pub(crate) fn unpack(&self, downloads: &Downloads, spool: &Spool) -> Result<Files> {
        let path = downloads.get(&self.wanted)?;
        let refused =
            |why: String| ForgeError::Archive { archive: format!("{} {}", self.package, self.version), why };
        let file = File::open(&path).map_err(ForgeError::file("cannot read", &path))?;
        let stream = decompressor(Compression::Gzip, file).map_err(|e| refused(e.to_string()))?;
        let mut files = Files::default();
        let inside = |name: &[u8]| {
            let slash = name.iter().position(|b| *b == b'/')?;
            Some(name[slash + 1..].to_vec())
        };
        unpack(stream, Limits::default(), spool, &mut files, &inside).map_err(refused)?;
        Ok(files)
    }
}

/// The registry of this machine's npm: the variable, the user's file, what npm itself answers, npm's own default.
fn registry() -> String {
    let variable =
        ["npm_config_registry", "NPM_CONFIG_REGISTRY"].into_iter().find_map(|v| std::env::var(v).ok());
    let from_file = || {
        let home = std::env::var_os("HOME").map(PathBuf::from)?;
        registry_in(&std::fs::read_to_string(home.join(".npmrc")).ok()?)
    };
    let from_npm = || {
        let output = Command::new("npm").args(["config", "get", "registry"]).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && text.starts_with("http")).then_some(text)
    };
    let found = variable.filter(|v| !v.is_empty()).or_else(from_file).or_else(from_npm);
    found.unwrap_or_else(|| NPM_DEFAULT.to_owned()).trim_end_matches('/').to_owned()
}

/// `registry=` of an `.npmrc`.
fn registry_in(npmrc: &str) -> Option<String> {
    let line = npmrc.lines().map(str::trim).filter(|l| !l.starts_with(['#', ';']));
    let mut values = line.filter_map(|l| l.split_once('=')).filter(|(key, _)| key.trim() == "registry");
    values
        .next_back()
        .map(|(_, value)| value.trim().trim_matches('"').to_owned())
        .filter(|v| v.starts_with("http"))
}

#[cfg(test)]
mod tests {
    use super::registry_in;

    #[test]
    fn the_registry_of_an_npmrc_is_found() {
        let table = [
            ("fund=false\nregistry = https://npm.example/\n", Some("https://npm.example/")),
            ("# registry=https://a\n@x:registry=https://b\n", None),
            ("registry=\"http://c\"\n", Some("http://c")),
            ("registry=${REGISTRY}\n", None),
        ];
        for (text, found) in table {
            assert_eq!(registry_in(text).as_deref(), found, "{text}");
        }
    }
}
