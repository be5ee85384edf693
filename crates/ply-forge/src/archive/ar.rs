//! The `ar` container of a `.deb` (deb(5)): a magic line, then members with headers of fixed width.

use std::io::Read;

const MAGIC: &[u8; 8] = b"!<arch>\n";
const HEADER: usize = 60;

/// One member's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    /// Seconds since 1970.
    pub(super) mtime: u64,
    pub(super) size: u64,
}

/// Reads the magic.
pub(super) fn open(from: &mut dyn Read) -> Result<(), String> {
    let mut magic = [0; 8];
    from.read_exact(&mut magic).map_err(|_| "it is too short for a .deb".to_owned())?;
    if &magic == MAGIC { Ok(()) } else { Err("it does not begin as a .deb does".to_owned()) }
}

/// Reads the next header; `None` at the end. The caller reads `size` bytes and then a padding byte if that is odd.
pub(super) fn next(from: &mut dyn Read) -> Result<Option<Member>, String> {
    let mut header = [0; HEADER];
    let mut filled = 0;
    while filled < HEADER {
        match from.read(&mut header[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err("it ends within a member's header".to_owned()),
            Ok(n) => filled += n,
            Err(e) => return Err(e.to_string()),
        }
    }
    if &header[58..] != b"`\n" {
        return Err("a member's header does not end as one does".to_owned());
    }
    let text = |range: std::ops::Range<usize>| {
        std::str::from_utf8(&header[range])
            .map(str::trim_end)
            .map_err(|_| "a member's header is no text".to_owned())
    };
    let number = |range| -> Result<u64, String> {
        let digits = text(range)?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("a member's header holds {digits:?} where a number belongs"));
        }
        digits.parse().map_err(|_| format!("a member's header holds the number {digits:?}"))
    };
    let name = text(0..16)?.trim_end_matches('/').to_owned();
    if name.is_empty() || name.contains('/') {
        return Err(format!("a member has the name {name:?}"));
    }
    Ok(Some(Member { name, mtime: number(16..28)?, size: number(48..58)? }))
}
