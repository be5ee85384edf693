//! Reading files in order, finding those that are the same, and laying out blocks and fragments.

use super::input::{Block, Input};
use super::pipe::{Chunk, Pipe};
use crate::error::{ImageError, Result};
use crate::format::BLOCK;
use crate::tree::{FileNode, NodeKind, Tree};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::path::Path;

/// Where the data of all files is.
#[derive(Debug)]
pub(crate) struct Data {
    /// For each file of the plan, in its order.
    pub(crate) files: Vec<FileData>,
    /// Start and size field of each fragment block.
    pub(crate) fragments: Vec<(u64, u32)>,
    /// Where the data ends.
    pub(crate) end: u64,
    /// How many files share the data of another.
    pub(crate) duplicates: u64,
}

/// Where the data of one file is.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileData {
    /// Where its first block begins.
    pub(crate) start: u64,
    /// The size fields of its blocks; 0 is a block of zeros.
    pub(crate) blocks: Vec<u32>,
    /// The fragment block that holds its tail, and where in it.
    pub(crate) tail: Option<(u32, u32)>,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// How many of them are in blocks of zeros.
    pub(crate) zeros: u64,
}

/// A file as the feeder lays it out: blocks by their number on the belt.
#[derive(Debug, Clone, Default)]
struct Layout {
    /// None is a block of zeros.
    blocks: Vec<Option<u32>>,
    tail: Option<(u32, u32)>,
    zeros: u64,
    same_as: Option<usize>,
}

/// Writes the blocks of all files (nodes of the tree, in this order) to `out`, which stands at `start`.
pub(crate) fn write_data(
    tree: &Tree,
    files: &[u32],
    level: i32,
    threads: usize,
    out: &mut impl Write,
    start: u64,
) -> Result<Data> {
    // Enough for each compressor to have one in hand and one waiting, one that is read, the open fragment, and
    // some that wait for a slow one before them.
    let pipe = Pipe::new(threads * 4 + 4);
    let (fed, written) = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| pipe.work(level));
        }
        let feeder = scope.spawn(|| {
            let mut feed = Feed::new(tree, files, &pipe);
            let outcome = feed.run();
            match &outcome {
                Ok(()) => pipe.close(feed.next),
                Err(_) => pipe.stop(),
            }
            outcome.map(|()| (feed.layouts, feed.fragments, feed.duplicates))
        });
        let written = write_blocks(&pipe, out, start);
        if written.is_err() {
            pipe.stop();
        }
        let fed = feeder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (fed, written)
    });
    let (layouts, fragments, duplicates) = match (fed, &written) {
        // The belt was stopped because of the writer: its error is the cause.
        (Err(_), Err(_)) => return Err(written.err().unwrap_or_else(|| ImageError::TooMany("blocks"))),
        (fed, _) => fed?,
    };
    let (blocks, end) = written?;
    let at = |number: u32| blocks[number as usize];
    let mut done: Vec<FileData> = Vec::with_capacity(files.len());
    for (layout, node) in layouts.into_iter().zip(files) {
        let one = match layout.same_as {
            Some(other) => done[other].clone(),
            None => FileData {
                start: layout.blocks.iter().flatten().next().map_or(0, |first| at(*first).0),
                blocks: layout.blocks.iter().map(|b| b.map_or(0, |number| at(number).1)).collect(),
                tail: layout.tail,
                size: file_node(tree, *node).seen.size,
                zeros: layout.zeros,
            },
        };
        done.push(one);
    }
    Ok(Data { files: done, fragments: fragments.into_iter().map(at).collect(), end, duplicates })
}

/// Takes blocks off the belt in order. Returns start and size field of each, and where the last one ends.
fn write_blocks(pipe: &Pipe, out: &mut impl Write, start: u64) -> Result<(Vec<(u64, u32)>, u64)> {
    let mut written = Vec::new();
    let mut at = start;
    while let Some(chunk) = pipe.next(written.len() as u32) {
        out.write_all(chunk.bytes()).map_err(ImageError::io("write", Path::new("the image")))?;
        written.push((at, chunk.size_field()));
        at += chunk.bytes().len() as u64;
        pipe.give_back(chunk);
    }
    Ok((written, at))
}

fn file_node(tree: &Tree, at: u32) -> &FileNode {
    match &tree.nodes[at as usize].kind {
        NodeKind::File(file) => file,
        _ => unreachable!("the plan lists files only"),
    }
}

/// A file whose data is in the image already.
struct Candidate {
    index: usize,
    /// The hash of all its blocks, where it has more than one.
    whole: u64,
}

struct Feed<'a> {
    tree: &'a Tree,
    files: &'a [u32],
    pipe: &'a Pipe,
    next: u32,
    layouts: Vec<Layout>,
    fragments: Vec<u32>,
    fragment: Option<Chunk>,
    duplicates: u64,
    /// How many files have each size: only those that share one can be the same.
    sizes: HashMap<u64, u32>,
    seen: HashMap<(u64, u64), Vec<Candidate>>,
    /// Only finds candidates, which are then compared whole: it never reaches the image.
    hasher: RandomState,
    spare: Vec<u8>,
}

/// The belt was stopped by the writer, whose own error is what the caller sees.
fn stopped() -> ImageError {
    ImageError::TooMany("blocks")
}

