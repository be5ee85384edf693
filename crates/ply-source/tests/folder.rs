//! A folder as a registry: resolution, lock, lookups, what a command needs no source for.

mod support;

use ply_manifest::{Arch, Lock};
use ply_source::{FetchOptions, Fetcher, Mode, SourceError};
use std::sync::Arc;
use support::{Notes, World, lines, manifest};

const APP: &str =
    "[build]\nbase = \"debian@13\"\n[build.dependencies]\nnode = \"22\"\n[run]\nentrypoint = [\"node\"]";

fn usual() -> World {
    let world = World::new();
    world.publish("debian 13.0.0", "[build]\nbase = true\n[layer]\nabi = \"linux-{arch}-gnu\"");
    world.publish("debian 13.1.0", "[build]\nbase = true\n[layer]\nabi = \"linux-{arch}-gnu\"");
    world.publish("node 22.5.0", "[build.dependencies]\nssl = \"3\"\n[layer]\nabi = \"linux-x64-gnu\"");
    world.publish("node 22.6.0", "[build.dependencies]\nssl = \"3\"");
    world.publish("ssl 3.0.1", "description = \"TLS\"");
    world.publish("ssl 3.2.0", "");
    world
}

#[test]
fn a_manifest_resolves_to_the_lowest_versions_and_a_lock() {
    let world = usual();
    let app = manifest("app 1.0.0", APP);
    let fetcher = world.fetcher(&world.source());
    let found = fetcher.resolve(&app, None, Mode::Keep).unwrap();
    assert!(found.changed);
    assert_eq!(lines(&found.lock), ["node 22.5.0", "ssl 3.0.1", "debian 13.0.0"]);
    assert_eq!(found.packages[1].requested_by, ["node 22.5.0"]);
    assert!(found.packages[2].base);
    for (package, resolved) in found.lock.packages.iter().zip(&found.packages) {
        assert_eq!(package.digest[&Arch::X64], resolved.entry.digest);
        assert_eq!(package.source.to_string(), world.source());
        assert!(resolved.entry.image.is_file());
    }
    // The lock as a file says the same, and is kept.
    let again = Lock::parse(&found.lock.to_string(), "ply.lock").unwrap();
    assert_eq!(again, found.lock);
    for mode in [Mode::Keep, Mode::Locked] {
        let kept = world.fetcher(&world.source()).resolve(&app, Some(&again), mode).unwrap();
        assert!(!kept.changed);
        assert_eq!(kept.lock, again);
    }
    assert!(world.leftovers().is_empty(), "{:?}", world.leftovers());
}

#[test]
fn a_lock_that_the_store_holds_needs_no_source() {
    let world = usual();
    let app = manifest("app 1.0.0", APP);
    let lock = world.fetcher(&world.source()).resolve(&app, None, Mode::Keep).unwrap().lock;
    std::fs::remove_dir_all(world.folder()).unwrap();
    // Nor does it come near one: this server would answer, and counts.
    let server = support::server::Server::start(|_, _, stream| {
        support::server::answer(stream, "500 No", "", b"");
    });
    let fetcher = world.fetcher(&server.url());
    for mode in [Mode::Keep, Mode::Locked] {
        let found = fetcher.resolve(&app, Some(&lock), mode).unwrap();
        assert!(!found.changed);
    }
    assert_eq!(fetcher.ensure_lock(&lock).unwrap().len(), 3);
    assert_eq!(fetcher.tree(&app, &lock).unwrap().children.len(), 2);
    assert!(server.paths().is_empty(), "{:?}", server.paths());
}

