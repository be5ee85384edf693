//! A tree of files that is being put together, before it is packed. Names come from archives that nobody has
//! to trust, so the tree lives in memory and is never laid out on the host: a `..`, an absolute name or a link
//! that points outside has nothing to escape into. Big contents are spooled to files with names of our own.

use crate::error::{ForgeError, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Contents above this many bytes go to the spool.
const IN_MEMORY: u64 = 32 << 10;
/// As many links as the kernel follows in one path (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Mode, owner and group of an entry; the mode without the type's bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Meta {
    /// Root's, with this mode.
    pub(crate) const fn root(mode: u32) -> Self {
        Self { mode, uid: 0, gid: 0 }
    }
}

/// The bytes of a file, in memory or in the spool. Clones share them.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    Bytes(Arc<[u8]>),
    Spooled(Arc<PathBuf>),
}

impl Data {
    /// The first `limit` bytes.
    pub(crate) fn head(&self, limit: usize) -> Result<Vec<u8>> {
        match self {
            Self::Bytes(bytes) => Ok(bytes[..bytes.len().min(limit)].to_vec()),
            Self::Spooled(path) => {
                let mut out = Vec::new();
                let file =
                    File::open(path.as_path()).map_err(ForgeError::file("cannot read", path.as_path()))?;
                file.take(limit as u64)
                    .read_to_end(&mut out)
                    .map_err(ForgeError::file("cannot read", path.as_path()))?;
                Ok(out)
            }
        }
    }

    /// All bytes.
    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        self.head(usize::MAX)
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

/// What stands at a path.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Dir(Meta),
    File(Meta, Data),
    Link(Vec<u8>),
}

/// A folder of spooled contents, removed with its last user.
#[derive(Debug)]
pub(crate) struct Spool {
    dir: PathBuf,
    next: AtomicU64,
}

impl Spool {
    /// A fresh spool below `parent`.
    pub(crate) fn new(parent: &Path) -> Result<Arc<Self>> {
        use std::os::unix::fs::DirBuilderExt;
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let pid = std::process::id();
        loop {
            let dir = parent.join(format!("spool.{pid}.{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
            match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(Arc::new(Self { dir, next: AtomicU64::new(0) })),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(ForgeError::file("cannot create", dir)(e)),
            }
        }
    }

    /// Takes exactly `len` bytes from `from`; fewer is an error of the reader's.
    pub(crate) fn take(&self, from: &mut dyn Read, len: u64) -> std::io::Result<Data> {
        let short = || std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the file ends early");
        if len <= IN_MEMORY {
            let mut bytes = Vec::with_capacity(len as usize);
            from.take(len).read_to_end(&mut bytes)?;
            return if bytes.len() as u64 == len { Ok(bytes.into()) } else { Err(short()) };
        }
        let path = self.dir.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        let mut file = File::create_new(&path)?;
        let copied = std::io::copy(&mut from.take(len), &mut file)?;
        file.flush()?;
        if copied == len { Ok(Data::Spooled(Arc::new(path))) } else { Err(short()) }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The tree. Keys are paths without a leading or trailing slash, as bytes; the root itself has no entry, and
/// every entry's parents are there as folders.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files(BTreeMap<Vec<u8>, Entry>);

impl Files {
    pub(crate) fn get(&self, path: &[u8]) -> Option<&Entry> {
        self.0.get(path)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Vec<u8>, &Entry)> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Entries below a folder (not the folder itself), with whole paths.
    pub(crate) fn below<'a>(
        &'a self,
        dir: &[u8],
    ) -> impl Iterator<Item = (&'a Vec<u8>, &'a Entry)> + use<'a> {
        let mut prefix = dir.to_vec();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let end = prefix.clone();
        self.0.range(prefix..).take_while(move |(path, _)| path.starts_with(&end))
    }

    /// Removes what `unwanted` names, and whatever lies below a removed folder.
    pub(crate) fn remove_where(&mut self, mut unwanted: impl FnMut(&[u8], &Entry) -> bool) {
        let mut gone: Option<Vec<u8>> = None;
        self.0.retain(|path, entry| {
            if let Some(dir) = &gone
                && path.starts_with(dir)
            {
                return false;
            }
            if !unwanted(path, entry) {
                return true;
            }
            if matches!(entry, Entry::Dir(_)) {
                let mut dir = path.clone();
                dir.push(b'/');
                gone = Some(dir);
            }
            false
        });
    }

    /// Removes folders that hold nothing, other than those that `keep` names.
    pub(crate) fn remove_empty_dirs(&mut self, keep: impl Fn(&[u8]) -> bool) {
        let paths: Vec<Vec<u8>> = self.0.keys().rev().cloned().collect();
        for path in paths {
            if matches!(self.0.get(&path), Some(Entry::Dir(_)))
                && !keep(&path)
                && self.below(&path).next().is_none()
            {
                self.0.remove(&path);
            }
        }
    }

    /// Where a path leads when links are followed inside the tree, the last name included if `last`. The result
    /// may name nothing. `None` for a circle of links.
    pub(crate) fn resolve(&self, path: &[u8], last: bool) -> Option<Vec<u8>> {
        let mut todo: Vec<Vec<u8>> = names(path).rev().map(<[u8]>::to_vec).collect();
        let mut at: Vec<u8> = Vec::new();
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == b".." {
                at.truncate(at.iter().rposition(|b| *b == b'/').unwrap_or(0));
                continue;
            }
            let parent = at.len();
            if !at.is_empty() {
                at.push(b'/');
            }
            at.extend_from_slice(&name);
            if let Some(Entry::Link(target)) = self.0.get(&at)
                && (last || !todo.is_empty())
            {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                at.truncate(if target.starts_with(b"/") { 0 } else { parent });
                todo.extend(names(target).rev().map(<[u8]>::to_vec));
            }
        }
        Some(at)
    }

