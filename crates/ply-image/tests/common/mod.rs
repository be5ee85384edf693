//! What the tests of images share: trees on the disk, and a look at a tree that can be compared with another.

#![allow(dead_code, reason = "each test binary uses its part")]

use ply_image::{ExtractOptions, Image, Owners, PackOptions, Packed, ScanOptions, Tree};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What one entry of a tree is, as far as an image keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) kind: &'static str,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) size: u64,
    pub(crate) content: u64,
    pub(crate) names: u64,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

pub(crate) type Look = BTreeMap<PathBuf, Item>;

/// Everything below a directory, and the directory itself as the empty path.
pub(crate) fn look(dir: &Path) -> Look {
    let mut found = Look::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(below) = todo.pop() {
        let path = dir.join(&below);
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let file_type = meta.file_type();
        let (kind, content) = if meta.is_dir() {
            for entry in std::fs::read_dir(&path).unwrap() {
                todo.push(below.join(entry.unwrap().file_name()));
            }
            ("dir", 0)
        } else if meta.is_symlink() {
            ("symlink", hash(std::fs::read_link(&path).unwrap().as_os_str().as_bytes()))
        } else if file_type.is_fifo() {
            ("fifo", 0)
        } else if meta.is_file() {
            ("file", content(&path, meta.size()))
        } else {
            ("other", 0)
        };
        let is_file = meta.is_file();
        let item = Item {
            kind,
            mode: if meta.is_symlink() { 0o777 } else { meta.mode() & 0o7777 },
            owner: (meta.uid(), meta.gid()),
            size: if is_file { meta.size() } else { 0 },
            content,
            names: if is_file { meta.nlink() } else { 1 },
            xattrs: if meta.is_symlink() { Vec::new() } else { xattrs(&path) },
        };
        found.insert(below, item);
    }
    found
}

/// The hash of a file's content; of a huge one only the places where the tests put something.
fn content(path: &Path, size: u64) -> u64 {
    const HUGE: u64 = 1 << 30;
    if size < HUGE {
        return hash(&std::fs::read(path).unwrap());
    }
    let file = File::open(path).unwrap();
    let mut hasher = DefaultHasher::new();
    let mut buffer = vec![0; 1 << 20];
    for at in [0, 3 << 30, (4 << 30) - 4096, size - (1 << 20)] {
        file.read_exact_at(&mut buffer, at).unwrap();
        buffer.hash(&mut hasher);
    }
    hasher.finish()
}

pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0u8; 65536];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let mut found = Vec::new();
    for name in names[..length].split(|b| *b == 0) {
        if name.starts_with(b"user.") || name == b"security.capability" {
            let mut value = vec![0u8; 65536];
            let c_name = CString::new(name).unwrap();
            let length = rustix::fs::lgetxattr(path, c_name.as_c_str(), &mut value[..]).unwrap();
            found.push((name.to_vec(), value[..length].to_vec()));
        }
    }
    found.sort();
    found
}

/// The same look with what a build reduces: modes, owners, xattrs, and hard links as files of their own.
pub(crate) fn reduced(look: &Look) -> Look {
    let mut look = look.clone();
    for item in look.values_mut() {
        item.mode = match item.kind {
            "dir" | "symlink" if item.kind == "symlink" => 0o777,
            "dir" => 0o755,
            _ if item.mode & 0o100 != 0 => 0o755,
            _ => 0o644,
        };
        item.owner = (0, 0);
        item.xattrs.clear();
        item.names = 1;
    }
    look
}

/// Fails with the first difference, not with two long maps.
pub(crate) fn same(what: &str, found: &Look, wanted: &Look) {
    for (path, item) in wanted {
        assert_eq!(found.get(path), Some(item), "{what}: {}", path.display());
    }
    for path in found.keys() {
        assert!(wanted.contains_key(path), "{what}: {} is too much", path.display());
    }
}

pub(crate) fn options(level: i32, keep_owners: bool) -> PackOptions {
    PackOptions { level, threads: 2, epoch: 0, keep_owners }
}

pub(crate) fn scan(dir: &Path, keep_owners: bool) -> Tree {
    Tree::scan(dir, &ScanOptions { keep_owners, ..ScanOptions::default() }).unwrap()
}

pub(crate) fn pack_to(tree: &Tree, options: &PackOptions, image: &Path) -> Packed {
    let mut out = File::options().read(true).write(true).create(true).truncate(true).open(image).unwrap();
    ply_image::pack(tree, options, &mut out).unwrap()
}

