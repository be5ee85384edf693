//! Whole builds of real directories, without a registry.

use crate::*;
use ply_image::{Dirs, Image, Store};
use ply_manifest::{Arch, Digest};
use ply_source::{DefaultSource, FetchOptions, Fetcher};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub(crate) mod graph;

/// A directory to build, and a world of its own around it.
pub(crate) struct World {
    pub(crate) temp: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self { temp: tempfile::tempdir().unwrap() };
        fs::create_dir(world.dir()).unwrap();
        world
    }

    pub(crate) fn app(files: &[(&str, &str)]) -> Self {
        let world = Self::new();
        world.write(
            "ply.toml",
            "[package]\nname = \"shop\"\nversion = \"1.2.0\"\n[run]\nentrypoint = [\"./run\"]\n",
        );
        for (path, content) in files {
            world.write(path, content);
        }
        world
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.temp.path().join("shop")
    }

    pub(crate) fn dirs(&self) -> Dirs {
        let sub = |name: &str| self.temp.path().join(name);
        Dirs { data: sub("data"), run: sub("run"), config: sub("config") }
    }

    pub(crate) fn write(&self, path: &str, content: &str) {
        let full = self.dir().join(path);
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        fs::write(full, content).unwrap();
    }

    pub(crate) fn request(&self) -> BuildRequest {
        BuildRequest::new(self.dir(), self.dirs())
    }

    pub(crate) fn build(&self) -> Result<Built, BuildError> {
        self.build_as(&self.request())
    }

    pub(crate) fn build_as(&self, request: &BuildRequest) -> Result<Built, BuildError> {
        build(request, &self.fetcher())
    }

    /// Over a folder as registry, for this host.
    pub(crate) fn fetcher(&self) -> Fetcher {
        Fetcher::new(self.fetch_options())
    }

    pub(crate) fn fetch_options(&self) -> FetchOptions {
        let dirs = self.dirs();
        let mut options = FetchOptions::new(Store::open(&dirs).unwrap(), &dirs).unwrap();
        let registry = format!("file://{}/{{package}}", self.registry().display());
        options.default_source = DefaultSource::choose(Some(&registry), &dirs).unwrap();
        options
    }

    pub(crate) fn registry(&self) -> PathBuf {
        self.temp.path().join("registry")
    }

    /// Publishes a package for `arch` into the registry: its manifest without the header, and its files.
    pub(crate) fn publish(
        &self,
        name: &str,
        version: &str,
        arch: Arch,
        rest: &str,
        files: &[(&str, &str)],
    ) -> PathBuf {
        let from = self.temp.path().join(format!("from-{name}-{version}-{arch}"));
        fs::create_dir(&from).unwrap();
        fs::write(
            from.join("ply.toml"),
            format!("[package]\nname=\"{name}\"\nversion=\"{version}\"\n{rest}\n"),
        )
        .unwrap();
        for (path, content) in files {
            let (path, mode) = path.strip_suffix('*').map_or((*path, 0o644), |p| (p, 0o755));
            let full = from.join(path);
            fs::create_dir_all(full.parent().unwrap()).unwrap();
            fs::write(&full, content).unwrap();
            fs::set_permissions(&full, fs::Permissions::from_mode(mode)).unwrap();
        }
        let to = self.registry().join(name);
        fs::create_dir_all(&to).unwrap();
        let mut options = self.fetch_options();
        options.arch = arch;
        let mut request = BuildRequest::new(from, self.dirs());
        (request.arch, request.output) = (arch, Output::File(to));
        build(&request, &Fetcher::new(options)).unwrap().path
    }

    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.dir())
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        dir.read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The names in a folder of an image.
fn inside(image: &Image, folder: &str) -> Vec<String> {
    image.read_dir(folder).unwrap().into_iter().map(|e| e.name.into_string().unwrap()).collect()
}

fn digest_of(path: &Path) -> Digest {
    crate::record::digest_of(path).unwrap()
}

