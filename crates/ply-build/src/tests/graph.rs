//! Builds with a base and dependencies, from a folder as registry.

use super::*;
use ply_manifest::{Lock, Manifest};

const BASE: &str = "[build]\nbase = true\n[layer]\nabi = \"linux-{arch}-gnu\"";

/// An app over `debian@13` and `node@22`, published in two versions each.
pub(crate) fn world() -> World {
    let world = World::app(&[("server.js", "listen()")]);
    world.write("ply.toml", MANIFEST);
    for arch in Arch::ALL {
        for version in ["13.0.0", "13.1.0"] {
            world.publish("debian", version, arch, BASE, &[("bin/sh*", "#!"), ("usr/bin/env*", "#!")]);
        }
        for version in ["22.1.0", "22.6.0"] {
            let rest = format!(
                "[build]\nbase = \"debian@13\"\n[layer]\npath = [\"/opt/node-{version}/bin\"]\nabi = \"linux-{{arch}}-gnu\""
            );
            world.publish("node", version, arch, &rest, &[("bin/node*", "node")]);
        }
    }
    world
}

pub(crate) const MANIFEST: &str = "[package]\nname = \"shop\"\nversion = \"1.2.0\"\n\n[build]\nbase = \"debian@13\"\n\n[build.dependencies]\nnode = \"22\"\n\n[run]\nentrypoint = [\"node\", \"server.js\"]\n";

fn lock(world: &World) -> Lock {
    Lock::parse(&fs::read_to_string(world.dir().join("ply.lock")).unwrap(), "ply.lock").unwrap()
}

fn versions(lock: &Lock) -> Vec<String> {
    lock.packages.iter().map(|p| format!("{} {}", p.name, p.version)).collect()
}

#[test]
fn the_lowest_versions_are_locked_and_the_lock_is_embedded_for_one_arch() {
    let world = world();
    let built = world.build().unwrap();
    assert!(built.lock_changed && !built.skipped);
    assert_eq!(built.notices, [] as [&str; 0]);
    assert_eq!(versions(&lock(&world)), ["node 22.1.0", "debian 13.0.0"]);
    assert_eq!(built.lock, lock(&world));
    let image = Image::open(&built.path).unwrap();
    let inside_lock = Lock::parse(&image.lock_text().unwrap().unwrap(), "lock").unwrap();
    assert_eq!(versions(&inside_lock), versions(&built.lock));
    assert_eq!(inside(&image, "opt/shop"), ["ply.toml", "server.js"], "the lock itself doesn't ship");

    // Another arch adds its digests to the lock in the directory, not to the image.
    let other = if Arch::HOST == Arch::X64 { Arch::Arm64 } else { Arch::X64 };
    let mut request = world.request();
    request.arch = other;
    let mut options = world.fetch_options();
    options.arch = other;
    let crossed = build(&request, &Fetcher::new(options)).unwrap();
    assert!(crossed.lock_changed);
    assert_eq!(crossed.image.arch, other);
    assert!(lock(&world).packages.iter().all(|p| p.digest.len() == 2));
    let text = Image::open(&crossed.path).unwrap().lock_text().unwrap().unwrap();
    let inside_lock = Lock::parse(&text, "lock").unwrap();
    assert!(inside_lock.packages.iter().all(|p| p.digest.keys().eq([&other])));

    // And the first arch is still what it was: nothing to do.
    let again = world.build().unwrap();
    assert!(again.skipped && !again.lock_changed);
    assert_eq!(again.digest, built.digest);
}

#[test]
fn a_lock_that_satisfies_is_kept_byte_for_byte_and_needs_no_registry() {
    let world = world();
    world.build().unwrap();
    let commented = format!("# ours\n{}", fs::read_to_string(world.dir().join("ply.lock")).unwrap());
    world.write("ply.lock", &commented);
    fs::remove_dir_all(world.registry()).unwrap();
    world.write("server.js", "changed()");
    let built = world.build().unwrap();
    assert!(!built.lock_changed && !built.skipped);
    assert_eq!(fs::read_to_string(world.dir().join("ply.lock")).unwrap(), commented);
}

#[test]
fn locked_refuses_to_change_the_lock() {
    let world = world();
    let mut request = world.request();
    request.locked = true;
    let error = world.build_as(&request).unwrap_err();
    assert!(!world.dir().join("ply.lock").exists(), "{error}");
    assert!(error.hint().is_some(), "{error}");
    let built = world.build().unwrap();
    assert_eq!(world.build_as(&request).unwrap().digest, built.digest);
    let before = fs::read(world.dir().join("ply.lock")).unwrap();
    world.write("ply.toml", &MANIFEST.replace("\"22\"", "\"22.6\""));
    world.build_as(&request).unwrap_err();
    assert_eq!(fs::read(world.dir().join("ply.lock")).unwrap(), before);
    assert!(world.build().unwrap().lock_changed);
    assert_eq!(versions(&lock(&world)), ["node 22.6.0", "debian 13.0.0"]);
}

