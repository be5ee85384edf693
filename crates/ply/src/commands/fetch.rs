//! `ply fetch`: brings images into the store without running them.

use crate::cli::{SourceArgs, noun};
use crate::context::Context;
use crate::context::Found;
use crate::failure::Failure;
use crate::folder::Folder;
use crate::output::{self, put, size};
use clap::Args;
use ply_image::Entry;
use ply_manifest::Arch;
use ply_manifest::Target;
use ply_source::Mode;
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Bring packages, and all that they need, into the store
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply fetch redis@8 node@22
  ply fetch ./app          what its ply.lock names
  ply fetch https://host/app-1.0.0-linux-x64.img")]
pub(crate) struct FetchArgs {
    /// Packages, folders, image files or URLs
    #[arg(value_name = "WHAT", required = true, value_parser = noun::<Target>,
          add = crate::commands::completions::packages())]
    what: Vec<Target>,
    #[command(flatten)]
    sources: SourceArgs,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: FetchArgs, context: &Context) -> Result<ExitCode, Failure> {
    let fetcher = context.fetcher(&args.sources, Arch::HOST)?;
    // gc must not take what was just fetched while the rest still comes.
    let _hold = context.store()?.hold()?;
    let mut entries: Vec<Entry> = Vec::new();
    for what in &args.what {
        match context.image(what, &fetcher)? {
            Found::Image(entry) => {
                let lock = entry.lock()?.unwrap_or_default();
                entries.push(*entry);
                entries.extend(fetcher.ensure_lock(&lock)?);
            }
            Found::Folder(dir) => {
                let folder = Folder::read(&dir)?;
                let resolution = match &folder.lock {
                    Some(lock) => fetcher.ensure_lock(lock)?,
                    None => {
                        let resolved = fetcher.resolve(&folder.manifest, None, Mode::Keep)?;
                        resolved.packages.into_iter().map(|package| package.entry).collect()
                    }
                };
                entries.extend(resolution);
            }
        }
    }
    let mut seen = BTreeSet::new();
    entries.retain(|entry| seen.insert(entry.digest));
    if args.json {
        let rows: Vec<_> = entries
            .iter()
            .map(|e| serde_json::json!({"name": e.name, "digest": e.digest, "bytes": e.bytes, "path": e.image}))
            .collect();
        output::json(&rows)?;
    } else {
        for entry in &entries {
            put(&format!("{}  {}  {}", entry.name, size(entry.bytes), entry.digest));
        }
    }
    Ok(ExitCode::SUCCESS)
}
