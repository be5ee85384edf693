//! File locks: they go with the process that holds them, however it ends.

use super::{IMAGE, Store};
use crate::error::{ImageError, Result};
use ply_manifest::Digest;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// The file that [`Store::hold`] locks.
const HOLD: &str = ".hold";
/// How long `gc` waits for commands that are about to use what they found.
const HOLD_WAIT: Duration = Duration::from_secs(10);

/// Keeps an image from being removed for as long as it lives.
#[derive(Debug)]
pub struct RunningLock {
    file: File,
}

impl RunningLock {
    /// The open image, read-only.
    pub fn image(&self) -> &File {
        &self.file
    }
}

/// Keeps `gc` from removing anything for as long as it lives.
#[derive(Debug)]
pub struct StoreHold {
    _file: File,
}

impl Store {
    /// A shared lock on an image that runs: neither `gc` nor `rm` takes it meanwhile.
    ///
    /// # Errors
    /// [`ImageError::NotInStore`], [`ImageError::Io`].
    pub fn lock_running(&self, digest: &Digest) -> Result<RunningLock> {
        let path = self.folder(digest).join(IMAGE);
        let missing = || ImageError::NotInStore(*digest);
        let file = File::open(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => missing(),
            _ => ImageError::io("open", &path)(e),
        })?;
        flock(&file, FlockOperation::LockShared).map_err(ImageError::os("lock", &path))?;
        // It may have been removed between the two calls.
        if is_at(&file, &path) { Ok(RunningLock { file }) } else { Err(missing()) }
    }

    /// A shared lock on the whole store, for a command that will run or lock what it finds or inserts. Never held
    /// while an app runs.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn hold(&self) -> Result<StoreHold> {
        let file = open_lock(&self.dir().join(HOLD))?;
        flock(&file, FlockOperation::LockShared).map_err(ImageError::os("lock", &self.dir().join(HOLD)))?;
        Ok(StoreHold { _file: file })
    }

    /// The store to oneself, against [`Store::hold`].
    pub(super) fn hold_alone(&self) -> Result<StoreHold> {
        let path = self.dir().join(HOLD);
        let file = open_lock(&path)?;
        let until = Instant::now() + HOLD_WAIT;
        while !try_exclusive(&file, &path)? {
            if Instant::now() > until {
                return Err(ImageError::Busy(self.dir().to_owned()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(StoreHold { _file: file })
    }
}

/// An exclusive lock on a file of its own.
pub(super) struct FileLock {
    _file: File,
}

impl FileLock {
    /// Waits for it. The file is made where there is none.
    pub(super) fn exclusive(path: &Path) -> Result<Self> {
        let file = open_lock(path)?;
        flock(&file, FlockOperation::LockExclusive).map_err(ImageError::os("lock", path))?;
        Ok(Self { _file: file })
    }
}

fn open_lock(path: &Path) -> Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(ImageError::io("open", path))
}

/// Takes the lock if nobody holds one, and says whether.
pub(super) fn try_exclusive(file: &File, path: &Path) -> Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(e) => Err(ImageError::os("lock", path)(e)),
    }
}

pub(super) fn flock(file: &File, operation: FlockOperation) -> rustix::io::Result<()> {
    loop {
        match rustix::fs::flock(file, operation) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Whether the open file is what stands at `path` now.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

/// A name that no other process has: for temporary files.
pub(super) fn token() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed), clock.as_nanos())
}

/// Removes what begins with `prefix` in a folder that the caller has locked; what resists stays for later.
pub(super) fn remove_leftovers(dir: &Path, prefix: &str) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
            let _ = crate::extract::remove_tree(&entry.path());
        }
    }
}
