//! `ply stop`: asks an app to end, and waits until it has.

use crate::cli::app_name;
use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use ply_manifest::RunName;
use std::process::ExitCode;

/// Stop a running app
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply stop web
  ply stop web db

An app that does not end within its --stop-timeout (10 s) is killed.")]
pub(crate) struct StopArgs {
    /// The app
    #[arg(value_name = "APP", required = true, value_parser = app_name, add = crate::commands::completions::apps())]
    apps: Vec<RunName>,
}

pub(crate) fn run(args: StopArgs, context: &Context) -> Result<ExitCode, Failure> {
    // Each for itself: what can't be done to one is said, and the others are stopped all the same.
    Failure::of_each(&args.apps, |app| {
        ply_run::stop(&context.dirs, app)?;
        context.say(format!("{app} has stopped"));
        Ok(())
    })
}
