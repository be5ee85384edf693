//! Id ranges: each rootful app runs in a range of 65,536 ids that is nobody outside, leased in `run/ids/` under
//! the app's name. The place in the pool follows from the name, so the same app gets the same range again.

use crate::RunError;
use crate::files::{LockFile, make_dir, write_whole};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How many ids a range has.
pub(crate) const RANGE: u32 = 65_536;
/// The first id of the pool. From 0x70000000 to 0x7fffffff nothing is reserved by systemd, distributions or
/// shadow's defaults (see systemd's "Users, Groups, UIDs and GIDs").
const FIRST: u32 = 0x7000_0000;
/// How many ranges the pool has.
const RANGES: u32 = 0x0fff_0000 / RANGE;

/// A leased range, given back when dropped (or by the next ply, if its process was killed).
#[derive(Debug)]
pub(crate) struct Lease {
    start: u32,
    path: PathBuf,
    /// Held for its lock: whoever can take it knows that the lease's owner is gone.
    _file: File,
}

impl Lease {
    /// Leases a range for the app `name`.
    pub(crate) fn take(run_dir: &Path, name: &str) -> Result<Self, RunError> {
        let dir = run_dir.join("ids");
        make_dir(&dir)?;
        let _guard = LockFile::wait(&dir.join("lock"))?;
        let wanted = place(name);
        let delegated = delegated();
        for step in 0..RANGES {
            let start = FIRST + (wanted + step) % RANGES * RANGE;
            if delegated
                .iter()
                .any(|(first, count)| *first < start + RANGE && start < first.saturating_add(*count))
            {
                continue;
            }
            let path = dir.join(start.to_string());
            let failed =
                |why: std::io::Error| RunError::Io { what: "can't lease ids", path: path.clone(), why };
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    write_whole(&path.with_extension("app"), name.as_bytes(), false)?;
                    return Ok(Self { start, path, _file: file });
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(e) => return Err(failed(e.into())),
            }
        }
        Err(RunError::refused(
            format!("all {RANGES} id ranges of this host are in use"),
            "stop an app that is no longer needed: ply ps",
        ))
    }

    /// The first id outside.
    pub(crate) fn start(&self) -> u32 {
        self.start
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path.with_extension("app"));
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What an administrator gave to users: their rootless apps' ids are nobody else's (subuid(5)).
fn delegated() -> Vec<(u32, u32)> {
    let files = ["/etc/subuid", "/etc/subgid"].map(|f| std::fs::read_to_string(f).unwrap_or_default());
    let parse = |line: &str| {
        let mut fields = line.split(':').skip(1);
        Some((fields.next()?.trim().parse().ok()?, fields.next()?.trim().parse().ok()?))
    };
    files.iter().flat_map(|text| text.lines()).filter_map(parse).collect()
}

/// The place of a name in the pool (FNV-1a, 32 bits).
fn place(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193)) % RANGES
}

/// Takes away the leases of apps whose run parent is gone.
pub(crate) fn sweep(run_dir: &Path) {
    let dir = run_dir.join("ids");
    let Ok(entries) = std::fs::read_dir(&dir) else { return };
    let Ok(_guard) = LockFile::wait(&dir.join("lock")) else { return };
    for entry in entries.flatten() {
        let is_lease = entry.file_name().to_str().is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
        let Some(file) = is_lease.then(|| File::open(entry.path()).ok()).flatten() else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_file(entry.path().with_extension("app"));
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_gets_its_range_again_and_two_never_share_one() {
        let dir = tempfile::tempdir().unwrap();
        let web = Lease::take(dir.path(), "web").unwrap();

        assert!(web.start() >= FIRST && web.start().is_multiple_of(RANGE));
        let same_place = Lease::take(dir.path(), "web").unwrap();
        assert_ne!(web.start(), same_place.start());
        let start = web.start();
        drop(web);
        assert_eq!(Lease::take(dir.path(), "web").unwrap().start(), start);
    }

    #[test]
    fn many_at_once_get_ranges_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let leases: Vec<Lease> = std::thread::scope(|scope| {
            let spawn = |n: usize| {
                let path = dir.path();
                scope.spawn(move || Lease::take(path, &format!("app{n}")).unwrap())
            };
            (0..40).map(spawn).collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).collect()
        });
        let starts: std::collections::BTreeSet<u32> = leases.iter().map(Lease::start).collect();
        assert_eq!(starts.len(), 40);
    }

    #[test]
    fn what_the_dead_left_is_swept_and_the_living_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let live = Lease::take(dir.path(), "live").unwrap();
        let dead = Lease::take(dir.path(), "dead").unwrap();
        // A killed process runs no destructor; its lock goes with its descriptor.
        let path = dead.path.clone();
        let Lease { .. } = &dead;
        let copy = std::fs::read(&path).unwrap();
        drop(dead);
        std::fs::write(&path, copy).unwrap();
        sweep(dir.path());
        assert!(!path.exists() && live.path.exists());
    }
}
