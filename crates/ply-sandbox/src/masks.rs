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
    let path = c"sys/net/ipv4/ip_unprivileged_port_start";
    let resolve = rustix::fs::ResolveFlags::NO_XDEV
        | rustix::fs::ResolveFlags::NO_MAGICLINKS
        | rustix::fs::ResolveFlags::BENEATH;
    match rustix::fs::openat2(proc, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty(), resolve) {
        // A kernel without IPv4.
        Err(Errno::NOENT) => Ok(()),
        file => rustix::io::write(&file?, b"0").map(drop),
    }
}
