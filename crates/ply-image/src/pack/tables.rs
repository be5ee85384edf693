//! Inodes, directories, ids and xattrs. A directory's listing points at the inodes of what is in it, and its own
//! inode stands with its siblings in the parent's run: so everything below a directory is written first, then
//! the inodes of its entries in the order of their names, then its listing.

use super::PackOptions;
use super::feed::{Data, FileData};
use super::meta::{MetaWriter, Table};
use crate::error::{ImageError, Result};
use crate::format::{DIR_EXTRA, DIR_RUN, META, NONE32, XATTR_PREFIXES, kind};
use crate::tree::{Attr, Node, NodeKind, ROOT, Tree, Xattrs};
use std::collections::HashMap;

/// What is in the image and in which order, before any byte is read.
pub(crate) struct Plan {
    /// The files whose data is written, in order: nodes of the tree.
    pub(crate) files: Vec<u32>,
    /// The inode number of each node; names of one inode share it.
    numbers: Vec<u32>,
    pub(crate) inodes: u32,
    pub(crate) dirs: u64,
    pub(crate) symlinks: u64,
    /// The node whose inode a node is: another one for a hard link that is kept.
    inode_of: Vec<u32>,
    /// The index in `files` of each node that has data.
    data_of: Vec<u32>,
}

impl Plan {
    pub(crate) fn of(tree: &Tree, options: &PackOptions) -> Result<Self> {
        let count = tree.nodes.len();
        let mut plan = Self {
            files: Vec::new(),
            numbers: vec![0; count],
            inodes: 0,
            dirs: 0,
            symlinks: 0,
            inode_of: (0..count as u32).collect(),
            data_of: vec![NONE32; count],
        };
        plan.number(ROOT);
        let mut todo = vec![ROOT];
        while let Some(dir) = todo.pop() {
            let NodeKind::Dir(children) = &tree.nodes[dir as usize].kind else { continue };
            // Neighbours get neighbouring numbers: a listing stores only differences.
            for child in children.values() {
                match &tree.nodes[*child as usize].kind {
                    NodeKind::Link(file) => {
                        plan.data(*file);
                        plan.data_of[*child as usize] = plan.data_of[*file as usize];
                        if options.keep_owners {
                            plan.inode_of[*child as usize] = *file;
                            plan.number(*file);
                            continue;
                        }
                    }
                    NodeKind::File(_) => plan.data(*child),
                    NodeKind::Dir(_) => plan.dirs += 1,
                    NodeKind::Symlink(_) => plan.symlinks += 1,
                    NodeKind::Fifo | NodeKind::Gone => {}
                }
                plan.number(*child);
            }
            todo.extend(
                children.values().rev().filter(|c| matches!(tree.nodes[**c as usize].kind, NodeKind::Dir(_))),
            );
        }
        if plan.inodes == u32::MAX {
            return Err(ImageError::TooMany("entries"));
        }
        Ok(plan)
    }

    fn number(&mut self, at: u32) {
        if self.numbers[at as usize] == 0 {
            self.inodes = self.inodes.saturating_add(1);
            self.numbers[at as usize] = self.inodes;
        }
    }

    fn data(&mut self, at: u32) {
        if self.data_of[at as usize] == NONE32 {
            self.data_of[at as usize] = self.files.len() as u32;
            self.files.push(at);
        }
    }

    fn number_of(&self, at: u32) -> u32 {
        self.numbers[self.inode_of[at as usize] as usize]
    }
}

/// All metadata, compressed.
pub(crate) struct Tables {
    pub(crate) inodes: Vec<u8>,
    pub(crate) dirs: Vec<u8>,
    pub(crate) fragments: Option<Table>,
    pub(crate) ids: Table,
    pub(crate) id_count: u16,
    pub(crate) xattrs: Option<Table>,
    pub(crate) root: u64,
}

