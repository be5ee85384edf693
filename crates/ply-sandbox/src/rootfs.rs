//! Filesystems that are made, not found: tmpfs and the overlay. Used by the parent (rootful) and by the child
//! (rootless), so nothing here allocates.

use crate::error::Step;
use crate::sys::{Sys, borrow, raw};
use crate::wire::{At, Failure};
use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_fd, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use std::ffi::CStr;
use std::os::fd::{OwnedFd, RawFd};

/// nosuid, nodev.
pub(crate) const PLAIN: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);
/// nosuid, nodev, noexec.
pub(crate) const DATA: MountAttrFlags = PLAIN.union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// A new filesystem, detached, with these options.
pub(crate) fn filesystem(
    kind: &CStr,
    options: &[(&CStr, &CStr)],
    attributes: MountAttrFlags,
) -> Sys<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// How the root of a box is put together.
pub(crate) struct Overlay<'a> {
    /// The layers, open, the topmost first.
    pub(crate) layers: &'a [RawFd],
    /// The most that scratch may hold: tmpfs's `size`.
    pub(crate) size: &'a CStr,
    /// The most files and folders in scratch: tmpfs's `nr_inodes`.
    pub(crate) inodes: &'a CStr,
    /// Whose the root folder is: root inside, by its ids out here.
    pub(crate) owner: (u32, u32),
    /// The mounter is inside the user namespace.
    pub(crate) inside: bool,
}

/// The overlay over the layers with its scratch on tmpfs, detached.
///
/// nodev stands on the overlay and not only on the layers: it is the overlay's inodes that are opened, and
/// without it a device node in an image works.
pub(crate) fn overlay(wanted: &Overlay<'_>) -> Result<OwnedFd, Failure> {
    let tmpfs = filesystem(
        c"tmpfs",
        &[(c"size", wanted.size), (c"nr_inodes", wanted.inodes), (c"mode", c"0700")],
        PLAIN,
    )
    .at(Step::Upper)?;
    let folder = |name: &CStr, mode: u32| -> Sys<OwnedFd> {
        rustix::fs::mkdirat(&tmpfs, name, Mode::from_raw_mode(mode))?;
        let fd = rustix::fs::openat(
            &tmpfs,
            name,
            rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        rustix::fs::chmodat(&tmpfs, name, Mode::from_raw_mode(mode), rustix::fs::AtFlags::empty())?;
        if !wanted.inside {
            let (uid, gid) = (Uid::from_raw(wanted.owner.0), Gid::from_raw(wanted.owner.1));
            rustix::fs::chownat(&tmpfs, name, Some(uid), Some(gid), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(fd)
    };
    let upper = folder(c"upper", 0o755).at(Step::Upper)?;
    let work = folder(c"work", 0o700).at(Step::Upper)?;
    let context = fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC).at(Step::Overlay)?;
    fsconfig_set_string(&context, c"source", c"ply").at(Step::Overlay)?;
    for (index, layer) in wanted.layers.iter().enumerate() {
        fsconfig_set_fd(&context, c"lowerdir+", borrow(*layer)).at_item(Step::Overlay, index)?;
    }
    fsconfig_set_fd(&context, c"upperdir", &upper).at(Step::Overlay)?;
    fsconfig_set_fd(&context, c"workdir", &work).at(Step::Overlay)?;
    if wanted.inside {
        fsconfig_set_flag(&context, c"userxattr").at(Step::Overlay)?;
    }
    fsconfig_create(&context).at(Step::Overlay)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, PLAIN).at(Step::Overlay)
}

/// Gives descriptors numbers that stay clear of 0, 1, 2 and of the two that the stub uses.
pub(crate) fn above_standard(fd: OwnedFd) -> Sys<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(&fd, 10)
}

/// An errno that a caller can be told about a descriptor that isn't what it should be.
pub(crate) fn must(holds: bool, otherwise: Errno) -> Sys<()> {
    if holds { Ok(()) } else { Err(otherwise) }
}

/// The numbers of a list of descriptors.
pub(crate) fn numbers(fds: &[OwnedFd]) -> Vec<RawFd> {
    fds.iter().map(raw).collect()
}
