//! Killed with SIGKILL at any moment, a fetch leaves a store that verifies, temporary files that a clean-up takes, and a next fetch that
//! works.

mod support;

use ply_source::Mode;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::server::Server;
use support::{World, lines, manifest, noise};

/// Tells the child where its store is and whom it asks.
const TOLD: &str = "PLY_TEST_KILLED";
const PACKAGES: usize = 6;

fn root() -> ply_manifest::Manifest {
    let dependencies: String = (0..PACKAGES).map(|i| format!("p{i} = \"1.0.0\"\n")).collect();
    manifest("app 1.0.0", &format!("[build.dependencies]\n{dependencies}"))
}

/// What the killed process does; started by the test below.
#[test]
#[ignore = "a part of the test below"]
fn child() {
    let told = std::env::var(TOLD).unwrap();
    let (dir, url) = told.split_once(' ').unwrap();
    let world = World { temp: tempfile::TempDir::with_prefix("ply-killed-").unwrap() };
    let mut options = world.options(url);
    let dirs = ply_image::Dirs { data: PathBuf::from(dir), ..world.dirs() };
    options.store = ply_image::Store::open(&dirs).unwrap();
    ply_source::Fetcher::new(options).resolve(&root(), None, Mode::Keep).unwrap();
}

#[test]
fn a_fetch_that_is_killed_leaves_a_store_that_verifies() {
    let rounds = std::env::var("PLY_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let world = World::new();
    for i in 0..PACKAGES {
        world.publish_for(&format!("p{i} 1.0.0"), "", ply_manifest::Arch::X64, &noise(40_000));
    }
    let folder = world.folder();
    let server = Server::start(move |request, _, stream| {
        let Ok(image) = std::fs::read(folder.join(request.path.trim_start_matches('/'))) else {
            return support::server::answer(stream, "404 Not Found", "", b"");
        };
        support::server::claim(stream, image.len() as u64, "", b"");
        for piece in image.chunks(4096) {
            std::thread::sleep(Duration::from_millis(2));
            let _ = stream.write_all(piece);
        }
    });
    let (store, mut random) = (world.store(), 0x2545_f491_4f6c_dd1du64);
    let mut unfinished = 0;
    for _ in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "child"])
            .env(TOLD, format!("{} {}", world.dirs().data.display(), server.url()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis((random >> 33) % 150));
        child.kill().unwrap();
        child.wait().unwrap();
        let report = store.verify(1).unwrap();
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        let leftovers = world.leftovers();
        assert!(leftovers.iter().all(|name| name.starts_with(".tmp-")), "{leftovers:?}");
        unfinished += leftovers.len();
        store.gc(&Default::default(), false).unwrap();
        assert!(world.leftovers().is_empty());
    }
    assert!(unfinished > 0, "no kill came while something was fetched");
    let found = world.fetcher(&server.url()).resolve(&root(), None, Mode::Keep).unwrap();
    assert_eq!(lines(&found.lock).len(), PACKAGES);
}
