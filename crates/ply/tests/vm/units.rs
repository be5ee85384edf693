//! Apps as units of systemd: `ply systemd` prints one, and systemd keeps the app running, knows when it is ready, and
//! finds out when its run parent doesn't work any more.

use super::{BOTH, Who, eventually};
use std::fs;
use std::path::Path;

/// The sources of a static page server in a version, which is its page.
pub(crate) fn page(who: Who, version: &str) -> String {
    let dir = format!("/var/tmp/page-{who:?}-{version}");
    fs::create_dir_all(format!("{dir}/www")).unwrap();
    fs::copy("/usr/bin/busybox", format!("{dir}/busybox")).unwrap();
    fs::write(format!("{dir}/www/index.html"), version).unwrap();
    let port = port(who);
    let text = format!(
        "[package]\nname = \"page\"\nversion = \"{version}\"\ndescription = \"A page\"\n\
         [run]\nentrypoint = [\"/opt/page/busybox\", \"httpd\", \"-f\", \"-p\", \"{port}\", \"-h\", \"/opt/page/www\"]\n\
         [run.ports]\nweb = {port}\n[run.health]\nport = {port}\n"
    );
    fs::write(format!("{dir}/ply.toml"), text).unwrap();
    let id = if who == Who::Root { 0 } else { super::USER };
    for path in [dir.clone(), format!("{dir}/www")] {
        std::os::unix::fs::chown(path, Some(id), Some(id)).unwrap();
    }
    dir
}

fn port(who: Who) -> u16 {
    if who == Who::Root { 8081 } else { 8082 }
}

/// What the page says, if it answers.
pub(crate) fn asked(who: Who) -> Option<String> {
    let mut wget = who.command("busybox");
    wget.args(["wget", "-q", "-T", "5", "-O", "-", &format!("http://127.0.0.1:{}/", port(who))]);
    let done = super::done(wget);
    (done.code == Some(0)).then_some(done.out)
}

/// `systemctl`, of the machine or of the user.
pub(crate) fn systemctl(who: Who, args: &[&str]) -> super::Done {
    let mut command = who.command("systemctl");
    if who != Who::Root {
        command.arg("--user");
    }
    command.args(args);
    super::done(command)
}

/// Makes the unit of the page's first version and starts it, for now and for every start of the machine.
pub(crate) fn enable(who: Who) {
    let dir = page(who, "1.0.0");
    let publish = port(who).to_string();
    let mut args = vec!["systemd", &dir, "--publish", &publish];
    let folder = if who == Who::Root {
        "/etc/systemd/system".to_owned()
    } else {
        args.push("--user");
        "/home/plytest/.config/systemd/user".to_owned()
    };
    // Where it stays: the lane's own drive comes later than the units of a start.
    fs::copy(super::ply(), "/usr/local/bin/ply.new").unwrap();
    fs::rename("/usr/local/bin/ply.new", "/usr/local/bin/ply").unwrap();
    let mut made = who.command("/usr/local/bin/ply");
    made.args(&args);
    let unit = super::done(made).expect(0).out;
    fs::create_dir_all(&folder).unwrap();
    fs::write(format!("{folder}/ply-page.service"), unit).unwrap();
    if who != Who::Root {
        for path in Path::new(&folder).ancestors().take_while(|p| *p != Path::new("/home/plytest")) {
            std::os::unix::fs::chown(path, Some(super::USER), Some(super::USER)).unwrap();
        }
    }
    systemctl(who, &["daemon-reload"]).expect(0);
    systemctl(who, &["enable", "ply-page"]).expect(0);
    systemctl(who, &["start", "ply-page"]).expect(0);
}

/// A property of the unit.
fn property(who: Who, name: &str) -> String {
    systemctl(who, &["show", "--value", "-p", name, "ply-page"]).expect(0).out.trim().to_owned()
}

fn signal(process: &str, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(process.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// The unit goes, and the app with it.
pub(crate) fn disable(who: Who) {
    systemctl(who, &["disable", "--now", "ply-page"]).expect(0);
    who.done(&["rm", "page"]).expect(0);
}

/// What a clock says is for people only: pauses and gates go by another that nobody sets.
#[test]
fn a_clock_set_back_a_year_changes_nothing() {
    let set = |to: &str| {
        let mut date = Who::Root.command("date");
        date.args(["-s", to]);
        super::done(date).expect(0);
    };
    let (began, clock) = (std::time::Instant::now(), std::time::SystemTime::now());
    let flags =
        ["--restart", "always", "--set", "restart.backoff=100ms", "--set", "restart.max_backoff=100ms"];
    let mut app = Who::Root.start("timeless", &flags, "echo up; sleep 0.2; exit 3");
    let restarts = || {
        let listed = Who::Root.done(&["ps", "--json"]).expect(0).out;
        let rows: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
        let row = rows.into_iter().find(|row| row["name"] == "timeless")?;
        assert!(row["uptime_s"].as_u64().unwrap() < 60, "{row}");
        row["restarts"].as_u64()
    };
    eventually("it is started again", || restarts().filter(|n| *n > 1));
    set("-1 year");
    let before = restarts().unwrap();
    let seen = std::time::Instant::now();
    eventually("it goes on", || restarts().filter(|n| *n > before + 2));
    assert!(seen.elapsed() < std::time::Duration::from_secs(20), "{:?}", seen.elapsed());
    assert!(Who::Root.done(&["why", "timeless"]).expect(0).out.contains("ended with exit code 3"));
    app.stop();
    let now = clock + began.elapsed();
    let seconds = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    set(&format!("@{seconds}"));
}

#[test]
fn a_unit_is_ready_when_its_app_answers_and_comes_back_after_a_kill_and_a_hang() {
    for who in BOTH {
        enable(who);
        // `systemctl start` has waited for it.
        assert_eq!(asked(who).as_deref(), Some("1.0.0"), "{who:?}");
        eventually("its status", || {
            let status = property(who, "StatusText");
            (status == "page-1.0.0-linux-x64.img: 1 of 1 healthy").then_some(())
        });
        let parent = property(who, "MainPID");
        signal(&parent, rustix::process::Signal::KILL);
        eventually("the next run parent answers", || {
            (property(who, "MainPID") != parent).then(|| asked(who)).flatten()
        });
        assert_eq!(property(who, "NRestarts"), "1", "{who:?}");

        // A run parent that does nothing any more is found out.
        let drop_in = if who == Who::Root {
            "/run/systemd/system/ply-page.service.d".to_owned()
        } else {
            format!("/run/user/{}/systemd/user/ply-page.service.d", super::USER)
        };
        fs::create_dir_all(&drop_in).unwrap();
        fs::write(format!("{drop_in}/watchdog.conf"), "[Service]\nWatchdogSec=8\n").unwrap();
        systemctl(who, &["daemon-reload"]).expect(0);
        systemctl(who, &["restart", "ply-page"]).expect(0);
        let parent = property(who, "MainPID");
        signal(&parent, rustix::process::Signal::STOP);
        eventually("the one that hangs is replaced", || {
            (property(who, "MainPID") != parent).then(|| asked(who)).flatten()
        });
        fs::remove_dir_all(&drop_in).unwrap();
        disable(who);
        assert_eq!(property(who, "ActiveState"), "inactive", "{who:?}");
        assert_eq!(asked(who), None, "{who:?}");
    }
}
