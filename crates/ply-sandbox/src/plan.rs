//! A spec turned into what the child can use without allocating: C strings, sizes as text, ids checked. And the
//! way back: from a failed step and an index to the sentence with the path in it.

use crate::defences::{Defence, stands};
use crate::inside::{Buffer, attach, beneath, copy, new_file};
use crate::rootfs::{self, Overlay, must};
use crate::sys::{self, NO_DEV, NO_EXEC, NO_SUID, READ_ONLY, Sys};
use crate::wire::{At, Failure, MAX_FDS};
use crate::{Host, Ids, LaunchError, MountOwner, Network, Spec, Step, userns};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most layers.
const MAX_LAYERS: usize = 128;

/// A spec, laid out.
pub(crate) struct Plan {
    pub(crate) hostname: CString,
    pub(crate) user_namespace: bool,
    pub(crate) set_groups: bool,
    pub(crate) network: Network,
    pub(crate) devices: Vec<Device>,
    pub(crate) mounts: Vec<Target>,
    pub(crate) files: Vec<(CString, Vec<u8>, u32)>,
    pub(crate) folders: Vec<(CString, u32, u32, u32)>,
    pub(crate) links: Vec<(CString, CString)>,
    /// The app's user and group inside.
    pub(crate) user: (u32, u32),
    pub(crate) init: bool,
    pub(crate) privileged: bool,
    /// Whether group 5, that of terminals, exists inside.
    pub(crate) tty_group: bool,
    /// Where the caller's arguments are in memory.
    pub(crate) arguments: (usize, usize),
    trees: Option<Vec<CString>>,
    by_path: bool,
    scratch: Option<CString>,
    owner: (u32, u32),
    size: CString,
    inodes: CString,
}

/// A volume or a link.
pub(crate) struct Target {
    pub(crate) path: CString,
    /// The box's own, so that mount points may be made in it.
    pub(crate) ours: bool,
    source: CString,
    read_only: bool,
}

impl Plan {
    pub(crate) fn new(spec: &Spec, host: &Host, scratch: Option<&Path>) -> Result<Self, LaunchError> {
        check(spec)?;
        let rootless = matches!(spec.ids, Ids::Rootless { .. });
        let trees = spec
            .layers
            .iter()
            .map(|layer| match &layer.tree {
                Some(tree) => c_path(tree),
                None => Err(LaunchError::NotExtracted(layer.digest.clone())),
            })
            .collect::<Result<_, _>>();
        let devices = DEVICES
            .iter()
            .map(|(name, number)| Device::usual(name, *number))
            .chain(asked_devices(spec).map(|path| Device::asked(path)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            hostname: c(&spec.hostname)?,
            user_namespace: !matches!(spec.ids, Ids::Host),
            set_groups: !matches!(&spec.ids, Ids::Rootless { sub_gids, .. } if sub_gids.is_empty()),
            network: spec.network,
            devices,
            mounts: spec
                .mounts
                .iter()
                .map(|mount| {
                    Ok(Target {
                        path: c(&mount.target)?,
                        ours: mount.owner == MountOwner::Inside && !mount.read_only,
                        source: c_path(&mount.source)?,
                        read_only: mount.read_only,
                    })
                })
                .collect::<Result<_, LaunchError>>()?,
            files: spec
                .files
                .iter()
                .map(|file| Ok((c(&file.path)?, file.contents.clone(), file.mode & 0o7777)))
                .collect::<Result<_, LaunchError>>()?,
            folders: spec
                .folders
                .iter()
                .map(|folder| Ok((c(&folder.path)?, folder.mode & 0o7777, folder.uid, folder.gid)))
                .collect::<Result<_, LaunchError>>()?,
            links: spec
                .links
                .iter()
                .map(|link| Ok((c(&link.path)?, c(&link.target)?)))
                .collect::<Result<_, LaunchError>>()?,
            user: (spec.process.uid, spec.process.gid),
            init: spec.init,
            privileged: spec.privileged,
            tty_group: has_id(&spec.ids, 5, false),
            arguments: crate::init::arguments(),
            by_path: !host.kernel.overlay_detached,
            scratch: scratch.map(c_path).transpose()?,
            trees: if rootless { Some(trees?) } else { None },
            owner: match spec.ids {
                Ids::Leased { start, .. } => (start, start),
                _ => (0, 0),
            },
            size: c(&sized(spec.scratch_bytes).to_string())?,
            // tmpfs doesn't count its inodes as bytes; a page each keeps a flood of empty files in bounds.
            inodes: c(&sized((spec.scratch_bytes / 4096).max(16_384)).to_string())?,
        })
    }

