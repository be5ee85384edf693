//! `ply stop`: asks an app to end, and waits until it has.

use crate::cli::noun;
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
    #[arg(value_name = "APP", required = true, value_parser = noun::<RunName>, add = crate::commands::completions::apps())]
    apps: Vec<RunName>,
}

pub(crate) fn run(args: StopArgs, context: &Context) -> Result<ExitCode, Failure> {
    for app in &args.apps {
        ply_run::stop(&context.dirs, app)?;
        context.say(format!("{app} has stopped"));
    }
    Ok(ExitCode::SUCCESS)
}
