//! The same tree gives the same bytes, and a tree that doesn't hold still gives an error.

mod common;

use common::*;
use ply_image::{Attr, EntryKind, Image, ImageError, PackOptions, ScanOptions, Source, Tree, pack};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::{Cursor, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

fn packed(tree: &Tree, options: &PackOptions) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    pack(tree, options, &mut out).unwrap();
    out.into_inner()
}

/// Some files in some folders, made in the order of `order`.
fn make(dir: &Path, order: impl Iterator<Item = usize>) {
    for n in order {
        let name = format!("{}/{}/file-{n}", n % 3, n % 5);
        put(dir, &name, &noise((n % 40) as u64, (n % 40) * 7919));
        if n % 9 == 0 {
            std::fs::set_permissions(dir.join(&name), PermissionsExt::from_mode(0o755)).unwrap();
        }
        if n % 11 == 0 {
            symlink(format!("file-{n}"), dir.join(format!("{}/link-{n}", n % 3))).unwrap();
        }
    }
}

#[test]
fn the_number_of_threads_never_changes_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), 0..80);
    for level in [3, 9] {
        let all: Vec<Vec<u8>> = [1, 2, 3, 8]
            .map(|threads| {
                packed(&scan(dir.path(), false), &PackOptions { threads, ..options(level, false) })
            })
            .into();
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "level {level}");
    }
}

#[test]
fn order_umask_clock_place_and_links_never_change_a_byte() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make(a.path(), 0..60);
    make(b.path(), (0..60).rev());
    // Another umask, other times, a hard link where the other has a copy.
    for entry in look(b.path()) {
        let path = b.path().join(entry.0);
        match entry.1.kind {
            "dir" => std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap(),
            "file" => {
                let mode = if entry.1.mode & 0o100 != 0 { 0o700 } else { 0o600 };
                std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
                let file = std::fs::File::open(&path).unwrap();
                file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(77)).unwrap();
            }
            _ => {}
        }
    }
    let (one, other) = (b.path().join("0/3/file-3"), b.path().join("1/3/file-43"));
    assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&other).unwrap());
    std::fs::remove_file(&other).unwrap();
    std::fs::hard_link(&one, &other).unwrap();
    let bytes = packed(&scan(a.path(), false), &options(9, false));
    assert_eq!(bytes, packed(&scan(b.path(), false), &options(9, false)));
    // From memory, added backwards.
    let mut tree = Tree::new();
    for (path, item) in look(a.path()).into_iter().rev() {
        let from = a.path().join(&path);
        match item.kind {
            "file" => {
                let bytes = std::fs::read(&from).unwrap();
                tree.add_file(&path, Source::Bytes(bytes), Attr::mode(item.mode as u16)).unwrap();
            }
            "symlink" => {
                let target = std::fs::read_link(&from).unwrap();
                tree.add_symlink(&path, target, Attr::mode(0o600)).unwrap();
            }
            _ => tree.add_dir(&path, Attr::mode(0o711)).unwrap(),
        }
    }
    assert_eq!(bytes, packed(&tree, &options(9, false)));
}

#[test]
fn a_known_tree_has_a_known_digest() {
    // Of a machine, a user, a year: if this changes, every image's digest does. It may change with the compressor's
    // version, never by accident.
    let mut tree = Tree::new();
    for n in 0..50usize {
        let bytes = noise(n as u64, n * 3001);
        tree.add_file(format!("opt/app/{}/{n}", n % 4), Source::Bytes(bytes), Attr::mode(0o644)).unwrap();
    }
    tree.add_symlink("opt/app/current", "3", Attr::mode(0o777)).unwrap();
    let mut out = Cursor::new(Vec::new());
    let done = pack(&tree, &options(9, false), &mut out).unwrap();
    let hash = ply_image_digest(out.get_ref());
    assert_eq!(done.digest.to_string(), hash, "the digest is not that of the bytes");
    assert_eq!(done.bytes, out.get_ref().len() as u64);
    insta::assert_snapshot!(done.digest.to_string());
}

/// The sha256 by another program than ours.
fn ply_image_digest(bytes: &[u8]) -> String {
    let temp = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(temp.path(), bytes).unwrap();
    let done = Command::new("sha256sum").arg(temp.path()).output().unwrap();
    format!("sha256:{}", &String::from_utf8(done.stdout).unwrap()[..64])
}

#[test]
fn the_epoch_is_every_time() {
    let mut tree = Tree::new();
    tree.add_file("dir/file", Source::Bytes(b"x".to_vec()), Attr::mode(0o644)).unwrap();
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("i.img");
    pack_to(&tree, &PackOptions { epoch: 1_700_000_000, ..options(3, false) }, &image);
    let image = Image::open(&image).unwrap();
    for path in ["", "dir", "dir/file"] {
        assert_eq!(image.stat(path).unwrap().unwrap().mtime, 1_700_000_000);
    }
}

