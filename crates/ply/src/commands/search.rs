//! `ply search`: looks a word up in the catalog of a source.

use crate::cli::SourceArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use ply_manifest::Arch;
use std::process::ExitCode;

/// Search the catalog; each line can be pasted into ply.toml
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply search redis
  ply search               everything that the source has
  ply search redis --source file:///srv/packages/{package}")]
pub(crate) struct SearchArgs {
    /// A word of the name or the description
    #[arg(value_name = "TERM", default_value = "")]
    term: String,
    #[command(flatten)]
    sources: SourceArgs,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: SearchArgs, context: &Context) -> Result<ExitCode, Failure> {
    let fetcher = context.fetcher(&args.sources, Arch::HOST)?;
    let found = fetcher.search(&args.term)?;
    if args.json {
        output::json(&found)?;
    } else if found.is_empty() && args.term.trim().is_empty() {
        return Err(Failure::new(format!("the source has no packages: {}", fetcher.usual_source()))
            .hint("put images there, or name another source with --source"));
    } else if found.is_empty() {
        return Err(Failure::new(format!("nothing is called or described as {:?}", args.term))
            .hint("ply search alone lists everything that the source has"));
    } else {
        let rows = found
            .iter()
            .map(|f| {
                let kind = f.kind.clone().unwrap_or_default();
                vec![f.line.clone(), kind, f.description.clone().unwrap_or_default()]
            })
            .collect();
        output::table(&["PASTE", "TYPE", "WHAT IT IS"], rows);
    }
    Ok(ExitCode::SUCCESS)
}
