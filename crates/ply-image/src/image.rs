//! Reading an image that nobody vouches for. Every number in it is checked against what the file really holds
//! before anything is allocated or followed, and every error names the image.

mod check;
mod dir;
mod inode;
mod meta;
mod table;
mod walk;

pub(crate) use check::RULES;
pub use dir::DirEntry;
use dir::Listing;
pub use inode::Stat;
pub(crate) use inode::{Blocks, Body, Inode};
pub(crate) use table::FragmentPlace;
pub use walk::Walked;
pub(crate) use walk::{Found, Visit, walk};

use crate::error::{ImageError, Result};
use crate::format::{DATA_RAW, NONE64, NotSuper, SUPER, Super, compression_name};
use crate::tree::{EntryKind, Xattrs};
use meta::MetaCache;
use ply_manifest::{Arch, ImageName};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use zstd_safe::DCtx;

/// The largest manifest or lock that is read from an image, in bytes.
pub(crate) const TEXT_LIMIT: u64 = 4 << 20;
/// The path of the manifest in an image.
pub const MANIFEST_PATH: &str = ".manifest.toml";
/// The path of the lock in an image.
pub const LOCK_PATH: &str = ".lock.toml";

/// An open image.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    file: File,
    length: u64,
    sb: Super,
    meta: MetaCache,
    ids: OnceLock<Vec<u32>>,
    /// The fragment that was unpacked last for [`Image::read`], by its place: small files that lie beside each other
    /// (passwd and group) are read one after the other.
    fragment: Mutex<Option<(u64, Vec<u8>)>>,
}