#[test]
fn a_directory_becomes_an_image_named_after_the_package() {
    let world = World::app(&[("run", "#!/bin/sh\n"), ("lib/a.txt", "hello")]);
    let built = world.build().unwrap();
    assert_eq!(built.image.to_string(), format!("shop-1.2.0-linux-{}.img", built.image.arch));
    assert_eq!(world.names(), ["lib", "ply.toml", "run", &built.image.to_string()]);
    assert_eq!(digest_of(&built.path), built.digest);
    assert_eq!(built.bytes, built.path.metadata().unwrap().len());
    assert!(!built.skipped && !built.lock_changed);
    assert_eq!((built.shipped.files, built.shipped.chosen), (3, false));
    assert_eq!(
        built.shipped.top.iter().map(|(name, files, _)| (name.as_str(), *files)).collect::<Vec<_>>(),
        [("lib/", 1), ("ply.toml", 1), ("run", 1)]
    );
}

#[test]
fn the_same_content_gives_the_same_bytes_wherever_and_however_it_came_to_be() {
    let files = [("run", "#!/bin/sh\n"), ("a/b/c.txt", "one"), ("a/b.txt", "two"), ("z.txt", "three")];
    let first = World::app(&files);
    let second = World::new();
    for (path, content) in files.iter().rev() {
        second.write(path, content);
        // Another umask, another clock.
        let file = fs::File::open(second.dir().join(path)).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000)).unwrap();
    }
    fs::set_permissions(second.dir().join("a"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::copy(first.dir().join("ply.toml"), second.dir().join("ply.toml")).unwrap();
    let mut request = second.request();
    request.threads = 1;
    let one = first.build().unwrap();
    let two = second.build_as(&request).unwrap();
    assert_eq!(one.digest, two.digest);
    assert_eq!(fs::read(one.path).unwrap(), fs::read(two.path).unwrap());

    // What does matter: the executable bit, and SOURCE_DATE_EPOCH.
    fs::set_permissions(second.dir().join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    let program = second.build_as(&request).unwrap();
    assert_ne!(one.digest, program.digest);
    request.epoch = 1_700_000_000;
    assert_ne!(second.build_as(&request).unwrap().digest, program.digest);
}

#[test]
fn nothing_is_built_again_while_the_content_is_the_same() {
    let world = World::app(&[("run", "one")]);
    let first = world.build().unwrap();
    let again = world.build().unwrap();
    assert!(again.skipped);
    assert_eq!((again.digest, again.bytes, &again.path), (first.digest, first.bytes, &first.path));
    assert_eq!(again.shipped, first.shipped);

    // Rewritten with the same bytes: times differ, content doesn't.
    world.write("run", "one");
    assert!(world.build().unwrap().skipped);

    // Other bytes of the same length, with the old times put back.
    let path = world.dir().join("run");
    let modified = path.metadata().unwrap().modified().unwrap();
    world.write("run", "two");
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    let changed = world.build().unwrap();
    assert!(!changed.skipped);
    assert_ne!(changed.digest, first.digest);

    // And back: the bytes of the first build again.
    world.write("run", "one");
    let back = world.build().unwrap();
    assert!(!back.skipped);
    assert_eq!(back.digest, first.digest);
}

#[test]
fn an_image_that_is_gone_or_damaged_is_built_again() {
    let world = World::app(&[("run", "one")]);
    let first = world.build().unwrap();
    fs::remove_file(&first.path).unwrap();
    assert!(!world.build().unwrap().skipped);
    fs::write(&first.path, "not an image").unwrap();
    let mended = world.build().unwrap();
    assert!(!mended.skipped);
    assert_eq!(digest_of(&first.path), first.digest);
    // A damaged record costs a build and nothing else.
    for record in world.dirs().data.join("builds").read_dir().unwrap() {
        fs::write(record.unwrap().path(), "rubbish").unwrap();
    }
    assert_eq!(world.build().unwrap().digest, first.digest);
}

#[test]
fn mode_symlink_target_name_and_manifest_are_content() {
    let world = World::app(&[("run", "one")]);
    world.build().unwrap();
    let changes: [&dyn Fn(); 5] = [
        &|| fs::set_permissions(world.dir().join("run"), fs::Permissions::from_mode(0o755)).unwrap(),
        &|| std::os::unix::fs::symlink("run", world.dir().join("link")).unwrap(),
        &|| {
            fs::remove_file(world.dir().join("link")).unwrap();
            std::os::unix::fs::symlink("ruin", world.dir().join("link")).unwrap();
        },
        &|| fs::rename(world.dir().join("link"), world.dir().join("link2")).unwrap(),
        &|| fs::create_dir(world.dir().join("empty")).unwrap(),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        change();
        assert!(!world.build().unwrap().skipped, "change {n}");
        assert!(world.build().unwrap().skipped, "change {n}");
    }
    // A permission that no image keeps is no change.
    fs::set_permissions(world.dir().join("run"), fs::Permissions::from_mode(0o711)).unwrap();
    assert!(world.build().unwrap().skipped);
}

#[test]
fn each_output_is_a_build_of_its_own() {
    let world = World::app(&[("run", "one")]);
    let first = world.build().unwrap();
    let mut request = world.request();
    request.output = Output::File(world.temp.path().join("out.img"));
    let other = world.build_as(&request).unwrap();
    assert!(!other.skipped);
    assert_eq!((other.digest, other.path), (first.digest, world.temp.path().join("out.img")));
    assert!(world.build_as(&request).unwrap().skipped);
    // A folder takes the image under its own name; within the directory it doesn't ship itself.
    world.write("images/.keep", "");
    request.output = Output::File(world.dir().join("images/app.bin"));
    world.build_as(&request).unwrap();
    assert!(world.build_as(&request).unwrap().skipped, "it would if it had shipped its own output");
    request.output = Output::File(world.temp.path().to_owned());
    let named = world.build_as(&request).unwrap();
    assert_eq!(named.path, world.temp.path().join(named.image.to_string()));
}

#[test]
fn builds_of_one_directory_at_once_all_succeed_with_the_same_bytes() {
    let world = World::app(&[("run", "one"), ("data.bin", &"x".repeat(300_000))]);
    let digests: Vec<Digest> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| world.build().unwrap().digest)).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(digests.iter().all(|d| *d == digests[0]));
    assert!(!world.names().iter().any(|n| n.starts_with(".ply-tmp")), "{:?}", world.names());
    assert!(world.build().unwrap().skipped);
}

