//! From a place to the store: fetched, hashed on the way, entered whole or not at all.

use crate::fetcher::Fetcher;
use crate::http::{Wanted, download};
use crate::place::Place;
use crate::sources::present;
use crate::{DefaultSource, Entry, SourceError, SourceOrigin, parallel};
use ply_image::{Image, ImageError, Origin, SourceFile, StoreWriter};
use ply_manifest::{Digest, ImageName, Lock, LockedPackage, Manifest, Owner, PackageName, SourceSpec};
use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

/// How a temporary file in the store's folder begins; the clean-up takes those that nobody has locked.
const TEMPORARY: &str = ".tmp-";
/// From so many packages on, threads are worth their start.
const MANY: usize = 32;
/// A piece that is copied at once, in bytes.
const PIECE: usize = 1 << 20;

impl Fetcher {
    /// An image of a source. With `expected` (from a lock) its bytes must be those; without, the source is trusted, and its catalog
    /// where that says a digest. What came from the very same place before is not fetched again: published bytes never
    /// change under a version.
    pub(crate) fn take(
        &self,
        source: &SourceSpec,
        owner: &Owner,
        image: &ImageName,
        expected: Option<Digest>,
    ) -> Result<Entry, SourceError> {
        let place = Place::image(source, owner, image);
        if expected.is_none()
            && let Some(entry) = self.fetched_before(&place, image)?
        {
            return Ok(entry);
        }
        present(source)?;
        if expected.is_some() {
            let origin = source.to_string();
            return match self.fetch(&place, &place, &origin, image, expected) {
                Err(missing @ SourceError::NotThere { .. }) => match self.said(source, owner, image)?.src {
                    Some(src) => self.fetch(&elsewhere(&place, src)?, &place, &origin, image, expected),
                    None => Err(missing),
                },
                result => result,
            };
        }
        let said = self.said(source, owner, image)?;
        let at = match said.src {
            Some(src) => elsewhere(&place, src)?,
            None => place.clone(),
        };
        self.fetch(&at, &place, &source.to_string(), image, said.digest)
    }

    /// What [`Self::take`] would give without asking anybody.
    pub(crate) fn taken_before(
        &self,
        source: &SourceSpec,
        owner: &Owner,
        image: &ImageName,
    ) -> Result<Option<Entry>, SourceError> {
        self.fetched_before(&Place::image(source, owner, image), image)
    }

    /// A locked package that the store has; none where it has to be fetched.
    pub(crate) fn locked_in_store(&self, package: &LockedPackage) -> Result<Option<Entry>, SourceError> {
        let arch = self.options().arch;
        let Some(digest) = package.digest.get(&arch) else { return Ok(None) };
        let Some(entry) = self.options().store.get(digest)? else { return Ok(None) };
        let (name, version) = (package.name.clone(), package.version.clone());
        check_name(entry, &ImageName { name, version, arch }).map(Some)
    }

    /// The locked packages that the store has, their manifests read on all processors, so that resolution then finds them read.
    /// Whatever is wrong with one is said there.
    pub(crate) fn read_locked(&self, lock: Option<&Lock>) -> BTreeMap<PackageName, Entry> {
        let packages = lock.map_or(&[][..], |lock| &lock.packages);
        let threads = if packages.len() < MANY { 1 } else { parallel::processors() };
        let read = parallel::each(threads, packages, |package| {
            let entry = self.locked_in_store(package).ok().flatten()?;
            let _ = self.manifest_of(&entry);
            Some((package.name.clone(), entry))
        });
        read.into_iter().flatten().collect()
    }

    /// What the store has from exactly this place. A file of a folder counts only while it looks as it did when it was copied: who
    /// rebuilds into a folder sees what was built last. Where that wasn't noted, it must have the same size and not be newer.
    fn fetched_before(&self, place: &Place, image: &ImageName) -> Result<Option<Entry>, SourceError> {
        let Some(entry) = self.options().store.from_source(&place.to_string(), image)? else {
            return Ok(None);
        };
        if let Place::File(path) = place {
            let (Ok(there), Ok(here)) = (std::fs::metadata(path), std::fs::metadata(&entry.image)) else {
                return Ok(None);
            };
            if let Some(copied) = entry.source_file(&place.to_string()) {
                return Ok((SourceFile::of(&there) == Some(copied)).then_some(entry));
            }
            let older = matches!((there.modified(), here.modified()), (Ok(there), Ok(here)) if there <= here);
            if there.len() != entry.bytes || !older {
                return Ok(None);
            }
        }
        Ok(Some(entry))
    }

