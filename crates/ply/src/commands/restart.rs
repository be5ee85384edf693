//! `ply restart`: starts every instance of an app anew, one after the other.

use crate::cli::noun;
use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use ply_manifest::RunName;
use std::process::ExitCode;

/// Start every instance of a running app anew, one after the other
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply restart web
  ply restart web db

While others serve, an instance gets no new connection, may finish those that it has (--drain of
ply run, 10 s), and is stopped then. The next one's turn comes when its successor is healthy.
Interrupting this command does not interrupt the restart.")]
pub(crate) struct RestartArgs {
    /// The app
    #[arg(value_name = "APP", required = true, value_parser = noun::<RunName>, add = crate::commands::completions::apps())]
    apps: Vec<RunName>,
}

pub(crate) fn run(args: RestartArgs, context: &Context) -> Result<ExitCode, Failure> {
    for app in &args.apps {
        let done = ply_run::restart(&context.dirs, app, &mut |step| context.say(step.to_owned()))?;
        context.say(done);
    }
    Ok(ExitCode::SUCCESS)
}
