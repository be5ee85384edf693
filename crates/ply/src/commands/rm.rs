//! `ply rm`: stops an app and forgets it.

use crate::cli::app_name;
use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use ply_manifest::RunName;
use std::process::ExitCode;

/// Stop an app and forget it; its volumes stay unless --volumes is given
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply rm web
  ply rm web --volumes     its data too")]
pub(crate) struct RmArgs {
    /// The app
    #[arg(value_name = "APP", required = true, value_parser = app_name, add = crate::commands::completions::apps())]
    apps: Vec<RunName>,
    /// Remove its volumes too
    #[arg(long)]
    volumes: bool,
}

pub(crate) fn run(args: RmArgs, context: &Context) -> Result<ExitCode, Failure> {
    let ids = context.ids();
    Failure::of_each(&args.apps, |app| {
        let removed = ply_run::rm(&context.dirs, app, args.volumes, &ids)?;
        if removed.stopped {
            context.say(format!("{app} has stopped"));
        }
        for volume in &removed.volumes {
            context.say(format!("removed the volume {}", volume.id()));
        }
        for volume in &removed.kept {
            context.say(format!("kept the volume {}: ply volume rm {}", volume.id(), volume.id()));
        }
        context.say(format!("forgot {app}"));
        Ok(())
    })
}
