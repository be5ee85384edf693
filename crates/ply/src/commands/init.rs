//! `ply init`: a first `ply.toml` for a folder, from what its own files say.

use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write a ply.toml for a folder
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply init                 look at this folder, ask for a name, write ./ply.toml
  ply init -y ./app        ask nothing")]
pub(crate) struct InitArgs {
    /// The folder
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Ask nothing
    #[arg(short = 'y', long)]
    yes: bool,
}

pub(crate) fn run(args: InitArgs, context: &Context) -> Result<ExitCode, Failure> {
    let path = args.dir.join("ply.toml");
    if path.exists() {
        return Err(Failure::new(format!("{} is there already", path.display()))
            .hint("ply add NAME adds a dependency to it; ply run runs it"));
    }
    let mut detected = ply_build::detect(&args.dir).map_err(|why| {
        Failure::new(format!("{} can't be read: {why}", args.dir.display()))
            .hint("name a folder that is there and that you may read")
    })?;
    if !args.yes && std::io::stdin().is_terminal() {
        detected.name = ask("name", detected.name)?;
        detected.version = ask("version", detected.version)?;
    }
    let text = ply_build::init_manifest(&detected);
    // Never over a file that came in between.
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|why| Failure::new(format!("{} can't be written: {why}", path.display())))?;
    context.say(format!("wrote {}, from {}", path.display(), detected.evidence));
    for note in &detected.notes {
        context.say(format!("note: {note}"));
    }
    context.say(format!("next: ply run {}", where_to(&args.dir)));
    Ok(ExitCode::SUCCESS)
}

/// Asks for one value, with what was found as the answer to an empty line.
fn ask<T>(what: &str, found: T) -> Result<T, Failure>
where
    T: std::str::FromStr<Err = ply_manifest::NounError> + std::fmt::Display,
{
    loop {
        eprint!("{what} [{found}]: ");
        let mut line = String::new();
        let read =
            std::io::stdin().read_line(&mut line).map_err(|why| Failure::new(format!("no answer: {why}")))?;
        match line.trim() {
            "" if read == 0 => return Err(Failure::new("no answer").hint("ply init -y asks nothing")),
            "" => return Ok(found),
            text => match text.parse() {
                Ok(value) => return Ok(value),
                Err(error) => eprintln!("{error}"),
            },
        }
    }
}

/// The folder as `ply run` takes it.
fn where_to(dir: &Path) -> String {
    let text = dir.display().to_string();
    let plain = text == "." || text == ".." || ["/", "./", "../", "~"].iter().any(|p| text.starts_with(p));
    let text = if plain { text } else { format!("./{text}") };
    let safe = |c: char| c.is_alphanumeric() || "/._-+=:@%,~".contains(c);
    if text.chars().all(safe) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
