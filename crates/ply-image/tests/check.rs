//! What an image must be before the kernel mounts it as root: images that lie in their metadata, and images that
//! would steer the overlay that they are a layer of. Some are made of devices and `trusted.` attributes, which only
//! root can make: `tools/world cargo nextest run -p ply-image`.

mod common;

use common::*;
use ply_image::{Attr, Dirs, Image, ImageError, Origin, Source, Store, Tree};
use std::path::Path;
use std::process::Command;

#[track_caller]
fn damaged(crafted: &Crafted, why: &str) {
    let error = Image::open(crafted.save()).and_then(|image| image.check()).expect_err("the image was taken");
    let text = error.to_string();
    assert!(matches!(error, ImageError::Damaged { .. }) && text.ends_with(why), "{text}");
    assert!(text.contains("crafted.img"), "{text}");
}

fn two_files() -> Crafted {
    Crafted::new(|dir| {
        put(dir, "name-1", &noise(1, 54_321));
        put(dir, "name-2", &noise(2, 131_072 + 23_456));
    })
}

/// Where the inode of a file of this size begins.
fn inode_of(image: &Crafted, size: u32) -> usize {
    image.find(&size.to_le_bytes(), image.inode_table()) - 28
}

#[test]
fn honest_images_of_both_writers_are_taken() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("tree");
    for n in 0..2_500 {
        // Long names, so that the listing has many runs and an index.
        put(&dir, format!("many/{n:0100}"), format!("{n}").as_bytes());
    }
    put(&dir, "large", &noise(5, 3_000_000));
    put(&dir, "sparse", &vec![0; 1 << 20]);
    std::fs::hard_link(dir.join("large"), dir.join("other-name")).unwrap();
    std::os::unix::fs::symlink("large", dir.join("link")).unwrap();
    run(Command::new("mkfifo").arg(dir.join("fifo")));
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(dir.join("large"), "user.note", &vec![b'v'; 3000], flags).unwrap();
    rustix::fs::setxattr(dir.join("sparse"), "user.note", &vec![b'v'; 3000], flags).unwrap();
    let image = temp.path().join("own.img");
    pack_to(&scan(&dir, true), &options(3, true), &image);
    Image::open(&image).unwrap().check().unwrap();
    for with in [&["-Xcompression-level", "3"][..], &["-noI", "-noX", "-noF", "-noD"], &["-no-exports"]] {
        let image = temp.path().join("other.img");
        let _ = std::fs::remove_file(&image);
        let mut command = Command::new("mksquashfs");
        command.arg(&dir).arg(&image).args(["-comp", "zstd", "-quiet", "-no-progress"]);
        run(command.args(with));
        Image::open(&image).unwrap().check().unwrap();
    }
}

#[test]
fn numbers_of_inodes_are_each_ones_own() {
    // The number of an inode stands 12 bytes behind its beginning.
    let mut image = two_files();
    let (one, two) = (inode_of(&image, 54_321), inode_of(&image, 131_072 + 23_456));
    let number = image.bytes[one + 12..one + 16].to_vec();
    image.replace(two + 12, &number);
    damaged(&image, "an entry is not what its directory says");
    // The directory may be made to agree.
    let entry = image.find(b"name-2", image.dir_table());
    let first = image.find(b"name-1", image.dir_table());
    let difference = image.bytes[first - 6..first - 4].to_vec();
    image.replace(entry - 6, &difference);
    damaged(&image, "two inodes have one number");
    let mut image = two_files();
    let inodes = image.field(4) as u32;
    image.replace(4, &(inodes - 1).to_le_bytes());
    damaged(&image, "an inode has an impossible number");
    image.replace(4, &u32::MAX.to_le_bytes());
    damaged(&image, "it claims more entries than an image has");
    image.replace(4, &0u32.to_le_bytes());
    damaged(&image, "it has no inodes or no owners");
}

