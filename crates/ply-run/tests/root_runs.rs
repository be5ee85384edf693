//! Whole runs, black box: the real box, the real run parent, as root and as an unprivileged user. They need root
//! (and the user `plytest` with a range of ids), and fail without: `tools/world cargo test -p ply-run`.

mod common;

use common::{Who, World};
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Runs a body once as root and once as an ordinary user.
fn both(body: impl Fn(&World)) {
    for who in [Who::Root, Who::User] {
        let world = World::new(who);
        body(&world);
        world.assert_nothing_left();
    }
}

#[test]
fn streams_are_apart_input_comes_in_and_the_code_comes_back() {
    both(|world| {
        let script = "read line; echo \"got $line\"; echo problem >&2; exit 3";
        let mut child =
            world.mini(&["run", "./app", "--", "-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"a line\n").unwrap();
        let done = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), "got a line\n");
        assert_eq!(String::from_utf8_lossy(&done.stderr), "problem\n");
        assert_eq!(done.status.code(), Some(3));
        let (code, out, _) = world.run(&["run", "./app", "--", "-c", "kill -USR1 $$; sleep 5"]);
        assert_eq!((code, out.as_str()), (128 + 10, ""));
    });
}

#[test]
fn dev_stdout_opens_for_any_user() {
    both(|world| {
        let script = "id -u; echo ok > /dev/stdout; cat /dev/stdin; touch $HOME/file && echo home";
        let (code, out, err) = world.run(&["run", "./app", "--user", "app:1000:1000", "--", "-c", script]);
        assert_eq!((code, out.as_str(), err.as_str()), (0, "1000\nok\nhome\n", ""));
    });
}

#[test]
fn several_slots_are_prefixed_and_the_first_code_that_is_not_0_counts() {
    both(|world| {
        let script = "hostname; case $(hostname) in bb-2) exit 7;; bb-3) exit 8;; esac";
        let (code, out, _) = world.run(&["run", "./app", "--scale", "3", "--", "-c", script]);
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["bb.1 | bb-1", "bb.2 | bb-2", "bb.3 | bb-3"]);
        assert_eq!(code, 7);
    });
}

#[test]
fn signals_ask_once_then_kill() {
    both(|world| {
        // Asked, it ends by itself: that is well.
        let trap = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done";
        let mut run = world.start(&["run", "./app", "--", "-c", trap], "up");
        run.signal(libc::SIGINT);
        let (code, out) = run.finish();
        assert_eq!((code, out.as_str()), (0, "up\nbye\n"));
        // It dies of the stop signal: as asked.
        let mut run = world.start(&["run", "./app", "--", "-c", "echo up; exec sleep 100"], "up");
        run.signal(libc::SIGTERM);
        assert_eq!(run.finish().0, 0);
        // It doesn't stop: it is killed when its time is over.
        let deaf = "trap '' TERM; echo up; while :; do sleep 0.05; done";
        let mut run = world.start(&["run", "./app", "--stop-timeout", "300ms", "--", "-c", deaf], "up");
        let began = Instant::now();
        run.signal(libc::SIGTERM);
        run.signal(libc::SIGTERM);
        assert_eq!(run.finish().0, 137);
        assert!(began.elapsed() >= Duration::from_millis(300));
        // A second interrupt doesn't wait: no test is that patient.
        let mut run = world.start(&["run", "./app", "--stop-timeout", "1h", "--", "-c", deaf], "up");
        run.signal(libc::SIGINT);
        std::thread::sleep(Duration::from_millis(100));
        run.signal(libc::SIGINT);
        assert_eq!(run.finish().0, 137);
        // USR1 is the app's.
        let user = "trap 'echo usr1; exit 4' USR1; echo up; while :; do sleep 0.05; done";
        let mut run = world.start(&["run", "./app", "--", "-c", user], "up");
        run.signal(libc::SIGUSR1);
        assert_eq!(run.finish(), (4, "up\nusr1\n".to_owned()));
    });
}