    /// The entry that a path leads to, links followed.
    pub(crate) fn follow(&self, path: &[u8]) -> Option<&Entry> {
        self.0.get(&self.resolve(path, true)?)
    }

    /// Puts an entry at a path, following links of the tree in its parents (so that `bin/sh` lands in `usr/bin`),
    /// and making parents that are missing. A folder over a link to a folder leaves the link (as dpkg does); a
    /// folder over a folder takes the new mode and owner. Returns the place.
    ///
    /// # Errors
    /// The reason in words: a circle, or a parent that is a file.
    pub(crate) fn put(&mut self, path: &[u8], entry: Entry) -> Result<Vec<u8>, String> {
        let shown = || String::from_utf8_lossy(path).into_owned();
        let at = self
            .resolve(path, false)
            .ok_or_else(|| format!("{:?} lies behind a circle of links", shown()))?;
        if at.is_empty() {
            return Ok(at);
        }
        for (i, _) in at.iter().enumerate().filter(|(_, b)| **b == b'/') {
            match self.0.get(&at[..i]) {
                Some(Entry::Dir(_)) => {}
                None => drop(self.0.insert(at[..i].to_vec(), Entry::Dir(Meta::root(0o755)))),
                Some(_) => return Err(format!("{:?} lies below something that is no folder", shown())),
            }
        }
        match (self.0.get(&at), &entry) {
            (Some(Entry::Link(_)), Entry::Dir(_)) => {
                if matches!(self.follow(&at), Some(Entry::Dir(_))) {
                    return Ok(at);
                }
                return Err(format!(
                    "the folder {:?} stands where a link stands that leads to none",
                    shown()
                ));
            }
            (Some(Entry::Dir(_)), Entry::File(..) | Entry::Link(_)) if self.below(&at).next().is_some() => {
                return Err(format!("{:?} stands where a folder stands", shown()));
            }
            _ => {}
        }
        self.0.insert(at.clone(), entry);
        Ok(at)
    }

    /// A file of root's with this text.
    pub(crate) fn put_text(&mut self, path: &str, mode: u32, text: impl Into<Vec<u8>>) {
        let placed = self.put(path.as_bytes(), Entry::File(Meta::root(mode), text.into().into()));
        debug_assert!(placed.is_ok(), "{path}: {placed:?}");
    }

    /// A link.
    pub(crate) fn put_link(&mut self, path: &str, target: &str) {
        let placed = self.put(path.as_bytes(), Entry::Link(target.as_bytes().to_vec()));
        debug_assert!(placed.is_ok(), "{path}: {placed:?}");
    }

    /// A folder.
    pub(crate) fn put_dir(&mut self, path: &str, meta: Meta) {
        let placed = self.put(path.as_bytes(), Entry::Dir(meta));
        debug_assert!(placed.is_ok(), "{path}: {placed:?}");
    }

