//! `ply ps`: what runs on this host.

use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use std::process::ExitCode;

/// List the running instances
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply ps
  ply ps --json")]
pub(crate) struct PsArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: PsArgs, context: &Context) -> Result<ExitCode, Failure> {
    let rows = ply_run::ps(&context.dirs)?;
    if args.json {
        output::json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let outdated: std::collections::BTreeSet<String> =
        rows.iter().filter(|row| row.outdated).map(|row| row.name.to_string()).collect();
    let or_dash = |text: Option<String>| text.filter(|t| !t.is_empty()).unwrap_or_else(|| "-".to_owned());
    let rows = rows
        .into_iter()
        .map(|row| {
            vec![
                format!("{}.{}", row.name, row.slot),
                row.ended_by.unwrap_or_else(|| row.status.as_str().to_owned()),
                or_dash(row.health),
                duration(row.uptime_s),
                row.restarts.to_string(),
                or_dash(row.address),
                or_dash(Some(row.publish.join(", "))),
                row.image.to_string(),
            ]
        })
        .collect();
    output::table(&["NAME", "STATUS", "HEALTH", "UP", "RESTARTS", "ADDRESS", "PUBLISHED", "IMAGE"], rows);
    if !outdated.is_empty() {
        let names = outdated.into_iter().collect::<Vec<_>>().join(", ");
        context
            .say(format!("watched by a ply that was replaced since: {names} (stop and start to renew it)"));
    }
    Ok(ExitCode::SUCCESS)
}

/// A span for people: the two largest units.
fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn uptimes_read_well() {
        let all = [(0, "0s"), (59, "59s"), (61, "1m1s"), (3_660, "1h1m"), (90_000, "1d1h")];
        for (seconds, text) in all {
            assert_eq!(duration(seconds), text);
        }
    }
}
