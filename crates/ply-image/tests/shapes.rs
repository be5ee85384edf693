//! Trees of many shapes: what the kernel mounts, what `unsquashfs` makes and what we extract is what was packed.
//! Needs root: for owners, capabilities and the mount.

mod common;

mod root_shapes {
    use crate::common::*;
    use ply_image::{Attr, ExtractOptions, Image, LEVEL_IMPORT, Source, Tree};
    use std::fs::File;
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
    use std::path::{Path, PathBuf};
    use std::process::Command;

    const BLOCK: usize = 128 * 1024;

    #[test]
    fn fragments_on_every_boundary() {
        let dir = tempfile::tempdir().unwrap();
        let sizes = [0, 1, 2, 4095, 4096, 4097, 65536, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK];
        for (n, size) in sizes.into_iter().chain([2 * BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 17]).enumerate() {
            put(dir.path(), format!("one/{size}"), &noise(n as u64, size));
            put(dir.path(), format!("zeros/{size}"), &vec![0; size]);
            put(
                dir.path(),
                format!("ends-in-zeros/{size}"),
                &[noise(n as u64, size), vec![0; size]].concat(),
            );
            put(
                dir.path(),
                format!("begins-with-zeros/{size}"),
                &[vec![0; size], noise(n as u64, size)].concat(),
            );
        }
        // Tails that fill a fragment block to the last byte, one byte less, and one more.
        for (n, size) in [BLOCK - 10, 10, BLOCK - 10, 9, BLOCK - 10, 11, 1, 1].into_iter().enumerate() {
            put(dir.path(), format!("tails/{n}"), &noise(100 + n as u64, size));
        }
        all_agree(dir.path());
    }

    #[test]
    fn names_depths_and_kinds() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        put(top, "n".repeat(255), b"a long name");
        put(top, bytes_name(b"not \xff\xfe utf-8 \x01\n"), b"bytes");
        put(top, "a space and 'quotes'", b"x");
        std::fs::create_dir_all(top.join("empty/empty/empty")).unwrap();
        let mut deep = PathBuf::from("deep");
        for level in 0..200 {
            deep.push(format!("{level}"));
        }
        put(top, deep.join("bottom"), b"down here");
        symlink("/absolute/target", top.join("absolute")).unwrap();
        symlink("../up/../and/down", top.join("relative")).unwrap();
        symlink("x".repeat(4000), top.join("long-target")).unwrap();
        run(Command::new("mkfifo").arg(top.join("fifo")));
        for (mode, name) in [(0o600, "private"), (0o4755, "setuid"), (0o2755, "setgid"), (0, "none")] {
            put(top, name, name.as_bytes());
            std::fs::set_permissions(top.join(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        std::fs::create_dir(top.join("sticky")).unwrap();
        std::fs::set_permissions(top.join("sticky"), PermissionsExt::from_mode(0o1777)).unwrap();
        std::os::unix::fs::chown(top.join("private"), Some(1234), Some(65534)).unwrap();
        std::os::unix::fs::chown(top.join("empty"), Some(70000), Some(4_000_000_000)).unwrap();
        std::os::unix::fs::lchown(top.join("relative"), Some(5), Some(6)).unwrap();
        all_agree(top);
    }

    #[test]
    fn xattrs_and_capabilities() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        // CAP_NET_RAW, permitted and effective, revision 2: what setcap writes for ping.
        let mut capability = vec![0u8; 20];
        capability[..4].copy_from_slice(&0x0200_0001u32.to_le_bytes());
        capability[4..8].copy_from_slice(&(1u32 << 13).to_le_bytes());
        for n in 0..40 {
            let path = put(top, format!("{n}"), b"content");
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, "security.capability", &capability, flags).unwrap();
            rustix::fs::setxattr(&path, "user.note", format!("number {}", n % 3).as_bytes(), flags).unwrap();
            if n % 5 == 0 {
                rustix::fs::setxattr(&path, "user.long", &noise(n, 3000), flags).unwrap();
                rustix::fs::setxattr(&path, "user.empty", b"", flags).unwrap();
            }
        }
        std::fs::create_dir(top.join("dir")).unwrap();
        rustix::fs::setxattr(top.join("dir"), "user.dir", b"of a folder", rustix::fs::XattrFlags::empty())
            .unwrap();
        all_agree(top);
    }

