//! One mount a layer for the whole host. A fresh squashfs is cold and its teardown costs more than the whole
//! launch, so the mounts live in one mount namespace that a file under the run folder pins; launches clone from
//! it, and all boxes of an image share one copy of its pages. The host's mount table shows one line.
//!
//! After a reboot the pin is an ordinary file again and is made anew. Two processes may do all of this at the
//! same moment: whoever holds the lock file makes what is missing, the other finds it made.

use crate::spec::Layer;
use crate::sys::{self, NO_DEV, NO_SUID, READ_ONLY};
use crate::{LaunchError, Step};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
    open_tree, unmount,
};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// What a namespace file's filesystem says it is (statfs(2)).
const NSFS_MAGIC: i64 = 0x6e73_6673;

/// A detached, read-only clone of each layer's mount, the topmost first, id-mapped with `map` if there is one.
/// Where squashfs can't be id-mapped (`images` is false) the extracted trees are cloned.
pub(crate) fn clones(
    run_dir: &Path,
    layers: &[Layer],
    images: bool,
    map: Option<BorrowedFd<'_>>,
) -> Result<Vec<OwnedFd>, LaunchError> {
    let clones = if images { image_clones(run_dir, layers)? } else { tree_clones(layers)? };
    for (clone, layer) in clones.iter().zip(layers) {
        sys::mount_setattr(clone.as_fd(), READ_ONLY | NO_SUID | NO_DEV, map, false)
            .map_err(|errno| LaunchError::Layer { digest: layer.digest.clone(), source: errno.into() })?;
    }
    Ok(clones)
}

fn tree_clones(layers: &[Layer]) -> Result<Vec<OwnedFd>, LaunchError> {
    layers
        .iter()
        .map(|layer| {
            let Some(tree) = &layer.tree else { return Err(LaunchError::NotExtracted(layer.digest.clone())) };
            open_tree(
                rustix::fs::CWD,
                tree,
                OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
            )
            .map_err(|errno| LaunchError::Layer { digest: layer.digest.clone(), source: errno.into() })
        })
        .collect()
}

fn image_clones(run_dir: &Path, layers: &[Layer]) -> Result<Vec<OwnedFd>, LaunchError> {
    let pin = Pin::open(run_dir);
    if invalid(&pin) {
        // No namespace that may be bound here could be made: the layers are mounted for this box alone.
        let mount = |layer: &Layer| {
            mount_image(&layer.image)
                .map_err(|source| LaunchError::Layer { digest: layer.digest.clone(), source })
        };
        return layers.iter().map(mount).collect();
    }
    let pin = pin.map_err(pin_error)?;
    let places = layers.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let missing: Vec<(&Layer, &String)>;
    {
        let found = pin.inside(|| places.iter().map(|place| clone_mounted(place)).collect::<Vec<_>>());
        let found = found.map_err(pin_error)?;
        let all = layers.iter().zip(&places).zip(&found);
        missing = all.filter(|(_, clone)| clone.is_none()).map(|(layer, _)| layer).collect();
        if missing.is_empty() {
            return Ok(found.into_iter().flatten().collect());
        }
    }
    // Slow path, once a layer and boot: under the lock, so that nobody mounts the same image beside us.
    let _lock = lock(run_dir).map_err(pin_error)?;
    // Mounted out here, where the devices have names; attached in there.
    let mounts: Vec<(&str, OwnedFd)> = missing
        .into_iter()
        .map(|(layer, place)| match mount_image(&layer.image) {
            Ok(mount) => Ok((place.as_str(), mount)),
            Err(source) => Err(LaunchError::Layer { digest: layer.digest.clone(), source }),
        })
        .collect::<Result<_, _>>()?;
    pin.inside(|| {
        let mut fresh = mounts.into_iter();
        layers
            .iter()
            .zip(&places)
            .map(|(layer, place)| {
                if let Some(clone) = clone_mounted(place) {
                    return Ok(clone);
                }
                let mount = fresh.by_ref().find(|(at, _)| *at == place);
                mount
                    .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
                    .and_then(|(place, mount)| attach(place, &mount))
                    .and_then(|()| clone_mounted(place).ok_or_else(|| io::ErrorKind::NotFound.into()))
                    .map_err(|source| LaunchError::Layer { digest: layer.digest.clone(), source })
            })
            .collect()
    })
    .map_err(pin_error)?
}

/// Where a layer's mount stands in the pinned namespace: its digest, and the file that is mounted. An image that was
/// damaged and fetched again is another file, and the mount of the old one must not serve.
fn place(layer: &Layer) -> Result<String, LaunchError> {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(&layer.image)
        .map_err(|source| LaunchError::Layer { digest: layer.digest.clone(), source })?;
    Ok(format!("{}.{:x}-{:x}", layer.digest, meta.dev(), meta.ino()))
}

