//! Inside the new root: finding places and putting things there. An image may be hostile, and a shared volume
//! may be changed while we look, so every place is opened beneath the root once and used by descriptor
//! (CVE-2019-18837, CVE-2019-19921, CVE-2021-30465, CVE-2023-27561, CVE-2025-24965, CVE-2025-31133 and their kind each had a
//! path that was looked up twice, or a link that was followed out). Nothing here allocates.

use crate::defences::{Defence, stands};
use crate::rootfs::must;
use crate::sys::Sys;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The root of a box, and the mounts on which places may be made: its scratch, its tmpfs, its own volumes;
/// never a link, whose folders are somebody's on the host.
pub(crate) struct Root {
    pub(crate) fd: OwnedFd,
    ours: [u64; 64],
    count: usize,
}

impl Root {
    pub(crate) fn new(fd: OwnedFd) -> Sys<Self> {
        let mut root = Self { ours: [0; 64], count: 0, fd };
        let id = mount_id(&root.fd)?;
        root.remember(id);
        Ok(root)
    }

    fn remember(&mut self, id: u64) {
        if let Some(slot) = self.ours.get_mut(self.count) {
            *slot = id;
            self.count += 1;
        }
    }

    /// From now on, places may be made on this mount too.
    pub(crate) fn own(&mut self, mount: &impl AsFd) -> Sys<()> {
        let id = mount_id(mount)?;
        self.remember(id);
        Ok(())
    }

    /// Whether a place may be made here. (CVE-2024-1753, CVE-2024-42472 and CVE-2024-45310 made files and folders on the host,
    /// through a link.)
    fn is_ours(&self, folder: &OwnedFd) -> Sys<bool> {
        Ok(self.ours[..self.count].contains(&mount_id(folder)?) || !stands(Defence::OwnMounts))
    }

