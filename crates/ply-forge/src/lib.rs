//! Making packages out of what the machine's ordinary package managers give: a minimal Debian base, kegs from Debian
//! packages, the official Node binary, recipes, and a folder that is a working registry.
//!
//! Packages are inert, files and a manifest; no script of anyone's is ever run or looked at. The same inputs
//! give the same bytes on every machine.

mod archive;
mod base;
mod base64;
pub mod debian;
mod download;
mod error;
mod files;
mod http;
mod inventory;
mod observer;

pub use error::{ForgeError, Result};
pub use inventory::Line;
pub use observer::{Observer, Silent};
