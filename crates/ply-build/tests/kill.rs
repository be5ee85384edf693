//! A build that is killed at any moment leaves the image that was there, whole, or none; the next build works and
//! clears up.

use ply_build::{BuildRequest, Built, Output, build};
use ply_image::{Dirs, Store};
use ply_source::{FetchOptions, Fetcher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Tells the child which world it builds in.
const WORLD: &str = "PLY_TEST_KILL_WORLD";

fn build_in(world: &Path, output: Output) -> Built {
    let sub = |name: &str| world.join(name);
    let dirs = Dirs { data: sub("data"), run: sub("run"), config: sub("config") };
    let mut request = BuildRequest::new(world.join("app"), dirs.clone());
    request.output = output;
    let fetcher = Fetcher::new(FetchOptions::new(Store::open(&dirs).unwrap(), &dirs).unwrap());
    build(&request, &fetcher).unwrap()
}

/// Writes content `n`: enough that a build takes some tens of milliseconds.
fn write(world: &Path, n: u32) {
    let app = world.join("app");
    std::fs::create_dir_all(&app).unwrap();
    let manifest = "[package]\nname=\"app\"\nversion=\"1.0.0\"\n[run]\nentrypoint=[\"./run\"]\n";
    std::fs::write(app.join("ply.toml"), manifest).unwrap();
    let mut state = u64::from(n) + 1;
    for file in 0..40 {
        let mut bytes = Vec::with_capacity(64 << 10);
        while bytes.len() < 64 << 10 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.extend_from_slice(&(state >> 33).to_le_bytes()[..6]);
        }
        std::fs::write(app.join(format!("{file}.bin")), bytes).unwrap();
    }
}

fn names(folder: &Path) -> Vec<String> {
    let all = folder.read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = all.filter(|n| !n.ends_with(".bin")).collect();
    names.sort();
    names
}

fn sha256(path: &Path) -> String {
    let out = Command::new("sha256sum").arg(path).output().unwrap();
    format!("sha256:{}", String::from_utf8(out.stdout).unwrap().split(' ').next().unwrap())
}

#[test]
#[ignore = "the process that the test below starts and kills"]
fn child() {
    let world = PathBuf::from(std::env::var_os(WORLD).expect("started by the test below"));
    build_in(&world, Output::Store);
    build_in(&world, Output::Folder);
}

#[test]
fn a_build_killed_at_any_moment_leaves_whole_images_and_a_next_build_that_works() {
    let temp = tempfile::tempdir().unwrap();
    let world = temp.path();
    write(world, 0);
    let first = build_in(world, Output::Folder);
    let mut digest = first.digest.to_string();
    let mut killed = 0;
    // `make test-long` asks for more.
    let rounds: u32 = std::env::var("PLY_KILL_ROUNDS").map_or(20, |n| n.parse().unwrap());
    for round in 1..=rounds {
        write(world, round);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored"])
            .env(WORLD, world)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(u64::from(round % 20 * 37 % 20) * 12));
        child.kill().unwrap();
        killed += u32::from(!child.wait().unwrap().success());

        // What stands under the final name is the old image or the new one.
        let found = sha256(&first.path);
        let built = build_in(world, Output::Folder);
        assert!(found == digest || found == built.digest.to_string(), "round {round}");
        digest = built.digest.to_string();
        assert_eq!(sha256(&built.path), digest);
        assert_eq!(
            names(&world.join("app")),
            [built.image.to_string().as_str(), "ply.toml"],
            "round {round}"
        );
    }
    assert!(killed > 0, "no build was killed: the waits are too long for this machine");
    let store =
        Store::open(&Dirs { data: world.join("data"), run: world.join("run"), config: world.join("config") });
    let report = store.unwrap().verify(1).unwrap();
    assert!(report.wrong.is_empty(), "{report:?}");
}
