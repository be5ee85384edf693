//! From the files of Debian packages to a keg: everything under one prefix, with links, shebangs and library folders
//! that point there.

use crate::closure::Closure;
use crate::error::{ForgeError, Result};
use crate::files::{Entry, Files, Meta, names};
use ply_manifest::Arch;
use std::collections::{BTreeMap, BTreeSet};

/// A keg as files, relative to `/`, and what its layer has to say.
#[derive(Debug)]
pub(crate) struct Keg {
    pub(crate) files: Files,
    /// Absolute folders for `PATH`.
    pub(crate) path: Vec<String>,
    /// Absolute folders for `LD_LIBRARY_PATH`.
    pub(crate) ld_library_path: Vec<String>,
    /// Variables without which a moved program finds nothing of its own.
    pub(crate) env: BTreeMap<String, String>,
    /// What was left out or is missing, one sentence each.
    pub(crate) notes: Vec<String>,
}

/// What is asked of a keg beyond its packages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    /// Links below the prefix: name and target.
    pub(crate) symlinks: BTreeMap<String, String>,
    /// Further folders of `PATH`, relative to the prefix.
    pub(crate) path: Vec<String>,
    /// Files and folders that stay out, relative to the prefix.
    pub(crate) exclude: Vec<String>,
}

/// Variables by what a keg holds: the file or folder below the prefix, the variable, the value's place below the prefix.
const KNOWN_VARIABLES: &[(&str, &str, &str)] = &[
    ("share/terminfo", "TERMINFO_DIRS", "share/terminfo:/usr/share/terminfo"),
    ("share/misc/magic.mgc", "MAGIC", "share/misc/magic.mgc"),
    ("lib/git-core", "GIT_EXEC_PATH", "lib/git-core"),
    ("share/git-core/templates", "GIT_TEMPLATE_DIR", "share/git-core/templates"),
    ("lib/gconv", "GCONV_PATH", "lib/gconv"),
    ("lib/ossl-modules", "OPENSSL_MODULES", "lib/ossl-modules"),
];

/// Moves a closure under `prefix` (as in `/opt/redis`).
pub(crate) fn relocate(
    closure: &Closure,
    base: &Files,
    arch: Arch,
    prefix: &str,
    shape: &Shape,
) -> Result<Keg> {
    let triplet = crate::debian::suite::triplet(arch);
    let keg = arrange(closure, base, &|path| new_place(path, triplet), prefix, shape)?;
    if keg.files.len() == 0 {
        let why = "its packages hold no files".to_owned();
        return Err(ForgeError::Archive { archive: prefix.to_owned(), why });
    }
    Ok(keg)
}

