//! The bytes of ply: images (squashfs, written deterministically and read with distrust), digests, the store.

mod atomic;
mod bounded;
mod dirs;
mod error;
mod extract;
mod format;
mod image;
mod pack;
mod scan;
mod stack;
mod store;
mod tree;

pub use atomic::{Access, Lasts, PENDING_PREFIX, Pending, sweep_pending, write_atomic};
pub use bounded::{OWN_FILE_MAX, read_at_most, read_text_at_most};
pub use dirs::Dirs;
pub use error::{DAMAGED_HINT, ImageError, Result};
pub use extract::{ExtractOptions, Extracted, Owners};
pub use image::{DirEntry, Image, LOCK_PATH, MANIFEST_PATH, Stat, Walked};
pub use pack::{LEVEL_BUILD, LEVEL_FORGE, LEVEL_IMPORT, PackOptions, Packed, pack};
pub use scan::{Filter, ScanOptions, Skipped};
pub use stack::{LayerStack, Resolved};
pub use store::{
    Entry, GcReport, Origin, RunningLock, SourceFile, Store, StoreHold, StoreWriter, VerifyReport, Wrong,
};
pub use tree::{Attr, EntryKind, Source, Tree, Xattrs};