#[test]
fn one_run_parent_a_name_and_commands_to_it() {
    both(|world| {
        let run =
            world.start(&["run", "./app", "--name", "web", "--", "-c", "echo up; exec sleep 100"], "up");
        let pid = run.pid();
        let (code, _, err) = world.run(&["run", "./app", "--name", "web"]);
        assert_eq!(code, 125);
        assert!(
            err.contains(&format!("error: web runs already: its run parent is process {pid}\n")),
            "{err}"
        );
        let (_, out, _) = world.run(&["ps"]);
        assert!(out.starts_with("web.1 running"), "{out}");
        let (code, out, err) =
            world.run(&["exec", "web.1", "sh", "-c", "echo $GREETING; echo e >&2; exit 9"]);
        assert_eq!((code, out.as_str(), err.as_str()), (9, "hello\n", "e\n"));
        let (code, _, err) = world.run(&["exec", "web.2", "true"]);
        assert_eq!(code, 125);
        assert!(err.starts_with("error: web.2 does not run\n"), "{err}");
        assert_eq!(world.run(&["stop", "web"]).0, 0);
        assert_eq!(run.finish().0, 0);
        let (code, _, err) = world.run(&["stop", "web"]);
        assert_eq!((code, err.lines().next()), (125, Some("error: nothing runs under the name web")));
        assert_eq!(world.run(&["logs", "web"]).1, "up\n");
        assert_eq!(world.run(&["rm", "web"]).0, 0);
        let (code, _, err) = world.run(&["logs", "web"]);
        assert_eq!((code, err.lines().next()), (125, Some("error: there is no log of web")));
    });
}

#[test]
fn in_the_background_it_runs_on_and_failing_at_once_is_said() {
    both(|world| {
        let (code, _, err) = world.run(&["run", "./app", "--name", "bg", "-d", "--", "-c", "exec sleep 100"]);
        assert_eq!(code, 0, "{err}");
        assert!(err.starts_with("bg runs in the background\n"), "{err}");
        assert!(world.run(&["ps"]).1.starts_with("bg.1 running"));
        assert_eq!(world.run(&["stop", "bg"]).0, 0);
        let (code, _, err) =
            world.run(&["run", "./app", "--name", "bg", "-d", "--", "-c", "echo why >&2; exit 5"]);
        assert_eq!(code, 5);
        assert!(err.starts_with("error: bg ended at once, with exit code 5\n    why\n"), "{err}");
        let (code, _, err) = world.run(&["run", "./app", "-d", "--publish", "127.0.0.1:0"]);
        assert_eq!(code, 2, "{err}");
    });
}

#[test]
fn a_volume_starts_as_in_the_image_keeps_its_data_and_is_never_removed_in_use() {
    both(|world| {
        let user = ["--user", "app:1000:1000", "--volume", "data:/opt/bb/seed"];
        let args = |script: &'static str| [&["run", "./app"][..], &user, &["--", "-c", script]].concat();
        let (code, out, err) = world.run(&args(
            "cat /opt/bb/seed/first; stat -c %u /opt/bb/seed/first; echo new > /opt/bb/seed/second",
        ));
        assert_eq!((code, out.as_str()), (0, "from the image\n1000\n"), "{err}");
        let (_, out, _) = world.run(&args("cat /opt/bb/seed/second"));
        assert_eq!(out, "new\n");
        // A second slot beside data is said loudly.
        let two = [&["run", "./app", "--scale", "2"][..], &user, &["--", "-c", "ls /opt/bb/seed"]].concat();
        let (_, _, err) = world.run(&two);
        assert!(err.contains("WARNING: bb.2 starts on a new, empty volume \"data\""), "{err}");
        let mut run = world.start(&args("echo up; exec sleep 100"), "up");
        let (code, _, err) = world.run(&["volume-rm", "bb/data.1"]);
        assert_eq!(code, 125);
        assert!(err.starts_with("error: the volume bb/data.1 is in use\n"), "{err}");
        run.signal(libc::SIGTERM);
        run.finish();
        assert_eq!(world.run(&["rm", "bb", "--volumes"]).0, 0);
        assert!(!world.path("data/volumes/bb").exists());
    });
}