#[test]
fn an_update_moves_to_the_newest_in_range_and_only_what_is_named() {
    let world = usual();
    let app = manifest("app 1.0.0", APP);
    let fetcher = world.fetcher(&world.source());
    let lock = fetcher.resolve(&app, None, Mode::Keep).unwrap().lock;
    let all = fetcher.resolve(&app, Some(&lock), Mode::Update(Vec::new())).unwrap();
    assert_eq!(lines(&all.lock), ["node 22.6.0", "ssl 3.2.0", "debian 13.1.0"]);
    let one = fetcher.resolve(&app, Some(&lock), Mode::Update(vec!["ssl".parse().unwrap()])).unwrap();
    assert_eq!(lines(&one.lock), ["node 22.5.0", "ssl 3.2.0", "debian 13.0.0"]);
    // What was moved stays moved.
    let kept = fetcher.resolve(&app, Some(&one.lock), Mode::Keep).unwrap();
    assert!(!kept.changed);
    let wrong = fetcher.resolve(&app, Some(&lock), Mode::Update(vec!["sll".parse().unwrap()])).unwrap_err();
    assert_eq!(wrong.to_string(), "sll is not a dependency of app 1.0.0, direct or through others");
    assert_eq!(wrong.hint().unwrap(), "did you mean \"ssl\"?");
}

#[test]
fn locked_refuses_every_change_and_asks_nobody() {
    let world = usual();
    let app = manifest("app 1.0.0", APP);
    let fetcher = world.fetcher(&world.source());
    let lock = fetcher.resolve(&app, None, Mode::Keep).unwrap().lock;
    let refused = |rest: &str, lock: Option<&Lock>| {
        let server = support::server::Server::start(|_, _, stream| {
            support::server::answer(stream, "404 Not Found", "", b"");
        });
        let app = manifest("app 1.0.0", rest);
        let found = world.fetcher(&server.url()).resolve(&app, lock, Mode::Locked).unwrap_err();
        assert!(server.paths().is_empty());
        found.to_string()
    };
    let more = APP.replace("node = \"22\"", "node = \"22.6\"\nzlib = \"1\"\nlz4 = \"1.2.3\"");
    assert_eq!(
        refused(&more, Some(&lock)),
        "ply.lock would change and --locked forbids it: lz4 1.2.3 is added, node 22.5.0 no longer satisfies, zlib is added"
    );
    assert_eq!(
        refused(APP, None),
        "ply.lock would change and --locked forbids it: debian is added, node is added"
    );
    let less = APP.replace("node = \"22\"\n", "");
    assert_eq!(
        refused(&less, Some(&lock)),
        "ply.lock would change and --locked forbids it: node 22.5.0 is removed, ssl 3.0.1 is removed"
    );
}

#[test]
fn a_new_dependency_leaves_the_rest_of_the_lock_alone() {
    let world = usual();
    world.publish("zlib 1.3.0", "");
    let fetcher = world.fetcher(&world.source());
    let app = manifest("app 1.0.0", APP);
    let newest = fetcher.resolve(&app, None, Mode::Update(Vec::new())).unwrap().lock;
    let more = manifest("app 1.0.0", &APP.replace("node = \"22\"", "node = \"22\"\nzlib = \"1\""));
    let found = fetcher.resolve(&more, Some(&newest), Mode::Keep).unwrap();
    assert!(found.changed);
    assert_eq!(lines(&found.lock), ["node 22.6.0", "ssl 3.2.0", "zlib 1.3.0", "debian 13.1.0"]);
}

#[test]
fn a_lock_keeps_the_digests_of_other_archs() {
    let world = usual();
    for (package, rest) in [
        ("debian 13.0.0", "[build]\nbase = true"),
        ("node 22.5.0", "[build.dependencies]\nssl = \"3\""),
        ("ssl 3.0.1", ""),
    ] {
        world.publish_for(package, rest, Arch::Arm64, b"arm");
    }
    let app = manifest("app 1.0.0", APP);
    let lock = world.fetcher(&world.source()).resolve(&app, None, Mode::Keep).unwrap().lock;
    let mut options = world.options(&world.source());
    options.arch = Arch::Arm64;
    let arm = ply_source::Fetcher::new(options);
    let refused = arm.resolve(&app, Some(&lock), Mode::Locked).unwrap_err().to_string();
    assert!(refused.ends_with("node 22.5.0 gets a digest for arm64"), "{refused}");
    let both = arm.resolve(&app, Some(&lock), Mode::Keep).unwrap();
    assert!(both.changed);
    assert_eq!(lines(&both.lock), lines(&lock));
    for (package, before) in both.lock.packages.iter().zip(&lock.packages) {
        assert_eq!(package.digest.len(), 2);
        assert_eq!(package.digest[&Arch::X64], before.digest[&Arch::X64]);
    }
    let back = world.fetcher(&world.source()).resolve(&app, Some(&both.lock), Mode::Locked).unwrap();
    assert!(!back.changed);
    // What exists for one arch only is said to.
    let wrong = arm.lookup(&"node@22.6".parse().unwrap()).unwrap_err();
    assert!(wrong.to_string().starts_with("node 22.6 is there, but not for arm64"), "{wrong}");
}

