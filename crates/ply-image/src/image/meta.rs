//! Metadata blocks: 8 KiB each, unpacked on demand, the last ones kept.

use super::Image;
use crate::error::Result;
use crate::format::{META, META_RAW};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use zstd_safe::DCtx;

/// How many blocks are kept: 2 MiB.
const KEPT: usize = 256;

/// One unpacked block, and where the next one begins in the file.
#[derive(Debug)]
pub(super) struct MetaBlock {
    pub(super) bytes: Vec<u8>,
    pub(super) next: u64,
}

/// The blocks that were read last, by their place in the file.
#[derive(Debug, Default)]
pub(super) struct MetaCache(Mutex<HashMap<u64, Arc<MetaBlock>>>);

thread_local! {
    static CONTEXT: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

impl Image {
    /// The metadata block at `at`.
    pub(super) fn meta_block(&self, at: u64) -> Result<Arc<MetaBlock>> {
        if let Some(block) = self.meta.0.lock().unwrap_or_else(PoisonError::into_inner).get(&at) {
            return Ok(Arc::clone(block));
        }
        let block = Arc::new(self.read_meta_block(at)?);
        let mut kept = self.meta.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(at, Arc::clone(&block));
        Ok(block)
    }

    fn read_meta_block(&self, at: u64) -> Result<MetaBlock> {
        let mut head = [0; 2];
        if at >= self.sb.bytes {
            return Err(self.damaged("its metadata points outside of it"));
        }
        self.pread(at, &mut head)?;
        let head = u16::from_le_bytes(head);
        let stored = usize::from(head & !META_RAW);
        let next = at + 2 + stored as u64;
        if stored == 0 || stored > META || next > self.sb.bytes {
            return Err(self.damaged("a metadata block is not inside of it"));
        }
        let mut bytes = vec![0; stored];
        self.pread(at + 2, &mut bytes)?;
        if head & META_RAW == 0 {
            let mut out = vec![0; META];
            let length = CONTEXT
                .with_borrow_mut(|context| context.decompress(&mut out[..], &bytes))
                .map_err(|_| self.damaged("a metadata block can't be unpacked"))?;
            out.truncate(length);
            bytes = out;
        }
        Ok(MetaBlock { bytes, next })
    }
}

/// A cursor in a metadata stream.
pub(super) struct MetaReader<'a> {
    image: &'a Image,
    block: Arc<MetaBlock>,
    at: u64,
    offset: usize,
}

impl<'a> MetaReader<'a> {
    /// At `offset` of the block that begins at `at` in the file.
    pub(super) fn new(image: &'a Image, at: u64, offset: usize) -> Result<Self> {
        let block = image.meta_block(at)?;
        if offset > block.bytes.len() {
            return Err(image.damaged("its metadata points outside of it"));
        }
        Ok(Self { image, block, at, offset })
    }

    /// Where the block begins in which the next byte stands.
    pub(super) fn block_at(&self) -> u64 {
        // At the end of a full block the next byte is the first of the next one.
        if self.offset == META { self.block.next } else { self.at }
    }

    /// Fills `out`.
    pub(super) fn read(&mut self, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            let here = &self.block.bytes[self.offset..];
            if here.is_empty() {
                // A block in the middle of a stream is full; one that is not would make a loop of nothing.
                if self.block.bytes.len() != META {
                    return Err(self.image.damaged("its metadata ends too early"));
                }
                self.at = self.block.next;
                self.block = self.image.meta_block(self.at)?;
                self.offset = 0;
                continue;
            }
            let n = here.len().min(out.len());
            let (now, later) = out.split_at_mut(n);
            now.copy_from_slice(&here[..n]);
            self.offset += n;
            out = later;
        }
        Ok(())
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        self.read(&mut out)?;
        Ok(out)
    }

    /// The next `length` bytes, in steps, so that a claimed length allocates nothing that isn't there.
    pub(super) fn bytes(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        while out.len() < length {
            let have = out.len();
            out.resize(have + (length - have).min(META), 0);
            self.read(&mut out[have..])?;
        }
        Ok(out)
    }
}
