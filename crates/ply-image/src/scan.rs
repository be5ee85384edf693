//! A directory on this host as a [`Tree`]: names, kinds and attributes, no bytes of files.

use crate::error::{ImageError, Result};
use crate::tree::{Attr, FileNode, Node, NodeKind, ROOT, Seen, Source, Tree, Xattrs};
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Says whether a path (relative to the directory; whether it is a directory) is taken.
pub type Filter<'a> = &'a dyn Fn(&Path, bool) -> bool;

/// How a directory is looked at.
#[derive(Default)]
pub struct ScanOptions<'a> {
    /// Where the directory stands in the image: `opt/app`; empty for the root.
    pub prefix: PathBuf,
    /// Modes, owners, `security.capability` and `user.*` xattrs, hard links and fifos are kept: a base or a fat image.
    pub keep_owners: bool,
    /// Sockets, devices (and fifos, where they are not kept) are left out and listed, not refused.
    pub skip_special: bool,
    /// Which paths, relative to the directory, are taken; everything where none is given. A directory that is
    /// not taken is not entered.
    pub filter: Option<Filter<'a>>,
}

/// What a scan left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The path relative to the directory.
    pub path: PathBuf,
    /// `socket`, `device` or `fifo`.
    pub kind: &'static str,
}

impl Tree {
    /// The tree of one directory.
    ///
    /// # Errors
    /// As [`Tree::scan_into`].
    pub fn scan(dir: &Path, options: &ScanOptions<'_>) -> Result<Self> {
        let mut tree = Self::new();
        tree.scan_into(dir, options)?;
        Ok(tree)
    }

    /// Adds what is in a directory beneath [`ScanOptions::prefix`], and returns what was left out. Symlinks are
    /// taken as they are and never followed.
    ///
    /// # Errors
    /// [`ImageError::Special`] names what can't be packed; [`ImageError::Vanished`] and [`ImageError::Io`].
    pub fn scan_into(&mut self, dir: &Path, options: &ScanOptions<'_>) -> Result<Vec<Skipped>> {
        let meta = std::fs::metadata(dir).map_err(ImageError::io("read", dir))?;
        let keep = options.keep_owners;
        let root_attr = attr(dir, &meta, keep)?;
        let top = if crate::tree::components(&options.prefix)?.is_empty() {
            self.nodes[ROOT as usize].attr = root_attr;
            ROOT
        } else {
            self.add_dir(&options.prefix, root_attr)?;
            self.find(&options.prefix).unwrap_or(ROOT)
        };
        let mut scan = Scan { tree: self, options, links: HashMap::new(), skipped: Vec::new() };
        let mut todo = vec![(top, PathBuf::new())];
        while let Some((at, below)) = todo.pop() {
            scan.directory(dir, at, &below, &mut todo)?;
        }
        Ok(scan.skipped)
    }
}

struct Scan<'t, 'o> {
    tree: &'t mut Tree,
    options: &'o ScanOptions<'o>,
    /// Files with several names, by device and inode.
    links: HashMap<(u64, u64), u32>,
    skipped: Vec<Skipped>,
}

impl Scan<'_, '_> {
    fn directory(&mut self, top: &Path, at: u32, below: &Path, todo: &mut Vec<(u32, PathBuf)>) -> Result<()> {
        let dir = top.join(below);
        let listing = std::fs::read_dir(&dir).map_err(lost("read", &dir))?;
        let mut names = Vec::new();
        for entry in listing {
            names.push(entry.map_err(lost("read", &dir))?.file_name());
        }
        names.sort();
        let first = todo.len();
        for name in names {
            let (path, relative) = (dir.join(&name), below.join(&name));
            let left_out = |is_dir| self.options.filter.is_some_and(|take| !take(&relative, is_dir));
            let meta = match std::fs::symlink_metadata(&path) {
                // What isn't taken may come and go: another build's temporary file.
                Err(_) if left_out(false) => continue,
                meta => meta.map_err(lost("read", &path))?,
            };
            if left_out(meta.is_dir()) {
                continue;
            }
            if let Some(child) = self.entry(at, name.as_bytes(), &path, &relative, &meta)?
                && meta.is_dir()
            {
                todo.push((child, relative));
            }
        }
        // The first name in sorted order is visited first, so that the first name of a hard link is the same
        // whatever order the directory was made in.
        todo[first..].reverse();
        Ok(())
    }

