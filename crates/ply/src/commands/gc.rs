//! `ply gc`: removes what nothing needs any more.

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, count, put, size};
use clap::Args;
use std::process::ExitCode;

/// Remove images that no installed or running app needs, and leftovers
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply gc --dry-run         only say what would go
  ply gc")]
pub(crate) struct GcArgs {
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: GcArgs, context: &Context) -> Result<ExitCode, Failure> {
    let report = ply_host::collect(&context.dirs, args.dry_run)?;
    if args.json {
        let removed: Vec<_> =
            report.images.removed.iter().map(|(d, n)| serde_json::json!({"digest": d, "name": n})).collect();
        output::json(&serde_json::json!({
            "dry_run": args.dry_run, "removed": removed, "running": report.images.running,
            "leftovers": report.images.leftovers, "freed": report.images.freed, "mounts": report.mounts,
            "volumes": report.volumes,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    for (digest, name) in &report.images.removed {
        let name = name.as_ref().map_or("an image".to_owned(), ToString::to_string);
        put(&format!("{verb} {name}  {}", digest.short()));
    }
    for volume in &report.volumes {
        put(&format!("{verb} the ephemeral volume {volume}"));
    }
    if report.images.leftovers > 0 {
        put(&format!("{verb} {}", count(report.images.leftovers as u64, "unfinished leftover")));
    }
    let freed = size(report.images.freed);
    let would = if args.dry_run { "would free" } else { "freed" };
    put(&format!("{would} {freed}"));
    Ok(ExitCode::SUCCESS)
}
