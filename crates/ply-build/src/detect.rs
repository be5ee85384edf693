//! What a directory is, from its own files: for `ply init`, and for running a directory without `ply.toml`.

use ply_manifest::{Entrypoint, PackageName, Range, Version};
use std::io;
use std::path::Path;

/// What a directory was recognised as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stack {
    /// `package.json`.
    Node,
    /// `bun.lock`.
    Bun,
    /// `deno.json`.
    Deno,
    /// `manage.py`.
    Django,
    /// Flask in the requirements.
    Flask,
    /// Any other Python.
    Python,
    /// `go.mod`.
    Go,
    /// `Gemfile`.
    Ruby,
    /// A jar, `pom.xml` or a Gradle build.
    Java,
    /// `composer.json` or `index.php`.
    Php,
    /// `index.html` and nothing that runs.
    Static,
    /// One executable.
    Binary,
    /// Nothing known.
    Unknown,
}

/// What `ply init` would write, as values.
#[derive(Debug, Clone, PartialEq)]
pub struct Detected {
    /// What the directory was recognised as.
    pub stack: Stack,
    /// What told so, as `package.json`.
    pub evidence: String,
    /// The name, folded to the grammar.
    pub name: PackageName,
    /// The version.
    pub version: Version,
    /// One line.
    pub description: Option<String>,
    /// The base, where one is needed.
    pub base: Option<(PackageName, Range)>,
    /// The packages it needs.
    pub dependencies: Vec<(PackageName, Range)>,
    /// What ships; empty is everything.
    pub include: Vec<String>,
    /// How it starts; none where that can't be told.
    pub entrypoint: Option<Entrypoint>,
    /// Environment that the stack wants in production.
    pub env: Vec<(String, String)>,
    /// The port that it listens on, where one can tell or set it.
    pub port: Option<u16>,
    /// What the person should know or look at: one sentence each.
    pub notes: Vec<String>,
}

/// What `dir` is, from its own files. Nothing is run. Errors only where the directory can't be read.
pub fn detect(dir: &Path) -> io::Result<Detected> {
    let _ = dir;
    Err(io::Error::other("not yet"))
}

/// The `ply.toml` that `ply init -y` writes for what was detected; it always parses.
pub fn init_manifest(detected: &Detected) -> String {
    let _ = detected;
    String::new()
}
