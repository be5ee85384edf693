//! `ply events`: what happened to apps, from the journal.

use crate::cli::noun;
use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use ply_run::InstanceName;
use std::process::ExitCode;

/// Show what happened: starts, ends, health, commands
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply events
  ply events web -f
  ply events web.2 --json")]
pub(crate) struct EventsArgs {
    /// The app, or one instance of it (default: every app)
    #[arg(value_name = "APP[.N]", value_parser = noun::<InstanceName>, add = crate::commands::completions::apps())]
    app: Option<InstanceName>,
    /// Go on with what comes
    #[arg(short = 'f', long)]
    follow: bool,
    /// Print as JSON, an object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: EventsArgs, context: &Context) -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout().lock();
    ply_run::events(&context.dirs, args.app.as_ref(), args.follow, args.json, &mut out)?;
    Ok(ExitCode::SUCCESS)
}
