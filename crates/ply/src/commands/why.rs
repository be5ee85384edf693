//! `ply why`: the evidence of an app's state, put together.

use crate::cli::noun;
use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use ply_manifest::RunName;
use std::process::ExitCode;

/// Tell why an app is as it is: its instances, how they ended, what they wrote last, what was changed
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply why web
  ply why web --json

It reads what the run parent wrote down, also after the app has ended.")]
pub(crate) struct WhyArgs {
    /// The app
    #[arg(value_name = "APP", value_parser = noun::<RunName>, add = crate::commands::completions::apps())]
    app: RunName,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: WhyArgs, context: &Context) -> Result<ExitCode, Failure> {
    let why = ply_run::why(&context.dirs, &args.app)?;
    if args.json {
        output::json(&why)?;
    } else {
        output::put_raw(&why.to_string());
    }
    Ok(ExitCode::SUCCESS)
}
