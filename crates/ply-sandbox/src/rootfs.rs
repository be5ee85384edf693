//! Filesystems that are made, not found: tmpfs and the overlay. Used by the parent (rootful) and by the child
//! (rootless), so nothing here allocates.

use crate::LaunchError;
use crate::defences::{Defence, standing, stands};
use crate::error::Step;
use crate::inside::{Buffer, attach, copy};
use crate::sys::{self, Sys, borrow, raw};
use crate::terminal::decimal;
use crate::wire::{At, Failure};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_fd, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use std::ffi::{CStr, CString};
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
    attached_nowhere(&context, attributes)
}

/// The mount of a filesystem that was just made.
fn attached_nowhere(context: &OwnedFd, attributes: MountAttrFlags) -> Sys<OwnedFd> {
    let attributes = standing(u64::from(attributes.bits()));
    fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::from_bits_retain(attributes as u32))
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
    /// The kernel wants paths (before 6.15): the caller is in a mount namespace in which nobody looks at `/sys`.
    pub(crate) by_path: bool,
    /// A folder for scratch where tmpfs can't be the upper.
    pub(crate) folder: Option<&'a CStr>,
}

/// The overlay over the layers with its scratch on tmpfs, detached.
///
/// nodev stands on the overlay and not only on the layers: it is the overlay's inodes that are opened, and
/// without it a device node in an image works. nosuid too: what is copied up keeps its set-id bits and its capabilities
/// (CVE-2021-3493, CVE-2023-0386).
pub(crate) fn overlay(wanted: &Overlay<'_>) -> Result<OwnedFd, Failure> {
    let scratch = match wanted.folder {
        Some(path) => rustix::fs::open(path, FOLDER, Mode::empty()).at(Step::Upper)?,
        None => filesystem(
            c"tmpfs",
            &[(c"size", wanted.size), (c"nr_inodes", wanted.inodes), (c"mode", c"0700")],
            PLAIN,
        )
        .at(Step::Upper)?,
    };
    if wanted.by_path {
        return overlay_by_path(wanted, &scratch);
    }
    let upper = scratch_folder(wanted, &scratch, c"upper", 0o755).at(Step::Upper)?;
    let work = scratch_folder(wanted, &scratch, c"work", 0o700).at(Step::Upper)?;
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
    attached_nowhere(&context, PLAIN).at(Step::Overlay)
}

/// The filesystem of a box's `/dev`, still empty.
pub(crate) fn dev() -> Sys<OwnedFd> {
    let size = if stands(Defence::Sizes) { c"64k" } else { c"0" };
    let options = [(c"mode", c"0755"), (c"size", size), (c"nr_inodes", c"1024")];
    filesystem(c"tmpfs", &options, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC)
}

