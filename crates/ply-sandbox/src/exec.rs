//! One more process in a box that runs, with no more rights than the app has.

use crate::{Exit, Ids, LaunchError, Network, Process, ProcessId, Stdio};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// A running box, as a later process (`ply exec`) finds it in a state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecTarget {
    /// Pid 1 of the box.
    pub init: ProcessId,
    /// The app's process.
    pub app: ProcessId,
    /// The ids of the box.
    pub ids: Ids,
    /// The app's process facts: environment, workdir, user, groups, capabilities.
    pub process: Process,
    /// The network of the box.
    pub network: Network,
    /// Whether the box keeps everything.
    pub privileged: bool,
    /// The most processes, for `RLIMIT_NPROC`.
    pub pids: u32,
    /// The cgroup folders of the box: v2, and v1 controllers where they are used.
    pub cgroups: Vec<PathBuf>,
}

/// A process that was started in a running box. Dropping it kills it.
#[derive(Debug)]
pub struct Exec {
    pidfd: OwnedFd,
    terminal: Option<OwnedFd>,
}

/// Starts `argv` in the box: its namespaces, cgroup, user, environment, workdir, capabilities and filter.
///
/// # Errors
/// [`LaunchError::Gone`] if the box has ended (or another process has its pid now), and those of a launch.
pub fn exec(target: &ExecTarget, argv: &[String], stdio: Stdio) -> Result<Exec, LaunchError> {
    let _ = (target, argv, stdio);
    Err(LaunchError::Gone(String::new()))
}

impl Exec {
    /// A descriptor of the process that becomes readable when it has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The controlling end of its terminal, once.
    pub fn take_terminal(&mut self) -> Option<OwnedFd> {
        self.terminal.take()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// The system's; having ended is not an error.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let _ = signal;
        Ok(())
    }

    /// How it ended, `None` while it runs. Doesn't wait.
    ///
    /// # Errors
    /// The system's.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        Ok(None)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&mut self) -> io::Result<Exit> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