impl Tables {
    pub(crate) fn build(tree: &Tree, plan: &Plan, data: &Data, options: &PackOptions) -> Result<Self> {
        let level = options.level;
        let mut builder = Builder {
            tree,
            plan,
            data,
            options,
            inodes: MetaWriter::new(level),
            dirs: MetaWriter::new(level),
            ids: Ids::default(),
            xattrs: XattrTable::new(level),
            written: vec![None; tree.nodes.len()],
            names: vec![1; tree.nodes.len()],
        };
        if options.keep_owners {
            builder.count_names();
        }
        let root = builder.tree_below(ROOT)?;
        let at = builder.dir_inode(ROOT, &root, plan.inodes.wrapping_add(1))?;
        let mut fragments = Vec::with_capacity(data.fragments.len() * 16);
        for (start, size) in &data.fragments {
            fragments.extend_from_slice(&start.to_le_bytes());
            fragments.extend_from_slice(&size.to_le_bytes());
            fragments.extend_from_slice(&[0; 4]);
        }
        let ids: Vec<u8> = builder.ids.list.iter().flat_map(|id| id.to_le_bytes()).collect();
        Ok(Self {
            inodes: builder.inodes.finish(),
            dirs: builder.dirs.finish(),
            fragments: (!fragments.is_empty()).then(|| Table::new(&fragments, level)),
            ids: Table::new(&ids, level),
            id_count: builder.ids.list.len() as u16,
            xattrs: builder.xattrs.finish(level),
            root: at.packed(),
        })
    }
}

/// Where an inode is.
#[derive(Debug, Clone, Copy)]
struct Place {
    block: u64,
    offset: u16,
}

impl Place {
    fn packed(self) -> u64 {
        self.block << 16 | u64::from(self.offset)
    }
}

/// A listing that has been written.
struct Listing {
    block: u64,
    offset: u16,
    bytes: u32,
    subdirs: u32,
    /// One entry for each metadata block after the first: the place of a header, its block, its first name.
    index: Vec<(u32, u32, u32)>,
}

struct Builder<'a> {
    tree: &'a Tree,
    plan: &'a Plan,
    data: &'a Data,
    options: &'a PackOptions,
    inodes: MetaWriter,
    dirs: MetaWriter,
    ids: Ids,
    xattrs: XattrTable,
    written: Vec<Option<(Place, u16)>>,
    /// How many names each inode has.
    names: Vec<u32>,
}

