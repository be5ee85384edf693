//! `ply inspect`: what a package declares, straight from its manifest.

use serde::Serialize;
use std::collections::BTreeMap;

/// What a package declares. Its JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inspection {
    /// `app`, `layer`, `base` or `stack`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name.
    pub name: String,
    /// The version.
    pub version: Option<String>,
    /// The arch that the image is for; none for a directory.
    pub arch: Option<String>,
    /// The registry namespace.
    pub owner: Option<String>,
    /// One line for the registry.
    pub description: Option<String>,
    /// The licence.
    pub license: Option<String>,
    /// The home page.
    pub homepage: Option<String>,
    /// The base as `name@range`.
    pub base: Option<String>,
    /// Dependencies: name to range.
    pub dependencies: BTreeMap<String, String>,
    /// The entrypoint's argv.
    pub entrypoint: Option<Vec<String>>,
    /// `name:uid:gid`; none is root inside.
    pub user: Option<String>,
    /// What it keeps after rights are stripped.
    pub capabilities: Vec<String>,
    /// Ports by label.
    pub ports: BTreeMap<String, u16>,
    /// Egress: none where not declared, empty where it claims to talk to nobody.
    pub egress: Option<Vec<String>>,
    /// The image's digest.
    pub digest: Option<String>,
    /// The image's size in bytes.
    pub bytes: Option<u64>,
}
