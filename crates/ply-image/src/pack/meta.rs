//! Metadata streams: 8 KiB blocks, each compressed on its own behind a 16-bit header, and the tables over them.

use crate::format::{META, META_RAW};
use std::io;
use zstd_safe::CCtx;

/// Metadata being written.
pub(crate) struct MetaWriter {
    pending: Vec<u8>,
    out: Vec<u8>,
    starts: Vec<u64>,
    context: CCtx<'static>,
    level: i32,
}

impl MetaWriter {
    pub(crate) fn new(level: i32) -> Self {
        Self {
            pending: Vec::with_capacity(2 * META),
            out: Vec::new(),
            starts: Vec::new(),
            context: CCtx::create(),
            level,
        }
    }

    /// Where the next byte stands: the start of its block among the compressed ones, and the offset in it.
    pub(crate) fn position(&self) -> (u64, u16) {
        (self.out.len() as u64, self.pending.len() as u16)
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(META - self.pending.len()));
            self.pending.extend_from_slice(now);
            bytes = later;
            if self.pending.len() == META {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.starts.push(self.out.len() as u64);
        let mut packed = [0u8; META];
        let room = self.pending.len() - 1;
        match self.context.compress(&mut packed[..room], &self.pending, self.level) {
            Ok(length) => {
                self.out.extend_from_slice(&(length as u16).to_le_bytes());
                self.out.extend_from_slice(&packed[..length]);
            }
            Err(_) => {
                self.out.extend_from_slice(&(self.pending.len() as u16 | META_RAW).to_le_bytes());
                self.out.extend_from_slice(&self.pending);
            }
        }
        self.pending.clear();
    }

    /// The whole stream.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.flush();
        self.out
    }

    fn finish_with_starts(mut self) -> (Vec<u8>, Vec<u64>) {
        self.flush();
        (self.out, self.starts)
    }
}

/// A table of records of one size: metadata blocks, then the position of each.
pub(crate) struct Table {
    /// What stands before the records (the names and values of xattrs).
    before: Vec<u8>,
    records: Vec<u8>,
    starts: Vec<u64>,
    /// A head before the positions: the number of xattr sets.
    head: Option<u32>,
}

impl Table {
    pub(crate) fn new(records: &[u8], level: i32) -> Self {
        let mut writer = MetaWriter::new(level);
        writer.write(records);
        let (records, starts) = writer.finish_with_starts();
        Self { before: Vec::new(), records, starts, head: None }
    }

    pub(crate) fn with_head(before: Vec<u8>, records: &[u8], count: u32, level: i32) -> Self {
        Self { before, head: Some(count), ..Self::new(records, level) }
    }

    /// Writes it and returns what the superblock says: the place of the positions.
    pub(crate) fn write(&self, put: &mut impl FnMut(&[u8]) -> io::Result<u64>) -> io::Result<u64> {
        let before = put(&self.before)?;
        let base = put(&self.records)?;
        let mut index = Vec::new();
        if let Some(count) = self.head {
            index.extend_from_slice(&before.to_le_bytes());
            index.extend_from_slice(&count.to_le_bytes());
            index.extend_from_slice(&0u32.to_le_bytes());
        }
        for start in &self.starts {
            index.extend_from_slice(&(base + start).to_le_bytes());
        }
        put(&index)
    }
}