impl Image {
    /// Opens an image. Only its superblock is read.
    ///
    /// # Errors
    /// [`ImageError::NotAnImage`], [`ImageError::Unsupported`] (another compression than zstd),
    /// [`ImageError::Damaged`], [`ImageError::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::from_file(open_file(path)?, path)
    }

    /// The same for a file that is open; `name` is what errors call it.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn from_file(file: File, name: &Path) -> Result<Self> {
        let not = |why| ImageError::NotAnImage { image: name.to_owned(), why };
        let meta = file.metadata().map_err(ImageError::io("read", name))?;
        if !meta.is_file() {
            return Err(not("it is not a regular file"));
        }
        let length = meta.len();
        if length < SUPER as u64 {
            return Err(not("it is too short"));
        }
        let mut head = [0; SUPER];
        file.read_exact_at(&mut head, 0).map_err(ImageError::io("read", name))?;
        let unsupported = |what| ImageError::Unsupported { image: name.to_owned(), what };
        let sb = Super::decode(&head).map_err(|e| match e {
            NotSuper::Magic => not("it does not begin like one"),
            NotSuper::Version(major, minor) => {
                unsupported(format!("it is squashfs {major}.{minor}, not 4.0"))
            }
            NotSuper::Compression(n) => {
                unsupported(format!("its compression is {}, not zstd", compression_name(n)))
            }
            NotSuper::BlockSize(n) => unsupported(format!("its block size is {n}")),
        })?;
        let image = Self {
            path: name.to_owned(),
            file,
            length,
            sb,
            meta: MetaCache::default(),
            ids: OnceLock::new(),
            fragment: Mutex::new(None),
        };
        image.check_layout()?;
        Ok(image)
    }

    /// The file that the image was opened as.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of the image file in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What stands at `path` (from the root, with or without a leading `/`); no symlink is followed. None where
    /// nothing is there.
    ///
    /// # Errors
    /// [`ImageError::Damaged`], [`ImageError::Io`].
    pub fn stat(&self, path: impl AsRef<Path>) -> Result<Option<Stat>> {
        Ok(self.lookup(path.as_ref())?.map(|inode| inode.stat))
    }

    /// The bytes of a regular file of at most `limit` bytes; no symlink is followed.
    ///
    /// # Errors
    /// [`ImageError::Missing`], [`ImageError::WrongKind`], [`ImageError::TooLarge`], [`ImageError::Damaged`],
    /// [`ImageError::Io`].
    pub fn read(&self, path: impl AsRef<Path>, limit: u64) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let inode = self.must(path)?;
        let Body::File(blocks) = &inode.body else {
            return Err(ImageError::WrongKind {
                image: self.path.clone(),
                path: path.to_owned(),
                wanted: "file",
            });
        };
        if inode.stat.size > limit {
            return Err(ImageError::TooLarge { image: self.path.clone(), path: path.to_owned(), limit });
        }
        self.read_file(inode.stat.size, blocks)
    }

    /// The target of a symlink, byte for byte.
    ///
    /// # Errors
    /// As [`Image::read`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        match self.must(path)?.body {
            Body::Symlink(target) => Ok(target),
            _ => Err(ImageError::WrongKind {
                image: self.path.clone(),
                path: path.to_owned(),
                wanted: "symlink",
            }),
        }
    }

    /// What is in a directory, sorted by name.
    ///
    /// # Errors
    /// As [`Image::read`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>> {
        let path = path.as_ref();
        match self.must(path)?.body {
            Body::Dir(listing) => self.list(&listing),
            _ => {
                let path = path.to_owned();
                Err(ImageError::WrongKind { image: self.path.clone(), path, wanted: "directory" })
            }
        }
    }

    /// The extended attributes of what stands at `path`, with their full names.
    ///
    /// # Errors
    /// As [`Image::read`].
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Xattrs> {
        let inode = self.must(path.as_ref())?;
        self.xattr_set(inode.xattr)
    }

    /// `/.manifest.toml`.
    ///
    /// # Errors
    /// [`ImageError::NoManifest`] where there is none, and as [`Image::read`].
    pub fn manifest_text(&self) -> Result<String> {
        self.text(MANIFEST_PATH)?.ok_or_else(|| ImageError::NoManifest(self.path.clone()))
    }

    /// `/.lock.toml`, where there is one.
    ///
    /// # Errors
    /// As [`Image::read`].
    pub fn lock_text(&self) -> Result<Option<String>> {
        self.text(LOCK_PATH)
    }

    /// The name that the manifest inside gives the image, for an arch that the image itself does not tell.
    ///
    /// # Errors
    /// As [`Image::manifest_text`], and [`ImageError::BadManifest`].
    pub fn name(&self, arch: Arch) -> Result<ImageName> {
        let text = self.manifest_text()?;
        let (name, version) = crate::store::identity(&text)
            .map_err(|why| ImageError::BadManifest { image: self.path.clone(), why })?;
        Ok(ImageName { name, version, arch })
    }

    fn text(&self, path: &str) -> Result<Option<String>> {
        if self.lookup(Path::new(path))?.is_none() {
            return Ok(None);
        }
        let bytes = self.read(path, TEXT_LIMIT)?;
        String::from_utf8(bytes).map(Some).map_err(|_| self.damaged(format!("/{path} is not UTF-8")))
    }

    fn must(&self, path: &Path) -> Result<Inode> {
        self.lookup(path)?
            .ok_or_else(|| ImageError::Missing { image: self.path.clone(), path: path.to_owned() })
    }

    /// The inode at `path`. `..` is nowhere: an image is not walked upwards.
    pub(crate) fn lookup(&self, path: &Path) -> Result<Option<Inode>> {
        let mut inode = self.root()?;
        for name in path.as_os_str().as_bytes().split(|b| *b == b'/') {
            if name.is_empty() || name == b"." {
                continue;
            }
            let Body::Dir(listing) = &inode.body else { return Ok(None) };
            match self.find_in(listing, name)? {
                Some(at) => inode = self.inode(at)?,
                None => return Ok(None),
            }
        }
        Ok(Some(inode))
    }

    pub(crate) fn root(&self) -> Result<Inode> {
        let root = self.inode(self.sb.root)?;
        match root.stat.kind {
            EntryKind::Dir => Ok(root),
            _ => Err(self.damaged("its root is no directory")),
        }
    }

    pub(crate) fn block_size(&self) -> u64 {
        u64::from(self.sb.block)
    }

    fn read_file(&self, size: u64, blocks: &Blocks) -> Result<Vec<u8>> {
        // Grows with what is really there: the size in the inode is only a claim.
        let mut out = Vec::new();
        let mut reader = BlockReader::new(self);
        let mut kept = self.fragment.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((at, fragment)) = kept.take() {
            (reader.fragment_at, reader.fragment) = (at, fragment);
        }
        for n in 0..blocks.count(size, self.block_size()) {
            match reader.block(size, blocks, n)? {
                Piece::Zeros(length) => out.resize(out.len() + length, 0),
                Piece::Data(bytes) => out.extend_from_slice(bytes),
            }
        }
        if reader.fragment_at != NONE64 {
            *kept = Some((reader.fragment_at, reader.fragment));
        }
        Ok(out)
    }

    /// The superblock's tables are in order and inside of the file.
    fn check_layout(&self) -> Result<()> {
        let sb = &self.sb;
        if sb.bytes > self.length {
            return Err(self.damaged(format!("it says {} bytes and has {}", sb.bytes, self.length)));
        }
        let mut places = vec![SUPER as u64, sb.inode_table, sb.dir_table];
        places.extend([sb.fragment_table, sb.export_table].into_iter().filter(|at| *at != NONE64));
        places.push(sb.id_table);
        places.extend(Some(sb.xattr_table).filter(|at| *at != NONE64));
        places.push(sb.bytes);
        if sb.fragments > 0 && sb.fragment_table == NONE64 {
            return Err(self.damaged("it has no fragment table"));
        }
        if places.is_sorted() { Ok(()) } else { Err(self.damaged("its tables are not in order")) }
    }

    pub(crate) fn damaged(&self, why: impl Into<String>) -> ImageError {
        ImageError::Damaged { image: self.path.clone(), why: why.into() }
    }

    pub(crate) fn pread(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buffer, at).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged("it ends too early"),
            _ => ImageError::io("read", &self.path)(e),
        })
    }
}

