//! `[build] include`: a whitelist of paths and globs.
//!
//! An entry covers what it matches and everything below. `*` and `?` stay within one part of a path, `**` crosses
//! parts. A trailing `/` asks for a folder.

use super::{Entry, EntryKind, ancestry};
use globset::{GlobBuilder, GlobMatcher};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The whitelist, ready to match. Empty, it covers everything and names nothing.
#[derive(Debug, Clone, Default)]
pub struct Include {
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone)]
struct Pattern {
    /// As written.
    text: String,
    /// Without `./` in front and `/` behind; empty for the whole directory.
    path: String,
    /// Whether a `/` behind asks for a folder.
    folder: bool,
    /// None where `path` is literal.
    glob: Option<GlobMatcher>,
    /// The part of a glob in front of its first part with a wildcard.
    fixed: String,
    /// Each part that has a letter or a digit, as a glob of its own: what the entry names.
    parts: Vec<GlobMatcher>,
}

impl Include {
    /// Reads the entries as written in the manifest. Errors give the entry and what is wrong with it: absolute, with
    /// `..`, empty, or a glob that is none.
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, (String, String)> {
        let patterns = entries.iter().map(|e| Pattern::parse(e.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { patterns })
    }

    /// Whether there is no entry, so that everything ships.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether `path` ships as far as the whitelist is asked.
    pub fn covers(&self, path: &[u8], kind: EntryKind) -> bool {
        self.is_empty() || self.patterns.iter().any(|p| p.covers(path, kind))
    }

    /// Whether an entry that covers `path` names `part`, one of its parts, rather than sweeping it in.
    pub fn names(&self, path: &[u8], part: &[u8]) -> bool {
        let part = OsStr::from_bytes(part);
        self.patterns
            .iter()
            // What a folder's own entry names is asked while the walk is still above what the entry covers.
            .any(|p| {
                p.parts.iter().any(|g| g.is_match(part))
                    && (p.covers(path, EntryKind::Dir) || p.reaches(path))
            })
    }

    /// Whether anything at or below the folder `path` may be covered.
    pub fn reaches(&self, path: &[u8]) -> bool {
        self.is_empty() || self.patterns.iter().any(|p| p.reaches(path) || p.covers(path, EntryKind::Dir))
    }

    /// The entries that match nothing of `listing`, as written.
    pub fn unmatched(&self, listing: &[Entry]) -> Vec<String> {
        self.patterns
            .iter()
            .filter(|p| !p.path.is_empty() && !listing.iter().any(|e| p.matches(&e.path, e.kind)))
            .map(|p| p.text.clone())
            .collect()
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, (String, String)> {
        let wrong = |why: &str| (text.to_owned(), why.to_owned());
        if text.trim().is_empty() {
            return Err(wrong("it is empty"));
        }
        if text.starts_with('/') {
            return Err(wrong("it is absolute"));
        }
        let parts: Vec<&str> = text.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
        if parts.contains(&"..") {
            return Err(wrong("it leaves the directory"));
        }
        let path = parts.join("/");
        let wild = |part: &&str| part.contains(['*', '?', '[', ']', '{', '}', '\\']);
        let compile = |glob: &str| {
            GlobBuilder::new(glob)
                .literal_separator(true)
                .build()
                .map(|g| g.compile_matcher())
                .map_err(|e| wrong(&format!("it is no glob ({})", e.kind())))
        };
        let glob = if parts.iter().any(wild) { Some(compile(&path)?) } else { None };
        let fixed = parts.iter().take_while(|p| !wild(p)).copied().collect::<Vec<_>>().join("/");
        let names = |part: &&&str| part.chars().any(char::is_alphanumeric);
        let parts = if path.contains('{') && path.contains('/') {
            // An alternation may hold a `/`, so parts can't be told apart: the whole is what it names.
            Vec::new()
        } else {
            parts.iter().filter(names).map(|p| compile(p)).collect::<Result<_, _>>()?
        };
        Ok(Self { text: text.to_owned(), path, folder: text.ends_with('/'), glob, fixed, parts })
    }

    /// Whether this entry is about `path` itself.
    fn matches(&self, path: &[u8], kind: EntryKind) -> bool {
        if self.folder && !matches!(kind, EntryKind::Dir | EntryKind::Symlink) {
            return false;
        }
        // A name may itself hold `[` and `]`, as routes of web frameworks do.
        self.path.as_bytes() == path
            || self.glob.as_ref().is_some_and(|g| g.is_match(OsStr::from_bytes(path)))
    }

    /// Whether this entry is about `path` or a folder above it.
    fn covers(&self, path: &[u8], kind: EntryKind) -> bool {
        if self.path.is_empty() {
            return true;
        }
        if self.glob.is_none() {
            return self.matches(path, kind) || is_below(path, self.path.as_bytes());
        }
        ancestry(path).any(|p| self.matches(p, if p.len() == path.len() { kind } else { EntryKind::Dir }))
    }

    /// Whether something below the folder `path` may match.
    fn reaches(&self, path: &[u8]) -> bool {
        let fixed = self.fixed.as_bytes();
        let deeper = self.glob.is_some() && (fixed.is_empty() || fixed == path || is_below(path, fixed));
        deeper || is_below(fixed, path)
    }
}

/// Whether `path` is below the folder `dir`.
fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.first() == Some(&b'/'))
}
