//! Small files of ply's own: written whole and renamed into place, with a format number, and locks that die
//! with their holder. Two ply processes may do the same thing at the same moment, always.

use crate::RunError;
use ply_image::{Access, Lasts, OWN_FILE_MAX};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Makes a folder and its parents, closed to other users.
pub(crate) fn make_dir(path: &Path) -> Result<(), RunError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(RunError::io("can't make the folder", path))
}

/// Writes a file of its owner's alone, whole or not at all. With `durable`, also through a power cut.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], durable: bool) -> Result<(), RunError> {
    let lasts = if durable { Lasts::PowerCut } else { Lasts::Boot };
    ply_image::write_atomic(path, bytes, Access::Owner, lasts).map_err(RunError::io("can't write", path))
}

/// The newest format of every JSON file that this crate writes.
pub(crate) const FORMAT: u32 = 1;

/// Writes a value as JSON, with the format's number in it.
pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T, durable: bool) -> Result<(), RunError> {
    #[derive(Serialize)]
    struct Stamped<'a, T> {
        format: u32,
        #[serde(flatten)]
        value: &'a T,
    }
    let bytes = serde_json::to_vec_pretty(&Stamped { format: FORMAT, value }).map_err(|e| RunError::Io {
        what: "can't write",
        path: path.to_owned(),
        why: e.into(),
    })?;
    write_whole(path, &bytes, durable)
}

/// Reads a value; `None` where the file isn't there.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, RunError> {
    #[derive(serde::Deserialize)]
    struct Stamp {
        format: u32,
    }
    let failed = |why| RunError::Io { what: "can't read", path: path.to_owned(), why };
    let bytes = match ply_image::read_at_most(path, OWN_FILE_MAX) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let stamp: Stamp = serde_json::from_slice(&bytes).map_err(|e| failed(e.into()))?;
    if stamp.format > FORMAT {
        return Err(RunError::Newer { path: path.to_owned(), found: stamp.format, known: FORMAT });
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|e| failed(e.into()))
}

/// An exclusive lock on a file, gone with this value or its process. The file is removed with it.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
    path: PathBuf,
    keep: bool,
}

impl LockFile {
    /// Takes the lock, waiting for whoever holds it. The file stays afterwards.
    pub(crate) fn wait(path: &Path) -> Result<Self, RunError> {
        let failed = |why: io::Error| RunError::Io { what: "can't lock", path: path.to_owned(), why };
        let file = open_lock(path).map_err(failed)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|e| failed(e.into()))?;
        Ok(Self { file, path: path.to_owned(), keep: true })
    }

    /// Takes the lock if nobody holds it, else gives what its holder wrote into it.
    pub(crate) fn try_take(path: &Path) -> Result<Result<Self, String>, RunError> {
        let failed = |why: io::Error| RunError::Io { what: "can't lock", path: path.to_owned(), why };
        loop {
            let file = open_lock(path).map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Ok(Err(std::fs::read_to_string(path).unwrap_or_default()));
                }
                Err(e) => return Err(failed(e.into())),
            }
            if is_at(&file, path) {
                return Ok(Ok(Self { file, path: path.to_owned(), keep: false }));
            }
        }
    }

    /// Writes what somebody who finds it locked is told.
    pub(crate) fn say(&mut self, text: &str) -> Result<(), RunError> {
        let path = self.path.clone();
        let write = || -> io::Result<()> {
            self.file.set_len(0)?;
            io::Seek::rewind(&mut self.file)?;
            self.file.write_all(text.as_bytes())
        };
        let mut write = write;
        write().map_err(RunError::io("can't write", path))
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether the open file still is what stands at `path`: its last holder may have removed it between an open and
/// a lock, and then it is nobody's.
fn is_at(file: &File, path: &Path) -> bool {
    let both = std::fs::metadata(path).ok().zip(file.metadata().ok());
    both.is_some_and(|(a, b)| a.ino() == b.ino() && a.dev() == b.dev())
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// A shared lock, gone with this value or its process. The file stays.
#[derive(Debug)]
pub(crate) struct SharedLock(#[expect(dead_code, reason = "held for its lock")] File);

impl SharedLock {
    pub(crate) fn take(path: &Path) -> Result<Self, RunError> {
        let failed = |why: io::Error| RunError::Io { what: "can't lock", path: path.to_owned(), why };
        loop {
            let file = open_lock(path).map_err(failed)?;
            flock(&file, FlockOperation::LockShared).map_err(|e| failed(e.into()))?;
            if is_at(&file, path) {
                return Ok(Self(file));
            }
        }
    }
}

/// When a process started, in clock ticks since boot: field 22 of `/proc/<pid>/stat` (proc(5)). `None` where
/// there is no such process.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    if fields.starts_with(['Z', 'X']) {
        return None;
    }
    fields.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_once_and_tells_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.lock");
        let mut first = LockFile::try_take(&path).unwrap().unwrap();
        first.say("4242 17").unwrap();
        assert_eq!(LockFile::try_take(&path).unwrap().unwrap_err(), "4242 17");
        drop(first);
        assert!(!path.exists());
        LockFile::try_take(&path).unwrap().unwrap();
    }

    #[test]
    fn a_newer_format_is_refused_in_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        write_json(&path, &serde_json::json!({"a": 1}), false).unwrap();
        assert_eq!(read_json::<serde_json::Value>(&path).unwrap().unwrap()["a"], 1);
        std::fs::write(&path, "{\"format\": 9}").unwrap();
        let error = read_json::<serde_json::Value>(&path).unwrap_err().to_string();
        assert!(error.ends_with("has format 9, and this ply reads up to 1"), "{error}");
        assert!(read_json::<serde_json::Value>(&dir.path().join("none")).unwrap().is_none());
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_unread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = read_json::<serde_json::Value>(&path).unwrap_err().to_string();
        assert!(error.ends_with("x.json: it is longer than 16777216 bytes"), "{error}");
    }

    #[test]
    fn a_process_has_a_start_time() {
        assert!(start_time(std::process::id()).unwrap() > 0);
        assert_eq!(start_time(u32::MAX), None);
    }
}