/// Opens a file to read; a fifo of that name doesn't hold us.
pub(crate) fn open_file(path: &Path) -> Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(ImageError::io("open", path))
}

/// A piece of a file.
pub(crate) enum Piece<'a> {
    /// A hole.
    Zeros(usize),
    /// Bytes.
    Data(&'a [u8]),
}

/// Reads data blocks with buffers of its own; one a thread.
pub(crate) struct BlockReader<'a> {
    image: &'a Image,
    context: DCtx<'static>,
    packed: Vec<u8>,
    block: Vec<u8>,
    fragment: Vec<u8>,
    fragment_at: u64,
}

impl<'a> BlockReader<'a> {
    pub(crate) fn new(image: &'a Image) -> Self {
        Self {
            image,
            context: DCtx::create(),
            packed: Vec::new(),
            block: Vec::new(),
            fragment: Vec::new(),
            fragment_at: NONE64,
        }
    }

    /// Block number `n` of a file of `size` bytes, its tail in a fragment counted as a block.
    pub(crate) fn block(&mut self, size: u64, blocks: &Blocks, n: u64) -> Result<Piece<'_>> {
        let block_size = self.image.block_size();
        let length = (size - n * block_size).min(block_size) as usize;
        if n == blocks.sizes.len() as u64 {
            let tail = blocks.tail.ok_or_else(|| self.image.damaged("a file has too few blocks"))?;
            self.load_fragment(tail)?;
            let from = tail.offset as usize;
            let bytes = self.fragment.get(from..from + length);
            return bytes.map(Piece::Data).ok_or_else(|| self.image.damaged("a tail is not in its fragment"));
        }
        let (at, field) = blocks.place(n);
        if field == 0 {
            return Ok(Piece::Zeros(length));
        }
        unpack(self.image, &mut self.context, at, field, &mut self.packed, &mut self.block)?;
        if self.block.len() == length {
            Ok(Piece::Data(&self.block))
        } else {
            Err(self.image.damaged("a block has the wrong length"))
        }
    }

    fn load_fragment(&mut self, tail: FragmentPlace) -> Result<()> {
        if self.fragment_at != tail.start {
            self.fragment_at = NONE64;
            let (packed, out) = (&mut self.packed, &mut self.fragment);
            unpack(self.image, &mut self.context, tail.start, tail.field, packed, out)?;
            self.fragment_at = tail.start;
        }
        Ok(())
    }
}

/// Reads a data block of at most one block size into `out`.
fn unpack(
    image: &Image,
    context: &mut DCtx<'_>,
    at: u64,
    field: u32,
    packed: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let block_size = image.block_size() as usize;
    let stored = (field & !DATA_RAW) as usize;
    let inside = at.checked_add(stored as u64).is_some_and(|end| end <= image.sb.bytes);
    if stored == 0 || stored > block_size || at < SUPER as u64 || !inside {
        return Err(image.damaged("a block is not inside of it"));
    }
    if field & DATA_RAW != 0 {
        out.resize(stored, 0);
        return image.pread(at, out);
    }
    packed.resize(stored, 0);
    image.pread(at, packed)?;
    out.resize(block_size, 0);
    match context.decompress(&mut out[..], packed) {
        Ok(length) => {
            out.truncate(length);
            Ok(())
        }
        Err(_) => Err(image.damaged("a block can't be unpacked")),
    }
}
