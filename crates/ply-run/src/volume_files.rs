//! What is done to the files of a volume: filled from an image when it is new, given to its user when that changes.
//!
//! Both the image and what stands in a volume are somebody else's, and this runs as root: everything goes by
//! descriptor beneath the volume's folder and follows no link, what is written is bounded as an extraction is, and
//! no set-id bit comes out of an image into a folder of the host (CVE-2021-41091). What fills it is read from the layers,
//! never by a path of the host's (CVE-2022-23648).

use ply_image::{ExtractOptions, LayerStack, Owners};
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Copies what the image has at `inside` to the new folder `to`; holes stay holes, devices and sockets are left out,
/// and so are set-id bits and xattrs. With `owner`, all of it is that user's and group's.
pub(crate) fn seed(
    stack: &LayerStack,
    inside: &str,
    to: &Path,
    owner: Option<(u32, u32)>,
) -> Result<(), String> {
    let io = |e: io::Error| e.to_string();
    std::fs::DirBuilder::new().mode(0o700).create(to).map_err(io)?;
    // One thread: this may be a child that was forked.
    let owners = owner.map_or(Owners::Plain, |(uid, gid)| Owners::Given(uid, gid));
    let options = ExtractOptions { threads: 1, owners, ..ExtractOptions::default() };
    if stack.extract(inside, to, &options).map_err(|e| e.to_string())?.is_none() {
        let (uid, gid) = owner.unwrap_or((0, 0));
        std::os::unix::fs::lchown(to, Some(uid), Some(gid)).map_err(io)?;
        std::fs::set_permissions(to, PermissionsExt::from_mode(0o755)).map_err(io)?;
    }
    Ok(())
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder on the way down: which it is, and what is still to be done in it.
struct Level {
    id: (u64, u64),
    names: Vec<CString>,
}

/// Gives a folder and all in it to a user. Whoever else is at work in there can only make it fail: one name at a
/// time is opened beneath a folder that is open, and the way back up must lead to where it came from. However deep
/// it is, two descriptors are open.
pub(crate) fn give(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let mut here = rustix::fs::open(path, FOLDER, Mode::empty())?;
    let mut levels = vec![level(&here)?];
    while let Some(now) = levels.last_mut() {
        if let Some(name) = now.names.pop() {
            match give_one(&here, &name, uid, gid) {
                Ok(None) => {}
                Ok(Some(below)) => {
                    here = below;
                    levels.push(level(&here)?);
                }
                // What goes meanwhile needs no owner any more.
                Err(rustix::io::Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
            continue;
        }
        // Last, so that an interrupted change is seen by the folder's own owner and done again.
        rustix::fs::fchown(&here, Some(uid), Some(gid))?;
        levels.pop();
        if let Some(above) = levels.last() {
            here = rustix::fs::openat(&here, c"..", FOLDER, Mode::empty())?;
            if id(&rustix::fs::fstat(&here)?) != above.id {
                return Err(io::Error::other("somebody moves folders in it at the same time"));
            }
        }
    }
    Ok(())
}

/// Gives anything but a folder to the user; a folder is opened.
fn give_one(at: &OwnedFd, name: &CStr, uid: Uid, gid: Gid) -> rustix::io::Result<Option<OwnedFd>> {
    let stat = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        match rustix::fs::openat(at, name, FOLDER, Mode::empty()) {
            // It was one a moment ago.
            Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {}
            opened => return opened.map(Some),
        }
    }
    rustix::fs::chownat(at, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(None)
}

fn level(folder: &OwnedFd) -> io::Result<Level> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if entry.file_name() != c"." && entry.file_name() != c".." {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(Level { id: id(&rustix::fs::fstat(folder)?), names })
}

fn id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
#[path = "volume_files_tests.rs"]
mod tests;