impl Builder<'_> {
    fn count_names(&mut self) {
        for (at, file) in self.plan.inode_of.iter().enumerate() {
            let is_name = matches!(self.tree.nodes[at].kind, NodeKind::Link(_));
            if is_name && *file as usize != at {
                self.names[*file as usize] += 1;
            }
        }
    }

    /// Writes everything below a directory, and its listing.
    fn tree_below(&mut self, top: u32) -> Result<Listing> {
        struct Frame {
            dir: u32,
            subdirs: Vec<u32>,
            listings: HashMap<u32, Listing>,
        }
        let frame = |dir: u32, tree: &Tree| {
            let mut subdirs: Vec<u32> = children(tree, dir)
                .filter(|(_, at)| matches!(tree.nodes[*at as usize].kind, NodeKind::Dir(_)))
                .map(|(_, at)| at)
                .collect();
            subdirs.reverse();
            Frame { dir, subdirs, listings: HashMap::new() }
        };
        let mut stack = vec![frame(top, self.tree)];
        loop {
            let Some(now) = stack.last_mut() else { unreachable!("the last frame returns") };
            if let Some(subdir) = now.subdirs.pop() {
                stack.push(frame(subdir, self.tree));
                continue;
            }
            let listings = std::mem::take(&mut now.listings);
            let dir = now.dir;
            let listing = self.entries(dir, &listings)?;
            stack.pop();
            match stack.last_mut() {
                Some(parent) => parent.listings.insert(dir, listing),
                None => return Ok(listing),
            };
        }
    }

    /// The inodes of what is in a directory, then its listing.
    fn entries(&mut self, dir: u32, listings: &HashMap<u32, Listing>) -> Result<Listing> {
        let parent = self.plan.number_of(dir);
        let mut found = Vec::new();
        for (name, at) in children(self.tree, dir) {
            let inode = self.plan.inode_of[at as usize];
            let (place, inode_kind) = match self.written[inode as usize] {
                Some(written) => written,
                None => {
                    let written = match listings.get(&at) {
                        Some(listing) => (self.dir_inode(at, listing, parent)?, kind::DIR),
                        None => self.plain_inode(inode)?,
                    };
                    self.written[inode as usize] = Some(written);
                    written
                }
            };
            found.push((name, at, place, inode_kind));
        }
        let (block, offset) = self.dirs.position();
        let mut listing =
            Listing { block, offset, bytes: 0, subdirs: listings.len() as u32, index: Vec::new() };
        let mut rest = &found[..];
        let mut header_block = block;
        while let Some((_, first, place, _)) = rest.first() {
            let (now, in_block) = self.dirs.position();
            if now != header_block {
                let block = u32::try_from(now).map_err(|_| ImageError::TooMany("entries"))?;
                listing.index.push((listing.bytes, block, *first));
                header_block = now;
            }
            let base = self.plan.number_of(*first);
            let near = |at: u32| i16::try_from(i64::from(self.plan.number_of(at)) - i64::from(base)).ok();
            let mut end = usize::from(in_block) + 12;
            let run = rest
                .iter()
                .take(DIR_RUN)
                .take_while(|(name, at, p, _)| {
                    let fits = end < META && p.block == place.block && near(*at).is_some();
                    end += 8 + name.len();
                    fits
                })
                .count()
                .max(1);
            let (now, later) = rest.split_at(run);
            rest = later;
            let mut bytes = Vec::with_capacity(12 + 24 * run);
            bytes.extend_from_slice(&(run as u32 - 1).to_le_bytes());
            let inode_block = u32::try_from(place.block).map_err(|_| ImageError::TooMany("entries"))?;
            bytes.extend_from_slice(&inode_block.to_le_bytes());
            bytes.extend_from_slice(&base.to_le_bytes());
            for (name, at, place, inode_kind) in now {
                bytes.extend_from_slice(&place.offset.to_le_bytes());
                bytes.extend_from_slice(&near(*at).unwrap_or(0).to_le_bytes());
                bytes.extend_from_slice(&inode_kind.to_le_bytes());
                bytes.extend_from_slice(&(name.len() as u16 - 1).to_le_bytes());
                bytes.extend_from_slice(name);
            }
            listing.bytes = u32::try_from(bytes.len())
                .ok()
                .and_then(|n| listing.bytes.checked_add(n))
                .filter(|n| *n < u32::MAX - DIR_EXTRA)
                .ok_or(ImageError::TooMany("entries in one directory"))?;
            self.dirs.write(&bytes);
        }
        Ok(listing)
    }

    fn head(&mut self, at: u32, inode_kind: u16) -> Result<Vec<u8>> {
        let node = &self.tree.nodes[at as usize];
        let keep = self.options.keep_owners;
        let mode = match node.kind {
            NodeKind::Symlink(_) => 0o777,
            _ if keep => node.attr.mode,
            NodeKind::Dir(_) => 0o755,
            // The owner's bit tells it: a umask takes the others away.
            _ if node.attr.mode & 0o100 != 0 => 0o755,
            _ => 0o644,
        };
        let (uid, gid) = if keep { (node.attr.uid, node.attr.gid) } else { (0, 0) };
        let mut out = Vec::with_capacity(64);
        for half in [inode_kind, mode, self.ids.index(uid)?, self.ids.index(gid)?] {
            out.extend_from_slice(&half.to_le_bytes());
        }
        out.extend_from_slice(&self.options.epoch.to_le_bytes());
        out.extend_from_slice(&self.plan.number_of(at).to_le_bytes());
        Ok(out)
    }

    fn xattr(&mut self, attr: &Attr) -> Result<u32> {
        if self.options.keep_owners { self.xattrs.index(&attr.xattrs) } else { Ok(NONE32) }
    }

    fn write_inode(&mut self, bytes: &[u8]) -> Place {
        let (block, offset) = self.inodes.position();
        self.inodes.write(bytes);
        Place { block, offset }
    }

    fn dir_inode(&mut self, at: u32, listing: &Listing, parent: u32) -> Result<Place> {
        let attr = &self.tree.nodes[at as usize].attr;
        let xattr = self.xattr(attr)?;
        let links = listing.subdirs + 2;
        let size = listing.bytes + DIR_EXTRA;
        let block = u32::try_from(listing.block).map_err(|_| ImageError::TooMany("entries"))?;
        let small = u16::try_from(size).ok().filter(|_| listing.index.is_empty() && xattr == NONE32);
        let mut out = self.head(at, kind::DIR + if small.is_some() { 0 } else { kind::EXTENDED })?;
        let put = |out: &mut Vec<u8>, words: &[u32]| {
            words.iter().for_each(|w| out.extend_from_slice(&w.to_le_bytes()))
        };
        if let Some(size) = small {
            put(&mut out, &[block, links]);
            out.extend_from_slice(&size.to_le_bytes());
            out.extend_from_slice(&listing.offset.to_le_bytes());
            put(&mut out, &[parent]);
        } else {
            let count = u16::try_from(listing.index.len())
                .map_err(|_| ImageError::TooMany("entries in one directory"))?;
            put(&mut out, &[links, size, block, parent]);
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(&listing.offset.to_le_bytes());
            put(&mut out, &[xattr]);
            for (place, block, first) in &listing.index {
                let name = &self.tree.nodes[*first as usize].name;
                put(&mut out, &[*place, *block, name.len() as u32 - 1]);
                out.extend_from_slice(name);
            }
        }
        Ok(self.write_inode(&out))
    }

    /// The inode of anything but a directory, and its plain type.
    fn plain_inode(&mut self, at: u32) -> Result<(Place, u16)> {
        let node: &Node = &self.tree.nodes[at as usize];
        let names = self.names[at as usize];
        let xattr = self.xattr(&node.attr)?;
        let extended = if xattr == NONE32 { 0 } else { kind::EXTENDED };
        let (out, plain) = match &node.kind {
            NodeKind::File(_) | NodeKind::Link(_) => {
                let data = &self.data.files[self.plan.data_of[at as usize] as usize];
                (self.file_inode(at, data, names, xattr)?, kind::FILE)
            }
            NodeKind::Symlink(target) => {
                let mut out = self.head(at, kind::SYMLINK + extended)?;
                out.extend_from_slice(&1u32.to_le_bytes());
                out.extend_from_slice(&(target.len() as u32).to_le_bytes());
                out.extend_from_slice(target);
                if extended != 0 {
                    out.extend_from_slice(&xattr.to_le_bytes());
                }
                (out, kind::SYMLINK)
            }
            NodeKind::Fifo => {
                let mut out = self.head(at, kind::FIFO + extended)?;
                out.extend_from_slice(&1u32.to_le_bytes());
                if extended != 0 {
                    out.extend_from_slice(&xattr.to_le_bytes());
                }
                (out, kind::FIFO)
            }
            NodeKind::Dir(_) | NodeKind::Gone => unreachable!("directories have listings"),
        };
        Ok((self.write_inode(&out), plain))
    }

    fn file_inode(&mut self, at: u32, data: &FileData, names: u32, xattr: u32) -> Result<Vec<u8>> {
        let (fragment, offset) = data.tail.unwrap_or((NONE32, 0));
        let small = match (u32::try_from(data.size), u32::try_from(data.start)) {
            (Ok(size), Ok(start)) if names == 1 && xattr == NONE32 && data.zeros == 0 => Some((size, start)),
            _ => None,
        };
        let mut out = self.head(at, kind::FILE + if small.is_some() { 0 } else { kind::EXTENDED })?;
        if let Some((size, start)) = small {
            for word in [start, fragment, offset, size] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        } else {
            // The kernel takes it from the size for the count of blocks, and wants something left.
            let zeros = data.zeros.min(data.size.saturating_sub(1));
            for long in [data.start, data.size, zeros] {
                out.extend_from_slice(&long.to_le_bytes());
            }
            for word in [names, fragment, offset, xattr] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        for block in &data.blocks {
            out.extend_from_slice(&block.to_le_bytes());
        }
        Ok(out)
    }
}

