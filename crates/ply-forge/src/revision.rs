//! Revisions of our own: what a version is called whose bytes changed while Debian's version did not. They sort behind the
//! version and before Debian's next revision.

use crate::error::Result;
use crate::registry::Registry;
use ply_manifest::{PackageName, Version};

/// The newest revision of ours of a version that the registry has for any arch; the version itself where there is none.
pub(crate) fn newest_revision(registry: &Registry, name: &PackageName, natural: &Version) -> Version {
    let images = registry.images(name).into_iter().map(|i| i.version);
    images
        .filter(|v| v == natural || own_revision(natural, v).is_some())
        .max()
        .unwrap_or_else(|| natural.clone())
}

/// Which revision of ours a version is of `natural`: 2 and up.
fn own_revision(natural: &Version, version: &Version) -> Option<u64> {
    if natural.parts() != version.parts() {
        return None;
    }
    let rest = version.revision().strip_prefix(natural.revision())?;
    let rest = if natural.revision().is_empty() { rest } else { rest.strip_prefix('.')? };
    rest.strip_prefix("0.")?.parse().ok()
}

/// The revision behind `version`, which is `natural` or a revision of it.
pub(crate) fn next_revision(natural: &Version, version: &Version) -> Result<Version> {
    let number = own_revision(natural, version).map_or(2, |n| n + 1);
    let joint = if natural.revision().is_empty() { '+' } else { '.' };
    Ok(format!("{natural}{joint}0.{number}").parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_revisions_sort_between_debians() {
        let versions = [
            "8.0.2",
            "8.0.2+0.2",
            "8.0.2+3",
            "8.0.2+3.0.2",
            "8.0.2+3.0.10",
            "8.0.2+3.1",
            "8.0.2+3.b1",
            "8.0.2+3.deb13u1",
        ];
        let parsed: Vec<Version> = versions.iter().map(|v| v.parse().unwrap()).collect();
        assert!(parsed.is_sorted_by(|a, b| a < b));
        assert_eq!(next_revision(&parsed[2], &parsed[2]).unwrap(), parsed[3]);
        assert_eq!(next_revision(&parsed[0], &parsed[0]).unwrap(), parsed[1]);
        assert_eq!(next_revision(&parsed[2], &"8.0.2+3.0.9".parse().unwrap()).unwrap(), parsed[4]);
        assert_eq!(own_revision(&parsed[2], &parsed[5]), None);
    }
}
