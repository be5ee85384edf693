//! What goes into an image: a tree of names, made from a directory, from single files, or both. Nothing is read
//! here but names and attributes; the bytes of files are read when the tree is packed.

use crate::error::{ImageError, Result};
use crate::format::{LINK_MAX, NAME_MAX};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A tree to pack. Children are sorted by the bytes of their names, so that the order in which they were added
/// never reaches the image.
#[derive(Debug, Clone)]
pub struct Tree {
    pub(crate) nodes: Vec<Node>,
}

/// The index of the root.
pub(crate) const ROOT: u32 = 0;

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: Box<[u8]>,
    pub(crate) parent: u32,
    pub(crate) attr: Attr,
    pub(crate) kind: NodeKind,
}

#[derive(Debug, Clone)]
pub(crate) enum NodeKind {
    Dir(BTreeMap<Box<[u8]>, u32>),
    File(FileNode),
    Symlink(Box<[u8]>),
    Fifo,
    /// Another name of a file.
    Link(u32),
    /// Removed; its index is never used again.
    Gone,
}

#[derive(Debug, Clone)]
pub(crate) struct FileNode {
    pub(crate) source: Source,
    pub(crate) seen: Seen,
}

/// What a file looked like when it was added: it must look the same when it is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) size: u64,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) mtime: (i64, i64),
}

impl Seen {
    pub(crate) fn of(meta: &std::fs::Metadata) -> Self {
        Self { size: meta.size(), dev: meta.dev(), ino: meta.ino(), mtime: (meta.mtime(), meta.mtime_nsec()) }
    }
}

/// Where the bytes of a file come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A regular file on this host, read when the tree is packed; a symlink at the end is not followed.
    Path(PathBuf),
    /// These bytes.
    Bytes(Vec<u8>),
}

/// Extended attributes: full names (`user.x`, `security.capability`) and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Whether overlayfs takes an attribute of this name for a word to itself: which folder this one is in truth, what
/// it hides. A layer that could say that would show and hide what other layers hold. (The kernel's
/// Documentation/filesystems/overlayfs.rst; `user.` counts in a user namespace.)
pub(crate) fn is_overlay_mark(xattr: &[u8]) -> bool {
    xattr.starts_with(b"trusted.overlay.") || xattr.starts_with(b"user.overlay.")
}

/// Mode, owner and extended attributes of an entry. Packing without
/// [`keep_owners`](crate::PackOptions::keep_owners) keeps only whether a file is executable by its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    /// The lower twelve bits of a mode.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Extended attributes with their full names (`user.x`, `security.capability`), sorted by name.
    pub xattrs: Xattrs,
}

impl Attr {
    /// The attributes of root's file with this mode.
    pub fn mode(mode: u16) -> Self {
        Self { mode: mode & 0o7777, uid: 0, gid: 0, xattrs: Vec::new() }
    }
}

