//! `ply build`: resolves, locks and packs a folder into one image.

use crate::cli::{SourceArgs, noun};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, count, put, size};
use clap::Args;
use ply_build::{BuildRequest, Output};
use ply_manifest::Arch;
use std::path::PathBuf;
use std::process::ExitCode;

/// Build a folder into an image
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply build                writes NAME-VERSION-linux-ARCH.img and ply.lock here
  ply build ./app -o /srv/packages/app/
  ply build --locked       for CI: fails where ply.lock would change")]
pub(crate) struct BuildArgs {
    /// The folder with the ply.toml
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Where to write the image: a file, or a folder that exists
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Build for another arch: x64 or arm64
    #[arg(long, value_name = "ARCH", value_parser = noun::<Arch>, default_value_t = Arch::HOST)]
    arch: Arch,
    /// Fail where ply.lock would change
    #[arg(long)]
    locked: bool,
    /// Ship files that look like credentials
    #[arg(long)]
    allow_secrets: bool,
    #[command(flatten)]
    sources: SourceArgs,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: BuildArgs, context: &Context) -> Result<ExitCode, Failure> {
    let mut request = BuildRequest::new(&args.dir, context.dirs.clone());
    request.arch = args.arch;
    request.locked = args.locked;
    request.allow_secrets = args.allow_secrets;
    request.epoch = source_date_epoch()?;
    if let Some(file) = args.output {
        request.output = Output::File(file);
    }
    let fetcher = context.fetcher(&args.sources, args.arch)?;
    // gc must not take between resolving and packing what was just fetched.
    let _hold = context.store()?.hold()?;
    let built = ply_build::build(&request, &fetcher)?;
    for notice in &built.notices {
        context.say(format!("note: {notice}"));
    }
    if args.json {
        output::json(&serde_json::json!({
            "image": built.image, "path": built.path, "digest": built.digest, "bytes": built.bytes,
            "files": built.shipped.files, "content_bytes": built.shipped.bytes, "skipped": built.skipped,
            "lock_changed": built.lock_changed, "left_out": built.left_out,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if built.lock_changed {
        context.say(format!(
            "wrote {}: {}",
            args.dir.join("ply.lock").display(),
            count(built.lock.packages.len() as u64, "package")
        ));
    }
    let chosen = if built.shipped.chosen { "chosen by include" } else { "everything in the folder" };
    context.say(format!(
        "ships {}, {} ({chosen})",
        count(built.shipped.files, "file"),
        size(built.shipped.bytes)
    ));
    if context.shared.verbose {
        for (name, files, bytes) in &built.shipped.top {
            context.say(format!("  {name}  {}, {}", count(*files, "file"), size(*bytes)));
        }
    }
    if !built.left_out.is_empty() {
        context.say(format!("left out: {}", built.left_out.join(", ")));
    }
    if built.skipped {
        context.say("nothing changed since it was built");
    }
    put(&format!("{}  {}  {}", built.path.display(), size(built.bytes), built.digest));
    Ok(ExitCode::SUCCESS)
}

/// The time of every entry, in seconds; 0 where the variable is not set (reproducible-builds.org).
fn source_date_epoch() -> Result<u32, Failure> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Err(_) => Ok(0),
        Ok(text) => text
            .parse()
            .map_err(|_| Failure::usage(format!("SOURCE_DATE_EPOCH is not a number of seconds: {text:?}"))),
    }
}