#[test]
fn what_the_directory_alone_can_tell_is_refused_before_anything_is_fetched() {
    let world = world();
    world.write(".env", "KEY=1");
    let stored = || Store::open(&world.dirs()).unwrap().list().unwrap().len();
    let before = stored();
    let error = world.build().unwrap_err();
    assert!(matches!(error, BuildError::Secrets(_)), "{error}");
    assert_eq!(stored(), before);
    assert!(!world.dir().join("ply.lock").exists());
}

#[test]
fn an_entrypoint_that_can_not_start_is_a_notice() {
    let world = world();
    world.write("ply.toml", &MANIFEST.replace("\"server.js\"", "\"sever.js\""));
    let built = world.build().unwrap();
    assert_eq!(
        built.notices,
        ["the entrypoint starts a file that is not in the image: sever.js (did you mean \"server.js\"?)"]
    );
}

#[test]
fn an_addon_for_another_c_library_than_the_base_has_is_refused() {
    let world = world();
    let musl = fs::read(musl_addon(&world)).unwrap();
    fs::create_dir_all(world.dir().join("node_modules/argon2")).unwrap();
    fs::write(world.dir().join("node_modules/argon2/argon2.node"), musl).unwrap();
    let error = world.build().unwrap_err();
    let arch = Arch::HOST;
    assert_eq!(
        error.to_string(),
        format!(
            "a native addon is not for linux-{arch}: node_modules/argon2/argon2.node (Linux with musl {arch})"
        )
    );
}

/// A shared object that asks for musl's C library, made from the header up.
fn musl_addon(world: &World) -> PathBuf {
    let machine: u16 = if Arch::HOST == Arch::X64 { 62 } else { 183 };
    let strings = b"\0libc.musl-x86_64.so.1\0";
    let dynamic: Vec<[u64; 2]> = vec![[5, 64 + 56 * 2], [10, strings.len() as u64], [1, 1], [0, 0]];
    let mut elf = vec![0; 64 + 56 * 2];
    elf[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
    elf[16..18].copy_from_slice(&3_u16.to_le_bytes());
    elf[18..20].copy_from_slice(&machine.to_le_bytes());
    elf[32..40].copy_from_slice(&64_u64.to_le_bytes());
    elf[52..54].copy_from_slice(&64_u16.to_le_bytes());
    elf[54..56].copy_from_slice(&56_u16.to_le_bytes());
    elf[56..58].copy_from_slice(&2_u16.to_le_bytes());
    elf.extend_from_slice(strings);
    elf.resize(elf.len().next_multiple_of(8), 0);
    let at = elf.len() as u64;
    for pair in &dynamic {
        elf.extend(pair.iter().flat_map(|v| v.to_le_bytes()));
    }
    let size = elf.len() as u64;
    let mut segment = |n: usize, kind: u32, offset: u64, size: u64| {
        let header = &mut elf[64 + 56 * n..64 + 56 * (n + 1)];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        for (field, value) in [(8, offset), (16, offset), (32, size), (40, size)] {
            header[field..field + 8].copy_from_slice(&value.to_le_bytes());
        }
    };
    segment(0, 1, 0, size);
    segment(1, 2, at, dynamic.len() as u64 * 16);
    let path = world.temp.path().join("musl.so");
    fs::write(&path, elf).unwrap();
    path
}

#[test]
fn a_directory_without_a_manifest_keeps_its_lock_outside() {
    let world = world();
    fs::remove_file(world.dir().join("ply.toml")).unwrap();
    let mut request = world.request();
    request.manifest = Some(MANIFEST.to_owned());
    request.output = Output::Store;
    let built = world.build_as(&request).unwrap();
    assert!(!built.lock_changed, "nothing of the directory was written");
    assert_eq!(world.names(), ["server.js"]);
    fs::remove_dir_all(world.registry()).unwrap();
    assert!(world.build_as(&request).unwrap().skipped);
    let entry = Store::open(&world.dirs()).unwrap().get(&built.digest).unwrap().unwrap();
    let manifest: Manifest = entry.manifest().unwrap();
    assert_eq!((manifest, entry.lock().unwrap().unwrap()), (built.manifest, built.lock));
}
