//! What a process finds inside its box: its rights, its files, its environment, its streams.

use crate::harness::{BOTH, Who, World};
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

/// An app that is a shell: `ply run ./sh -- -c SCRIPT`.
pub(crate) const SHELL: &str = r#"
[package]
name = "sh"
version = "1.0.0"
[build]
base = "debian@13"
[run]
entrypoint = ["/bin/sh"]
"#;

pub(crate) fn shell(who: Who) -> World {
    shell_with(who, "")
}

/// The shell app with more lines of `[run]`.
pub(crate) fn shell_with(who: Who, more: &str) -> World {
    let world = World::new(who);
    world.write("sh/ply.toml", format!("{SHELL}{more}"));
    world
}

/// Runs a script inside and gives what it printed.
#[track_caller]
pub(crate) fn sh(world: &World, flags: &[&str], script: &str) -> String {
    let mut args = vec!["run", "./sh"];
    args.extend(flags);
    args.extend(["--", "-c", script]);
    world.run(args).expect(0).out
}

#[test]
fn a_process_has_no_rights_and_a_filter() {
    for who in BOTH {
        let status = sh(&shell(who), &[], "cat /proc/self/status");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000")), "{who:?} {set}\n{status}");
        }
        assert!(status.contains("NoNewPrivs:\t1"), "{who:?}\n{status}");
        assert!(status.contains("Seccomp:\t2"), "{who:?}\n{status}");
    }
}

#[test]
fn kept_capabilities_are_exactly_those_asked_for() {
    for who in BOTH {
        let status = sh(&shell(who), &["--capabilities", "chown,net_bind_service"], "cat /proc/self/status");
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            assert!(status.contains(&format!("{set}:\t0000000000000401")), "{who:?} {set}\n{status}");
        }
    }
}

#[test]
fn only_three_descriptors_are_open() {
    for who in BOTH {
        // ls itself holds the folder open as 3.
        let fds = sh(&shell(who), &[], "ls /proc/self/fd");
        assert_eq!(fds, "0\n1\n2\n3\n", "{who:?}");
    }
}

#[test]
fn it_sees_only_itself() {
    for who in BOTH {
        let world = shell(who);
        assert_eq!(sh(&world, &[], "set -- /proc/[0-9]*; echo $#"), "2\n", "{who:?}: init and sh");
        assert_eq!(sh(&world, &[], "hostname").trim(), "sh-1");
        assert_eq!(sh(&world, &["--name", "other"], "hostname").trim(), "other-1");
        assert_eq!(sh(&world, &[], "id -u; id -g; id -G").trim(), "0\n0\n0", "{who:?}");
        assert_eq!(sh(&world, &[], "cat /proc/net/dev | grep -c :").trim(), "1", "{who:?}: loopback alone");
    }
}

#[test]
fn the_host_is_not_there() {
    for who in BOTH {
        let world = shell(who);
        let secret = world.write("host-secret", "nobody reads this");
        let script = format!(
            "cat {} 2>&1; ls /proc/1/root/work 2>&1; cat /proc/1/environ 2>&1; true",
            secret.display()
        );
        let out = sh(&world, &[], &script);
        assert!(!out.contains("nobody reads this"), "{who:?}\n{out}");
        assert!(!out.contains("PLY_DATA_DIR"), "{who:?}\n{out}");
    }
}

#[test]
fn kernel_interfaces_are_masked_or_read_only() {
    for who in BOTH {
        let world = shell(who);
        let script = "for f in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches \
                      /sys/kernel/mm/ksm/run; do \
                      (echo 0 > $f) 2>/dev/null && echo \"$f was written\"; done; \
                      cat /proc/kcore /proc/keys /proc/timer_list 2>/dev/null | head -c 100 | wc -c";
        assert_eq!(sh(&world, &[], script).trim(), "0", "{who:?}");
    }
}

#[test]
fn devices_are_the_harmless_few() {
    for who in BOTH {
        let world = shell(who);
        let listed = sh(&world, &[], "ls /dev");
        assert_eq!(
            listed.split_whitespace().collect::<Vec<_>>(),
            [
                "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
                "urandom", "zero"
            ],
            "{who:?}"
        );
        assert_eq!(
            sh(&world, &[], "head -c 3 /dev/zero | od -An -tx1; echo x > /dev/null; echo done"),
            " 00 00 00\ndone\n"
        );
        let made = world.run(["run", "./sh", "--", "-c", "mknod /tmp/d c 1 3"]);
        assert_ne!(made.code, Some(0), "{who:?}: mknod");
    }
}

