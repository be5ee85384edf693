//! Signals to the run parent, as events of its loop (signalfd(2)).

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What the loop takes itself. Everything else keeps its default.
const TAKEN: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// The signals of this process as a descriptor; their old handling comes back when it is dropped.
pub(crate) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    /// Takes the signals over. A background job that reads its terminal gets an error, not a stop.
    pub(crate) fn take() -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in TAKEN {
            set.add(signal);
        }
        set.add(Signal::SIGTTIN);
        set.add(Signal::SIGTTOU);
        let before = SigSet::thread_get_mask()?;
        set.thread_block()?;
        set.remove(Signal::SIGTTIN);
        set.remove(Signal::SIGTTOU);
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { fd, before })
    }

    /// Readable when a signal came.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(self.fd.as_fd(), 3)?)
    }

    /// The next signal, none where none came.
    pub(crate) fn next(&self) -> Option<i32> {
        self.fd.read_signal().ok().flatten().and_then(|s| i32::try_from(s.ssi_signo).ok())
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}
