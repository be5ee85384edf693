//! `ply rollback`: deploys the image that an app had before.

use crate::cli::{SourceArgs, app_name, noun};
use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use ply_manifest::{RunName, Span};
use std::process::ExitCode;

/// Deploy the image that a running app had before its present one
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply rollback web
  ply rollback web --timeout 60s

It is a deploy like any other: slot by slot, with its health gate. A second rollback goes forward again.")]
pub(crate) struct RollbackArgs {
    /// The app
    #[arg(value_name = "APP", value_parser = app_name, add = crate::commands::completions::apps())]
    app: RunName,
    /// How long each new instance has to become healthy (default: grace of its [run.health], 30s)
    #[arg(long, value_name = "DURATION", value_parser = noun::<Span>)]
    timeout: Option<Span>,
    #[command(flatten)]
    sources: SourceArgs,
}

pub(crate) fn run(args: RollbackArgs, context: &Context) -> Result<ExitCode, Failure> {
    let run_context = context.run_context(&args.sources)?;
    let each = &mut |step: &str| context.say(step);
    context.say(ply_run::rollback(&args.app, args.timeout, &run_context, each)?);
    Ok(ExitCode::SUCCESS)
}
