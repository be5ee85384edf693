//! Unpacking an image into a folder: in parallel, beneath the folder and nowhere else.
//!
//! Every name is created by descriptor with `O_EXCL` or its like, and every folder is opened beneath the target
//! with no symlink followed (`openat2`), so that neither an entry of the image nor anybody else in the folder can
//! lead a write out of it (CVE-2018-15664, CVE-2021-32760 and their kind). Devices and sockets are never made.

mod beneath;
mod files;
mod plan;

pub(crate) use beneath::remove_tree;

use crate::error::{ImageError, Result};
use crate::image::{Body, Found, Image, Stat};
use crate::tree::is_overlay_mark;
use beneath::Beneath;
use plan::{Plan, PlanDir};
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How an image is extracted.
#[derive(Debug, Clone, Default)]
pub struct ExtractOptions {
    /// How many threads write; 0 is one a core and one more.
    pub threads: usize,
    /// Whose it will be, and what of its modes and xattrs is kept.
    pub owners: Owners,
    /// The directory in the image that becomes the target folder; empty for the root.
    pub subtree: PathBuf,
    /// The most bytes of file content to write, holes not counted. Where none is given, an image may not unpack to
    /// more than 64 times its size and 16 GiB; what the disk has free is a limit in any case.
    pub max_bytes: Option<u64>,
}

/// Whose the files of an extraction will be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Owners {
    /// The caller's, with only the nine permission bits.
    #[default]
    Caller,
    /// As in the image, with setuid and setgid bits, `security.capability` and `user.*` xattrs. What belongs to an id
    /// that the caller's user namespace doesn't map stays root's, without these bits and capabilities.
    Image,
    /// As in the image, but nothing in it gives rights: no setuid and setgid bits and no xattrs.
    Plain,
    /// This user's and group's, else as [`Owners::Plain`]. An id that is not mapped is an error.
    Given(u32, u32),
}

/// What an extraction made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extracted {
    /// Regular files, each name counted.
    pub files: u64,
    /// Directories without the target folder.
    pub dirs: u64,
    /// Symlinks.
    pub symlinks: u64,
    /// Bytes of content written, holes not counted.
    pub bytes: u64,
    /// Devices and sockets, which were left out.
    pub skipped: Vec<PathBuf>,
}

impl Image {
    /// Extracts into `target`, a folder that exists and has none of the names in it. The target gets the attributes
    /// of the directory that it becomes.
    ///
    /// # Errors
    /// [`ImageError::Damaged`], [`ImageError::Bomb`], [`ImageError::Missing`] and [`ImageError::WrongKind`] for the
    /// subtree, [`ImageError::Io`]. What was extracted until then stays: the folder is the caller's to remove.
    pub fn extract(&self, target: impl AsRef<Path>, options: &ExtractOptions) -> Result<Extracted> {
        let top = self.directory(&options.subtree)?;
        extract(&[self], vec![(0, top)], target.as_ref(), options)
    }
}

/// Extracts the directory `top` of these images, merged.
pub(crate) fn extract(
    images: &[&Image],
    top: Found,
    target: &Path,
    options: &ExtractOptions,
) -> Result<Extracted> {
    let plan = Plan::of(images, top)?;
    let beneath = Beneath::open(target)?;
    check_room(images, &plan, &beneath, options)?;
    let attributes = Attributes::new(images, &beneath, options.owners)?;
    for at in 1..plan.dirs.len() {
        let dir = &plan.dirs[at];
        beneath.with_dir(&plan, dir.parent, |parent| {
            rustix::fs::mkdirat(parent, &dir.name, Mode::RWXU)
                .map_err(|e| beneath.error("create", &plan, dir.parent, &dir.name, e))
        })?;
    }
    let threads = match options.threads {
        // One more than cores: somebody always waits for the disk or for the file system's journal.
        0 => crate::pack::cores() + 1,
        n => n,
    };
    let mut done = Extracted::default();
    for (layer, image) in images.iter().enumerate() {
        done.bytes += files::write_all((layer, image), &plan, &beneath, &attributes, threads)?;
    }
    done.files = (plan.files.len() + plan.links.len()) as u64;
    done.dirs = plan.dirs.len() as u64 - 1;
    done.skipped.clone_from(&plan.skipped);
    for other in &plan.others {
        let kind = attributes.other(&plan, &beneath, other)?;
        done.symlinks += u64::from(kind == crate::EntryKind::Symlink);
    }
    for link in &plan.links {
        let file = &plan.files[link.file as usize];
        let original = beneath.dir(&plan, file.dir)?;
        let parent = beneath.dir(&plan, link.dir)?;
        rustix::fs::linkat(&original, &file.name, &parent, &link.name, AtFlags::empty())
            .map_err(|e| beneath.error("create", &plan, link.dir, &link.name, e))?;
    }
    // From the leaves up: a directory that turns read-only is not needed any more.
    for (at, dir) in plan.dirs.iter().enumerate().rev() {
        attributes.dir(&plan, &beneath, at as u32, dir)?;
    }
    Ok(done)
}

/// What an image may unpack to where nobody says more: this many times its own size…
const RATIO: u64 = 64;
/// …and this much.
const ALLOWANCE: u64 = 16 << 30;

