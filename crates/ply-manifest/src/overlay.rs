//! `ply.dev.toml`: what a developer's own machine puts over an app, never built into an image.

use crate::Entrypoint;

/// A dev overlay of an app. Source: the manifest reference, "Two more files, same grammar".
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DevOverlay {
    /// Replaces the manifest's.
    pub entrypoint: Option<Entrypoint>,
    /// Merged over the manifest's, in the order of the file.
    pub env: Vec<(String, String)>,
    /// Extra binds `HOST:CONTAINER[:ro]`: relative host paths are against the app's folder, relative
    /// container paths land under `/opt/<name>/`.
    pub links: Vec<String>,
}
