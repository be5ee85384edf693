//! Where the cgroups are, and who gave them: a unit of systemd's, a user's own systemd, nobody.

use super::{BOTH, Cgroup, PATIENCE, Who, done, eventually};
use std::fs;
use std::path::Path;

/// A run in front, as a unit would start it.
const RUN: &str = "/lane/busybox.img --mem 48M --pids 60 --cpu 0.5 -- sh -c";

/// The folder of the user's systemd.
const USERS: &str = "/sys/fs/cgroup/user.slice/user-4711.slice/user@4711.service";

fn limits_hold(cgroup: &Cgroup) {
    assert_eq!(cgroup.read("memory.max"), (48 << 20).to_string());
    assert_eq!(cgroup.read("pids.max"), "60");
    assert_eq!(cgroup.read("cpu.max"), "50000 100000");
}

#[test]
fn a_unit_gives_its_own_subtree() {
    let unit =
        format!("[Service]\nDelegate=yes\nExecStart={} run --name unit {RUN} 'sleep 300'\n", super::ply());
    fs::write("/run/systemd/system/lane-unit.service", unit).unwrap();
    let systemctl = |args: &[&str]| {
        let mut command = Who::Root.command("systemctl");
        command.args(args);
        done(command)
    };
    systemctl(&["daemon-reload"]).expect(0);
    systemctl(&["start", "lane-unit"]).expect(0);
    let row = eventually("the unit's app runs", || {
        let state = systemctl(&["is-active", "lane-unit"]).out;
        assert_eq!(state, "active\n", "{}", systemctl(&["status", "lane-unit"]).out);
        Who::Root.running("unit")
    });
    let own = Path::new("/sys/fs/cgroup/system.slice/lane-unit.service");
    let (app, parent) = (row.cgroup(), Cgroup::of(row.parent));
    assert!(app.0.starts_with(own), "{app:?}");
    assert!(parent.0.starts_with(own), "{parent:?}");
    limits_hold(&app);
    systemctl(&["stop", "lane-unit"]).expect(0);
    assert!(!own.exists());
    let left = systemctl(&["show", "-p", "Result", "-p", "ActiveState", "lane-unit"]).expect(0).out;
    assert!(left.contains("Result=success") && left.contains("ActiveState=inactive"), "{left}");
    assert!(Who::Root.running("unit").is_none());
}

#[test]
fn by_hand_root_has_a_folder_of_plys() {
    let mut app = Who::Root.start("hand", &["--mem", "48M", "--pids", "60", "--cpu", "0.5"], "sleep 300");
    let cgroup = app.running().cgroup();
    assert!(cgroup.0.starts_with("/sys/fs/cgroup/ply"), "{cgroup:?}");
    limits_hold(&cgroup);
    assert!(!app.said().contains("not enforced"), "{}", app.said());
    app.stop();
    assert!(cgroup.is_gone());
}

#[test]
fn a_users_systemd_gives_a_scope() {
    let mut app = Who::User.start("scope", &["--mem", "48M", "--pids", "60", "--cpu", "0.5"], "sleep 300");
    let cgroup = app.running().cgroup();
    assert!(cgroup.0.starts_with(USERS), "{cgroup:?}\n{}", app.said());
    limits_hold(&cgroup);
    assert!(!app.said().contains("not enforced"), "{}", app.said());
    app.stop();
    eventually("the scope is gone", || cgroup.0.parent().is_none_or(|scope| !scope.exists()).then_some(()));
}

#[test]
fn a_users_unit_runs_and_stops() {
    let mut unit = Who::User.command("systemd-run");
    unit.args([
        "--user",
        "--unit=lane-user",
        "-p",
        "Delegate=yes",
        "--",
        &super::ply(),
        "run",
        "--name",
        "userunit",
    ]);
    unit.args(RUN.split(' ')).arg("sleep 300");
    done(unit).expect(0);
    let row = eventually("the user's unit runs", || Who::User.running("userunit"));
    let cgroup = row.cgroup();
    // A user's systemd doesn't mark what it delegates, so the boxes have a scope here too.
    assert!(cgroup.0.starts_with(USERS), "{cgroup:?}");
    limits_hold(&cgroup);
    let mut stop = Who::User.command("systemctl");
    stop.args(["--user", "stop", "lane-user"]);
    done(stop).expect(0);
    eventually("its cgroup is gone", || cgroup.is_gone().then_some(()));
}

#[test]
fn a_user_without_systemd_is_told_what_does_not_hold() {
    let ran =
        Who::Bare.done(&["run", "/lane/busybox.img", "--mem", "48M", "--", "sh", "-c", "echo ran"]).expect(0);
    assert_eq!(ran.out, "ran\n");
    let told: Vec<&str> =
        ran.err.lines().filter(|line| line.starts_with("not enforced on this host: ")).collect();
    assert!(matches!(told[..], [line] if line.contains("mem")), "{}", ran.err);
}

#[test]
fn a_killed_parent_leaves_no_cgroup() {
    for who in BOTH {
        let mut app = who.start("killed", &["--mem", "48M"], "sleep 300 & sleep 301");
        let row = app.running();
        let cgroup = row.cgroup();
        drop(app);
        eventually("its processes are gone", || {
            (!Path::new(&format!("/proc/{}", row.pid)).exists()).then_some(())
        });
        // The next one sweeps.
        who.done(&["run", "/lane/busybox.img", "--name", "next", "--", "sh", "-c", ":"]).expect(0);
        assert!(cgroup.is_gone(), "{who:?}: {cgroup:?} is left, {PATIENCE:?}");
    }
}