    /// What the filesystem of the temporary folders may hold.
    pub(crate) fn temporary(&self) -> [(&CStr, &CStr); 3] {
        [(c"mode", c"0700"), (c"size", &self.size), (c"nr_inodes", &self.inodes)]
    }

    /// In the parent, rootful: `/dev` with nodes of its own; nothing where this root may not make nodes.
    pub(crate) fn own_dev(&self) -> Sys<Option<OwnedFd>> {
        if self.trees.is_some() {
            return Ok(None);
        }
        let usual = self.devices.iter().filter_map(|device| Some((device.name.clone(), device.number?)));
        match rootfs::dev_with_nodes(&usual.collect::<Vec<_>>(), self.owner) {
            Err(Errno::PERM) => Ok(None),
            dev => Ok(Some(rootfs::above_standard(dev?)?)),
        }
    }

    fn overlay(&self, inside: bool) -> Overlay<'_> {
        Overlay {
            layers: &[],
            size: &self.size,
            inodes: &self.inodes,
            owner: self.owner,
            inside,
            by_path: self.by_path,
            folder: self.scratch.as_deref(),
        }
    }

    /// The overlay that the parent makes, its layers still missing.
    pub(crate) fn rootful_overlay(&self) -> Option<Overlay<'_>> {
        self.trees.is_none().then(|| self.overlay(false))
    }

    /// The overlay that the child makes.
    pub(crate) fn rootless_overlay(&self) -> Option<Overlay<'_>> {
        self.trees.is_some().then(|| self.overlay(true))
    }

    /// In the child: the overlay over the extracted trees.
    pub(crate) fn open_layers(&self, options: &Overlay<'_>) -> Result<OwnedFd, Failure> {
        let mut open = [const { None }; MAX_LAYERS];
        let mut numbers = [-1 as RawFd; MAX_LAYERS];
        let trees = self.trees.as_deref().unwrap_or_default();
        for (index, tree) in trees.iter().enumerate() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let layer =
                rustix::fs::open(tree.as_c_str(), flags, Mode::empty()).at_item(Step::Layer, index)?;
            numbers[index] = sys::raw(&layer);
            open[index] = Some(layer);
        }
        rootfs::overlay(&Overlay { layers: &numbers[..trees.len()], ..*options })
    }

    /// In the parent, rootful: the volumes and links as detached mounts, id-mapped.
    pub(crate) fn open_mounts(
        &self,
        spec: &Spec,
        map: Option<BorrowedFd<'_>>,
        made: &mut Vec<OwnedFd>,
    ) -> Result<(), LaunchError> {
        for (target, mount) in self.mounts.iter().zip(&spec.mounts) {
            let wrong =
                |errno: Errno| LaunchError::Source { path: mount.source.clone(), source: errno.into() };
            let one;
            let map = match (mount.owner, &spec.ids) {
                (MountOwner::HostUser { uid, gid }, Ids::Leased { start, .. }) => {
                    one = userns::mapped(
                        &format!("{uid} {} 1", start + spec.process.uid),
                        &format!("{gid} {} 1", start + spec.process.gid),
                    )?;
                    Some(one.as_fd())
                }
                _ => map,
            };
            let source = target.open().map_err(wrong)?;
            // A folder of the host's is shown with what is mounted in it; a volume is one filesystem.
            let recursive = mount.owner != MountOwner::Inside;
            let copy = copy(&source, recursive).map_err(wrong)?;
            sys::mount_setattr(copy.as_fd(), target.attributes(), map, recursive).map_err(wrong)?;
            made.push(copy);
        }
        Ok(())
    }
}

