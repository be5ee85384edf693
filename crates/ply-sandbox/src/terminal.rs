//! A pseudo terminal out of a devpts, by descriptors alone: no path of the box is looked up. Nothing here
//! allocates.

use crate::WindowSize;
use crate::inside::Buffer;
use crate::sys::{Sys, check, raw};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use std::os::fd::{FromRawFd, OwnedFd};

/// Makes a pair in the devpts whose root is given; the app's end belongs to `user`, and has its size before anybody
/// can ask for it. Gives the controlling end, the app's end and the node's name.
pub(crate) fn make(pts: &OwnedFd, user: (u32, u32), size: WindowSize) -> Sys<(OwnedFd, OwnedFd, Buffer)> {
    let master = rustix::fs::openat(
        pts,
        c"ptmx",
        OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
    )?;
    let unlocked: libc::c_int = 0;
    // SAFETY: the number outlives the call.
    check(i64::from(unsafe { libc::ioctl(raw(&master), libc::TIOCSPTLCK, &raw const unlocked) }))?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: this request takes flags and gives a new descriptor.
    let slave = check(i64::from(unsafe { libc::ioctl(raw(&master), libc::TIOCGPTPEER, flags) }))?;
    // SAFETY: the kernel just made it for us.
    let slave = unsafe { OwnedFd::from_raw_fd(slave as i32) };
    let mut number: libc::c_uint = 0;
    // SAFETY: the number outlives the call.
    check(i64::from(unsafe { libc::ioctl(raw(&master), libc::TIOCGPTN, &raw mut number) }))?;
    rustix::fs::fchown(&slave, Some(Uid::from_raw(user.0)), None::<Gid>)?;
    size.set(&master)?;
    let mut name = Buffer::new();
    decimal(number, &mut name)?;
    Ok((master, slave, name))
}

/// A number in digits.
pub(crate) fn decimal(mut number: u32, out: &mut Buffer) -> Sys<()> {
    let mut digits = [0u8; 10];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return out.push(&digits[at..]);
        }
    }
}
