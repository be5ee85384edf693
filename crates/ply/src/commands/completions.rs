//! `ply completions`: what a shell loads so that TAB completes verbs, flags, running apps and packages.

use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use std::process::ExitCode;

/// Print the completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply completions bash > /etc/bash_completion.d/ply
  ply completions zsh > ~/.zfunc/_ply
  ply completions fish > ~/.config/fish/completions/ply.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

pub(crate) fn run(args: CompletionsArgs, _context: &Context) -> Result<ExitCode, Failure> {
    let shells = clap_complete::env::Shells::builtins();
    let shell = shells.completer(&args.shell).ok_or_else(|| Failure::usage("no such shell"))?;
    shell
        .write_registration("COMPLETE", "ply", "ply", "ply", &mut std::io::stdout())
        .map_err(|why| Failure::new(format!("the completions can't be written: {why}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Completes the names of running apps.
pub(crate) fn apps() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let Ok(dirs) = ply_image::Dirs::from_env() else { return Vec::new() };
        names_in(&dirs.run.join("state"), |file| {
            Some(file.strip_suffix(".json")?.rsplit_once('.')?.0.to_owned())
        })
    })
}

/// Completes the names of packages in the store.
pub(crate) fn packages() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let Ok(dirs) = ply_image::Dirs::from_env() else { return Vec::new() };
        let Ok(store) = ply_image::Store::open(&dirs) else { return Vec::new() };
        let mut names: Vec<String> =
            store.list().unwrap_or_default().into_iter().map(|entry| entry.name.name.to_string()).collect();
        names.sort();
        names.dedup();
        names.into_iter().map(CompletionCandidate::new).collect()
    })
}

fn names_in(dir: &std::path::Path, name: impl Fn(&str) -> Option<String>) -> Vec<CompletionCandidate> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| name(&entry.file_name().to_string_lossy())).collect();
    names.sort();
    names.dedup();
    names.into_iter().map(CompletionCandidate::new).collect()
}