/// Refuses a bomb before the first byte is written.
fn check_room(images: &[&Image], plan: &Plan, beneath: &Beneath, options: &ExtractOptions) -> Result<()> {
    let name = images.first().map(|image| image.path().to_owned()).unwrap_or_default();
    let bomb = |limit| ImageError::Bomb { image: name, bytes: plan.bytes, limit };
    let length = images.iter().fold(0u64, |sum, image| sum.saturating_add(image.length()));
    let most = options.max_bytes.unwrap_or(length.saturating_mul(RATIO).saturating_add(ALLOWANCE));
    if plan.bytes > most {
        return Err(bomb(format!("the limit of {most} bytes")));
    }
    let free = beneath.free_bytes()?;
    if plan.bytes > free {
        return Err(bomb(format!("the {free} bytes that the disk has free")));
    }
    Ok(())
}

/// Gives what was made its attributes.
struct Attributes<'a> {
    images: &'a [&'a Image],
    owners: Owners,
    /// Who new files belong to; none where that can't be told in advance.
    own: Option<(u32, u32)>,
}

impl<'a> Attributes<'a> {
    fn new(images: &'a [&'a Image], beneath: &Beneath, owners: Owners) -> Result<Self> {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        // In a setgid folder new files get the folder's group.
        Ok(Self { images, owners, own: (!beneath.is_setgid()?).then_some(own) })
    }

    /// The mode to set.
    fn mode(&self, stat: &Stat) -> Mode {
        let kept = match self.owners {
            Owners::Caller => 0o777,
            Owners::Image => 0o7777,
            Owners::Plain | Owners::Given(..) => 0o1777,
        };
        Mode::from_raw_mode(u32::from(stat.mode & kept))
    }

    fn owner(&self, stat: &Stat) -> Option<(Uid, Gid)> {
        let (uid, gid) = match self.owners {
            Owners::Caller => return None,
            Owners::Image | Owners::Plain => (stat.uid, stat.gid),
            Owners::Given(uid, gid) => (uid, gid),
        };
        (self.own != Some((uid, gid))).then(|| (Uid::from_raw(uid), Gid::from_raw(gid)))
    }

    /// An owner that the caller's user namespace does not map can't be set, which chown(2) tells by EINVAL: a caller
    /// without a range of ids has only root. The file then stays root's, unless a user was asked for by number. Says
    /// whether the owner was set.
    fn mapped(&self, owned: rustix::io::Result<()>) -> rustix::io::Result<bool> {
        match owned {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::INVAL) if !matches!(self.owners, Owners::Given(..)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Owner first: changing it clears the setuid bit and the capabilities. Times last.
    fn apply(
        &self,
        fd: BorrowedFd<'_>,
        layer: usize,
        stat: &Stat,
        xattr: u32,
    ) -> Result<rustix::io::Result<()>> {
        let with_xattrs = self.owners == Owners::Image;
        let xattrs = if with_xattrs { self.images[layer].xattr_set(xattr)? } else { Vec::new() };
        Ok((|| {
            let owned = match self.owner(stat) {
                Some((uid, gid)) => self.mapped(rustix::fs::fchown(fd, Some(uid), Some(gid)))?,
                None => true,
            };
            // Under another owner than its own, a setuid file would give away that one's rights.
            let mode = if owned { self.mode(stat) } else { self.mode(stat) & Mode::from_raw_mode(0o1777) };
            rustix::fs::fchmod(fd, mode)?;
            for (name, value) in xattrs {
                if owned && name == b"security.capability"
                    || name.starts_with(b"user.") && !is_overlay_mark(&name)
                {
                    let name = CString::new(name).unwrap_or_default();
                    rustix::fs::fsetxattr(fd, name.as_c_str(), &value, XattrFlags::empty())?;
                }
            }
            rustix::fs::futimens(fd, &times(stat))
        })())
    }

    fn dir(&self, plan: &Plan, beneath: &Beneath, at: u32, dir: &PlanDir) -> Result<()> {
        let fd = beneath.dir(plan, at)?;
        self.apply(fd.as_fd(), dir.layer, &dir.stat, dir.xattr)?
            .map_err(|e| beneath.error("set the attributes of", plan, at, OsStr::new(""), e))
    }

    /// Makes a symlink or a fifo.
    fn other(&self, plan: &Plan, beneath: &Beneath, other: &plan::PlanOther) -> Result<crate::EntryKind> {
        let parent = beneath.dir(plan, other.dir)?;
        let stat = &other.inode.stat;
        let made = (|| {
            match &other.inode.body {
                Body::Symlink(target) => rustix::fs::symlinkat(target, &parent, &other.name)?,
                _ => {
                    let kind = rustix::fs::FileType::Fifo;
                    rustix::fs::mknodat(&parent, &other.name, kind, Mode::RUSR | Mode::WUSR, 0)?;
                }
            }
            if let Some((uid, gid)) = self.owner(stat) {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                self.mapped(rustix::fs::chownat(&parent, &other.name, Some(uid), Some(gid), flags))?;
            }
            if stat.kind == crate::EntryKind::Fifo {
                // It was made with O_EXCL semantics a moment ago: it is no symlink.
                rustix::fs::chmodat(&parent, &other.name, self.mode(stat), AtFlags::empty())?;
            }
            rustix::fs::utimensat(&parent, &other.name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)
        })();
        made.map_err(|e| beneath.error("create", plan, other.dir, &other.name, e))?;
        Ok(stat.kind)
    }
}

fn times(stat: &Stat) -> Timestamps {
    let time = Timespec { tv_sec: i64::from(stat.mtime), tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

/// A path of the image for an error or a list.
fn join(dir: &[u8], name: &OsStr) -> PathBuf {
    let mut path = PathBuf::from(OsStr::from_bytes(dir));
    if !name.is_empty() {
        path.push(name);
    }
    path
}
