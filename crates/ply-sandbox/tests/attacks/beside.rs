//! The same programs beside others: under bubblewrap, and under Docker's defaults where `PLY_TEST_DOCKER` names the socket
//! of a daemon (`tools/attack-table` starts one). Whatever they stop is stopped here. Prints the table of the security page.

use crate::rows::{End, Row};
use crate::stage::{Got, Stage, call, called, link, results};
use crate::{every_row, names};
use std::os::unix::process::CommandExt;
use std::process::Command;

const PEERS: &str = "beside::what_others_stop_is_stopped_here";
const USER: &str = "beside::results_of_an_ordinary_user";

#[test]
fn what_others_stop_is_stopped_here() {
    if std::env::var_os("PLY_TEST_CALLED").is_none() {
        let link = link();
        // An ordinary user's boxes first: their results go to the run that prints.
        let mut user = call(USER, true, link.path());
        let ran = user.output().unwrap();
        let text = String::from_utf8(ran.stdout).unwrap();
        assert!(ran.status.success(), "{text}\n{}", String::from_utf8_lossy(&ran.stderr));
        let said = text.split("RESULTS\n").nth(1).and_then(|rest| rest.split("END\n").next());
        let mut again = call(PEERS, false, link.path());
        again.env("PLY_TEST_RESULTS", said.unwrap_or_else(|| panic!("{text}")));
        let ran = again.output().unwrap();
        let text = String::from_utf8(ran.stdout).unwrap();
        assert!(ran.status.success(), "{text}\n{}", String::from_utf8_lossy(&ran.stderr));
        println!("{}", text.split("TABLE\n").nth(1).unwrap_or(&text));
        return;
    }
    let stage = Stage::new();
    let rows = every_row(&stage);
    let ours = stage.launch(stage.spec(), &[], &names(&rows));
    let users = results(&std::env::var("PLY_TEST_RESULTS").unwrap(), &names(&rows));
    let bubblewrap = bubblewrap(&stage, &rows);
    let docker = std::env::var("PLY_TEST_DOCKER").ok().map(|socket| docker(&stage, &rows, &socket));

    let mut worse = Vec::new();
    println!("TABLE");
    println!("| attack | what it tries | stopped by any of | ply, root | ply, user | Docker | bubblewrap |");
    println!("|---|---|---|---|---|---|---|");
    let texts = texts();
    for (index, row) in rows.iter().enumerate() {
        let name = row.name.split('=').next().unwrap();
        let theirs = docker.as_ref().map(|docker| docker[index]);
        let what = &texts.iter().find(|(known, _)| known == name).unwrap().1;
        let (a, b, d) = (say(ours[index]), say(users[index]), say(bubblewrap[index]));
        println!(
            "| `{name}` | {what} | {} | {a} | {b} | {} | {d} |",
            by(row),
            theirs.map_or("not run".into(), say)
        );
        let stopped = |got: Option<Got>| got.is_some_and(|got| got != Got::Through);
        let through = ours[index] == Got::Through || users[index] == Got::Through;
        if through && (stopped(theirs) || stopped(Some(bubblewrap[index]))) {
            worse.push(name);
        }
    }
    println!();
    assert_eq!(worse, Vec::<&str>::new());
}

/// What the other test prints for an ordinary user's boxes.
#[test]
fn results_of_an_ordinary_user() {
    if !called(USER, true) {
        return;
    }
    let stage = Stage::new();
    let rows = every_row(&stage);
    println!("RESULTS");
    for (row, got) in rows.iter().zip(stage.launch(stage.spec(), &[], &names(&rows))) {
        let name = row.name.split('=').next().unwrap();
        match got {
            Got::Through => println!("{name} through"),
            Got::Stopped(errno) => println!("{name} {errno}"),
            Got::Killed(signal) => println!("{name} signal {signal}"),
        }
    }
    println!("END");
}

fn say(got: Got) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESRCH, "ESRCH"),
        (libc::EBADF, "EBADF"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::EACCES, "EACCES"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::ENODEV, "ENODEV"),
        (libc::EINVAL, "EINVAL"),
        (libc::EMFILE, "EMFILE"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EROFS, "EROFS"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ENODATA, "ENODATA"),
        (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
    ];
    match got {
        Got::Through => "**through**".into(),
        Got::Stopped(errno) => {
            let name = NAMES.iter().find(|(number, _)| *number == errno);
            name.map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).into())
        }
        Got::Killed(signal) => format!("signal {signal}"),
    }
}

/// What stops it here: any of our defences alone, or something else.
fn by(row: &Row) -> String {
    match row.end {
        End::Elsewhere(why, _) if row.by.is_empty() => why.into(),
        _ => row.by.iter().map(|defence| format!("{defence:?}")).collect::<Vec<_>>().join(", "),
    }
}

/// What each attack tries, by its own words.
fn texts() -> Vec<(String, String)> {
    let list = Command::new(crate::common::attack()).arg0("attack").arg("list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    list.lines().map(|line| line.split_once('\t').unwrap()).map(|(a, b)| (a.into(), b.into())).collect()
}

fn run(mut command: Command, rows: &[&'static Row]) -> Vec<Got> {
    let ran = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(ran.status.success(), "{command:?}: {ran:?}");
    results(&String::from_utf8(ran.stdout).unwrap(), &names(rows))
}

/// An ordinary user's, root inside, everything of its own that it has.
fn bubblewrap(stage: &Stage, rows: &[&'static Row]) -> Vec<Got> {
    let (uid, gid) = crate::common::user();
    let tree = stage.world.path("tree-of-the-user");
    let copied = Command::new("cp").arg("-a").arg(stage.world.path("tree")).arg(&tree).status().unwrap();
    let owned = Command::new("chown").args(["-Rh", &format!("{uid}:{gid}")]).arg(&tree).status().unwrap();
    assert!(copied.success() && owned.success());
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--uid", "0", "--gid", "0", "--bind"]).arg(&tree).arg("/");
    command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind"]);
    command.arg(&stage.link.source).args(["/opt/link", "/bin/attack"]).args(&stage.argv(&names(rows))[1..]);
    command.env_clear().current_dir("/");
    // SAFETY: system calls only. The caller's groups stay, as they do for whoever types the command.
    unsafe {
        command.pre_exec(move || {
            for failed in [libc::setresgid(gid, gid, gid), libc::setresuid(uid, uid, uid)] {
                if failed != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    run(command, rows)
}

/// `docker run` of the same tree, with nothing said but a read-only folder.
fn docker(stage: &Stage, rows: &[&'static Row], socket: &str) -> Vec<Got> {
    let docker = || {
        let mut command = Command::new("docker");
        command.args(["-H", socket]);
        command
    };
    let mut tar = Command::new("tar");
    let tar = tar.arg("-C").arg(stage.world.path("tree")).args(["-cf", "-", "."]);
    let mut tar = tar.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let imported =
        docker().args(["import", "-", "ply-attacks"]).stdin(tar.stdout.take().unwrap()).output().unwrap();
    assert!(tar.wait().unwrap().success() && imported.status.success(), "{imported:?}");
    let mut command = docker();
    command.args(["run", "--rm", "--network", "none", "-v"]);
    command.arg(format!("{}:/opt/link:ro", stage.link.source.display())).args(["ply-attacks", "/bin/attack"]);
    command.args(&stage.argv(&names(rows))[1..]);
    run(command, rows)
}
