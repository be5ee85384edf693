//! The wire: sources, listing, catalog, fetch and verify, resolution.
//!
//! There is no registry protocol. A source is a URL template; fetching is: build the URL, GET it, hash what
//! comes, put it into the store. [`Fetcher`] is what the verbs use. The rules of resolution are in [`mvs`], pure
//! and without I/O; everything that touches a socket is below `http`.

mod catalog;
mod default_source;
mod error;
mod fetch;
mod fetcher;
mod http;
mod listing;
pub mod mvs;
mod options;
mod parallel;
mod place;
mod progress;
mod queries;
mod report;
mod resolve;
mod sources;

pub use default_source::{DefaultSource, SourceOrigin};
pub use error::SourceError;
pub use fetcher::Fetcher;
pub use http::{Web, WebReply};
pub use options::{FetchOptions, NetworkOptions};
pub use ply_image::{Entry, Store};
pub use progress::{FileProgress, Progress, Silent};
pub use report::{Asked, AskedBase, Found, Outdated, Tree, TreeNode};
pub use resolve::{Mode, Resolution, Resolved};
