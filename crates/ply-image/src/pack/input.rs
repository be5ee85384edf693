//! The bytes of one file, block by block, from a path or from memory, with holes seen as holes and with a check
//! that the file is still the one that was looked at.

use crate::error::{ImageError, Result};
use crate::format::BLOCK;
use crate::tree::{FileNode, Seen, Source};
use rustix::fs::{Mode, OFlags, SeekFrom};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// What the next block of a file is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// The buffer holds it.
    Data,
    /// This many zeros; the buffer is empty.
    Zeros(usize),
}

/// A file being read.
pub(crate) struct Input<'a> {
    from: From<'a>,
    size: u64,
    at: u64,
}

enum From<'a> {
    Bytes(&'a [u8]),
    File {
        file: File,
        path: &'a Path,
        seen: Seen,
        /// Where the next data begins, in a file with holes.
        data: Option<u64>,
    },
}

impl<'a> Input<'a> {
    pub(crate) fn open(node: &'a FileNode) -> Result<Self> {
        let size = node.seen.size;
        let from = match &node.source {
            Source::Bytes(bytes) => From::Bytes(bytes),
            Source::Path(path) => {
                // A fifo that took the file's place must not hold us, a symlink must not lead us elsewhere.
                let flags =
                    OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
                let file = match rustix::fs::open(path, flags, Mode::empty()) {
                    Ok(fd) => File::from(fd),
                    Err(rustix::io::Errno::NOENT) => return Err(ImageError::Vanished(path.clone())),
                    Err(rustix::io::Errno::LOOP) => return Err(ImageError::Changed(path.clone())),
                    Err(e) => return Err(ImageError::os("read", path)(e)),
                };
                let mut data = None;
                if size > BLOCK as u64 {
                    let meta = file.metadata().map_err(ImageError::io("read", path))?;
                    if meta.blocks() * 512 < size {
                        data = Some(0);
                    }
                }
                From::File { file, path, seen: node.seen, data }
            }
        };
        Ok(Self { from, size, at: 0 })
    }

    /// Reads the next block of at most [`BLOCK`] bytes into `buffer`; none at the end of the file.
    pub(crate) fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Block>> {
        buffer.clear();
        let length = (self.size - self.at).min(BLOCK as u64) as usize;
        if length == 0 {
            return Ok(None);
        }
        let end = self.at + length as u64;
        match &mut self.from {
            From::Bytes(bytes) => buffer.extend_from_slice(&bytes[self.at as usize..end as usize]),
            From::File { file, path, data, .. } => {
                if let Some(next) = data.as_mut().filter(|next| **next <= self.at) {
                    *next = match rustix::fs::seek(&*file, SeekFrom::Data(self.at)) {
                        Ok(at) => at,
                        Err(rustix::io::Errno::NXIO) => u64::MAX,
                        // A file system that doesn't know holes.
                        Err(_) => 0,
                    };
                }
                if data.is_some_and(|next| next >= end) {
                    self.at = end;
                    return Ok(Some(Block::Zeros(length)));
                }
                buffer.resize(length, 0);
                let (file, path) = (&*file, *path);
                if let Err(e) = file.read_exact_at(buffer, self.at) {
                    // What can't be read any more has mostly become something else.
                    self.check()?;
                    return Err(match e.kind() {
                        std::io::ErrorKind::UnexpectedEof => ImageError::Changed(path.to_path_buf()),
                        _ => ImageError::io("read", path)(e),
                    });
                }
            }
        }
        self.at = end;
        if is_zero(buffer) {
            buffer.clear();
            return Ok(Some(Block::Zeros(length)));
        }
        Ok(Some(Block::Data))
    }

    /// Starts over from the first block.
    pub(crate) fn rewind(&mut self) {
        self.at = 0;
        if let From::File { data: Some(data), .. } = &mut self.from {
            *data = 0;
        }
    }

    /// The file is what it was when it was added to the tree: to be asked after the last read.
    pub(crate) fn check(&self) -> Result<()> {
        if let From::File { file, path, seen, .. } = &self.from {
            let meta = file.metadata().map_err(ImageError::io("read", path))?;
            if Seen::of(&meta) != *seen || !meta.is_file() {
                return Err(ImageError::Changed(path.to_path_buf()));
            }
        }
        Ok(())
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    // The first bytes tell it nearly always.
    bytes.first() == Some(&0) && {
        let mut words = bytes.chunks_exact(16);
        words.by_ref().all(|w| u128::from_ne_bytes(w.try_into().unwrap_or([1; 16])) == 0)
            && words.remainder().iter().all(|b| *b == 0)
    }
}
