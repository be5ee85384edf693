//! The bytes of ply: images (squashfs, written deterministically and read with distrust), digests, the store.

mod dirs;
mod error;
mod format;
mod pack;
mod scan;
mod tree;

pub use dirs::Dirs;
pub use error::{ImageError, Result};
pub use pack::{LEVEL_BUILD, LEVEL_FORGE, LEVEL_IMPORT, PackOptions, Packed, pack};
pub use scan::{ScanOptions, Skipped};
pub use tree::{Attr, EntryKind, Source, Tree};
