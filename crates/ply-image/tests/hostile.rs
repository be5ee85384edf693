//! Images that nobody vouches for: whatever is in them, the reader neither panics nor allocates what is only
//! claimed, and an extraction stays in its folder. Each test limits its own process's memory, so that an
//! allocation that trusts the image ends it.

mod common;

use common::*;
use ply_image::{Attr, ExtractOptions, Image, ImageError, Owners, Source, Tree};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The most memory that a test's process may map: what the test itself, its threads and libraries need.
const MEMORY: u64 = 2 << 30;

fn limit_memory() {
    let limit = rustix::process::Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
}

/// A numbers generator with a seed: a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A small tree with one of everything.
fn sample(dir: &Path) {
    put(dir, "dir/small", b"small content");
    put(dir, "dir/sub/other", &noise(3, 5000));
    put(dir, "dir/large", &noise(5, 300_000));
    put(dir, "dir/sparse", &[vec![0; 262_144], b"end".to_vec()].concat());
    std::os::unix::fs::symlink("../elsewhere", dir.join("dir/link")).unwrap();
    std::fs::hard_link(dir.join("dir/small"), dir.join("dir/name-2")).unwrap();
    std::fs::create_dir(dir.join("empty")).unwrap();
    run(Command::new("mkfifo").arg(dir.join("fifo")));
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(dir.join("dir/large"), "user.note", b"a value", flags).unwrap();
}

/// Everything that can be done with an image. Errors are fine, panics and escapes are not.
fn use_it(bytes: &[u8], scratch: &Path) {
    let path = scratch.join("mutant.img");
    std::fs::write(&path, bytes).unwrap();
    let Ok(image) = Image::open(&path) else { return };
    let _ = image.manifest_text();
    let _ = image.check();
    if let Ok(entries) = image.entries() {
        for entry in entries.iter().take(50) {
            let _ = image.read(&entry.path, 1 << 20);
            let _ = image.read_link(&entry.path);
            let _ = image.xattrs(&entry.path);
            let _ = image.read_dir(&entry.path);
        }
    }
    let inside = scratch.join("cage/target");
    std::fs::create_dir_all(&inside).unwrap();
    let options = ExtractOptions {
        threads: 2,
        owners: Owners::Image,
        max_bytes: Some(32 << 20),
        ..ExtractOptions::default()
    };
    let _ = image.extract(&inside, &options);
    let cage: Vec<_> =
        std::fs::read_dir(scratch.join("cage")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(cage, ["target"], "something was made outside of the target");
    if std::fs::remove_dir_all(scratch.join("cage")).is_err() {
        run(Command::new("chmod").args(["-R", "u+rwx"]).arg(scratch.join("cage")));
        std::fs::remove_dir_all(scratch.join("cage")).unwrap();
    }
}

fn mutate(original: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = original.to_vec();
    match random.below(10) {
        0 => bytes.truncate(random.below(bytes.len())),
        // A field of the superblock.
        1 => {
            let at = random.below(12) * 8;
            let values = [0, 1, 96, 0xffff, 0xffff_ffff, u64::MAX, u64::MAX - 7, bytes.len() as u64];
            bytes[at..at + 8].copy_from_slice(&values[random.below(values.len())].to_le_bytes());
        }
        // The metadata is at the end, and is where it hurts.
        2..=7 => {
            let from = bytes.len() * 2 / 3;
            for _ in 0..1 + random.below(4) {
                let at = from + random.below(bytes.len() - from);
                bytes[at] = [random.next() as u8, 0, 0xff, bytes[at] ^ 1 << random.below(8)][random.below(4)];
            }
        }
        _ => {
            for _ in 0..1 + random.below(20) {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
        }
    }
    bytes
}

fn mutants(count: usize) -> usize {
    if std::env::var_os("PLY_LONG").is_some() { count * 40 } else { count }
}

/// Changes thousands of images of one kind.
fn survive(original: &[u8], seed: u64) {
    limit_memory();
    let scratch = fast_tempdir();
    let mut random = Random(seed);
    use_it(original, scratch.path());
    for _ in 0..mutants(500) {
        use_it(&mutate(original, &mut random), scratch.path());
    }
}

#[test]
fn mutants_of_our_own_images_do_no_harm() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, image) = (temp.path().join("tree"), temp.path().join("own.img"));
    std::fs::create_dir(&dir).unwrap();
    sample(&dir);
    pack_to(&scan(&dir, true), &options(6, true), &image);
    survive(&std::fs::read(&image).unwrap(), 0x0a11_ce55);
}

