//! The run parent's promises with real boxes, as root and as an unprivileged user: restarts, health gates, scaling and
//! rolls under load. They need root (and the user `plytest`), and fail without: `tools/world cargo test -p ply-run`.

#[allow(dead_code, reason = "shared with the other black-box tests")]
mod common;

use common::{Who, World, free_port, get, soon};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

/// Runs a body once as root and once as an ordinary user.
fn both(body: impl Fn(&World)) {
    for who in [Who::Root, Who::User] {
        let world = World::new(who);
        body(&world);
        world.assert_nothing_left();
    }
}

fn events(world: &World) -> String {
    std::fs::read_to_string(world.path("data/events.log")).unwrap_or_default()
}

#[test]
fn a_crashing_app_is_started_again_with_growing_pauses_and_a_stop_ends_it() {
    both(|world| {
        let quick = ["run", "./app", "--restart", "on-failure", "--set", "restart.backoff=20ms"];
        let args = [&quick[..], &["--", "-c", "echo up; exit 3"]].concat();
        let mut run = world.start(&args, "up\nup\nup\nup");
        let (_, out, _) = world.run(&["ps"]);
        assert!(out.starts_with("bb.1 ") && !out.ends_with(" 0\n"), "{out}");
        run.signal(libc::SIGTERM);
        let (code, _, err) = run.finish_all();
        assert_eq!(code, 3, "{err}");
        assert!(err.contains("bb.1 ended with exit code 3, started again in 2"), "{err}");
        let pauses: Vec<u64> = events(world)
            .lines()
            .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap())
            .filter_map(|e| e["again_in_ms"].as_u64())
            .collect();
        assert!(pauses.len() >= 3 && pauses.is_sorted(), "{pauses:?}");
        assert!((20..=22).contains(&pauses[0]) && (40..=44).contains(&pauses[1]), "{pauses:?}");
        // What ends well is not a failure.
        let args = [&quick[..], &["--", "-c", "echo up"]].concat();
        assert_eq!(world.run(&args).1, "up\n");
        // A command to one that waits for its next start is taken.
        let args = ["run", "./app", "--restart", "always", "--", "-c", "echo up; exit 0"];
        let run = world.start(&args, "up");
        assert!(soon(SOON, || world.run(&["ps"]).1.starts_with("bb.1 waiting")));
        assert_eq!(world.run(&["stop", "bb"]).0, 0);
        assert_eq!(run.finish().0, 0);
    });
}

#[test]
fn an_app_with_a_health_port_is_healthy_when_it_answers() {
    both(|world| {
        let manifest = std::fs::read_to_string(world.path("app/ply.toml")).unwrap();
        let health = "[run.health]\nport = 3000\ngrace = \"400ms\"\n";
        std::fs::write(world.path("app/ply.toml"), format!("{manifest}{health}")).unwrap();
        // Late for its gate, it is said, and left alone; then it answers.
        let script = "echo up; while [ ! -f /tmp/go ]; do sleep 0.05; done; \
                      exec busybox httpd -f -p 127.0.0.1:3000 -h /opt/bb/seed";
        let mut run = world.start(&["run", "./app", "--", "-c", script], "up");
        let is = |health: &str| soon(SOON, || world.run(&["ps"]).1.contains(&format!(" {health} ")));
        assert!(is("unhealthy"), "{}", world.run(&["ps"]).1);
        assert_eq!(world.run(&["exec", "bb.1", "touch", "/tmp/go"]).0, 0);
        assert!(is("healthy"), "{}", world.run(&["ps"]).1);
        run.signal(libc::SIGTERM);
        let (code, _, err) = run.finish_all();
        assert_eq!(code, 0, "{err}");
        assert!(err.contains("bb.1 is unhealthy: port 3000 does not answer"), "{err}");
        // In the background, the command returns when it is.
        let script = "sleep 0.3; exec busybox httpd -f -p 127.0.0.1:3000 -h /opt/bb/seed";
        let (code, _, err) =
            world.run(&["run", "./app", "-d", "--set", "health.grace=20s", "--", "-c", script]);
        assert_eq!(code, 0, "{err}");
        assert!(world.run(&["ps"]).1.contains(" healthy "), "{}", world.run(&["ps"]).1);
        assert_eq!(world.run(&["stop", "bb"]).0, 0);
    });
}