#[test]
fn a_directory_without_a_manifest_can_be_given_one_and_is_left_as_it_is() {
    let world = World::new();
    world.write("run", "one");
    let error = world.build().unwrap_err();
    assert_eq!(error.to_string(), format!("no ply.toml in {}", world.dir().display()));
    let mut request = world.request();
    request.manifest =
        Some("[package]\nname=\"x\"\nversion=\"0.1.0\"\n[run]\nentrypoint=[\"./run\"]\n".to_owned());
    request.output = Output::File(world.temp.path().join("x.img"));
    assert!(!world.build_as(&request).unwrap().skipped);
    assert!(world.build_as(&request).unwrap().skipped);
    assert_eq!(world.names(), ["run"]);
}

#[test]
fn refusals_say_what_was_found_and_what_to_do() {
    let refuse = |change: &dyn Fn(&World)| {
        let world = World::app(&[("run", "one")]);
        change(&world);
        let error = world.build().unwrap_err();
        assert!(!world.names().iter().any(|n| n.ends_with(".img") || n.starts_with(".ply-tmp")));
        let hint = error.hint().map(|h| format!("\nhint: {h}")).unwrap_or_default();
        format!("{error}{hint}").replace(&world.dir().display().to_string(), "DIR")
    };
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    let _bound = settings.bind_to_scope();
    let manifest = |text: &'static str| move |w: &World| w.write("ply.toml", text);
    insta::assert_snapshot!(
        "secrets",
        refuse(&|w| {
            w.write(".env", "");
            w.write("certs/a.key", "")
        })
    );
    insta::assert_snapshot!(
        "include_nothing",
        refuse(&manifest(
            "[package]\nname=\"x\"\nversion=\"1.0.0\"\n[build]\ninclude=[\"dist/\"]\n[run]\nentrypoint=[\"./run\"]\n"
        ))
    );
    insta::assert_snapshot!(
        "composition",
        refuse(&manifest("[package]\nname=\"x\"\n[[service]]\nrun=\"redis@8\"\n"))
    );
    insta::assert_snapshot!(
        "unknown_key",
        refuse(&manifest("[package]\nname=\"x\"\nversion=\"1.0.0\"\n[run]\nentripoint=[\"./run\"]\n"))
    );
    insta::assert_snapshot!(
        "not_utf8",
        refuse(&|w| fs::write(w.dir().join("ply.toml"), b"[package]\nname=\"\xff\"").unwrap())
    );
    insta::assert_snapshot!("no_manifest", refuse(&|w| fs::remove_file(w.dir().join("ply.toml")).unwrap()));
    insta::assert_snapshot!(
        "socket",
        refuse(&|w| drop(std::os::unix::net::UnixListener::bind(w.dir().join("s")).unwrap()))
    );
    insta::assert_snapshot!(
        "addon",
        refuse(&|w| {
            let mac = [0xcf, 0xfa, 0xed, 0xfe, 0x0c, 0, 0, 1];
            w.write("node_modules/bcrypt/package.json", "{}");
            fs::write(w.dir().join("node_modules/bcrypt/bcrypt.node"), mac).unwrap();
        })
        .replace(Arch::HOST.as_str(), "ARCH")
    );
    insta::assert_snapshot!("lock", refuse(&|w| w.write("ply.lock", "version = 99\n")));
}

