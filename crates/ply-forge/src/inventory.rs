//! The list of Debian packages inside an image, which `ply inspect --sbom` reads: `/usr/share/ply/packages.json` in a
//! base, `share/ply/packages.json` below the prefix of a keg.

use crate::debian::index::Package;
use serde::{Deserialize, Serialize};

/// One package that an image holds files of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Line {
    /// Debian's name.
    pub name: String,
    /// Debian's version.
    pub version: String,
    /// `all`, or Debian's name of an arch.
    pub arch: String,
    /// The source package.
    pub source: String,
    /// The sha256 of the `.deb`, hex.
    pub sha256: String,
    /// Unpacked size as the package claims it, in KiB.
    pub installed_kib: u64,
}

impl Line {
    pub(crate) fn of(package: &Package<'_>) -> Self {
        Self {
            name: package.name.to_owned(),
            version: package.version.to_owned(),
            arch: package.arch().to_owned(),
            source: package.source().to_owned(),
            sha256: package.sha256().to_owned(),
            installed_kib: package.field("Installed-Size").parse().unwrap_or(0),
        }
    }
}

/// The file's text: a JSON array, one line a package, in the order given.
pub(crate) fn render(lines: &[Line]) -> String {
    let mut out = String::from("[\n");
    for (i, line) in lines.iter().enumerate() {
        out.push_str(&serde_json::to_string(line).unwrap_or_default());
        out.push_str(if i + 1 < lines.len() { ",\n" } else { "\n" });
    }
    out.push_str("]\n");
    out
}
