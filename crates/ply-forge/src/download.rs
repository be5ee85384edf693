//! Fetching what packages are made of, into a cache by digest: a second forge downloads nothing that it has.

use crate::error::{ForgeError, Result};
use crate::http::Client;
use sha2::{Digest as _, Sha256, Sha512};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// As many downloads run at once.
const AT_ONCE: usize = 6;

/// The digest that bytes must have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Expected {
    Sha256([u8; 32]),
    Sha512([u8; 64]),
}

impl Expected {
    /// From the hex digits of a Debian index; `None` for anything else.
    pub(crate) fn sha256_hex(hex: &str) -> Option<Self> {
        if hex.len() != 64 || !hex.is_ascii() {
            return None;
        }
        let mut bytes = [0; 32];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Self::Sha256(bytes))
    }

    /// From npm's `sha512-<base64>`.
    pub(crate) fn integrity(text: &str) -> Option<Self> {
        let bytes = crate::base64::decode(text.split_whitespace().find_map(|t| t.strip_prefix("sha512-"))?)?;
        bytes.try_into().ok().map(Self::Sha512)
    }

    fn hex(&self) -> String {
        match self {
            Self::Sha256(bytes) => hex(bytes),
            Self::Sha512(bytes) => hex(bytes),
        }
    }

    fn file(&self) -> String {
        match self {
            Self::Sha256(_) => format!("sha256-{}", self.hex()),
            Self::Sha512(_) => format!("sha512-{}", self.hex()),
        }
    }

    /// The digest of the same kind of what a reader gives, and its length.
    fn of(&self, mut from: impl Read, mut to: impl Write, limit: u64) -> std::io::Result<(Self, u64)> {
        let mut buffer = vec![0; 64 << 10];
        let (mut short, mut long, mut len) = (Sha256::new(), Sha512::new(), 0_u64);
        loop {
            let n = from.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            len += n as u64;
            if len > limit {
                return Err(std::io::Error::other(format!(
                    "more than the {limit} bytes that were promised came"
                )));
            }
            match self {
                Self::Sha256(_) => short.update(&buffer[..n]),
                Self::Sha512(_) => long.update(&buffer[..n]),
            }
            to.write_all(&buffer[..n])?;
        }
        Ok(match self {
            Self::Sha256(_) => (Self::Sha256(short.finalize().into()), len),
            Self::Sha512(_) => (Self::Sha512(long.finalize().into()), len),
        })
    }
}

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

/// One file to have.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) url: String,
    pub(crate) expected: Expected,
    /// Its length, where the index says.
    pub(crate) bytes: Option<u64>,
}

/// The most bytes that are taken where no index says how many there are.
const UNKNOWN_LENGTH: u64 = 2 << 30;

/// The cache and the way to fill it.
#[derive(Debug)]
pub(crate) struct Downloads {
    dir: PathBuf,
    client: Client,
    fetched: AtomicU64,
}

impl Downloads {
    /// A cache in `dir`, made if it is not there.
    pub(crate) fn new(dir: &Path, client: Client) -> Result<Self> {
        for part in ["files", "release", "work"] {
            let path = dir.join(part);
            fs::create_dir_all(&path).map_err(ForgeError::file("cannot create", &path))?;
        }
        sweep(&dir.join("work"));
        Ok(Self { dir: dir.to_path_buf(), client, fetched: AtomicU64::new(0) })
    }

    /// A folder for what is being worked on.
    pub(crate) fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// Bytes that came over the network so far.
    pub(crate) fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    /// The file of this digest, if the cache has it whole.
    pub(crate) fn cached(&self, expected: &Expected) -> Option<PathBuf> {
        let path = self.dir.join("files").join(expected.file());
        let (found, _) = expected.of(File::open(&path).ok()?, std::io::sink(), u64::MAX).ok()?;
        (found == *expected).then_some(path)
    }

    /// The file in the cache, fetched if it is not there or not whole.
    pub(crate) fn get(&self, wanted: &Wanted) -> Result<PathBuf> {
        if let Some(path) = self.cached(&wanted.expected) {
            return Ok(path);
        }
        let path = self.dir.join("files").join(wanted.expected.file());
        let limit = wanted.bytes.unwrap_or(UNKNOWN_LENGTH);
        let mut reply = self.client.get(&wanted.url, None)?.body(&wanted.url)?;
        let (temporary, mut file) = self.temporary()?;
        let copied = wanted.expected.of(&mut reply, &mut file, limit);
        let result = (|| {
            let (found, len) =
                copied.map_err(|e| ForgeError::Fetch { url: wanted.url.clone(), why: e.to_string() })?;
            self.fetched.fetch_add(len, Ordering::Relaxed);
            if found != wanted.expected {
                return Err(ForgeError::WrongBytes {
                    url: wanted.url.clone(),
                    expected: wanted.expected.hex(),
                    found: found.hex(),
                });
            }
            file.sync_all().map_err(ForgeError::file("cannot write", &temporary))?;
            fs::rename(&temporary, &path).map_err(ForgeError::file("cannot write", &path))
        })();
        if result.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        result.map(|()| path)
    }

