//! The whole metadata of an image, looked at before the kernel mounts it as root.
//!
//! The kernel's own squashfs reader believes more than it should, and it runs with all rights; so nothing is
//! mounted of which ply's reader has not seen every inode, every listing, every table and every attribute that can
//! be reached. It also refuses what would make the kernel see another tree than [`LayerStack`](crate::LayerStack)
//! does: two inodes of one number, an index that leads elsewhere, and the marks by which a layer steers overlayfs
//! (an opaque or redirected directory, a whiteout), which would uncover or hide what other layers hold.

use super::walk::ENTRIES_MAX;
use super::{Body, Image, Inode, Listing, Visit};
use crate::error::{ImageError, Result};
use crate::format::{DATA_RAW, META, NAME_MAX, NONE32, NONE64, SUPER, le32, le64};
use crate::tree::{EntryKind, is_overlay_mark};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The number of these rules. An entry of the store that was checked by older ones is checked again before it is used.
pub(crate) const RULES: u32 = 1;

/// The most bytes of attributes of an image: what all entries together may make somebody read.
const XATTRS_MAX: usize = 256 << 20;

impl Image {
    /// Checks all that a mount relies on: every table, every entry and its attributes, sizes and places inside of the
    /// file, no loop, and nothing that steers an overlay. Data is not read.
    ///
    /// # Errors
    /// [`ImageError::Damaged`], [`ImageError::Forbidden`], [`ImageError::Io`].
    pub fn check(&self) -> Result<()> {
        self.check_super()?;
        self.check_ids()?;
        self.check_fragments()?;
        self.check_xattrs()?;
        let mut check = Check {
            image: self,
            at: PathBuf::new(),
            inside: false,
            places: HashMap::new(),
            sets: HashSet::new(),
            xattrs: 0,
        };
        self.walk(Path::new(""), &mut check)?;
        let places = check.places;
        self.check_export(&places)
    }

    fn check_super(&self) -> Result<()> {
        let sb = &self.sb;
        // What the compression says of itself is one block behind the superblock.
        if sb.has_options {
            self.meta_block(SUPER as u64)?;
        }
        if sb.inodes == 0 || sb.ids == 0 {
            return Err(self.damaged("it has no inodes or no owners"));
        }
        // Each fragment is there for a file at least, and each table is walked whole.
        if sb.inodes as usize > ENTRIES_MAX || sb.fragments > sb.inodes {
            return Err(self.damaged("it claims more entries than an image has"));
        }
        Ok(())
    }

    /// The index of a table lies right before what follows, and its blocks before it in order.
    fn check_index(&self, what: &str, index: u64, bytes: u64, from: u64) -> Result<Vec<u64>> {
        let wrong = || self.damaged(format!("its table of {what} is not inside of it"));
        let blocks = bytes.div_ceil(META as u64);
        let end = blocks.checked_mul(8).and_then(|length| index.checked_add(length)).ok_or_else(wrong)?;
        if end > self.sb.bytes {
            return Err(wrong());
        }
        let mut places = Vec::new();
        let mut before = from;
        for n in 0..blocks {
            let mut at = [0; 8];
            self.pread(index + n * 8, &mut at)?;
            let at = u64::from_le_bytes(at);
            if at < before || at >= index {
                return Err(wrong());
            }
            let block = self.meta_block(at)?;
            let wanted = (bytes - n * META as u64).min(META as u64);
            if (block.bytes.len() as u64) < wanted || block.next > index {
                return Err(wrong());
            }
            before = block.next;
            places.push(at);
        }
        Ok(places)
    }

    fn check_ids(&self) -> Result<()> {
        self.check_index("owners", self.sb.id_table, u64::from(self.sb.ids) * 4, self.sb.dir_table)?;
        Ok(())
    }

    fn check_xattrs(&self) -> Result<()> {
        if self.sb.xattr_table == NONE64 {
            return Ok(());
        }
        let mut head = [0; 16];
        self.pread(self.sb.xattr_table, &mut head)?;
        let (values, sets) = (le64(&head, 0), le32(&head, 8));
        if values < self.sb.dir_table || values > self.sb.xattr_table || sets > self.sb.inodes {
            return Err(self.damaged("its table of xattrs is not inside of it"));
        }
        let index = self.sb.xattr_table + 16;
        // Before the superblock's place of the table stand its blocks, and before these the values.
        self.check_index("xattrs", index, u64::from(sets) * 16, values)?;
        Ok(())
    }

    fn check_fragments(&self) -> Result<()> {
        if self.sb.fragments == 0 {
            return Ok(());
        }
        let bytes = u64::from(self.sb.fragments) * 16;
        let places = self.check_index("fragments", self.sb.fragment_table, bytes, self.sb.dir_table)?;
        let mut left = self.sb.fragments as usize;
        for at in places {
            let block = self.meta_block(at)?;
            for entry in block.bytes.chunks_exact(16).take(left.min(META / 16)) {
                self.check_data(le64(entry, 0), le32(entry, 8), "a fragment")?;
            }
            left = left.saturating_sub(META / 16);
        }
        Ok(())
    }

    /// A block of data is no longer than a block, and stands before the metadata. Gives where it ends.
    fn check_data(&self, at: u64, field: u32, what: &str) -> Result<u64> {
        let stored = u64::from(field & !DATA_RAW);
        match at.checked_add(stored) {
            Some(end)
                if stored > 0
                    && stored <= self.block_size()
                    && at >= SUPER as u64
                    && end <= self.sb.inode_table =>
            {
                Ok(end)
            }
            _ => Err(self.damaged(format!("{what} is not inside of it"))),
        }
    }

