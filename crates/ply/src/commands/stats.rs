//! `ply stats`: what the running instances use, live on a terminal.

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, size};
use clap::Args;
use ply_run::{InstanceName, Stat, Watch};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// Show what the running instances use
#[derive(Debug, Args)]
#[command(after_help = "\
A dash is what this host doesn't count. On a terminal it goes on until Ctrl-C; into a pipe or with --once it
prints once.

Examples:
  ply stats
  ply stats web.2 --once
  ply stats --json")]
pub(crate) struct StatsArgs {
    /// The app, or one instance of it: APP or APP.N (default: all)
    #[arg(value_name = "APP[.N]", value_parser = crate::cli::noun::<InstanceName>,
          add = crate::commands::completions::apps())]
    app: Option<InstanceName>,
    /// Print once, also on a terminal
    #[arg(long)]
    once: bool,
    /// Print once, as JSON
    #[arg(long)]
    json: bool,
}

/// What processor rates are measured over when it is printed once.
const GLANCE: Duration = Duration::from_millis(250);
/// How often it is looked again.
const PACE: Duration = Duration::from_secs(1);

pub(crate) fn run(args: StatsArgs, context: &Context) -> Result<ExitCode, Failure> {
    let mut watch = Watch::default();
    let mut look = |pause: Duration| {
        std::thread::sleep(pause);
        watch.look(&context.dirs, args.app.as_ref()).map_err(Failure::from)
    };
    let first = look(Duration::ZERO)?;
    if args.json || args.once || !std::io::stdout().is_terminal() {
        // A rate takes two looks.
        let stats = if first.is_empty() { first } else { look(GLANCE)? };
        match args.json {
            true => output::json(&stats)?,
            false => output::table(HEADINGS, stats.iter().map(row).collect()),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut stats = look(GLANCE)?;
    loop {
        // From the top, over what was there, and nothing below.
        output::put_raw("\x1b[H\x1b[J");
        match stats.is_empty() {
            true => output::put("nothing runs"),
            false => output::table(HEADINGS, stats.iter().map(row).collect()),
        }
        stats = look(PACE)?;
    }
}

const HEADINGS: &[&str] = &[
    "NAME",
    "CPU",
    "CPU LIMIT",
    "THROTTLED",
    "MEMORY",
    "MEMORY LIMIT",
    "PIDS",
    "PIDS LIMIT",
    "NET IN",
    "NET OUT",
];

fn row(stat: &Stat) -> Vec<String> {
    let usage = &stat.usage;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let number = |number: Option<u64>| or_dash(number.map(|n| n.to_string()));
    let bytes = |bytes: Option<u64>| or_dash(bytes.map(size));
    vec![
        format!("{}.{}", stat.name, stat.slot),
        or_dash(stat.cpu_percent.map(|percent| format!("{percent:.1} %"))),
        or_dash(usage.cpu_limit_millis.map(|millis| format!("{} %", millis / 10))),
        or_dash(usage.throttled_usec.map(|usec| format!("{:.1} s", usec as f64 / 1e6))),
        bytes(usage.memory_bytes),
        bytes(usage.memory_limit_bytes),
        number(usage.pids),
        number(usage.pids_limit),
        bytes(usage.net_received_bytes),
        bytes(usage.net_sent_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_counted_is_a_dash() {
        let mut stat = Stat {
            name: "web".parse().unwrap(),
            slot: 2,
            cpu_percent: None,
            usage: ply_sandbox::Usage::default(),
            limits: None,
        };
        assert_eq!(row(&stat), ["web.2", "-", "-", "-", "-", "-", "-", "-", "-", "-"]);
        stat.cpu_percent = Some(12.34);
        stat.usage = ply_sandbox::Usage {
            cpu_limit_millis: Some(1500),
            throttled_usec: Some(1_240_000),
            memory_bytes: Some(1_500_000),
            pids: Some(3),
            ..ply_sandbox::Usage::default()
        };
        let expected = ["web.2", "12.3 %", "150 %", "1.2 s", "1.5 MB", "-", "3", "-", "-", "-"];
        assert_eq!(row(&stat), expected);
    }
}
