//! Every entry of an image, once. A directory that is reached twice is a loop or a bomb.

use super::{Body, Image, Inode, Stat};
use crate::error::Result;
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The deepest directory that is entered: nothing that a kernel can name by a path is deeper.
const DEPTH_MAX: usize = 4096;

/// The most entries that are walked, and the most bytes of their listings: what a few crafted bytes claim can be
/// as much as this, and is then still bearable.
pub(super) const ENTRIES_MAX: usize = 1 << 21;
pub(super) const LISTINGS_MAX: u64 = 256 << 20;
/// The most blocks of all files together: 2 TiB at the usual block size.
pub(super) const BLOCKS_MAX: u64 = 1 << 24;

/// One entry of an image with its path from the root (without a leading `/`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walked {
    /// Its path.
    pub path: PathBuf,
    /// What it is.
    pub stat: Stat,
}

/// What a walk does with an entry.
pub(crate) trait Visit {
    /// A directory is entered: `name` is empty for the top.
    fn enter(&mut self, name: OsString, inode: Inode) -> Result<()>;
    /// Anything else in the directory that was entered last.
    fn entry(&mut self, name: OsString, inode: Inode) -> Result<()>;
    /// The directory that was entered last is left.
    fn leave(&mut self) -> Result<()>;
}

impl Image {
    /// Every entry but the root, directories before what is in them, sorted by name in each.
    ///
    /// # Errors
    /// [`ImageError::Damaged`](crate::ImageError::Damaged), [`ImageError::Io`](crate::ImageError::Io).
    pub fn entries(&self) -> Result<Vec<Walked>> {
        struct Collect {
            found: Vec<Walked>,
            at: PathBuf,
            inside: bool,
        }
        impl Visit for Collect {
            fn enter(&mut self, name: OsString, inode: Inode) -> Result<()> {
                if self.inside {
                    self.at.push(&name);
                    self.found.push(Walked { path: self.at.clone(), stat: inode.stat });
                }
                self.inside = true;
                Ok(())
            }
            fn entry(&mut self, name: OsString, inode: Inode) -> Result<()> {
                self.found.push(Walked { path: self.at.join(name), stat: inode.stat });
                Ok(())
            }
            fn leave(&mut self) -> Result<()> {
                self.at.pop();
                Ok(())
            }
        }
        let mut collect = Collect { found: Vec::new(), at: PathBuf::new(), inside: false };
        self.walk(Path::new(""), &mut collect)?;
        Ok(collect.found)
    }

    /// Visits the directory at `top` and everything below it.
    pub(crate) fn walk(&self, top: &Path, visit: &mut dyn Visit) -> Result<()> {
        let inode = self.must(top)?;
        let Body::Dir(listing) = &inode.body else {
            return Err(crate::ImageError::WrongKind {
                image: self.path.clone(),
                path: top.to_owned(),
                wanted: "directory",
            });
        };
        // Listings share nothing in an honest image, so together they are no longer than their table. Without
        // this, a few bytes could list themselves for ever.
        let mut budget = self.most_meta_bytes(self.sb.dir_table, self.sb.id_table).min(LISTINGS_MAX);
        let (mut entries, mut blocks) = (0usize, 0u64);
        let mut seen = HashSet::from([inode.place]);
        let mut spend = |bytes: u32| match budget.checked_sub(u64::from(bytes)) {
            Some(left) => {
                budget = left;
                Ok(())
            }
            None => Err(self.damaged("its directories list more than they hold")),
        };
        spend(listing.bytes)?;
        let mut stack = vec![self.list(listing)?.into_iter()];
        visit.enter(OsString::new(), inode)?;
        while let Some(listing) = stack.last_mut() {
            let Some(entry) = listing.next() else {
                stack.pop();
                visit.leave()?;
                continue;
            };
            let inode = self.inode(entry.place)?;
            entries += 1;
            if let Body::File(file) = &inode.body {
                blocks += file.sizes.len() as u64;
            }
            if entries > ENTRIES_MAX || blocks > BLOCKS_MAX {
                return Err(self.damaged("it claims more entries than an image has"));
            }
            if inode.stat.kind != entry.kind {
                return Err(self.damaged("an entry is not what its directory says"));
            }
            match &inode.body {
                Body::Dir(listing) => {
                    if !seen.insert(inode.place) || stack.len() >= DEPTH_MAX {
                        return Err(self.damaged("a directory is inside of itself or too deep"));
                    }
                    spend(listing.bytes)?;
                    stack.push(self.list(listing)?.into_iter());
                    visit.enter(entry.name, inode)?;
                }
                _ => visit.entry(entry.name, inode)?,
            }
        }
        Ok(())
    }
}
