//! The tables of ids, fragments and xattrs. An entry is looked up when it is needed; only the ids are read whole.

use super::Image;
use super::meta::MetaReader;
use crate::error::Result;
use crate::format::{META, NONE32, NONE64, XATTR_ELSEWHERE, XATTR_PREFIXES, le16, le32, le64};
use crate::tree::Xattrs;

/// A place in a fragment block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FragmentPlace {
    /// Where the block begins in the file.
    pub(crate) start: u64,
    /// Its size field.
    pub(crate) field: u32,
    /// Where in it.
    pub(crate) offset: u32,
}

/// The most attributes of one entry that are read, and the longest value: what the kernel allows.
const XATTRS_MAX: u32 = 4096;
const XATTR_VALUE_MAX: u32 = 65536;
/// The most bytes of one set: more than any file system here takes.
const XATTR_SET_MAX: usize = 1 << 20;

impl Image {
    /// Owner number `index`.
    pub(super) fn id(&self, index: u16) -> Result<u32> {
        let ids = match self.ids.get() {
            Some(ids) => ids,
            None => {
                let ids = self.read_ids()?;
                self.ids.get_or_init(|| ids)
            }
        };
        ids.get(usize::from(index)).copied().ok_or_else(|| self.damaged("an owner is not in its table"))
    }

    fn read_ids(&self) -> Result<Vec<u32>> {
        let count = usize::from(self.sb.ids);
        let mut ids = Vec::new();
        let per_block = META / 4;
        while ids.len() < count {
            let mut reader = self.table_block(self.sb.id_table, (ids.len() / per_block) as u64)?;
            let bytes = reader.bytes((count - ids.len()).min(per_block) * 4)?;
            ids.extend(bytes.chunks_exact(4).map(|b| le32(b, 0)));
        }
        Ok(ids)
    }

    /// Block number `n` of a table whose positions begin at `index`.
    fn table_block(&self, index: u64, n: u64) -> Result<MetaReader<'_>> {
        let mut at = [0; 8];
        let place = n.checked_mul(8).and_then(|n| index.checked_add(n)).and_then(|p| p.checked_add(8));
        let place =
            place.filter(|end| *end <= self.sb.bytes).ok_or_else(|| self.damaged("a table is cut off"))?;
        self.pread(place - 8, &mut at)?;
        MetaReader::new(self, u64::from_le_bytes(at), 0)
    }

    /// Fragment number `index`, at `offset` in it.
    pub(super) fn fragment(&self, index: u32, offset: u32) -> Result<FragmentPlace> {
        if index >= self.sb.fragments {
            return Err(self.damaged("a fragment is not in its table"));
        }
        let per_block = (META / 16) as u32;
        let mut reader = self.table_block(self.sb.fragment_table, u64::from(index / per_block))?;
        reader.skip((index % per_block) as usize * 16)?;
        let entry: [u8; 16] = reader.array()?;
        Ok(FragmentPlace { start: le64(&entry, 0), field: le32(&entry, 8), offset })
    }

    /// Set number `index` of extended attributes.
    pub(crate) fn xattr_set(&self, index: u32) -> Result<Xattrs> {
        if index == NONE32 || self.sb.xattr_table == NONE64 {
            return Ok(Vec::new());
        }
        let mut head = [0; 16];
        self.pread(self.sb.xattr_table, &mut head)?;
        let (values, count) = (le64(&head, 0), le32(&head, 8));
        if index >= count {
            return Err(self.damaged("a set of xattrs is not in its table"));
        }
        let per_block = (META / 16) as u32;
        let mut reader = self.table_block(self.sb.xattr_table + 16, u64::from(index / per_block))?;
        reader.skip((index % per_block) as usize * 16)?;
        let set: [u8; 16] = reader.array()?;
        let (place, count) = (le64(&set, 0), le32(&set, 8));
        if count > XATTRS_MAX {
            return Err(self.damaged("a file has an impossible number of xattrs"));
        }
        let mut reader = self.xattr_reader(values, place)?;
        let (mut found, mut total) = (Vec::new(), 0);
        for _ in 0..count {
            let head: [u8; 4] = reader.array()?;
            let (space, length) = (le16(&head, 0), usize::from(le16(&head, 2)));
            let mut name = match XATTR_PREFIXES.get(usize::from(space & !XATTR_ELSEWHERE)) {
                Some(prefix) => prefix.to_vec(),
                None => return Err(self.damaged("an xattr has an unknown namespace")),
            };
            name.extend(reader.bytes(length)?);
            let length = le32(&reader.array::<4>()?, 0);
            let value = if space & XATTR_ELSEWHERE == 0 {
                self.xattr_value(&mut reader, length)?
            } else {
                let place = le64(&reader.array::<8>()?, 0);
                let mut elsewhere = self.xattr_reader(values, place)?;
                let length = le32(&elsewhere.array::<4>()?, 0);
                self.xattr_value(&mut elsewhere, length)?
            };
            total += name.len() + value.len();
            if total > XATTR_SET_MAX {
                return Err(self.damaged("a file has more xattrs than any file system takes"));
            }
            if name.contains(&0) {
                return Err(self.damaged("an xattr has a zero byte in its name"));
            }
            found.push((name, value));
        }
        Ok(found)
    }

    fn xattr_reader(&self, values: u64, place: u64) -> Result<MetaReader<'_>> {
        let at = values.checked_add(place >> 16).filter(|at| *at < self.sb.xattr_table);
        let at = at.ok_or_else(|| self.damaged("an xattr is not in its table"))?;
        MetaReader::new(self, at, (place & 0xffff) as usize)
    }

    fn xattr_value(&self, reader: &mut MetaReader<'_>, length: u32) -> Result<Vec<u8>> {
        if length > XATTR_VALUE_MAX {
            return Err(self.damaged("an xattr is longer than the kernel allows"));
        }
        reader.bytes(length as usize)
    }
}

impl MetaReader<'_> {
    /// Passes over `length` bytes, less than a block.
    fn skip(&mut self, length: usize) -> Result<()> {
        self.bytes(length).map(drop)
    }
}
