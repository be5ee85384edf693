//! `ply.lock` and `/.lock.toml`: the resolved graph with digests, in layer order.

use crate::{Arch, Digest, PackageName, SourceSpec, Version};
use std::collections::BTreeMap;

/// The newest format of a lock that this ply reads and the one that it writes.
pub const LOCK_FORMAT: u32 = 1;

/// A lock. `packages` are in layer order: dependents above dependencies, the base last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lock {
    /// The resolved packages.
    pub packages: Vec<LockedPackage>,
    /// A composition's pinned members, by member name.
    pub services: BTreeMap<String, LockedService>,
}

/// One `[[package]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedPackage {
    /// The package.
    pub name: PackageName,
    /// Its one version in the graph.
    pub version: Version,
    /// Where it came from: the template of its source.
    pub source: SourceSpec,
    /// The digest for each arch that was built.
    pub digest: BTreeMap<Arch, Digest>,
}

/// One `[service.<member>]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedService {
    /// The reference as the composition writes it.
    pub reference: String,
    /// The version that was pinned.
    pub version: Version,
    /// The digest for each arch.
    pub digest: BTreeMap<Arch, Digest>,
}
