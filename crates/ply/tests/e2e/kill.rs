//! SIGKILL at random moments leaves nothing that runs or is mounted, a store that verifies, and a next run that
//! works. 20 rounds each; 200 with `PLY_LONG=1`; `PLY_TEST_MOMENTS` for those of app, init, parent and exec. The seed is
//! printed.

use crate::harness::{BOTH, Running, Who, World, cache, eventually, leftovers, leftovers_after_gc};
use crate::inside::shell;
use std::time::{Duration, Instant};

/// How many times each program is killed.
fn rounds() -> u64 {
    if std::env::var_os("PLY_LONG").is_some() { 200 } else { 20 }
}

/// Moments spread over `0..longest`, from a printed seed.
fn moments(longest: Duration) -> impl Iterator<Item = Duration> {
    some_moments(rounds(), longest)
}

fn some_moments(rounds: u64, longest: Duration) -> impl Iterator<Item = Duration> {
    let mut state =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
    println!("seed: {state}");
    (0..rounds).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        longest.mul_f64((state % 10_000) as f64 / 10_000.0)
    })
}

fn kill_after(mut run: Running, moment: Duration) {
    std::thread::sleep(moment);
    let _ = run.child.kill();
    let _ = run.child.wait();
}

/// How long a command takes when nobody kills it.
fn typical(world: &World, args: &[&str]) -> Duration {
    let started = Instant::now();
    world.run(args).expect(0);
    started.elapsed()
}

