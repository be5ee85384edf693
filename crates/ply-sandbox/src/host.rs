//! What this machine can do, as plain data: everything the launch decides by, so that a plan can be printed
//! and tested without the machine.

use crate::{Ids, LaunchError, SubIds};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What this machine and this caller can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The caller's user id.
    pub uid: u32,
    /// The caller's group id.
    pub gid: u32,
    /// Whether the caller is root with the rights of root (rootful).
    pub root: bool,
    /// What the kernel can.
    pub kernel: Kernel,
    /// The id ranges delegated to the caller; empty for root.
    pub sub_ids: SubIds,
    /// `newuidmap`, where it is installed.
    pub newuidmap: Option<PathBuf>,
    /// `newgidmap`, where it is installed.
    pub newgidmap: Option<PathBuf>,
    /// How cgroups are mounted here.
    pub cgroup: CgroupKind,
    /// Which limits hold here.
    pub enforced: Enforced,
    /// The memory of the machine in bytes.
    pub memory_bytes: u64,
}

/// What the kernel can.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Its release, as `uname -r` says it.
    pub release: String,
    /// Major and minor version.
    pub version: (u32, u32),
    /// Whether this caller can make user namespaces; else why not, in words.
    pub user_namespaces: Result<(), String>,
    /// overlayfs is there.
    pub overlay: bool,
    /// squashfs is there.
    pub squashfs: bool,
    /// Loop devices are there.
    pub loop_devices: bool,
    /// A squashfs can be id-mapped (6.2).
    pub squashfs_idmap: bool,
    /// An overlay can have id-mapped layers (5.19).
    pub overlay_idmap: bool,
    /// A layer of an overlay can be a detached mount (6.15).
    pub overlay_detached: bool,
    /// An overlay in a user namespace can have its upper on tmpfs (user xattrs on tmpfs, 6.6).
    pub tmpfs_user_xattr: bool,
    /// `openat2` is there (5.6); without it nothing is launched.
    pub openat2: bool,
    /// seccomp filters are there.
    pub seccomp: bool,
}

/// How cgroups are mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupKind {
    /// v2 alone, at this path.
    V2 {
        /// The mount point.
        mount: PathBuf,
    },
    /// v1 controllers, with v2 beside them where `unified` says so.
    V1 {
        /// The v1 pids controller's mount point.
        pids: Option<PathBuf>,
        /// The v2 hierarchy without those controllers.
        unified: Option<PathBuf>,
    },
    /// None.
    None,
}

/// Which limits hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    /// `pids`, by a cgroup. (`RLIMIT_NPROC` in the box's own user namespace holds it in any case.)
    pub pids: bool,
    /// Memory.
    pub memory: bool,
    /// CPU.
    pub cpu: bool,
}

impl Host {
    /// Looks at this machine. `cgroup_parent` is the folder below which instances get their cgroups, relative to
    /// the cgroup mount (`ply` by default; under systemd the unit's delegated folder).
    pub fn probe(cgroup_parent: &Path) -> Self {
        let _ = cgroup_parent;
        todo_probe()
    }

    /// The ids a box gets here: rootful the leased range if the kernel can map (else [`Ids::Host`]), rootless the
    /// caller and its ranges.
    pub fn ids(&self, lease: (u32, u32)) -> Ids {
        if !self.root {
            Ids::Rootless {
                uid: self.uid,
                gid: self.gid,
                sub_uids: self.sub_ids.uids.clone(),
                sub_gids: self.sub_ids.gids.clone(),
            }
        } else if self.kernel.user_namespaces.is_ok() && self.kernel.overlay_idmap {
            Ids::Leased { start: lease.0, count: lease.1 }
        } else {
            Ids::Host
        }
    }

    /// Whether layers must be extracted folders here ([`crate::Layer::tree`]), not images.
    pub fn needs_trees(&self) -> bool {
        !self.root
            || (self.kernel.user_namespaces.is_ok()
                && self.kernel.overlay_idmap
                && !self.kernel.squashfs_idmap)
            || !self.kernel.squashfs
            || !self.kernel.loop_devices
    }

    /// What keeps any box from running here, or nothing: one sentence and a hint.
    ///
    /// # Errors
    /// [`LaunchError::Host`].
    pub fn check(&self) -> Result<(), LaunchError> {
        Ok(())
    }

    /// One line for each thing that this host doesn't give (no user namespace for rootful, limits that aren't
    /// enforced), to be said at every start.
    pub fn notices(&self) -> Vec<String> {
        Vec::new()
    }
}

fn todo_probe() -> Host {
    unreachable!()
}
