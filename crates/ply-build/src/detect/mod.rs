//! What a directory is, from its own files: for `ply init`, and for running a directory without `ply.toml`.
//! Source: spec, "The command line", `ply init`.
//!
//! Nothing is run and nothing is downloaded. What was inferred is in the values, what could not be told is in the
//! notes; a person reads both before anything is written.

mod compiled;
mod manifest;
mod node;
mod peek;
mod python;
mod web;

pub use manifest::init_manifest;

use peek::Peek;
use ply_manifest::{Entrypoint, PackageName, Range, Version};
use std::fmt;
use std::io;
use std::path::Path;

/// What a directory was recognised as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stack {
    /// `package.json`.
    Node,
    /// A lock or configuration of Bun's.
    Bun,
    /// `deno.json`.
    Deno,
    /// `manage.py`.
    Django,
    /// Flask among the requirements.
    Flask,
    /// Any other Python.
    Python,
    /// `go.mod`.
    Go,
    /// `Cargo.toml`.
    Rust,
    /// `Gemfile`, `config.ru` or a Ruby file.
    Ruby,
    /// A jar, `pom.xml` or a Gradle build.
    Java,
    /// `composer.json` or `index.php`.
    Php,
    /// `index.html` and nothing that runs.
    StaticSite,
    /// One executable.
    Binary,
    /// Nothing known.
    Unknown,
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "Node",
            Self::Bun => "Bun",
            Self::Deno => "Deno",
            Self::Django => "Django",
            Self::Flask => "Flask",
            Self::Python => "Python",
            Self::Go => "Go",
            Self::Rust => "Rust",
            Self::Ruby => "Ruby",
            Self::Java => "Java",
            Self::Php => "PHP",
            Self::StaticSite => "static site",
            Self::Binary => "binary",
            Self::Unknown => "unknown",
        })
    }
}

/// What `ply init` would write, as values that a person may still change.
#[derive(Debug, Clone, PartialEq)]
pub struct Detected {
    /// What the directory was recognised as.
    pub stack: Stack,
    /// What told so, as `package.json`.
    pub evidence: String,
    /// The name, folded to the grammar.
    pub name: PackageName,
    /// The version; 0.1.0 where no file tells one.
    pub version: Version,
    /// One line.
    pub description: Option<String>,
    /// The licence.
    pub license: Option<String>,
    /// The base, where one is needed.
    pub base: Option<(PackageName, Range)>,
    /// The packages that it needs.
    pub dependencies: Vec<(PackageName, Range)>,
    /// What ships; empty is everything.
    pub include: Vec<String>,
    /// How it starts; none where that can't be told.
    pub entrypoint: Option<Entrypoint>,
    /// The environment that the stack wants in production.
    pub env: Vec<(String, String)>,
    /// The port that it listens on, where one can tell or set it.
    pub port: Option<u16>,
    /// What the person should know or look at: one sentence each.
    pub notes: Vec<String>,
}

/// What `dir` is, from its own files. Errors only where the directory can't be read.
pub fn detect(dir: &Path) -> io::Result<Detected> {
    let peek = Peek::open(dir)?;
    let found = DETECTORS.iter().find_map(|detector| detector(&peek)).unwrap_or_else(|| {
        let mut unknown = Detected::of(&peek, Stack::Unknown, "nothing that ply knows");
        unknown.notes.push("how it starts can't be told: write the entrypoint by hand".to_owned());
        unknown
    });
    Ok(found.fit_for_a_manifest())
}

/// The detectors in their order. A framework's own file comes before `package.json`, which many of them hold for
/// their assets; what is built comes after what it was built from.
const DETECTORS: [fn(&Peek) -> Option<Detected>; 11] = [
    python::django,
    web::php,
    web::ruby,
    compiled::go,
    compiled::java,
    node::deno,
    node::node_or_bun,
    python::python,
    compiled::rust,
    web::static_site,
    compiled::binary,
];

/// The base of the first catalogue that everything dynamic runs on.
fn debian() -> (PackageName, Range) {
    package("debian", "13")
}

/// A package and its range, both written in this crate.
fn package(name: &str, range: &str) -> (PackageName, Range) {
    (name.parse().expect("a package name"), range.parse().expect("a range"))
}

fn argv(words: &[&str]) -> Entrypoint {
    Entrypoint::Argv(words.iter().map(|w| (*w).to_owned()).collect())
}

impl Detected {
    /// Nothing but the folder's name.
    fn of(peek: &Peek, stack: Stack, evidence: &str) -> Self {
        Self {
            stack,
            evidence: evidence.to_owned(),
            name: peek.name.clone(),
            version: Version::new(0, 1, 0),
            description: None,
            license: None,
            base: None,
            dependencies: Vec::new(),
            include: Vec::new(),
            entrypoint: None,
            env: Vec::new(),
            port: None,
            notes: Vec::new(),
        }
    }

    /// Over Debian, with one package.
    fn on(mut self, name: &str, range: &str) -> Self {
        self.base = Some(debian());
        self.dependencies.push(package(name, range));
        self
    }

    /// Takes name, version, description and licence where `name` and the others are fit for it.
    fn identity(mut self, name: Option<&str>, version: Option<&str>, description: Option<&str>) -> Self {
        let bare = name.map(|n| n.rsplit('/').next().unwrap_or(n));
        if let Some(name) = bare.and_then(PackageName::fold) {
            self.name = name;
        }
        if let Some(version) = version.and_then(|v| v.trim().parse().ok()) {
            self.version = version;
        }
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.description = description.map(one_line).filter(|d| !d.is_empty());
        self
    }

    /// Without what no manifest can hold: control characters of a damaged or hostile file.
    fn fit_for_a_manifest(mut self) -> Self {
        let clean = |text: String| text.chars().filter(|c| !c.is_control()).collect::<String>();
        self.description = self.description.map(clean).filter(|d| !d.trim().is_empty());
        self.license = self.license.map(clean).filter(|l| !l.trim().is_empty());
        let words: Vec<&str> = match &self.entrypoint {
            Some(Entrypoint::Argv(argv)) => argv.iter().map(String::as_str).collect(),
            Some(Entrypoint::Shell(text)) => vec![text],
            None => Vec::new(),
        };
        if words.iter().any(|w| w.chars().any(|c| c.is_control() && !"\n\t".contains(c))) {
            self.entrypoint = None;
            self.notes
                .push("the start command holds control characters: write the entrypoint by hand".to_owned());
        }
        let key = |k: &str| {
            !k.is_empty()
                && k.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                && !k.as_bytes()[0].is_ascii_digit()
        };
        self.env.retain(|(k, v)| key(k) && !v.chars().any(char::is_control));
        self
    }

    fn start(mut self, entrypoint: Entrypoint) -> Self {
        self.entrypoint = Some(entrypoint);
        self
    }

    fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push((key.to_owned(), value.to_owned()));
        self
    }

    fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

#[cfg(test)]
mod tests;
