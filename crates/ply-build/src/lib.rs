//! From a directory to an image: detection, what ships, resolution, lock, pack; and what can be said about an
//! image or a directory without running it.
//!
//! The rules are pure: what ships ([`ship`]), which names are credentials, which addons are foreign, what a
//! directory is ([`detect()`]), how a manifest is edited ([`edit`]). [`build()`] is the thin part that reads
//! the directory, asks the wire for packages and writes the image.

mod build;
pub mod check;
pub mod detect;
pub mod edit;
mod elf;
mod entrypoint;
mod error;
pub mod inspect;
mod record;
pub mod ship;
mod walk;

pub use build::{BuildRequest, Built, Output, Shipped, build};
pub use check::{CheckReport, Finding, Level, check};
pub use detect::{Detected, Stack, detect, init_manifest};
pub use edit::{Addition, EditError, Edited, add_dependency, default_range, set_range};
pub use error::BuildError;
pub use inspect::{Inspection, inspect_entry, inspect_path};
pub use record::sweep_records;

#[cfg(test)]
mod tests;
