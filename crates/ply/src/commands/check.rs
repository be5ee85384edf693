//! `ply check`: whether an image or a folder is what it should be, for CI.

use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Check an image or a folder, against a policy where one is given
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply check .
  ply check app-1.0.0-linux-x64.img --against policy.toml --json

A policy is a TOML file:
  bases = [\"debian\"]                 # the only bases allowed
  least = { node = \"22.6.0\" }        # least versions
  forbid_capabilities = [\"sys_admin\"]
  require_egress = true              # every app must declare what it talks to

Exit code: 0 where all is well, 1 where something is not.")]
pub(crate) struct CheckArgs {
    /// The image or the folder
    #[arg(value_name = "IMAGE|DIR", default_value = ".")]
    what: PathBuf,
    /// A policy file
    #[arg(long, value_name = "POLICY")]
    against: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}
