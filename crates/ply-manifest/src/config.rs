//! `config.toml`, and the policy that `ply check --against` holds an image to.

use crate::{Capability, EgressEntry, PackageName, Reference, SourceSpec, Version};
use std::collections::BTreeMap;

/// `config.toml`: what a host or a user sets once. Unknown keys are errors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// `default_source`: where packages come from when nothing nearer says so.
    pub default_source: Option<SourceSpec>,
}

/// A policy for images:
///
/// ```toml
/// bases = ["debian@13"]              # the bases that may own /
///
/// [least]                            # the least version of each package that is in the image
/// openssl = "3.5.1"
///
/// [capabilities]
/// forbid = ["sys_admin", "net_raw"]  # what no app may keep
///
/// [egress]
/// declared = true                    # the manifest must say whom it talks to
/// allow = ["*.example.com"]          # and may only claim these
/// require = ["api.example.com"]      # and must claim these
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// `bases`: the bases that may own `/`; any where the key is absent, none where it is empty.
    pub bases: Option<Vec<Reference>>,
    /// `[least]`: the least version of a package, where the image holds it.
    pub least: BTreeMap<PackageName, Version>,
    /// `[capabilities] forbid`, sorted, each once.
    pub forbidden_capabilities: Vec<Capability>,
    /// `[egress] declared`: whether an image must declare its egress.
    pub egress_declared: bool,
    /// `[egress] allow`: what an image may claim; anything where the key is absent.
    pub egress_allowed: Option<Vec<EgressEntry>>,
    /// `[egress] require`: what an image must claim.
    pub egress_required: Vec<EgressEntry>,
}
