//! `ply update`: moves the lock to the newest versions in range.

use crate::cli::{SourceArgs, noun};
use crate::context::Context;
use crate::failure::Failure;
use crate::folder::Folder;
use crate::output;
use clap::Args;
use ply_manifest::{Arch, Lock, PackageName, Version};
use ply_source::Mode;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

/// Move ply.lock to the newest versions in range
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply update               everything
  ply update node openssl  these, and what they need")]
pub(crate) struct UpdateArgs {
    /// Which packages (default: all)
    #[arg(value_name = "NAME", value_parser = noun::<PackageName>)]
    names: Vec<PackageName>,
    /// The folder with the ply.toml
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    sources: SourceArgs,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: UpdateArgs, context: &Context) -> Result<ExitCode, Failure> {
    let folder = Folder::read(&args.dir)?;
    let fetcher = context.fetcher(&args.sources, Arch::HOST)?;
    let before = folder.lock.clone().unwrap_or_default();
    let resolution = fetcher.resolve(&folder.manifest, folder.lock.as_ref(), Mode::Update(args.names))?;
    if resolution.changed {
        Folder::replace(&folder.lock_path, &resolution.lock.to_string())?;
    }
    let changes = changes(&before, &resolution.lock);
    if args.json {
        output::json(&changes)?;
    } else if changes.is_empty() {
        context.say("every package is at the newest version in range");
    } else {
        let cell = |version: &Option<Version>| version.as_ref().map_or("-".to_owned(), Version::to_string);
        let rows = changes.iter().map(|c| vec![c.name.to_string(), cell(&c.from), cell(&c.to)]).collect();
        output::table(&["PACKAGE", "FROM", "TO"], rows);
    }
    Ok(ExitCode::SUCCESS)
}

/// One package that the update moved, brought or took away.
#[derive(Serialize)]
struct Change {
    name: PackageName,
    from: Option<Version>,
    to: Option<Version>,
}

/// What differs between two locks, by name.
fn changes(before: &Lock, after: &Lock) -> Vec<Change> {
    let versions = |lock: &Lock| -> BTreeMap<PackageName, Version> {
        lock.packages.iter().map(|p| (p.name.clone(), p.version.clone())).collect()
    };
    let (before, after) = (versions(before), versions(after));
    let names: BTreeSet<&PackageName> = before.keys().chain(after.keys()).collect();
    names
        .into_iter()
        .map(|name| Change {
            name: name.clone(),
            from: before.get(name).cloned(),
            to: after.get(name).cloned(),
        })
        .filter(|change| change.from != change.to)
        .collect()
}
