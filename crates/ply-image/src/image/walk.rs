//! Every entry of an image, or of several that are merged, once. A directory that is reached twice is a loop or a
//! bomb.

use super::{Body, Image, Inode, Stat};
use crate::error::Result;
use crate::tree::EntryKind;
use std::collections::{BTreeMap, HashSet};
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

/// What a path is: in one layer, or, for a directory, in several, the topmost first.
pub(crate) type Found = Vec<(usize, Inode)>;

/// What a walk does with an entry of the layer with this number.
pub(crate) trait Visit {
    /// A directory is entered: `name` is empty for the top. `inode` is that of the topmost layer that has it.
    fn enter(&mut self, name: OsString, layer: usize, inode: Inode) -> Result<()>;
    /// Anything else in the directory that was entered last.
    fn entry(&mut self, name: OsString, layer: usize, inode: Inode) -> Result<()>;
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
            fn enter(&mut self, name: OsString, _: usize, inode: Inode) -> Result<()> {
                if self.inside {
                    self.at.push(&name);
                    self.found.push(Walked { path: self.at.clone(), stat: inode.stat });
                }
                self.inside = true;
                Ok(())
            }
            fn entry(&mut self, name: OsString, _: usize, inode: Inode) -> Result<()> {
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
        walk(&[self], vec![(0, self.directory(top)?)], visit)
    }

    /// The directory at `path`.
    pub(crate) fn directory(&self, path: &Path) -> Result<Inode> {
        let inode = self.must(path)?;
        match inode.body {
            Body::Dir(_) => Ok(inode),
            _ => Err(crate::ImageError::WrongKind {
                image: self.path.clone(),
                path: path.to_owned(),
                wanted: "directory",
            }),
        }
    }
}

/// Visits the directory `top` of these images and everything below it, merged as overlayfs merges them: a directory
/// is that of all layers down to the first that has something else there, anything else is the topmost one's.
pub(crate) fn walk(images: &[&Image], top: Found, visit: &mut dyn Visit) -> Result<()> {
    let mut walk = Walk { images, limits: Limits::of(images) };
    let mut stack = vec![walk.children(&top)?.into_iter()];
    let Some((layer, inode)) = top.into_iter().next() else { return Ok(()) };
    visit.enter(OsString::new(), layer, inode)?;
    while let Some(listing) = stack.last_mut() {
        let Some(child) = listing.next() else {
            stack.pop();
            visit.leave()?;
            continue;
        };
        let mut found = walk.read(&child)?;
        if child.first.kind == EntryKind::Dir {
            if stack.len() >= DEPTH_MAX {
                return Err(images[child.first.layer].damaged("a directory is inside of itself or too deep"));
            }
            stack.push(walk.children(&found)?.into_iter());
            let (layer, inode) = found.swap_remove(0);
            visit.enter(child.name, layer, inode)?;
        } else {
            let (layer, inode) = found.swap_remove(0);
            visit.entry(child.name, layer, inode)?;
        }
    }
    Ok(())
}

/// One name of a layer's directory.
#[derive(Clone, Copy)]
struct At {
    layer: usize,
    kind: EntryKind,
    place: u64,
    number: u32,
}

/// One name of a merged directory.
struct Child {
    name: OsString,
    first: At,
    /// The same name in the layers below.
    below: Vec<At>,
}

struct Walk<'a> {
    images: &'a [&'a Image],
    limits: Limits,
}

/// What a walk may still spend.
struct Limits {
    /// For each layer, the bytes of listings. They share nothing in an honest image, so together they are no longer
    /// than their table. Without this, a few bytes could list themselves for ever.
    listings: Vec<u64>,
    entries: usize,
    blocks: u64,
    /// The directories that were read, by layer and place.
    seen: HashSet<(usize, u64)>,
}

impl Limits {
    fn of(images: &[&Image]) -> Self {
        let listings = images
            .iter()
            .map(|image| image.most_meta_bytes(image.sb.dir_table, image.sb.id_table).min(LISTINGS_MAX));
        Self { listings: listings.collect(), entries: 0, blocks: 0, seen: HashSet::new() }
    }
}

impl Walk<'_> {
    /// What is in a directory, by name.
    fn children(&mut self, found: &Found) -> Result<Vec<Child>> {
        let mut merged: Vec<Child> = Vec::new();
        for (layer, inode) in found {
            let image = self.images[*layer];
            let Body::Dir(listing) = &inode.body else { continue };
            if !self.limits.seen.insert((*layer, inode.place)) {
                return Err(image.damaged("a directory is inside of itself or too deep"));
            }
            let left = &mut self.limits.listings[*layer];
            *left = left
                .checked_sub(u64::from(listing.bytes))
                .ok_or_else(|| image.damaged("its directories list more than they hold"))?;
            let entries = image.list(listing)?.into_iter().map(|entry| {
                let (kind, place, number) = (entry.kind, entry.place, entry.number);
                (entry.name, At { layer: *layer, kind, place, number })
            });
            if merged.is_empty() {
                merged.extend(entries.map(|(name, first)| Child { name, first, below: Vec::new() }));
                continue;
            }
            let mut by_name: BTreeMap<OsString, Child> =
                merged.into_iter().map(|child| (child.name.clone(), child)).collect();
            for (name, at) in entries {
                match by_name.get_mut(&name) {
                    Some(child) => child.below.push(at),
                    None => drop(by_name.insert(name.clone(), Child { name, first: at, below: Vec::new() })),
                }
            }
            merged = by_name.into_values().collect();
        }
        Ok(merged)
    }

    /// The inodes of a child: one, or those of all directories that merge there.
    fn read(&mut self, child: &Child) -> Result<Found> {
        let is_dir = child.first.kind == EntryKind::Dir;
        let below = child.below.iter().take_while(|at| is_dir && at.kind == EntryKind::Dir);
        let mut found = Found::new();
        for at in [&child.first].into_iter().chain(below) {
            let image = self.images[at.layer];
            let inode = image.inode(at.place)?;
            self.limits.entries += 1;
            if let Body::File(file) = &inode.body {
                self.limits.blocks += file.sizes.len() as u64;
            }
            if self.limits.entries > ENTRIES_MAX || self.limits.blocks > BLOCKS_MAX {
                return Err(image.damaged("it claims more entries than an image has"));
            }
            if inode.stat.kind != at.kind || inode.stat.inode != at.number {
                return Err(image.damaged("an entry is not what its directory says"));
            }
            found.push((at.layer, inode));
        }
        Ok(found)
    }
}