#[test]
fn killed_runs_leave_nothing() {
    for who in BOTH {
        let world = shell(who);
        let args = ["run", "./sh", "--", "-c", "sleep 0.05"];
        world.run(args).expect(0);
        let longest = typical(&world, &args).mul_f64(1.2);
        for moment in moments(longest) {
            kill_after(world.start(args), moment);
            eventually("all gone", Duration::from_secs(5), || leftovers(&world).is_empty().then_some(()));
        }
        world.run(args).expect(0);
        world.run(["verify"]).expect(0);
        let states: Vec<_> =
            std::fs::read_dir(world.path("run/state")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(states.is_empty(), "{who:?}: state files of the dead are swept: {states:?}");
    }
}

/// Whoever of a running app is killed, at whatever moment from the first one on.
#[derive(Debug, Clone, Copy)]
enum Victim {
    App,
    Init,
    Parent,
    Exec,
}

/// The process ids of a run as the host sees them: the parent's children are inits, theirs are apps; an exec's child is its
/// helper, whose child is the process inside.
fn descendants(parent: u32, depth: u32) -> Vec<u32> {
    let mut level = vec![parent];
    for _ in 0..depth {
        let of = |pid: u32| -> Vec<u32> {
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let lists =
                threads.map(|t| std::fs::read_to_string(t.path().join("children")).unwrap_or_default());
            lists
                .flat_map(|l| l.split(' ').filter_map(|p| p.trim().parse().ok()).collect::<Vec<_>>())
                .collect()
        };
        level = level.into_iter().flat_map(of).collect();
    }
    level
}

pub(crate) fn kill(pid: u32) {
    // SAFETY: two numbers. One that is gone already was this test's own, and a moment ago.
    unsafe { libc::kill(pid as i32, libc::SIGKILL) };
}

#[test]
fn whoever_is_killed_nothing_is_left() {
    let rounds = std::env::var("PLY_TEST_MOMENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(50);
    for who in BOTH {
        let world = shell(who);
        let args = ["run", "./sh", "--", "-c", "sleep 0.05"];
        world.run(args).expect(0);
        let longest = typical(&world, &args).mul_f64(1.5);
        let victims = [Victim::App, Victim::Init, Victim::Parent, Victim::Exec];
        for (moment, victim) in some_moments(rounds / 2, longest).zip(victims.into_iter().cycle()) {
            // It lives longer than any moment, and is asked to end where the victim's end doesn't end it.
            let mut run = world.start(["run", "./sh", "--name", "victim", "--", "-c", "sleep 20"]);
            let parent = run.child.id();
            std::thread::sleep(moment);
            let mut exec = None;
            match victim {
                Victim::Parent => kill(parent),
                Victim::Init => descendants(parent, 1).into_iter().for_each(kill),
                Victim::App => descendants(parent, 2).into_iter().for_each(kill),
                Victim::Exec => {
                    let running = world.start(["exec", "victim", "sleep", "20"]);
                    std::thread::sleep(moment / 4);
                    // The one that was started, its helper, or the process inside, in turn.
                    let deep = (moment.as_micros() % 3) as u32;
                    descendants(running.child.id(), deep).into_iter().for_each(kill);
                    exec = Some(running);
                }
            }
            run.signal(libc::SIGTERM);
            let ended = run.wait(Duration::from_secs(20));
            if let Some(mut exec) = exec {
                exec.wait(Duration::from_secs(20));
            }
            assert!(ended.code != Some(101), "{who:?} {victim:?} at {moment:?}: {ended:?}");
            world.run(["ps"]).expect(0);
            world.run(["gc"]).expect(0);
            let found = || Some(leftovers_after_gc(&world)).filter(|found| !found.is_empty());
            // What the kernel takes away (a mount of a dead process) it may take a moment for.
            let started = Instant::now();
            while let Some(found) = found() {
                assert!(
                    started.elapsed() < Duration::from_secs(5),
                    "{who:?} {victim:?} at {moment:?}: {found:?}"
                );
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        world.run(args).expect(0);
        world.run(["verify"]).expect(0);
    }
}

#[test]
fn killed_builds_leave_no_half_image() {
    let world = World::new(Who::User);
    world.write("app/ply.toml", crate::inside::SHELL);
    for i in 0..60 {
        world.write(
            format!("app/data/{i}"),
            (0..40_000u32).flat_map(|n| (n * (i + 7)).to_le_bytes()).collect::<Vec<_>>(),
        );
    }
    let image = world.path("work/app/sh-1.0.0-linux-x64.img");
    let longest = typical(&world, &["build", "app"]);
    let whole = std::fs::read(&image).unwrap();
    for moment in moments(longest) {
        let _ = std::fs::remove_file(&image);
        kill_after(world.start(["build", "app"]), moment);
        if image.exists() {
            assert!(std::fs::read(&image).unwrap() == whole, "a torn image under the final name");
        }
    }
    world.run(["build", "app"]).expect(0);
    assert!(std::fs::read(&image).unwrap() == whole);
    world.run(["verify"]).expect(0);
}

#[test]
fn killed_fetches_leave_a_store_that_verifies() {
    let world = World::new(Who::User);
    let args = ["fetch", "node@22"];
    let longest = typical(&world, &args);
    for moment in moments(longest) {
        let _ = std::fs::remove_dir_all(world.path("data"));
        world.mkdir("data");
        kill_after(world.start(args), moment);
        world.run(["verify"]).expect(0);
    }
    world.run(args).expect(0);
    world.run(["verify"]).expect(0);
}

#[test]
fn killed_forges_leave_a_registry_that_works() {
    let world = World::new(Who::User);
    // Recipes that need no network: plain files.
    for i in 0..6 {
        world.write(
            format!("packages/p{i}/ply.toml"),
            format!("[package]\nname = \"p{i}\"\nversion = \"1.0.0\"\n"),
        );
        world.write(format!("packages/p{i}/forge.toml"), "kind = \"files\"\n");
        world.write(
            format!("packages/p{i}/files/data"),
            (0..200_000u32).flat_map(|n| (n * (i + 3)).to_le_bytes()).collect::<Vec<_>>(),
        );
    }
    let args = ["forge", "all", "packages", "-o", "minted"];
    let longest = typical(&world, &args);
    for moment in moments(longest) {
        let _ = std::fs::remove_dir_all(world.path("work/minted"));
        kill_after(world.start(args), moment);
        for image in images(&world.path("work/minted")) {
            world.run(["check", &image]).expect(0);
        }
    }
    world.run(args).expect(0);
    assert_eq!(images(&world.path("work/minted")).len(), 6);
    let _ = cache();
}

fn images(dir: &std::path::Path) -> Vec<String> {
    let Ok(packages) = std::fs::read_dir(dir) else { return Vec::new() };
    packages
        .flatten()
        .filter_map(|package| std::fs::read_dir(package.path()).ok())
        .flatten()
        .flatten()
        .map(|file| file.path().display().to_string())
        .filter(|path| path.ends_with(".img"))
        .collect()
}

/// The image that a start of the app takes, and the images that its slots have now, with its run parent.
fn deployed(world: &World, app: &str) -> (String, Vec<String>, Option<u32>) {
    let text = std::fs::read(world.path("data/apps").join(app).join("installed.json")).unwrap();
    let installed: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let rows: serde_json::Value = serde_json::from_str(&world.run(["ps", "--json"]).expect(0).out).unwrap();
    let rows = rows.as_array().unwrap();
    let images = rows.iter().map(|r| r["image"].as_str().unwrap().to_owned()).collect();
    let parent = rows.first().and_then(|r| u32::try_from(r["parent_pid"].as_u64()?).ok());
    (installed["image"].as_str().unwrap().to_owned(), images, parent)
}

#[test]
fn killed_deploys_leave_one_version_or_the_other_and_the_data() {
    #[derive(Debug, Clone, Copy)]
    enum Victim {
        Command,
        Parent,
        /// What the run parent has started: inits, and who brings the image.
        Child,
        App,
    }
    for (who, volume) in BOTH.into_iter().flat_map(|who| [(who, false), (who, true)]) {
        let world = World::new(who);
        let more = if volume { "[run.volumes]\ndata = \"/data\"\n" } else { "" };
        let images = ["1.0.0", "2.0.0"].map(|version| {
            world.write(
                "web/ply.toml",
                format!(
                    "[package]\nname = \"web\"\nversion = \"{version}\"\n[build]\nbase = \"debian@13\"\n[build.dependencies]\nbusybox = \"*\"\n\
                     [run]\nentrypoint = [\"busybox\", \"httpd\", \"-f\", \"-p\", \"80\"]\n[run.health]\nport = 80\n{more}"
                ),
            );
            let image = format!("web-{version}-linux-x64.img");
            world.run(["build", "./web", "-o", &image]).expect(0);
            image
        });
        let flags = [
            "-d",
            "--restart",
            "always",
            "--set",
            "restart.backoff=20ms",
            "--set",
            "restart.max_backoff=20ms",
        ];
        let start = |what: &[&str]| drop(world.run([&["run"], what, &flags].concat()).expect(0));
        start(&[&images[0]]);
        if volume {
            world.run(["exec", "web", "sh", "-c", "echo kept > /data/f"]).expect(0);
        }
        let longest = typical(&world, &["deploy", &images[1]]).mul_f64(1.2);
        let victims = [Victim::Command, Victim::Parent, Victim::Child, Victim::App];
        for (moment, victim) in some_moments(rounds() / 4 + 1, longest).zip(victims.into_iter().cycle()) {
            let (installed, _, parent) = deployed(&world, "web");
            let parent = parent.expect("it runs");
            let next = images.iter().find(|image| **image != installed).unwrap();
            let mut deploy = world.start(["deploy", next]);
            std::thread::sleep(moment);
            match victim {
                Victim::Command => kill(deploy.child.id()),
                Victim::Parent => kill(parent),
                Victim::Child => descendants(parent, 1).into_iter().for_each(kill),
                Victim::App => descendants(parent, 2).into_iter().for_each(kill),
            }
            let ended = deploy.wait(Duration::from_secs(60));
            let at = format!("{who:?} {volume} {victim:?} at {moment:?}: {ended:?}");
            assert!(ended.code != Some(101), "{at}");
            if matches!(victim, Victim::Parent) {
                eventually(&at, Duration::from_secs(10), || {
                    world.run(["gc"]).expect(0);
                    leftovers_after_gc(&world).is_empty().then_some(())
                });
                start(&["--installed", "web"]);
            }
            // Whatever was killed: all of it is one version, and that is what a start takes.
            let now = eventually(&at, Duration::from_secs(60), || {
                let (installed, slots, _) = deployed(&world, "web");
                (slots == [installed.clone()]).then_some(installed)
            });
            assert!(images.contains(&now), "{at}: {now}");
            if volume {
                let kept = eventually(&at, Duration::from_secs(10), || {
                    Some(world.run(["exec", "web", "cat", "/data/f"])).filter(|done| done.code == Some(0))
                });
                assert_eq!(kept.out, "kept\n", "{at}");
            }
        }
        world.run(["stop", "web"]).expect(0);
        world.run(["verify"]).expect(0);
        assert_eq!(leftovers(&world), Vec::<String>::new(), "{who:?} {volume}");
    }
}
