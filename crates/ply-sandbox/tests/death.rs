//! Whoever is killed, at whatever moment: nothing runs, nothing is mounted, and what a folder of the host's
//! remains is swept by the next.

mod common;

use common::{PARENT, World, pipes, unique};
use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

both! {
    a_killed_parent_leaves_nothing
    a_killed_init_ends_the_box
    a_killed_exec_leaves_nothing
}

/// How many moments are tried; more in the long run.
fn moments() -> u32 {
    std::env::var("PLY_TEST_MOMENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(20)
}

/// The processes whose command line holds a word.
fn with_word(word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(word) {
            found.push(format!("{} {line}", entry.file_name().to_string_lossy()));
        }
    }
    found
}

fn init_processes() -> usize {
    let named = |entry: &std::fs::DirEntry| {
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let parent = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        // One whose parent is gone, and who wasn't taken along; a dead one that waits for the host's reaper was.
        name.trim() == "ply-init" && parent.contains("\nPPid:\t1\n") && !parent.contains("\nState:\tZ")
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(named).count()
}

/// Waits until something holds.
fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// This test program again, as a run parent that starts a box and stays.
fn be_a_parent() -> ! {
    let world = World::open(std::env::var_os("PLY_TEST_WORLD").unwrap().into());
    let marker = std::env::var("PLY_TEST_PARENT").unwrap();
    println!("start");
    let (stdio, _out) = pipes();
    let spec = world.spec(&["sh", "-c", &format!("sleep 100 & sleep 101; : {marker}")]);
    let instance = world.launch(&spec, stdio);
    println!(
        "launched {:?}",
        instance.map(|instance| {
            let pid = instance.init().pid;
            std::mem::forget(instance);
            pid
        })
    );
    loop {
        std::thread::park();
    }
}

fn a_killed_parent_leaves_nothing() {
    if std::env::var_os("PLY_TEST_PARENT").is_some() {
        be_a_parent();
    }
    let mode = if rustix::process::geteuid().is_root() { "root_box" } else { "rootless_box" };
    let world = World::new();
    let mounts = || -> Vec<String> {
        let table = std::fs::read_to_string("/proc/mounts").unwrap();
        let here = world.path("").to_string_lossy().into_owned();
        table.lines().filter(|line| line.contains(&here)).map(str::to_owned).collect()
    };
    for moment in 0..moments() {
        let marker = format!("marker-{}", unique());
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args([&format!("{mode}::a_killed_parent_leaves_nothing"), "--exact", "--nocapture"])
            .env("PLY_TEST_PARENT", &marker)
            .env("PLY_TEST_WORLD", world.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(parent.stdout.take().unwrap()).lines();
        while !lines.next().unwrap().unwrap().contains("start") {}
        // From before the clone to after the start.
        std::thread::sleep(Duration::from_micros(u64::from(moment) * 53_000 / u64::from(moments())));
        parent.kill().unwrap();
        parent.wait().unwrap();
        soon("processes", || {
            let left = with_word(&marker);
            left.is_empty()
        });
        soon("inits", || init_processes() == 0);
    }
    // The next one works, wherever the killed ones had come to.
    world.sh("true");
    // The pin of the layers is a cache of the host's, on one line (two where mounts are shared); nothing else may
    // be there.
    let pins = mounts().iter().filter(|line| line.contains("/run/layers nsfs")).count();
    assert_eq!(pins, usize::from(world.host.root), "{:?}", mounts());
    assert!(mounts().iter().all(|line| line.contains("/run/layers ")), "{:?}", mounts());
    if !world.host.root {
        return;
    }
    ply_sandbox::sweep(&world.host, Path::new(PARENT)).unwrap();
    for mount in ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"] {
        let Ok(entries) = std::fs::read_dir(Path::new(mount).join(PARENT)) else { continue };
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.rsplit('.').next().unwrap().split('-').next().unwrap().to_owned();
            assert!(Path::new("/proc").join(&owner).exists(), "the cgroup {name} was left");
        }
    }
}

fn a_killed_init_ends_the_box() {
    let world = World::new();
    for init in [true, false] {
        let marker = format!("marker-{}", unique());
        let mut spec = world.spec(&["sh", "-c", &format!("sleep 100 & sleep 101; : {marker}")]);
        spec.init = init;
        let (stdio, _out) = pipes();
        let mut instance = world.launch(&spec, stdio).unwrap();
        soon("the app", || !with_word(&marker).is_empty());
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(instance.init().pid).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        assert_eq!(instance.wait().unwrap(), ply_sandbox::Exit::Signal(9));
        assert_eq!(with_word(&marker), Vec::<String>::new());
    }
}

fn a_killed_exec_leaves_nothing() {
    let world = World::new();
    let (stdio, _out) = pipes();
    let mut instance = world.launch(&world.spec(&["sleep", "100"]), stdio).unwrap();
    let marker = format!("marker-{}", unique());
    let (stdio, _readers) = pipes();
    let argv = ["sh", "-c", &format!("sleep 50; : {marker}")].map(str::to_owned);
    let exec = ply_sandbox::exec(instance.target(), &argv, stdio).unwrap();
    soon("the process", || !with_word(&marker).is_empty());
    drop(exec);
    soon("its end", || with_word(&marker).is_empty());
    assert_eq!(instance.try_wait().unwrap(), None);
}
