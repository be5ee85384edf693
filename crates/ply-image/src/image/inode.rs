//! Inodes as they stand in an image, checked while they are read.

use super::Image;
use super::dir::Listing;
use super::meta::MetaReader;
use super::table::FragmentPlace;
use super::walk::BLOCKS_MAX;
use crate::error::Result;
use crate::format::{DATA_RAW, DIR_EXTRA, LINK_MAX, NONE32, kind, le16, le32, le64};
use crate::tree::EntryKind;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// What an image says of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: EntryKind,
    /// The lower twelve bits of its mode.
    pub mode: u16,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The size of a file, the length of a symlink's target; 0 for the rest. In bytes.
    pub size: u64,
    /// Its time, in seconds since 1970.
    pub mtime: u32,
    /// How many names it has.
    pub links: u32,
    /// Its number; the same for all names of one file.
    pub inode: u32,
}

impl Stat {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == EntryKind::Dir
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == EntryKind::File
    }

    /// Whether it is a symlink.
    pub fn is_symlink(&self) -> bool {
        self.kind == EntryKind::Symlink
    }
}

/// One inode.
#[derive(Debug, Clone)]
pub(crate) struct Inode {
    pub(crate) stat: Stat,
    pub(crate) xattr: u32,
    pub(crate) body: Body,
    /// Where it stands: block and offset, the same for all names of one file.
    pub(crate) place: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    Dir(Listing),
    File(Blocks),
    Symlink(PathBuf),
    /// A fifo, socket or device.
    Special,
}

/// Where the data of a file is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blocks {
    /// The size field of each block.
    pub(crate) sizes: Vec<u32>,
    /// Where each [`Blocks::STRIDE`]th block begins.
    starts: Vec<u64>,
    pub(crate) tail: Option<FragmentPlace>,
}

impl Blocks {
    /// How many blocks apart known starts are: a lookup sums up no more than these.
    const STRIDE: usize = 64;

    fn new(start: u64, sizes: Vec<u32>, tail: Option<FragmentPlace>) -> Self {
        let mut starts = Vec::with_capacity(sizes.len() / Self::STRIDE + 1);
        let mut at = start;
        for (n, size) in sizes.iter().enumerate() {
            if n % Self::STRIDE == 0 {
                starts.push(at);
            }
            at = at.saturating_add(u64::from(size & !DATA_RAW));
        }
        Self { sizes, starts, tail }
    }

    /// Place in the file and size field of block `n`.
    pub(crate) fn place(&self, n: u64) -> (u64, u32) {
        let n = n as usize;
        let from = n / Self::STRIDE * Self::STRIDE;
        let before = self.sizes[from..n].iter();
        let start = before
            .fold(self.starts[n / Self::STRIDE], |at, size| at.saturating_add(u64::from(size & !DATA_RAW)));
        (start, self.sizes[n])
    }

    /// How many pieces a file of `size` bytes has: its blocks, and its tail where that is in a fragment.
    pub(crate) fn count(&self, size: u64, block_size: u64) -> u64 {
        size.div_ceil(block_size)
    }

    /// How many bytes of a file of `size` bytes are not holes.
    pub(crate) fn stored(&self, size: u64, block_size: u64) -> u64 {
        let count = self.count(size, block_size);
        (0..count)
            .filter(|n| self.sizes.get(*n as usize) != Some(&0))
            .map(|n| (size - n * block_size).min(block_size))
            .sum()
    }
}

impl Image {
    /// The inode at a place: block in the upper 48 bits, offset in the lower 16.
    pub(crate) fn inode(&self, place: u64) -> Result<Inode> {
        let (block, offset) = (place >> 16, (place & 0xffff) as usize);
        let at = self.sb.inode_table.checked_add(block).filter(|at| *at < self.sb.dir_table);
        let at = at.ok_or_else(|| self.damaged("an inode is not in its table"))?;
        let mut reader = MetaReader::new(self, at, offset)?;
        let head: [u8; 16] = reader.array()?;
        let number = le16(&head, 0);
        let plain = if number > kind::EXTENDED { number - kind::EXTENDED } else { number };
        let extended = number > kind::EXTENDED;
        let stat = Stat {
            kind: match plain {
                kind::DIR => EntryKind::Dir,
                kind::FILE => EntryKind::File,
                kind::SYMLINK => EntryKind::Symlink,
                kind::BLOCK_DEVICE | kind::CHAR_DEVICE => EntryKind::Device,
                kind::FIFO => EntryKind::Fifo,
                kind::SOCKET => EntryKind::Socket,
                _ => return Err(self.damaged("an inode has an unknown type")),
            },
            mode: le16(&head, 2) & 0o7777,
            uid: self.id(le16(&head, 4))?,
            gid: self.id(le16(&head, 6))?,
            size: 0,
            mtime: le32(&head, 8),
            links: 1,
            inode: le32(&head, 12),
        };
        let inode = Inode { stat, xattr: NONE32, body: Body::Special, place };
        match plain {
            kind::DIR => self.dir_inode(inode, extended, &mut reader),
            kind::FILE => self.file_inode(inode, extended, &mut reader),
            kind::SYMLINK => self.symlink_inode(inode, extended, &mut reader),
            _ => self.special_inode(inode, plain, extended, &mut reader),
        }
    }

