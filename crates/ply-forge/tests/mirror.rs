//! The forge against the real archive: needs a machine whose apt reaches Debian and whose npm reaches its registry, and
//! fails elsewhere. Downloads are kept in `.cache/forge` (or `PLY_TEST_CACHE`), so that they occur once.

use ply_forge::{AllRequest, BaseRequest, DebRequest, Forge, ForgeError, ForgeOptions, Minted, Registry};
use ply_image::{Dirs, Image};
use ply_manifest::{Arch, Digest, ImageName, Kind, Lock, Manifest};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn cache() -> PathBuf {
    std::env::var_os("PLY_TEST_CACHE").map_or_else(|| workspace().join(".cache/forge"), PathBuf::from)
}

fn options(cache: &Path) -> ForgeOptions {
    let nowhere = PathBuf::from("/nonexistent");
    let dirs = Dirs { data: nowhere.clone(), run: nowhere.clone(), config: nowhere };
    ForgeOptions { cache: cache.to_path_buf(), ..ForgeOptions::new(&dirs) }
}

fn forge() -> Forge {
    Forge::new(options(&cache())).unwrap()
}

/// The error as the command line prints it.
fn said(error: &ForgeError) -> String {
    format!("{error}\n{}", error.hint().unwrap_or_default())
}

fn base(forge: &Forge, out: &Path, arch: Arch) -> Minted {
    let request = BaseRequest { suite: "trixie".to_owned(), arch, out: out.to_path_buf() };
    forge.base(&request).unwrap_or_else(|e| panic!("{}", said(&e)))
}

fn sha256(path: &Path) -> Digest {
    Digest::from_bytes(Sha256::digest(fs::read(path).unwrap()).into())
}

fn text(image: &Image, path: &str) -> String {
    String::from_utf8(image.read(path, 1 << 20).unwrap()).unwrap()
}

#[test]
fn a_base_holds_a_small_system_without_installers() {
    let out = tempfile::tempdir().unwrap();
    let forge = forge();
    let minted = base(&forge, out.path(), Arch::HOST);
    assert_eq!(sha256(&minted.path), minted.digest);
    assert!(minted.bytes < 25 << 20, "{} bytes", minted.bytes);
    let image = Image::open(&minted.path).unwrap();
    let manifest = Manifest::parse(&minted.manifest_text, "ply.toml").unwrap();
    assert_eq!(manifest.kind(), Kind::Base);
    assert_eq!(text(&image, "/.manifest.toml"), minted.manifest_text);
    assert_eq!(manifest.package.version.parts().0, 13);
    let revision = manifest.package.version.revision();
    let (day, hash) = revision.split_once('.').unwrap();
    assert!(day.len() == 8 && day > "20250101" && hash.len() == 8, "{revision}");

    for (link, target) in
        [("bin", "usr/bin"), ("usr/bin/sh", "dash"), ("usr/bin/awk", "mawk"), ("var/run", "/run")]
    {
        assert_eq!(image.read_link(link).unwrap(), Path::new(target), "{link}");
    }
    let mode = |path: &str| image.stat(path).unwrap().unwrap().mode & 0o7777;
    assert_eq!(
        (mode("tmp"), mode("root"), mode("etc/passwd"), mode("usr/bin/dash")),
        (0o1777, 0o700, 0o644, 0o755)
    );
    assert_eq!(image.stat("var/mail").unwrap().unwrap().gid, 8);
    assert!(text(&image, "etc/passwd").contains("nobody:*:65534:"));
    assert!(text(&image, "etc/ssl/certs/ca-certificates.crt").matches("BEGIN CERTIFICATE").count() > 100);
    assert!(text(&image, "etc/nsswitch.conf").contains("hosts:"));
    for gone in [
        "usr/bin/apt",
        "usr/bin/dpkg",
        "usr/sbin/init",
        "usr/bin/perl",
        "usr/share/man",
        "usr/share/locale/de",
    ] {
        assert!(image.stat(gone).unwrap().is_none(), "{gone}");
    }
    let inside: Vec<ply_forge::Line> =
        serde_json::from_str(&text(&image, "usr/share/ply/packages.json")).unwrap();
    assert_eq!(inside, minted.packages);
    assert!(inside.iter().any(|p| p.name == "libc6" && p.source == "glibc"));
    assert!(image.stat("usr/share/doc/libc6/copyright").unwrap().is_some(), "licences stay");
}