/// Puts the files of a closure below `prefix`, each where `place` says.
fn arrange(
    closure: &Closure,
    base: &Files,
    place: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
    prefix: &str,
    shape: &Shape,
) -> Result<Keg> {
    let from = &closure.files;
    let root = prefix.trim_start_matches('/');
    let below = |path: &[u8]| [root.as_bytes(), b"/", path].concat();
    let excluded = |path: &[u8]| {
        shape.exclude.iter().any(|e| {
            let e = e.trim_end_matches('/').as_bytes();
            path.strip_prefix(e).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    };
    let refused = |why: String| ForgeError::Archive { archive: prefix.to_owned(), why };
    let mut notes = BTreeSet::new();
    let mut files = Files::default();
    for (old, entry) in from.iter() {
        let Some(new) = place(old).filter(|new| !new.is_empty() && !excluded(new)) else { continue };
        let at = below(&new);
        let shown = || String::from_utf8_lossy(old).into_owned();
        let moved = match entry {
            Entry::Dir(meta) => Entry::Dir(*meta),
            Entry::Link(target) => match retarget(from, base, old, target, &new, place) {
                Some(target) => Entry::Link(target),
                None => {
                    let target = String::from_utf8_lossy(target);
                    notes.insert(format!("/{} leads to {target}, which is not there: left out", shown()));
                    continue;
                }
            },
            Entry::File(meta, data) => {
                let head = data.head(256)?;
                match interpreter(&head).filter(|_| meta.mode & 0o111 != 0) {
                    None => Entry::File(*meta, data.clone()),
                    Some((start, end)) => {
                        let wanted = &head[start..end];
                        let inside =
                            from.follow(wanted).is_some().then(|| from.resolve(wanted, false)).flatten();
                        let inside = inside.and_then(|at| place(&at)).or_else(|| {
                            // A name that only the recipe's own links give.
                            let at = place(&from.resolve(wanted, false)?)?;
                            shape.symlinks.contains_key(std::str::from_utf8(&at).ok()?).then_some(at)
                        });
                        match inside {
                            Some(new) => {
                                let mut bytes = data.read()?;
                                let path = [b"/", below(&new).as_slice()].concat();
                                bytes.splice(start..end, path);
                                Entry::File(*meta, bytes.into())
                            }
                            None => {
                                if base.follow(wanted).is_none() {
                                    let wanted = String::from_utf8_lossy(wanted);
                                    notes.insert(format!(
                                        "/{} is a script for {wanted}, which is not there",
                                        shown()
                                    ));
                                }
                                Entry::File(*meta, data.clone())
                            }
                        }
                    }
                }
            }
        };
        if let (Some(Entry::File(_, old_data)), Entry::File(_, data)) = (files.get(&at), &moved)
            && old_data.read()? != data.read()?
        {
            return Err(refused(format!(
                "two files of its packages come to stand at {:?}",
                String::from_utf8_lossy(&at)
            )));
        }
        files.put(&at, moved).map_err(refused)?;
    }
    for (name, target) in &shape.symlinks {
        let path: Vec<&[u8]> = names(name.as_bytes()).collect();
        if path.is_empty() || path.contains(&b"..".as_slice()) {
            return Err(refused(format!("{name:?} is no place below the prefix")));
        }
        files
            .put(&below(&path.join(b"/".as_slice())), Entry::Link(target.as_bytes().to_vec()))
            .map_err(refused)?;
    }
    files.remove_empty_dirs(|_| false);
    if files.len() == 0 {
        return Err(refused("its packages hold no files".to_owned()));
    }
    let keg = Files::default();
    let mut keg =
        Keg { files: keg, path: vec![], ld_library_path: vec![], env: BTreeMap::new(), notes: vec![] };
    let holds = |dir: &str| files.below(&below(dir.as_bytes())).next().is_some();
    let programs = ["bin", "sbin"].into_iter().map(str::to_owned).chain(shape.path.iter().cloned());
    keg.path = programs.filter(|dir| holds(dir)).map(|dir| format!("{prefix}/{dir}")).collect();
    let libraries = std::iter::once(b"lib".to_vec())
        .filter(|dir| has_libraries(&files, &below(dir)))
        .chain(closure.library_dirs.iter().filter_map(|dir| place(dir)));
    for dir in libraries {
        let dir = format!("{prefix}/{}", String::from_utf8_lossy(&dir));
        if !keg.ld_library_path.contains(&dir) {
            keg.ld_library_path.push(dir);
        }
    }
    for (holder, variable, value) in KNOWN_VARIABLES {
        if files.get(&below(holder.as_bytes())).is_some() {
            keg.env.insert((*variable).to_owned(), format!("{prefix}/{value}"));
        }
    }
    keg.files = files;
    keg.notes = notes.into_iter().collect();
    Ok(keg)
}

/// Puts plain files below `prefix`, as they are.
pub(crate) fn shape(from: &Files, prefix: &str, shape: &Shape) -> Result<Keg> {
    // Every file moves by the same distance: as from a closure whose places are already the new ones.
    let closure = Closure {
        packages: Vec::new(),
        files: from.clone(),
        library_dirs: BTreeSet::new(),
        unresolved: Vec::new(),
    };
    arrange(&closure, &Files::default(), &|path| Some(path.to_vec()), prefix, shape)
}

/// Whether a folder itself holds shared objects.
fn has_libraries(files: &Files, dir: &[u8]) -> bool {
    files.below(dir).any(|(path, entry)| {
        let name = &path[dir.len() + 1..];
        let library = name.windows(3).any(|w| w == b".so");
        library && !name.contains(&b'/') && !matches!(entry, Entry::Dir(_))
    })
}

/// Where a path of Debian's comes to stand below a prefix: `/usr` goes, and so do the folders of one arch, so that both
/// arches have one manifest. `None` for the links of a merged `/usr`.
fn new_place(path: &[u8], triplet: &str) -> Option<Vec<u8>> {
    if [b"bin".as_slice(), b"sbin", b"lib", b"lib64"].contains(&path) {
        return None;
    }
    if path == b"usr" {
        return Some(Vec::new());
    }
    let path = path.strip_prefix(b"usr/".as_slice()).unwrap_or(path);
    for arch_dir in [format!("lib/{triplet}"), "lib64".to_owned()] {
        if let Some(rest) = path.strip_prefix(arch_dir.as_bytes())
            && (rest.is_empty() || rest[0] == b'/')
        {
            return Some([b"lib".as_slice(), rest].concat());
        }
    }
    Some(path.to_vec())
}

/// The target of a moved link: relative where it leads to something that moves along, absolute where it leads to
/// something of the base, `None` where it leads nowhere.
fn retarget(
    from: &Files,
    base: &Files,
    old: &[u8],
    target: &[u8],
    new: &[u8],
    place: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let dir = old.iter().rposition(|b| *b == b'/').map_or(&old[..0], |slash| &old[..slash]);
    let whole = if target.starts_with(b"/") { target.to_vec() } else { [dir, b"/", target].concat() };
    let at = from.resolve(&whole, false)?;
    if from.get(&at).is_some() && from.follow(&at).is_some() {
        return Some(relative(new, &place(&at)?));
    }
    base.follow(&whole).is_some().then(|| {
        let at = base.resolve(&whole, false).unwrap_or_default();
        [b"/".as_slice(), &at].concat()
    })
}

/// The path from the folder of `from` to `to`, both relative to one place.
fn relative(from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut here: Vec<&[u8]> = names(from).collect();
    here.pop();
    let there: Vec<&[u8]> = names(to).collect();
    let common = here.iter().zip(&there).take_while(|(a, b)| a == b).count();
    let mut parts: Vec<&[u8]> = vec![b".."; here.len() - common];
    parts.extend(&there[common..]);
    if parts.is_empty() { b".".to_vec() } else { parts.join(b"/".as_slice()) }
}

/// Where the interpreter stands in a script's first line: its start and end in bytes. `None` for what is no script, and
/// for `env`, which asks `PATH`.
fn interpreter(head: &[u8]) -> Option<(usize, usize)> {
    let line = &head[..head.iter().position(|b| *b == b'\n').unwrap_or(head.len())];
    let rest = line.strip_prefix(b"#!".as_slice())?;
    let start = 2 + rest.iter().position(|b| !matches!(b, b' ' | b'\t'))?;
    let end = line[start..].iter().position(|b| b.is_ascii_whitespace()).map_or(line.len(), |n| start + n);
    let path = &line[start..end];
    (path.starts_with(b"/") && !path.ends_with(b"/env")).then_some((start, end))
}

/// Puts the files of a folder over a keg, below its prefix.
pub(crate) fn overlay(keg: &mut Files, over: &Files, prefix: &str) -> Result<()> {
    let root = prefix.trim_start_matches('/').as_bytes();
    for (path, entry) in over.iter() {
        let at = [root, b"/", path].concat();
        keg.put(&at, entry.clone()).map_err(|why| ForgeError::Archive { archive: prefix.to_owned(), why })?;
    }
    keg.put_dir(prefix, Meta::root(0o755));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(files: &Files) -> Vec<String> {
        let line = |(path, entry): (&Vec<u8>, &Entry)| {
            let path = String::from_utf8_lossy(path).into_owned();
            match entry {
                Entry::Dir(_) => None,
                Entry::File(_, data) => {
                    Some(format!("{path}: {}", String::from_utf8_lossy(&data.read().unwrap())))
                }
                Entry::Link(target) => Some(format!("{path} -> {}", String::from_utf8_lossy(target))),
            }
        };
        files.iter().filter_map(line).collect()
    }

    fn closure(build: impl Fn(&mut Files)) -> Closure {
        let mut files = crate::base::merged_usr();
        build(&mut files);
        Closure { packages: vec![], files, library_dirs: BTreeSet::new(), unresolved: vec![] }
    }

    #[test]
    fn files_links_and_shebangs_move_together() {
        let closure = closure(|files| {
            files.put_text("usr/bin/tool-1", 0o755, "#! /usr/bin/lua5 -e\n");
            files.put_text("usr/bin/lua5", 0o755, "elf");
            files.put_text("usr/bin/sh-script", 0o755, "#!/bin/sh\n");
            files.put_text("usr/bin/env-script", 0o755, "#!/usr/bin/env lua5\n");
            files.put_text("usr/bin/perl-script", 0o755, "#!/usr/bin/perl\n");
            files.put_text("usr/share/doc/x/note", 0o644, "#!/usr/bin/lua5\n");
            files.put_text("usr/lib/x86_64-linux-gnu/libx.so.1.2", 0o644, "lib");
            files.put_link("usr/lib/x86_64-linux-gnu/libx.so.1", "libx.so.1.2");
            files.put_link("usr/bin/tool", "/usr/bin/tool-1");
            files.put_link("bin/lib-link", "../lib/x86_64-linux-gnu/libx.so.1");
            files.put_link("usr/bin/to-base", "/bin/sh");
            files.put_link("usr/bin/lost", "/etc/alternatives/lost");
            files.put_text("etc/tool/conf", 0o644, "c");
            files.put_dir("var/lib/empty", Meta::root(0o755));
        });
        let mut base = crate::base::merged_usr();
        base.put_text("usr/bin/sh", 0o755, "");
        let shape = Shape {
            symlinks: BTreeMap::from([("bin/t".to_owned(), "tool".to_owned())]),
            exclude: vec!["share/doc".to_owned()],
            path: vec!["etc/tool".to_owned(), "none".to_owned()],
        };
        let keg = relocate(&closure, &base, Arch::X64, "/opt/tool-1.0.0", &shape).unwrap();
        assert_eq!(
            shown(&keg.files),
            [
                "opt/tool-1.0.0/bin/env-script: #!/usr/bin/env lua5\n",
                "opt/tool-1.0.0/bin/lib-link -> ../lib/libx.so.1",
                "opt/tool-1.0.0/bin/lua5: elf",
                "opt/tool-1.0.0/bin/perl-script: #!/usr/bin/perl\n",
                "opt/tool-1.0.0/bin/sh-script: #!/bin/sh\n",
                "opt/tool-1.0.0/bin/t -> tool",
                "opt/tool-1.0.0/bin/to-base -> /usr/bin/sh",
                "opt/tool-1.0.0/bin/tool -> tool-1",
                "opt/tool-1.0.0/bin/tool-1: #! /opt/tool-1.0.0/bin/lua5 -e\n",
                "opt/tool-1.0.0/etc/tool/conf: c",
                "opt/tool-1.0.0/lib/libx.so.1 -> libx.so.1.2",
                "opt/tool-1.0.0/lib/libx.so.1.2: lib",
            ]
        );
        assert_eq!(keg.path, ["/opt/tool-1.0.0/bin", "/opt/tool-1.0.0/etc/tool"]);
        assert_eq!(keg.ld_library_path, ["/opt/tool-1.0.0/lib"]);
        assert_eq!(keg.notes.len(), 2, "{:?}", keg.notes);
    }

    #[test]
    fn nothing_lands_beside_the_prefix() {
        let closure = closure(|files| files.put_text("usr/bin/a", 0o755, ""));
        for name in ["../x", "a/../../x", ""] {
            let shape =
                Shape { symlinks: BTreeMap::from([(name.to_owned(), "t".to_owned())]), ..Shape::default() };
            assert!(relocate(&closure, &Files::default(), Arch::X64, "/opt/a", &shape).is_err(), "{name:?}");
        }
    }

    #[test]
    fn relative_paths_are_the_shortest() {
        for (from, to, path) in [
            ("bin/a", "bin/b", "b"),
            ("bin/a", "lib/b", "../lib/b"),
            ("a", "b/c", "b/c"),
            ("a/b/c", "a", ".."),
        ] {
            assert_eq!(String::from_utf8(relative(from.as_bytes(), to.as_bytes())).unwrap(), path);
        }
    }
}
