//! `cargo run --release -p ply-bench -- [pack|extract|resolve|launch|roll] [--check] [--rounds N]`: everything where nothing is named.

mod docker;
mod extract;
mod launch;
mod many;
mod pack;
mod resolve;
mod roll;
mod tree;

use anyhow::{Result, bail};
use ply_bench::{ROUNDS, Row, Table};

/// What every measurement is given.
pub(crate) struct Options {
    /// How many turns each side gets.
    pub(crate) rounds: usize,
}

/// A measurement by its name.
type Bench = (&'static str, fn(&Options) -> Result<Vec<Row>>);

const BENCHES: &[Bench] = &[
    ("pack", pack::run),
    ("extract", extract::run),
    ("resolve", resolve::run),
    ("launch", launch::run),
    ("roll", roll::run),
];

fn main() -> Result<()> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    // What is measured runs in a process of its own: this binary again.
    match args.first().map(String::as_str) {
        Some(pack::CHILD) => return pack::child(&args[1..]),
        Some(extract::CHILD) => return extract::child(&args[1..]),
        // What needs a network is made beforehand: there is none where the measurements run.
        Some("prepare") => return tree::debian().map(drop),
        Some(resolve::CHILD) => return resolve::child(&args[1..]),
        Some(roll::APP) => return roll::inside(&args[1..]),
        _ => {}
    }
    let check = args.iter().any(|a| a == "--check");
    args.retain(|a| a != "--check");
    let mut options = Options { rounds: ROUNDS };
    if let Some(at) = args.iter().position(|a| a == "--rounds") {
        options.rounds = args.get(at + 1).and_then(|n| n.parse().ok()).filter(|n| *n > 0).unwrap_or(ROUNDS);
        args.drain(at..(at + 2).min(args.len()));
    }
    if let Some(unknown) = args.iter().find(|a| BENCHES.iter().all(|(name, _)| name != a)) {
        let names: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
        bail!("no such measurement: {unknown} (there are {})", names.join(", "));
    }
    let mut rows = Vec::new();
    for (name, run) in BENCHES.iter().filter(|(name, _)| args.is_empty() || args.iter().any(|a| a == name)) {
        eprintln!("measuring {name}");
        rows.extend(run(&options)?);
    }
    print!("{}", Table(&rows));
    let missed = rows.iter().filter(|row| !row.holds()).count();
    if check && missed > 0 {
        bail!("{missed} of {} missed their target", rows.len());
    }
    Ok(())
}
