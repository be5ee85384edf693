//! One app: from a word to a process that runs, and the run parent that watches it.
//!
//! Deciding is pure ([`plan()`], [`env`], [`user`], [`volumes`], [`settings`]), acting is thin. Source: the
//! spec of `ply run`.

pub mod env;
mod error;
mod files;
mod installed;
mod lease;
pub mod links;
pub mod options;
pub mod plan;
mod program;
pub mod ring;
pub mod rootfs;
pub mod settings;
mod state;
pub mod user;
pub mod volumes;

pub use error::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_PLY, EXIT_USAGE, RunError};
pub use installed::{Installed, Previous, all_installed, installed, roots};
pub use options::{RunOptions, What};
pub use plan::{Plan, PlanInput, plan};
pub use state::{InstanceState, Row, Status, instances, ps, running_digests, sweep};