#[test]
fn a_second_forge_downloads_no_package_and_both_arches_share_a_version() {
    let out = tempfile::tempdir().unwrap();
    let first = base(&forge(), out.path(), Arch::X64);
    let again = forge();
    let second = base(&again, out.path(), Arch::Arm64);
    let third = base(&again, out.path(), Arch::X64);
    assert_eq!(first.digest, third.digest);
    assert_ne!(first.digest, second.digest);
    assert_eq!(
        first.image.version, second.image.version,
        "a lock holds a digest for each arch of one version"
    );
    assert_eq!(first.manifest_text, second.manifest_text);
    let warm = forge();
    warm.deb(&DebRequest { out: out.path().to_path_buf(), ..DebRequest::new("busybox-static") }).unwrap();
    assert!(warm.downloaded() < 1 << 20, "{} bytes: more than release files", warm.downloaded());
}

#[test]
fn a_keg_holds_the_closure_of_its_programs_and_nothing_of_the_base() {
    let out = tempfile::tempdir().unwrap();
    let request = DebRequest { out: out.path().to_path_buf(), ..DebRequest::new("redis") };
    let minted = forge().deb(&request).unwrap_or_else(|e| panic!("{}", said(&e)));
    assert!(minted.unresolved.is_empty(), "{:?}", minted.unresolved);
    let names: Vec<&str> = minted.packages.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names[..3], ["redis", "redis-server", "redis-tools"], "the programs live in siblings");
    assert!(names.contains(&"libjemalloc2"));
    assert!(!names.iter().any(|n| n.starts_with("libssl") || *n == "libc6" || *n == "adduser"), "{names:?}");
    let prefix = format!("opt/{}", minted.image.stem());
    assert_eq!(minted.manifest.layer.path, [format!("/{prefix}/bin")]);
    assert_eq!(minted.manifest.layer.ld_library_path, [format!("/{prefix}/lib")]);
    let (base, wanted) = minted.manifest.build.base.as_ref().unwrap();
    assert_eq!(format!("{base}@{}", wanted.range), "debian@13");
    let image = Image::open(&minted.path).unwrap();
    assert_eq!(image.read_link(format!("{prefix}/bin/redis-server")).unwrap(), Path::new("redis-check-rdb"));
    assert!(image.stat(format!("{prefix}/lib/libjemalloc.so.2")).unwrap().is_some(), "no folder of one arch");
    assert!(image.stat("usr").unwrap().is_none() && image.stat("etc").unwrap().is_none());
}

#[test]
fn what_is_skipped_stays_out_and_what_is_missing_is_listed_with_who_wants_it() {
    let out = tempfile::tempdir().unwrap();
    let skipping = DebRequest {
        skip_so: vec!["libjemalloc.so.*".to_owned()],
        out: out.path().to_path_buf(),
        ..DebRequest::new("redis-tools")
    };
    let minted = forge().deb(&skipping).unwrap_or_else(|e| panic!("{}", said(&e)));
    assert!(!minted.packages.iter().any(|p| p.name == "libjemalloc2"));
    assert!(minted.unresolved.is_empty());

    let unknown = DebRequest { out: out.path().to_path_buf(), ..DebRequest::new("redis-serve") };
    let error = forge().deb(&unknown).unwrap_err();
    assert_eq!(
        said(&error),
        format!(
            "Debian trixie has no package \"redis-serve\" for {}\ndid you mean \"redis-server\"?",
            Arch::HOST
        )
    );
}

#[test]
fn a_keg_for_another_arch_is_made_on_any_host() {
    let out = tempfile::tempdir().unwrap();
    let other = if Arch::HOST == Arch::X64 { Arch::Arm64 } else { Arch::X64 };
    let of = |arch| DebRequest { arch, out: out.path().to_path_buf(), ..DebRequest::new("redis-tools") };
    let (own, foreign) = (forge().deb(&of(Arch::HOST)).unwrap(), forge().deb(&of(other)).unwrap());
    assert!(foreign.unresolved.is_empty() && own.digest != foreign.digest);
    assert_eq!(own.manifest_text, foreign.manifest_text, "a version has one manifest");
    let image = Image::open(&foreign.path).unwrap();
    let program = image.read(format!("opt/{}/bin/redis-cli", foreign.image.stem()), 64 << 20).unwrap();
    let machine = if other == Arch::Arm64 { 0xb7 } else { 0x3e };
    assert_eq!(program[18], machine);
}

