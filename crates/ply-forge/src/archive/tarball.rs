//! Unpacking a tar stream into a tree in memory, with distrust. The kinds of tricks: names with `..`, absolute
//! names, hard links to files outside (CVE-2018-15664 and its kin: nothing here touches the host, but what is
//! minted must not carry a trap either), devices, sizes that lie, and bombs (CVE-2023-25153).

use crate::files::{Entry, Files, Meta, Spool, names};
use std::io::Read;

/// What an archive may hold at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Entries.
    pub(crate) entries: u64,
    /// Bytes of all contents, unpacked.
    pub(crate) bytes: u64,
}

impl Default for Limits {
    /// A million entries and 16 GiB: above every package of Debian, below what hurts.
    fn default() -> Self {
        Self { entries: 1 << 20, bytes: 16 << 30 }
    }
}

/// Unpacks into `files`. `place` turns an entry's name (its `..`-free names, joined by `/`) into a path of the tree,
/// or leaves the entry out.
///
/// # Errors
/// The rule that an entry breaks, in words, with its name.
pub(crate) fn unpack(
    stream: impl Read,
    limits: Limits,
    spool: &Spool,
    files: &mut Files,
    place: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<(), String> {
    // Headers of links, long names and padding count too: a stream can't be endless without entries.
    let stream = stream.take(limits.bytes.saturating_add(limits.entries.saturating_mul(4096)));
    let mut archive = tar::Archive::new(stream);
    let (mut entries, mut bytes) = (0_u64, 0_u64);
    for entry in archive.entries().map_err(|e| e.to_string())? {
        let mut entry = entry.map_err(|e| e.to_string())?;
        entries += 1;
        if entries > limits.entries {
            return Err(format!("it holds more than {} entries", limits.entries));
        }
        let raw = entry.path_bytes().into_owned();
        let shown = || String::from_utf8_lossy(&raw).escape_debug().to_string();
        let name = clean(&raw).map_err(|why| format!("its entry \"{}\" {why}", shown()))?;
        let header = entry.header();
        let number = |n: std::io::Result<u64>| {
            n.ok()
                .and_then(|n| u32::try_from(n).ok())
                .ok_or_else(|| format!("\"{}\" has an owner beyond 32 bits", shown()))
        };
        let mode = header.mode().map_err(|e| format!("\"{}\": {e}", shown()))? & 0o7777;
        let meta = Meta { mode, uid: number(header.uid())?, gid: number(header.gid())? };
        let kind = header.entry_type();
        let link = |entry: &tar::Entry<'_, _>| {
            let target = entry.link_name_bytes().map(std::borrow::Cow::into_owned).filter(|t| !t.is_empty());
            target
                .filter(|t| !t.contains(&0))
                .ok_or_else(|| format!("the link \"{}\" leads nowhere", shown()))
        };
        let made = match kind {
            tar::EntryType::Directory => Entry::Dir(meta),
            tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => {
                let len = entry.size();
                bytes = bytes.saturating_add(len);
                if bytes > limits.bytes {
                    return Err(format!("it holds more than {} bytes", limits.bytes));
                }
                let data = spool.take(&mut entry, len).map_err(|e| format!("\"{}\": {e}", shown()))?;
                Entry::File(meta, data)
            }
            tar::EntryType::Symlink => Entry::Link(link(&entry)?),
            tar::EntryType::Link => {
                let target = link(&entry)?;
                let target = clean(&target).map_err(|why| format!("the hard link \"{}\" {why}", shown()))?;
                let found = place(&target).and_then(|t| files.get(&files.resolve(&t, false)?)).cloned();
                match found {
                    Some(same @ (Entry::File(..) | Entry::Link(_))) => same,
                    _ => {
                        return Err(format!("the hard link \"{}\" leads to no file of the archive", shown()));
                    }
                }
            }
            tar::EntryType::XGlobalHeader => continue,
            _ => return Err(format!("its entry \"{}\" is a device, a fifo or something unknown", shown())),
        };
        if let Some(at) = place(&name) {
            files.put(&at, made)?;
        }
    }
    Ok(())
}

/// The names of an entry, joined: no `..`, not absolute, no NUL, none longer than the kernel takes.
fn clean(raw: &[u8]) -> Result<Vec<u8>, &'static str> {
    if raw.starts_with(b"/") {
        return Err("is absolute");
    }
    if raw.contains(&0) {
        return Err("holds a NUL");
    }
    let mut out = Vec::with_capacity(raw.len());
    for name in names(raw) {
        if name == b".." {
            return Err("climbs out with ..");
        }
        if name.len() > 255 {
            return Err("has a name longer than 255 bytes");
        }
        if !out.is_empty() {
            out.push(b'/');
        }
        out.extend_from_slice(name);
    }
    Ok(out)
}