fn children(tree: &Tree, dir: u32) -> impl Iterator<Item = (&[u8], u32)> {
    let children = match &tree.nodes[dir as usize].kind {
        NodeKind::Dir(children) => Some(children),
        _ => None,
    };
    children.into_iter().flatten().map(|(name, at)| (&name[..], *at))
}

/// The table of owners and groups.
#[derive(Default)]
struct Ids {
    list: Vec<u32>,
    index: HashMap<u32, u16>,
}

impl Ids {
    fn index(&mut self, id: u32) -> Result<u16> {
        if let Some(index) = self.index.get(&id) {
            return Ok(*index);
        }
        // The superblock counts them in sixteen bits.
        let index = u16::try_from(self.list.len()).ok().filter(|n| *n < u16::MAX);
        let index = index.ok_or(ImageError::TooMany("owners"))?;
        self.list.push(id);
        self.index.insert(id, index);
        Ok(index)
    }
}

/// The table of sets of extended attributes; equal sets are written once.
struct XattrTable {
    values: MetaWriter,
    sets: Vec<u8>,
    count: u32,
    index: HashMap<Xattrs, u32>,
}

impl XattrTable {
    fn new(level: i32) -> Self {
        Self { values: MetaWriter::new(level), sets: Vec::new(), count: 0, index: HashMap::new() }
    }