#[test]
fn scratch_is_writable_and_gone_afterwards() {
    for who in BOTH {
        let world = shell(who);
        assert_eq!(
            sh(&world, &[], "echo new > /etc/new && echo changed >> /etc/passwd && cat /etc/new"),
            "new\n"
        );
        assert_eq!(sh(&world, &[], "ls /etc/new 2>/dev/null; grep -c changed /etc/passwd; true"), "0\n");
        let mounts = sh(&world, &[], "cat /proc/self/mountinfo");
        for path in [" / / ", " /tmp ", " /var/tmp ", " /dev/shm "] {
            let line =
                mounts.lines().find(|l| l.contains(path)).unwrap_or_else(|| panic!("{path}\n{mounts}"));
            assert!(line.contains("nosuid") && line.contains("nodev"), "{who:?} {line}");
        }
        assert_eq!(sh(&world, &[], "stat -c %a /tmp /var/tmp /dev/shm"), "1777\n1777\n1777\n");
    }
}

#[test]
fn the_environment_has_its_order_and_nothing_else() {
    for who in BOTH {
        let world = shell_with(who, "[run.env]\nA = \"manifest\"\nB = \"manifest\"\nC = \"manifest\"\n");
        world.write("vars", "B=file\nC=file\n# a comment\nQUOTED=\"two words\"\n");
        let mut command = world.ply([
            "run",
            "./sh",
            "--env-file",
            "vars",
            "-e",
            "C=flag",
            "-e",
            "FROM_CALLER",
            "--",
            "-c",
            "env | sort",
        ]);
        command.env("FROM_CALLER", "yes").env("LEAK", "no");
        let out = world.finish(command).expect(0).out;
        let vars: Vec<&str> =
            out.lines().filter(|l| !l.starts_with("PWD=") && !l.starts_with("_=")).collect();
        assert_eq!(
            vars,
            [
                "A=manifest",
                "B=file",
                "C=flag",
                "FROM_CALLER=yes",
                "HOME=/root",
                "LANG=C.UTF-8",
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "QUOTED=two words",
                "TERM=xterm",
            ],
            "{who:?}"
        );
    }
}

#[test]
fn a_user_exists_inside_and_owns_its_volume() {
    for who in BOTH {
        let world = shell_with(who, "user = \"app:1000:1001\"\n[run.volumes]\ndata = \"/var/lib/data\"\n");
        let script =
            "id; cd; pwd; grep app /etc/passwd; stat -c %u:%g /var/lib/data; echo kept > /var/lib/data/f";
        let out = sh(&world, &[], script);
        assert!(
            out.starts_with("uid=1000(app) gid=1001(app) groups=1001(app)\n/home/app\n"),
            "{who:?}\n{out}"
        );
        assert!(out.ends_with("1000:1001\n"), "{who:?}\n{out}");
        assert_eq!(
            sh(&world, &[], "cat /var/lib/data/f; stat -c %u:%g /var/lib/data/f"),
            "kept\n1000:1001\n",
            "{who:?}"
        );
    }
}

#[test]
fn links_show_the_hosts_files_as_the_apps_own() {
    for who in BOTH {
        let world = shell(who);
        world.write("shared/in", "from outside");
        let flags = ["--link", "shared:/srv/shared", "--link", "shared:/srv/ro:ro"];
        let script = "cat /srv/shared/in; echo back > /srv/shared/out; stat -c ' %u' /srv/shared/in; \
                      (echo x > /srv/ro/x) 2>/dev/null || echo read-only";
        assert_eq!(sh(&world, &flags, script), "from outside 0\nread-only\n", "{who:?}");
        let meta = |name: &str| {
            std::os::unix::fs::MetadataExt::uid(&world.path("work/shared").join(name).metadata().unwrap())
        };
        assert_eq!(meta("out"), meta("in"), "{who:?}: what the app wrote is the owner's outside");
        assert_eq!(world.read("shared/out"), "back\n");
    }
}