#[test]
fn a_build_that_was_killed_leaves_no_image_and_the_next_one_clears_up() {
    let world = World::app(&[("run", "one")]);
    let left = world.dir().join(".ply-tmp-99999-0");
    fs::write(&left, "half an image").unwrap();
    let built = world.build().unwrap();
    assert!(!left.exists());
    assert_eq!(built.shipped.files, 2, "it did not ship");
}

#[test]
fn an_app_stands_under_its_name_with_its_manifest_verbatim() {
    let world = World::app(&[("run", "#!/bin/sh\n"), ("lib/a.txt", "hello"), ("ply.dev.toml", "")]);
    std::os::unix::fs::symlink("/etc/passwd", world.dir().join("out")).unwrap();
    std::os::unix::fs::symlink("lib", world.dir().join("current")).unwrap();
    fs::create_dir(world.dir().join(".git")).unwrap();
    world.write(".git/HEAD", "ref");
    let built = world.build().unwrap();
    assert_eq!(built.left_out, [".git/", "ply.dev.toml"]);
    let image = Image::open(&built.path).unwrap();
    assert_eq!(image.manifest_text().unwrap(), fs::read_to_string(world.dir().join("ply.toml")).unwrap());
    assert_eq!(image.lock_text().unwrap(), None);
    assert_eq!(inside(&image, "opt/shop"), ["current", "lib", "out", "ply.toml", "run"]);
    assert_eq!(image.read_link("opt/shop/out").unwrap(), Path::new("/etc/passwd"));
    assert_eq!(image.read_link("opt/shop/current").unwrap(), Path::new("lib"));
    assert_eq!(image.read("opt/shop/lib/a.txt", 100).unwrap(), b"hello");
}