    /// The table by which inodes are found by number says what the walk found.
    fn check_export(&self, places: &HashMap<u32, u64>) -> Result<()> {
        if self.sb.export_table == NONE64 {
            return Ok(());
        }
        let bytes = u64::from(self.sb.inodes) * 8;
        let blocks = self.check_index("inodes", self.sb.export_table, bytes, self.sb.dir_table)?;
        let mut number = 0;
        for at in blocks {
            for place in self.meta_block(at)?.bytes.chunks_exact(8) {
                number += 1;
                if number > self.sb.inodes {
                    return Ok(());
                }
                let place = le64(place, 0);
                let known = match places.get(&number) {
                    Some(known) => *known == place,
                    // One that no directory has.
                    None => self.inode(place)?.stat.inode == number,
                };
                if !known {
                    return Err(self.damaged("its table of inodes says something else than its directories"));
                }
            }
        }
        Ok(())
    }

    /// The index of a large directory leads to where its runs begin, and nowhere else: the kernel looks names up by it.
    fn check_dir_index(&self, inode: &Inode, listing: &Listing) -> Result<()> {
        if listing.indexed == 0 {
            return Ok(());
        }
        let wrong = || self.damaged("the index of a directory leads elsewhere");
        let runs = self.runs(listing)?;
        let mut runs = runs.into_iter();
        let mut reader = self.behind_dir(inode.place)?;
        for _ in 0..listing.indexed {
            let head: [u8; 12] = reader.array()?;
            let (offset, block, length) = (le32(&head, 0), le32(&head, 4), le32(&head, 8) as usize);
            if length >= NAME_MAX {
                return Err(wrong());
            }
            let name = reader.bytes(length + 1)?;
            let run = runs.find(|run| run.offset == offset).ok_or_else(wrong)?;
            if run.block != u64::from(block) || run.name != name {
                return Err(wrong());
            }
        }
        Ok(())
    }
}

struct Check<'a> {
    image: &'a Image,
    /// The directory that the walk is in.
    at: PathBuf,
    inside: bool,
    /// Where the inode of each number is.
    places: HashMap<u32, u64>,
    /// The sets of attributes that were read.
    sets: HashSet<u32>,
    xattrs: usize,
}

impl Check<'_> {
    fn one(&mut self, path: &Path, inode: &Inode) -> Result<()> {
        let image = self.image;
        let number = inode.stat.inode;
        if number == 0 || number > image.sb.inodes {
            return Err(image.damaged("an inode has an impossible number"));
        }
        match self.places.insert(number, inode.place) {
            None => {}
            // Another name of the same file.
            Some(place) if place == inode.place => return Ok(()),
            // The kernel knows an inode by its number, and would take the one for the other.
            Some(_) => return Err(image.damaged("two inodes have one number")),
        }
        if inode.stat.size > i64::MAX as u64 {
            return Err(image.damaged("a file is larger than any can be"));
        }
        match &inode.body {
            Body::File(blocks) => {
                for n in 0..blocks.sizes.len() as u64 {
                    let (at, field) = blocks.place(n);
                    if field != 0 {
                        image.check_data(at, field, "a block")?;
                    }
                }
                if let Some(tail) = blocks.tail {
                    let length = inode.stat.size % image.block_size();
                    if u64::from(tail.offset) + length > image.block_size() {
                        return Err(image.damaged("a tail is not in its fragment"));
                    }
                }
            }
            Body::Dir(listing) => image.check_dir_index(inode, listing)?,
            Body::Symlink(_) => {}
            // A device 0:0 is a whiteout, and no image of ply's has any other either (spec/02).
            Body::Special if inode.stat.kind == EntryKind::Device => {
                return Err(self.forbidden(path, "is a device".to_owned()));
            }
            Body::Special => {}
        }
        self.attributes(path, inode.xattr)
    }

    fn attributes(&mut self, path: &Path, set: u32) -> Result<()> {
        if set == NONE32 || !self.sets.insert(set) {
            return Ok(());
        }
        for (name, value) in self.image.xattr_set(set)? {
            if is_overlay_mark(&name) {
                let what = format!("has the xattr {}, which steers an overlay", name.escape_ascii());
                return Err(self.forbidden(path, what));
            }
            self.xattrs += name.len() + value.len();
        }
        if self.xattrs > XATTRS_MAX {
            return Err(self.image.damaged("it has more xattrs than an image has"));
        }
        Ok(())
    }

    fn forbidden(&self, path: &Path, what: String) -> ImageError {
        ImageError::Forbidden { image: self.image.path.clone(), path: Path::new("/").join(path), what }
    }
}

impl Visit for Check<'_> {
    fn enter(&mut self, name: OsString, _: usize, inode: Inode) -> Result<()> {
        if self.inside {
            self.at.push(name);
        }
        self.inside = true;
        let path = self.at.clone();
        self.one(&path, &inode)
    }

    fn entry(&mut self, name: OsString, _: usize, inode: Inode) -> Result<()> {
        let path = self.at.join(name);
        self.one(&path, &inode)
    }

    fn leave(&mut self) -> Result<()> {
        self.at.pop();
        Ok(())
    }
}
