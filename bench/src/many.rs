//! Many instances of one app that sleeps: how long a hundred take at the start, whether five hundred fit, and how many
//! copies of the app's pages ten runs keep.

use crate::launch::{World, prepare};
use anyhow::{Context, Result, ensure};
use ply_bench::Row;
use std::fs;
use std::time::{Duration, Instant};

/// The most that a hundred instances may take.
const HUNDRED: Duration = Duration::from_secs(2);
/// How many must fit.
const CROWD: usize = 500;
/// How much of a second copy ten runs may keep: they don't all touch the same pages.
const COPIES: f64 = 1.25;

pub(crate) fn rows(world: &World) -> Result<Vec<Row>> {
    let (hundred, _) = scale(world, 100)?;
    let (crowd, held) = scale(world, CROWD)?;
    let (one, ten) = pages(world)?;
    Ok(vec![
        Row::at_most("--scale 100, root: until all run", hundred, HUNDRED),
        Row::at_most(format!("--scale {CROWD}, root: each"), crowd / CROWD as u32, HUNDRED / 100),
        Row::size_at_most(format!("--scale {CROWD}, root: memory of each"), held / CROWD as u64, 2_000_000),
        Row::size("pages of the app in ten runs", ten, "one run", one, Some(COPIES)),
    ])
}

/// Starts so many; how long it took until all ran, and what their processes but the apps' hold, in bytes.
fn scale(world: &World, count: usize) -> Result<(Duration, u64)> {
    let text = count.to_string();
    let start = Instant::now();
    prepare(world.ply(["-q", "run", "-d", "sleep/app.img", "--name", "many", "--scale", &text]))?;
    let took = start.elapsed();
    let processes = world.processes()?;
    let apps = processes.iter().filter(|process| process.is_app).count();
    let mut held = 0;
    for process in processes.iter().filter(|process| !process.is_app) {
        held += kilobytes(process.pid, &["Private_Clean:", "Private_Dirty:"])?;
    }
    prepare(world.ply(["-q", "stop", "many"]))?;
    ensure!(apps == count, "{apps} of {count} instances run");
    Ok((took, held))
}

/// What one run's app keeps of its files in memory, and what ten runs' do together: each page is shared out among
/// those that map it.
fn pages(world: &World) -> Result<(u64, u64)> {
    let mut one = 0;
    for n in 0..10 {
        let name = format!("pages{n}");
        prepare(world.ply(["-q", "run", "-d", "sleep/app.img", "--name", &name]))?;
        if n == 0 {
            one = of_apps(world)?;
        }
    }
    let ten = of_apps(world)?;
    for n in 0..10 {
        prepare(world.ply(["-q", "stop", &format!("pages{n}")]))?;
    }
    Ok((one, ten))
}

fn of_apps(world: &World) -> Result<u64> {
    let apps = world.processes()?;
    apps.iter().filter(|process| process.is_app).map(|app| kilobytes(app.pid, &["Pss_File:"])).sum()
}

/// The sum of these lines of a process's `smaps_rollup`, in bytes.
pub(crate) fn kilobytes(pid: u32, keys: &[&str]) -> Result<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let mut sum = 0;
    for key in keys {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key));
        let line = line.with_context(|| format!("no {key} in smaps_rollup"))?;
        sum += line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024;
    }
    Ok(sum)
}
