//! Directory listings.

use super::Image;
use super::meta::MetaReader;
use super::walk::{ENTRIES_MAX, LISTINGS_MAX};
use crate::error::Result;
use crate::format::{DIR_RUN, NAME_MAX, kind, le16, le32};
use crate::tree::EntryKind;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name; never empty, `.`, `..`, and without `/`.
    pub name: OsString,
    /// What it is.
    pub kind: EntryKind,
    /// Where its inode is.
    pub(crate) place: u64,
    /// The number that its inode must have: the kernel knows an inode by it alone.
    pub(crate) number: u32,
}

/// Where a listing is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listing {
    pub(crate) block: u32,
    pub(crate) offset: u16,
    /// Its length without the kernel's room for `.` and `..`.
    pub(crate) bytes: u32,
    /// How many entries its index has, which stands behind its inode.
    pub(crate) indexed: u16,
}

/// One entry as it stands in a listing.
struct Raw<'a> {
    name: &'a [u8],
    kind: EntryKind,
    place: u64,
    number: u32,
}

/// A run of a listing: where it begins, and its first name. That is what an index of a directory points to.
pub(super) struct Run {
    /// In bytes from the beginning of the listing.
    pub(super) offset: u32,
    /// Where its metadata block is, from the beginning of the table.
    pub(super) block: u64,
    /// The first name in it.
    pub(super) name: Vec<u8>,
}

/// Takes an entry, and says whether to go on.
type With<'a> = &'a mut dyn FnMut(Raw<'_>) -> Result<bool>;

impl Image {
    /// What a listing holds, in its own order, which must be sorted.
    pub(crate) fn list(&self, listing: &Listing) -> Result<Vec<DirEntry>> {
        let mut entries: Vec<DirEntry> = Vec::new();
        self.each_entry(listing, None, &mut |Raw { name, kind, place, number }| {
            let entry = DirEntry { name: OsString::from_vec(name.to_vec()), kind, place, number };
            // Two entries of one name would make two things out of one path.
            if entries.last().is_some_and(|last| last.name >= entry.name) {
                return Err(self.damaged("a directory is not sorted"));
            }
            if entries.len() >= ENTRIES_MAX {
                return Err(self.damaged("a directory claims more entries than an image has"));
            }
            entries.push(entry);
            Ok(true)
        })?;
        Ok(entries)
    }

    /// The place of the inode with this name.
    pub(crate) fn find_in(&self, listing: &Listing, wanted: &[u8]) -> Result<Option<u64>> {
        let mut found = None;
        self.each_entry(listing, None, &mut |entry| {
            if entry.name == wanted {
                found = Some(entry.place);
            }
            Ok(entry.name < wanted)
        })?;
        Ok(found)
    }

    /// The runs of a listing.
    pub(super) fn runs(&self, listing: &Listing) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        self.each_entry(listing, Some(&mut runs), &mut |_| Ok(true))?;
        Ok(runs)
    }

    /// Calls `with` for each entry until it says false, and notes each run where asked to.
    fn each_entry(&self, listing: &Listing, mut runs: Option<&mut Vec<Run>>, with: With<'_>) -> Result<()> {
        if listing.bytes == 0 {
            return Ok(());
        }
        if u64::from(listing.bytes) > LISTINGS_MAX {
            return Err(self.damaged("a directory claims to be larger than any"));
        }
        let end = [self.sb.fragment_table, self.sb.export_table, self.sb.id_table];
        let end = end.into_iter().min().unwrap_or(self.sb.bytes);
        let at = self.sb.dir_table + u64::from(listing.block);
        if at >= end {
            return Err(self.damaged("a directory is not in its table"));
        }
        let mut reader = MetaReader::new(self, at, usize::from(listing.offset))?;
        let mut left = i64::from(listing.bytes);
        let mut name = [0; NAME_MAX + 1];
        while left > 0 {
            let offset = (i64::from(listing.bytes) - left) as u32;
            let at = reader.block_at();
            let head: [u8; 12] = reader.array()?;
            left -= 12;
            let count = le32(&head, 0) as usize + 1;
            let block = u64::from(le32(&head, 4));
            let first = le32(&head, 8);
            let known = runs.as_ref().map_or(0, |runs| runs.len());
            if count > DIR_RUN {
                return Err(self.damaged("a directory has an impossible run"));
            }
            for _ in 0..count {
                let entry: [u8; 8] = reader.array()?;
                let length = usize::from(le16(&entry, 6)) + 1;
                left -= 8 + length as i64;
                if length > NAME_MAX || left < 0 {
                    return Err(self.damaged("a directory has an impossible name"));
                }
                let name = &mut name[..length];
                reader.read(name)?;
                // CVE-2018-15664 and its kind: a name that is a path leads out of the target folder.
                if name.contains(&b'/') || name.contains(&0) || *name == *b"." || *name == *b".." {
                    return Err(self.damaged("a directory has a name that is a path"));
                }
                let kind = match le16(&entry, 4) {
                    kind::DIR => EntryKind::Dir,
                    kind::FILE => EntryKind::File,
                    kind::SYMLINK => EntryKind::Symlink,
                    kind::BLOCK_DEVICE | kind::CHAR_DEVICE => EntryKind::Device,
                    kind::FIFO => EntryKind::Fifo,
                    kind::SOCKET => EntryKind::Socket,
                    _ => return Err(self.damaged("a directory has an entry of unknown type")),
                };
                if let Some(runs) = runs.as_mut().filter(|runs| runs.len() == known) {
                    let block = at.saturating_sub(self.sb.dir_table);
                    runs.push(Run { offset, block, name: name.to_vec() });
                }
                let place = block << 16 | u64::from(le16(&entry, 0));
                // The difference to the run's number is signed.
                let number = first.wrapping_add_signed(i32::from(le16(&entry, 2) as i16));
                if !with(Raw { name, kind, place, number })? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
