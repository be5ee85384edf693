//! Several images as one root: as overlayfs would show them.

mod common;

use common::*;
use ply_image::{Attr, EntryKind, Image, ImageError, LayerStack, Source, Tree};
use std::path::PathBuf;

fn layer(make: impl FnOnce(&mut Tree)) -> Image {
    let mut tree = Tree::new();
    make(&mut tree);
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("layer.img");
    pack_to(&tree, &options(1, false), &path);
    Image::open(&path).unwrap()
}

fn file(tree: &mut Tree, path: &str, text: &str, mode: u16) {
    tree.add_file(path, Source::Bytes(text.into()), Attr::mode(mode)).unwrap();
}

fn link(tree: &mut Tree, path: &str, target: &str) {
    tree.add_symlink(path, target, Attr::mode(0o777)).unwrap();
}

fn stack() -> LayerStack {
    let app = layer(|t| {
        file(t, "opt/app/main", "app", 0o755);
        file(t, "etc/config", "the app's", 0o644);
        file(t, "hides", "a file over a folder", 0o644);
        link(t, "opt/app/out", "../../../../../etc/config");
        link(t, "opt/app/loop", "loop");
        link(t, "opt/app/abs", "/bin/sh");
    });
    let base = layer(|t| {
        link(t, "bin", "usr/bin");
        file(t, "usr/bin/sh", "shell", 0o755);
        file(t, "usr/bin/data", "not executable", 0o644);
        file(t, "etc/config", "the base's", 0o644);
        file(t, "etc/passwd", "root:x:0:0::/root:/bin/sh\n", 0o644);
        file(t, "hides/inner", "hidden", 0o644);
        file(t, "opt", "a file below a folder", 0o644);
        link(t, "etc/dangling", "/nowhere");
    });
    LayerStack::new(vec![app, base])
}

#[test]
fn upper_layers_hide_lower_ones_and_directories_merge() {
    let stack = stack();
    let read = |path: &str| stack.read(path, 1000).unwrap().map(|b| String::from_utf8(b).unwrap());
    assert_eq!(read("/etc/config").as_deref(), Some("the app's"));
    assert_eq!(read("etc/passwd").as_deref(), Some("root:x:0:0::/root:/bin/sh\n"));
    assert_eq!(read("/hides").as_deref(), Some("a file over a folder"));
    assert_eq!(read("/hides/inner"), None);
    assert_eq!(read("/opt/app/main").as_deref(), Some("app"));
    assert_eq!(read("/etc"), None);
    let names = |path: &str| -> Vec<String> {
        let entries = stack.read_dir(path).unwrap().unwrap();
        entries.into_iter().map(|e| e.name.into_string().unwrap()).collect()
    };
    assert_eq!(names("/"), ["bin", "etc", "hides", "opt", "usr"]);
    assert_eq!(names("/etc"), ["config", "dangling", "passwd"]);
    assert_eq!(names("/bin"), ["data", "sh"]);
    assert_eq!(stack.read_dir("/etc/config").unwrap(), None);
    assert!(stack.read("/etc/passwd", 3).is_err());
}

#[test]
fn symlinks_stay_beneath_the_root() {
    let stack = stack();
    let real =
        |path: &str| stack.resolve(path).unwrap().map(|r| (r.path.to_str().unwrap().to_owned(), r.layer));
    assert_eq!(real("/bin/sh"), Some(("/usr/bin/sh".to_owned(), 1)));
    assert_eq!(real("/opt/app/abs"), Some(("/usr/bin/sh".to_owned(), 1)));
    assert_eq!(real("/opt/app/out"), Some(("/etc/config".to_owned(), 0)));
    assert_eq!(real("/../../etc/./passwd"), Some(("/etc/passwd".to_owned(), 1)));
    assert_eq!(real("/bin/../bin"), Some(("/usr/bin".to_owned(), 1)));
    assert_eq!(real("/"), Some(("/".to_owned(), 0)));
    assert_eq!(real("/etc/dangling"), None);
    assert_eq!(real("/etc/passwd/x"), None);
    assert_eq!(stack.lstat("/etc/dangling").unwrap().unwrap().kind, EntryKind::Symlink);
    assert_eq!(stack.read_link("/bin").unwrap(), Some(PathBuf::from("usr/bin")));
    let error = stack.stat("/opt/app/loop").unwrap_err();
    assert!(matches!(error, ImageError::LinkLoop(_)), "{error}");
}

#[test]
fn programs_are_found_as_a_path_search_finds_them() {
    let stack = stack();
    let dirs = ["/opt/app", "/nowhere", "/bin"];
    assert_eq!(stack.find_program("sh", &dirs).unwrap(), Some(PathBuf::from("/bin/sh")));
    assert_eq!(stack.find_program("main", &dirs).unwrap(), Some(PathBuf::from("/opt/app/main")));
    assert_eq!(stack.find_program("data", &dirs).unwrap(), None);
    assert_eq!(stack.find_program("/bin/sh", &dirs).unwrap(), Some(PathBuf::from("/bin/sh")));
    assert_eq!(stack.find_program("/bin/no", &dirs).unwrap(), None);
    assert_eq!(stack.programs(&["/bin", "/nowhere"]).unwrap(), ["data", "sh"]);
}
