//! What a run parent starts to bring the image of a deploy into the store. Not for people, so it is not listed.

use crate::cli::SourceArgs;
use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Bring an image with its layers into the store, and hold it there until standard input ends
#[derive(Debug, Args)]
#[command(after_help = "A run parent starts it for a deploy.")]
pub(crate) struct PrepareArgs {
    image: PathBuf,
    #[command(flatten)]
    sources: SourceArgs,
}

pub(crate) fn run(args: PrepareArgs, context: &Context) -> Result<ExitCode, Failure> {
    ply_run::prepare(&args.image, &context.run_context(&args.sources)?)?;
    Ok(ExitCode::SUCCESS)
}
