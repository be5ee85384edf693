//! The launch, in the order in which the kernel needs it.

use crate::{Host, Instance, LaunchError, Spec, Stdio};
use std::path::Path;

/// Where a launch keeps what it needs on the host.
#[derive(Debug, Clone, Copy)]
pub struct LaunchContext<'a> {
    /// The run folder (`/run/ply`): pinned layer mounts.
    pub run_dir: &'a Path,
    /// The data folder: an upper that can't be on tmpfs lives below `scratch/`.
    pub data_dir: &'a Path,
    /// What this machine can do.
    pub host: &'a Host,
    /// The folder of the instances' cgroups, relative to the cgroup mounts (`ply`).
    pub cgroup_parent: &'a Path,
}

/// Starts the box. On any failure nothing is left: no process, no mount, no cgroup.
///
/// # Errors
/// One variant a cause; the sentence is for the user.
pub fn launch(spec: &Spec, context: &LaunchContext<'_>, stdio: Stdio) -> Result<Instance, LaunchError> {
    let _ = (spec, context, stdio);
    Err(LaunchError::Invalid(String::new()))
}
