//! Files that appear whole or not at all: written beside their place, synced, renamed. Whoever reads finds the old
//! text or the new one, never half of either. All crates write their files by this.
//!
//! A temporary file is locked for as long as its writer lives, so that whoever comes later tells what a killed one
//! left behind from what another one is writing now.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// How the name of every file begins that is not in its place yet.
pub const PENDING_PREFIX: &str = ".ply-tmp-";

/// Who may read and write a file that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Its owner alone: 0600.
    Owner,
    /// Whom the umask lets: 0666 without its bits.
    Umask,
    /// The permission bits of the file that it replaces; where there is none, as the umask leaves them.
    Kept,
}

/// How long a file is meant to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasts {
    /// Through a power cut: it is synced, and so is its folder.
    PowerCut,
    /// As long as the machine is up; nothing waits for the disk.
    Boot,
}

/// A file that is not yet in its place; dropped, it is gone.
#[derive(Debug)]
pub struct Pending {
    file: File,
    path: PathBuf,
    placed: bool,
}

impl Pending {
    /// A new temporary file in `folder`, to be placed in the same folder. [`Access::Kept`] is as [`Access::Umask`]
    /// here: what it will replace isn't known yet.
    ///
    /// # Errors
    /// The system's.
    pub fn create(folder: &Path, access: Access) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mode = if access == Access::Owner { 0o600 } else { 0o666 };
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{PENDING_PREFIX}{}-{number}", std::process::id()));
            match OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(&path) {
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
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// `bytes` in a temporary file beside `path`, to be placed there.
    ///
    /// # Errors
    /// The system's; nothing is left then.
    pub fn holding(path: &Path, bytes: &[u8], access: Access) -> io::Result<Self> {
        if path.file_name().is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut pending = Self::create(folder_of(path), access)?;
        if access == Access::Kept
            && let Ok(old) = path.metadata()
        {
            pending.file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
        }
        pending.file.write_all(bytes)?;
        Ok(pending)
    }

    /// The file, to be written.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Puts the file in its place, which is in the same folder, replacing what is there.
    ///
    /// # Errors
    /// The system's; what was there is then as it was, and the temporary file is gone.
    pub fn place(mut self, at: &Path, lasts: Lasts) -> io::Result<()> {
        if lasts == Lasts::PowerCut {
            self.file.sync_all()?;
        }
        std::fs::rename(&self.path, at)?;
        self.placed = true;
        if lasts == Lasts::PowerCut
            && let Ok(folder) = File::open(folder_of(at))
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

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes `bytes` to `path`, whole or not at all, in the place of what is there.
///
/// # Errors
/// The system's; the file is then as it was, and nothing is left beside it.
pub fn write_atomic(path: &Path, bytes: &[u8], access: Access, lasts: Lasts) -> io::Result<()> {
    Pending::holding(path, bytes, access)?.place(path, lasts)
}

/// Removes the temporary files that killed writers left in `folder`; those that are being written stay.
pub fn sweep_pending(folder: &Path) {
    let Ok(listing) = folder.read_dir() else { return };
    for entry in listing.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PENDING_PREFIX) {
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

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn a_file_appears_whole_and_what_is_dropped_is_gone() {
        let temp = tempfile::tempdir().unwrap();
        let at = temp.path().join("ply.lock");
        for lasts in [Lasts::Boot, Lasts::PowerCut] {
            write_atomic(&at, b"one", Access::Umask, lasts).unwrap();
            write_atomic(&at, b"two", Access::Umask, lasts).unwrap();
            assert_eq!(std::fs::read(&at).unwrap(), b"two");
        }
        drop(Pending::create(temp.path(), Access::Owner).unwrap());
        assert_eq!(names(temp.path()), ["ply.lock"]);
    }

    #[test]
    fn a_file_is_for_whom_it_was_asked() {
        let temp = tempfile::tempdir().unwrap();
        let at = temp.path().join("file");
        write_atomic(&at, b"", Access::Owner, Lasts::Boot).unwrap();
        assert_eq!(mode(&at), 0o600);
        write_atomic(&at, b"", Access::Kept, Lasts::Boot).unwrap();
        assert_eq!(mode(&at), 0o600);
        write_atomic(&at, b"", Access::Umask, Lasts::Boot).unwrap();
        let made = temp.path().join("made");
        File::create(&made).unwrap();
        assert_eq!(mode(&at), mode(&made));
        std::fs::set_permissions(&at, Permissions::from_mode(0o640)).unwrap();
        write_atomic(&at, b"", Access::Kept, Lasts::Boot).unwrap();
        assert_eq!(mode(&at), 0o640);
    }

    #[test]
    fn a_failure_leaves_what_was_there_and_nothing_beside_it() {
        let temp = tempfile::tempdir().unwrap();
        // A folder stands in the place.
        std::fs::create_dir_all(temp.path().join("taken/inner")).unwrap();
        let at = temp.path().join("taken");
        assert!(write_atomic(&at, b"new", Access::Owner, Lasts::PowerCut).is_err());
        assert_eq!(names(temp.path()), ["taken"]);
        let gone = temp.path().join("none/file");
        assert_eq!(
            write_atomic(&gone, b"", Access::Owner, Lasts::Boot).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert!(write_atomic(Path::new("/"), b"", Access::Owner, Lasts::Boot).is_err());
    }

    #[test]
    fn writers_and_sweepers_at_once_lose_nothing() {
        let temp = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for n in 0..3 {
                let at = temp.path().join(format!("{n}"));
                let write = move || write_atomic(&at, b"x", Access::Owner, Lasts::Boot).unwrap();
                scope.spawn(move || (0..200).for_each(|_| write()));
            }
            scope.spawn(|| (0..600).for_each(|_| sweep_pending(temp.path())));
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
        let pending = Pending::create(temp.path(), Access::Umask).unwrap();
        sweep_pending(temp.path());
        let own = pending.path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected = vec![".ply-tmp-2-live".to_owned(), own, "app.js".to_owned()];
        expected.sort();
        assert_eq!(names(temp.path()), expected);
    }
}