#[test]
fn an_images_own_link_requests_need_the_operators_word() {
    for who in BOTH {
        let world = World::new(who);
        let host = world.write("asked/file", "granted");
        let dir = host.parent().unwrap().display().to_string();
        world.write("sh/ply.toml", format!("{}\n[run.requests]\nlinks = [\"{dir}:/srv/asked\"]\n", SHELL));
        let without =
            world.run(["run", "./sh", "--", "-c", "cat /srv/asked/file 2>/dev/null; true"]).expect(0);
        assert_eq!(without.out, "", "{who:?}");
        assert!(without.err.contains("--grant-links"), "{who:?}: {}", without.err);
        assert_eq!(sh(&world, &["--grant-links"], "cat /srv/asked/file"), "granted", "{who:?}");
    }
}

#[test]
fn exit_codes_come_back() {
    for who in BOTH {
        let world = shell(who);
        for (script, code) in [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
            assert_eq!(world.run(["run", "./sh", "--", "-c", script]).code, Some(code), "{who:?} {script}");
        }
        let missing = world.run(["run", "./sh", "--entrypoint", "/bin/nothing"]);
        assert_eq!(missing.code, Some(127), "{who:?}\n{}", missing.err);
        let unable = world.run(["run", "./sh", "--entrypoint", "/etc/passwd"]);
        assert_eq!(unable.code, Some(126), "{who:?}\n{}", unable.err);
    }
}

#[test]
fn streams_are_kept_apart_and_input_is_passed_through() {
    for who in BOTH {
        let world = shell(who);
        let done = world.run(["run", "./sh", "--", "-c", "echo out; echo err >&2"]).expect(0);
        assert_eq!((done.out.as_str(), done.err.contains("err\n")), ("out\n", true), "{who:?}");
        let mut command = world.ply(["run", "./sh", "--", "-c", "cat; echo end"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Beside the reading: a slow reader slows the app, and nothing is dropped.
        let mut input = child.stdin.take().unwrap();
        std::thread::spawn(move || input.write_all(&vec![b'x'; 300_000]).unwrap());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.stdout.len(), 300_004, "{who:?}");
    }
}

#[test]
fn init_reaps_and_forwards() {
    for who in BOTH {
        let world = shell(who);
        // Orphans are adopted by init and reaped: no zombie stays.
        let script = "for i in 1 2 3 4 5; do (sleep 0.05 &) ; done; sleep 0.4; \
                      grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l";
        assert_eq!(sh(&world, &[], script).trim(), "0", "{who:?}");
        let mut run = world.start([
            "run",
            "./sh",
            "--stop-signal",
            "quit",
            "--",
            "-c",
            "trap 'echo asked; exit 7' QUIT; echo ready; while :; do sleep 0.05; done",
        ]);
        crate::harness::eventually("ready", Duration::from_secs(10), || {
            run.out().contains("ready").then_some(())
        });
        run.signal(libc::SIGTERM);
        let done = run.wait(Duration::from_secs(5));
        assert!(done.out.contains("asked"), "{who:?} {done:?}");
        assert_eq!(done.code, Some(7), "{who:?}");
    }
}

#[test]
fn limits_on_processes_hold() {
    for who in BOTH {
        let world = shell(who);
        let script =
            "i=0; while [ $i -lt 60 ]; do sleep 2 & i=$((i+1)); done 2>/dev/null; echo started; wait";
        let done = world.run(["run", "./sh", "--pids", "20", "--", "-c", script]);
        assert_ne!(done.code, Some(0), "{who:?}: {}", done.out);
        // What the host allows, where that is lower.
        let host = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert_eq!(sh(&world, &[], "ulimit -c; ulimit -n"), format!("0\n{}\n", host.min(65_536)), "{who:?}");
    }
}

#[test]
fn a_user_without_a_range_is_root_inside_alone() {
    let world = shell(Who::Bare);
    assert_eq!(sh(&world, &[], "id -u; echo fine"), "0\nfine\n");
    let other = world.run(["run", "./sh", "--user", "app:1000:1000", "--", "-c", "id"]);
    assert_eq!(other.code, Some(125), "{}", other.err);
    assert!(other.err.contains("range"), "{}", other.err);
}