    fn dir_inode(&self, mut inode: Inode, extended: bool, reader: &mut MetaReader<'_>) -> Result<Inode> {
        let (block, offset, size);
        let mut indexed = 0;
        if extended {
            let rest: [u8; 24] = reader.array()?;
            (inode.stat.links, size, block) = (le32(&rest, 0), le32(&rest, 4), le32(&rest, 8));
            (indexed, offset, inode.xattr) = (le16(&rest, 16), le16(&rest, 18), le32(&rest, 20));
        } else {
            let rest: [u8; 16] = reader.array()?;
            (block, inode.stat.links, size) = (le32(&rest, 0), le32(&rest, 4), u32::from(le16(&rest, 8)));
            offset = le16(&rest, 10);
        }
        inode.body = Body::Dir(Listing { block, offset, bytes: size.saturating_sub(DIR_EXTRA), indexed });
        Ok(inode)
    }

    /// What stands behind the inode of a large directory: its index.
    pub(super) fn behind_dir(&self, place: u64) -> Result<MetaReader<'_>> {
        let at = self.sb.inode_table.saturating_add(place >> 16);
        let mut reader = MetaReader::new(self, at, (place & 0xffff) as usize)?;
        reader.array::<40>()?;
        Ok(reader)
    }

    fn file_inode(&self, mut inode: Inode, extended: bool, reader: &mut MetaReader<'_>) -> Result<Inode> {
        let (start, size, fragment, offset);
        if extended {
            let rest: [u8; 40] = reader.array()?;
            (start, size, inode.stat.links) = (le64(&rest, 0), le64(&rest, 8), le32(&rest, 24));
            (fragment, offset, inode.xattr) = (le32(&rest, 28), le32(&rest, 32), le32(&rest, 36));
        } else {
            let rest: [u8; 16] = reader.array()?;
            (start, fragment) = (u64::from(le32(&rest, 0)), le32(&rest, 4));
            (offset, size) = (le32(&rest, 8), u64::from(le32(&rest, 12)));
        }
        inode.stat.size = size;
        let block_size = self.block_size();
        let has_tail = fragment != NONE32 && size % block_size != 0;
        let count = if has_tail { size / block_size } else { size.div_ceil(block_size) };
        let tail = if has_tail { Some(self.fragment(fragment, offset)?) } else { None };
        // The list stands in the inode table, so it can't be longer than what that unpacks to.
        let most = self.most_meta_bytes(self.sb.inode_table, self.sb.dir_table) / 4;
        if count > most.min(BLOCKS_MAX) {
            return Err(self.damaged("a file claims more blocks than fit into it"));
        }
        let list = reader.bytes(count as usize * 4)?;
        let sizes: Vec<u32> = list.chunks_exact(4).map(|b| le32(b, 0)).collect();
        inode.body = Body::File(Blocks::new(start, sizes, tail));
        Ok(inode)
    }

    fn symlink_inode(&self, mut inode: Inode, extended: bool, reader: &mut MetaReader<'_>) -> Result<Inode> {
        let rest: [u8; 8] = reader.array()?;
        inode.stat.links = le32(&rest, 0);
        let length = le32(&rest, 4) as usize;
        if length == 0 || length > LINK_MAX {
            return Err(self.damaged("a symlink has an impossible length"));
        }
        let target = reader.bytes(length)?;
        if target.contains(&0) {
            return Err(self.damaged("a symlink has a zero byte in it"));
        }
        if extended {
            inode.xattr = le32(&reader.array::<4>()?, 0);
        }
        inode.stat.size = length as u64;
        inode.body = Body::Symlink(OsString::from_vec(target).into());
        Ok(inode)
    }

    fn special_inode(
        &self,
        mut inode: Inode,
        plain: u16,
        extended: bool,
        reader: &mut MetaReader<'_>,
    ) -> Result<Inode> {
        inode.stat.links = le32(&reader.array::<4>()?, 0);
        if matches!(plain, kind::BLOCK_DEVICE | kind::CHAR_DEVICE) {
            reader.array::<4>()?;
        }
        if extended {
            inode.xattr = le32(&reader.array::<4>()?, 0);
        }
        Ok(inode)
    }

    /// The most bytes that the metadata between two places can unpack to.
    pub(super) fn most_meta_bytes(&self, from: u64, to: u64) -> u64 {
        // The shortest block: two bytes of head and one of content.
        (to.saturating_sub(from) / 3 + 1).saturating_mul(crate::format::META as u64)
    }
}
