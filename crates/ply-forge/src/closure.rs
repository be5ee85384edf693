//! From a Debian package to all that its programs need: each ELF file's interpreter and libraries, followed to the
//! packages that own them. Candidates are the packages that the roots depend on, which is where Debian's policy
//! puts them; of those only what a needed library is likely to be in is fetched, likeliest first.

use crate::base::is_ballast;
use crate::debian::index::Package;
use crate::debian::suite::{Suite, triplet};
use crate::download::Downloads;
use crate::elf::Elf;
use crate::error::{ForgeError, Result};
use crate::files::{Entry, Files, Spool};
use std::collections::{BTreeMap, BTreeSet};

/// A library that a file needs and nothing holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unresolved {
    /// The file that wants it, as Debian places it.
    pub file: String,
    /// The library, or the interpreter.
    pub library: String,
}

impl std::fmt::Display for Unresolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} needs {}", self.file, self.library)
    }
}

/// What was found.
pub(crate) struct Closure {
    /// Every package that is taken, sorted by name; the roots first.
    pub(crate) packages: Vec<String>,
    /// Their files, where Debian places them.
    pub(crate) files: Files,
    /// Folders beyond the ordinary ones that libraries were found in.
    pub(crate) library_dirs: BTreeSet<Vec<u8>>,
    pub(crate) unresolved: Vec<Unresolved>,
}

/// What to close over.
pub(crate) struct Ask<'a> {
    /// The package, and those of `--with`.
    pub(crate) roots: &'a [String],
    /// Libraries that are not looked for; a trailing `*` stands for any ending.
    pub(crate) skip: &'a [String],
    /// The files of the base, where libraries are looked for first.
    pub(crate) base: &'a Files,
    /// The names of the base's packages, which are never taken.
    pub(crate) base_packages: &'a BTreeSet<String>,
}

/// Finds the closure.
pub(crate) fn find(suite: &Suite, ask: &Ask<'_>, downloads: &Downloads, spool: &Spool) -> Result<Closure> {
    let roots = with_siblings(suite, ask)?;
    let names: Vec<&str> = roots.iter().map(String::as_str).collect();
    let reachable = suite.closure(&names, &|name| ask.base_packages.contains(name))?;
    let mut work = Work {
        suite,
        ask,
        downloads,
        spool,
        default_dirs: default_dirs(suite),
        files: crate::base::merged_usr(),
        taken: Vec::new(),
        peeked: BTreeMap::new(),
        candidates: reachable.iter().filter(|p| !roots.iter().any(|r| r == p.name)).copied().collect(),
        elves: BTreeMap::new(),
        library_dirs: BTreeSet::new(),
    };
    for root in &roots {
        let package = suite.package(root)?;
        work.fetch(&[package])?;
        work.take(root)?;
    }
    let unresolved = work.resolve()?;
    let mut rest = work.taken.split_off(roots.len());
    rest.sort();
    let mut packages = work.taken;
    packages.extend(rest);
    Ok(Closure { packages, files: work.files, library_dirs: work.library_dirs, unresolved })
}

/// The roots, and what they depend on of their own source packages: a service's programs often live in a sibling
/// (`redis` → `redis-server` → `redis-tools`). Never what serves building or reading.
fn with_siblings(suite: &Suite, ask: &Ask<'_>) -> Result<Vec<String>> {
    let mut roots: Vec<String> = Vec::new();
    let mut queue: Vec<String> = ask.roots.iter().rev().cloned().collect();
    while let Some(name) = queue.pop() {
        if roots.contains(&name) {
            continue;
        }
        let package = suite.package(&name)?;
        roots.push(name);
        for alternatives in package.depends().into_iter().rev() {
            let chosen = BTreeSet::new();
            let Some(found) = suite.index.satisfier(&alternatives, &chosen) else { continue };
            let sibling = found.source() == package.source() && !is_for_building(found.name);
            if sibling && !ask.base_packages.contains(found.name) {
                queue.push(found.name.to_owned());
            }
        }
    }
    Ok(roots)
}

fn is_for_building(name: &str) -> bool {
    ["-dev", "-doc", "-dbg", "-dbgsym", "-docs", "-examples"].iter().any(|ending| name.ends_with(ending))
}

/// Where the dynamic loader of a Debian system looks by itself.
pub(crate) fn default_dirs(suite: &Suite) -> Vec<Vec<u8>> {
    let triplet = triplet(suite.arch);
    vec![format!("usr/lib/{triplet}").into_bytes(), b"usr/lib".to_vec(), b"usr/lib64".to_vec()]
}

struct Work<'a> {
    suite: &'a Suite,
    ask: &'a Ask<'a>,
    downloads: &'a Downloads,
    spool: &'a Spool,
    default_dirs: Vec<Vec<u8>>,
    files: Files,
    taken: Vec<String>,
    /// Packages that were unpacked to look inside.
    peeked: BTreeMap<String, Files>,
    candidates: Vec<Package<'a>>,
    elves: BTreeMap<Vec<u8>, Elf>,
    library_dirs: BTreeSet<Vec<u8>>,
}

