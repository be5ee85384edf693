//! What a hostile program tries inside a box: as root and as an ordinary user, from the app and from `exec`, with one
//! defence after the other switched off. The programs are in `attack/`, each named after what it tries; what stops
//! each is in `rows.rs`.

mod beside;
#[path = "../common/mod.rs"]
mod common;
mod launch;
mod rows;
mod stage;

use ply_sandbox::{Defence, without};
use rows::{End, PLAIN, Row, TERMINAL};
use stage::{Got, Stage, called};
use std::collections::BTreeMap;

/// Makes a test of each function twice: called by root, and by an ordinary user.
macro_rules! both {
    ($($name:ident)*) => {
        mod root_box {
            $(#[test]
            fn $name() {
                if $crate::called(concat!("root_box::", stringify!($name)), false) {
                    super::$name();
                }
            })*
        }
        mod rootless_box {
            $(#[test]
            fn $name() {
                if $crate::called(concat!("rootless_box::", stringify!($name)), true) {
                    super::$name();
                }
            })*
        }
    };
}

both! {
    nothing_gets_through
    a_user_gets_no_further
    exec_gets_no_further
    every_capability_gets_no_further_than_its_own_namespaces
    each_defence_alone_stops_what_it_is_for
    a_terminal_takes_no_input_from_inside
}

/// Every attack that this host has an answer to: a user's scratch is a folder without a limit where the kernel can't have
/// it in memory.
fn every_row(stage: &Stage) -> Vec<&'static Row> {
    let host = &stage.world.host;
    let in_memory = host.root || host.kernel.tmpfs_user_xattr;
    let answered = |row: &&Row| in_memory || !rows::OF_SCRATCH_IN_MEMORY.contains(&row.name);
    PLAIN.iter().copied().flatten().filter(answered).collect()
}