#[test]
fn blocks_and_fragments_are_where_data_is() {
    let size = 131_072 + 23_456;
    let fresh = || {
        let image = two_files();
        let at = inode_of(&image, size);
        (image, at)
    };
    // A file's first block, the offset in its fragment, and the size of its block.
    for (field, value, why) in [
        (16, u32::MAX, "a block is not inside of it"),
        (16, 0, "a block is not inside of it"),
        (24, 131_072, "a tail is not in its fragment"),
        (32, 131_073, "a block is not inside of it"),
    ] {
        let (mut image, at) = fresh();
        image.replace(at + field, &value.to_le_bytes());
        damaged(&image, why);
    }
    // A block that ends in the metadata.
    let (mut image, at) = fresh();
    let inside = image.inode_table() as u32 - 1;
    image.replace(at + 16, &inside.to_le_bytes());
    damaged(&image, "a block is not inside of it");
    // The fragment's own entry: its table's index says where its block is, two bytes of head before it.
    let (mut image, _) = fresh();
    let block = image.field(image.field(80) as usize) as usize + 2;
    image.replace(block, &u64::MAX.to_le_bytes());
    damaged(&image, "a fragment is not inside of it");
}

#[test]
fn tables_are_inside_and_in_order() {
    // The indexes of the tables of fragments, inodes and owners.
    for (field, what) in [(80, "fragments"), (88, "inodes"), (48, "owners")] {
        for place in [0, 96, u64::MAX, 1 << 40] {
            let mut image = two_files();
            let index = image.field(field) as usize;
            image.replace(index, &u64::to_le_bytes(place));
            damaged(&image, &format!("its table of {what} is not inside of it"));
        }
    }
    // What inodes are found by, by number: it must lead to the same.
    let mut image = two_files();
    let table = image.field(image.field(88) as usize) as usize + 2;
    let second = image.bytes[table + 8..table + 16].to_vec();
    image.replace(table, &second);
    damaged(&image, "its table of inodes says something else than its directories");
}

#[test]
fn the_index_of_a_directory_leads_where_its_names_are() {
    let mut image = Crafted::new(|dir| {
        (0..600).for_each(|n| drop(put(dir, format!("{n:0100}"), b"x")));
    });
    Image::open(image.save()).unwrap().check().unwrap();
    // The first name of a later run stands twice: in the listing and in the index behind the inode.
    let name = (0..600).map(|n| format!("{n:0100}")).find(|name| {
        let name = name.as_bytes();
        let (from, to) = (image.inode_table(), image.dir_table());
        image.bytes[from..to].windows(name.len()).any(|w| w == name)
    });
    let name = name.expect("an index");
    let at = image.bytes.windows(100).position(|w| w == name.as_bytes()).unwrap();
    let whole = image.bytes.clone();
    for (back, value) in [(12, 7u32), (8, 3), (4, 5000)] {
        image.bytes.clone_from(&whole);
        image.replace(at - back, &value.to_le_bytes());
        damaged(&image, "the index of a directory leads elsewhere");
    }
    image.bytes.clone_from(&whole);
    image.replace(at, b"z");
    damaged(&image, "the index of a directory leads elsewhere");
}

/// An image of a layer with one thing in it that steers, made by another program.
fn steering(make: impl FnOnce(&Path)) -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("tree");
    put(&dir, ".manifest.toml", b"[package]\nname = \"evil\"\nversion = \"1.0.0\"\nkind = \"layer\"\n");
    put(&dir, "opt/evil-1.0.0/kept/file", b"x");
    make(&dir.join("opt/evil-1.0.0"));
    plain_image(&dir, &temp.path().join("evil-1.0.0-linux-x64.img"));
    temp
}

#[track_caller]
fn forbidden(made: &tempfile::TempDir, what: &str) {
    let path = made.path().join("evil-1.0.0-linux-x64.img");
    let wanted = format!("evil-1.0.0-linux-x64.img is refused: /opt/evil-1.0.0/{what}");
    let error = Image::open(&path).unwrap().check().unwrap_err();
    assert!(error.to_string().ends_with(&wanted), "{error}");
    assert!(error.hint().is_some());
    let at = |name: &str| made.path().join(name);
    let store = Store::open(&Dirs { data: at("data"), run: at("run"), config: at("config") }).unwrap();
    let origin = || Origin { source: None, image: "evil-1.0.0-linux-x64.img".parse().unwrap() };
    let error = store.insert_file(&path, origin()).unwrap_err();
    assert!(error.to_string().ends_with(&wanted), "{error}");
    let mut writer = store.writer().unwrap();
    writer.copy(&mut std::fs::File::open(&path).unwrap()).unwrap();
    let error = writer.finish(None, origin()).unwrap_err();
    assert!(error.to_string().ends_with(&wanted), "{error}");
    assert_eq!(std::fs::read_dir(store.dir()).unwrap().count(), 0, "something is left in the store");
}

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