impl Target {
    fn attributes(&self) -> u64 {
        let read_only = self.read_only && stands(Defence::ReadOnly);
        NO_SUID | NO_DEV | if read_only { READ_ONLY } else { 0 }
    }

    fn open(&self) -> Sys<OwnedFd> {
        rustix::fs::open(self.source.as_c_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    }

    /// In the child, rootless: a copy of what is there, with what is mounted in it (the kernel shows no folder
    /// without the mounts that hide parts of it).
    pub(crate) fn open_inside(&self) -> Sys<OwnedFd> {
        let copy = copy(&self.open()?, true)?;
        sys::mount_setattr(copy.as_fd(), self.attributes(), None, true)?;
        Ok(copy)
    }
}

/// The devices of every box, with their numbers.
const DEVICES: &[(&str, (u32, u32))] = &[
    ("null", (1, 3)),
    ("zero", (1, 5)),
    ("full", (1, 7)),
    ("random", (1, 8)),
    ("urandom", (1, 9)),
    ("tty", (5, 0)),
];

/// What a spec asks for beyond the devices of every box.
fn asked_devices(spec: &Spec) -> impl Iterator<Item = &PathBuf> {
    let usual = |path: &Path| DEVICES.iter().any(|(name, _)| path == Path::new("/dev").join(name));
    spec.devices.iter().filter(move |path| !usual(path))
}

/// A device of the host's, bound: nodes can't be made in a user namespace.
pub(crate) struct Device {
    source: CString,
    /// Below `/dev`.
    name: CString,
    /// Of those that every box has.
    pub(crate) number: Option<(u32, u32)>,
}

impl Device {
    fn usual(name: &str, number: (u32, u32)) -> Result<Self, LaunchError> {
        Ok(Self { source: c(&format!("/dev/{name}"))?, name: c(name)?, number: Some(number) })
    }

    fn asked(path: &Path) -> Result<Self, LaunchError> {
        let name = path.strip_prefix("/dev").ok().and_then(Path::to_str);
        match name {
            Some(name) if plain(name) => Ok(Self { source: c_path(path)?, name: c(name)?, number: None }),
            _ => Err(LaunchError::Invalid(format!("a device must be below /dev: {}", path.display()))),
        }
    }

    /// In the child, while the host's root is there. What is found must be the device that is meant: a place of
    /// a device's name may hold something else (CVE-2025-31133).
    pub(crate) fn open(&self) -> Sys<OwnedFd> {
        let nofollow = if self.number.is_some() { OFlags::NOFOLLOW } else { OFlags::empty() };
        let node = rustix::fs::open(
            self.source.as_c_str(),
            OFlags::PATH | OFlags::CLOEXEC | nofollow,
            Mode::empty(),
        )?;
        let is = rustix::fs::fstat(&node)?;
        let kind = FileType::from_raw_mode(is.st_mode);
        must(matches!(kind, FileType::CharacterDevice | FileType::BlockDevice), Errno::NODEV)?;
        if let Some((major, minor)) = self.number {
            let found = (rustix::fs::major(is.st_rdev), rustix::fs::minor(is.st_rdev));
            must(kind == FileType::CharacterDevice && found == (major, minor), Errno::NODEV)?;
        }
        let mount = copy(&node, false)?;
        sys::mount_setattr(mount.as_fd(), NO_SUID | NO_EXEC, None, false)?;
        Ok(mount)
    }

