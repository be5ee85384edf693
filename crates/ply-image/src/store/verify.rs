//! Re-hashing the store. What is wrong is reported and marked, so that it is fetched again; nothing is removed.

use super::entry::DAMAGED;
use super::record::{Record, write_synced};
use super::{IMAGE, LOCK, MANIFEST, Store};
use crate::bounded::read_text_at_most;
use crate::error::Result;
use crate::image::{Image, TEXT_LIMIT};
use crate::pack::digest_of;
use ply_manifest::{Digest, ImageName};
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a check of the store found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// How many entries are as their names say.
    pub good: usize,
    /// How many bytes were hashed.
    pub bytes: u64,
    /// What is wrong, by digest.
    pub wrong: Vec<Wrong>,
}

/// One entry that is not what its name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The digest that its folder claims.
    pub digest: Digest,
    /// Its name, where its record can be read.
    pub name: Option<ImageName>,
    /// What is wrong, in one sentence.
    pub why: String,
}

impl Store {
    /// Hashes every image again and compares what stands beside it. A wrong entry is marked: from then on the
    /// store does as if it were not there, so that the next fetch replaces it.
    ///
    /// # Errors
    /// [`ImageError::Io`](crate::ImageError::Io) where the store itself can't be read.
    pub fn verify(&self, threads: usize) -> Result<VerifyReport> {
        let digests = self.digests()?;
        let threads = match threads {
            0 => crate::pack::cores(),
            n => n,
        };
        let next = AtomicUsize::new(0);
        let report = Mutex::new(VerifyReport::default());
        std::thread::scope(|scope| {
            for _ in 0..threads.min(digests.len()) {
                scope.spawn(|| {
                    while let Some(digest) = digests.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let place = self.folder(digest);
                        let outcome = check(&place, digest);
                        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                        match outcome {
                            Some(Ok(bytes)) => {
                                // What was wrong once was put right by hand.
                                let _ = std::fs::remove_file(place.join(DAMAGED));
                                report.good += 1;
                                report.bytes += bytes;
                            }
                            Some(Err(why)) => {
                                let name = Record::read(&place).ok().flatten().map(|record| record.image);
                                report.wrong.push(Wrong { digest: *digest, name, why });
                            }
                            None => {}
                        }
                    }
                });
            }
        });
        let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.wrong.sort_by_key(|wrong| wrong.digest);
        for wrong in &report.wrong {
            let mark = self.folder(&wrong.digest).join(DAMAGED);
            // A store that can't be written is still reported.
            let _ = write_synced(&mark, wrong.why.as_bytes());
            let _ = std::fs::File::open(self.dir())
                .and_then(|dir| dir.set_modified(std::time::SystemTime::now()));
        }
        Ok(report)
    }
}

/// The bytes that were hashed, or what is wrong; none where the entry went away meanwhile.
fn check(place: &Path, digest: &Digest) -> Option<std::result::Result<u64, String>> {
    let mut file = match File::open(place.join(IMAGE)) {
        Ok(file) => file,
        Err(_) if !place.exists() => return None,
        Err(e) => return Some(Err(format!("its image can't be opened: {e}"))),
    };
    let (found, bytes) = match digest_of(&mut file) {
        Ok(found) => found,
        Err(e) => return Some(Err(format!("its image can't be read: {e}"))),
    };
    if found != *digest {
        return Some(Err(format!("its image has the digest {found}")));
    }
    Some(beside(place, file).map(|()| bytes))
}

/// Record, manifest and lock beside the image say what the image says.
fn beside(place: &Path, file: File) -> std::result::Result<(), String> {
    let record = Record::read(place).map_err(|e| e.to_string())?.ok_or("it has no record")?;
    let image = Image::from_file(file, &place.join(IMAGE)).map_err(|e| e.to_string())?;
    image.check().map_err(|e| e.to_string())?;
    let text = |name: &str| read_text_at_most(&place.join(name), TEXT_LIMIT).ok();
    if Some(image.manifest_text().map_err(|e| e.to_string())?) != text(MANIFEST) {
        return Err("the manifest beside its image is another one".to_owned());
    }
    let lock = image.lock_text().map_err(|e| e.to_string())?;
    if lock != text(LOCK) || lock.is_some() != record.has_lock {
        return Err("the lock beside its image is another one".to_owned());
    }
    Ok(())
}