    /// Opens what is at an absolute path inside; links are followed, and lead nowhere but inside.
    pub(crate) fn find(&self, path: &CStr, flags: OFlags) -> Sys<OwnedFd> {
        for _ in 0..64 {
            let found = rustix::fs::openat2(
                &self.fd,
                path,
                flags,
                Mode::empty(),
                ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
            );
            match found {
                // Something was renamed meanwhile; the kernel asks to look again.
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens a folder at an absolute path inside and makes what is missing of it, with `mode`, on our own
    /// mounts only.
    pub(crate) fn folder(&self, path: &CStr, mode: u32) -> Sys<OwnedFd> {
        match self.find(path, FOLDER) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        let mut at = self.find(c"/", FOLDER)?;
        let mut prefix = Buffer::new();
        for part in path.to_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            prefix.push(b"/")?;
            prefix.push(part)?;
            at = match self.find(prefix.as_c_str()?, FOLDER) {
                Err(Errno::NOENT) => {
                    must(part != b"..", Errno::NOENT)?;
                    let mut name = Buffer::new();
                    name.push(part)?;
                    must(self.is_ours(&at)?, Errno::ROFS)?;
                    // A link that leads nowhere is there already, and this says so.
                    rustix::fs::mkdirat(&at, name.as_c_str()?, Mode::from_raw_mode(mode))?;
                    beneath(&at, name.as_c_str()?, FOLDER)?
                }
                other => other?,
            };
        }
        Ok(at)
    }

    /// The folder and the last part of an absolute path inside.
    fn split<'a>(&self, path: &'a CStr, part: &'a mut Buffer) -> Sys<(OwnedFd, &'a CStr)> {
        let bytes = path.to_bytes();
        let slash = bytes.iter().rposition(|byte| *byte == b'/').ok_or(Errno::INVAL)?;
        let name = &bytes[slash + 1..];
        must(!name.is_empty() && name != b"." && name != b"..", Errno::ISDIR)?;
        let mut above = Buffer::new();
        above.push(&bytes[..slash])?;
        above.push(b"/")?;
        let folder = self.folder(above.as_c_str()?, 0o755)?;
        part.push(name)?;
        Ok((folder, part.as_c_str()?))
    }

    /// A place on which a folder or a file can be mounted, made where it is missing.
    pub(crate) fn mount_point(&self, path: &CStr, is_folder: bool) -> Sys<OwnedFd> {
        let place = if is_folder {
            self.folder(path, 0o755)?
        } else {
            match self.find(path, PLACE) {
                Err(Errno::NOENT) => {
                    let mut part = Buffer::new();
                    let (folder, name) = self.split(path, &mut part)?;
                    must(self.is_ours(&folder)?, Errno::ROFS)?;
                    new_file(&folder, name, 0o644)?;
                    beneath(&folder, name, PLACE)?
                }
                other => other?,
            }
        };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
        must(is_folder || kind != FileType::Directory, Errno::ISDIR)?;
        // The root itself is no place: all that was resolved beneath it would be hidden.
        let (here, root) = (rustix::fs::fstat(&place)?, rustix::fs::fstat(&self.fd)?);
        must((here.st_dev, here.st_ino) != (root.st_dev, root.st_ino), Errno::BUSY)?;
        Ok(place)
    }

    /// Writes a file in scratch, in place of whatever the image has there; a link there isn't followed.
    pub(crate) fn write(&self, path: &CStr, contents: &[u8], mode: u32) -> Sys<()> {
        let mut part = Buffer::new();
        let (folder, name) = self.cleared(path, &mut part)?;
        let file = new_file(&folder, name, mode)?;
        let mut rest = contents;
        while !rest.is_empty() {
            match rustix::io::write(&file, rest) {
                Err(Errno::INTR) => {}
                written => rest = &rest[written?..],
            }
        }
        Ok(())
    }

    /// Makes a link in scratch, in place of whatever the image has there.
    pub(crate) fn link(&self, path: &CStr, target: &CStr) -> Sys<()> {
        let mut part = Buffer::new();
        let (folder, name) = self.cleared(path, &mut part)?;
        rustix::fs::symlinkat(target, &folder, name)
    }

    fn cleared<'a>(&self, path: &'a CStr, part: &'a mut Buffer) -> Sys<(OwnedFd, &'a CStr)> {
        let (folder, name) = self.split(path, part)?;
        must(self.is_ours(&folder)?, Errno::ROFS)?;
        if !stands(Defence::NewFiles) {
            return Ok((folder, name));
        }
        match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok((folder, name)),
            Err(errno) => Err(errno),
        }
    }
}

/// Opens a name in a folder, where no link is followed and nothing is crossed.
pub(crate) fn beneath(folder: &impl AsFd, name: &CStr, flags: OFlags) -> Sys<OwnedFd> {
    rustix::fs::openat2(
        folder,
        name,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

/// Makes an empty file.
pub(crate) fn new_file(folder: &impl AsFd, name: &CStr, mode: u32) -> Sys<OwnedFd> {
    let mut flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    if stands(Defence::NewFiles) {
        flags |= OFlags::EXCL | OFlags::NOFOLLOW;
    }
    rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(mode))
}

/// Which mount a descriptor is on.
fn mount_id(fd: &impl AsFd) -> Sys<u64> {
    Ok(rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id)
}

/// Puts a detached mount on a place.
pub(crate) fn attach(mount: &impl AsFd, place: &impl AsFd) -> Sys<()> {
    move_mount(
        mount,
        c"",
        place,
        c"",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )
}

/// A detached copy of what is mounted at an open place (with `recursive` also of what is mounted below it).
pub(crate) fn copy(place: &impl AsFd, recursive: bool) -> Sys<OwnedFd> {
    let mut flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(place, c"", flags)
}

/// A path on the stack.
pub(crate) struct Buffer {
    bytes: [u8; 4097],
    length: usize,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; 4097], length: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Sys<()> {
        let end = self.length + bytes.len();
        must(end < self.bytes.len(), Errno::NAMETOOLONG)?;
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
        Ok(())
    }

    pub(crate) fn as_c_str(&self) -> Sys<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).map_err(|_| Errno::NAMETOOLONG)
    }
}
