//! Things of the host's made inside a running box's namespaces: sockets, for the relay of published ports.

use crate::error::Step;
use crate::instance::{Born, ProcessId, start_time};
use crate::keeper::on_keeper;
use crate::rootfs::above_standard;
use crate::sys::{self, Side, Sys, borrow, raw};
use crate::wire::{self, At, Failure, MAX_FDS, Message};
use crate::{ExecTarget, Ids, LaunchError, Network};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};

/// The box's process by which its namespaces are joined, and proof that it is still that process.
///
/// Rootful that is pid 1, which nobody without the host's rights may look into. Rootless the caller has no such
/// right, but it owns the box's namespace, and with it the app's process.
pub(crate) fn way_in(target: &ExecTarget) -> Result<OwnedFd, LaunchError> {
    let id = match target.ids {
        Ids::Rootless { .. } => target.app,
        Ids::Leased { .. } | Ids::Host => target.init,
    };
    for id in [target.init, id] {
        check_alive(id)?;
    }
    let gone = |errno: Errno| LaunchError::Gone(errno.to_string());
    let pid = rustix::process::Pid::from_raw(id.pid).ok_or_else(|| gone(Errno::SRCH))?;
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).map_err(gone)?;
    // Once more, now that the descriptor holds whatever it is.
    check_alive(id)?;
    Ok(pidfd)
}

fn check_alive(id: ProcessId) -> Result<(), LaunchError> {
    match start_time(id.pid) {
        None => Err(LaunchError::Gone(format!("process {} has ended", id.pid))),
        Some(start) if id.start_time != start => {
            Err(LaunchError::Gone(format!("{} is another process's number now", id.pid)))
        }
        Some(_) => Ok(()),
    }
}

/// Which namespaces a box has that are not the caller's.
pub(crate) fn kinds(target: &ExecTarget) -> i32 {
    let mut kinds = libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    if target.network != Network::Host {
        kinds |= libc::CLONE_NEWNET;
    }
    if !matches!(target.ids, Ids::Host) {
        kinds |= libc::CLONE_NEWUSER;
    }
    kinds
}

/// `n` sockets of the box's network namespace.
pub(crate) fn tcp_sockets(target: &ExecTarget, n: usize, family: AddressFamily) -> io::Result<Vec<OwnedFd>> {
    let make = || -> Sys<OwnedFd> { socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None) };
    if target.network == Network::Host {
        return (0..n).map(|_| Ok(make()?)).collect();
    }
    let way_in = way_in(target).map_err(io::Error::other)?;
    if matches!(target.ids, Ids::Rootless { .. }) {
        return on_keeper(|| by_helper(&way_in, n, &make)).map_err(io::Error::other);
    }
    // The network namespace is a thread's own, and goes with the thread.
    std::thread::scope(|scope| {
        let work = || -> io::Result<Vec<OwnedFd>> {
            sys::setns(way_in.as_fd(), libc::CLONE_NEWNET)?;
            (0..n).map(|_| Ok(make()?)).collect()
        };
        let thread = std::thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("a helper thread panicked"))?
    })
}

/// A user namespace can only be joined by a process with one thread: a child does it, and passes what it makes.
fn by_helper(
    way_in: &OwnedFd,
    n: usize,
    make: &dyn Fn() -> Sys<OwnedFd>,
) -> Result<Vec<OwnedFd>, LaunchError> {
    let (ours, theirs) = wire::pair().at(Step::Talk)?;
    let theirs = above_standard(theirs).at(Step::Talk)?;
    // SAFETY: the child goes into `help`, which neither allocates nor returns.
    let _born = match unsafe { sys::clone3(0, None) }.at(Step::Fork)? {
        Side::Child => {
            let Err(failure) = help(raw(way_in), raw(&theirs), n, make);
            wire::report_and_exit(raw(&theirs), failure)
        }
        Side::Parent { pid, pidfd } => Born { pid, pidfd },
    };
    drop(theirs);
    let mut sockets = Vec::with_capacity(n);
    loop {
        let received = wire::receive(ours.as_fd(), |_, fd| sockets.push(fd)).at(Step::Talk)?;
        match received.message {
            Some(Message::Failed(failure)) => return Err(failure.into()),
            None if sockets.len() == n => return Ok(sockets),
            None => return Err(Failure { step: Step::Talk, index: 0, errno: libc::EPIPE }.into()),
            _ => {}
        }
    }
}

fn help(
    way_in: RawFd,
    socket: RawFd,
    n: usize,
    make: &dyn Fn() -> Sys<OwnedFd>,
) -> Result<std::convert::Infallible, Failure> {
    sys::close_all_but(&[way_in, socket]).at(Step::Descriptors)?;
    // Before it joins: nobody inside may look into it (CVE-2016-9962).
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).at(Step::Join)?;
    sys::setns(borrow(way_in), libc::CLONE_NEWUSER | libc::CLONE_NEWNET).at(Step::Join)?;
    let mut made = 0;
    while made < n {
        let batch = (n - made).min(MAX_FDS);
        let mut sockets = [const { None }; MAX_FDS];
        for slot in &mut sockets[..batch] {
            *slot = Some(make().at(Step::Join)?);
        }
        let mut borrowed = [borrow(socket); MAX_FDS];
        for (place, made) in borrowed.iter_mut().zip(sockets.iter().flatten()) {
            *place = made.as_fd();
        }
        wire::send(borrow(socket), Message::Go, &borrowed[..batch]).at(Step::Talk)?;
        made += batch;
    }
    sys::exit_now(0)
}
