//! What the verbs `search`, `outdated` and `tree` show, as values.

use ply_manifest::{Arch, Digest, Owner, PackageName, Range, Version};
use serde::Serialize;
use std::fmt;

/// One package that a catalog or a folder has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The namespace, where the catalog says one.
    pub owner: Option<Owner>,
    /// The package.
    pub name: PackageName,
    /// `app`, `layer`, `base` or `stack`, where the catalog says it.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// One line about it.
    pub description: Option<String>,
    /// Its licence.
    pub license: Option<String>,
    /// Its versions, newest first.
    pub versions: Vec<Version>,
    /// What the newest version was built for.
    pub archs: Vec<Arch>,
    /// The line to paste into `[build.dependencies]`.
    pub line: String,
}

impl Found {
    pub(crate) fn new(
        owner: Option<Owner>,
        name: PackageName,
        kind: Option<String>,
        description: Option<String>,
        license: Option<String>,
        versions: Vec<Version>,
        archs: Vec<Arch>,
    ) -> Self {
        let line = paste_line(&name, versions.first());
        Self { owner, name, kind, description, license, versions, archs, line }
    }

    /// Adds what the images of a folder say of themselves to what its catalog says of them.
    pub(crate) fn add(&mut self, scanned: Self) {
        // A catalog knows apps, layers and stacks; an image says that it is a base.
        self.kind = scanned.kind.or(self.kind.take());
        self.description = self.description.take().or(scanned.description);
        self.license = self.license.take().or(scanned.license);
        if scanned.versions.first() > self.versions.first() {
            self.archs = scanned.archs;
        } else if scanned.versions.first() == self.versions.first() {
            self.archs.extend(scanned.archs);
            self.archs.sort();
            self.archs.dedup();
        }
        self.versions.extend(scanned.versions);
        self.versions.sort_by(|a, b| b.cmp(a));
        self.versions.dedup();
        self.line = paste_line(&self.name, self.versions.first());
    }
}

/// The line of a manifest that asks for a package: in the range of its newest version's first part, or of the first two where that
/// is 0. A name with a dot or a plus is quoted, as TOML wants it.
fn paste_line(name: &PackageName, newest: Option<&Version>) -> String {
    let range = match newest {
        Some(version) if version.is_prerelease() => version.to_string(),
        Some(version) => match version.parts() {
            (0, minor, _) => format!("0.{minor}"),
            (major, ..) => major.to_string(),
        },
        None => "*".to_owned(),
    };
    let bare = name.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare { format!("{name} = \"{range}\"") } else { format!("\"{name}\" = \"{range}\"") }
}

/// One dependency as `ply outdated` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outdated {
    /// The package.
    pub name: PackageName,
    /// What the manifest asks for.
    pub range: Range,
    /// What the lock holds.
    pub locked: Option<Version>,
    /// The newest that the range allows; none where the source can't list.
    pub in_range: Option<Version>,
    /// The newest of all, pre-releases aside.
    pub newest: Option<Version>,
}

impl Outdated {
    /// Whether there is something newer than the lock.
    pub fn is_outdated(&self) -> bool {
        self.newest > self.locked && self.newest.is_some()
    }
}

/// Who asks for a package, and which versions will do for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// From the root down to the one that asks, each as `name version`.
    pub chain: Vec<String>,
    /// The range that it asks for.
    pub range: Range,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} wants {}", self.chain.join(" → "), self.range)
    }
}

/// Who stands on which base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AskedBase {
    /// The base.
    pub name: PackageName,
    /// Who asks for it, and in which range.
    pub asked: Asked,
}

impl fmt::Display for AskedBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} wants {} {}", self.asked.chain.join(" → "), self.name, self.asked.range)
    }
}

/// The graph of a lock, as `ply tree` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// The root package.
    pub name: PackageName,
    /// Its version.
    pub version: Version,
    /// What the root asks for itself: dependencies by name, the base last.
    pub children: Vec<TreeNode>,
    /// The bytes of all images, each counted once.
    pub bytes: u64,
}

/// One line of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TreeNode {
    /// The package.
    pub name: PackageName,
    /// The version in the lock.
    pub version: Version,
    /// What its parent in the tree asks for.
    pub range: Range,
    /// Whether it is the base.
    pub base: bool,
    /// Its image, where the lock has a digest for the arch.
    pub digest: Option<Digest>,
    /// The size of its image in bytes, where the store holds it.
    pub bytes: Option<u64>,
    /// Whether it stands elsewhere in the tree with its children, and here without.
    pub repeated: bool,
    /// What it brings.
    pub children: Vec<TreeNode>,
}