#[test]
fn a_reference_gets_the_newest_and_the_store_when_the_source_is_away() {
    let world = usual();
    let fetcher = world.fetcher(&world.source());
    assert_eq!(fetcher.lookup(&"node@22".parse().unwrap()).unwrap().name.version.to_string(), "22.6.0");
    assert_eq!(fetcher.lookup(&"node@22.5.0".parse().unwrap()).unwrap().name.version.to_string(), "22.5.0");
    let wrong = fetcher.lookup(&"nod".parse().unwrap()).unwrap_err();
    assert_eq!(wrong.to_string(), format!("no package nod in {}", world.source()));
    assert_eq!(wrong.hint().unwrap(), "did you mean \"node\"?");
    let wrong = fetcher.lookup(&"node@23".parse().unwrap()).unwrap_err();
    assert_eq!(wrong.hint().unwrap(), "there is: 22.6.0, 22.5.0");
    let wrong = fetcher.lookup(&"me/node".parse().unwrap()).unwrap_err();
    assert!(matches!(wrong, SourceError::NoOwner { .. }), "{wrong}");

    let notes = Notes::default();
    let mut options = world.options("http://127.0.0.1:1/");
    options.progress = std::sync::Arc::new(notes.clone());
    let away = ply_source::Fetcher::new(options);
    assert_eq!(away.lookup(&"node@22".parse().unwrap()).unwrap().name.version.to_string(), "22.6.0");
    assert_eq!(
        notes.all(),
        ["notice http://127.0.0.1:1/ can't be asked; taking the newest node@22 of the store, 22.6.0"]
    );
    let wrong = away.lookup(&"ssl".parse().unwrap()).unwrap_err();
    assert!(matches!(wrong, SourceError::Connection { .. }), "{wrong}");
}

#[test]
fn an_image_that_says_to_be_another_is_not_taken() {
    let world = usual();
    let lie = world.folder().join("zlib-1.0.0-linux-x64.img");
    std::fs::copy(world.folder().join("ssl-3.2.0-linux-x64.img"), &lie).unwrap();
    std::fs::write(world.folder().join("junk-1.0.0-linux-x64.img"), "no image").unwrap();
    let fetcher = world.fetcher(&world.source());
    let wrong = fetcher.lookup(&"zlib".parse().unwrap()).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        format!("{} is named zlib 1.0.0 and says inside to be ssl 3.2.0; it was not taken", lie.display())
    );
    let wrong = fetcher.lookup(&"junk".parse().unwrap()).unwrap_err();
    assert!(matches!(wrong, SourceError::NoImage { .. }), "{wrong}");
    assert!(world.store().list().unwrap().is_empty());
    assert!(world.leftovers().is_empty());
}