    /// Fetches `at` into the store, remembered as `place`.
    fn fetch(
        &self,
        at: &Place,
        place: &Place,
        origin: &str,
        image: &ImageName,
        expected: Option<Digest>,
    ) -> Result<Entry, SourceError> {
        let what = image.to_string();
        let (url, remembered) = (at.to_string(), place.to_string());
        let mut again = true;
        loop {
            let (writer, resumed) = match at {
                Place::File(path) => (self.copy(path, &what, origin)?, false),
                Place::Url(url) => {
                    let wanted = Wanted { what: &what, url, origin };
                    download(self.client(), &wanted, &*self.options().progress, || self.writer())?
                }
            };
            let from = Origin { source: Some(remembered.clone()), image: image.clone() };
            match writer.finish(expected, from) {
                // Put together from pieces of two different files? Whole, it may be right.
                Err(ImageError::WrongDigest { .. }) if resumed && again => again = false,
                Err(error) => return Err(at_place(error, &url)),
                Ok(entry) => return Ok(entry),
            }
        }
    }

    fn writer(&self) -> Result<StoreWriter, SourceError> {
        Ok(self.options().store.writer()?)
    }

    /// Copies a file of a folder into the store.
    fn copy(&self, path: &Path, what: &str, origin: &str) -> Result<StoreWriter, SourceError> {
        let mut writer = self.writer()?;
        let wrong = |error| SourceError::Read { path: path.to_owned(), error };
        let mut file = match open_regular(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(SourceError::NotThere {
                    what: what.to_owned(),
                    place: path.display().to_string(),
                    origin: origin.to_owned(),
                    asks: Vec::new(),
                });
            }
            Err(error) => return Err(wrong(error)),
        };
        let limit = self.options().network.largest_image;
        let meta = file.metadata().map_err(wrong)?;
        writer.copied_from(SourceFile::of(&meta));
        let bytes = meta.len();
        if bytes > limit.0 {
            return Err(SourceError::TooLarge { limit, url: path.display().to_string() });
        }
        let mut shown = self.options().progress.start(what, &path.display().to_string(), Some(bytes));
        let mut piece = vec![0; PIECE.min(bytes as usize + 1)];
        let mut done = 0;
        loop {
            let got = file.read(&mut piece).map_err(wrong)?;
            done += got as u64;
            if got == 0 {
                break;
            }
            if done > limit.0 {
                return Err(SourceError::TooLarge { limit, url: path.display().to_string() });
            }
            writer
                .write_all(&piece[..got])
                .map_err(|error| SourceError::Write { what: what.to_owned(), error })?;
            shown.advance(got as u64);
        }
        shown.finish();
        Ok(writer)
    }

    /// The image of a locked package: from the store, else from whoever has the digest, asked in this order: `--source` or
    /// `PLY_REGISTRY`, the lock's source, the default.
    pub(crate) fn ensure_locked(&self, package: &LockedPackage) -> Result<Entry, SourceError> {
        let arch = self.options().arch;
        let Some(digest) = package.digest.get(&arch).copied() else {
            let (name, version) = (package.name.clone(), package.version.clone());
            return Err(SourceError::NoDigest { name, version, arch });
        };
        let image = ImageName { name: package.name.clone(), version: package.version.clone(), arch };
        self.by_digest(&image, digest, Some(&package.source), &Owner::default())
    }

    /// An image by its digest, wherever it is.
    pub(crate) fn by_digest(
        &self,
        image: &ImageName,
        digest: Digest,
        locked_source: Option<&SourceSpec>,
        owner: &Owner,
    ) -> Result<Entry, SourceError> {
        if let Some(entry) = self.options().store.get(&digest)? {
            return check_name(entry, image);
        }
        let DefaultSource { spec: default, from } = &self.options().default_source;
        let said_now =
            self.options().source.as_ref().or((*from == SourceOrigin::Environment).then_some(default));
        let mut sources: Vec<&SourceSpec> = Vec::new();
        for source in [said_now, locked_source, Some(default)].into_iter().flatten() {
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        let mut errors = Vec::new();
        for source in sources {
            match self.take(source, owner, image, Some(digest)) {
                Ok(entry) => return Ok(entry),
                Err(error) => errors.push(error),
            }
        }
        if errors.len() == 1 {
            return Err(errors.remove(0));
        }
        let tried = errors.iter().map(ToString::to_string).collect();
        Err(SourceError::Missing { image: Box::new(image.clone()), digest, tried })
    }

    /// The image at a URL. Its file name is its name where it is one; else its manifest says it, and it is fetched each time,
    /// since only a version's name stands for bytes that never change.
    pub(crate) fn image_at(&self, url: &str) -> Result<Entry, SourceError> {
        let path = url.split(['?', '#']).next().unwrap_or(url);
        let file = path.rsplit('/').next().unwrap_or(path).replace("%2B", "+").replace("%2b", "+");
        let place = Place::Url(url.to_owned());
        if let Ok(image) = file.parse::<ImageName>() {
            return match self.fetched_before(&place, &image)? {
                Some(entry) => Ok(entry),
                None => self.fetch(&place, &place, url, &image, None),
            };
        }
        let store = &self.options().store;
        let what = if file.is_empty() { url.to_owned() } else { file };
        let wrong = |error| SourceError::Write { what: what.clone(), error };
        let open = || {
            let file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(store.dir()).map_err(wrong)?;
            // Whoever cleans the store up takes only what nobody has locked.
            rustix::fs::flock(file.as_file(), FlockOperation::LockExclusive)
                .map_err(|errno| wrong(errno.into()))?;
            Ok(file)
        };
        let wanted = Wanted { what: &what, url, origin: url };
        let (file, _) = download(self.client(), &wanted, &*self.options().progress, open)?;
        let manifest =
            Image::open(file.path()).and_then(|image| image.manifest_text()).map_err(|e| at_place(e, url))?;
        let package = Manifest::parse(&manifest, &format!("{what}/.manifest.toml"))
            .map_err(SourceError::Inside)?
            .package;
        let image = ImageName { name: package.name, version: package.version, arch: self.options().arch };
        let origin = Origin { source: Some(url.to_owned()), image };
        store.insert_file(file.path(), origin).map_err(|error| at_place(error, url))
    }

    /// The manifest of an entry, parsed once.
    pub(crate) fn manifest_of(&self, entry: &Entry) -> Result<Arc<Manifest>, SourceError> {
        if let Some(manifest) = self.manifests.lock().unwrap_or_else(|e| e.into_inner()).get(&entry.digest) {
            return Ok(manifest.clone());
        }
        let text = entry.manifest_text()?;
        let manifest =
            Manifest::parse(&text, &format!("{}/.manifest.toml", entry.name)).map_err(SourceError::Inside)?;
        let manifest = Arc::new(manifest);
        self.manifests.lock().unwrap_or_else(|e| e.into_inner()).insert(entry.digest, manifest.clone());
        Ok(manifest)
    }
}