/// What our own extraction makes.
pub(crate) fn extracted(image: &Path, target: &Path) -> Look {
    std::fs::create_dir(target).unwrap();
    let options = ExtractOptions { owners: Owners::Image, threads: 2, ..ExtractOptions::default() };
    Image::open(image).unwrap().extract(target, &options).unwrap();
    look(target)
}

/// What `unsquashfs` makes.
pub(crate) fn unsquashed(image: &Path, target: &Path) -> Look {
    let done = Command::new("unsquashfs").args(["-q", "-n", "-d"]).arg(target).arg(image).output().unwrap();
    assert!(done.status.success(), "unsquashfs: {}", String::from_utf8_lossy(&done.stderr));
    look(target)
}

/// What the kernel shows, mounted in a mount namespace of its own thread.
pub(crate) fn mounted(image: &Path, at: &Path) -> Look {
    in_mount(image, at, look)
}

/// Runs something on the mounted image.
pub(crate) fn in_mount<T: Send>(image: &Path, at: &Path, with: impl FnOnce(&Path) -> T + Send) -> T {
    assert!(rustix::process::geteuid().is_root(), "this test mounts an image: it needs root");
    std::fs::create_dir(at).unwrap();
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            // SAFETY: only this thread leaves the shared mount namespace, and nothing else of it is shared.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
            run(Command::new("mount").args(["--make-rprivate", "/"]));
            run(Command::new("mount").args(["-t", "squashfs", "-o", "loop,ro"]).arg(image).arg(at));
            let result = with(at);
            run(Command::new("umount").arg(at));
            result
        });
        inside.join().unwrap()
    })
}

pub(crate) fn run(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Writes a file, with the folders on the way.
pub(crate) fn put(dir: &Path, path: impl AsRef<Path>, bytes: &[u8]) -> PathBuf {
    let path = dir.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Bytes that compress a little, the same for the same seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8 & 0x3f
        })
        .collect()
}

/// A name of bytes that are not UTF-8.
pub(crate) fn bytes_name(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

/// In memory where the host has that: thousands of small trees are made and removed.
pub(crate) fn fast_tempdir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Packs a directory with everything kept and compares what the kernel, `unsquashfs` and we make of it.
pub(crate) fn all_agree(dir: &Path) -> Packed {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("image.img");
    let packed = pack_to(&scan(dir, true), &options(6, true), &image);
    let wanted = look(dir);
    same("extracted", &extracted(&image, &temp.path().join("ours")), &wanted);
    same("unsquashfs", &unsquashed(&image, &temp.path().join("theirs")), &wanted);
    same("mounted", &mounted(&image, &temp.path().join("mount")), &wanted);
    packed
}

/// An image whose metadata is not compressed, so that a changed byte is a changed field.
pub(crate) fn plain_image(dir: &Path, image: &Path) {
    let mut command = Command::new("mksquashfs");
    command.arg(dir).arg(image).args(["-comp", "zstd", "-quiet", "-no-progress", "-noappend"]);
    run(command.args(["-noI", "-noX", "-noF", "-noD", "-always-use-fragments"]));
}

/// A plain image of a small tree with chosen names, for a test to change.
pub(crate) struct Crafted {
    pub(crate) bytes: Vec<u8>,
    pub(crate) temp: tempfile::TempDir,
}

impl Crafted {
    pub(crate) fn new(make: impl FnOnce(&Path)) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (dir, image) = (temp.path().join("tree"), temp.path().join("plain.img"));
        std::fs::create_dir(&dir).unwrap();
        make(&dir);
        plain_image(&dir, &image);
        Self { bytes: std::fs::read(&image).unwrap(), temp }
    }

    /// The only place of these bytes at or behind `from`.
    pub(crate) fn find(&self, what: &[u8], from: usize) -> usize {
        let places: Vec<usize> =
            (from..=self.bytes.len() - what.len()).filter(|at| self.bytes[*at..].starts_with(what)).collect();
        assert_eq!(places.len(), 1, "{what:?} is there {} times", places.len());
        places[0]
    }

    pub(crate) fn field(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    pub(crate) fn dir_table(&self) -> usize {
        self.field(72) as usize
    }

    pub(crate) fn inode_table(&self) -> usize {
        self.field(64) as usize
    }

    pub(crate) fn replace(&mut self, at: usize, with: &[u8]) {
        self.bytes[at..at + with.len()].copy_from_slice(with);
    }

    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8]) {
        assert_eq!(from.len(), to.len());
        let at = self.find(from, self.dir_table());
        self.replace(at, to);
    }

    /// Writes it to a file and gives its path.
    pub(crate) fn save(&self) -> PathBuf {
        let image = self.temp.path().join("crafted.img");
        std::fs::write(&image, &self.bytes).unwrap();
        image
    }
}