/// Whether the kernel's answer was EINVAL.
fn invalid<T>(answer: &io::Result<T>) -> bool {
    matches!(answer, Err(error) if error.raw_os_error() == Some(libc::EINVAL))
}

fn pin_error(source: io::Error) -> LaunchError {
    LaunchError::Step { step: Step::Pin, source }
}

/// Inside the pinned namespace: a clone of a layer's mount, if it is mounted.
fn clone_mounted(place: &str) -> Option<OwnedFd> {
    let path = format!("/{place}");
    let stat = rustix::fs::statx(
        rustix::fs::CWD,
        &path,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        rustix::fs::StatxFlags::BASIC_STATS,
    )
    .ok()?;
    if !stat.stx_attributes.contains(rustix::fs::StatxAttributes::MOUNT_ROOT) {
        return None;
    }
    open_tree(rustix::fs::CWD, &path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC).ok()
}

/// A detached, read-only mount of an image.
fn mount_image(image: &Path) -> io::Result<OwnedFd> {
    let (device, name) = loop_device(&File::open(image)?)?;
    let context = fsopen("squashfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", name.as_str())?;
    fsconfig_set_flag(&context, "ro")?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    // From here the mount alone holds the device, which clears itself when the mount goes.
    drop(device);
    Ok(mount)
}