    /// Several files, in the order in which they are asked for, a few at once.
    pub(crate) fn get_all(&self, wanted: &[Wanted]) -> Result<Vec<PathBuf>> {
        let next = AtomicUsize::new(0);
        let found: Mutex<Vec<Option<Result<PathBuf>>>> =
            Mutex::new((0..wanted.len()).map(|_| None).collect());
        let work = || {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some(one) = wanted.get(i) else { return };
                let got = self.get(one);
                if got.is_err() {
                    next.store(wanted.len(), Ordering::Relaxed);
                }
                found.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[i] = Some(got);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE.min(wanted.len()) {
                scope.spawn(work);
            }
        });
        let found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        // What was not begun stands behind the error that stopped it.
        let mut paths = Vec::with_capacity(wanted.len());
        let mut skipped = false;
        for one in found {
            match one {
                Some(Ok(path)) => paths.push(path),
                Some(Err(e)) => return Err(e),
                None => skipped = true,
            }
        }
        debug_assert!(!skipped, "a download was skipped without an error");
        Ok(paths)
    }

    /// A small file that changes under its URL (a release file, npm's metadata): asked for anew, with the cached copy
    /// standing in where the server says it is the same. `Ok(None)` where there is no such file.
    ///
    /// The flag is true where the network did not answer and the cached copy stood in.
    pub(crate) fn fresh(&self, url: &str, limit: u64) -> Result<Option<(Vec<u8>, bool)>> {
        let key = hex(&<[u8; 32]>::from(Sha256::digest(url.as_bytes())));
        let body = self.dir.join("release").join(&key);
        // The validator and the body are one file, so that one rename replaces both.
        let cached = fs::read(&body).ok().and_then(|bytes| {
            let end = bytes.iter().position(|b| *b == b'\n')?;
            let validator = String::from_utf8(bytes[..end].to_vec()).ok()?;
            Some((validator, bytes[end + 1..].to_vec()))
        });
        let validator = cached.as_ref().map(|(v, _)| v.as_str()).filter(|v| !v.is_empty());
        let reply = match (self.client.get(url, validator), &cached) {
            (Ok(reply), _) => reply,
            (Err(ForgeError::Fetch { .. } | ForgeError::Network(_)), Some((_, bytes))) => {
                return Ok(Some((bytes.clone(), true)));
            }
            (Err(e), _) => return Err(e),
        };
        if reply.status == 304
            && let Some((_, bytes)) = cached
        {
            return Ok(Some((bytes, false)));
        }
        if reply.status == 404 {
            return Ok(None);
        }
        let validator = reply.validator.clone().unwrap_or_default();
        let mut bytes = Vec::new();
        let read = reply.body(url)?.take(limit + 1).read_to_end(&mut bytes);
        read.map_err(|e| ForgeError::Fetch { url: url.to_owned(), why: e.to_string() })?;
        if bytes.len() as u64 > limit {
            return Err(ForgeError::Fetch {
                url: url.to_owned(),
                why: format!("it is longer than {limit} bytes"),
            });
        }
        self.fetched.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let (temporary, mut file) = self.temporary()?;
        let kept = file.write_all(validator.as_bytes()).and_then(|()| file.write_all(b"\n"));
        kept.and_then(|()| file.write_all(&bytes)).map_err(ForgeError::file("cannot write", &temporary))?;
        fs::rename(&temporary, &body).map_err(ForgeError::file("cannot write", &body))?;
        Ok(Some((bytes, false)))
    }

    fn temporary(&self) -> Result<(PathBuf, File)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("download.{}.{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = self.work().join(name);
        let file = File::create(&path).map_err(ForgeError::file("cannot create", &path))?;
        Ok((path, file))
    }
}

/// Takes away what forges that were killed left: `<word>.<pid>.<n>`, where that process is gone.
fn sweep(work: &Path) {
    let Ok(listed) = fs::read_dir(work) else { return };
    for item in listed.filter_map(std::result::Result::ok) {
        let name = item.file_name();
        let pid = name.to_str().and_then(|n| n.split('.').nth(1)?.parse::<i32>().ok());
        if pid.is_some_and(|pid| !is_alive(pid)) {
            let path = item.path();
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

/// Whether a process of this id runs, whoever's it is.
pub(crate) fn is_alive(pid: i32) -> bool {
    rustix::process::Pid::from_raw(pid)
        .is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}
