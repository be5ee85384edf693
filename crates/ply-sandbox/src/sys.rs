//! The few system calls that rustix lacks, typed. What runs in a cloned child neither allocates nor takes a
//! lock: another thread of the parent may hold the allocator's at the moment of the clone.

use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// What a system call gives.
pub(crate) type Sys<T> = Result<T, Errno>;

/// The flags of a clone into every namespace but user, cgroup and network (mount_namespaces(7)).
pub(crate) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Turns a raw return value into a result.
pub(crate) fn check(value: libc::c_long) -> Sys<libc::c_long> {
    if value < 0 { Err(last()) } else { Ok(value) }
}

/// The errno of the last libc call.
pub(crate) fn last() -> Errno {
    // SAFETY: the location is this thread's own errno.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

/// Which side of a clone this is.
pub(crate) enum Side {
    /// The child.
    Child,
    /// The parent, with the child's number and a descriptor of it.
    Parent {
        /// The child's number.
        pid: i32,
        /// The child.
        pidfd: OwnedFd,
    },
}

/// `clone3` without shared memory: a fork with namespaces, a pidfd and a cgroup (clone(2)).
///
/// # Safety
/// The child must not allocate, unwind out of the caller, or take a lock that another thread may hold.
pub(crate) unsafe fn clone3(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> Sys<Side> {
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    let mut pidfd: RawFd = -1;
    args.flags = flags | libc::CLONE_PIDFD as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: the struct is whole and outlives the call; no stack is given, so the child runs on a copy of ours.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of_val(&args)) })?;
    if pid == 0 {
        return Ok(Side::Child);
    }
    // SAFETY: the kernel just made this descriptor for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Side::Parent { pid: pid as i32, pidfd })
}

/// Ends this process at once, without any handler.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: never returns, touches nothing.
    unsafe { libc::_exit(code) }
}

/// `struct mount_attr` (mount_setattr(2)).
#[repr(C)]
#[derive(Default)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Nothing may be written through the mount.
pub(crate) const READ_ONLY: u64 = 0x1;
/// Setuid bits mean nothing.
pub(crate) const NO_SUID: u64 = 0x2;
/// Device nodes can't be opened.
pub(crate) const NO_DEV: u64 = 0x4;
/// Nothing can be executed.
pub(crate) const NO_EXEC: u64 = 0x8;
const IDMAP: u64 = 0x0010_0000;

/// Adds attributes to a mount, and id-maps it with the namespace `map`; with `recursive` also those below it.
pub(crate) fn mount_setattr(
    mount: BorrowedFd<'_>,
    set: u64,
    map: Option<BorrowedFd<'_>>,
    recursive: bool,
) -> Sys<()> {
    let attr = MountAttr {
        attr_set: crate::defences::standing(set) | if map.is_some() { IDMAP } else { 0 },
        userns_fd: map.map_or(0, |fd| fd.as_raw_fd() as u64),
        ..MountAttr::default()
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: path and struct outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    })?;
    Ok(())
}

/// Closes every descriptor that isn't in `keep` (at most 32 of them).
pub(crate) fn close_all_but(keep: &[RawFd]) -> Sys<()> {
    let mut sorted = [RawFd::MAX; 32];
    let count = keep.len().min(sorted.len());
    sorted[..count].copy_from_slice(&keep[..count]);
    sorted[..count].sort_unstable();
    let mut from = 0u32;
    for &fd in &sorted[..count] {
        let fd = fd as u32;
        if fd > from {
            close_range(from, fd - 1, 0)?;
        }
        from = from.max(fd + 1);
    }
    close_range(from, u32::MAX, 0)
}

/// Moves the calling thread into the cgroup (v1) whose `tasks` file `door` is, and closes it.
pub(crate) fn enter_cgroup(door: RawFd) -> Sys<()> {
    // SAFETY: the caller owns the descriptor and doesn't use it after; the buffer is static.
    unsafe {
        check(libc::write(door, b"0".as_ptr().cast(), 1) as i64)?;
        check(i64::from(libc::close(door)))?;
    }
    Ok(())
}

/// `close_range(2)`.
pub(crate) fn close_range(first: u32, last: u32, flags: u32) -> Sys<()> {
    // SAFETY: the caller names descriptors that it owns; borrowed ones aren't used after.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) })?;
    Ok(())
}

/// Gives up a descriptor's number to whoever will inherit it.
pub(crate) fn raw(fd: &impl AsFd) -> RawFd {
    fd.as_fd().as_raw_fd()
}

/// A descriptor by its number, for a child that inherited it.
pub(crate) fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the child has the number from its parent and keeps it open until it execs or exits.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Joins the namespaces of a process (setns(2), 5.8).
pub(crate) fn setns(fd: BorrowedFd<'_>, kinds: i32) -> Sys<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::syscall(libc::SYS_setns, fd.as_raw_fd(), kinds) })?;
    Ok(())
}

/// Leaves namespaces or shared state behind (unshare(2)).
pub(crate) fn unshare(kinds: i32) -> Sys<()> {
    // SAFETY: no memory is passed; CLONE_FILES isn't among the flags that we use.
    check(unsafe { libc::syscall(libc::SYS_unshare, kinds) })?;
    Ok(())
}
