//! Folders beneath one target, by descriptor.

use super::join;
use super::plan::Plan;
use crate::error::{ImageError, Result};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How many open folders a thread keeps.
const KEPT: usize = 16;
/// The longest path that is given to the kernel in one piece, below its limit of 4096.
const PIECE: usize = 4000;

/// The target folder.
pub(super) struct Beneath {
    target: PathBuf,
    fd: OwnedFd,
}

thread_local! {
    /// Folders that this thread has open, by the target's descriptor and the number in the plan.
    static OPEN: RefCell<VecDeque<(usize, u32, Rc<OwnedFd>)>> = const { RefCell::new(VecDeque::new()) };
}

impl Beneath {
    pub(super) fn open(target: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(target, flags, Mode::empty()).map_err(ImageError::os("open", target))?;
        Ok(Self { target: target.to_owned(), fd })
    }

    /// The folder with this number in the plan.
    pub(super) fn dir(&self, plan: &Plan, at: u32) -> Result<Rc<OwnedFd>> {
        // The address tells extractions apart: this value lives as long as its own.
        let me = std::ptr::from_ref(self) as usize;
        let kept = OPEN.with_borrow(|open| {
            open.iter().find(|(whose, n, _)| (*whose, *n) == (me, at)).map(|(_, _, fd)| Rc::clone(fd))
        });
        if let Some(fd) = kept {
            return Ok(fd);
        }
        let path = plan.path(at);
        let fd = self
            .open_dir(&path)
            .map_err(|e| ImageError::os("open", &self.target.join(OsStr::from_bytes(&path)))(e))?;
        let fd = Rc::new(fd);
        OPEN.with_borrow_mut(|open| {
            if open.len() >= KEPT {
                open.pop_front();
            }
            open.push_back((me, at, Rc::clone(&fd)));
        });
        Ok(fd)
    }

    /// The same for one use.
    pub(super) fn with_dir<T>(
        &self,
        plan: &Plan,
        at: u32,
        with: impl FnOnce(BorrowedFd<'_>) -> Result<T>,
    ) -> Result<T> {
        with(self.dir(plan, at)?.as_fd())
    }

    fn open_dir(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let open = |from: BorrowedFd<'_>, piece: &[u8]| {
            rustix::fs::openat2(from, OsStr::from_bytes(piece), flags, Mode::empty(), resolve)
        };
        let mut rest = path;
        let mut here: Option<OwnedFd> = None;
        while rest.len() > PIECE {
            let cut = rest[..PIECE].iter().rposition(|b| *b == b'/').unwrap_or(PIECE);
            here = Some(open(here.as_ref().unwrap_or(&self.fd).as_fd(), &rest[..cut])?);
            rest = &rest[cut + 1..];
        }
        let piece = if rest.is_empty() { &b"."[..] } else { rest };
        open(here.as_ref().unwrap_or(&self.fd).as_fd(), piece)
    }

    pub(super) fn error(
        &self,
        action: &'static str,
        plan: &Plan,
        dir: u32,
        name: &OsStr,
        errno: rustix::io::Errno,
    ) -> ImageError {
        ImageError::os(action, &self.target.join(join(&plan.path(dir), name)))(errno)
    }

    /// What an unprivileged user can still write to this disk, in bytes.
    pub(super) fn free_bytes(&self) -> Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.fd).map_err(ImageError::os("read", &self.target))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    pub(super) fn is_setgid(&self) -> Result<bool> {
        let stat = rustix::fs::fstat(&self.fd).map_err(ImageError::os("read", &self.target))?;
        Ok(stat.st_mode & 0o2000 != 0)
    }
}

impl Drop for Beneath {
    fn drop(&mut self) {
        let me = std::ptr::from_ref(self) as usize;
        OPEN.with_borrow_mut(|open| open.retain(|(whose, _, _)| *whose != me));
    }
}

/// Removes a file or a folder with everything in it, also where folders in it are not writable. What others remove
/// meanwhile is no error.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let gone = |outcome: std::io::Result<()>| match outcome {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let Ok(meta) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !meta.is_dir() {
        return gone(std::fs::remove_file(path)).map_err(ImageError::io("remove", path));
    }
    for _ in 0..3 {
        match std::fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !path.exists() => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => open_up(path),
            Err(_) => {}
        }
    }
    gone(std::fs::remove_dir_all(path)).map_err(ImageError::io("remove", path))
}

/// Lets the owner into every folder.
fn open_up(dir: &Path) {
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        if let Ok(file) = File::open(&dir).or_else(|_| {
            std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o700)).and_then(|()| File::open(&dir))
        }) && file.metadata().is_ok_and(|m| m.is_dir() && m.mode() & 0o700 != 0o700)
        {
            let _ = file.set_permissions(PermissionsExt::from_mode(0o700));
        }
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        todo.extend(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
}