    fn index(&mut self, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Result<u32> {
        let known: Vec<_> = xattrs
            .iter()
            .filter_map(|(name, value)| {
                let space = XATTR_PREFIXES.iter().position(|prefix| name.starts_with(prefix))?;
                Some((space as u16, &name[XATTR_PREFIXES[space].len()..], name, value))
            })
            .collect();
        if known.is_empty() {
            return Ok(NONE32);
        }
        if let Some(index) = self.index.get(xattrs) {
            return Ok(*index);
        }
        let (block, offset) = self.values.position();
        let mut names = 0;
        for (space, short, name, value) in &known {
            let length = u32::try_from(value.len()).map_err(|_| ImageError::TooMany("bytes in an xattr"))?;
            let short_length =
                u16::try_from(short.len()).map_err(|_| ImageError::TooMany("bytes in an xattr"))?;
            self.values.write(&space.to_le_bytes());
            self.values.write(&short_length.to_le_bytes());
            self.values.write(short);
            self.values.write(&length.to_le_bytes());
            self.values.write(value);
            names += name.len() as u32 + 1;
        }
        self.sets.extend_from_slice(&(block << 16 | u64::from(offset)).to_le_bytes());
        self.sets.extend_from_slice(&(known.len() as u32).to_le_bytes());
        self.sets.extend_from_slice(&names.to_le_bytes());
        let index = self.count;
        self.count += 1;
        self.index.insert(xattrs.to_vec(), index);
        Ok(index)
    }

    fn finish(self, level: i32) -> Option<Table> {
        (self.count > 0).then(|| Table::with_head(self.values.finish(), &self.sets, self.count, level))
    }
}