/// The lock names a digest for a package; a package of another name behind it was locked by mistake or malice.
fn check_name(entry: Entry, image: &ImageName) -> Result<Entry, SourceError> {
    if (&entry.name.name, &entry.name.version) == (&image.name, &image.version) {
        return Ok(entry);
    }
    Err(SourceError::WrongName {
        place: entry.digest.to_string(),
        claimed: format!("{} {}", image.name, image.version),
        embedded: format!("{} {}", entry.name.name, entry.name.version),
    })
}

/// Opens a file that is one: a pipe or a device in its place would block or never end.
fn open_regular(path: &Path) -> std::io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    File::open(path)
}

/// The place that a catalog's `src` names. It is a full URL, and never leads from https to http.
fn elsewhere(beside: &Place, src: String) -> Result<Place, SourceError> {
    let from = beside.to_string();
    if !src.starts_with("https://") && !src.starts_with("http://") {
        return Err(SourceError::BadUrl { url: src });
    }
    if from.starts_with("https://") && !src.starts_with("https://") {
        return Err(SourceError::Downgrade { from, to: src });
    }
    Ok(Place::Url(src))
}

/// An error of the store, with the place that the bytes came from.
fn at_place(error: ImageError, place: &str) -> SourceError {
    match error {
        ImageError::WrongDigest { expected, found, .. } => {
            SourceError::WrongDigest { expected, got: found, url: place.to_owned() }
        }
        ImageError::WrongName { claimed, inside } => SourceError::WrongName {
            place: place.to_owned(),
            claimed: format!("{} {}", claimed.name, claimed.version),
            embedded: inside,
        },
        error @ (ImageError::NotAnImage { .. }
        | ImageError::NoManifest(_)
        | ImageError::BadManifest { .. }
        | ImageError::Damaged { .. }
        | ImageError::Unsupported { .. }) => {
            SourceError::NoImage { place: place.to_owned(), why: error.to_string() }
        }
        other => SourceError::Store(other),
    }
}
