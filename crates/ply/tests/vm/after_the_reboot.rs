//! A machine that went down under running apps: what they left is nobody's. [`leave`] runs last before the reboot
//! (a reset, nothing is stopped or flushed in order), the others after it.

use super::{BOTH, Who, eventually, units};
use std::fs;
use std::path::Path;

/// Run folders that survive a reboot, which the usual ones don't: state files and leases of the dead are there.
fn kept(who: Who) -> [(&'static str, String); 1] {
    [("PLY_RUN_DIR", format!("/var/lib/lane-run-{who:?}"))]
}

fn done(who: Who, keep: bool, args: &[&str]) -> super::Done {
    let mut command = who.ply(args);
    if keep {
        command.envs(kept(who));
    }
    super::done(command)
}

#[test]
fn leave() {
    for who in BOTH {
        for (_, folder) in kept(who) {
            fs::create_dir_all(&folder).unwrap();
            let id = if who == Who::Root { 0 } else { super::USER };
            std::os::unix::fs::chown(&folder, Some(id), Some(id)).unwrap();
        }
        for keep in [false, true] {
            let name = if keep { "kept" } else { "usual" };
            let script = "echo before the reboot; echo x > /scratch; sleep 300";
            done(
                who,
                keep,
                &["run", "-d", "/lane/busybox.img", "--name", name, "--mem", "48M", "--", "sh", "-c", script],
            )
            .expect(0);
            let listed = eventually("it has said something", || {
                let logs = done(who, keep, &["logs", name]).out;
                logs.contains("before the reboot").then(|| done(who, keep, &["ps"]).expect(0).out)
            });
            assert!(listed.contains(&format!("{name}.1")), "{who:?}: {listed}");
        }
    }
    // Units that start with the machine, and to which a new version was deployed.
    for who in BOTH {
        units::enable(who);
        who.done(&["deploy", &units::page(who, "2.0.0")]).expect(0);
        assert_eq!(units::asked(who).as_deref(), Some("2.0.0"), "{who:?}");
    }
    // So that the logs are on the disk: only ply's order of writing is to be tested, not the disk's cache.
    rustix::fs::sync();
}

/// The first by its name: it takes the units away, which nobody of the others expects.
#[test]
fn deployed_last_is_what_a_unit_starts() {
    for who in BOTH {
        let page = eventually("the unit's app answers", || units::asked(who));
        assert_eq!(page, "2.0.0", "{who:?}");
        who.done(&["rollback", "page"]).expect(0);
        assert_eq!(units::asked(who).as_deref(), Some("1.0.0"), "{who:?}");
        units::disable(who);
    }
}

#[test]
fn nothing_is_listed() {
    for who in BOTH {
        for keep in [false, true] {
            assert_eq!(done(who, keep, &["ps", "--json"]).expect(0).out.trim(), "[]", "{who:?} {keep}");
        }
    }
}

#[test]
fn the_logs_are_there() {
    for who in BOTH {
        let logs = done(who, false, &["logs", "usual"]).expect(0).out;
        assert!(logs.contains("before the reboot"), "{who:?}: {logs}");
    }
}

#[test]
fn the_next_run_works_and_leaves_nothing() {
    for who in BOTH {
        for keep in [false, true] {
            let name = if keep { "kept" } else { "usual" };
            let ran = done(
                who,
                keep,
                &["run", "/lane/busybox.img", "--name", name, "--mem", "48M", "--", "sh", "-c", "echo after"],
            );
            assert_eq!(ran.expect(0).out, "after\n", "{who:?} {keep}");
            done(who, keep, &["gc"]).expect(0);
        }
        let (data, run) = match who {
            Who::Root => ("/var/lib/ply", "/run/ply"),
            _ => ("/home/plytest/.local/share/ply", "/run/user/4711/ply"),
        };
        let kept = &kept(who)[0].1;
        for folder in [
            format!("{data}/scratch"),
            format!("{run}/state"),
            format!("{run}/ids"),
            format!("{kept}/state"),
            format!("{kept}/ids"),
        ] {
            let left: Vec<_> =
                fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().file_name()).collect();
            // A lock that nobody holds is no lease.
            let left: Vec<_> = left.iter().filter(|name| !name.to_string_lossy().ends_with("lock")).collect();
            assert!(left.is_empty(), "{who:?}: {folder} holds {left:?}");
        }
    }
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains("/run/layers") && !mounts.contains("/ply/layers"), "{mounts}");
    let cgroups = fs::read_dir("/sys/fs/cgroup/ply")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().is_dir());
    assert_eq!(cgroups.count(), 0);
    assert!(!Path::new("/dev/loop0").exists() || fs::metadata("/sys/block/loop0/loop/backing_file").is_err());
}
