//! A world of one test: a store, a folder of images, manifests in two lines.
#![allow(dead_code, unreachable_pub)]

pub mod server;

use ply_image::{Attr, Dirs, LEVEL_BUILD, PackOptions, Source, Store, Tree, pack};
use ply_manifest::{Arch, Bytes, Lock, Manifest};
use ply_source::{
    DefaultSource, FetchOptions, Fetcher, FileProgress, NetworkOptions, Progress, SourceOrigin,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Temporary folders for a store and a folder of images.
pub struct World {
    pub temp: tempfile::TempDir,
}

impl World {
    pub fn new() -> Self {
        Self { temp: tempfile::tempdir().unwrap() }
    }

    pub fn folder(&self) -> PathBuf {
        let folder = self.temp.path().join("packages");
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    pub fn dirs(&self) -> Dirs {
        let dir = |name: &str| self.temp.path().join(name);
        Dirs { data: dir("data"), run: dir("run"), config: dir("config") }
    }

    pub fn store(&self) -> Store {
        Store::open(&self.dirs()).unwrap()
    }

    /// Puts an image into the folder: `publish("node 22.6.0", "[layer]\n…")`.
    pub fn publish(&self, package: &str, rest: &str) -> PathBuf {
        self.publish_for(package, rest, Arch::X64, b"")
    }

    pub fn publish_for(&self, package: &str, rest: &str, arch: Arch, payload: &[u8]) -> PathBuf {
        let (name, version) = package.split_once(' ').unwrap();
        let path = self.folder().join(format!("{name}-{version}-linux-{arch}.img"));
        write_image(&path, &manifest_text(package, rest), payload);
        path
    }

    pub fn source(&self) -> String {
        format!("file://{}", self.folder().display())
    }

    /// Options for a source, with a fast network.
    pub fn options(&self, source: &str) -> FetchOptions {
        FetchOptions {
            store: self.store(),
            arch: Arch::X64,
            source: None,
            default_source: DefaultSource { spec: source.parse().unwrap(), from: SourceOrigin::Official },
            insecure: false,
            progress: Arc::new(Notes::default()),
            network: fast(),
        }
    }

    pub fn fetcher(&self, source: &str) -> Fetcher {
        Fetcher::new(self.options(source))
    }

    /// What is in the store beside whole entries.
    pub fn leftovers(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.store().dir()).unwrap().map(|e| e.unwrap().file_name());
        let mut names: Vec<String> = names.map(|n| n.into_string().unwrap()).collect();
        names.retain(|n| !n.starts_with("sha256:") && n != ".hold");
        names.sort();
        names
    }
}

/// Short waits, so that a test of a failing server takes no time.
pub fn fast() -> NetworkOptions {
    NetworkOptions {
        connect: Duration::from_secs(5),
        stall: Duration::from_millis(800),
        attempts: 4,
        first_pause: Duration::from_millis(5),
        longest_pause: Duration::from_secs(2),
        parallel: 4,
        largest_image: Bytes(64 << 20),
        largest_document: Bytes(1 << 20),
        ..NetworkOptions::default()
    }
}

pub fn manifest_text(package: &str, rest: &str) -> String {
    let (name, version) = package.split_once(' ').unwrap();
    format!("[package]\nname = \"{name}\"\nversion = \"{version}\"\n{rest}\n")
}

pub fn manifest(package: &str, rest: &str) -> Manifest {
    Manifest::parse(&manifest_text(package, rest), "ply.toml").unwrap()
}

pub fn write_image(path: &Path, manifest: &str, payload: &[u8]) {
    let mut tree = Tree::new();
    tree.add_file(".manifest.toml", Source::Bytes(manifest.as_bytes().to_vec()), Attr::mode(0o644)).unwrap();
    if !payload.is_empty() {
        tree.add_file("payload", Source::Bytes(payload.to_vec()), Attr::mode(0o644)).unwrap();
    }
    let mut file =
        std::fs::File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    pack(&tree, &PackOptions { threads: 1, epoch: 0, ..PackOptions::new(LEVEL_BUILD) }, &mut file).unwrap();
}

/// Bytes that no compression makes smaller.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A lock as lines of `name version`.
pub fn lines(lock: &Lock) -> Vec<String> {
    lock.packages.iter().map(|p| format!("{} {}", p.name, p.version)).collect()
}

/// Remembers what a fetch told.
#[derive(Default, Clone)]
pub struct Notes(pub Arc<Mutex<Vec<String>>>);

impl Notes {
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl Progress for Notes {
    fn start(&self, name: &str, _: &str, bytes: Option<u64>) -> Box<dyn FileProgress> {
        self.add(format!("start {name} {bytes:?}"));
        Box::new(self.clone())
    }

    fn notice(&self, line: &str) {
        self.add(format!("notice {line}"));
    }
}

impl FileProgress for Notes {
    fn retry(&mut self, why: &str, _: Duration, done: u64) {
        self.add(format!("retry {why} at {done}"));
    }

    fn finish(self: Box<Self>) {
        self.add("finish".to_owned());
    }
}