#[test]
fn a_link_shows_the_owners_files_as_the_run_users_rootful() {
    let world = World::new(Who::Root);
    let shared = world.path("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::write(shared.join("theirs"), "text").unwrap();
    std::os::unix::fs::chown(&shared, Some(4242), Some(4343)).unwrap();
    std::os::unix::fs::chown(shared.join("theirs"), Some(4242), Some(4343)).unwrap();
    let script = "stat -c %u:%g /srv/x/theirs; echo mine > /srv/x/mine; echo no > /srv/ro/z || echo refused";
    let links = ["--link", "./shared:/srv/x", "--link", "./shared:/srv/ro:ro", "--user", "app:1000:1001"];
    let (code, out, err) = world.run(&[&["run", "./app"][..], &links, &["--", "-c", script]].concat());
    assert_eq!((code, out.as_str()), (0, "1000:1001\nrefused\n"), "{err}");
    let made = std::fs::metadata(shared.join("mine")).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!((made.uid(), made.gid()), (4242, 4343));
    world.assert_nothing_left();
}

#[test]
fn a_published_port_leads_inside_and_tells_what_is_wrong() {
    both(|world| {
        let port = common::free_port();
        let publish = format!("127.0.0.1:{port}:3000");
        let script = "busybox httpd -p 127.0.0.1:3000 -h /opt/bb/seed; echo up; exec sleep 100";
        let mut run = world.start(&["run", "./app", "--publish", &publish, "--", "-c", script], "up");
        for _ in 0..20 {
            assert!(common::get(port).ends_with("from the image\n"));
        }
        let (code, _, err) = world.run(&["run", "./app", "--name", "other", "--publish", &publish]);
        assert_eq!(code, 125);
        assert!(err.contains(&format!("error: port {port} is in use by the app bb\n")), "{err}");
        assert!(err.contains("is free: --publish "), "{err}");
        run.signal(libc::SIGTERM);
        run.finish();
        // Nobody listens inside: the client sees the end, the user is told.
        let mut run = world
            .start(&["run", "./app", "--publish", &publish, "--", "-c", "echo up; exec sleep 100"], "up");
        // One that has just started is given time; then it is said, once.
        assert_eq!(common::get(port), "");
        std::thread::sleep(Duration::from_millis(3_200));
        assert_eq!(common::get(port), "");
        assert_eq!(common::get(port), "");
        std::thread::sleep(Duration::from_millis(100));
        run.signal(libc::SIGTERM);
        assert_eq!(run.finish_all().2.matches("nothing listens on port 3000 in bb.1\n").count(), 1);
    });
}

#[test]
fn a_terminal_of_its_own_is_given_back_on_every_exit() {
    both(|world| {
        let script = "stty size; tty; test -t 0 -a -t 1 -a -t 2 && echo all; read line; echo \"got $line\"";
        let mut screen = world.terminal(&["run", "./app", "-t", "--", "-c", script]);
        screen.wait_for("all");
        assert!(!screen.echoes(), "it is raw while the app runs");
        screen.type_text("typed\r");
        screen.wait_for("got typed");
        assert_eq!(screen.finish(), 0);
        assert!(screen.seen.contains("24 80"), "{}", screen.seen);
        assert!(screen.echoes(), "it is as it was");
        // A new size is the app's.
        let script = "trap 'stty size; exit 0' WINCH; echo up; while :; do sleep 0.05; done";
        let mut screen = world.terminal(&["run", "./app", "-t", "--", "-c", script]);
        screen.wait_for("up");
        screen.resize(40, 100);
        screen.wait_for("40 100");
        assert_eq!(screen.finish(), 0);
        // Three keys stop it; one is the app's.
        let mut screen = world.terminal(&["run", "./app", "-t", "--", "-c", "echo up; exec cat -v"]);
        screen.wait_for("up");
        screen.type_text("\x1d\r");
        screen.wait_for("^]");
        screen.type_text("\x1d\x1d\x1d");
        assert_eq!(screen.finish(), 0);
        assert!(screen.echoes());
        // Stopped from outside.
        let mut screen = world.terminal(&["run", "./app", "-t", "--", "-c", "echo up; exec sleep 100"]);
        screen.wait_for("up");
        screen.signal(libc::SIGTERM);
        assert_eq!(screen.finish(), 0);
        assert!(screen.echoes());
    });
}

#[test]
fn an_interrupt_typed_at_the_terminal_is_one_stop_signal_for_the_app() {
    both(|world| {
        let script = "trap 'echo interrupted' INT; trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; done";
        // Were it not asked, it would be waited for longer than this test does.
        let mut screen = world.terminal(&["run", "./app", "--stop-timeout", "1h", "--", "-c", script]);
        screen.wait_for("up");
        screen.type_text("\x03");
        assert_eq!(screen.finish(), 0);
        assert!(screen.seen.contains("asked") && !screen.seen.contains("interrupted"), "{}", screen.seen);
        assert!(screen.echoes());
    });
}

#[test]
fn a_stopped_exec_holds_nothing() {
    both(|world| {
        let run =
            world.start(&["run", "./app", "--name", "web", "--", "-c", "echo up; exec sleep 100"], "up");
        let mut exec = world
            .mini(&["exec", "web", "sh", "-c", "echo in; exec sleep 100"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 3];
        exec.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        // As Ctrl-Z at its terminal does.
        common::send(exec.id(), libc::SIGSTOP);
        assert_eq!(world.run(&["stop", "web"]).0, 0);
        assert_eq!(run.finish().0, 0);
        common::send(exec.id(), libc::SIGCONT);
        assert_eq!(exec.wait().unwrap().code(), Some(137));
    });
}

#[test]
fn a_stuck_reader_holds_the_app_but_not_a_stop() {
    both(|world| {
        let script = "echo up >&2; while :; do echo some text of a line; done";
        let mut child = world
            .mini(&["run", "./app", "--", "-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 3];
        child.stderr.as_mut().unwrap().read_exact(&mut first).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let began = Instant::now();
        common::send(child.id(), libc::SIGINT);
        std::thread::sleep(Duration::from_millis(200));
        common::send(child.id(), libc::SIGINT);
        // Nobody ever reads its output.
        while child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < Duration::from_secs(120), "it still waits for its reader");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_app() {
    both(|world| {
        let mut child = world
            .mini(&["run", "./app", "--", "-c", "while echo line; do :; done; echo $? >&2"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut first = [0; 5];
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut first).unwrap();
        drop(out);
        let status = common::wait_at_most(&mut child, common::PATIENCE);
        assert_eq!(status.code(), Some(128 + libc::SIGPIPE));
    });
}

#[test]
fn refusals_are_one_sentence_with_a_hint_before_anything_is_made() {
    both(|world| {
        let cases: &[(&[&str], u8, &str)] = &[
            (&["run", "./nowhere"], 125, "error: there is nothing at "),
            (
                &["run", "./app", "--entrypoint", "bsybox"],
                127,
                "error: the entrypoint isn't in bb-1.0.0-linux-x64.img: bsybox\nhint: did you mean \"busybox\"?\n",
            ),
            (
                &["run", "./app", "--entrypoint", "/opt/bb/seed/first"],
                126,
                "error: the entrypoint can't be executed: /opt/bb/seed/first is not marked as executable in bb-1.0.0-linux-x64.img\n",
            ),
            (
                &["run", "./app", "--domain", "x.test"],
                2,
                "error: this version of ply can't do it yet: --domain\n",
            ),
            (
                &["run", "./app", "--user", "nobody-here"],
                125,
                "error: the image has no user of the name \"nobody-here\"\n",
            ),
            (
                &["run", "./app", "-e", "NOT_SET_ANYWHERE"],
                2,
                "error: -e NOT_SET_ANYWHERE: your environment has no variable of that name\n",
            ),
            (&["run", "./app", "--link", "./gone:/x"], 125, "error: a link's host path can't be used: "),
            (&["run", "./app", "-t", "--scale", "2"], 2, "error: -t is for a single instance\n"),
            (&["run", "./app", "--set", "workdri=/x"], 2, "error: --set workdri=/x: "),
            (
                &["run", "./layer"],
                125,
                "error: lib is a layer: files for apps that depend on it, nothing to run\nhint: add it to an app: ply add lib@1.0.0\n",
            ),
            (&["run", "./stack"], 125, "is a composition: several apps, wired\n"),
            (&["run", "docker://redis"], 2, "error: this version of ply can't do it yet: docker://redis\n"),
            (&["run", "--installed", "nothing"], 125, "error: nothing is installed under the name nothing\n"),
            (&["run", "./torn.img"], 125, "error: "),
        ];
        for (args, expected, text) in cases {
            let (code, out, err) = world.run(args);
            assert!(err.contains(text), "{args:?}: {err}");
            assert_eq!((code, out.as_str()), (i32::from(*expected), ""), "{args:?}: {err}");
        }
    });
}

#[test]
fn what_was_installed_runs_again_by_its_name() {
    both(|world| {
        let echo = ["--", "-c", "echo $GREETING"];
        assert_eq!(world.run(&[&["run", "./app", "--name", "kept"][..], &echo].concat()).1, "hello\n");
        std::fs::rename(world.path("app"), world.path("moved")).unwrap();
        assert_eq!(world.run(&[&["run", "--installed", "kept"][..], &echo].concat()).1, "hello\n");
        std::fs::rename(world.path("moved"), world.path("app")).unwrap();
    });
}

#[test]
fn a_dev_overlay_lies_over_the_app_and_never_in_its_image() {
    both(|world| {
        let overlay = "entrypoint = [\"busybox\", \"sh\", \"-c\", \"echo $GREETING; cat /opt/bb/extra/first\"]\n\
                       links = [\"seed:extra\"]\n[env]\nGREETING = \"from dev\"\n";
        std::fs::write(world.path("app/ply.dev.toml"), overlay).unwrap();
        assert_eq!(world.run(&["run", "./app"]).1, "from dev\nfrom the image\n");
        assert_eq!(world.run(&["run", "./app", "-e", "GREETING=flag"]).1, "flag\nfrom the image\n");
        std::fs::remove_file(world.path("app/ply.dev.toml")).unwrap();
    });
}

#[test]
fn a_killed_run_parent_leaves_nothing_that_runs() {
    let rounds = if std::env::var_os("PLY_LONG").is_some() { 200 } else { 20 };
    for who in [Who::Root, Who::User] {
        let world = World::new(who);
        // The image is in the store, so that the moments fall into the launch and the run.
        assert_eq!(world.run(&["run", "./app", "--", "-c", ":"]).0, 0);
        let mut random = common::Random::new();
        eprintln!("seed {}", random.seed);
        let mark = format!("{}.5", 100_000 + std::process::id());
        let script =
            format!("busybox sleep {mark} & busybox setsid busybox sleep {mark} & exec busybox sleep {mark}");
        for round in 0..rounds {
            let args = ["run", "./app", "--scale", "2", "--volume", "data:/d", "--", "-c", &script];
            let mut child = world
                .mini(&args)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_micros(random.below(120_000)));
            child.kill().unwrap();
            child.wait().unwrap();
            let gone = common::soon(common::PATIENCE, || common::processes_with(&mark).is_empty());
            assert!(gone, "round {round}: {:?}", common::processes_with(&mark));
        }
        // The next one works, and sweeps.
        let (code, out, err) = world.run(&["run", "./app", "--volume", "data:/d", "--", "-c", "echo works"]);
        assert_eq!((code, out.as_str()), (0, "works\n"), "{err}");
        world.assert_nothing_left();
    }
}
