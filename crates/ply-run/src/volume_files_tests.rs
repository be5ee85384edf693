//! Attacks on volumes by what an image has at their path, and by what an app left in them. Those that give files
//! to other users need root, and fail without: `tools/world cargo nextest run -p ply-run`.

use super::{give, seed};
use ply_image::{Attr, Image, LayerStack, PackOptions, ScanOptions, Source, Tree};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn pack(tree: &Tree) -> Image {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("i.img");
    let mut options = PackOptions::new(3);
    options.keep_owners = true;
    ply_image::pack(tree, &options, &mut File::create_new(&path).unwrap()).unwrap();
    Image::open(&path).unwrap()
}

fn file(tree: &mut Tree, path: &str, text: &str, attr: Attr) {
    tree.add_file(path, Source::Bytes(text.into()), attr).unwrap();
}

fn of(uid: u32, gid: u32, mode: u16) -> Attr {
    Attr { uid, gid, ..Attr::mode(mode) }
}

fn seeded(images: Vec<Image>, inside: &str, owner: Option<(u32, u32)>) -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    seed(&LayerStack::new(images), inside, &temp.path().join("v"), owner).unwrap();
    temp
}

fn facts(path: &Path) -> (u32, u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid(), meta.mode() & 0o7777)
}

#[test]
fn a_sparse_terabyte_stays_sparse_and_costs_nothing() {
    const TERABYTE: u64 = 1 << 40;
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("d")).unwrap();
    let sparse = File::create_new(temp.path().join("d/sparse")).unwrap();
    sparse.set_len(TERABYTE).unwrap();
    sparse.write_all_at(b"an island", TERABYTE / 2).unwrap();
    let tree = Tree::scan(temp.path(), &ScanOptions::default()).unwrap();
    let out = seeded(vec![pack(&tree)], "/d", None);
    let made = File::open(out.path().join("v/sparse")).unwrap();
    let meta = made.metadata().unwrap();
    assert_eq!(meta.len(), TERABYTE);
    assert!(meta.blocks() * 512 <= 1 << 20, "{} bytes on disk", meta.blocks() * 512);
    let mut island = [0; 9];
    made.read_exact_at(&mut island, TERABYTE / 2).unwrap();
    assert_eq!(&island, b"an island");
}

