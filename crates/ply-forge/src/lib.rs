//! Making packages out of what the machine's ordinary package managers give: a minimal Debian base, kegs from Debian
//! packages, the official Node binary, recipes, and a folder that is a working registry.
//!
//! Packages are inert, files and a manifest; no script of anyone's is ever run or looked at. The same inputs
//! give the same bytes on every machine.

mod all;
mod archive;
mod base;
mod base64;
mod closure;
mod complete;
mod debian;
mod download;
mod elf;
mod error;
mod files;
mod forge;
mod http;
mod inventory;
mod keg;
mod locking;
mod mint;
mod npm;
mod observer;
mod recipe;
mod registry;
mod revision;

pub use all::{AllReport, AllRequest, Failure};
pub use closure::Unresolved;
pub use debian::version::{compare as compare_debian_versions, fold as fold_version, fold_name};
pub use error::{ForgeError, Result};
pub use forge::{BaseRequest, DEFAULT_SUITE, DebRequest, Forge, ForgeOptions};
pub use inventory::Line;
pub use mint::Minted;
pub use observer::{Observer, Silent};
pub use registry::Registry;
