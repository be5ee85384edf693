//! Reading archives that nobody has to trust: `.deb` (ar, then tar in gzip, xz or zstd) and npm's tarballs.
//! Each rule that a hostile archive breaks is an error that names the archive and the entry.

mod ar;
mod deb;
mod decompress;
mod tarball;

pub(crate) use deb::Deb;
pub(crate) use decompress::{Compression, decompressor};
pub(crate) use tarball::{Limits, unpack};