#[test]
fn mutants_with_plain_metadata_do_no_harm() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, image) = (temp.path().join("tree"), temp.path().join("plain.img"));
    std::fs::create_dir(&dir).unwrap();
    sample(&dir);
    plain_image(&dir, &image);
    survive(&std::fs::read(&image).unwrap(), 0xb0b5_1ed5);
}

/// The error of an extraction, after a look that nothing was made beside the target.
fn refused(crafted: &Crafted) -> ImageError {
    limit_memory();
    let image = crafted.save();
    let target = crafted.temp.path().join("cage/target");
    std::fs::create_dir_all(&target).unwrap();
    let error = Image::open(&image)
        .and_then(|image| image.extract(&target, &ExtractOptions::default()))
        .expect_err("the image was taken");
    let beside = std::fs::read_dir(crafted.temp.path().join("cage")).unwrap().count();
    assert_eq!(beside, 1, "something was made outside of the target");
    let text = error.to_string();
    assert!(text.contains("crafted.img"), "the error does not name the image: {text}");
    error
}

#[track_caller]
fn damaged(error: &ImageError, why: &str) {
    let text = error.to_string();
    assert!(matches!(error, ImageError::Damaged { .. }) && text.ends_with(why), "{text}");
}

#[test]
fn names_that_are_paths_are_refused() {
    for (name, path) in
        [("name", "../n"), ("na", ".."), ("n", "."), ("name", "/abc"), ("name", "a/bc"), ("name", "a\0bc")]
    {
        let mut image = Crafted::new(|dir| drop(put(dir, name, b"content")));
        // The byte in front is the upper half of the name's length.
        let (from, to) = ([&[0], name.as_bytes()].concat(), [&[0], path.as_bytes()].concat());
        image.rename(&from, &to);
        damaged(&refused(&image), "a directory has a name that is a path");
    }
}

#[test]
fn a_file_through_a_symlink_is_refused() {
    // Two entries of one name: the first a link out, the second a folder with a file in it.
    let mut image = Crafted::new(|dir| {
        std::os::unix::fs::symlink("/tmp", dir.join("link-1")).unwrap();
        put(dir, "link-2/evil", b"content");
    });
    image.rename(b"link-2", b"link-1");
    damaged(&refused(&image), "a directory is not sorted");
    // One entry whose directory says folder and whose inode says link.
    let mut image = Crafted::new(|dir| {
        std::os::unix::fs::symlink("/tmp", dir.join("link-1")).unwrap();
        put(dir, "link-2/evil", b"content");
    });
    let (link, folder) = (image.find(b"link-1", image.dir_table()), image.find(b"link-2", image.dir_table()));
    let place = [image.bytes[link - 8], image.bytes[link - 7]];
    image.replace(folder - 8, &place);
    damaged(&refused(&image), "an entry is not what its directory says");
}

#[test]
fn a_directory_inside_of_itself_is_refused() {
    let mut image = Crafted::new(|dir| drop(put(dir, "outer/inner/file", b"content")));
    let root = (image.field(32) & 0xffff) as u16;
    for name in [&b"inner"[..], b"outer"] {
        let at = image.find(name, image.dir_table());
        image.replace(at - 8, &root.to_le_bytes());
        // The root is the last of the four inodes, and its number is the run's and this.
        let run = u32::from_le_bytes(image.bytes[at - 12..at - 8].try_into().unwrap());
        image.replace(at - 6, &((4 - run.cast_signed()) as i16).to_le_bytes());
    }
    damaged(&refused(&image), "a directory is inside of itself or too deep");
}

