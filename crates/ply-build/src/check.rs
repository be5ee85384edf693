//! `ply check`: what can be said about an image or a directory without running it, for people and for CI.

use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The image can't run, or the policy forbids it: the check fails.
    Error,
    /// Worth knowing: the check passes.
    Warning,
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule: `manifest`, `structure`, `name`, `lock`, `abi`, `layers`, `entrypoint`, `policy`.
    pub rule: &'static str,
    /// How bad.
    pub level: Level,
    /// One sentence.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// What `ply check` found. Its JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// What was checked, as the person named it.
    pub target: String,
    /// Whether there is no error among the findings.
    pub ok: bool,
    /// The rules that were looked at, in order.
    pub checked: Vec<&'static str>,
    /// What was found, in the order of the rules.
    pub findings: Vec<Finding>,
}