/// The same with device nodes of the box's own, for a caller who may make nodes: `owner` is root inside. A node of the
/// host's, bound, would share locks, times and watches with everybody else who has it open.
pub(crate) fn dev_with_nodes(nodes: &[(CString, (u32, u32))], owner: (u32, u32)) -> Sys<OwnedFd> {
    let dev = dev()?;
    let (uid, gid) = (Some(Uid::from_raw(owner.0)), Some(Gid::from_raw(owner.1)));
    let mode = Mode::from_raw_mode(0o666);
    for (name, (major, minor)) in nodes {
        let number = rustix::fs::makedev(*major, *minor);
        rustix::fs::mknodat(&dev, name.as_c_str(), FileType::CharacterDevice, mode, number)?;
        // Whatever the caller's umask is.
        rustix::fs::chmodat(&dev, name.as_c_str(), mode, AtFlags::empty())?;
        rustix::fs::chownat(&dev, name.as_c_str(), uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    rustix::fs::chownat(&dev, c"", uid, gid, AtFlags::EMPTY_PATH)?;
    Ok(dev)
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn scratch_folder(wanted: &Overlay<'_>, scratch: &OwnedFd, name: &CStr, mode: u32) -> Sys<OwnedFd> {
    rustix::fs::mkdirat(scratch, name, Mode::from_raw_mode(mode))?;
    let folder = rustix::fs::openat(scratch, name, FOLDER, Mode::empty())?;
    rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode))?;
    if !wanted.inside {
        let (uid, gid) = (Uid::from_raw(wanted.owner.0), Gid::from_raw(wanted.owner.1));
        rustix::fs::fchown(&folder, Some(uid), Some(gid))?;
    }
    Ok(folder)
}

/// The same on a kernel that takes paths only, and only of attached mounts: everything is attached below `/sys`
/// of this mount namespace, under names of ours, which need no escaping. mount(2) takes a page of options, where
/// fsconfig takes 256 bytes.
fn overlay_by_path(wanted: &Overlay<'_>, scratch: &OwnedFd) -> Result<OwnedFd, Failure> {
    let place = |name: &CStr| rustix::fs::open(name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let room = filesystem(c"tmpfs", &[(c"mode", c"0700"), (c"size", c"1m")], PLAIN).at(Step::Overlay)?;
    attach(&room, &place(c"/sys").at(Step::Overlay)?).at(Step::Overlay)?;
    let sub = |name: &CStr| -> Sys<OwnedFd> {
        rustix::fs::mkdirat(&room, name, Mode::from_raw_mode(0o700))?;
        rustix::fs::openat(&room, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    };
    let put = |mount: &OwnedFd, name: &CStr| attach(mount, &sub(name)?);
    let scratch_mount = match wanted.folder {
        Some(_) => Some(copy(scratch, false).at(Step::Upper)?),
        None => None,
    };
    put(scratch_mount.as_ref().unwrap_or(scratch), c"scratch").at(Step::Upper)?;
    let scratch = place(c"/sys/scratch").at(Step::Upper)?;
    drop(scratch_folder(wanted, &scratch, c"upper", 0o755).at(Step::Upper)?);
    drop(scratch_folder(wanted, &scratch, c"work", 0o700).at(Step::Upper)?);
    let mut options = Buffer::new();
    options.push(b"upperdir=/sys/scratch/upper,workdir=/sys/scratch/work,").at(Step::Overlay)?;
    if wanted.inside {
        options.push(b"userxattr,").at(Step::Overlay)?;
    }
    options.push(b"lowerdir=").at(Step::Overlay)?;
    for (index, layer) in wanted.layers.iter().enumerate() {
        let mut name = Buffer::new();
        decimal(index as u32, &mut name).at(Step::Overlay)?;
        // A layer that is a folder of the host's is shown by a copy; one that is a mount of its own, itself.
        let name = name.as_c_str().at(Step::Overlay)?;
        if wanted.inside {
            let copy = copy(&borrow(*layer), false).at_item(Step::Layer, index)?;
            put(&copy, name).at_item(Step::Layer, index)?;
        } else {
            attach(&borrow(*layer), &sub(name).at(Step::Overlay)?).at_item(Step::Layer, index)?;
        }
        options.push(if index == 0 { b"/sys/" } else { b":/sys/" }).at(Step::Overlay)?;
        options.push(name.to_bytes()).at(Step::Overlay)?;
    }
    drop(sub(c"root").at(Step::Overlay)?);
    let flags = rustix::mount::MountFlags::NODEV | rustix::mount::MountFlags::NOSUID;
    let flags = rustix::mount::MountFlags::from_bits_retain(standing(u64::from(flags.bits())) as u32);
    rustix::mount::mount(
        c"ply",
        c"/sys/root",
        c"overlay",
        flags,
        Some(options.as_c_str().at(Step::Overlay)?),
    )
    .at(Step::Overlay)?;
    let root = copy(&place(c"/sys/root").at(Step::Overlay)?, false).at(Step::Overlay)?;
    rustix::mount::unmount(c"/sys", rustix::mount::UnmountFlags::DETACH).at(Step::Overlay)?;
    Ok(root)
}

/// The overlay made by a parent, in a mount namespace of its own where the kernel wants paths.
pub(crate) fn overlay_by_parent(wanted: &Overlay<'_>) -> Result<OwnedFd, LaunchError> {
    if !wanted.by_path {
        return Ok(overlay(wanted)?);
    }
    let work = || -> Result<OwnedFd, Failure> {
        sys::unshare(libc::CLONE_FS | libc::CLONE_NEWNS).at(Step::Overlay)?;
        let private =
            rustix::mount::MountPropagationFlags::REC | rustix::mount::MountPropagationFlags::PRIVATE;
        rustix::mount::mount_change(c"/", private).at(Step::Overlay)?;
        overlay(wanted)
    };
    let step = |source| LaunchError::Step { step: Step::Overlay, source };
    let made = crate::layers::apart(work).map_err(step)?;
    Ok(made?)
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
