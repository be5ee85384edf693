//! Many apps on one host: who needs which image, and what can go.

mod collect;

pub use collect::{Collected, collect, needed_by, remove_image};
