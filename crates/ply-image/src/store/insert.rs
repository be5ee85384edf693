//! How images come in.

use super::clean::alone;
use super::entry::Entry;
use super::lock::{self, flock};
use super::record::{RECORD, Record, SourceFile, identity, sync_dir, write_synced};
use super::{IMAGE, LOCK, MANIFEST, Store, TEMPORARY};
use crate::error::{ImageError, Result};
use crate::image::{Image, open_file};
use crate::pack::{PackOptions, Packed, digest_of, pack};
use crate::tree::Tree;
use ply_manifest::{Digest, ImageName};
use rustix::fs::FlockOperation;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where an image comes from and what it is called there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The URL or folder that it was fetched from; none for what was built here.
    pub source: Option<String>,
    /// Its file name: the manifest inside must say the same.
    pub image: ImageName,
}

/// A temporary folder in the store, locked while it lives, gone with it unless it was renamed.
#[derive(Debug)]
struct Temporary {
    path: PathBuf,
    _lock: File,
    kept: bool,
}

impl Temporary {
    fn new(store: &Store) -> Result<Self> {
        loop {
            let path = store.dir().join(format!("{TEMPORARY}{}", lock::token()));
            std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(ImageError::io("create", &path))?;
            let Ok(file) = File::open(&path) else { continue };
            flock(&file, FlockOperation::LockExclusive).map_err(ImageError::os("lock", &path))?;
            // `gc` may have taken it for a leftover before it was locked.
            if lock::is_at(&file, &path) {
                return Ok(Self { path, _lock: file, kept: false });
            }
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Streams an image into the store and hashes it on the way. Dropped without [`StoreWriter::finish`], it leaves
/// nothing behind.
#[derive(Debug)]
pub struct StoreWriter {
    store: Store,
    temporary: Temporary,
    file: File,
    hash: Sha256,
    bytes: u64,
    copied: Option<SourceFile>,
}

impl Write for StoreWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.hash.update(&bytes[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl StoreWriter {
    /// Remembers which file the bytes come from, and what it looks like.
    pub fn copied_from(&mut self, file: Option<SourceFile>) {
        self.copied = file;
    }

    /// How many bytes came so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Compares the digest, checks that the image is what it is called, syncs, and gives it its place. Where the
    /// store has it already, that one stays.
    ///
    /// # Errors
    /// [`ImageError::WrongDigest`], [`ImageError::WrongName`], [`ImageError::NoManifest`],
    /// [`ImageError::BadManifest`], those of [`Image::open`], [`ImageError::Io`], and [`ImageError::Running`] where
    /// it would replace a damaged image that runs. The store is then as before.
    pub fn finish(self, expected: Option<Digest>, origin: Origin) -> Result<Entry> {
        let found = Digest::from_bytes(self.hash.finalize().into());
        if let Some(expected) = expected.filter(|e| *e != found) {
            return Err(ImageError::WrongDigest { image: Box::new(origin.image), expected, found });
        }
        self.store.settle(self.temporary, self.file, found, self.bytes, origin, self.copied)
    }
}

impl Store {
    /// Begins an image that is streamed in.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn writer(&self) -> Result<StoreWriter> {
        let (temporary, file) = self.begin()?;
        Ok(StoreWriter { store: self.clone(), temporary, file, hash: Sha256::new(), bytes: 0, copied: None })
    }

    /// Copies an image file into the store.
    ///
    /// # Errors
    /// As [`StoreWriter::finish`].
    pub fn insert_file(&self, path: &Path, origin: Origin) -> Result<Entry> {
        let mut from = open_file(path)?;
        if !from.metadata().map_err(ImageError::io("read", path))?.is_file() {
            return Err(ImageError::NotAnImage { image: path.to_owned(), why: "it is not a regular file" });
        }
        let (temporary, mut file) = self.begin()?;
        // Shares the blocks where the file system can. What is hashed is the copy, which nobody else writes.
        io::copy(&mut from, &mut file).map_err(ImageError::io("copy", path))?;
        let (digest, bytes) = digest_of(&mut file).map_err(ImageError::io("read", path))?;
        self.settle(temporary, file, digest, bytes, origin, None).map_err(|e| match e {
            // The copy's name means nothing to anybody.
            ImageError::NotAnImage { why, .. } => ImageError::NotAnImage { image: path.to_owned(), why },
            ImageError::Unsupported { what, .. } => ImageError::Unsupported { image: path.to_owned(), what },
            ImageError::Damaged { why, .. } => ImageError::Damaged { image: path.to_owned(), why },
            ImageError::NoManifest(_) => ImageError::NoManifest(path.to_owned()),
            ImageError::BadManifest { why, .. } => ImageError::BadManifest { image: path.to_owned(), why },
            ImageError::Forbidden { path: inside, what, .. } => {
                ImageError::Forbidden { image: path.to_owned(), path: inside, what }
            }
            other => other,
        })
    }

    /// Packs a tree straight into the store.
    ///
    /// # Errors
    /// As [`pack`] and [`StoreWriter::finish`].
    pub fn pack(&self, tree: &Tree, options: &PackOptions, origin: Origin) -> Result<(Entry, Packed)> {
        let (temporary, mut file) = self.begin()?;
        let packed = pack(tree, options, &mut file)?;
        let entry = self.settle(temporary, file, packed.digest, packed.bytes, origin, None)?;
        Ok((entry, packed))
    }

    fn begin(&self) -> Result<(Temporary, File)> {
        let temporary = Temporary::new(self)?;
        let path = temporary.path.join(IMAGE);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(ImageError::io("create", &path))?;
        Ok((temporary, file))
    }

    fn settle(
        &self,
        mut temporary: Temporary,
        file: File,
        digest: Digest,
        bytes: u64,
        origin: Origin,
        copied: Option<SourceFile>,
    ) -> Result<Entry> {
        let folder = temporary.path.clone();
        let image = Image::from_file(file, Path::new(&origin.image.to_string()))?;
        let manifest = image.manifest_text()?;
        let (name, version) = identity(&manifest)
            .map_err(|why| ImageError::BadManifest { image: image.path().to_owned(), why })?;
        if (&name, &version) != (&origin.image.name, &origin.image.version) {
            return Err(ImageError::WrongName {
                claimed: Box::new(origin.image),
                inside: format!("{name} {version}"),
            });
        }
        let lock = image.lock_text()?;
        // Here and once: what stands in the store may be mounted.
        image.check()?;
        let mut record = Record::new(origin.image, bytes, &manifest, lock.as_deref());
        record.files.extend(origin.source.clone().zip(copied));
        record.sources.extend(origin.source.map(|source| (source, now())));
        write_synced(&folder.join(MANIFEST), manifest.as_bytes())?;
        if let Some(lock) = lock {
            write_synced(&folder.join(LOCK), lock.as_bytes())?;
        }
        record.write(&folder.join(RECORD))?;
        image.file().sync_all().map_err(ImageError::io("write", &folder))?;
        sync_dir(&folder)?;
        let place = self.folder(&digest);
        loop {
            match std::fs::rename(&folder, &place) {
                Ok(()) => {
                    temporary.kept = true;
                    sync_dir(self.dir())?;
                    return Ok(Entry::from_record(&place, digest, record));
                }
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty
                    ) =>
                {
                    if let Some(entry) = self.keep_present(&place, digest, &record)? {
                        return Ok(entry);
                    }
                }
                Err(e) => return Err(ImageError::io("create", &place)(e)),
            }
        }
    }

    /// The entry that is there already, with the new source added; none where it was damaged and is now out of the
    /// way, or has just gone.
    fn keep_present(&self, place: &Path, digest: Digest, new: &Record) -> Result<Option<Entry>> {
        let Some(mut present) = Record::of_whole(place)? else {
            // Who runs it may have its extracted tree mounted.
            let Some(_lock) = alone(place)? else { return Err(ImageError::Running(digest)) };
            match self.put_aside(place) {
                // Out of the way is enough: a tree of mapped ids is left for gc, which may remove it.
                Err(_) if !place.exists() => {}
                done => done?,
            }
            return Ok(None);
        };
        // The same bytes may be the image of several archs, where nothing in it is for one alone. The record has the
        // name that this host can run, the caller gets the one that it came with.
        let renamed = present.image != new.image && new.image.arch == ply_manifest::Arch::HOST;
        if renamed {
            present.image = new.image.clone();
        }
        if !new.sources.is_empty() || renamed || present.checked < new.checked {
            for source in new.sources.keys() {
                present.files.remove(source);
            }
            present.files.extend(new.files.clone());
            present.sources.extend(new.sources.clone());
            present.checked = new.checked;
            // Made in the store's folder, so that its time tells others that something changed.
            if !present.replace(self.dir(), place)? {
                return Ok(None);
            }
        }
        present.image = new.image.clone();
        Ok(Some(Entry::from_record(place, digest, present)))
    }

    /// Moves a folder out of its place and removes it.
    pub(super) fn put_aside(&self, place: &Path) -> Result<()> {
        let aside = self.dir().join(format!("{TEMPORARY}{}", lock::token()));
        match std::fs::rename(place, &aside) {
            Ok(()) => crate::extract::remove_tree(&aside),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(ImageError::io("remove", place)(e)),
        }
    }
}

/// Only compared with others of its kind: which fetch was the last.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Reads a whole stream into a writer; for callers that have a reader.
impl StoreWriter {
    /// Copies everything that `from` gives, and returns how many bytes that was.
    ///
    /// # Errors
    /// Those of `from` and of the disk.
    pub fn copy(&mut self, from: &mut impl Read) -> io::Result<u64> {
        io::copy(from, self)
    }
}