#[test]
fn an_empty_tree_is_an_image() {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("i.img");
    pack_to(&Tree::new(), &options(9, false), &image);
    assert_eq!(Image::open(&image).unwrap().entries().unwrap(), []);
    assert_eq!(unsquashed(&image, &temp.path().join("out")).len(), 1);
}

#[test]
fn a_file_that_does_not_hold_still_is_an_error_and_no_image() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 6] = [
        ("grown", |path| std::fs::write(path, vec![b'x'; 400_001]).unwrap()),
        ("shrunk", |path| std::fs::write(path, b"x").unwrap()),
        ("rewritten", |path| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::fs::write(path, vec![b'y'; 400_000]).unwrap();
        }),
        ("gone", |path| std::fs::remove_file(path).unwrap()),
        ("a link now", |path| {
            std::fs::remove_file(path).unwrap();
            symlink("/etc/passwd", path).unwrap();
        }),
        ("a fifo now", |path| {
            std::fs::remove_file(path).unwrap();
            run(Command::new("mkfifo").arg(path));
        }),
    ];
    for (what, change) in changes {
        let dir = tempfile::tempdir().unwrap();
        let path = put(dir.path(), "file", &[b'x'; 400_000]);
        let tree = scan(dir.path(), false);
        change(&path);
        let mut out = Cursor::new(Vec::new());
        let error = pack(&tree, &options(3, false), &mut out).unwrap_err();
        let wanted = if what == "gone" { "vanished" } else { "changed" };
        assert_eq!(error.to_string(), format!("{} {wanted} while it was packed", path.display()), "{what}");
        assert!(out.get_ref().iter().take(96).all(|b| *b == 0), "{what}: there is a superblock");
    }
}

/// Calls something at the first block that is written.
struct Disturbed<F: FnMut()>(Cursor<Vec<u8>>, Option<F>);

impl<F: FnMut()> Write for Disturbed<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.position() > 96
            && let Some(mut disturb) = self.1.take()
        {
            disturb();
        }
        self.0.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<F: FnMut()> Read for Disturbed<F> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(bytes)
    }
}

impl<F: FnMut()> Seek for Disturbed<F> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn a_change_in_the_middle_of_packing_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..40 {
        put(dir.path(), format!("{n:02}"), &noise(n, 400_000));
    }
    let last = dir.path().join("39");
    let tree = scan(dir.path(), false);
    let shrink = || std::fs::File::options().write(true).open(&last).unwrap().set_len(399_999).unwrap();
    let error = pack(&tree, &options(3, false), &mut Disturbed(Cursor::default(), Some(shrink))).unwrap_err();
    assert!(matches!(&error, ImageError::Changed(path) if *path == last), "{error}");
}

#[test]
fn a_disk_that_is_full_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "file", &noise(1, 3_000_000));
    let mut full = std::fs::File::options().read(true).write(true).open("/dev/full").unwrap();
    let error = pack(&scan(dir.path(), false), &options(3, false), &mut full).unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
}

#[test]
fn sockets_and_fifos_are_refused_by_name_or_left_out_with_a_list() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "sub/file", b"x");
    let socket = dir.path().join("sub/socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    run(Command::new("mkfifo").arg(dir.path().join("fifo")));
    let error = Tree::scan(&dir.path().join("sub"), &ScanOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), format!("an image can't hold a socket: {}", socket.display()));
    let mut tree = Tree::new();
    let mut options = ScanOptions { skip_special: true, ..ScanOptions::default() };
    let skipped = tree.scan_into(dir.path(), &options).unwrap();
    let skipped: Vec<_> = skipped.iter().map(|s| (s.path.to_str().unwrap(), s.kind)).collect();
    assert_eq!(skipped, [("fifo", "fifo"), ("sub/socket", "socket")]);
    options.keep_owners = true;
    let mut tree = Tree::new();
    assert_eq!(tree.scan_into(dir.path(), &options).unwrap().len(), 1);
    assert_eq!(tree.get("fifo").unwrap().0, EntryKind::Fifo);
}

#[test]
fn a_tree_is_made_of_pieces() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "a/b", b"scanned");
    put(dir.path(), "skip/me", b"x");
    put(dir.path(), "a/not-me", b"x");
    let take = |path: &Path, is_dir: bool| is_dir && path != Path::new("skip") || path.ends_with("b");
    let options = ScanOptions { prefix: "opt/app".into(), filter: Some(&take), ..ScanOptions::default() };
    let mut tree = Tree::scan(dir.path(), &options).unwrap();
    tree.add_file(".manifest.toml", Source::Bytes(b"text".to_vec()), Attr::mode(0o644)).unwrap();
    tree.add_hard_link("opt/app/c", "/opt/app/a/b").unwrap();
    tree.add_file("gone", Source::Bytes(Vec::new()), Attr::mode(0o644)).unwrap();
    tree.add_hard_link("stays", "gone").unwrap();
    assert!(tree.remove("gone") && !tree.remove("gone"));
    let paths: Vec<PathBuf> = tree.entries().map(|(path, _)| path).collect();
    let wanted = [".manifest.toml", "opt", "opt/app", "opt/app/a", "opt/app/a/b", "opt/app/c", "stays"];
    assert_eq!(paths, wanted.map(PathBuf::from));
    for (path, why) in [
        ("../x", "it has .. in it"),
        ("", "the root is a directory"),
        ("opt/app/a/b/c", "its parent is not a directory"),
        ("opt", "a directory is there already"),
    ] {
        let error = tree.add_file(path, Source::Bytes(Vec::new()), Attr::mode(0o644)).unwrap_err();
        assert!(error.to_string().ends_with(why), "{error}");
    }
}

