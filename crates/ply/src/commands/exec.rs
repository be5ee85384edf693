//! `ply exec`: a command beside a running app, with the app's own rights.

use crate::cli::noun;
use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use ply_run::InstanceName;
use std::process::ExitCode;

/// Run a command inside a running app
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply exec redis redis-cli ping
  ply exec -t web.2 sh     a shell in instance 2")]
pub(crate) struct ExecArgs {
    /// Give it a terminal
    #[arg(short = 't', long = "terminal")]
    terminal: bool,
    /// The app, or one instance of it: APP or APP.N
    #[arg(value_name = "APP[.N]", value_parser = noun::<InstanceName>, add = crate::commands::completions::apps())]
    app: InstanceName,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

pub(crate) fn run(args: ExecArgs, context: &Context) -> Result<ExitCode, Failure> {
    let code =
        ply_run::exec(&context.dirs, &args.app, &args.command, args.terminal).map_err(Failure::of_run)?;
    Ok(ExitCode::from(code))
}
