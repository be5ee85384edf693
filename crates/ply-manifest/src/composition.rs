//! A composition: several apps, wired, each member one `ply run`. Source: the model reference, "A stack is
//! the runs, written down"; the manifest reference, "Two more files, same grammar".

use crate::{EgressEntry, Owner, RunName, Target, Version};
use std::collections::BTreeMap;

/// A composition, validated whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Composition {
    /// The name, from `[package]` or legacy `[stack]`.
    pub name: String,
    /// The registry namespace.
    pub owner: Option<Owner>,
    /// The version; only a published one needs it.
    pub version: Option<Version>,
    /// One line for the registry.
    pub description: Option<String>,
    /// A file that fills every `$VAR`.
    pub env_file: Option<String>,
    /// The members, in the order of the file.
    pub members: Vec<Member>,
}

/// One `[[service]]` (or `[[app]]`): every field is the flag of the same name.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// `run`.
    pub run: Target,
    /// `name`; by default the image's name.
    pub name: RunName,
    /// `env` (legacy `e`), in the order of the file, holes intact.
    pub env: Vec<(String, String)>,
    /// `params`, holes intact.
    pub params: BTreeMap<String, String>,
    /// `after`: conditions as written.
    pub after: Vec<String>,
    /// `publish`, `$VAR` intact.
    pub publish: Vec<String>,
    /// `domain`, `$VAR` intact.
    pub domain: Vec<String>,
    /// `volume`: `NAME:PATH` or a path.
    pub volume: Vec<String>,
    /// `scale`.
    pub scale: Option<u32>,
    /// `egress`.
    pub egress: Option<MemberEgress>,
    /// `secret_env`.
    pub secret_env: Vec<String>,
    /// `ref` of a git member.
    pub git_ref: Option<String>,
    /// `build` of a git member.
    pub git_build: Option<String>,
    /// `runtime` of a git member.
    pub git_runtime: Option<String>,
}

/// A member's egress policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberEgress {
    /// `mode`, or audit where only `allow` is given.
    pub mode: EgressPolicy,
    /// `allow`, replacing the claim.
    pub allow: Option<Vec<EgressEntry>>,
}

/// What is done about egress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressPolicy {
    /// Nothing.
    Off,
    /// Recorded.
    Audit,
    /// Recorded and blocked.
    Enforce,
}