/// What a random tree has at a path.
#[derive(Debug, Clone)]
enum Thing {
    Dir,
    File(Vec<u8>, u16),
    Symlink(String),
}

fn thing() -> impl Strategy<Value = Thing> {
    let content = prop_oneof![
        4 => (0u64..4, 0usize..5000).prop_map(|(seed, size)| noise(seed, size)),
        1 => (0u64..3, 131_000usize..131_200).prop_map(|(seed, size)| noise(seed, size)),
        1 => (0usize..300_000).prop_map(|size| vec![0; size]),
        1 => (0u64..3, 0usize..400_000).prop_map(|(seed, size)| {
            let mut bytes = noise(seed, size);
            bytes.truncate(size);
            let half = size / 2;
            bytes[..half].fill(0);
            bytes
        }),
    ];
    prop_oneof![
        1 => Just(Thing::Dir),
        6 => (content, 0u16..0o1000).prop_map(|(bytes, mode)| Thing::File(bytes, mode)),
        1 => "[a-z/.]{1,30}".prop_map(Thing::Symlink),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[abc]|[a-z]{1,3}|x{200}", 1..4).prop_map(|names| names.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_packed_is_read_back(things in prop::collection::vec((path(), thing()), 0..40), keep: bool) {
        let mut tree = Tree::new();
        let mut wanted: BTreeMap<PathBuf, Thing> = BTreeMap::new();
        for (path, thing) in things {
            let added = match &thing {
                Thing::Dir => tree.add_dir(&path, Attr::mode(0o755)),
                Thing::File(bytes, mode) => tree.add_file(&path, Source::Bytes(bytes.clone()), Attr::mode(*mode)),
                Thing::Symlink(target) => tree.add_symlink(&path, target, Attr::mode(0o777)),
            };
            if added.is_ok() {
                let path = PathBuf::from(path);
                for parent in path.ancestors().skip(1).filter(|p| *p != Path::new("")) {
                    wanted.insert(parent.to_owned(), Thing::Dir);
                }
                wanted.insert(path, thing);
            }
        }
        let temp = tempfile::tempdir().unwrap();
        let image = temp.path().join("i.img");
        let one = pack_to(&tree, &PackOptions { threads: 1, ..options(1, keep) }, &image);
        let two = pack_to(&tree, &PackOptions { threads: 3, ..options(1, keep) }, &image);
        prop_assert_eq!(one, two);
        let image = Image::open(&image).unwrap();
        let found: Vec<PathBuf> = image.entries().unwrap().into_iter().map(|e| e.path).collect();
        let paths: std::collections::BTreeSet<_> = found.iter().cloned().collect();
        prop_assert_eq!(paths.len(), found.len());
        prop_assert!(paths.iter().eq(wanted.keys()), "{:?} for {:?}", paths, wanted.keys());
        let target = temp.path().join("out");
        std::fs::create_dir(&target).unwrap();
        image.extract(&target, &ply_image::ExtractOptions::default()).unwrap();
        for (path, thing) in &wanted {
            let stat = image.stat(path).unwrap().unwrap();
            match thing {
                Thing::Dir => prop_assert!(stat.is_dir()),
                Thing::Symlink(to) => {
                    prop_assert_eq!(image.read_link(path).unwrap(), PathBuf::from(to));
                    prop_assert_eq!(std::fs::read_link(target.join(path)).unwrap(), PathBuf::from(to));
                }
                Thing::File(bytes, mode) => {
                    prop_assert_eq!(&image.read(path, 1 << 20).unwrap(), bytes);
                    prop_assert!(bytes.is_empty() || image.read(path, bytes.len() as u64 - 1).is_err());
                    let executable = if mode & 0o100 != 0 { 0o755 } else { 0o644 };
                    prop_assert_eq!(stat.mode, if keep { *mode } else { executable });
                    let there = target.join(path);
                    let meta = std::fs::symlink_metadata(&there).unwrap();
                    prop_assert_eq!(meta.permissions().mode() & 0o7777, u32::from(stat.mode));
                    std::fs::set_permissions(&there, PermissionsExt::from_mode(0o600)).unwrap();
                    prop_assert_eq!(&std::fs::read(&there).unwrap(), bytes);
                }
            }
        }
        prop_assert!(image.stat("a/b/c/d/e/f").unwrap().is_none());
    }
}
