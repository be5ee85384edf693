//! `ply verify`: hashes the store anew.

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, count, put, size};
use clap::Args;
use ply_image::Wrong;
use std::process::ExitCode;

/// Check every byte of the store against its digest
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply verify
  ply verify --json")]
pub(crate) struct VerifyArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: VerifyArgs, context: &Context) -> Result<ExitCode, Failure> {
    let report = context.store()?.verify(0)?;
    if args.json {
        let wrong: Vec<_> = report
            .wrong
            .iter()
            .map(|w| serde_json::json!({"digest": w.digest, "name": w.name, "why": w.why}))
            .collect();
        output::json(&serde_json::json!({"good": report.good, "bytes": report.bytes, "wrong": wrong}))?;
    } else {
        for wrong in &report.wrong {
            let name = wrong.name.as_ref().map_or("an image".to_owned(), ToString::to_string);
            put(&format!("{name}  {}  {}", wrong.digest, wrong.why));
        }
        let (good, are) = (
            report.good as u64,
            if report.good == 1 { "is as its digest says" } else { "are as their digests say" },
        );
        put(&format!("{} {are} ({})", count(good, "image"), size(report.bytes)));
    }
    if report.wrong.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(format!(
        "{} in the store {} wrong: {}",
        count(report.wrong.len() as u64, "image"),
        if report.wrong.len() == 1 { "is" } else { "are" },
        names(&report.wrong)
    ))
    .hint("they are not used any more, and are fetched again when they are needed"))
}

fn names(wrong: &[Wrong]) -> String {
    let name = |w: &Wrong| w.name.as_ref().map_or_else(|| w.digest.short(), ToString::to_string);
    wrong.iter().map(name).collect::<Vec<_>>().join(", ")
}