impl<'a> Feed<'a> {
    fn new(tree: &'a Tree, files: &'a [u32], pipe: &'a Pipe) -> Self {
        let mut sizes = HashMap::new();
        for at in files {
            *sizes.entry(file_node(tree, *at).seen.size).or_insert(0) += 1;
        }
        Self {
            tree,
            files,
            pipe,
            next: 0,
            layouts: Vec::with_capacity(files.len()),
            fragments: Vec::new(),
            fragment: None,
            duplicates: 0,
            sizes,
            seen: HashMap::new(),
            hasher: RandomState::new(),
            spare: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<()> {
        let mut buffer = Vec::with_capacity(BLOCK);
        for index in 0..self.files.len() {
            let layout = self.file(index, &mut buffer)?;
            self.layouts.push(layout);
        }
        self.flush_fragment()
    }

    fn file(&mut self, index: usize, buffer: &mut Vec<u8>) -> Result<Layout> {
        let node = file_node(self.tree, self.files[index]);
        let size = node.seen.size;
        let mut layout = Layout::default();
        let mut input = Input::open(node)?;
        let Some(mut block) = input.next(buffer)? else {
            input.check()?;
            return Ok(layout);
        };
        let shares_size = self.sizes.get(&size).is_some_and(|n| *n > 1);
        let key = (size, if shares_size { self.hash(&block, buffer) } else { 0 });
        if shares_size && let Some(other) = self.same_as(key, &mut input, buffer)? {
            input.check()?;
            self.duplicates += 1;
            layout.same_as = Some(other);
            return Ok(layout);
        }
        let mut whole = self.hasher.build_hasher();
        let mut left = size;
        loop {
            let length = left.min(BLOCK as u64);
            left -= length;
            if shares_size && size > BLOCK as u64 {
                mix(&mut whole, &block, buffer);
            }
            match block {
                Block::Zeros(n) => {
                    layout.zeros += n as u64;
                    layout.blocks.push(None);
                }
                Block::Data if (length as usize) < BLOCK && size < BLOCK as u64 => {
                    layout.tail = Some(self.tail(buffer)?);
                }
                Block::Data => {
                    let mut chunk = self.pipe.take().ok_or_else(stopped)?;
                    std::mem::swap(&mut chunk.data, buffer);
                    layout.blocks.push(Some(self.send(chunk)?));
                }
            }
            match input.next(buffer)? {
                Some(next) => block = next,
                None => break,
            }
        }
        input.check()?;
        if shares_size {
            self.seen.entry(key).or_default().push(Candidate { index, whole: whole.finish() });
        }
        Ok(layout)
    }

    fn send(&mut self, chunk: Chunk) -> Result<u32> {
        let number = self.next;
        self.next = number.checked_add(1).ok_or(ImageError::TooMany("blocks"))?;
        self.pipe.feed(number, chunk);
        Ok(number)
    }

    /// Puts a short file into the open fragment, or the next one where it is too full.
    fn tail(&mut self, bytes: &[u8]) -> Result<(u32, u32)> {
        if self.fragment.as_ref().is_some_and(|f| f.data.len() + bytes.len() > BLOCK) {
            self.flush_fragment()?;
        }
        if self.fragment.is_none() {
            self.fragment = Some(self.pipe.take().ok_or_else(stopped)?);
        }
        let fragment = self.fragment.as_mut().ok_or_else(stopped)?;
        let at = fragment.data.len() as u32;
        fragment.data.extend_from_slice(bytes);
        Ok((self.fragments.len() as u32, at))
    }

    fn flush_fragment(&mut self) -> Result<()> {
        if let Some(chunk) = self.fragment.take() {
            let number = self.send(chunk)?;
            self.fragments.push(number);
        }
        Ok(())
    }

    fn hash(&self, block: &Block, bytes: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        mix(&mut hasher, block, bytes);
        hasher.finish()
    }

    /// The file in the image that is the same as `input`, byte for byte, if there is one. `first` holds the first
    /// block, and does so again when none was found.
    fn same_as(
        &mut self,
        key: (u64, u64),
        input: &mut Input<'_>,
        first: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        let Some(candidates) = self.seen.get(&key) else { return Ok(None) };
        let many = key.0 > BLOCK as u64;
        let mut whole = 0;
        if many {
            // Many files can begin alike (each of some gigabytes): one pass tells which one to compare with.
            let mut hasher = self.hasher.build_hasher();
            input.rewind();
            while let Some(block) = input.next(first)? {
                mix(&mut hasher, &block, first);
            }
            whole = hasher.finish();
        }
        let mut found = None;
        for candidate in candidates {
            if many && candidate.whole != whole {
                continue;
            }
            let node = file_node(self.tree, self.files[candidate.index]);
            let mut other = Input::open(node)?;
            input.rewind();
            let same = loop {
                match (input.next(first)?, other.next(&mut self.spare)?) {
                    (None, None) => break true,
                    (a, b) if a == b && *first == self.spare => {}
                    _ => break false,
                }
            };
            // What is in the image is what that file held then: it must hold it still.
            other.check()?;
            if same {
                found = Some(candidate.index);
                break;
            }
        }
        input.rewind();
        input.next(first)?;
        Ok(found)
    }
}

fn mix(hasher: &mut impl Hasher, block: &Block, bytes: &[u8]) {
    match block {
        Block::Data => hasher.write(bytes),
        Block::Zeros(n) => hasher.write_usize(*n),
    }
}