#[test]
fn a_layer_stands_under_name_and_version_and_a_base_at_the_root() {
    let world = World::new();
    world.write(
        "ply.toml",
        "[package]\nname = \"tool\"\nversion = \"2.0.0\"\n[layer]\npath = [\"/opt/tool-2.0.0/bin\"]\n",
    );
    world.write("bin/tool", "x");
    let image = Image::open(world.build().unwrap().path).unwrap();
    assert_eq!(inside(&image, "opt"), ["tool-2.0.0"]);
    assert_eq!(inside(&image, "opt/tool-2.0.0"), ["bin", "ply.toml"]);

    let world = World::new();
    world.write("ply.toml", "[package]\nname = \"tiny\"\nversion = \"1.0.0\"\n[build]\nbase = true\n");
    world.write("bin/sh", "x");
    fs::set_permissions(world.dir().join("bin/sh"), fs::Permissions::from_mode(0o4711)).unwrap();
    let image = Image::open(world.build().unwrap().path).unwrap();
    assert_eq!(inside(&image, "/"), [".manifest.toml", "bin"]);
    assert_eq!(image.stat("bin/sh").unwrap().unwrap().mode & 0o7777, 0o4711);
    assert!(!world.build().unwrap().skipped, "what a base keeps is not all in the fingerprint");
}

#[test]
fn only_what_include_names_ships_with_the_folders_around_it() {
    let world = World::app(&[("run", "x"), ("a/b/c.txt", "1"), ("a/b/d.txt", "2"), ("e.txt", "3")]);
    world.write(
        "ply.toml",
        "[package]\nname=\"shop\"\nversion=\"1.0.0\"\n[build]\ninclude=[\"run\", \"a/b/c.txt\"]\n[run]\nentrypoint=[\"./run\"]\n",
    );
    let built = world.build().unwrap();
    let image = Image::open(&built.path).unwrap();
    assert_eq!(inside(&image, "opt/shop"), ["a", "run"]);
    assert_eq!(inside(&image, "opt/shop/a/b"), ["c.txt"]);
    assert_eq!((built.shipped.files, built.shipped.chosen), (2, true));
    // What doesn't ship is no content.
    world.write("e.txt", "another");
    assert!(world.build().unwrap().skipped);
}

#[test]
fn a_build_into_the_store_leaves_the_directory_as_it_is() {
    let world = World::app(&[("run", "one")]);
    let mut request = world.request();
    request.output = Output::Store;
    let built = world.build_as(&request).unwrap();
    assert_eq!(world.names(), ["ply.toml", "run"]);
    let store = Store::open(&world.dirs()).unwrap();
    let entry = store.get(&built.digest).unwrap().unwrap();
    assert_eq!((&entry.image, &entry.name, entry.bytes), (&built.path, &built.image, built.bytes));
    assert!(world.build_as(&request).unwrap().skipped);
    assert_eq!(world.build().unwrap().digest, built.digest, "the same bytes as in a folder");
    store.remove(&built.digest).unwrap();
    assert!(!world.build_as(&request).unwrap().skipped);
}

#[test]
fn a_build_and_its_image_are_inspected_alike() {
    let world = World::app(&[("run", "one")]);
    let built = world.build().unwrap();
    let (of_dir, text) = inspect_path(&world.dir()).unwrap();
    let (of_image, text_inside) = inspect_path(&built.path).unwrap();
    assert_eq!(text, text_inside);
    assert_eq!((of_dir.digest, of_dir.arch), (None, None));
    assert_eq!(of_image.digest, Some(built.digest.to_string()));
    assert_eq!((of_image.bytes, of_image.name.as_str()), (Some(built.bytes), "shop"));
    assert_eq!(of_dir.entrypoint, of_image.entrypoint);

    world.write("ply.toml", "[package]\nname=\"s\"\n[[service]]\nrun=\"redis@8\"\n[[service]]\nrun=\"./web\"\nname=\"web\"\nafter=[\"redis\"]\n");
    let (stack, _) = inspect_path(&world.dir()).unwrap();
    let members: Vec<_> =
        stack.members.iter().map(|m| (m.name.as_str(), m.run.as_str(), m.after.len())).collect();
    assert_eq!((stack.kind.as_str(), members), ("stack", vec![("redis", "redis@8", 0), ("web", "./web", 1)]));
}
