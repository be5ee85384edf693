//! The store: `store/sha256:<hex>/` is immutable, and its name proves its bytes. Everything is made beside under a
//! temporary name, synced, and renamed into place, so that a kill at any moment leaves a store that verifies.
//!
//! Many processes work here at once, with file locks as the only agreement:
//! - whoever makes something holds a lock on its temporary folder; `gc` takes only those that nobody holds;
//! - whoever runs an image holds a shared lock on it ([`Store::lock_running`]); who removes one needs it alone;
//! - a command that fetches or builds and will run or lock what it found later holds [`Store::hold`] meanwhile,
//!   and `gc` waits for it.

mod clean;
mod entry;
mod insert;
mod lock;
mod record;
mod verify;

pub use clean::GcReport;
pub use entry::Entry;
pub use insert::{Origin, StoreWriter};
pub use lock::{RunningLock, StoreHold};
pub use record::SourceFile;
pub(crate) use record::identity;
pub use verify::{VerifyReport, Wrong};

use crate::dirs::Dirs;
use crate::error::{ImageError, Result};
use ply_manifest::{Arch, Digest, ImageName, PackageName};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The image in an entry's folder.
pub(crate) const IMAGE: &str = "image.img";
/// The manifest beside it, as read once.
pub(crate) const MANIFEST: &str = "manifest.toml";
/// The lock beside it, where the image has one.
pub(crate) const LOCK: &str = "lock.toml";
/// What the image was extracted to for a rootless run.
pub(crate) const TREE: &str = "tree";
/// How everything begins that is not finished.
pub(crate) const TEMPORARY: &str = ".tmp-";

/// The store of one user.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
    known: Arc<Mutex<Known>>,
}

/// All entries as they were when the store's folder had this time.
#[derive(Debug, Default)]
struct Known {
    stamp: Option<(i64, i64)>,
    entries: Arc<Entries>,
}

/// How many entries are worth a thread.
const PART: usize = 100;

/// Entries, and which of them have a name.
#[derive(Debug, Default)]
struct Entries {
    by_digest: BTreeMap<Digest, Entry>,
    by_name: HashMap<ImageName, Vec<Digest>>,
}

impl Store {
    /// Opens the store, making its folder (0700) where there is none.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn open(dirs: &Dirs) -> Result<Self> {
        let dir = dirs.store();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(ImageError::io("create", &dir))?;
        // A setuid file in a layer must not be within anybody else's reach (CVE-2021-41091).
        let meta = std::fs::metadata(&dir).map_err(ImageError::io("read", &dir))?;
        if meta.mode() & 0o077 != 0 {
            std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o700))
                .map_err(ImageError::io("close to others", &dir))?;
        }
        Ok(Self { dir, known: Arc::default() })
    }

    /// The store's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The entry with this digest; none where the store doesn't have it whole (a file is missing or of another size),
    /// or where [`Store::verify`] found it damaged.
    ///
    /// # Errors
    /// [`ImageError::NewerFormat`], [`ImageError::Io`].
    pub fn get(&self, digest: &Digest) -> Result<Option<Entry>> {
        Entry::load(&self.folder(digest), *digest)
    }

    /// Every entry, by digest. Damaged ones are left out.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn list(&self) -> Result<Vec<Entry>> {
        Ok(self.all()?.by_digest.values().cloned().collect())
    }

    /// Every entry of a package for an arch, highest version first, equal ones by digest.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn find(&self, name: &PackageName, arch: Arch) -> Result<Vec<Entry>> {
        let all = self.all()?;
        let mut found: Vec<Entry> =
            all.by_digest.values().filter(|e| e.name.name == *name && e.name.arch == arch).cloned().collect();
        found.sort_by(|a, b| b.name.version.cmp(&a.name.version).then(a.digest.cmp(&b.digest)));
        Ok(found)
    }

    /// What was fetched before as `image` from exactly this source. Where a source changed its bytes, the one that
    /// came last.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn from_source(&self, source: &str, image: &ImageName) -> Result<Option<Entry>> {
        let all = self.all()?;
        let found =
            all.by_name.get(image).into_iter().flatten().filter_map(|digest| all.by_digest.get(digest));
        let found = found.filter_map(|e| e.sources.get(source).map(|when| (*when, e)));
        Ok(found.max_by_key(|(when, e)| (*when, e.digest)).map(|(_, e)| e.clone()))
    }

    /// Where an entry is or would be.
    pub fn folder(&self, digest: &Digest) -> PathBuf {
        self.dir.join(digest.to_string())
    }

    /// The digests of all folders, sorted, whether their records can be read or not.
    pub(crate) fn digests(&self) -> Result<Vec<Digest>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(ImageError::io("read", &self.dir))? {
            let entry = entry.map_err(ImageError::io("read", &self.dir))?;
            if let Some(digest) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                found.push(digest);
            }
        }
        found.sort();
        Ok(found)
    }

    /// Reads many entries; a big store by several threads, since each entry is a few small files.
    fn load(&self, digests: &[Digest]) -> Result<Vec<Option<Entry>>> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(4));
        let part = digests.len().div_ceil(threads).max(PART);
        let read = |part: &[Digest]| part.iter().map(|digest| self.get(digest)).collect::<Vec<_>>();
        let (own, others) = digests.split_at(part.min(digests.len()));
        let found = std::thread::scope(|scope| {
            let others: Vec<_> = others.chunks(part).map(|part| scope.spawn(move || read(part))).collect();
            let mut found = read(own);
            for other in others {
                found.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            found
        });
        found.into_iter().collect()
    }

    /// All entries: from memory where the store's folder has not changed since they were read.
    fn all(&self) -> Result<Arc<Entries>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let meta = std::fs::metadata(&self.dir).map_err(ImageError::io("read", &self.dir))?;
        let stamp = (meta.mtime(), meta.mtime_nsec());
        if known.stamp == Some(stamp) {
            return Ok(Arc::clone(&known.entries));
        }
        let mut entries = Entries::default();
        // One that goes away meanwhile is no error.
        for entry in self.load(&self.digests()?)?.into_iter().flatten() {
            entries.by_name.entry(entry.name.clone()).or_default().push(entry.digest);
            entries.by_digest.insert(entry.digest, entry);
        }
        known.entries = Arc::new(entries);
        // A change within the clock's last tick would not be seen in the time: then nothing is remembered.
        let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let then = Duration::new(stamp.0.try_into().unwrap_or(0), stamp.1.try_into().unwrap_or(0));
        let settled = age.saturating_sub(then) > Duration::from_millis(50);
        known.stamp = settled.then_some(stamp);
        Ok(Arc::clone(&known.entries))
    }
}
