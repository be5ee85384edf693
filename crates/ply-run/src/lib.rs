//! One app: from a word to a process that runs, and the run parent that watches it.
//!
//! Deciding is pure ([`plan::plan`], [`mod@env`], [`user`], [`mod@volumes`], [`settings`]), acting is thin. Source: the
//! spec of `ply run`.

mod commands;
mod context;
mod control;
mod decide;
mod detach;
pub mod env;
mod error;
mod exec;
mod files;
mod installed;
mod journal;
mod lease;
pub mod links;
mod logs;
mod notify;
pub mod options;
mod parent;
pub mod plan;
#[cfg(test)]
mod plan_tests;
mod pool;
mod ports;
mod prepare;
mod program;
mod pump;
mod relay;
mod rest;
pub mod ring;
pub mod rootfs;
mod run;
pub mod settings;
mod show;
mod signals;
mod state;
mod stats;
mod streams;
mod supervisor;
mod target;
mod terminal;
pub mod user;
mod volume_files;
mod volume_store;
pub mod volumes;
mod why;

pub use commands::{Removed, deploy, restart, rm, rollback, scale, stop, unpin};
pub use context::Context;
pub use control::ControlResult;
pub use error::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_PLY, EXIT_USAGE, RunError};
pub use exec::exec;
pub use installed::{Installed, Previous, all_installed, installed, roots};
pub use journal::events;
pub use logs::{InstanceName, LogOptions, logs, rfc3339};
pub use options::{RunOptions, What};
pub use plan::Plan;
pub use prepare::{PREPARE, prepare};
pub use run::{install, plan, run};
pub use state::{InstanceState, Row, Status, instances, ps, running_digests, sweep};
pub use stats::{Stat, Watch};
pub use terminal::restore as restore_terminal;
pub use volume_store::{VolumeChoice, VolumeRow, leftovers as volume_leftovers, remove_volumes, volumes};
pub use why::{Fact, Why, why};