fn names(rows: &[&'static Row]) -> Vec<&'static str> {
    rows.iter().map(|row| row.name).collect()
}

/// Each must have been stopped, by one of its errnos.
fn judge(what: &str, rows: &[&Row], got: &[Got]) {
    let mut wrong = String::new();
    for (row, got) in rows.iter().zip(got) {
        if !matches!(got, Got::Stopped(errno) if row.stopped.contains(errno)) {
            wrong += &format!("{}: {got:?}, not one of {:?}\n", row.name, row.stopped);
        }
    }
    assert_eq!(wrong, "", "{what}");
}

fn nothing_gets_through() {
    let stage = Stage::new();
    let rows = every_row(&stage);
    judge("launched", &rows, &stage.launch(stage.spec(), &[], &names(&rows)));
}

fn a_user_gets_no_further() {
    let stage = Stage::new();
    let mut spec = stage.spec();
    spec.process.uid = 1000;
    spec.process.gid = 1000;
    // A file of the root folder isn't this user's to make.
    let rows: Vec<&Row> =
        every_row(&stage).into_iter().filter(|row| !row.name.starts_with("exhaust-")).collect();
    judge("launched", &rows, &stage.launch(spec.clone(), &[], &names(&rows)));
    judge("exec", &rows, &stage.exec(spec.clone(), &[], &names(&rows)));
    let more = ["setuid-root", "setuid-file", "setgroups"];
    assert_eq!(stage.launch(spec.clone(), &[], &more), [Got::Stopped(libc::EPERM); 3]);
    // Either of these alone makes a setuid file a plain one. (Without the last there is no filter either.)
    let both = [Defence::NoSetuid, Defence::NoNewPrivs, Defence::Filter];
    for (off, expected) in [
        (&both[..1], Got::Stopped(libc::EPERM)),
        (&both[1..], Got::Stopped(libc::EPERM)),
        (&both, Got::Through),
    ] {
        assert_eq!(stage.launch(spec.clone(), off, &["setuid-file"]), [expected], "{off:?}");
    }
}

fn exec_gets_no_further() {
    let stage = Stage::new();
    let rows = every_row(&stage);
    judge("exec", &rows, &stage.exec(stage.spec(), &[], &names(&rows)));
}

fn every_capability_gets_no_further_than_its_own_namespaces() {
    let stage = Stage::new();
    let mut spec = stage.spec();
    spec.process.capabilities = u64::MAX;
    let rows = every_row(&stage);
    let launched = stage.launch(spec.clone(), &[], &names(&rows));
    let joined = stage.exec(spec.clone(), &[], &names(&rows));
    for (what, got) in [("launched", launched), ("exec", joined)] {
        let mut wrong = String::new();
        for (row, got) in rows.iter().zip(got) {
            let allowed = rows::WITH_EVERY_CAPABILITY.contains(&row.name);
            let refused = |(name, errno): &(&str, i32)| *name == row.name && got == Got::Stopped(*errno);
            if (got == Got::Through) != allowed && !rows::OR_REFUSED.iter().any(refused) {
                wrong += &format!("{}: {got:?}\n", row.name);
            }
        }
        assert_eq!(wrong, "", "{what}");
    }
    // For root of a box no file may turn kept capabilities into more.
    assert_eq!(stage.launch(spec.clone(), &[], &["inheritable"]), [Got::Stopped(libc::EPERM)]);
    assert_eq!(stage.launch(spec, &[Defence::Inheritable], &["inheritable"]), [Got::Through]);
}

/// For each attack: with all of its defences off but one, that one stops it; with all off, it ends as the row says. So no
/// attack is stopped by accident, and no defence is there for nothing.
fn each_defence_alone_stops_what_it_is_for() {
    let stage = Stage::new();
    let mut wrong = String::new();
    // Those with the same defences share a box.
    let mut alike: BTreeMap<String, (Vec<Defence>, Vec<&Row>)> = BTreeMap::new();
    for row in every_row(&stage) {
        let (by, _) = row.of(stage.world.host.root);
        if !by.is_empty() {
            alike.entry(format!("{by:?}")).or_insert_with(|| (by, Vec::new())).1.push(row);
        }
    }
    for (by, rows) in alike.values() {
        for alone in by {
            // A filter can't be had without this one, so where the filter stands it does.
            let mut off: Vec<Defence> = by.iter().copied().filter(|defence| defence != alone).collect();
            if *alone == Defence::Filter {
                off.retain(|defence| *defence != Defence::NoNewPrivs);
            }
            for (row, got) in rows.iter().zip(stage.launch(stage.spec(), &off, &names(rows))) {
                if !matches!(got, Got::Stopped(errno) if row.stopped.contains(&errno)) {
                    wrong += &format!("{}: {alone:?} alone: {got:?}\n", row.name);
                }
            }
        }
        for (row, got) in rows.iter().zip(stage.launch(stage.spec(), by, &names(rows))) {
            let (_, end) = row.of(stage.world.host.root);
            let as_said = match (got, end) {
                (Got::Through, End::Through | End::Perhaps(_)) => true,
                (Got::Stopped(errno), End::Perhaps(errnos) | End::Elsewhere(_, errnos)) => {
                    errnos.contains(&errno)
                }
                _ => false,
            };
            if !as_said {
                wrong += &format!("{}: without {by:?}: {got:?}, not {end:?}\n", row.name);
            }
        }
    }
    assert_eq!(wrong, "");
}

fn a_terminal_takes_no_input_from_inside() {
    let stage = Stage::new();
    let rows: Vec<&Row> = TERMINAL.iter().collect();
    let in_terminal = |off: &[Defence]| {
        let mut spec = stage.spec();
        spec.process.argv = stage.argv(&names(&rows));
        let size = ply_sandbox::WindowSize { rows: 24, columns: 80 };
        let mut instance =
            without(off, || stage.world.launch(&spec, ply_sandbox::Stdio::Terminal(size))).unwrap();
        let mut terminal = std::fs::File::from(instance.take_terminal().unwrap());
        let mut said = Vec::new();
        // The terminal answers EIO when the box is gone.
        let _ = std::io::Read::read_to_end(&mut terminal, &mut said);
        String::from_utf8_lossy(&said).replace("\r\n", "\n")
    };
    judge("terminal", &rows, &stage::results(&in_terminal(&[]), &names(&rows)));
    // Without the filter it reaches the box's own terminal, and none of the caller's.
    let got = stage::results(&in_terminal(&[Defence::Filter]), &names(&rows));
    for (row, got) in rows.iter().zip(got) {
        match (got, row.end) {
            (Got::Through, End::Through | End::Perhaps(_)) => {}
            (Got::Stopped(errno), End::Perhaps(errnos) | End::Elsewhere(_, errnos))
                if errnos.contains(&errno) => {}
            _ => panic!("{}: {got:?}, not {:?}", row.name, row.end),
        }
    }
}

/// The programs themselves work: with no box around, what is shared is reached.
#[test]
fn outside_of_a_box_the_attacks_on_what_is_shared_get_through() {
    if !called("outside_of_a_box_the_attacks_on_what_is_shared_get_through", false) {
        return;
    }
    let stage = Stage::new();
    let attacks = [
        "signal-host={pid}",
        "abstract-socket={socket}",
        "host-loopback={port}",
        "shared-memory={memory}",
        "message-queue={queue}",
        "key-of-the-caller={key}",
    ];
    assert_eq!(stage.outside(&attacks), [Got::Through; 6]);
}