    /// Adds what `other` holds, an entry of it winning over one of this tree.
    pub(crate) fn merge(&mut self, other: &Files) -> Result<(), String> {
        for (path, entry) in other.iter() {
            self.put(path, entry.clone())?;
        }
        Ok(())
    }

    /// Reads a folder of the host into the tree under `at`: regular files, folders and links as they are, anything
    /// else refused by name. Owners become root's.
    pub(crate) fn read_dir(&mut self, dir: &Path, at: &str, spool: &Spool) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let mut todo = vec![(dir.to_path_buf(), at.as_bytes().to_vec())];
        let refused =
            |path: &Path, why: String| ForgeError::Archive { archive: path.display().to_string(), why };
        while let Some((host, inside)) = todo.pop() {
            let listed = std::fs::read_dir(&host).map_err(ForgeError::file("cannot read", &host))?;
            for item in listed {
                let item = item.map_err(ForgeError::file("cannot read", &host))?;
                let path = item.path();
                let mut place = inside.clone();
                if !place.is_empty() {
                    place.push(b'/');
                }
                place.extend_from_slice(item.file_name().as_bytes());
                let meta =
                    std::fs::symlink_metadata(&path).map_err(ForgeError::file("cannot read", &path))?;
                let mode = meta.permissions().mode() & 0o7777;
                let entry = if meta.is_dir() {
                    todo.push((path.clone(), place.clone()));
                    Entry::Dir(Meta::root(mode))
                } else if meta.is_symlink() {
                    let target = std::fs::read_link(&path).map_err(ForgeError::file("cannot read", &path))?;
                    Entry::Link(target.as_os_str().as_bytes().to_vec())
                } else if meta.is_file() {
                    let mut file = File::open(&path).map_err(ForgeError::file("cannot read", &path))?;
                    let data =
                        spool.take(&mut file, meta.len()).map_err(ForgeError::file("cannot read", &path))?;
                    Entry::File(Meta::root(mode), data)
                } else {
                    return Err(refused(&path, "it is neither a file, a folder nor a link".to_owned()));
                };
                self.put(&place, entry).map_err(|why| refused(&path, why))?;
            }
        }
        Ok(())
    }
}

/// The names of a path, without empty ones and `.`.
pub(crate) fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|name| !name.is_empty() && *name != b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Entry {
        Entry::File(Meta::root(0o644), text.as_bytes().to_vec().into())
    }

    #[test]
    fn parents_that_are_links_are_followed_inside_the_tree() {
        let mut files = Files::default();
        files.put_dir("usr/bin", Meta::root(0o755));
        files.put_link("bin", "usr/bin");
        assert_eq!(files.put(b"/bin/sh", file("x")).unwrap(), b"usr/bin/sh");
        assert_eq!(files.put(b"./bin/", Entry::Dir(Meta::root(0o700))).unwrap(), b"bin");
        assert!(
            matches!(files.get(b"bin"), Some(Entry::Link(_))),
            "a folder over a link to a folder leaves it"
        );
        files.put_link("etc/up", "../../../../usr");
        assert_eq!(files.put(b"etc/up/lib", file("y")).unwrap(), b"usr/lib", ".. stops at the root");
    }

    #[test]
    fn circles_and_files_in_the_way_are_refused() {
        let mut files = Files::default();
        files.put_link("a", "b");
        files.put_link("b", "a");
        assert!(files.put(b"a/x", file("")).unwrap_err().contains("circle"));
        files.put_text("f", 0o644, "");
        assert!(files.put(b"f/x", file("")).unwrap_err().contains("no folder"));
        files.put_text("d/x", 0o644, "");
        assert!(files.put(b"d", file("")).unwrap_err().contains("where a folder stands"));
    }

    #[test]
    fn removing_a_folder_removes_what_it_holds_and_nothing_beside_it() {
        let mut files = Files::default();
        for path in ["usr/share/man/a", "usr/share/man-db", "usr/share/manx/b"] {
            files.put_text(path, 0o644, "");
        }
        files.remove_where(|path, _| path == b"usr/share/man");
        let left: Vec<_> = files.iter().map(|(p, _)| String::from_utf8_lossy(p).into_owned()).collect();
        assert_eq!(left, ["usr", "usr/share", "usr/share/man-db", "usr/share/manx", "usr/share/manx/b"]);
    }
}
