//! squashfs 4.0 on disk: the numbers that the writer and the reader share. Source: the kernel's
//! `fs/squashfs/squashfs_fs.h`. Everything is little-endian.

/// The block size of what ply writes, in bytes.
pub(crate) const BLOCK: usize = 128 * 1024;
/// The largest block size that the format knows.
pub(crate) const BLOCK_MAX: u32 = 1 << 20;
/// A metadata block holds this much when uncompressed.
pub(crate) const META: usize = 8192;
/// Bit of a metadata block's 16-bit header: stored as it is.
pub(crate) const META_RAW: u16 = 1 << 15;
/// Bit of a data block's 32-bit size: stored as it is.
pub(crate) const DATA_RAW: u32 = 1 << 24;
/// "No fragment", "no xattrs".
pub(crate) const NONE32: u32 = u32::MAX;
/// "No such table".
pub(crate) const NONE64: u64 = u64::MAX;
/// The size of the superblock.
pub(crate) const SUPER: usize = 96;
/// What a directory's size counts beyond its listing (the kernel's room for `.` and `..`).
pub(crate) const DIR_EXTRA: u32 = 3;
/// The most entries that one header of a listing covers.
pub(crate) const DIR_RUN: usize = 256;
/// The longest name, in bytes.
pub(crate) const NAME_MAX: usize = 255;
/// The longest symlink target, in bytes.
pub(crate) const LINK_MAX: usize = 4096;

const MAGIC: u32 = 0x7371_7368;
const ZSTD: u16 = 6;
/// Superblock flag: duplicates were looked for.
const FLAG_DUPLICATES: u16 = 0x40;
/// Superblock flag: the compression says something of itself behind the superblock.
const FLAG_OPTIONS: u16 = 0x400;
/// Superblock flag: the image has no xattrs.
const FLAG_NO_XATTRS: u16 = 0x200;

/// Inode types; each has an extended twin at `+ EXTENDED`.
pub(crate) mod kind {
    pub(crate) const DIR: u16 = 1;
    pub(crate) const FILE: u16 = 2;
    pub(crate) const SYMLINK: u16 = 3;
    pub(crate) const BLOCK_DEVICE: u16 = 4;
    pub(crate) const CHAR_DEVICE: u16 = 5;
    pub(crate) const FIFO: u16 = 6;
    pub(crate) const SOCKET: u16 = 7;
    pub(crate) const EXTENDED: u16 = 7;
}

/// The namespaces of xattrs by their number on disk.
pub(crate) const XATTR_PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
/// Bit of an xattr's type: the value stands elsewhere.
pub(crate) const XATTR_ELSEWHERE: u16 = 0x100;

/// The superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Super {
    pub(crate) inodes: u32,
    pub(crate) time: u32,
    pub(crate) block: u32,
    pub(crate) fragments: u32,
    pub(crate) ids: u16,
    pub(crate) root: u64,
    pub(crate) bytes: u64,
    pub(crate) id_table: u64,
    pub(crate) xattr_table: u64,
    pub(crate) inode_table: u64,
    pub(crate) dir_table: u64,
    pub(crate) fragment_table: u64,
    pub(crate) export_table: u64,
    pub(crate) has_options: bool,
}

/// Why the first 96 bytes are not a superblock that ply reads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotSuper {
    Magic,
    Version(u16, u16),
    Compression(u16),
    BlockSize(u32),
}

impl Super {
    pub(crate) fn encode(&self) -> [u8; SUPER] {
        let no_xattrs = if self.xattr_table == NONE64 { FLAG_NO_XATTRS } else { 0 };
        let mut out = [0; SUPER];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        for word in [MAGIC, self.inodes, self.time, self.block, self.fragments] {
            put(&word.to_le_bytes());
        }
        let log = self.block.trailing_zeros() as u16;
        for half in [ZSTD, log, FLAG_DUPLICATES | no_xattrs, self.ids, 4, 0] {
            put(&half.to_le_bytes());
        }
        for long in [
            self.root,
            self.bytes,
            self.id_table,
            self.xattr_table,
            self.inode_table,
            self.dir_table,
            self.fragment_table,
            self.export_table,
        ] {
            put(&long.to_le_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8; SUPER]) -> Result<Self, NotSuper> {
        if le32(bytes, 0) != MAGIC {
            return Err(NotSuper::Magic);
        }
        let (major, minor) = (le16(bytes, 28), le16(bytes, 30));
        if (major, minor) != (4, 0) {
            return Err(NotSuper::Version(major, minor));
        }
        let block = le32(bytes, 12);
        if !block.is_power_of_two() || !(4096..=BLOCK_MAX).contains(&block) {
            return Err(NotSuper::BlockSize(block));
        }
        if u32::from(le16(bytes, 22)) != block.trailing_zeros() {
            return Err(NotSuper::BlockSize(block));
        }
        if le16(bytes, 20) != ZSTD {
            return Err(NotSuper::Compression(le16(bytes, 20)));
        }
        Ok(Self {
            inodes: le32(bytes, 4),
            time: le32(bytes, 8),
            block,
            fragments: le32(bytes, 16),
            ids: le16(bytes, 26),
            root: le64(bytes, 32),
            bytes: le64(bytes, 40),
            id_table: le64(bytes, 48),
            xattr_table: le64(bytes, 56),
            inode_table: le64(bytes, 64),
            dir_table: le64(bytes, 72),
            fragment_table: le64(bytes, 80),
            export_table: le64(bytes, 88),
            has_options: le16(bytes, 24) & FLAG_OPTIONS != 0,
        })
    }
}

/// The name of a compression by its number on disk.
pub(crate) fn compression_name(number: u16) -> &'static str {
    match number {
        1 => "gzip",
        2 => "lzma",
        3 => "lzo",
        4 => "xz",
        5 => "lz4",
        6 => "zstd",
        _ => "of an unknown kind",
    }
}

/// The 16-bit number at `at`. The caller has checked the length.
pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The 32-bit number at `at`. The caller has checked the length.
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The 64-bit number at `at`. The caller has checked the length.
pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_decodes_to_what_was_encoded() {
        let one = Super {
            inodes: 7,
            time: 9,
            block: BLOCK as u32,
            fragments: 3,
            ids: 1,
            root: 0x1_0020,
            bytes: 12345,
            id_table: 1,
            xattr_table: NONE64,
            inode_table: 2,
            dir_table: 3,
            fragment_table: 4,
            export_table: NONE64,
            has_options: false,
        };
        let bytes = one.encode();
        assert_eq!(Super::decode(&bytes), Ok(one));
        for (at, what) in
            [(0, NotSuper::Magic), (20, NotSuper::Compression(7)), (28, NotSuper::Version(5, 0))]
        {
            let mut wrong = bytes;
            wrong[at] += 1;
            assert_eq!(Super::decode(&wrong), Err(what));
        }
    }
}
