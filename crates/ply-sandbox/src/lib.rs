//! One process in a box: namespaces, ids, mounts, devices, rights, limits, init, exec.
//!
//! [`Spec`] is a box as plain data, [`Host`] is what this machine can do, as plain data. [`launch()`] makes the
//! one out of the other and gives an [`Instance`]; [`exec()`] starts one more process in a box that runs.

#![cfg(target_os = "linux")]

mod cgroup;
mod defences;
mod error;
mod exec;
mod host;
mod init;
mod inner;
mod inside;
mod instance;
mod keeper;
mod launch;
mod layers;
mod masks;
mod place;
mod plan;
mod rights;
mod rootfs;
mod scratch;
mod seccomp;
mod seccomp_table;
mod spec;
mod stub;
mod subid;
mod sys;
mod syscalls;
mod systemd;
mod terminal;
mod usage;
mod userns;
mod wire;

pub use cgroup::sweep;
#[cfg(feature = "weaken")]
pub use defences::{Defence, without};
pub use error::{LaunchError, Step};
pub use exec::{Exec, ExecTarget, exec};
pub use host::{CgroupKind, Enforced, Host, Kernel};
pub use instance::{Exit, Instance, ProcessId, Stdio, WindowSize};
pub use launch::{LaunchContext, launch};
pub use layers::{GcReport, gc};
pub use place::CgroupPlace;
pub use scratch::sweep_scratch;
pub use spec::{
    Ids, Layer, Limits, Mount, MountOwner, Network, Process, ScratchFile, ScratchFolder, ScratchLink, Spec,
};
pub use subid::SubIds;
pub use usage::Usage;
pub use userns::{in_user_namespace, remove_all};
