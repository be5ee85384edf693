//! What an extraction will make, known whole before the first name is made.

use crate::error::Result;
use crate::image::{Body, Found, Image, Inode, Stat};
use crate::tree::EntryKind;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A directory; number 0 is the target.
pub(super) struct PlanDir {
    pub(super) parent: u32,
    pub(super) name: OsString,
    pub(super) layer: usize,
    pub(super) stat: Stat,
    pub(super) xattr: u32,
}

/// A regular file, by its first name.
pub(super) struct PlanFile {
    pub(super) dir: u32,
    pub(super) name: OsString,
    pub(super) layer: usize,
    pub(super) inode: Inode,
}

/// Another name of a file.
pub(super) struct PlanLink {
    pub(super) dir: u32,
    pub(super) name: OsString,
    pub(super) file: u32,
}

/// A symlink or a fifo.
pub(super) struct PlanOther {
    pub(super) dir: u32,
    pub(super) name: OsString,
    pub(super) inode: Inode,
}

/// Everything, in the order of the walk.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) dirs: Vec<PlanDir>,
    pub(super) files: Vec<PlanFile>,
    pub(super) links: Vec<PlanLink>,
    pub(super) others: Vec<PlanOther>,
    pub(super) skipped: Vec<PathBuf>,
    /// Bytes of content, holes not counted.
    pub(super) bytes: u64,
}

impl Plan {
    /// The plan of the directory `top` in these images, merged.
    pub(super) fn of(images: &[&Image], top: Found) -> Result<Self> {
        let mut collect = Collect { images, plan: Self::default(), at: Vec::new(), names: HashMap::new() };
        crate::image::walk(images, top, &mut collect)?;
        Ok(collect.plan)
    }

    /// The path of a directory beneath the target, without `/` at either end.
    pub(super) fn path(&self, mut at: u32) -> Vec<u8> {
        let mut names = Vec::new();
        while at != 0 {
            let dir = &self.dirs[at as usize];
            names.push(dir.name.as_bytes());
            at = dir.parent;
        }
        names.reverse();
        names.join(&b'/')
    }
}

struct Collect<'a> {
    images: &'a [&'a Image],
    plan: Plan,
    /// The directories that the walk is in.
    at: Vec<u32>,
    /// Files with several names, by layer and place of the inode.
    names: HashMap<(usize, u64), u32>,
}

impl crate::image::Visit for Collect<'_> {
    fn enter(&mut self, name: OsString, layer: usize, inode: Inode) -> Result<()> {
        let number = self.plan.dirs.len() as u32;
        let parent = self.at.last().copied().unwrap_or(0);
        self.plan.dirs.push(PlanDir { parent, name, layer, stat: inode.stat, xattr: inode.xattr });
        self.at.push(number);
        Ok(())
    }

    fn entry(&mut self, name: OsString, layer: usize, inode: Inode) -> Result<()> {
        let dir = self.at.last().copied().unwrap_or(0);
        match inode.stat.kind {
            EntryKind::File => {
                if inode.stat.links > 1
                    && let Some(file) = self.names.get(&(layer, inode.place)).copied()
                {
                    self.plan.links.push(PlanLink { dir, name, file });
                    return Ok(());
                }
                if inode.stat.links > 1 {
                    self.names.insert((layer, inode.place), self.plan.files.len() as u32);
                }
                if let Body::File(blocks) = &inode.body {
                    let stored = blocks.stored(inode.stat.size, self.images[layer].block_size());
                    self.plan.bytes = self.plan.bytes.saturating_add(stored);
                }
                self.plan.files.push(PlanFile { dir, name, layer, inode });
            }
            EntryKind::Symlink | EntryKind::Fifo => self.plan.others.push(PlanOther { dir, name, inode }),
            _ => {
                let dir = self.plan.path(dir);
                self.plan.skipped.push(Path::new(OsStr::from_bytes(&dir)).join(name));
            }
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        self.at.pop();
        Ok(())
    }
}