#[test]
fn more_than_an_image_may_unpack_to_is_refused_before_the_first_byte() {
    let mut tree = Tree::new();
    file(&mut tree, "d/one", &"x".repeat(1 << 20), Attr::mode(0o644));
    let stack = LayerStack::new(vec![pack(&tree)]);
    let temp = tempfile::tempdir().unwrap();
    let options = ply_image::ExtractOptions { max_bytes: Some(1 << 19), ..Default::default() };
    let error = stack.extract("d", temp.path(), &options).unwrap_err();
    assert!(matches!(error, ply_image::ImageError::Bomb { bytes: 1_048_576, .. }), "{error}");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn root_seeds_without_set_id_bits_and_for_the_right_owner() {
    let tree = || {
        let mut tree = Tree::new();
        tree.add_dir("d", of(7, 8, 0o3775)).unwrap();
        let mut capable = of(0, 0, 0o755);
        // A version 2 capability: cap_net_raw, effective (capabilities(7)).
        let value = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        capable.xattrs.push((b"security.capability".to_vec(), value.to_vec()));
        file(&mut tree, "d/capable", "c", capable);
        file(&mut tree, "d/setuid", "s", of(0, 0, 0o6755));
        file(&mut tree, "d/secret", "x", of(5, 6, 0o600));
        tree.add_symlink("d/out", "/etc/passwd", of(5, 6, 0o777)).unwrap();
        tree.add_fifo("d/fifo", of(5, 6, 0o644)).unwrap();
        pack(&tree)
    };
    let out = seeded(vec![tree()], "/d", None);
    let at = |name: &str| facts(&out.path().join("v").join(name));
    assert_eq!(at(""), (7, 8, 0o1775));
    assert_eq!(at("setuid"), (0, 0, 0o755));
    assert_eq!(at("secret"), (5, 6, 0o600));
    assert_eq!((at("out").0, at("out").1), (5, 6));
    assert_eq!(fs::read_link(out.path().join("v/out")).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(at("fifo"), (5, 6, 0o644));
    let capable = out.path().join("v/capable");
    let none = rustix::fs::getxattr(&capable, c"security.capability", &mut [0u8; 64]);
    assert_eq!(none, Err(rustix::io::Errno::NODATA));
    let out = seeded(vec![tree()], "/d", Some((1000, 1001)));
    for name in ["", "setuid", "secret", "out", "fifo", "capable"] {
        let (uid, gid, mode) = facts(&out.path().join("v").join(name));
        assert_eq!((uid, gid, mode & 0o6000), (1000, 1001, 0), "{name}");
    }
    let out = seeded(vec![tree()], "/nothing/there", Some((1000, 1001)));
    assert_eq!(facts(&out.path().join("v")), (1000, 1001, 0o755));
}

#[test]
fn root_seeds_what_all_layers_have_together() {
    let layer = |make: &dyn Fn(&mut Tree)| {
        let mut tree = Tree::new();
        make(&mut tree);
        pack(&tree)
    };
    let upper = layer(&|t| {
        file(t, "d/both/upper", "upper", Attr::mode(0o644));
        file(t, "d/same", "upper", Attr::mode(0o644));
        file(t, "d/hides", "a file over a folder", Attr::mode(0o644));
        t.add_symlink("way", "d", Attr::mode(0o777)).unwrap();
    });
    let lower = layer(&|t| {
        t.add_dir("d/both", of(3, 4, 0o700)).unwrap();
        file(t, "d/both/lower", "lower", Attr::mode(0o600));
        file(t, "d/same", "lower", Attr::mode(0o644));
        file(t, "d/hides/inner", "hidden", Attr::mode(0o644));
        t.add_hard_link("d/linked", "d/both/lower").unwrap();
    });
    let out = seeded(vec![upper, lower], "/way", None);
    let read = |name: &str| fs::read_to_string(out.path().join("v").join(name)).unwrap();
    assert_eq!(read("both/upper"), "upper");
    assert_eq!(read("both/lower"), "lower");
    assert_eq!(read("same"), "upper");
    assert_eq!(read("hides"), "a file over a folder");
    let ino = |name: &str| fs::metadata(out.path().join("v").join(name)).unwrap().ino();
    assert_eq!(ino("linked"), ino("both/lower"));
    // The topmost folder is the one whose attributes are seen.
    assert_eq!(facts(&out.path().join("v/both")), (0, 0, 0o755));
}

#[test]
fn root_gives_links_and_what_is_deep_and_no_rights() {
    let temp = tempfile::tempdir().unwrap();
    let (volume, outside) = (temp.path().join("v"), temp.path().join("outside"));
    fs::create_dir(&volume).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "").unwrap();
    symlink(&outside, volume.join("folder")).unwrap();
    symlink(outside.join("kept"), volume.join("file")).unwrap();
    symlink("..", volume.join("up")).unwrap();
    fs::write(volume.join("setuid"), "").unwrap();
    fs::set_permissions(volume.join("setuid"), PermissionsExt::from_mode(0o6755)).unwrap();
    // Deeper than a path may be long and than descriptors may be open.
    let mut here = File::open(&volume).unwrap();
    for _ in 0..1500 {
        rustix::fs::mkdirat(&here, "deep", rustix::fs::Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, "deep", super::FOLDER, rustix::fs::Mode::empty()).unwrap().into();
    }
    give(&volume, 1000, 1001).unwrap();
    let deepest = here.metadata().unwrap();
    assert_eq!((deepest.uid(), deepest.gid()), (1000, 1001));
    for name in ["", "folder", "file", "up", "setuid"] {
        let (uid, gid, mode) = facts(&volume.join(name));
        assert_eq!((uid, gid, mode & 0o6000), (1000, 1001, 0), "{name}");
    }
    for kept in [temp.path(), &outside, &outside.join("kept")] {
        assert_eq!((facts(kept).0, facts(kept).1), (0, 0), "{}", kept.display());
    }
}

#[test]
fn root_gives_nothing_outside_while_somebody_swaps_folders_for_links() {
    let temp = tempfile::tempdir().unwrap();
    let (volume, outside) = (temp.path().join("v"), temp.path().join("outside"));
    for dir in ["v/a/inner", "outside/inner"] {
        fs::create_dir_all(temp.path().join(dir)).unwrap();
        (0..20).for_each(|n| fs::write(temp.path().join(dir).join(n.to_string()), "").unwrap());
    }
    symlink(&outside, volume.join("b")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = File::open(&volume).unwrap();
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(&at, "a", &at, "b", rustix::fs::RenameFlags::EXCHANGE).unwrap();
            }
        });
        for n in 0..400 {
            // It may fail, and may miss what moves; it may not reach what is outside.
            let _ = give(&volume, 1000 + n, 1000);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let mut todo = vec![outside];
    while let Some(path) = todo.pop() {
        assert_eq!((facts(&path).0, facts(&path).1), (0, 0), "{}", path.display());
        if path.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
    }
}