#[test]
fn root_a_layer_can_not_steer_the_overlay() {
    for (name, value) in [
        ("trusted.overlay.redirect", &b"/etc"[..]),
        ("trusted.overlay.opaque", b"y"),
        ("trusted.overlay.metacopy", b""),
        ("trusted.overlay.whiteout", b""),
        ("user.overlay.redirect", b"/etc"),
        ("user.overlay.opaque", b"y"),
        ("user.overlay.overlay.opaque", b"y"),
    ] {
        let made = steering(|dir| set(&dir.join("kept"), name, value));
        forbidden(&made, &format!("kept has the xattr {name}, which steers an overlay"));
        let made = steering(|dir| set(&dir.join("kept/file"), name, value));
        forbidden(&made, &format!("kept/file has the xattr {name}, which steers an overlay"));
    }
    for numbers in [["0", "0"], ["1", "3"], ["7", "0"]] {
        let made =
            steering(|dir| run(Command::new("mknod").arg(dir.join("kept/node")).arg("c").args(numbers)));
        forbidden(&made, "kept/node is a device");
    }
    // An attribute that only looks like one is nobody's business.
    let made = steering(|dir| set(&dir.join("kept"), "user.overlays", b"y"));
    Image::open(made.path().join("evil-1.0.0-linux-x64.img")).unwrap().check().unwrap();
}

#[test]
fn nothing_that_steers_is_packed() {
    for name in ["user.overlay.opaque", "trusted.overlay.redirect"] {
        let mut tree = Tree::new();
        tree.add_file("etc/x", Source::Bytes(b"x".to_vec()), Attr::mode(0o644)).unwrap();
        let mut attr = Attr::mode(0o755);
        attr.xattrs.push((name.into(), b"y".to_vec()));
        tree.add_dir("etc", attr).unwrap();
        let mut out = std::io::Cursor::new(Vec::new());
        let error = ply_image::pack(&tree, &options(3, true), &mut out).unwrap_err().to_string();
        assert_eq!(error, "/etc can't be in an image: it has an xattr of an overlay");
        // Without attributes there is nothing to refuse.
        ply_image::pack(&tree, &options(3, false), &mut std::io::Cursor::new(Vec::new())).unwrap();
    }
    let temp = tempfile::tempdir().unwrap();
    put(temp.path(), "d/file", b"x");
    set(&temp.path().join("d"), "user.overlay.opaque", b"y");
    let mut out = std::io::Cursor::new(Vec::new());
    let error = ply_image::pack(&scan(temp.path(), true), &options(3, true), &mut out).unwrap_err();
    assert_eq!(error.to_string(), "/d can't be in an image: it has an xattr of an overlay");
}

#[test]
fn an_entry_of_an_older_ply_is_checked_once_before_it_is_used() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let store = Store::open(&Dirs { data: at("data"), run: at("run"), config: at("config") }).unwrap();
    let mut tree = Tree::new();
    let manifest = "[package]\nname = \"old\"\nversion = \"1.0.0\"\nkind = \"layer\"\n";
    tree.add_file(".manifest.toml", Source::Bytes(manifest.into()), Attr::mode(0o644)).unwrap();
    let origin = Origin { source: None, image: "old-1.0.0-linux-x64.img".parse().unwrap() };
    let (entry, _) = store.pack(&tree, &options(3, false), origin).unwrap();
    let record = entry.dir.join("entry.json");
    let text = std::fs::read_to_string(&record).unwrap();
    assert!(text.contains("\"checked\": 1"), "{text}");
    let before = text.replace(",\n  \"checked\": 1", "");
    assert_ne!(text, before);
    std::fs::write(&record, &before).unwrap();
    // As an older one entered it, and then with a device that nobody had looked for.
    let old = store.get(&entry.digest).unwrap().unwrap();
    old.check().unwrap();
    assert_eq!(std::fs::read_to_string(&record).unwrap(), text);
    let evil = two_files();
    let mut bytes = evil.bytes.clone();
    bytes[4..8].copy_from_slice(&0u32.to_le_bytes());
    std::fs::write(&entry.image, &bytes).unwrap();
    // Of another size it would count as absent.
    let was = format!("\"bytes\": {}", entry.bytes);
    let before = before.replace(&was, &format!("\"bytes\": {}", bytes.len()));
    std::fs::write(&record, &before).unwrap();
    let old = store.get(&entry.digest).unwrap().unwrap();
    assert!(old.check().unwrap_err().to_string().ends_with("it has no inodes or no owners"));
    assert_eq!(std::fs::read_to_string(&record).unwrap(), before);
}