impl Work<'_> {
    /// Unpacks packages beside the tree.
    fn fetch(&mut self, packages: &[Package<'_>]) -> Result<()> {
        let fresh: Vec<Package<'_>> =
            packages.iter().filter(|p| !self.peeked.contains_key(p.name)).copied().collect();
        for (package, deb) in fresh.iter().zip(self.suite.fetch(&fresh, self.downloads)?) {
            let mut files = crate::base::merged_usr();
            deb.unpack(&mut files, self.spool, &|path| !is_ballast(path))?;
            self.peeked.insert(package.name.to_owned(), files);
        }
        Ok(())
    }

    /// Takes an unpacked package into the tree.
    fn take(&mut self, name: &str) -> Result<()> {
        let Some(files) = self.peeked.get(name) else { return Ok(()) };
        let refused = |why| ForgeError::Archive { archive: name.to_owned(), why };
        self.files.merge(files).map_err(refused)?;
        for (path, entry) in files.iter() {
            if let Entry::File(_, data) = entry
                && let Some(elf) = Elf::read(data, self.suite.arch)?
            {
                self.elves.insert(path.clone(), elf);
            }
        }
        self.taken.push(name.to_owned());
        Ok(())
    }

    /// Takes packages until nothing more is missing, or nothing more is found.
    fn resolve(&mut self) -> Result<Vec<Unresolved>> {
        loop {
            let missing = self.missing();
            let libraries: BTreeSet<&str> = missing.iter().map(|m| m.library.as_str()).collect();
            let libraries: Vec<String> = libraries.into_iter().map(str::to_owned).collect();
            let mut progress = false;
            for library in &libraries {
                if let Some(owner) = self.owner(library)?
                    && !self.taken.contains(&owner)
                {
                    self.take(&owner)?;
                    progress = true;
                }
            }
            if !progress {
                return Ok(missing);
            }
        }
    }

    /// What is needed and in neither the base nor the tree.
    fn missing(&mut self) -> Vec<Unresolved> {
        let skipped = |library: &str| {
            self.ask.skip.iter().any(|skip| match skip.strip_suffix('*') {
                Some(start) => library.starts_with(start),
                None => skip == library,
            })
        };
        let mut missing = Vec::new();
        let mut dirs = BTreeSet::new();
        for (path, elf) in &self.elves {
            let file = String::from_utf8_lossy(path).into_owned();
            if let Some(interpreter) = &elf.interpreter
                && self.ask.base.follow(interpreter.as_bytes()).is_none()
                && self.files.follow(interpreter.as_bytes()).is_none()
            {
                missing.push(Unresolved { file: file.clone(), library: interpreter.clone() });
            }
            for library in elf.needed.iter().filter(|l| !skipped(l)) {
                match self.look_up(path, elf, library) {
                    Found::Ordinary => {}
                    Found::In(dir) => drop(dirs.insert(dir)),
                    Found::Nowhere => {
                        missing.push(Unresolved { file: file.clone(), library: library.clone() })
                    }
                }
            }
        }
        self.library_dirs = dirs;
        missing.sort();
        missing
    }

    /// Looks for a library as the loader would: a name with a slash as it is, the file's own search path, the
    /// ordinary folders of the tree and of the base; and last in any folder of the tree, which then goes into the
    /// layer's library path.
    fn look_up(&self, path: &[u8], elf: &Elf, library: &str) -> Found {
        let at = |dir: &[u8]| -> Vec<u8> { [dir, b"/", library.as_bytes()].concat() };
        let holds = |files: &Files, dir: &[u8]| matches!(files.follow(&at(dir)), Some(Entry::File(..)));
        if library.contains('/') {
            return if holds(&self.files, b"") || holds(self.ask.base, b"") {
                Found::Ordinary
            } else {
                Found::Nowhere
            };
        }
        let own: &[u8] = path.iter().rposition(|b| *b == b'/').map_or(b"", |slash| &path[..slash]);
        for dir in &elf.search {
            let relative = dir.starts_with("$ORIGIN") || dir.starts_with("${ORIGIN}");
            let dir = match dir.strip_prefix("$ORIGIN").or_else(|| dir.strip_prefix("${ORIGIN}")) {
                Some(rest) => [own, rest.as_bytes()].concat(),
                None => dir.as_bytes().to_vec(),
            };
            let Some(dir) = self.files.resolve(&dir, true) else { continue };
            if holds(&self.files, &dir) {
                // A path relative to the file moves with it; an absolute one has to be said by the layer.
                return if relative || self.default_dirs.contains(&dir) {
                    Found::Ordinary
                } else {
                    Found::In(dir)
                };
            }
        }
        for dir in &self.default_dirs {
            if holds(&self.files, dir) || holds(self.ask.base, dir) {
                return Found::Ordinary;
            }
        }
        let ending = at(b"");
        let anywhere = self.files.iter().find(|(at, entry)| {
            at.ends_with(&ending) && !matches!(entry, Entry::Dir(_)) && self.elf_behind(at)
        });
        match anywhere {
            Some((at, _)) => Found::In(at[..at.len() - ending.len()].to_vec()),
            None => Found::Nowhere,
        }
    }

    /// Whether a path of the tree leads to a program or library for this arch.
    fn elf_behind(&self, path: &[u8]) -> bool {
        self.files.resolve(path, true).is_some_and(|real| self.elves.contains_key(&real))
    }

    /// The candidate that owns a library: likely ones are fetched first, then every library package among the
    /// candidates, then the rest.
    fn owner(&mut self, library: &str) -> Result<Option<String>> {
        if let Some(owner) = self.owner_among_peeked(library) {
            return Ok(Some(owner));
        }
        let stems = likely_names(library);
        let likely = |p: &Package<'_>| stems.iter().any(|stem| p.name == stem.as_str());
        let library_like = |p: &Package<'_>| p.name.starts_with("lib") && !is_for_building(p.name);
        let waves: [&dyn Fn(&Package<'_>) -> bool; 3] =
            [&likely, &library_like, &|p| !is_for_building(p.name)];
        for wave in waves {
            let batch: Vec<Package<'_>> = self.candidates.iter().filter(|p| wave(p)).copied().collect();
            if batch.iter().all(|p| self.peeked.contains_key(p.name)) {
                continue;
            }
            self.fetch(&batch)?;
            if let Some(owner) = self.owner_among_peeked(library) {
                return Ok(Some(owner));
            }
        }
        Ok(None)
    }

    /// The first unpacked package, by name, with such a library: in an ordinary folder before any other.
    fn owner_among_peeked(&self, library: &str) -> Option<String> {
        let ordinary = |files: &Files| {
            self.default_dirs
                .iter()
                .any(|d| files.get(&[d, b"/".as_slice(), library.as_bytes()].concat()).is_some())
        };
        let ending = [b"/", library.as_bytes()].concat();
        let anywhere =
            |files: &Files| files.iter().any(|(p, e)| p.ends_with(&ending) && !matches!(e, Entry::Dir(_)));
        let by = |holds: &dyn Fn(&Files) -> bool| {
            self.peeked.iter().find(|(_, f)| holds(f)).map(|(name, _)| name.clone())
        };
        by(&ordinary).or_else(|| by(&anywhere))
    }
}

enum Found {
    /// Where the loader looks anyway, once the layer's own library folder is in its path.
    Ordinary,
    /// In this folder of the tree.
    In(Vec<u8>),
    Nowhere,
}

/// The names that Debian gives to the package of a library (policy 8.1): `libfoo.so.1` → `libfoo1`, `libfoo1t64`;
/// `libfoo-2.so.3` → `libfoo-2-3`.
fn likely_names(library: &str) -> Vec<String> {
    let lower = library.to_ascii_lowercase().replace('_', "-");
    let (stem, version) = match lower.split_once(".so.") {
        Some((stem, version)) => (stem.to_owned(), version.to_owned()),
        None => match lower
            .strip_suffix(".so")
            .and_then(|s| s.rsplit_once('-').map(|(a, b)| (a.to_owned(), b.to_owned())))
        {
            Some((stem, version)) => (stem, version),
            None => (lower.trim_end_matches(".so").to_owned(), String::new()),
        },
    };
    let joint = if stem.ends_with(|c: char| c.is_ascii_digit()) && !version.is_empty() { "-" } else { "" };
    let mut names = Vec::new();
    for version in [version.as_str(), version.split('.').next().unwrap_or_default()] {
        for ending in ["", "t64", "v5", "-0", "debian"] {
            names.push(format!("{stem}{joint}{version}{ending}"));
        }
        names.push(format!("{stem}-{version}"));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::likely_names;

    #[test]
    fn libraries_have_the_names_that_policy_gives() {
        for (library, package) in [
            ("libssl.so.3", "libssl3t64"),
            ("libjemalloc.so.2", "libjemalloc2"),
            ("libpcre2-8.so.0", "libpcre2-8-0"),
            ("libdb-5.3.so", "libdb5.3"),
            ("libdb-5.3.so", "libdb5.3t64"),
            ("libsqlite3.so.0", "libsqlite3-0"),
            ("libncursesw.so.6", "libncursesw6"),
            ("libicuuc.so.76", "libicuuc76"),
        ] {
            assert!(
                likely_names(library).iter().any(|n| n == package),
                "{library}: {:?}",
                likely_names(library)
            );
        }
    }
}
