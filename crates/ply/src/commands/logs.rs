//! `ply logs`: what an app printed, while it runs and after.

use crate::cli::{noun, whole};
use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use ply_manifest::Span;
use ply_run::{InstanceName, LogOptions};
use std::process::ExitCode;
use std::time::SystemTime;

/// Show what an app printed
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply logs web
  ply logs web.2 -f -n 20
  ply logs web --since 10m --timestamps")]
pub(crate) struct LogsArgs {
    /// The app, or one instance of it (default: every app)
    #[arg(value_name = "APP[.N]", value_parser = noun::<InstanceName>, add = crate::commands::completions::apps())]
    app: Option<InstanceName>,
    /// Go on as long as it runs
    #[arg(short = 'f', long)]
    follow: bool,
    /// Only the last N lines
    #[arg(short = 'n', long, value_name = "N", value_parser = whole::<0, { u32::MAX }>, allow_negative_numbers = true)]
    lines: Option<u32>,
    /// Only what is younger than this
    #[arg(long, value_name = "DURATION", value_parser = noun::<Span>)]
    since: Option<Span>,
    /// Put the time before each line
    #[arg(long)]
    timestamps: bool,
    /// Keep control codes
    #[arg(long)]
    raw: bool,
    /// Print as JSON, an object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: LogsArgs, context: &Context) -> Result<ExitCode, Failure> {
    let options = LogOptions {
        follow: args.follow,
        last: args.lines.map(|n| n as usize),
        since: args.since.and_then(|span| SystemTime::now().checked_sub(span.0)),
        timestamps: args.timestamps,
        json: args.json,
        raw: args.raw,
    };
    ply_run::logs(&context.dirs, args.app.as_ref(), &options, &mut std::io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}
