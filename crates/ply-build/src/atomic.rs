//! Files that appear whole or not at all: written beside their place, synced, renamed.
//!
//! A temporary file is locked for as long as its writer lives, so that the next build tells what a killed one left
//! behind from what another one is writing now.

use crate::BuildError;
use crate::ship::TEMPORARY_PREFIX;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file that is not yet in its place; dropped, it is gone.
pub(crate) struct Pending {
    file: File,
    path: PathBuf,
    placed: bool,
}

impl Pending {
    /// A new temporary file in `folder`.
    pub(crate) fn create(folder: &Path) -> Result<Self, BuildError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{TEMPORARY_PREFIX}{}-{number}", std::process::id()));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    // A sweep may have come between: it has the lock, or the file has no name any more.
                    let nameless = || file.metadata().is_ok_and(|m| m.nlink() == 0);
                    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                        Err(Errno::WOULDBLOCK) => {}
                        Ok(()) if nameless() => {}
                        // A file system without locks only loses the sweep.
                        Ok(()) | Err(_) => return Ok(Self { file, path, placed: false }),
                    }
                }
                // Another namespace's process of the same id, or what one left behind.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(BuildError::io("write", folder, e)),
            }
        }
    }

    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Puts the file in its place, which is in the same folder, replacing what is there.
    pub(crate) fn place(mut self, at: &Path) -> Result<(), BuildError> {
        let placed = self.file.sync_all().and_then(|()| std::fs::rename(&self.path, at));
        placed.map_err(|e| BuildError::io("write", at, e))?;
        self.placed = true;
        if let Some(folder) = at.parent()
            && let Ok(folder) =
                File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
        {
            // The content is safe already; that the name lasts is all that this adds.
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.placed {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Writes `bytes` to `at`, whole or not at all.
pub(crate) fn write(at: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    prepare(at, bytes)?.place(at)
}

/// `bytes` in a file beside `at`, to be put in its place.
pub(crate) fn prepare(at: &Path, bytes: &[u8]) -> Result<Pending, BuildError> {
    let folder = at.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut pending = Pending::create(folder)?;
    pending.file().write_all(bytes).map_err(|e| BuildError::io("write", at, e))?;
    Ok(pending)
}

/// Removes what killed writers left in `folder`.
pub(crate) fn sweep(folder: &Path) {
    let Ok(listing) = folder.read_dir() else { return };
    for entry in listing.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX) {
            continue;
        }
        if entry.file_type().is_ok_and(|t| t.is_file())
            && let Ok(file) = File::open(entry.path())
            && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            folder.read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_whole_and_what_is_dropped_is_gone() {
        let temp = tempfile::tempdir().unwrap();
        let at = temp.path().join("ply.lock");
        write(&at, b"one").unwrap();
        write(&at, b"two").unwrap();
        drop(Pending::create(temp.path()).unwrap());
        assert_eq!(std::fs::read(&at).unwrap(), b"two");
        assert_eq!(names(temp.path()), ["ply.lock"]);
    }

    #[test]
    fn writers_and_sweepers_at_once_lose_nothing() {
        let temp = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for n in 0..3 {
                let at = temp.path().join(format!("{n}"));
                scope.spawn(move || (0..200).for_each(|_| write(&at, b"x").unwrap()));
            }
            scope.spawn(|| (0..600).for_each(|_| sweep(temp.path())));
        });
        assert_eq!(names(temp.path()), ["0", "1", "2"]);
    }

    #[test]
    fn only_what_nobody_holds_is_swept() {
        let temp = tempfile::tempdir().unwrap();
        let make = |name: &str| File::create(temp.path().join(name)).unwrap();
        drop(make(".ply-tmp-1-dead"));
        let live = make(".ply-tmp-2-live");
        flock(&live, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(make("app.js"));
        let pending = Pending::create(temp.path()).unwrap();
        sweep(temp.path());
        let own = pending.path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected = vec![".ply-tmp-2-live".to_owned(), own, "app.js".to_owned()];
        expected.sort();
        assert_eq!(names(temp.path()), expected);
    }
}