#[test]
fn whoever_rebuilds_into_a_folder_sees_what_was_built_last() {
    let world = World::new();
    world.publish_for("tool 1.0.0", "", Arch::X64, b"first");
    let fetcher = world.fetcher(&world.source());
    let first = fetcher.lookup(&"tool".parse().unwrap()).unwrap();
    assert_eq!(fetcher.lookup(&"tool".parse().unwrap()).unwrap().digest, first.digest);
    std::thread::sleep(std::time::Duration::from_millis(20));
    world.publish_for("tool 1.0.0", "", Arch::X64, b"secnd");
    let second = fetcher.lookup(&"tool".parse().unwrap()).unwrap();
    assert_ne!(second.digest, first.digest);
    // And a lock holds against it.
    let app = manifest("app 1.0.0", "[build.dependencies]\ntool = \"1\"");
    let lock = fetcher.resolve(&app, None, Mode::Keep).unwrap().lock;
    world.store().remove(&second.digest).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    world.publish_for("tool 1.0.0", "", Arch::X64, b"third");
    let wrong = world.fetcher(&world.source()).resolve(&app, Some(&lock), Mode::Keep).unwrap_err();
    let SourceError::WrongDigest { expected, .. } = &wrong else { panic!("{wrong}") };
    assert_eq!(*expected, second.digest);
}

#[test]
fn a_file_that_looks_as_it_did_is_copied_once_however_new_it_is() {
    let world = World::new();
    let path = world.publish_for("tool 1.0.0", "", Arch::X64, b"first");
    // Each look with a fetcher of its own, as each ply is; says whether the file was copied.
    let look = || {
        let notes = Notes::default();
        let options = FetchOptions { progress: Arc::new(notes.clone()), ..world.options(&world.source()) };
        let found = Fetcher::new(options).lookup(&"tool".parse().unwrap()).unwrap();
        (notes.all().iter().any(|note| note.starts_with("start ")), found.digest)
    };
    let settle = || std::thread::sleep(std::time::Duration::from_millis(100));
    settle();
    let (copied, first) = look();
    assert!(copied);
    assert_eq!(look(), (false, first));
    // As if it were made anew, long after: looked at once more, and then known.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    settle();
    assert_eq!(look(), (true, first));
    assert_eq!(look(), (false, first));
    // Other bytes of the same length and the same time are seen all the same.
    world.publish_for("tool 1.0.0", "", Arch::X64, b"secnd");
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    settle();
    let (copied, second) = look();
    assert!(copied && second != first);
    assert_eq!(look(), (false, second));
}

#[test]
fn search_outdated_and_tree_tell_what_there_is() {
    let world = usual();
    let fetcher = world.fetcher(&world.source());
    let app = manifest("app 1.0.0", APP);
    let lock = fetcher.resolve(&app, None, Mode::Keep).unwrap().lock;
    let found = fetcher.search("").unwrap();
    let shown: Vec<&str> = found.iter().map(|f| f.line.as_str()).collect();
    assert_eq!(shown, ["debian = \"13\"", "node = \"22\"", "ssl = \"3\""]);
    assert_eq!(found[0].kind.as_deref(), Some("base"));
    assert_eq!(fetcher.search("NODE").unwrap()[0].versions.len(), 2);
    assert!(fetcher.search("node nothing").unwrap().is_empty());

    let rows = fetcher.outdated(&app, &lock).unwrap();
    let shown: Vec<String> = rows
        .iter()
        .map(|r| format!("{} {:?} {:?} {:?}", r.name, r.locked, r.in_range, r.newest).replace("Version", ""))
        .collect();
    assert_eq!(rows.len(), 2, "{shown:?}");
    assert_eq!(rows[0].name.to_string(), "node");
    assert_eq!(rows[0].locked.as_ref().unwrap().to_string(), "22.5.0");
    assert_eq!(rows[0].in_range.as_ref().unwrap().to_string(), "22.6.0");
    assert!(rows[0].is_outdated());

    let tree = fetcher.tree(&app, &lock).unwrap();
    assert_eq!(tree.children[0].name.to_string(), "node");
    assert_eq!(tree.children[0].children[0].name.to_string(), "ssl");
    assert!(tree.children[1].base);
    let bytes: u64 = fetcher.ensure_lock(&lock).unwrap().iter().map(|e| e.bytes).sum();
    assert_eq!(tree.bytes, bytes);
}

