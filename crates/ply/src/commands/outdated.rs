//! `ply outdated`: for each dependency what is locked and what could be.

use crate::cli::SourceArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::folder::Folder;
use crate::output;
use clap::Args;
use ply_manifest::{Arch, Version};
use std::path::PathBuf;
use std::process::ExitCode;

/// Show locked, newest in range and newest version of each dependency
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply outdated
  ply outdated --dir ./app --json")]
pub(crate) struct OutdatedArgs {
    /// The folder with the ply.toml
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    sources: SourceArgs,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: OutdatedArgs, context: &Context) -> Result<ExitCode, Failure> {
    let folder = Folder::read(&args.dir)?;
    let fetcher = context.fetcher(&args.sources, Arch::HOST)?;
    let rows = fetcher.outdated(&folder.manifest, folder.lock()?)?;
    if args.json {
        output::json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let cell = |version: &Option<Version>| version.as_ref().map_or("-".to_owned(), Version::to_string);
    let rows = rows
        .iter()
        .map(|o| {
            vec![o.name.to_string(), o.range.to_string(), cell(&o.locked), cell(&o.in_range), cell(&o.newest)]
        })
        .collect();
    output::table(&["PACKAGE", "RANGE", "LOCKED", "IN RANGE", "NEWEST"], rows);
    Ok(ExitCode::SUCCESS)
}
