//! Names: of packages, of owners (registry namespaces) and of running apps.

use crate::noun::{NounError, serde_by_text};
use std::fmt;
use std::str::FromStr;

/// The longest package name, in bytes.
const PACKAGE_MAX: usize = 64;
/// The longest DNS label (RFC 1035, 2.3.4), in bytes.
const LABEL_MAX: usize = 63;

/// A package's name: `a-z 0-9 . _ - +`, the first a letter or digit, at most 64 bytes, no `-` followed by a
/// digit (an image's file name is split there). Source: `[package] name` of the manifest reference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageName(String);

impl PackageName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The nearest valid name to any text, or `None` where nothing of it can stand in a name.
    pub fn fold(text: &str) -> Option<Self> {
        let mut out = String::new();
        for c in text.chars().flat_map(char::to_lowercase).map(without_marks) {
            let c = if c.is_ascii_alphanumeric() || ".-_+".contains(c) { c } else { '-' };
            if out.is_empty() && !c.is_ascii_alphanumeric() {
                continue;
            }
            while c.is_ascii_digit() && out.ends_with('-') {
                out.pop();
            }
            if out.len() < PACKAGE_MAX {
                out.push(c);
            }
        }
        out.truncate(out.trim_end_matches(['-', '.', '_']).len());
        Self::broken_rule(&out).is_none().then_some(Self(out))
    }

    /// The rule that a text breaks, or `None` where it is a name.
    fn broken_rule(s: &str) -> Option<&'static str> {
        if s.is_empty() {
            Some("a name is not empty")
        } else if s.len() > PACKAGE_MAX {
            Some("a name has at most 64 characters")
        } else if !s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-+".contains(&b)) {
            Some("a name has only lower-case letters, digits and . _ - +")
        } else if !s.as_bytes()[0].is_ascii_alphanumeric() {
            Some("a name begins with a letter or a digit")
        } else if s.as_bytes().windows(2).any(|w| w[0] == b'-' && w[1].is_ascii_digit()) {
            Some("a name has no - followed by a digit, since an image's file name is split there")
        } else {
            None
        }
    }
}

impl FromStr for PackageName {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let Some(rule) = Self::broken_rule(s) else { return Ok(Self(s.to_owned())) };
        let error = NounError::new(format!("{s:?} is not a package name: {rule}"));
        Err(match Self::fold(s) {
            Some(name) => error.hint(format!("{:?} would do", name.0)),
            None => error,
        })
    }
}

impl fmt::Display for PackageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A registry namespace: the same letters as a package name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(String);

impl Owner {
    /// The namespace as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Owner {
    /// The official namespace, `ply`.
    fn default() -> Self {
        Self("ply".to_owned())
    }
}

impl FromStr for Owner {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let well = !s.is_empty()
            && s.len() <= PACKAGE_MAX
            && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-+".contains(&b))
            && s.as_bytes()[0].is_ascii_alphanumeric();
        if well {
            Ok(Self(s.to_owned()))
        } else {
            Err(NounError::new(format!(
                "{s:?} is not an owner: lower-case letters, digits and . _ - +, at most 64, the first a letter or digit"
            )))
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name that an app runs under (`--name`): a DNS label of lower-case letters, digits and `-`, at most 63
/// bytes, neither first nor last a `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunName(String);

impl RunName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The run name of a package: every character that a DNS label can't hold becomes `-`.
    /// The result differs from the package's name only where something was changed.
    pub fn from_package(name: &PackageName) -> Self {
        let mut folded: String =
            name.as_str().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        folded.truncate(LABEL_MAX);
        Self(folded.trim_matches('-').to_owned())
    }
}

impl FromStr for RunName {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let well = !s.is_empty()
            && s.len() <= LABEL_MAX
            && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !s.starts_with('-')
            && !s.ends_with('-');
        if well {
            return Ok(Self(s.to_owned()));
        }
        let folded: String = s
            .chars()
            .flat_map(char::to_lowercase)
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .take(LABEL_MAX)
            .collect();
        let folded = folded.trim_matches('-');
        let error = NounError::new(format!(
            "{s:?} is not a run name: lower-case letters, digits and -, at most 63, no - at either end"
        ));
        Err(if folded.is_empty() { error } else { error.hint(format!("{folded:?} would do")) })
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_by_text!(PackageName, Owner, RunName);
/// A Latin letter without its accent, so that a folder's name is still known in an app's.
fn without_marks(c: char) -> char {
    match c {
        'à'..='æ' => 'a',
        'ç' => 'c',
        'è'..='ë' => 'e',
        'ì'..='ï' => 'i',
        'ñ' => 'n',
        'ò'..='ö' | 'ø' | 'œ' => 'o',
        'ß' => 's',
        'ù'..='ü' => 'u',
        'ý' | 'ÿ' => 'y',
        other => other,
    }
}