/// Inside the pinned namespace: gives a mount its place.
fn attach(place: &str, mount: &OwnedFd) -> io::Result<()> {
    let path = format!("/{place}");
    match fs::create_dir(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    move_mount(mount, "", rustix::fs::CWD, &path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_config` of linux/loop.h, of which only three numbers aren't 0.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    /// `struct loop_info64`, 232 bytes; `lo_flags` stands at byte 52.
    info: [u8; 232],
    reserved: [u64; 8],
}

/// A free loop device over the image, read-only, that clears itself on its last close.
fn loop_device(image: &File) -> io::Result<(File, String)> {
    let mut config =
        LoopConfig { fd: image.as_raw_fd() as u32, block_size: 0, info: [0; 232], reserved: [0; 8] };
    config.info[52..56].copy_from_slice(&(LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR).to_ne_bytes());
    let control = File::options().read(true).write(true).open("/dev/loop-control")?;
    for _ in 0..256 {
        // SAFETY: this request takes and gives a number.
        let number = sys::check(i64::from(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) }))
            .map_err(no_loop_device)?;
        let name = format!("/dev/loop{number}");
        let device = match File::open(&name) {
            // udev may be slower than we are.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::thread::sleep(std::time::Duration::from_millis(2));
                continue;
            }
            other => other?,
        };
        // SAFETY: the struct has the kernel's layout and outlives the call.
        match sys::check(i64::from(unsafe {
            libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config)
        })) {
            // Somebody else took it between the two calls.
            Err(Errno::BUSY) => {}
            Err(errno) => return Err(errno.into()),
            Ok(_) => return Ok((device, name)),
        }
    }
    Err(no_loop_device(Errno::BUSY))
}

/// Why there is no free loop device, in words: the kernel makes one whenever it is asked, up to its own limit.
fn no_loop_device(errno: Errno) -> io::Error {
    match errno {
        Errno::NOSPC | Errno::EXIST | Errno::BUSY | Errno::NODEV => {
            io::Error::other("every loop device of this host is in use; losetup lists them")
        }
        other => other.into(),
    }
}

/// The pinned namespace, open.
struct Pin(File);

impl Pin {
    /// Opens it, and makes it where it isn't.
    fn open(run_dir: &Path) -> io::Result<Self> {
        if let Some(pin) = Self::existing(run_dir)? {
            return Ok(pin);
        }
        fs::create_dir_all(run_dir)?;
        let _lock = lock(run_dir)?;
        if let Some(pin) = Self::existing(run_dir)? {
            return Ok(pin);
        }
        let path = run_dir.join("layers");
        File::options().create(true).append(true).open(&path)?;
        let mut made = Self::make(&path);
        if invalid(&made) {
            // Nor can it be bound below a mount that is shared with other namespaces, as systemd makes all mounts
            // (mount_namespaces(7)): the file gets a private mount of its own, itself, to be bound on.
            rustix::mount::mount_bind(&path, &path)?;
            made = rustix::mount::mount_change(&path, MountPropagationFlags::PRIVATE)
                .map_err(io::Error::from)
                .and_then(|()| Self::make(&path));
            if made.is_err() {
                unmount(&path, UnmountFlags::DETACH)?;
            }
        }
        made
    }

    /// Makes a namespace and binds it on a file.
    fn make(path: &Path) -> io::Result<Self> {
        // A mount namespace can only be bound into one with a smaller number (the kernel rules out loops that way),
        // and from Linux 6.18 on each processor hands numbers out from a block of its own. The processor on which
        // our own namespace was made gives a greater one for certain: each is tried until one does.
        let mut tried = Err(Errno::INVAL.into());
        for cpu in cpus()? {
            let namespace = apart(|| on_cpu(cpu).and_then(|()| empty_namespace()))??;
            tried = rustix::mount::mount_bind(format!("/proc/self/fd/{}", namespace.as_raw_fd()), path)
                .map(|()| Self(namespace))
                .map_err(io::Error::from);
            if !invalid(&tried) {
                break;
            }
        }
        tried
    }

    fn existing(run_dir: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(run_dir.join("layers")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let kind = rustix::fs::fstatfs(&file)?.f_type;
        Ok((kind as i64 == NSFS_MAGIC).then_some(Self(file)))
    }

    /// Runs `work` inside, on a thread of its own: what a thread joins it can't leave by name.
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        apart(|| {
            sys::unshare(libc::CLONE_FS)?;
            sys::setns(self.0.as_fd(), libc::CLONE_NEWNS)?;
            Ok(work())
        })?
    }
}

/// The processors that this thread may run on; first none in particular.
fn cpus() -> io::Result<Vec<Option<usize>>> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let each = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).map(Some);
    Ok([None].into_iter().chain(each).collect())
}

/// Binds this thread to a processor.
fn on_cpu(cpu: Option<usize>) -> io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut only = rustix::thread::CpuSet::new();
    only.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &only)?)
}

/// Runs `work` on a thread that ends with it.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let work = crate::defences::carry(work);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("a helper thread panicked"))
    })
}

/// A mount namespace with nothing in it but an empty root, so that it keeps nothing of the host busy. Gives its
/// file, opened while there still is a `/proc`.
fn empty_namespace() -> io::Result<File> {
    sys::unshare(libc::CLONE_FS | libc::CLONE_NEWNS)?;
    let namespace = File::open("/proc/thread-self/ns/mnt")?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "mode", "0700")?;
    fsconfig_set_string(&context, "size", "1m")?;
    fsconfig_create(&context)?;
    let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    move_mount(&root, "", rustix::fs::CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    rustix::process::fchdir(&root)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(namespace)
}

/// The lock under which the pin and what is in it are made and taken away; let go on drop.
fn lock(run_dir: &Path) -> io::Result<OwnedFd> {
    let file = rustix::fs::open(
        run_dir.join("layers.lock"),
        OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::RUSR | Mode::WUSR,
    )?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// What a collection took away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcReport {
    /// The digests whose mounts are gone.
    pub unmounted: Vec<String>,
}

/// Unmounts the layers that aren't in `keep` (the digests that running instances use). Running boxes hold
/// clones of their own: one that is dropped too early costs the next launch a mount, nothing more. When nothing
/// is left, the namespace goes too.
///
/// # Errors
/// The system's.
pub fn gc(run_dir: &Path, keep: &BTreeSet<String>) -> io::Result<GcReport> {
    if !run_dir.join("layers").exists() {
        return Ok(GcReport::default());
    }
    let _lock = lock(run_dir)?;
    let Some(pin) = Pin::existing(run_dir)? else {
        // Whoever made the file was killed before it was a pin, or the machine was started anew.
        remove_pin(run_dir)?;
        return Ok(GcReport::default());
    };
    let (report, left) = pin.inside(|| -> io::Result<(GcReport, bool)> {
        let (mut report, mut left) = (GcReport::default(), false);
        let mut names =
            fs::read_dir("/")?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
        names.sort();
        for name in names {
            let Some(digest) = name.to_str().and_then(|name| name.split('.').next()) else { continue };
            if keep.contains(digest) {
                left = true;
                continue;
            }
            let path = Path::new("/").join(&name);
            match unmount(&path, UnmountFlags::DETACH) {
                Ok(()) => report.unmounted.push(digest.to_owned()),
                // Made for a mount that then failed.
                Err(Errno::INVAL) => {}
                Err(errno) => return Err(errno.into()),
            }
            fs::remove_dir(&path)?;
        }
        Ok((report, left))
    })??;
    if !left {
        remove_pin(run_dir)?;
    }
    Ok(report)
}

/// Takes away the pin, what it was bound on where that is a mount too, and the file.
fn remove_pin(run_dir: &Path) -> io::Result<()> {
    let path = run_dir.join("layers");
    while unmount(&path, UnmountFlags::DETACH).is_ok() {}
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_loop_table_is_said_as_such() {
        for errno in [Errno::NOSPC, Errno::BUSY] {
            let said = no_loop_device(errno).to_string();
            assert_eq!(said, "every loop device of this host is in use; losetup lists them");
        }
        assert_eq!(no_loop_device(Errno::ACCESS).raw_os_error(), Some(libc::EACCES));
    }
}
