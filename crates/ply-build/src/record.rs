//! How an unchanged build is recognised: by content. A record per directory and output says of what the image
//! was made, and remembers the digest of each file with what the file system said of it, so that only files that
//! may have changed are read again.
//!
//! A record is a cache: one that is missing, damaged or of another format costs a build, never a wrong image.

use crate::BuildError;
use crate::walk::Stat;
use ply_image::{Access, Lasts, write_atomic};
use ply_manifest::Digest;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The first line of a record; its number is the format.
const HEADER: &str = "ply build record 1";

/// A file that changed this little before it was hashed may change again without its times showing it.
const RACY_NS: i128 = 2_000_000_000;

/// What is known of one file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) digest: Digest,
    pub(crate) stat: Stat,
}

/// What an earlier build left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Of what the image was made.
    pub(crate) fingerprint: Digest,
    /// The image's digest.
    pub(crate) image: Digest,
    /// The image's file, when it was written; none where it is in the store.
    pub(crate) output: Option<Stat>,
    /// When the files were hashed, in nanoseconds since 1970.
    pub(crate) hashed_ns: i128,
    /// Each file, by its path beneath the directory.
    pub(crate) files: HashMap<Vec<u8>, Known>,
}

/// The folder of all records.
pub(crate) fn folder(data: &Path) -> PathBuf {
    data.join("builds")
}

/// The name of the record of a directory: `parts` are all that tells one build from another.
pub(crate) fn name(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    Digest::from_bytes(hash.finalize().into()).hex()[..32].to_owned()
}

pub(crate) fn now_ns() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i128)
}

impl Record {
    /// The record at `path`, or none where there is none that this ply can read.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        Self::parse(&std::fs::read(path).ok()?)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = bytes.split(|b| *b == b'\n');
        if lines.next()? != HEADER.as_bytes() {
            return None;
        }
        let mut field = |key: &str| {
            let line = std::str::from_utf8(lines.next()?).ok()?;
            line.strip_prefix(key)?.strip_prefix(' ').map(str::to_owned)
        };
        let fingerprint = field("made-of")?.parse().ok()?;
        let image = field("image")?.parse().ok()?;
        let hashed_ns = field("hashed")?.parse().ok()?;
        let output = match field("output")?.as_str() {
            "store" => None,
            stat => Some(parse_stat(&mut stat.split(' '))?),
        };
        let mut files = HashMap::new();
        let mut ended = false;
        for line in lines {
            // The last line says that nothing is missing.
            if line == b"end" {
                ended = true;
                break;
            }
            let mut parts = line.splitn(8, |b| *b == b' ');
            let mut numbers = parts.by_ref().take(7).map(|p| std::str::from_utf8(p).unwrap_or(""));
            let digest = numbers.next()?.parse().ok()?;
            let stat = parse_stat(&mut numbers)?;
            files.insert(unescape(parts.next()?)?, Known { digest, stat });
        }
        ended.then_some(Self { fingerprint, image, output, hashed_ns, files })
    }

    /// Writes the record. It is a cache: that it can't be written is nobody's error.
    pub(crate) fn write(&self, path: &Path) -> Result<(), BuildError> {
        let mut out = format!(
            "{HEADER}\nmade-of {}\nimage {}\nhashed {}\noutput {}\n",
            self.fingerprint,
            self.image,
            self.hashed_ns,
            self.output.map_or_else(|| "store".to_owned(), |s| show_stat(&s)),
        )
        .into_bytes();
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_by_key(|(path, _)| *path);
        for (path, known) in files {
            out.extend_from_slice(format!("{} {} ", known.digest, show_stat(&known.stat)).as_bytes());
            escape(path, &mut out);
            out.push(b'\n');
        }
        out.extend_from_slice(b"end\n");
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| BuildError::io("create", folder, e))?;
        }
        write_atomic(path, &out, Access::Umask, Lasts::PowerCut).map_err(|e| BuildError::io("write", path, e))
    }

    /// The digest of a file that the file system says is unchanged.
    fn known(&self, path: &[u8], stat: &Stat) -> Option<Digest> {
        let known = self.files.get(path)?;
        (known.stat == *stat && is_settled(stat, self.hashed_ns)).then_some(known.digest)
    }
}

/// Whether times of a file tell a change after `looked_ns`.
pub(crate) fn is_settled(stat: &Stat, looked_ns: i128) -> bool {
    stat.ctime_ns.max(stat.mtime_ns) + RACY_NS < looked_ns
}

fn show_stat(s: &Stat) -> String {
    format!("{} {} {} {} {} {}", s.size, s.mtime_ns, s.ctime_ns, s.ino, s.dev, s.mode)
}

fn parse_stat<'a>(parts: &mut impl Iterator<Item = &'a str>) -> Option<Stat> {
    Some(Stat {
        size: parts.next()?.parse().ok()?,
        mtime_ns: parts.next()?.parse().ok()?,
        ctime_ns: parts.next()?.parse().ok()?,
        ino: parts.next()?.parse().ok()?,
        dev: parts.next()?.parse().ok()?,
        mode: parts.next()?.parse().ok()?,
    })
}

fn escape(path: &[u8], out: &mut Vec<u8>) {
    for b in path {
        match b {
            b'\n' | b'%' => out.extend_from_slice(format!("%{b:02x}").as_bytes()),
            b => out.push(*b),
        }
    }
}

fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let hex = std::str::from_utf8(after.get(..2)?).ok()?;
            out.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &after[2..];
        } else {
            out.push(*first);
            rest = after;
        }
    }
    Some(out)
}