#[test]
fn a_release_file_that_was_touched_is_refused() {
    // A mirror in a folder, with the archive's own release file and one letter changed.
    let out = tempfile::tempdir().unwrap();
    base(&forge(), out.path(), Arch::HOST);
    let signed = fs::read_dir(cache().join("release"))
        .unwrap()
        .filter_map(|e| fs::read(e.unwrap().path()).ok())
        .find(|b| String::from_utf8_lossy(b).contains("\nCodename: trixie\n"))
        .expect("the release file is in the cache");
    let body = signed.iter().position(|b| *b == b'\n').unwrap() + 1;
    let signed = String::from_utf8(signed[body..].to_vec()).unwrap();
    let refused = |text: &str| {
        let dir = tempfile::tempdir().unwrap();
        let suite = dir.path().join("dists/trixie");
        fs::create_dir_all(&suite).unwrap();
        fs::write(suite.join("InRelease"), text).unwrap();
        let mut options = options(&dir.path().join("cache"));
        options.mirror = Some(format!("file://{}", dir.path().display()));
        let request =
            BaseRequest { suite: "trixie".to_owned(), arch: Arch::HOST, out: dir.path().to_path_buf() };
        let error = Forge::new(options).unwrap().base(&request).unwrap_err();
        said(&error).replace(&dir.path().display().to_string(), "DIR")
    };
    let touched = signed.replace("Suite: stable", "Suite: stabl3");
    assert!(
        refused(&touched)
            .contains("has no signature that this machine trusts: a signature does not fit the text")
    );
    let unsigned = "Origin: Debian\nSuite: stable\nSHA256:\n";
    assert!(refused(unsigned).contains("it holds no good signature"), "{}", refused(unsigned));
    // Honestly signed, and the lists that it promises are not there.
    let message = refused(&signed);
    assert!(message.starts_with("file://DIR/dists/trixie/main/binary-"), "{message}");
    // What stands in front of the signed text is no part of it.
    let wrapped =
        format!("Origin: Evil\nSHA256:\n {} 1 main/binary-amd64/Packages\n\n{signed}", "ab".repeat(32));
    assert!(refused(&wrapped).starts_with("file://DIR/dists/trixie/main/binary-"), "{}", refused(&wrapped));
}

/// Mints what the environment says; run by other tests in a process of its own, which they may kill.
#[test]
#[ignore = "run by other tests, in a process of its own"]
fn child() {
    let out = PathBuf::from(std::env::var_os("FORGE_OUT").expect("another test says where"));
    let cache = PathBuf::from(std::env::var_os("FORGE_CACHE").expect("another test says where"));
    let forge = Forge::new(options(&cache)).unwrap();
    let mut request = AllRequest::new(workspace().join("packages"), out);
    request.only = ["debian", "redis", "busybox"].map(|n| n.parse().unwrap()).to_vec();
    let report = forge.all(&request).unwrap_or_else(|e| panic!("{}", said(&e)));
    assert!(report.failed.is_empty(), "{:?}", report.failed);
    println!("minted {}", report.minted.len());
}

fn child_process(out: &Path, umask: &str, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("umask {umask}; exec \"$0\" --exact child --ignored --nocapture");
    command.arg("-c").arg(script).arg(std::env::current_exe().unwrap());
    command.env("FORGE_OUT", out).env("FORGE_CACHE", cache()).envs(environment.iter().copied());
    command
}

/// Every file of a registry but its own notes, with its digest.
fn contents(dir: &Path) -> Vec<(String, Digest)> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(at) = todo.pop() {
        for item in fs::read_dir(at).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                found.push((path.strip_prefix(dir).unwrap().display().to_string(), sha256(&path)));
            }
        }
    }
    found.sort();
    found
}

/// Checks that whatever a registry names is there and whole.
fn check_registry(dir: &Path) {
    let Ok(listed) = fs::read_dir(dir) else { return };
    for package in listed.map(|e| e.unwrap().path()).filter(|p| p.is_dir()) {
        let Ok(index) = fs::read(package.join("index.json")) else { continue };
        let names: Vec<String> = serde_json::from_slice(&index).unwrap();
        for name in names.iter().filter(|n| n.ends_with(".img")) {
            let image: ImageName = name.parse().unwrap();
            let opened = Image::open(package.join(name)).unwrap();
            let manifest = fs::read_to_string(package.join(format!("{}.toml", image.stem()))).unwrap();
            assert_eq!(text(&opened, "/.manifest.toml"), manifest);
        }
    }
    if let Ok(state) = fs::read(dir.join("state.json")) {
        let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
        for package in state["packages"].as_array().unwrap() {
            for version in package["versions"].as_array().unwrap() {
                let path = dir.join(package["name"].as_str().unwrap()).join(version["img"].as_str().unwrap());
                assert_eq!(version["sha256"], sha256(&path).hex());
            }
        }
    }
}

