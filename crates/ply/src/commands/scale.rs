//! `ply scale`: changes the number of an app's instances while it runs.

use crate::cli::noun;
use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use ply_manifest::RunName;
use std::process::ExitCode;

/// Change the number of a running app's instances
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply scale web 3

New instances get connections once they are healthy. The highest leave first: each gets no new
connection, may finish those that it has (--drain of ply run, 10 s), and is stopped then.")]
pub(crate) struct ScaleArgs {
    /// The app
    #[arg(value_name = "APP", value_parser = noun::<RunName>, add = crate::commands::completions::apps())]
    app: RunName,
    /// How many instances
    #[arg(value_name = "N")]
    instances: u32,
}

pub(crate) fn run(args: ScaleArgs, context: &Context) -> Result<ExitCode, Failure> {
    context.say(ply_run::scale(&context.dirs, &args.app, args.instances)?);
    Ok(ExitCode::SUCCESS)
}