/// What an entry is, for those who look through a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A directory.
    Dir,
    /// A regular file.
    File,
    /// A symlink.
    Symlink,
    /// A fifo.
    Fifo,
    /// A socket; only seen in foreign images.
    Socket,
    /// A block or character device; only seen in foreign images.
    Device,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// A tree with a root directory of mode 0755 and nothing in it.
    pub fn new() -> Self {
        let root = Node {
            name: Box::default(),
            parent: ROOT,
            attr: Attr::mode(0o755),
            kind: NodeKind::Dir(BTreeMap::new()),
        };
        Self { nodes: vec![root] }
    }

    /// Adds a regular file. Missing parents are made with mode 0755; what was at `path` is replaced, except a
    /// directory.
    ///
    /// # Errors
    /// [`ImageError::BadPath`], and where the source is a path: [`ImageError::Vanished`], [`ImageError::Special`],
    /// [`ImageError::Io`].
    pub fn add_file(&mut self, path: impl AsRef<Path>, source: Source, attr: Attr) -> Result<()> {
        let seen = match &source {
            Source::Bytes(bytes) => Seen { size: bytes.len() as u64, dev: 0, ino: 0, mtime: (0, 0) },
            Source::Path(from) => {
                let meta = std::fs::symlink_metadata(from).map_err(|e| match e.kind() {
                    std::io::ErrorKind::NotFound => ImageError::Vanished(from.clone()),
                    _ => ImageError::io("read", from)(e),
                })?;
                if !meta.is_file() {
                    return Err(ImageError::BadPath { path: from.clone(), why: "it is not a regular file" });
                }
                Seen::of(&meta)
            }
        };
        self.add(path.as_ref(), attr, NodeKind::File(FileNode { source, seen })).map(drop)
    }

    /// Adds a directory, or gives one that is there these attributes. The root's path is `/` or empty.
    ///
    /// # Errors
    /// [`ImageError::BadPath`].
    pub fn add_dir(&mut self, path: impl AsRef<Path>, attr: Attr) -> Result<()> {
        let path = path.as_ref();
        match self.find(path) {
            Some(at) if matches!(self.nodes[at as usize].kind, NodeKind::Dir(_)) => {
                self.nodes[at as usize].attr = attr;
                Ok(())
            }
            _ => self.add(path, attr, NodeKind::Dir(BTreeMap::new())).map(drop),
        }
    }

    /// Adds a symlink with this target, byte for byte. Replaces what was there, except a directory.
    ///
    /// # Errors
    /// [`ImageError::BadPath`].
    pub fn add_symlink(
        &mut self,
        path: impl AsRef<Path>,
        target: impl AsRef<Path>,
        attr: Attr,
    ) -> Result<()> {
        let (path, target) = (path.as_ref(), target.as_ref().as_os_str().as_bytes());
        if target.is_empty() || target.len() > LINK_MAX || target.contains(&0) {
            return Err(ImageError::BadPath { path: path.to_owned(), why: "its target is no path" });
        }
        self.add(path, attr, NodeKind::Symlink(target.into())).map(drop)
    }

    /// Adds a fifo. Replaces what was there, except a directory.
    ///
    /// # Errors
    /// [`ImageError::BadPath`].
    pub fn add_fifo(&mut self, path: impl AsRef<Path>, attr: Attr) -> Result<()> {
        self.add(path.as_ref(), attr, NodeKind::Fifo).map(drop)
    }

    /// Adds another name for a file that is in the tree.
    ///
    /// # Errors
    /// [`ImageError::BadPath`], also where `to` is not a file of the tree.
    pub fn add_hard_link(&mut self, path: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let target = self.find(to.as_ref()).map(|at| match self.nodes[at as usize].kind {
            NodeKind::Link(file) => file,
            _ => at,
        });
        match target {
            Some(at) if self.find(path) == Some(at) => Ok(()),
            Some(at) if matches!(self.nodes[at as usize].kind, NodeKind::File(_)) => {
                let attr = self.nodes[at as usize].attr.clone();
                self.add(path, attr, NodeKind::Link(at)).map(drop)
            }
            _ => Err(ImageError::BadPath {
                path: path.to_owned(),
                why: "it is a hard link to no file of the tree",
            }),
        }
    }

    /// Takes an entry out, with everything below it. Returns whether it was there. Where a file with several
    /// names goes, the next name takes its place.
    pub fn remove(&mut self, path: impl AsRef<Path>) -> bool {
        match self.find(path.as_ref()) {
            None | Some(ROOT) => false,
            Some(at) => {
                self.detach(at);
                true
            }
        }
    }

    /// Whether there is an entry.
    pub fn contains(&self, path: impl AsRef<Path>) -> bool {
        self.find(path.as_ref()).is_some()
    }

    /// What an entry is, and its attributes.
    pub fn get(&self, path: impl AsRef<Path>) -> Option<(EntryKind, &Attr)> {
        self.find(path.as_ref()).map(|at| (self.kind_of(at), &self.nodes[at as usize].attr))
    }

    /// Gives an entry other attributes. Returns whether it was there.
    pub fn set_attr(&mut self, path: impl AsRef<Path>, attr: Attr) -> bool {
        let Some(at) = self.find(path.as_ref()) else { return false };
        let at = self.inode_of(at);
        self.nodes[at as usize].attr = attr;
        true
    }

    /// The target of a symlink.
    pub fn symlink_target(&self, path: impl AsRef<Path>) -> Option<&Path> {
        match &self.nodes[self.find(path.as_ref())? as usize].kind {
            NodeKind::Symlink(target) => Some(Path::new(OsStr::from_bytes(target))),
            _ => None,
        }
    }

    /// Where the bytes of a file come from.
    pub fn file_source(&self, path: impl AsRef<Path>) -> Option<&Source> {
        match &self.nodes[self.inode_of(self.find(path.as_ref())?) as usize].kind {
            NodeKind::File(file) => Some(&file.source),
            _ => None,
        }
    }

    /// Every entry but the root, directories before what is in them, sorted by name in each.
    pub fn entries(&self) -> impl Iterator<Item = (PathBuf, EntryKind)> + '_ {
        let mut stack: Vec<(PathBuf, u32)> = Vec::new();
        self.push_children(&mut stack, Path::new(""), ROOT);
        std::iter::from_fn(move || {
            let (path, at) = stack.pop()?;
            self.push_children(&mut stack, &path, at);
            let kind = self.kind_of(at);
            Some((path, kind))
        })
    }

    /// How many regular files there are, and the sum of their sizes in bytes; each name counts.
    pub fn files(&self) -> (u64, u64) {
        let size = |node: &Node| match &node.kind {
            NodeKind::File(file) => Some(file.seen.size),
            NodeKind::Link(to) => match &self.nodes[*to as usize].kind {
                NodeKind::File(file) => Some(file.seen.size),
                _ => None,
            },
            _ => None,
        };
        self.nodes.iter().filter_map(size).fold((0, 0), |(n, bytes), size| (n + 1, bytes + size))
    }

    fn push_children(&self, stack: &mut Vec<(PathBuf, u32)>, path: &Path, at: u32) {
        if let NodeKind::Dir(children) = &self.nodes[at as usize].kind {
            let below = children.iter().rev();
            stack.extend(below.map(|(name, child)| (path.join(OsStr::from_bytes(name)), *child)));
        }
    }

    fn kind_of(&self, at: u32) -> EntryKind {
        match &self.nodes[at as usize].kind {
            NodeKind::Dir(_) => EntryKind::Dir,
            NodeKind::Symlink(_) => EntryKind::Symlink,
            NodeKind::Fifo => EntryKind::Fifo,
            NodeKind::File(_) | NodeKind::Link(_) | NodeKind::Gone => EntryKind::File,
        }
    }

    /// The node that holds an entry's attributes: the file behind another name of it.
    fn inode_of(&self, at: u32) -> u32 {
        match self.nodes[at as usize].kind {
            NodeKind::Link(file) => file,
            _ => at,
        }
    }

    pub(crate) fn find(&self, path: &Path) -> Option<u32> {
        components(path).ok()?.into_iter().try_fold(ROOT, |at, name| match &self.nodes[at as usize].kind {
            NodeKind::Dir(children) => children.get(name).copied(),
            _ => None,
        })
    }

    pub(crate) fn add(&mut self, path: &Path, attr: Attr, kind: NodeKind) -> Result<u32> {
        let names = components(path)?;
        let Some((name, parents)) = names.split_last() else {
            return Err(ImageError::BadPath { path: path.to_owned(), why: "the root is a directory" });
        };
        let mut at = ROOT;
        for name in parents {
            let NodeKind::Dir(children) = &self.nodes[at as usize].kind else {
                unreachable!("checked below")
            };
            at = match children.get(*name) {
                Some(child) => *child,
                None => self.push(at, name, Attr::mode(0o755), NodeKind::Dir(BTreeMap::new()))?,
            };
            if !matches!(self.nodes[at as usize].kind, NodeKind::Dir(_)) {
                return Err(ImageError::BadPath {
                    path: path.to_owned(),
                    why: "its parent is not a directory",
                });
            }
        }
        let NodeKind::Dir(children) = &self.nodes[at as usize].kind else { unreachable!("checked above") };
        if let Some(old) = children.get(*name).copied() {
            if matches!(self.nodes[old as usize].kind, NodeKind::Dir(_)) {
                return Err(ImageError::BadPath {
                    path: path.to_owned(),
                    why: "a directory is there already",
                });
            }
            self.detach(old);
        }
        self.push(at, name, attr, kind)
    }

    pub(crate) fn push(&mut self, parent: u32, name: &[u8], mut attr: Attr, kind: NodeKind) -> Result<u32> {
        let at = u32::try_from(self.nodes.len()).map_err(|_| ImageError::TooMany("entries"))?;
        attr.mode &= 0o7777;
        attr.xattrs.sort();
        self.nodes.push(Node { name: name.into(), parent, attr, kind });
        if let NodeKind::Dir(children) = &mut self.nodes[parent as usize].kind {
            children.insert(name.into(), at);
        }
        Ok(at)
    }

    fn detach(&mut self, at: u32) {
        let (parent, name) = (self.nodes[at as usize].parent, self.nodes[at as usize].name.clone());
        if let NodeKind::Dir(children) = &mut self.nodes[parent as usize].kind {
            children.remove(&name);
        }
        let mut below = vec![at];
        while let Some(at) = below.pop() {
            match std::mem::replace(&mut self.nodes[at as usize].kind, NodeKind::Gone) {
                NodeKind::Dir(children) => below.extend(children.into_values()),
                NodeKind::File(file) => self.promote(at, file),
                _ => {}
            }
        }
    }

    /// The first other name of a file that goes becomes the file.
    fn promote(&mut self, gone: u32, file: FileNode) {
        let names: Vec<u32> = (0..self.nodes.len() as u32)
            .filter(|n| matches!(self.nodes[*n as usize].kind, NodeKind::Link(to) if to == gone))
            .collect();
        if let Some((first, rest)) = names.split_first() {
            self.nodes[*first as usize].attr = self.nodes[gone as usize].attr.clone();
            self.nodes[*first as usize].kind = NodeKind::File(file);
            for name in rest {
                self.nodes[*name as usize].kind = NodeKind::Link(*first);
            }
        }
    }
}

/// The names of a path, without `/` at either end. `.`, `..`, NUL and names that are too long are refused.
pub(crate) fn components(path: &Path) -> Result<Vec<&[u8]>> {
    let bad = |why| ImageError::BadPath { path: path.to_owned(), why };
    let mut names = Vec::new();
    for name in path.as_os_str().as_bytes().split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        match name {
            b"." => continue,
            b".." => return Err(bad("it has .. in it")),
            _ if name.len() > NAME_MAX => return Err(bad("a name has at most 255 bytes")),
            _ if name.contains(&0) => return Err(bad("it has a zero byte in it")),
            _ => names.push(name),
        }
    }
    Ok(names)
}
