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
  ply scale web auto        back to the number that it began with

New instances get connections once they are healthy. The highest leave first: each gets no new
connection, may finish those that it has (--drain of ply run, 10 s), and is stopped then.")]
pub(crate) struct ScaleArgs {
    /// The app
    #[arg(value_name = "APP", value_parser = noun::<RunName>, add = crate::commands::completions::apps())]
    app: RunName,
    /// How many instances, or auto
    #[arg(value_name = "N", value_parser = number)]
    instances: Number,
}

pub(crate) fn run(args: ScaleArgs, context: &Context) -> Result<ExitCode, Failure> {
    context.say(match args.instances {
        Number::Auto => ply_run::unpin(&context.dirs, &args.app)?,
        Number::Fixed(to) => ply_run::scale(&context.dirs, &args.app, to)?,
    });
    Ok(ExitCode::SUCCESS)
}

/// How many instances.
#[derive(Debug, Clone, Copy)]
enum Number {
    /// As many as the run decides by itself.
    Auto,
    Fixed(u32),
}

fn number(text: &str) -> Result<Number, String> {
    match text.parse() {
        Ok(number) => Ok(Number::Fixed(number)),
        Err(_) if text == "auto" => Ok(Number::Auto),
        Err(_) => Err("write a whole number, or auto".to_owned()),
    }
}