    /// In the child: at its name below the box's own `/dev`.
    pub(crate) fn place(&self, dev: &OwnedFd, mount: &OwnedFd) -> Sys<()> {
        let bytes = self.name.to_bytes();
        let mut prefix = Buffer::new();
        if let Some(slash) = bytes.iter().rposition(|byte| *byte == b'/') {
            for part in bytes[..slash].split(|byte| *byte == b'/') {
                prefix.push(part)?;
                match rustix::fs::mkdirat(dev, prefix.as_c_str()?, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                prefix.push(b"/")?;
            }
        }
        drop(new_file(dev, &self.name, 0o666)?);
        attach(mount, &beneath(dev, &self.name, OFlags::PATH)?)
    }
}

/// A size as tmpfs takes it, to which 0 is none.
fn sized(size: u64) -> u64 {
    if stands(Defence::Sizes) { size } else { 0 }
}

/// A relative path with no tricks.
fn plain(path: &str) -> bool {
    !path.is_empty() && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

fn c(text: &str) -> Result<CString, LaunchError> {
    CString::new(text).map_err(|_| LaunchError::Invalid(format!("a null byte is in {text:?}")))
}

fn c_path(path: &Path) -> Result<CString, LaunchError> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| LaunchError::Invalid(format!("a null byte is in {path:?}")))
}

/// What a spec must hold for the steps below to mean what they say.
fn check(spec: &Spec) -> Result<(), LaunchError> {
    let invalid = |what: String| Err(LaunchError::Invalid(what));
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if spec.id.is_empty() || spec.id.len() > 200 || !spec.id.chars().all(fine) || spec.id.starts_with('.') {
        return invalid(format!("not a name for a box: {:?}", spec.id));
    }
    if spec.hostname.len() > 64 {
        return invalid(format!("the host name is longer than 64 bytes: {}", spec.hostname));
    }
    if spec.layers.is_empty() || spec.layers.len() > MAX_LAYERS {
        return invalid(format!("a box has 1 to {MAX_LAYERS} layers, not {}", spec.layers.len()));
    }
    if let Some(layer) = spec.layers.iter().find(|layer| !plain(&layer.digest) || layer.digest.contains('/'))
    {
        return invalid(format!("not a digest: {:?}", layer.digest));
    }
    if spec.mounts.len() >= MAX_FDS {
        return invalid(format!("more than {} volumes and links", MAX_FDS - 1));
    }
    let paths = spec.mounts.iter().map(|mount| &mount.target);
    let paths = paths.chain(spec.files.iter().map(|file| &file.path));
    let paths = paths.chain(spec.folders.iter().map(|folder| &folder.path));
    for path in paths.chain(spec.links.iter().map(|link| &link.path)).chain([&spec.process.workdir]) {
        if !path.starts_with('/') || path.len() > 4000 {
            return invalid(format!("not an absolute path inside: {path:?}"));
        }
    }
    for mount in &spec.mounts {
        if !mount.source.is_absolute() {
            return invalid(format!("not an absolute path on the host: {}", mount.source.display()));
        }
        let first = mount.target.split('/').find(|part| !part.is_empty() && *part != ".");
        match first {
            None => return invalid("nothing can be mounted over the root".into()),
            Some("proc" | "sys" | "dev") => {
                return Err(LaunchError::Target {
                    path: mount.target.clone(),
                    reason: "/proc, /sys and /dev are the box's own".into(),
                });
            }
            Some(_) => {}
        }
    }
    let process = &spec.process;
    let users = [(process.uid, true)].into_iter();
    let groups = process.groups.iter().chain([&process.gid]).map(|gid| (*gid, false));
    for (id, is_user) in users.chain(groups) {
        if !has_id(&spec.ids, id, is_user) {
            return Err(LaunchError::Unmapped {
                what: if is_user { "user" } else { "group" },
                id,
                reason: match &spec.ids {
                    Ids::Leased { count, .. } => format!("the box has {count} ids"),
                    Ids::Rootless { sub_uids, .. } if sub_uids.is_empty() => {
                        "this user has no delegated range, so only root exists inside".into()
                    }
                    Ids::Rootless { sub_uids, sub_gids, .. } => {
                        let ranges = if is_user { sub_uids } else { sub_gids };
                        let count = ranges.iter().map(|(_, count)| u64::from(*count)).sum::<u64>();
                        format!("the box has {} ids", count + 1)
                    }
                    Ids::Host => "it isn't one".into(),
                },
            });
        }
    }
    Ok(())
}

/// Whether an id of the inside exists.
fn has_id(ids: &Ids, id: u32, is_user: bool) -> bool {
    match ids {
        Ids::Leased { count, .. } => id < *count,
        Ids::Rootless { sub_uids, sub_gids, .. } => {
            let ranges = if is_user { sub_uids } else { sub_gids };
            u64::from(id) <= ranges.iter().map(|(_, count)| u64::from(*count)).sum()
        }
        Ids::Host => true,
    }
}

/// The sentence of a failed step of this spec.
pub(crate) fn explain(failure: Failure, spec: &Spec) -> LaunchError {
    let index = failure.index as usize;
    let source = std::io::Error::from_raw_os_error(failure.errno);
    let errno = Errno::from_raw_os_error(failure.errno);
    let target = |path: Option<&String>| LaunchError::Target {
        path: path.cloned().unwrap_or_default(),
        reason: match errno {
            Errno::NOTDIR => "a part of it isn't a folder".into(),
            Errno::ISDIR => "a folder is there".into(),
            Errno::EXIST | Errno::NOENT => "a link in the image leads nowhere".into(),
            Errno::LOOP => "its links go round in a circle".into(),
            Errno::BUSY => "it is the root".into(),
            Errno::ROFS => "it would have to be made in a folder of the host".into(),
            Errno::ACCESS | Errno::PERM => "it may not be entered".into(),
            _ => crate::error::reason(&source),
        },
    };
    match failure.step {
        Step::File => target(spec.files.get(index).map(|file| &file.path)),
        Step::Folder => target(spec.folders.get(index).map(|folder| &folder.path)),
        Step::Link => target(spec.links.get(index).map(|link| &link.path)),
        Step::Target => target(spec.mounts.get(index).map(|mount| &mount.target)),
        Step::Source => LaunchError::Source {
            path: spec.mounts.get(index).map(|mount| mount.source.clone()).unwrap_or_default(),
            source,
        },
        Step::Layer => LaunchError::Layer {
            digest: spec.layers.get(index).map(|layer| layer.digest.clone()).unwrap_or_default(),
            source,
        },
        Step::Device => LaunchError::Source {
            path: match index.checked_sub(DEVICES.len()) {
                Some(asked) => asked_devices(spec).nth(asked).cloned().unwrap_or_default(),
                None => Path::new("/dev").join(DEVICES[index].0),
            },
            source,
        },
        _ => explain_start(failure, &spec.process.argv, &spec.process.workdir),
    }
}

/// The sentence of a failed step that launch and exec share.
pub(crate) fn explain_start(failure: Failure, argv: &[String], workdir: &str) -> LaunchError {
    let source = std::io::Error::from_raw_os_error(failure.errno);
    let errno = Errno::from_raw_os_error(failure.errno);
    let program = argv.first().cloned().unwrap_or_default();
    match failure.step {
        Step::Workdir => LaunchError::Workdir { path: workdir.to_owned(), source },
        Step::Program if matches!(errno, Errno::NOENT | Errno::NOTDIR) => LaunchError::NotFound(program),
        Step::Program | Step::Exec => LaunchError::NotExecutable {
            program,
            reason: match errno {
                Errno::NOENT => "its interpreter or loader isn't in the image".into(),
                Errno::NOEXEC => "it isn't a program for this machine, and no script that names one".into(),
                Errno::ACCESS => "it isn't an executable file for this user".into(),
                Errno::LOOP => "its links lead out of the image".into(),
                Errno::TOOBIG => "its arguments and environment are too long".into(),
                _ => crate::error::reason(&source),
            },
        },
        _ => failure.into(),
    }
}
