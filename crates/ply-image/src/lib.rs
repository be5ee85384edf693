//! The bytes of ply: images (squashfs, written deterministically and read with distrust), digests, the store.

mod dirs;

pub use dirs::Dirs;
