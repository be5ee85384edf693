//! Versions and ranges. A version is semver 2.0 with three parts whose build metadata is ordered; a range
//! is a prefix. Source: `spec` on names, versions and ranges; the reference's "Version syntax".

use crate::noun::{NounError, serde_by_text};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The longest version, in bytes: with the longest name it still fits a file name (255 bytes on Linux).
const VERSION_MAX: usize = 128;

/// The forms of a range, as every error about one shows them.
const RANGE_FORMS: &str = r#"write "22" for any 22.x.y, "6.1" for any 6.1.x, "1.2.3" or "1.2.3+4" for exactly that, or "*" for any"#;

/// A version with three parts. Build metadata is a packager's revision: part of the identity, and ordered
/// after the bare version, dot by dot, runs of digits as numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version(semver::Version);

impl Version {
    /// Version `major.minor.patch` without pre-release or revision.
    pub fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self(semver::Version::new(major, minor, patch))
    }

    /// The three parts.
    pub fn parts(&self) -> (u64, u64, u64) {
        (self.0.major, self.0.minor, self.0.patch)
    }

    /// Whether this is a pre-release; one is chosen only by an exact range.
    pub fn is_prerelease(&self) -> bool {
        !self.0.pre.is_empty()
    }

    /// The revision (build metadata), empty where there is none.
    pub fn revision(&self) -> &str {
        self.0.build.as_str()
    }
}

impl FromStr for Version {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        if s.len() > VERSION_MAX {
            return Err(NounError::new(format!(
                "{s:?} is not a version: it has {} characters, and the most is {VERSION_MAX}",
                s.len()
            )));
        }
        semver::Version::parse(s).map(Self).map_err(|why| {
            let parts: Vec<&str> = s.split('.').collect();
            let digits = |p: &&str| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit());
            if parts.len() < 3 && parts.iter().all(digits) {
                let mut full = parts;
                full.resize(3, "0");
                NounError::new(format!("{s:?} is not a version: it has not three parts"))
                    .hint(format!("{:?} would do", full.join(".")))
            } else {
                NounError::new(format!("{s:?} is not a version: {why}"))
                    .hint("a version is MAJOR.MINOR.PATCH, as in \"1.2.0\"")
            }
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0
            .cmp_precedence(&other.0)
            .then_with(|| cmp_revision(self.0.build.as_str(), other.0.build.as_str()))
            .then_with(|| self.0.build.as_str().cmp(other.0.build.as_str()))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Orders two revisions: none first, then dot by dot, runs of digits as numbers.
fn cmp_revision(a: &str, b: &str) -> Ordering {
    if a.is_empty() || b.is_empty() {
        return a.is_empty().cmp(&b.is_empty()).reverse();
    }
    let (mut left, mut right) = (a.split('.'), b.split('.'));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(l), Some(r)) => match cmp_runs(l, r) {
                Ordering::Equal => {}
                unequal => return unequal,
            },
        }
    }
}

/// Orders two texts run by run: digits as numbers of any length, the rest as bytes.
fn cmp_runs(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() && !b.is_empty() {
        let (run_a, rest_a) = first_run(a);
        let (run_b, rest_b) = first_run(b);
        let both_numbers = run_a.as_bytes()[0].is_ascii_digit() && run_b.as_bytes()[0].is_ascii_digit();
        let order = if both_numbers {
            let (x, y) = (run_a.trim_start_matches('0'), run_b.trim_start_matches('0'));
            x.len().cmp(&y.len()).then_with(|| x.cmp(y))
        } else {
            run_a.cmp(run_b)
        };
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
    a.len().cmp(&b.len())
}

fn first_run(s: &str) -> (&str, &str) {
    let digit = s.as_bytes()[0].is_ascii_digit();
    let end = s.bytes().position(|c| c.is_ascii_digit() != digit).unwrap_or(s.len());
    s.split_at(end)
}

/// Which versions will do: a prefix of a version, one exact version, or any.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Range {
    /// `"*"`: any version that is not a pre-release.
    Any,
    /// `"22"`: any 22.x.y in any revision.
    Major(u64),
    /// `"6.1"`: any 6.1.x in any revision.
    Minor(u64, u64),
    /// `"1.2.3"`, `"1.2.3+4"`, `"1.2.3-rc.1"`: exactly that file.
    Exact(Version),
}

impl Range {
    /// Whether `version` satisfies this range. A pre-release satisfies only its own exact range.
    pub fn contains(&self, version: &Version) -> bool {
        let (major, minor, _) = version.parts();
        match self {
            Self::Exact(exact) => exact == version,
            _ if version.is_prerelease() => false,
            Self::Any => true,
            Self::Major(m) => *m == major,
            Self::Minor(m, n) => (*m, *n) == (major, minor),
        }
    }
}

impl FromStr for Range {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = || NounError::new(format!("{s:?} is not a version range")).hint(RANGE_FORMS);
        let number = |p: &str| -> Option<u64> {
            let plain = p.bytes().all(|b| b.is_ascii_digit()) && (p == "0" || !p.starts_with('0'));
            if plain { p.parse().ok() } else { None }
        };
        if s == "*" {
            return Ok(Self::Any);
        }
        if let Ok(exact) = s.parse() {
            return Ok(Self::Exact(exact));
        }
        let mut parts = s.split('.');
        match (parts.next().and_then(number), parts.next(), parts.next()) {
            (Some(major), None, None) => Ok(Self::Major(major)),
            (Some(major), Some(minor), None) => {
                number(minor).map(|minor| Self::Minor(major, minor)).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Major(major) => write!(f, "{major}"),
            Self::Minor(major, minor) => write!(f, "{major}.{minor}"),
            Self::Exact(version) => version.fmt(f),
        }
    }
}

serde_by_text!(Version, Range);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_ordered_after_the_bare_version_with_digits_as_numbers() {
        let order = ["8.0.2-rc.1", "8.0.2", "8.0.2+3.deb13u2", "8.0.2+3.deb13u10", "8.0.2+10", "8.0.3"];
        let versions: Vec<Version> = order.iter().map(|v| v.parse().unwrap()).collect();
        let mut sorted = versions.clone();
        sorted.reverse();
        sorted.sort();
        assert_eq!(sorted, versions);
    }

    #[test]
    fn a_range_is_a_prefix() {
        let contains = |range: &str, version: &str| {
            range.parse::<Range>().unwrap().contains(&version.parse::<Version>().unwrap())
        };
        assert!(contains("22", "22.6.0+1"));
        assert!(!contains("2", "22.6.0"));
        assert!(contains("6.1", "6.1.9"));
        assert!(!contains("6.1", "6.10.0"));
        assert!(contains("1.2.3", "1.2.3"));
        assert!(!contains("1.2.3", "1.2.3+4"));
        assert!(!contains("*", "1.0.0-rc.1"));
        assert!(contains("1.0.0-rc.1", "1.0.0-rc.1"));
        for wrong in ["^1", ">=2", "1.x", "", "1.", "01", "1 2", "v1"] {
            assert!(wrong.parse::<Range>().is_err(), "{wrong}");
        }
    }
}
