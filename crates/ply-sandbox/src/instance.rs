//! A box that runs: its process, its exit, its end.

use crate::cgroup::Cgroups;
use crate::error::Step;
use crate::rootfs::above_standard;
use crate::scratch::Scratch;
use crate::sys::{Sys, check, raw};
use crate::wire::{At, Failure};
use crate::{ExecTarget, inner};
use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

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
    pub(crate) terminal: Option<OwnedFd>,
    pub(crate) exit: Option<Exit>,
    /// Dropped before the cgroups, which must be empty then.
    pub(crate) born: Born,
    pub(crate) cgroups: Cgroups,
    /// The last to go.
    pub(crate) _scratch: Option<Scratch>,
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

    /// What [`crate::exec()`] needs to join this box, to be kept in a state file.
    pub fn target(&self) -> &ExecTarget {
        &self.target
    }

    /// A descriptor of pid 1 that becomes readable when the box has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.born.pidfd.as_fd()
    }

    /// The controlling end of the box's terminal, once.
    pub fn take_terminal(&mut self) -> Option<OwnedFd> {
        self.terminal.take()
    }

    /// Sends a signal to the app, by way of init. `SIGKILL` ends the whole box.
    ///
    /// # Errors
    /// The system's; a box that has ended is not an error.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        self.born.signal(signal)
    }

    /// How the box ended, `None` while it runs. Doesn't wait.
    ///
    /// # Errors
    /// The system's.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        self.born.ended(&mut self.exit, WaitIdOptions::NOHANG)
    }

    /// Waits for the end of the box.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&mut self) -> io::Result<Exit> {
        self.born.end(&mut self.exit)
    }

    /// `n` TCP sockets (IPv4, close-on-exec, blocking) that live in the box's network namespace: what they
    /// connect to is inside.
    ///
    /// # Errors
    /// The system's; the box having ended among them.
    pub fn tcp_sockets(&self, n: usize) -> io::Result<Vec<OwnedFd>> {
        inner::tcp_sockets(&self.target, n, rustix::net::AddressFamily::INET)
    }

    /// The same for IPv6.
    ///
    /// # Errors
    /// As [`Self::tcp_sockets`].
    pub fn tcp6_sockets(&self, n: usize) -> io::Result<Vec<OwnedFd>> {
        inner::tcp_sockets(&self.target, n, rustix::net::AddressFamily::INET6)
    }

    /// Changes the limits while it runs. Memory and processor hold from here on, more or less than before; the number
    /// of processes too, but never above what it started with where `RLIMIT_NPROC` holds it beside the cgroup.
    ///
    /// # Errors
    /// The system's, a cgroup that is gone with its box among them.
    pub fn set_limits(&self, limits: &crate::Limits) -> io::Result<()> {
        self.cgroups.set(limits)
    }

    /// How often the kernel killed something in the box for memory so far; `None` where no cgroup v2 counts it.
    pub fn oom_kills(&self) -> Option<u64> {
        let events = self.cgroups.folders.first()?.join("memory.events");
        crate::usage::keyed(&std::fs::read_to_string(events).ok()?, "oom_kill")
    }
}

/// A child of ours that nobody else waits for. Dropping it kills and reaps it.
#[derive(Debug)]
pub(crate) struct Born {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
}

impl Born {
    pub(crate) fn signal(&self, signal: i32) -> io::Result<()> {
        // SAFETY: no information is passed beyond the number.
        let sent = check(unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, raw(&self.pidfd), signal, std::ptr::null::<u8>(), 0)
        });
        match sent {
            Ok(_) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// How it ended; `None` if it runs and `NOHANG` is among the options.
    pub(crate) fn wait(&self, options: WaitIdOptions) -> io::Result<Option<Exit>> {
        loop {
            let waited =
                rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options | WaitIdOptions::EXITED);
            return match waited {
                Err(rustix::io::Errno::INTR) => continue,
                other => Ok(other?.and_then(|status| exit(&status))),
            };
        }
    }

    /// The same, asked of the kernel only while `known` is none: it says it once.
    pub(crate) fn ended(&self, known: &mut Option<Exit>, options: WaitIdOptions) -> io::Result<Option<Exit>> {
        if known.is_none() {
            *known = self.wait(options)?;
        }
        Ok(*known)
    }

    /// Waits for its end, unless that is `known`.
    pub(crate) fn end(&self, known: &mut Option<Exit>) -> io::Result<Exit> {
        loop {
            if let Some(exit) = self.ended(known, WaitIdOptions::empty())? {
                return Ok(exit);
            }
        }
    }

    /// Waits for its end.
    pub(crate) fn finish(self) -> io::Result<Exit> {
        self.end(&mut None)
    }
}

fn exit(status: &WaitIdStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal))
}

impl Drop for Born {
    fn drop(&mut self) {
        // Already reaped: both say so, and do nothing.
        let _ = self.signal(libc::SIGKILL);
        let _ = self.wait(WaitIdOptions::empty());
    }
}

/// When a process started, in clock ticks since boot (field 22 of its stat, proc(5)); none if there is no such
/// process, or only its zombie.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in brackets, in which anything may stand.
    let rest = &text[text.iter().rposition(|byte| *byte == b')')? + 1..];
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// What 0, 1 and 2 will be, out of the way of the low numbers.
pub(crate) enum Standing {
    Fds([OwnedFd; 3]),
    Terminal(WindowSize),
}

/// The same for a child, which inherits the descriptors by their numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    Fds([RawFd; 3]),
    Terminal(WindowSize),
}

impl Standing {
    pub(crate) fn asked(&self) -> Asked {
        match self {
            Self::Fds(fds) => Asked::Fds(fds.each_ref().map(raw)),
            Self::Terminal(size) => Asked::Terminal(*size),
        }
    }
}

impl Asked {
    /// The descriptors to keep; `other`, which is kept anyway, where there are none.
    pub(crate) fn kept(self, other: RawFd) -> [RawFd; 3] {
        match self {
            Self::Fds(fds) => fds,
            Self::Terminal(_) => [other; 3],
        }
    }
}

impl Stdio {
    pub(crate) fn above_standard(self) -> Result<Standing, Failure> {
        match self {
            Self::Terminal(size) => Ok(Standing::Terminal(size)),
            Self::Fds([a, b, c]) => {
                let up = |fd| above_standard(fd).at(Step::Standard);
                Ok(Standing::Fds([up(a)?, up(b)?, up(c)?]))
            }
        }
    }
}

impl WindowSize {
    /// Gives a terminal this size; what runs in it is told by SIGWINCH.
    pub(crate) fn set(self, terminal: &OwnedFd) -> Sys<()> {
        rustix::termios::tcsetwinsize(
            terminal,
            rustix::termios::Winsize { ws_row: self.rows, ws_col: self.columns, ws_xpixel: 0, ws_ypixel: 0 },
        )
    }
}
