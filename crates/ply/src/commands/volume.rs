//! `ply volume`: the data that apps keep.

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, put};
use clap::{Args, Subcommand};
use ply_run::{VolumeChoice, VolumeRow};
use std::process::ExitCode;

/// List volumes, or remove them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply volume ls
  ply volume rm redis/data.1
  ply volume rm --orphans  those of apps that are no longer installed")]
pub(crate) struct VolumeArgs {
    #[command(subcommand)]
    what: Volume,
}

#[derive(Debug, Subcommand)]
enum Volume {
    /// List volumes with their state and place
    Ls {
        /// Only those of apps that are no longer installed
        #[arg(long)]
        orphans: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove volumes; one in use is never removed
    Rm {
        /// APP/NAME.N as ls prints it, or APP for all of an app's
        #[arg(value_name = "VOLUME", required_unless_present = "orphans", conflicts_with = "orphans")]
        volumes: Vec<String>,
        /// All those of apps that are no longer installed
        #[arg(long)]
        orphans: bool,
    },
}

pub(crate) fn run(args: VolumeArgs, context: &Context) -> Result<ExitCode, Failure> {
    match args.what {
        Volume::Ls { orphans, json } => list(orphans, json, context),
        Volume::Rm { volumes, orphans } => remove(&volumes, orphans, context),
    }
}

fn list(orphans: bool, json: bool, context: &Context) -> Result<ExitCode, Failure> {
    let mut rows = ply_run::volumes(&context.dirs)?;
    rows.retain(|volume| !orphans || volume.orphan);
    if json {
        output::json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let state = |volume: &VolumeRow| match (volume.in_use, volume.orphan, volume.ephemeral) {
        (true, ..) => "in use",
        (_, true, _) => "orphan",
        (.., true) => "ephemeral",
        _ => "kept",
    };
    let rows = rows.iter().map(|v| vec![v.id(), state(v).to_owned(), v.path.display().to_string()]).collect();
    output::table(&["VOLUME", "STATE", "PATH"], rows);
    Ok(ExitCode::SUCCESS)
}

fn remove(volumes: &[String], orphans: bool, context: &Context) -> Result<ExitCode, Failure> {
    let choices = match orphans {
        true => vec![VolumeChoice::Orphans],
        false => volumes.iter().cloned().map(VolumeChoice::Named).collect(),
    };
    for choice in choices {
        for volume in ply_run::remove_volumes(&context.dirs, &context.ids(), &choice)? {
            put(&format!("removed {}", volume.id()));
        }
    }
    Ok(ExitCode::SUCCESS)
}
