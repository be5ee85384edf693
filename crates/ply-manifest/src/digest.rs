//! The identity of bytes: a sha256, printed as `sha256:<hex>`.

use crate::noun::{NounError, serde_by_text};
use std::fmt;
use std::str::FromStr;

/// The sha256 of an image or another file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// A digest from its 32 bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first twelve hex digits, for tables that people read.
    pub fn short(&self) -> String {
        self.hex()[..12].to_owned()
    }

    /// The 64 hex digits without the `sha256:` prefix.
    pub fn hex(&self) -> String {
        use std::fmt::Write;
        self.0.iter().fold(String::with_capacity(64), |mut out, b| {
            let _ = write!(out, "{b:02x}");
            out
        })
    }
}

impl FromStr for Digest {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = || {
            NounError::new(format!("{s:?} is not a digest"))
                .hint("a digest is sha256: followed by 64 lower-case hex digits")
        };
        let hex = s.strip_prefix("sha256:").ok_or_else(wrong)?.as_bytes();
        if hex.len() != 64 {
            return Err(wrong());
        }
        let nibble = |b: u8| match b {
            b'0'..=b'9' => Some(b - b'0'),
            b'a'..=b'f' => Some(b - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks(2)) {
            *byte = nibble(pair[0]).ok_or_else(wrong)? << 4 | nibble(pair[1]).ok_or_else(wrong)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

serde_by_text!(Digest);