    #[test]
    fn hard_links_and_equal_files_share_their_data() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        let large = noise(1, 3 * BLOCK + 100);
        put(top, "a", &large);
        let alone = all_agree(top).bytes;
        std::fs::hard_link(top.join("a"), top.join("b")).unwrap();
        std::fs::create_dir(top.join("dir")).unwrap();
        std::fs::hard_link(top.join("a"), top.join("dir/0")).unwrap();
        put(top, "equal", &large);
        put(top, "small-1", b"small");
        put(top, "small-2", b"small");
        let packed = all_agree(top);
        assert_eq!(packed.duplicates, 2);
        assert!(packed.bytes <= alone + 4096, "{} bytes alone, {} with copies", alone, packed.bytes);
    }

    #[test]
    fn large_files_that_differ_only_late_are_not_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let base = noise(7, 20 * BLOCK);
        for n in 0..4 {
            let mut bytes = base.clone();
            let at = bytes.len() - 1 - n * BLOCK;
            bytes[at] ^= 0x80;
            put(dir.path(), format!("late-{n}"), &bytes);
            put(dir.path(), format!("twin-{n}"), &bytes);
        }
        assert_eq!(all_agree(dir.path()).duplicates, 4);
    }

    #[test]
    fn ten_thousand_entries_in_one_directory() {
        let mut tree = Tree::new();
        for n in 0..10_000 {
            let name = format!("many/{}-{n}", "entry".repeat(1 + n % 9));
            let bytes = Source::Bytes(n.to_string().into_bytes());
            tree.add_file(&name, bytes, Attr::mode(0o644)).unwrap();
        }
        let temp = fast_tempdir();
        let image = temp.path().join("i.img");
        pack_to(&tree, &options(6, false), &image);
        let ours = extracted(&image, &temp.path().join("ours"));
        assert_eq!(ours.len(), 10_002);
        same("unsquashfs", &unsquashed(&image, &temp.path().join("theirs")), &ours);
        same("mounted", &mounted(&image, &temp.path().join("mount")), &ours);
        // The kernel finds each by name through the index, and what is not there, not.
        in_mount(&image, &temp.path().join("again"), |at| {
            for (path, item) in ours.iter().filter(|(_, item)| item.kind == "file") {
                assert_eq!(std::fs::metadata(at.join(path)).unwrap().size(), item.size);
            }
            assert!(!at.join("many/entry-x").exists() && !at.join("many/zzz").exists());
        });
        assert!(Image::open(&image).unwrap().stat("many/entry-9").unwrap().is_some());
    }

    #[test]
    fn a_hundred_thousand_small_files() {
        let mut tree = Tree::new();
        for n in 0..100_000u32 {
            let path = format!("{:02}/{:02}/file-{n}", n % 41, n % 59);
            // Every tenth says the same as others.
            let text = format!("this is file number {}", if n.is_multiple_of(10) { 0 } else { n });
            tree.add_file(&path, Source::Bytes(text.into_bytes()), Attr::mode(0o644)).unwrap();
        }
        let temp = fast_tempdir();
        let image = temp.path().join("i.img");
        let packed = pack_to(&tree, &options(LEVEL_IMPORT, false), &image);
        assert_eq!((packed.files, packed.duplicates), (100_000, 9_999));
        let text = |n: u32| format!("this is file number {}", if n.is_multiple_of(10) { 0 } else { n });
        let path = |n: u32| PathBuf::from(format!("{:02}/{:02}/file-{n}", n % 41, n % 59));
        let listed = Command::new("unsquashfs").args(["-l", "-d", ""]).arg(&image).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert_eq!(listed.lines().filter(|line| line.contains("/file-")).count(), 100_000);
        in_mount(&image, &temp.path().join("mount"), |at| {
            for n in (0..100_000).step_by(37).chain([99_999]) {
                assert_eq!(std::fs::read_to_string(at.join(path(n))).unwrap(), text(n));
            }
        });
        let target = temp.path().join("ours");
        std::fs::create_dir(&target).unwrap();
        let done = Image::open(&image).unwrap().extract(&target, &ExtractOptions::default()).unwrap();
        assert_eq!(done.files, 100_000);
        for n in (0..100_000).step_by(41).chain([99_999]) {
            assert_eq!(std::fs::read_to_string(target.join(path(n))).unwrap(), text(n));
        }
        // All of it, three times, in `make test-long`.
        if std::env::var_os("PLY_LONG").is_some() {
            let ours = look(&target);
            same("mounted", &mounted(&image, &temp.path().join("mount-2")), &ours);
            same("unsquashfs", &unsquashed(&image, &temp.path().join("theirs")), &ours);
        }
    }

    #[test]
    fn a_sparse_file_of_five_gigabytes_stays_cheap() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("sparse")).unwrap();
        file.set_len(5 << 30).unwrap();
        file.write_all_at(b"in the middle", (3 << 30) + 5).unwrap();
        file.write_all_at(b"across the four gigabytes", (4 << 30) - 10).unwrap();
        file.write_all_at(b"the end", (5 << 30) - 7).unwrap();
        let temp = tempfile::tempdir().unwrap();
        let image = temp.path().join("i.img");
        let packed = pack_to(&scan(dir.path(), true), &options(6, true), &image);
        assert!(packed.bytes < 100_000, "{} bytes", packed.bytes);
        let wanted = look(dir.path());
        let ours = temp.path().join("ours");
        same("extracted", &extracted(&image, &ours), &wanted);
        assert!(blocks(&ours.join("sparse")) < 2048, "the extracted file is not sparse");
        let theirs = temp.path().join("theirs");
        same("unsquashfs", &unsquashed(&image, &theirs), &wanted);
        same("mounted", &mounted(&image, &temp.path().join("mount")), &wanted);
    }

    fn blocks(path: &Path) -> u64 {
        std::fs::metadata(path).unwrap().blocks()
    }

    #[test]
    fn an_image_of_mksquashfs_is_read_and_extracted() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..120usize {
            put(dir.path(), format!("{}/{n}", n % 7), &noise(n as u64, n * n * 20));
        }
        symlink("somewhere", dir.path().join("link")).unwrap();
        std::fs::hard_link(dir.path().join("0/7"), dir.path().join("hard")).unwrap();
        let path = put(dir.path(), "attributes", b"x");
        rustix::fs::setxattr(&path, "user.note", b"kept", rustix::fs::XattrFlags::empty()).unwrap();
        let wanted = look(dir.path());
        for more in
            [&["-b", "131072"][..], &["-b", "4096", "-always-use-fragments"], &["-b", "1M", "-no-fragments"]]
        {
            let temp = tempfile::tempdir().unwrap();
            let image = temp.path().join("i.img");
            let mut command = Command::new("mksquashfs");
            command.arg(dir.path()).arg(&image).args(["-comp", "zstd", "-quiet", "-no-progress"]).args(more);
            run(&mut command);
            same("extracted", &extracted(&image, &temp.path().join("ours")), &wanted);
            assert_eq!(Image::open(&image).unwrap().read("hard", 1 << 20).unwrap(), noise(7, 980));
        }
    }

    #[test]
    fn a_build_reduces_modes_and_owners() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [("run", 0o700), ("data", 0o666), ("odd", 0o4711), ("group", 0o610)] {
            put(dir.path(), name, name.as_bytes());
            std::fs::set_permissions(dir.path().join(name), PermissionsExt::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(dir.path().join(name), Some(42), Some(43)).unwrap();
        }
        std::fs::hard_link(dir.path().join("run"), dir.path().join("run-again")).unwrap();
        let temp = tempfile::tempdir().unwrap();
        let image = temp.path().join("i.img");
        pack_to(&scan(dir.path(), false), &options(9, false), &image);
        same("extracted", &extracted(&image, &temp.path().join("ours")), &reduced(&look(dir.path())));
    }
}
