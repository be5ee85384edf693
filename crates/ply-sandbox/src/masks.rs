//! What of `/proc` and `/sys` a box doesn't see or can't write: the union of what runc and Docker mask. The
//! two are the real filesystems, by the descriptors that mounted them (CVE-2019-16884, CVE-2025-52881 wrote to
//! something else), and every place is opened once (CVE-2025-31133). Nothing here allocates.

use crate::error::Step;
use crate::inside::{Buffer, attach, beneath, copy};
use crate::rootfs::{DATA, filesystem};
use crate::sys::{self, NO_DEV, NO_EXEC, NO_SUID, READ_ONLY, Sys};
use crate::terminal::decimal;
use crate::wire::{At, Failure};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

/// Hidden below `/proc`.
const PROC_HIDDEN: &[&CStr] = &[
    c"acpi",
    c"asound",
    c"interrupts",
    c"kcore",
    c"keys",
    c"latency_stats",
    c"sched_debug",
    c"scsi",
    c"timer_list",
    c"timer_stats",
];

/// Read-only below `/proc`.
const PROC_READ_ONLY: &[&CStr] = &[c"bus", c"fs", c"irq", c"sys", c"sysrq-trigger"];

/// Hidden below `/sys`, which is read-only as a whole.
const SYS_HIDDEN: &[&CStr] = &[c"firmware", c"devices/virtual/powercap"];

/// Hides and locks. `null` is the box's own `/dev/null`.
pub(crate) fn mask(proc: &OwnedFd, sys: &OwnedFd, null: &OwnedFd) -> Result<(), Failure> {
    let mut empty = None;
    for path in PROC_HIDDEN {
        hide(proc, path, null, &mut empty).at(Step::Mask)?;
    }
    for path in SYS_HIDDEN {
        hide(sys, path, null, &mut empty).at(Step::Mask)?;
    }
    // How hot each processor was: a side channel that Docker hides too.
    for cpu in 0.. {
        let mut path = Buffer::new();
        path.push(b"devices/system/cpu/cpu").at(Step::Mask)?;
        decimal(cpu, &mut path).at(Step::Mask)?;
        if beneath(sys, path.as_c_str().at(Step::Mask)?, OFlags::PATH).is_err() {
            break;
        }
        path.push(b"/thermal_throttle").at(Step::Mask)?;
        hide(sys, path.as_c_str().at(Step::Mask)?, null, &mut empty).at(Step::Mask)?;
    }
    for path in PROC_READ_ONLY {
        match beneath(proc, path, OFlags::PATH) {
            Err(Errno::NOENT) => {}
            place => lock(&place.at(Step::Mask)?).at(Step::Mask)?,
        }
    }
    Ok(())
}

fn hide(filesystem_root: &OwnedFd, path: &CStr, null: &OwnedFd, empty: &mut Option<OwnedFd>) -> Sys<()> {
    let place = match beneath(filesystem_root, path, OFlags::PATH) {
        Err(Errno::NOENT) => return Ok(()),
        place => place?,
    };
    if FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) != FileType::Directory {
        return attach(&copy(null, false)?, &place);
    }
    // The first hidden folder gets the empty filesystem, the others copies of it.
    match empty {
        Some(empty) => attach(&copy(empty, false)?, &place),
        None => {
            let options = [(c"size", c"4k"), (c"nr_inodes", c"2"), (c"mode", c"0555")];
            let made = filesystem(c"tmpfs", &options, DATA | MountAttrFlags::MOUNT_ATTR_RDONLY)?;
            attach(&made, &place)?;
            *empty = Some(made);
            Ok(())
        }
    }
}

fn lock(place: &OwnedFd) -> Sys<()> {
    let mount = copy(place, false)?;
    sys::mount_setattr(mount.as_fd(), READ_ONLY | NO_SUID | NO_DEV | NO_EXEC, None, false)?;
    attach(&mount, place)
}

/// Lets anybody in the box listen on any port: its network namespace is its own, and no capability is needed.
pub(crate) fn low_ports(proc: &OwnedFd) -> Sys<()> {
    // A kernel without IPv4 has no such file.
    set(proc, c"sys/net/ipv4/ip_unprivileged_port_start", b"0")
}

/// What the box's user namespace may have of things that are counted against whoever made it too, the host's root or
/// the caller: a quarter of what each user has, so that one box can't use up what every other process of that user has.
const COUNTED: &[(&CStr, &CStr)] = &[
    (c"sys/user/max_inotify_instances", c"sys/fs/inotify/max_user_instances"),
    (c"sys/user/max_inotify_watches", c"sys/fs/inotify/max_user_watches"),
];

/// Sets the limits of this process's user namespace, which must be the box's own (namespaces(7), `/proc/sys/user`).
pub(crate) fn user_limits(proc: &OwnedFd) -> Sys<()> {
    for (limit, of_each_user) in COUNTED {
        let most = match setting(proc, of_each_user, OFlags::RDONLY) {
            Err(Errno::NOENT) => continue,
            file => number(&file?)?,
        };
        let mut text = Buffer::new();
        decimal((most / 4).max(16), &mut text)?;
        set(proc, limit, text.as_c_str()?.to_bytes())?;
    }
    Ok(())
}

/// A number in a file of the kernel's; what is more than fits is the most.
fn number(file: &OwnedFd) -> Sys<u32> {
    let mut text = [0; 20];
    let length = rustix::io::read(file, &mut text)?;
    let digits = text[..length].iter().take_while(|byte| byte.is_ascii_digit());
    Ok(digits.fold(0u32, |value, digit| value.saturating_mul(10).saturating_add(u32::from(digit - b'0'))))
}

/// Opens a kernel setting below the real `/proc` (CVE-2025-52881 wrote to something else).
fn setting(proc: &OwnedFd, path: &CStr, flags: OFlags) -> Sys<OwnedFd> {
    let resolve = rustix::fs::ResolveFlags::NO_XDEV
        | rustix::fs::ResolveFlags::NO_MAGICLINKS
        | rustix::fs::ResolveFlags::BENEATH;
    rustix::fs::openat2(proc, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Changes a setting, where the kernel has it.
fn set(proc: &OwnedFd, path: &CStr, value: &[u8]) -> Sys<()> {
    match setting(proc, path, OFlags::WRONLY) {
        Err(Errno::NOENT) => Ok(()),
        file => rustix::io::write(&file?, value).map(drop),
    }
}