#[test]
fn scaling_and_a_roll_lose_no_request() {
    both(|world| {
        let port = free_port();
        let publish = format!("127.0.0.1:{port}:3000");
        let script = "echo up; exec busybox httpd -f -p 127.0.0.1:3000 -h /opt/bb/seed";
        let mut run = world.start(&["run", "./app", "--publish", &publish, "--", "-c", script], "up");
        assert!(soon(SOON, || get(port).contains("from the image")));
        let done = std::sync::atomic::AtomicBool::new(false);
        let (asked, failed) = std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let (mut asked, mut failed) = (0, 0);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    asked += 1;
                    failed += u32::from(!get(port).contains("from the image"));
                }
                (asked, failed)
            });
            let (code, out, err) = world.run(&["scale", "bb", "3"]);
            assert_eq!((code, out.as_str(), err.as_str()), (0, "bb goes from 1 to 3 instances\n", ""));
            let healthy = || world.run(&["ps"]).1.matches(" healthy ").count();
            assert!(soon(SOON, || healthy() == 3), "{}", world.run(&["ps"]).1);
            let (code, out, err) = world.run(&["restart", "bb"]);
            assert_eq!(code, 0, "{err}");
            let steps = (1..=3).map(|n| format!("bb.{n} is started anew\nbb.{n} is healthy\n"));
            assert_eq!(out, steps.collect::<String>() + "bb runs anew: 3 instances\n");
            std::fs::write(world.path("data/apps/bb/control/scale"), "2\n").unwrap();
            assert!(soon(SOON, || healthy() == 2 && !world.run(&["ps"]).1.contains("bb.3")));
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            client.join().unwrap()
        });
        assert!(asked > 2, "{asked}");
        assert_eq!(failed, 0, "of {asked}");
        let answer = std::fs::read_to_string(world.path("data/apps/bb/control/last-result")).unwrap();
        assert!(answer.contains("bb goes from 3 to 2 instances"), "{answer}");
        let (code, _, err) = world.run(&["scale", "bb", "0"]);
        assert_eq!(code, 125);
        assert!(err.starts_with("error: the least that bb may have is 1 instance\n"), "{err}");
        run.signal(libc::SIGTERM);
        let (code, _, err) = run.finish_all();
        assert_eq!(code, 0, "{err}");
    });
}

#[test]
fn a_restart_that_fails_says_why_and_an_instance_is_back_soon_after_its_death() {
    both(|world| {
        let volume = ["--volume", "data:/data"];
        let manifest = std::fs::read_to_string(world.path("app/ply.toml")).unwrap();
        std::fs::write(world.path("app/ply.toml"), format!("{manifest}[run.health]\nport = 3000\n")).unwrap();
        let script = "[ -f /data/bad ] && { echo broken; exit 4; }; echo up; \
                      exec busybox httpd -f -p 127.0.0.1:3000 -h /opt/bb/seed";
        let policy = ["--restart", "always", "--set", "restart.backoff=1ms"];
        let args = [&["run", "./app"][..], &volume, &policy, &["--", "-c", script]].concat();
        let mut run = world.start(&args, "up");
        let pid = |world: &World| world.run(&["ps"]).1.split(['(', ')']).nth(1).and_then(|p| p.parse().ok());
        let first: u32 = pid(world).unwrap();
        let began = Instant::now();
        common::send(first, libc::SIGKILL);
        assert!(soon(SOON, || pid(world).is_some_and(|p| p != first)));
        println!("back {:?} after its death, asked by a process each time", began.elapsed());
        assert_eq!(world.run(&["exec", "bb.1", "touch", "/data/bad"]).0, 0);
        let (code, _, err) = world.run(&["restart", "bb"]);
        assert_eq!(code, 125);
        assert!(err.starts_with("error: bb.1 ended with exit code 4 before it was healthy\nhint: "), "{err}");
        run.signal(libc::SIGTERM);
        assert_eq!(run.finish().0, 4);
    });
}

#[test]
fn why_tells_an_exit_and_a_port_that_never_opens_apart() {
    both(|world| {
        let mut follower = world.mini(&["events", "-f"]).spawn().unwrap();
        let args =
            ["run", "./app", "--name", "crash", "--", "-c", "echo first; echo the disk is full >&2; exit 1"];
        assert_eq!(world.run(&args).0, 1);
        let (code, out, err) = world.run(&["why", "crash"]);
        assert_eq!(code, 0, "{err}");
        assert!(out.starts_with("crash does not run\n\nends\n  "), "{out}");
        assert!(out.contains(" crash.1 ended with exit code 1 after "), "{out}");
        assert!(out.contains("\n    | first\n    | the disk is full\n\nchanges\n  "), "{out}");
        let port = format!("127.0.0.1:{}:3000", free_port());
        let script = "echo up; exec busybox httpd -f -p 127.0.0.1:4000 -h /opt/bb/seed";
        let manifest = std::fs::read_to_string(world.path("app/ply.toml")).unwrap();
        let health = "[run.health]\nport = 3000\ngrace = \"200ms\"\n";
        std::fs::write(world.path("app/ply.toml"), format!("{manifest}{health}")).unwrap();
        let args = ["run", "./app", "--name", "deaf", "--publish", &port, "--", "-c", script];
        let run = world.start(&args, "up");
        let story = "deaf.1 unhealthy: port 3000 never answered; it listens on 4000\n";
        assert!(
            soon(SOON, || world.run(&["why", "deaf"]).1.contains(story)),
            "{}",
            world.run(&["why", "deaf"]).1
        );
        let (_, out, _) = world.run(&["why", "deaf"]);
        assert!(out.starts_with("deaf.1 running for ") && !out.contains("ends\n"), "{out}");
        assert_eq!(world.run(&["stop", "deaf"]).0, 0);
        assert_eq!(run.finish().0, 0);
        let (_, out, _) = world.run(&["why", "deaf"]);
        assert!(out.contains(" deaf command stop: stopping\n"), "{out}");
        assert!(out.contains(" deaf.1 ended by signal 15 (exit code 143) after "), "{out}");
        assert!(out.contains(", as asked\n"), "{out}");
        let (code, _, err) = world.run(&["why", "dead"]);
        assert_eq!(code, 125);
        assert!(err.ends_with("hint: did you mean deaf?\n"), "{err}");
        // Who follows has seen it all, in order.
        let (_, all, _) = world.run(&["events"]);
        std::thread::sleep(Duration::from_millis(500));
        follower.kill().unwrap();
        let seen = String::from_utf8(follower.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(seen, all);
    });
}
