//! Limits that hold, by the kernel's own count: as root, and as a user whose systemd delegates.

use super::{BOTH, eventually};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn memory_past_the_limit_is_killed_and_said() {
    for who in BOTH {
        // A leak: a word that doubles until it has no room.
        let started = Instant::now();
        let leak = "echo begun; x=12345678; while :; do x=$x$x; done";
        let mut app = who.start("leak", &["--mem", "48M"], leak);
        let code = app.wait();
        let said = app.said();
        assert_eq!(code, 137, "{who:?}: {said}");
        assert!(said.contains("begun"), "{who:?}: {said}");
        let told = said.lines().find(|line| line.contains("memory") && line.contains("48"));
        assert!(told.is_some_and(|line| line.contains("kill")), "{who:?} isn't told why: {said}");
        println!("{who:?}: {:?}", started.elapsed());
        // The story afterwards, which no exit code and no silent port has.
        let why = who.done(&["why", "leak"]).expect(0).out;
        assert!(why.contains("killed: out of memory (exit code 137)") && why.contains("| begun"), "{why}");
    }
}

#[test]
fn memory_within_the_limit_is_left_alone() {
    for who in BOTH {
        let mut app =
            who.start("fits", &["--mem", "48M"], "dd if=/dev/zero of=/tmp/x bs=1M count=16 2>&1; sleep 300");
        let row = app.running();
        let cgroup = row.cgroup();
        eventually("16 MB in /tmp are counted", || {
            (cgroup.read("memory.current").parse::<u64>().unwrap() > 16 << 20).then_some(())
        });
        assert_eq!(cgroup.read("memory.max"), (48 << 20).to_string());
        assert_eq!(cgroup.read("memory.oom.group"), "1");
        let high: u64 = cgroup.read("memory.high").parse().unwrap();
        assert!(high < 48 << 20, "{high}");
        assert_eq!(cgroup.field("memory.events", "oom_kill"), 0);
        app.stop();
        eventually("its cgroup is gone", || cgroup.is_gone().then_some(()));
    }
}

#[test]
fn cpu_stays_within_ten_percent_of_the_quota() {
    for who in BOTH {
        let mut app = who.start("busy", &["--cpu", "0.5"], "while :; do :; done");
        let cgroup = app.running().cgroup();
        // Never more; a host that is busy itself may give less, so the best of a few looks counts.
        let mut looks = Vec::new();
        let near = (0..4).any(|_| {
            let before = (Instant::now(), cgroup.field("cpu.stat", "usage_usec"));
            std::thread::sleep(Duration::from_secs(3));
            let used = cgroup.field("cpu.stat", "usage_usec") - before.1;
            looks.push(used as f64 / before.0.elapsed().as_micros() as f64);
            looks.last().is_some_and(|share| (0.45..0.55).contains(share))
        });
        assert!(near && looks.iter().all(|share| *share < 0.55), "{who:?} {looks:?}");
        assert!(cgroup.field("cpu.stat", "nr_throttled") > 0, "{who:?}");
        println!("{who:?}: {looks:?}");
        app.stop();
    }
}

#[test]
fn a_fork_bomb_meets_its_limit_while_the_host_answers() {
    for who in BOTH {
        let before = answer();
        let bomb = "b() { while :; do b & done; }; b & exec sleep 300";
        let mut app = who.start("bomb", &["--pids", "60", "--cpu", "1"], bomb);
        let cgroup = app.running().cgroup();
        assert_eq!(cgroup.read("pids.max"), "60");
        eventually("the bomb fills its room", || {
            (cgroup.read("pids.current").parse::<u32>().unwrap() > 50).then_some(())
        });
        let during = answer();
        assert!(cgroup.read("pids.current").parse::<u32>().unwrap() <= 60, "{who:?}");
        // Beside the same in quiet: how fast this host is says nothing.
        assert!(
            during < before * 8 + Duration::from_millis(200),
            "{who:?}: {before:?} before, {during:?} during"
        );
        println!("{who:?}: {before:?} before, {during:?} during");
        app.stop();
        eventually("nothing of it is left", || cgroup.is_gone().then_some(()));
    }
}

/// How long the host takes to start and end a program: the median of a few.
fn answer() -> Duration {
    let mut took: Vec<Duration> = (0..15)
        .map(|_| {
            let started = Instant::now();
            assert!(Command::new("/bin/true").status().unwrap().success());
            started.elapsed()
        })
        .collect();
    took.sort();
    took[took.len() / 2]
}
