//! The words of ply: every file format and every noun, as values with no I/O.
//!
//! Text goes in, values come out, with the place of every error. Each noun is a newtype that parses
//! ([`std::str::FromStr`]), prints ([`std::fmt::Display`]) and round-trips, so that a value that exists
//! is a valid one. Nothing here opens a file, a process or a socket.

mod catalog;
mod composition;
mod condition;
mod config;
mod depth;
mod diagnostic;
mod digest;
mod env_file;
#[doc(hidden)]
pub mod fuzzing;
mod image_name;
mod json;
mod lock;
mod manifest;
mod name;
mod nearest;
mod network;
mod noun;
mod overlay;
mod params;
mod parse;
mod quantity;
mod reference;
mod resolve;
mod rights;
mod source;
mod template;
mod version;
mod walk;

pub use catalog::{Catalog, CatalogDependency, CatalogPackage, CatalogVersion, Index};
pub use composition::{Composition, EgressPolicy, Member, MemberEgress};
pub use condition::Condition;
pub use config::{Config, Policy};
pub use diagnostic::{Diagnostic, Diagnostics, FaultKind, Place};
pub use digest::Digest;
pub use env_file::EnvFile;
pub use image_name::{Arch, ImageName};
pub use json::toml_to_json;
pub use lock::{LOCK_FORMAT, Lock, LockedPackage, LockedService};
pub use manifest::{
    AbiName, Build, Dependency, Entrypoint, Health, Kind, LayerSection, Limit, LinkRequest, Manifest,
    Package, Param, Restart, RestartPolicy, Run, Scale, ScaleSignal, Volume, VolumeScope,
};
pub use name::{Owner, PackageName, RunName};
pub use nearest::nearest;
pub use network::{EgressEntry, Publish, PublishAddress, Transport};
pub use noun::NounError;
pub use overlay::DevOverlay;
pub use parse::{Document, variable_name};
pub use quantity::{Bytes, Cores, Rate, Span};
pub use reference::{Reference, Target};
pub use resolve::{EnvOrigin, EnvVar, Facts, Filled, ParamCause, ParamError, Params, is_sealed};
pub use rights::{Capabilities, Capability, Signal, UserSpec};
pub use source::SourceSpec;
pub use template::{Holes, Piece, Template, TemplateError};
pub use version::{Range, Version};