#[test]
fn a_search_sees_what_lies_beside_the_catalog_of_a_folder() {
    let world = usual();
    let catalog = r#"{ "packages": [
        { "name": "debian", "type": "layer", "description": "the base", "versions": [
            { "version": "13.0.0", "img": "debian-13.0.0-linux-x64.img" } ] },
        { "namespace": "me", "name": "ssl", "type": "app", "versions": [
            { "version": "9.0.0", "arch": "x64", "src": "https://else.example/ssl.img" } ] } ] }"#;
    let folder = world.folder();
    std::fs::write(folder.join("state.json"), catalog).unwrap();
    let found = world.fetcher(&world.source()).search("").unwrap();
    let shown: Vec<String> =
        found.iter().map(|f| format!("{:?} {} {}", f.owner.is_some(), f.line, f.versions.len())).collect();
    assert_eq!(
        shown,
        ["false debian = \"13\" 2", "false node = \"22\" 2", "false ssl = \"3\" 2", "true ssl = \"9\" 1"]
    );
    assert_eq!(found[0].kind.as_deref(), Some("base"));
    assert_eq!(found[0].description.as_deref(), Some("the base"));
}

#[test]
fn a_folder_that_is_not_there_is_said_to_be_missing() {
    let world = World::new();
    let away = world.folder().join("away");
    for source in [away.display().to_string(), format!("file://{}/{{owner}}/{{package}}", away.display())] {
        let fetcher = world.fetcher(&source);
        let asked = ["node@22", "node@22.5.0"].map(|r| fetcher.lookup(&r.parse().unwrap()).unwrap_err());
        for error in asked.into_iter().chain([fetcher.search("node").unwrap_err()]) {
            let expected = format!("the folder of the source {source} is not there: {}", away.display());
            assert_eq!(error.to_string(), expected);
            assert!(error.hint().unwrap().contains("ply config"), "{error}");
        }
    }
}

#[test]
fn source_is_the_word_for_everything_without_an_alias() {
    let world = usual();
    let mut options = world.options("https://nowhere.invalid/{package}");
    options.source = Some(world.source().parse().unwrap());
    let fetcher = ply_source::Fetcher::new(options);
    let app = manifest(
        "app 1.0.0",
        &format!("{APP}\n[build.sources]\ndefault = \"https://other.invalid/{{package}}\""),
    );
    let found = fetcher.resolve(&app, None, Mode::Keep).unwrap();
    assert_eq!(found.lock.packages[0].source.to_string(), world.source());
}

#[test]
fn the_default_source_says_where_it_was_said() {
    use ply_source::{DefaultSource, SourceOrigin};
    let world = World::new();
    let dirs = world.dirs();
    let none = DefaultSource::choose(None, &dirs).unwrap();
    assert_eq!(
        (none.spec.template(), none.from),
        ("https://registry.plybox.sh/{owner}/{package}", SourceOrigin::Official)
    );
    std::fs::create_dir_all(&dirs.config).unwrap();
    let config = dirs.config.join("config.toml");
    std::fs::write(&config, "default_source = \"/srv/p\"\n").unwrap();
    let said = DefaultSource::choose(Some(""), &dirs).unwrap();
    assert_eq!((said.spec.template(), said.from), ("/srv/p", SourceOrigin::Config(config.clone())));
    let said = DefaultSource::choose(Some("/srv/q"), &dirs).unwrap();
    assert_eq!((said.spec.template(), said.from), ("/srv/q", SourceOrigin::Environment));
    let wrong = DefaultSource::choose(Some("nonsense"), &dirs).unwrap_err();
    assert_eq!(wrong.to_string(), "PLY_REGISTRY: \"nonsense\" is not a source: its form is not known");
    std::fs::write(&config, "default_source = 3\n").unwrap();
    assert!(DefaultSource::choose(None, &dirs).unwrap_err().to_string().contains("config.toml:1:"));
    let own = manifest("app 1.0.0", "[build.sources]\ndefault = \"/srv/own\"");
    let said = DefaultSource::official().for_manifest(&own);
    assert_eq!((said.spec.template(), said.from), ("/srv/own", SourceOrigin::Manifest));
}
