//! `ply add`: puts a dependency into `ply.toml`, comments and layout kept.

use crate::cli::{SourceArgs, noun};
use crate::context::Context;
use crate::failure::Failure;
use crate::folder::Folder;
use crate::output::put;
use clap::Args;
use ply_build::{Addition, Edited};
use ply_manifest::{Arch, Range, Reference};
use ply_source::Fetcher;
use std::path::PathBuf;
use std::process::ExitCode;

/// Add dependencies to ply.toml
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply add node@22          any 22.x.y, the lowest that satisfies everyone
  ply add ffmpeg           the newest major version that the source has
  ply add redis@8 node@22 --dir ./app")]
pub(crate) struct AddArgs {
    /// What to add: NAME[@RANGE]
    #[arg(value_name = "NAME[@RANGE]", required = true, value_parser = noun::<Reference>,
          add = crate::commands::completions::packages())]
    what: Vec<Reference>,
    /// The folder with the ply.toml
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    sources: SourceArgs,
}

pub(crate) fn run(args: AddArgs, context: &Context) -> Result<ExitCode, Failure> {
    let folder = Folder::read(&args.dir)?;
    let fetcher = context.fetcher(&args.sources, Arch::HOST)?;
    let mut text = folder.manifest_text.clone();
    let file = folder.manifest_path.display().to_string();
    let mut added = Vec::new();
    for reference in &args.what {
        let addition = addition(&fetcher, reference)?;
        match ply_build::add_dependency(&text, &file, &addition)? {
            Edited::Already => {
                context.say(format!("{} = \"{}\" is there already", addition.name, addition.range))
            }
            Edited::Changed(changed) => {
                text = changed;
                added.push(addition);
            }
        }
    }
    if added.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Folder::replace(&folder.manifest_path, &text)?;
    for addition in added {
        put(&format!("{} = \"{}\"", addition.name, addition.range));
    }
    context.say(format!("added to {file}; ply build resolves it"));
    Ok(ExitCode::SUCCESS)
}

/// What a reference asks for: its range as written, else the one that fits the newest version of the source.
fn addition(fetcher: &Fetcher, reference: &Reference) -> Result<Addition, Failure> {
    if let Some(owner) = &reference.owner {
        return Err(Failure::new(format!("{reference} has an owner, and a dependency is a name: {}", reference.name))
            .hint(format!("put a source of {owner} under [build.sources] and name it: {{ source = \"ALIAS\", version = \"…\" }}")));
    }
    let range = match &reference.range {
        Range::Any => {
            let versions = fetcher.versions(&reference.name, None)?;
            let newest = versions.iter().map(|image| &image.version).filter(|v| !v.is_prerelease()).max();
            newest
                .or(versions.iter().map(|image| &image.version).max())
                .map_or(Range::Any, ply_build::default_range)
        }
        range => range.clone(),
    };
    // A name or a range that isn't there would only be found out by the next build.
    match fetcher.versions(&reference.name, None) {
        Ok(versions) if versions.is_empty() => {
            let words = fetcher.search("").unwrap_or_default();
            let names: Vec<&str> = words.iter().map(|found| found.name.as_str()).collect();
            let source = &fetcher.options().default_source.spec;
            let failure = Failure::new(format!("no package {} in {source}", reference.name));
            return Err(match ply_manifest::nearest(reference.name.as_str(), names.iter().copied()) {
                Some(near) => failure.hint(format!("did you mean {near:?}?")),
                None => failure.hint("ply search WORD lists what a source has"),
            });
        }
        Ok(versions) if !versions.iter().any(|image| range.contains(&image.version)) => {
            let newest = versions.iter().map(|image| &image.version).max();
            let failure = Failure::new(format!("no version of {} is in the range {range}", reference.name));
            return Err(failure.maybe_hint(newest.map(|newest| format!("the newest is {newest}"))));
        }
        // A forge can't list, and an exact version needs no list.
        _ => {}
    }
    Ok(Addition { name: reference.name.clone(), range, source: None, base: false })
}