#[test]
fn claimed_sizes_are_not_believed() {
    let craft = || {
        Crafted::new(|dir| {
            put(dir, "file", &noise(1, 54_321));
            put(dir, "large", &noise(2, 131_072 + 23_456));
            std::os::unix::fs::symlink("t".repeat(77), dir.join("link")).unwrap();
        })
    };
    for (size, claimed) in
        [(54_321u32, u32::MAX), (54_321, 131_072), (131_072 + 23_456, u32::MAX), (77, 60_000), (77, 0)]
    {
        let mut image = craft();
        let at = image.find(&size.to_le_bytes(), image.inode_table());
        image.replace(at, &claimed.to_le_bytes());
        assert!(matches!(refused(&image), ImageError::Damaged { .. }));
    }
}

#[test]
fn every_extreme_in_the_superblock_is_an_error_or_harmless() {
    limit_memory();
    let image = Crafted::new(sample);
    let scratch = fast_tempdir();
    for at in (0..96).step_by(2) {
        for value in [0u64, 1, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX / 2, u64::MAX, 95, 97] {
            for width in [2, 4, 8] {
                let mut bytes = image.bytes.clone();
                if at + width <= 96 {
                    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
                    use_it(&bytes, scratch.path());
                }
            }
        }
    }
}

#[test]
fn a_bomb_is_refused_before_the_first_byte() {
    limit_memory();
    let mut tree = Tree::new();
    for n in 0..20 {
        tree.add_file(format!("file-{n}"), Source::Bytes(vec![b'a'; 5 << 20]), Attr::mode(0o644)).unwrap();
    }
    let temp = tempfile::tempdir().unwrap();
    let (image, target) = (temp.path().join("bomb.img"), temp.path().join("target"));
    let packed = pack_to(&tree, &options(3, false), &image);
    assert!(packed.bytes < 20_000, "{} bytes", packed.bytes);
    std::fs::create_dir(&target).unwrap();
    let options = ExtractOptions { max_bytes: Some(99 << 20), ..ExtractOptions::default() };
    let error = Image::open(&image).unwrap().extract(&target, &options).unwrap_err();
    assert!(matches!(error, ImageError::Bomb { bytes: 104_857_600, .. }), "{error}");
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn a_target_that_is_not_empty_is_never_written_through() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, image) = (temp.path().join("tree"), temp.path().join("i.img"));
    put(&dir, "folder/file", b"from the image");
    put(&dir, "file", b"from the image");
    pack_to(&scan(&dir, false), &options(3, false), &image);
    let outside = temp.path().join("outside");
    put(&outside, "kept", b"outside");
    for (name, to) in [("folder", &outside), ("file", &outside.join("kept")), ("file", &outside.join("new"))]
    {
        let target = temp.path().join("target");
        std::fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(to, target.join(name)).unwrap();
        let error = Image::open(&image).unwrap().extract(&target, &ExtractOptions::default()).unwrap_err();
        assert!(error.to_string().contains("File exists"), "{error}");
        std::fs::remove_dir_all(&target).unwrap();
    }
    assert_eq!(std::fs::read(outside.join("kept")).unwrap(), b"outside");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn what_is_no_image_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let check = |bytes: &[u8], wanted: &str| {
        let path: PathBuf = temp.path().join("x.img");
        File::create(&path).unwrap().write_all(bytes).unwrap();
        let text = Image::open(&path).unwrap_err().to_string();
        assert_eq!(text, format!("{}{wanted}", path.display()));
    };
    check(b"", " is not an image: it is too short");
    check(&[b'x'; 200], " is not an image: it does not begin like one");
    let mut image = Crafted::new(sample);
    image.bytes[20] = 1;
    check(&image.bytes, " can't be read: its compression is gzip, not zstd");
    image.bytes[20] = 6;
    image.bytes[28] = 3;
    check(&image.bytes, " can't be read: it is squashfs 3.0, not 4.0");
    let fifo = temp.path().join("fifo");
    run(Command::new("mkfifo").arg(&fifo));
    for path in [temp.path(), &fifo] {
        let text = Image::open(path).unwrap_err().to_string();
        assert_eq!(text, format!("{} is not an image: it is not a regular file", path.display()));
    }
}