/// The digest of one file's content.
pub(crate) fn digest_of(path: &Path) -> Result<Digest, BuildError> {
    let mut file = File::open(path).map_err(|e| BuildError::io("read", path, e))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(Digest::from_bytes(hash.finalize().into())),
            Ok(n) => hash.update(&buffer[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(BuildError::io("read", path, e)),
        }
    }
}

/// The digests of `files` (full path, path beneath the directory, what the file system says), in their order:
/// from the record where it knows them, else by reading, on every core.
pub(crate) fn digests(
    files: &[(PathBuf, &[u8], Stat)],
    earlier: Option<&Record>,
    threads: usize,
) -> Result<Vec<Digest>, BuildError> {
    let mut known: Vec<Option<Digest>> =
        files.iter().map(|(_, path, stat)| earlier.and_then(|r| r.known(path, stat))).collect();
    let unknown: Vec<usize> = (0..files.len()).filter(|n| known[*n].is_none()).collect();
    let threads =
        if threads == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { threads };
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(&n) = unknown.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((n, digest_of(&files[n].0)?));
        }
        Ok::<_, BuildError>(done)
    };
    let workers = threads.min(unknown.len().div_ceil(16)).max(1);
    let parts: Vec<_> = std::thread::scope(|scope| {
        let spawned: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
        let mut parts = vec![work()];
        parts.extend(spawned.into_iter().map(|s| s.join().unwrap_or_else(|e| std::panic::resume_unwind(e))));
        parts
    });
    for part in parts {
        for (n, digest) in part? {
            known[n] = Some(digest);
        }
    }
    Ok(known.into_iter().flatten().collect())
}

/// Removes the records of directories that are gone: `ply gc` calls it. Returns how many bytes were freed.
pub fn sweep_records(data: &Path) -> u64 {
    let mut freed = 0;
    for entry in folder(data).read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        // The folder's name stands beside the record, as bytes.
        let Some(dir) =
            (path.extension() == Some("dir".as_ref())).then(|| std::fs::read(&path).ok()).flatten()
        else {
            continue;
        };
        if Path::new(std::ffi::OsStr::from_bytes(&dir)).is_dir() {
            continue;
        }
        for file in ["dir", "record", "lock"].map(|e| path.with_extension(e)) {
            let size = file.metadata().map_or(0, |m| m.len());
            if std::fs::remove_file(&file).is_ok() {
                freed += size;
            }
        }
    }
    freed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stat(n: u64) -> Stat {
        let ns = i128::from(n) * 1_000_000_007;
        Stat { size: n, mtime_ns: -ns, ctime_ns: ns, ino: n ^ 7, dev: n / 3, mode: n as u32 }
    }

    fn digest(n: u8) -> Digest {
        Digest::from_bytes([n; 32])
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            paths in proptest::collection::btree_set(proptest::collection::vec(1_u8.., 1..20), 0..8), n in any::<u32>(),
        ) {
            let temp = tempfile::tempdir().unwrap();
            let at = temp.path().join("deep/x.record");
            let record = Record {
                fingerprint: digest(1),
                image: digest(2),
                output: n.is_multiple_of(2).then(|| stat(n.into())),
                hashed_ns: i128::from(n),
                files: paths.into_iter().map(|p| (p, Known { digest: digest(3), stat: stat(n.into()) })).collect(),
            };
            record.write(&at).unwrap();
            prop_assert_eq!(Record::read(&at), Some(record));
            // Cut anywhere in front of its last line's end, it is no record.
            let bytes = std::fs::read(&at).unwrap();
            prop_assert_eq!(Record::parse(&bytes[..bytes.len() - 2 - n as usize % (bytes.len() - 2)]), None);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::parse(&bytes);
            let _ = Record::parse(&[format!("{HEADER}\n").as_bytes(), &bytes].concat());
        }
    }

    #[test]
    fn a_file_that_changed_just_before_it_was_hashed_is_read_again() {
        let mut record = Record {
            fingerprint: digest(1),
            image: digest(1),
            output: None,
            hashed_ns: 10_000_000_000,
            files: HashMap::new(),
        };
        let at = |ns| Stat { ctime_ns: ns, mtime_ns: 0, ..stat(1) };
        for (changed, expected) in [(7_000_000_000, true), (9_000_000_000, false), (11_000_000_000, false)] {
            record.files.insert(b"f".to_vec(), Known { digest: digest(9), stat: at(changed) });
            assert_eq!(record.known(b"f", &at(changed)).is_some(), expected, "{changed}");
        }
        assert_eq!(record.known(b"g", &at(0)), None);
        record.files.insert(b"f".to_vec(), Known { digest: digest(9), stat: at(5) });
        assert_eq!(record.known(b"f", &at(6)), None, "another time");
        assert_eq!(record.known(b"f", &at(5)), Some(digest(9)));
    }

    #[test]
    fn records_of_directories_that_are_gone_are_swept() {
        let temp = tempfile::tempdir().unwrap();
        let builds = folder(temp.path());
        std::fs::create_dir(&builds).unwrap();
        for (name, dir) in [("a", temp.path().as_os_str().as_bytes()), ("b", b"/nowhere/at/all")] {
            std::fs::write(builds.join(format!("{name}.dir")), dir).unwrap();
            std::fs::write(builds.join(format!("{name}.record")), b"12345").unwrap();
        }
        assert_eq!(sweep_records(temp.path()), 5 + 15);
        let mut left: Vec<_> = builds.read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.dir", "a.record"]);
    }
}