    fn entry(
        &mut self,
        parent: u32,
        name: &[u8],
        path: &Path,
        relative: &Path,
        meta: &std::fs::Metadata,
    ) -> Result<Option<u32>> {
        let keep = self.options.keep_owners;
        let file_type = meta.file_type();
        if let NodeKind::Dir(children) = &self.tree.nodes[parent as usize].kind
            && let Some(old) = children.get(name)
            && meta.is_dir()
            && matches!(self.tree.nodes[*old as usize].kind, NodeKind::Dir(_))
        {
            let old = *old;
            self.tree.nodes[old as usize].attr = attr(path, meta, keep)?;
            return Ok(Some(old));
        }
        let special = if file_type.is_socket() {
            Some("socket")
        } else if file_type.is_block_device() || file_type.is_char_device() {
            Some("device")
        } else if file_type.is_fifo() && !keep {
            Some("fifo")
        } else {
            None
        };
        if let Some(kind) = special {
            if !self.options.skip_special {
                return Err(ImageError::Special { kind, path: path.to_owned() });
            }
            self.skipped.push(Skipped { path: relative.to_owned(), kind });
            return Ok(None);
        }
        let id = (meta.dev(), meta.ino());
        let kind = if meta.is_dir() {
            NodeKind::Dir(BTreeMap::new())
        } else if meta.is_symlink() {
            let target = std::fs::read_link(path).map_err(lost("read", path))?;
            NodeKind::Symlink(target.into_os_string().into_vec().into())
        } else if file_type.is_fifo() {
            NodeKind::Fifo
        } else if let Some(file) = (meta.nlink() > 1).then(|| self.links.get(&id)).flatten() {
            NodeKind::Link(*file)
        } else {
            NodeKind::File(FileNode { source: Source::Path(path.to_owned()), seen: Seen::of(meta) })
        };
        let is_file = matches!(kind, NodeKind::File(_));
        let at = self.tree.replace(parent, name, path, attr(path, meta, keep)?, kind)?;
        if is_file && meta.nlink() > 1 {
            self.links.insert(id, at);
        }
        Ok(Some(at))
    }
}

impl Tree {
    fn replace(&mut self, parent: u32, name: &[u8], path: &Path, attr: Attr, kind: NodeKind) -> Result<u32> {
        if let Node { kind: NodeKind::Dir(children), .. } = &self.nodes[parent as usize]
            && children.contains_key(name)
        {
            return Err(ImageError::BadPath {
                path: path.to_owned(),
                why: "the image has something there already",
            });
        }
        self.push(parent, name, attr, kind)
    }
}

/// "Not found" during a scan means that it vanished.
fn lost(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ImageError {
    let path = path.to_owned();
    move |error| match error.kind() {
        std::io::ErrorKind::NotFound => ImageError::Vanished(path),
        _ => ImageError::Io { action, path, error },
    }
}

fn attr(path: &Path, meta: &std::fs::Metadata, keep: bool) -> Result<Attr> {
    let mut attr = Attr::mode((meta.permissions().mode() & 0o7777) as u16);
    if keep {
        (attr.uid, attr.gid) = (meta.uid(), meta.gid());
        attr.xattrs = xattrs(path)?;
    }
    Ok(attr)
}

/// `security.capability` and `user.*` of one file, sorted by name; none where the file system has none.
fn xattrs(path: &Path) -> Result<Xattrs> {
    let mut names = [0u8; 4096];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(0) | Err(rustix::io::Errno::NOTSUP) => return Ok(Vec::new()),
        Ok(length) => length,
        Err(rustix::io::Errno::RANGE) => return xattrs_of(path, &mut vec![0; 65536]),
        Err(e) => return Err(lost("read the xattrs of", path)(e.into())),
    };
    read_xattrs(path, &names[..length])
}

fn xattrs_of(path: &Path, names: &mut [u8]) -> Result<Xattrs> {
    let length =
        rustix::fs::llistxattr(path, &mut *names).map_err(ImageError::os("read the xattrs of", path))?;
    read_xattrs(path, &names[..length])
}

fn read_xattrs(path: &Path, names: &[u8]) -> Result<Xattrs> {
    let mut found = Vec::new();
    for name in names.split(|b| *b == 0) {
        if name == b"security.capability" || name.starts_with(b"user.") {
            let mut value = vec![0u8; 65536];
            let c_name = CString::new(name).unwrap_or_default();
            match rustix::fs::lgetxattr(path, c_name.as_c_str(), &mut value[..]) {
                Ok(length) => value.truncate(length),
                Err(rustix::io::Errno::NODATA) => continue,
                Err(e) => return Err(lost("read the xattrs of", path)(e.into())),
            }
            found.push((name.to_vec(), value));
        }
    }
    found.sort();
    Ok(found)
}