#[test]
fn recipes_give_the_same_registry_everywhere_and_a_second_run_mints_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("elsewhere/and deeper");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&deep).unwrap();
    let places = [
        (dir.path().join("one"), "022", vec![("TZ", "UTC"), ("LC_ALL", "C")]),
        (
            deep.join("two"),
            "077",
            vec![("TZ", "Asia/Tokyo"), ("LC_ALL", "de_DE.UTF-8"), ("HOME", "/nonexistent")],
        ),
    ];
    for (out, umask, environment) in &places {
        let output = child_process(out, umask, environment).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        check_registry(out);
    }
    assert_eq!(contents(&places[0].0), contents(&places[1].0));
    let before = contents(&places[0].0);
    let again = child_process(&places[0].0, "022", &[]).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stdout).contains("minted 0\n"));
    assert_eq!(contents(&places[0].0), before);

    let redis = before.iter().find(|(n, _)| n.starts_with("redis/") && n.ends_with(".img")).unwrap();
    let image = Image::open(places[0].0.join(&redis.0)).unwrap();
    let lock = Lock::parse(&text(&image, "/.lock.toml"), ".lock.toml").unwrap();
    assert_eq!(lock.packages.len(), 1);
    assert_eq!(lock.packages[0].name.as_str(), "debian");
    let base = before.iter().find(|(n, _)| n.starts_with("debian/") && n.ends_with(".img")).unwrap();
    assert_eq!(lock.packages[0].digest[&Arch::HOST], base.1);
}

#[test]
fn a_forge_killed_at_any_moment_leaves_a_registry_that_works() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("reg");
    for round in 0..9_u64 {
        let mut child = child_process(&out, "022", &[]).stdout(std::process::Stdio::null()).spawn().unwrap();
        // Spread over the whole of a run, unevenly.
        std::thread::sleep(Duration::from_millis(100 + round * round * 100));
        child.kill().unwrap();
        child.wait().unwrap();
        check_registry(&out);
    }
    let last = child_process(&out, "022", &[]).output().unwrap();
    assert!(last.status.success(), "{}", String::from_utf8_lossy(&last.stdout));
    check_registry(&out);
    let left: Vec<String> =
        contents(&out).into_iter().map(|(n, _)| n).filter(|n| n.ends_with(".tmp")).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(Registry::open(&out).unwrap().source().starts_with("file:///"));
}

#[test]
fn an_edited_recipe_gets_a_version_beside_the_published_one() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = dir.path().join("recipes/busybox");
    fs::create_dir_all(&recipe).unwrap();
    for name in ["ply.toml", "forge.toml"] {
        fs::copy(workspace().join("packages/busybox").join(name), recipe.join(name)).unwrap();
    }
    let request = AllRequest::new(dir.path().join("recipes"), dir.path().join("reg"));
    let mint = || {
        let report = forge().all(&request).unwrap();
        assert!(report.failed.is_empty(), "{:?}", report.failed);
        report
    };
    let first = mint().minted.remove(0);
    let published = sha256(&first.path);
    fs::write(
        recipe.join("forge.toml"),
        fs::read_to_string(recipe.join("forge.toml")).unwrap() + "# a remark\n",
    )
    .unwrap();
    let same = mint();
    assert_eq!((same.minted.len(), same.unchanged.len()), (0, 1), "the same bytes are no new version");
    let edited =
        fs::read_to_string(recipe.join("ply.toml")).unwrap().replace("small Unix tools", "small tools");
    fs::write(recipe.join("ply.toml"), edited).unwrap();
    let second = mint().minted.remove(0);
    assert_eq!(second.image.version.to_string(), format!("{}.0.2", first.image.version));
    assert!(second.image.version > first.image.version);
    assert_eq!(sha256(&first.path), published, "published bytes never change");
    assert_eq!(mint().unchanged, [second.image]);
}
