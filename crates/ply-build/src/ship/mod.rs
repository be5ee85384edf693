//! What ships: pure rules over the list of a directory's entries. Source: spec, "Images, the build, the store",
//! `ply build`.
//!
//! Three kinds of names are looked at: those that never ship unless `include` names them, those that look like
//! credentials and refuse the build unless `include` names them, and special files that can't be in an image.
//! "Names them" means that a part of the entry's own text matches the name: `include = [".env"]` does,
//! `include = ["config/*"]` does not.

pub mod addons;
mod include;
mod secrets;

pub use include::Include;
pub use secrets::looks_like_a_credential;

use crate::BuildError;

/// What our own temporary files begin with, wherever they are.
pub const TEMPORARY_PREFIX: &str = ply_image::PENDING_PREFIX;

/// One entry of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path beneath the directory, parts joined by `/`, without one at either end. Bytes, not UTF-8.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
}

/// What an entry is. A symlink is never followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file and its size in bytes.
    File(u64),
    /// A folder.
    Dir,
    /// A symlink.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character or block device.
    Device,
}

impl Entry {
    /// The path for a person: a folder ends in `/`.
    pub fn shown(&self) -> String {
        let path = String::from_utf8_lossy(&self.path);
        if self.kind == EntryKind::Dir { format!("{path}/") } else { path.into_owned() }
    }
}

/// By what rules it is decided.
#[derive(Debug, Clone)]
pub struct Rules {
    /// `[build] include`.
    pub include: Include,
    /// Whether credential-shaped names may ship.
    pub allow_secrets: bool,
    /// Whether a base is built: its fifos ship, and its `ply.toml` does not stand at `/`.
    pub base: bool,
    /// What the build itself writes beneath the directory (`-o`).
    pub outputs: Vec<Vec<u8>>,
}

/// What was decided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// What ships, as indices into the list, in its order.
    pub ships: Vec<usize>,
    /// What was left out by rule, topmost only, as shown to a person.
    pub left_out: Vec<String>,
}

impl Rules {
    /// Whether the walk has to look inside the folder `path`.
    pub fn descends(&self, path: &[u8]) -> bool {
        self.include.reaches(path) && !self.never_ships(path, EntryKind::Dir)
    }

    /// Whether an entry never ships: by the name of its last part, unless `include` names it.
    fn never_ships(&self, path: &[u8], kind: EntryKind) -> bool {
        let name = last_part(path);
        if name.starts_with(TEMPORARY_PREFIX.as_bytes()) || self.outputs.iter().any(|o| o == path) {
            return true;
        }
        let in_folder_or_alone = matches!(name, b".git" | b"__pycache__" | b".DS_Store");
        let output = kind != EntryKind::Dir
            && (name.ends_with(b".img") || matches!(name, b"ply.lock" | b"ply.dev.toml"));
        let own_manifest = self.base && path == b"ply.toml";
        (in_folder_or_alone || output || own_manifest) && !self.include.names(path, name)
    }
}

/// The last part of a path.
pub(crate) fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or(path)
}

/// Every path from the topmost folder down to `path` itself.
fn ancestry(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
    slashes.chain(std::iter::once(path.len())).map(|end| &path[..end])
}

/// Decides what of `listing` ships. The list may be in any order; folders that [`Rules::descends`] refuses may
/// stand in it without what is below them.
///
/// Errors: special files; credential-shaped names. Whether each `include` entry matches something is asked with
/// [`Include::unmatched`].
pub fn decide(listing: &[Entry], rules: &Rules) -> Result<Decision, BuildError> {
    let mut decision = Decision::default();
    let (mut special, mut secrets) = (Vec::new(), Vec::new());
    for (index, entry) in listing.iter().enumerate() {
        if !rules.include.covers(&entry.path, entry.kind) {
            continue;
        }
        // A folder left out takes everything below it along: the first such ancestor decides.
        let kind_of = |path: &[u8]| if path.len() == entry.path.len() { entry.kind } else { EntryKind::Dir };
        if let Some(out) = ancestry(&entry.path).find(|p| rules.never_ships(p, kind_of(p))) {
            if out.len() == entry.path.len() && !last_part(out).starts_with(TEMPORARY_PREFIX.as_bytes()) {
                decision.left_out.push(entry.shown());
            }
            continue;
        }
        match entry.kind {
            EntryKind::Fifo if rules.base => {}
            EntryKind::Fifo => special.push(format!("{} (a fifo)", entry.shown())),
            EntryKind::Socket => special.push(format!("{} (a socket)", entry.shown())),
            EntryKind::Device => special.push(format!("{} (a device)", entry.shown())),
            EntryKind::File(_) | EntryKind::Dir | EntryKind::Symlink => {}
        }
        if !rules.allow_secrets {
            let swept_in = |p: &&[u8]| {
                let dir = p.len() < entry.path.len() || entry.kind == EntryKind::Dir;
                looks_like_a_credential(p, dir) && !rules.include.names(&entry.path, last_part(p))
            };
            // Of a credentials folder only the folder is listed, unless only some of it ships.
            if let Some(secret) = ancestry(&entry.path).find(swept_in) {
                let shown = String::from_utf8_lossy(secret);
                let dir = secret.len() < entry.path.len() || entry.kind == EntryKind::Dir;
                secrets.push(if dir { format!("{shown}/") } else { shown.into_owned() });
            }
        }
        decision.ships.push(index);
    }
    special.sort();
    secrets.sort();
    secrets.dedup();
    decision.left_out.sort();
    match (special.is_empty(), secrets.is_empty()) {
        (false, _) => Err(BuildError::SpecialFiles(special)),
        (_, false) => Err(BuildError::Secrets(secrets)),
        _ => Ok(decision),
    }
}

#[cfg(test)]
mod tests;
