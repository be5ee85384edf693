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

/// The longest name or link that an extension header may carry; the kernel takes 4 KiB.
const LONG_NAME_MAX: u64 = 64 << 10;
/// The largest extended header (pax) that is read.
const PAX_MAX: u64 = 1 << 20;

/// What extension headers say of the entry behind them.
#[derive(Default)]
struct Extended {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

/// Unpacks into `files`. `place` turns an entry's name (its `..`-free names, joined by `/`) into a path of the tree,
/// or leaves the entry out.
///
/// Extension headers are read here and not by the tar crate, which takes them into memory whatever their length.
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
    // Headers and padding count too: a stream can't be endless without entries.
    let stream = stream.take(limits.bytes.saturating_add(limits.entries.saturating_mul(4096)));
    let mut archive = tar::Archive::new(stream);
    let (mut entries, mut bytes) = (0_u64, 0_u64);
    let mut extended = Extended::default();
    for entry in archive.entries().map_err(|e| e.to_string())?.raw(true) {
        let mut entry = entry.map_err(|e| e.to_string())?;
        entries += 1;
        if entries > limits.entries {
            return Err(format!("it holds more than {} entries", limits.entries));
        }
        let kind = entry.header().entry_type();
        match kind {
            tar::EntryType::GNULongName => {
                extended.path = Some(until_nul(read_header(&mut entry, LONG_NAME_MAX)?));
                continue;
            }
            tar::EntryType::GNULongLink => {
                extended.link = Some(until_nul(read_header(&mut entry, LONG_NAME_MAX)?));
                continue;
            }
            tar::EntryType::XHeader => {
                pax(&read_header(&mut entry, PAX_MAX)?, &mut extended)?;
                continue;
            }
            tar::EntryType::XGlobalHeader => continue,
            _ => {}
        }
        let Extended { path, link } = std::mem::take(&mut extended);
        let raw = path.unwrap_or_else(|| entry.header().path_bytes().into_owned());
        let shown = || String::from_utf8_lossy(&raw).escape_debug().to_string();
        let name = clean(&raw).map_err(|why| format!("its entry \"{}\" {why}", shown()))?;
        let header = entry.header();
        // npm's tarballs leave the owner blank.
        let number = |n: std::io::Result<u64>| {
            u32::try_from(n.unwrap_or(0)).map_err(|_| format!("\"{}\" has an owner beyond 32 bits", shown()))
        };
        let mode = header.mode().map_err(|e| format!("\"{}\": {e}", shown()))? & 0o7777;
        let meta = Meta { mode, uid: number(header.uid())?, gid: number(header.gid())? };
        let target = || {
            let target = link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
            let target = target.filter(|t| !t.is_empty() && !t.contains(&0));
            target.ok_or_else(|| format!("the link \"{}\" leads nowhere", shown()))
        };
        let made = match kind {
            tar::EntryType::Directory => Entry::Dir(meta),
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                let len = entry.size();
                bytes = bytes.saturating_add(len);
                if bytes > limits.bytes {
                    return Err(format!("it holds more than {} bytes", limits.bytes));
                }
                let data = spool.take(&mut entry, len).map_err(|e| format!("\"{}\": {e}", shown()))?;
                Entry::File(meta, data)
            }
            tar::EntryType::Symlink => Entry::Link(target()?),
            tar::EntryType::Link => {
                let target = target()?;
                let target = clean(&target).map_err(|why| format!("the hard link \"{}\" {why}", shown()))?;
                let found = place(&target).and_then(|t| files.get(&files.resolve(&t, false)?)).cloned();
                match found {
                    Some(same @ (Entry::File(..) | Entry::Link(_))) => same,
                    _ => {
                        return Err(format!("the hard link \"{}\" leads to no file of the archive", shown()));
                    }
                }
            }
            _ => return Err(format!("its entry \"{}\" is a device, a fifo or something unknown", shown())),
        };
        if let Some(at) = place(&name) {
            files.put(&at, made)?;
        }
    }
    Ok(())
}

/// The body of an extension header.
fn read_header(entry: &mut impl Read, limit: u64) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    entry.take(limit + 1).read_to_end(&mut body).map_err(|e| e.to_string())?;
    if body.len() as u64 > limit {
        Err("it has a header with a name of endless length".to_owned())
    } else {
        Ok(body)
    }
}

fn until_nul(mut text: Vec<u8>) -> Vec<u8> {
    text.truncate(text.iter().position(|b| *b == 0).unwrap_or(text.len()));
    text
}

/// Takes names out of a pax header. A size there, for files beyond 8 GiB, is refused: no package has one.
fn pax(body: &[u8], extended: &mut Extended) -> Result<(), String> {
    for field in tar::PaxExtensions::new(body) {
        let field = field.map_err(|e| e.to_string())?;
        match field.key_bytes() {
            b"path" => extended.path = Some(field.value_bytes().to_vec()),
            b"linkpath" => extended.link = Some(field.value_bytes().to_vec()),
            b"size" => return Err("it states a size twice".to_owned()),
            key if key.starts_with(b"GNU.sparse") => return Err("it holds a sparse file".to_owned()),
            _ => {}
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
