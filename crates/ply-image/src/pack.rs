//! Writing an image: the same tree gives the same bytes, whatever the number of threads.
//!
//! One thread reads files in the order of the tree, finds duplicates and fills fragment blocks; it alone decides
//! what stands where. Any number of threads compress. The caller's thread writes what they finish, in the order
//! in which it was read. A small pool of buffers is all that is ever in flight, so memory does not grow with
//! the tree's bytes.

mod feed;
mod input;
mod meta;
mod pipe;
mod tables;

use crate::error::{ImageError, Result};
use crate::format::{BLOCK, NONE64, SUPER, Super};
use crate::tree::{Node, Tree, is_overlay_mark};
use ply_manifest::Digest;
use sha2::{Digest as _, Sha256};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The zstd level of what is built often: `build` and `run DIR`. Source: spec of images, "one level a kind".
pub const LEVEL_BUILD: i32 = 9;
/// The zstd level of what is made once and fetched often: `forge` and `bundle`.
pub const LEVEL_FORGE: i32 = 15;
/// The zstd level of `import`.
pub const LEVEL_IMPORT: i32 = 6;

/// An image is padded to a multiple of this many bytes, so that a loop device shows all of it.
const PAD: u64 = 4096;

/// How a tree is packed.
#[derive(Debug, Clone)]
pub struct PackOptions {
    /// The zstd level: one of the `LEVEL_` constants.
    pub level: i32,
    /// How many threads compress; 0 is one a core and one more. Never changes a byte.
    pub threads: usize,
    /// Every time in the image, in seconds since 1970.
    pub epoch: u32,
    /// Modes, owners, xattrs, hard links and fifos are kept (a base or a fat image). Otherwise everything
    /// belongs to root, with 0755 for directories and executables and 0644 for the rest.
    pub keep_owners: bool,
}

impl PackOptions {
    /// As many threads as there are cores, times from `SOURCE_DATE_EPOCH` (0 where it is unset or no number), owners not kept.
    pub fn new(level: i32) -> Self {
        let epoch = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|v| v.parse().ok()).unwrap_or(0);
        Self { level, threads: 0, epoch, keep_owners: false }
    }
}

/// What packing made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// The sha256 of all bytes.
    pub digest: Digest,
    /// The size of the image.
    pub bytes: u64,
    /// Regular files, each name counted.
    pub files: u64,
    /// Directories without the root.
    pub dirs: u64,
    /// Symlinks.
    pub symlinks: u64,
    /// The sum of the sizes of all files, each name counted.
    pub content: u64,
    /// Files that share the data of another.
    pub duplicates: u64,
}

/// Writes `tree` as a squashfs image from position 0 of `out`, which is empty, and reads it once more for its digest.
///
/// # Errors
/// [`ImageError::Changed`] and [`ImageError::Vanished`] for files that did not hold still, [`ImageError::TooMany`],
/// [`ImageError::Io`]. After an error `out` holds no image: its superblock is written last.
pub fn pack<W: Read + Write + Seek>(tree: &Tree, options: &PackOptions, out: &mut W) -> Result<Packed> {
    refuse_marks(tree, options)?;
    let plan = tables::Plan::of(tree, options)?;
    let image = Path::new("the image");
    let write = |e| ImageError::io("write", image)(e);
    out.seek(SeekFrom::Start(0)).map_err(write)?;
    out.write_all(&[0; SUPER]).map_err(write)?;
    let threads = match options.threads {
        // One more than cores: somebody always waits for the disk or for a turn.
        0 => cores() + 1,
        n => n,
    };
    let data = feed::write_data(tree, &plan.files, options.level, threads, out, SUPER as u64)?;

    let tables = tables::Tables::build(tree, &plan, &data, options)?;
    let mut at = data.end;
    let mut put = |bytes: &[u8]| -> io::Result<u64> {
        out.write_all(bytes)?;
        let start = at;
        at += bytes.len() as u64;
        Ok(start)
    };
    let inode_table = put(&tables.inodes).map_err(write)?;
    let dir_table = put(&tables.dirs).map_err(write)?;
    let fragment_table = match &tables.fragments {
        Some(table) => table.write(&mut put).map_err(write)?,
        None => NONE64,
    };
    let id_table = tables.ids.write(&mut put).map_err(write)?;
    let xattr_table = match &tables.xattrs {
        Some(table) => table.write(&mut put).map_err(write)?,
        None => NONE64,
    };
    let bytes = put(&[]).map_err(write)?;
    let padding = bytes.next_multiple_of(PAD) - bytes;
    put(&vec![0; padding as usize]).map_err(write)?;
    let superblock = Super {
        inodes: plan.inodes,
        time: options.epoch,
        block: BLOCK as u32,
        fragments: data.fragments.len() as u32,
        ids: tables.id_count,
        root: tables.root,
        bytes,
        id_table,
        xattr_table,
        inode_table,
        dir_table,
        fragment_table,
        export_table: NONE64,
        has_options: false,
    };
    out.seek(SeekFrom::Start(0)).map_err(write)?;
    out.write_all(&superblock.encode()).map_err(write)?;
    out.flush().map_err(write)?;
    let (digest, total) = digest_of(out).map_err(ImageError::io("read", image))?;
    let (files, content) = tree.files();
    Ok(Packed {
        digest,
        bytes: total,
        files,
        dirs: plan.dirs,
        symlinks: plan.symlinks,
        content,
        duplicates: data.duplicates,
    })
}

/// How many threads run at once on this host.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The sha256 of a stream from its start, and its length in bytes.
pub(crate) fn digest_of(from: &mut (impl Read + Seek)) -> io::Result<(Digest, u64)> {
    from.seek(SeekFrom::Start(0))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut total = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok((Digest::from_bytes(hash.finalize().into()), total)),
            Ok(n) => {
                hash.update(&buffer[..n]);
                total += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// No image says anything to the overlay that it will be a layer of.
fn refuse_marks(tree: &Tree, options: &PackOptions) -> Result<()> {
    let is_marked = |node: &&Node| node.attr.xattrs.iter().any(|(name, _)| is_overlay_mark(name));
    let Some(mut node) = tree.nodes.iter().filter(|_| options.keep_owners).find(is_marked) else {
        return Ok(());
    };
    let mut names = Vec::new();
    while !node.name.is_empty() {
        names.push(std::ffi::OsStr::from_bytes(&node.name));
        node = &tree.nodes[node.parent as usize];
    }
    let path = std::iter::once(std::ffi::OsStr::new("/")).chain(names.into_iter().rev()).collect();
    Err(ImageError::BadPath { path, why: "it has an xattr of an overlay" })
}
