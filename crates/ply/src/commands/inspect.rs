//! `ply inspect`: what a package declares, straight from its manifest.

use crate::cli::{SourceArgs, noun};
use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use ply_manifest::Target;
use std::process::ExitCode;

/// Show what a package declares
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply inspect redis@8
  ply inspect ./app --json
  ply inspect app-1.0.0-linux-x64.img --manifest")]
pub(crate) struct InspectArgs {
    /// A package, a folder, an image file or a URL
    #[arg(value_name = "WHAT", value_parser = noun::<Target>, add = crate::commands::completions::packages())]
    what: Target,
    /// Print the manifest as it was written
    #[arg(long, conflicts_with = "json")]
    manifest: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sources: SourceArgs,
}
