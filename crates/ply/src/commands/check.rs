//! `ply check`: whether an image or a folder is what it should be, for CI.

use crate::cli::SourceArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, clean, put};
use clap::Args;
use ply_build::Level;
use ply_manifest::{Arch, Policy};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check an image or a folder, against a policy where one is given
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply check .
  ply check app-1.0.0-linux-x64.img --against policy.toml --json

A policy is a TOML file:
  bases = [\"debian@13\"]              # the bases that may own /
  [least]
  openssl = \"3.5.1\"                  # the least version, where the image has it
  [capabilities]
  forbid = [\"sys_admin\"]             # what no app may keep
  [egress]
  declared = true                    # the manifest must say whom it talks to
  allow = [\"*.example.com\"]          # and may only claim these
  require = [\"api.example.com\"]      # and must claim these

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
    #[command(flatten)]
    sources: SourceArgs,
}

pub(crate) fn run(args: CheckArgs, context: &Context) -> Result<ExitCode, Failure> {
    let policy = args.against.as_deref().map(read_policy).transpose()?;
    let fetcher = context.fetcher(&args.sources, Arch::HOST)?;
    let report =
        ply_build::check::check(&args.what, &args.what.display().to_string(), policy.as_ref(), &fetcher)?;
    if args.json {
        output::json(&report)?;
    } else {
        for finding in &report.findings {
            let level = match finding.level {
                Level::Error => "error",
                Level::Warning => "warning",
            };
            put(&format!("{level}: {}: {}", finding.rule, clean(&finding.message)));
            if let Some(hint) = &finding.hint {
                put(&format!("hint: {}", clean(hint)));
            }
        }
        let verdict = if report.ok { "is well" } else { "is not well" };
        put(&format!("{} {verdict} (looked at: {})", report.target, report.checked.join(", ")));
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read_policy(path: &Path) -> Result<Policy, Failure> {
    let text = std::fs::read_to_string(path).map_err(|why| {
        Failure::new(format!("the policy {} can't be read: {why}", path.display()))
            .hint("--against takes a policy file; ply check --help shows one")
    })?;
    Ok(Policy::parse(&text, &path.display().to_string())?)
}
