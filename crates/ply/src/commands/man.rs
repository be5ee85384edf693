//! `ply man`: the man pages, one a verb, from the same definitions as the help.

use crate::cli::Cli;
use crate::context::Context;
use crate::failure::Failure;
use clap::{Args, CommandFactory};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the man pages into a folder
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply man /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(args: ManArgs, _context: &Context) -> Result<ExitCode, Failure> {
    let wrong = |why: std::io::Error| Failure::new(format!("{} can't be written: {why}", args.dir.display()));
    std::fs::create_dir_all(&args.dir).map_err(wrong)?;
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(wrong)?;
    Ok(ExitCode::SUCCESS)
}
