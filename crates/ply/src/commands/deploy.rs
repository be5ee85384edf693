//! `ply deploy`: has a running app go over to another image, slot by slot, and back if it fails.

use crate::cli::{SourceArgs, app_name, noun};
use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use ply_manifest::{RunName, Span, Target};
use std::process::ExitCode;

/// Have a running app go over to another image, and back if that one does not become healthy
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply deploy web-1.1.0-linux-x64.img
  ply deploy ./web --name web-staging
  ply deploy web@1.1 --timeout 60s

The image is made ready while the old one serves. Then, slot by slot: no new connection, those that
it has may end (--drain of ply run, 10 s), stop, start from the new image, and on once that is
healthy. A single instance without volumes of its own has its successor started beside it first.
Where a new instance does not become healthy every slot gets the old image back, and this command
fails with the last lines that the new one wrote. What ply run --installed or a reboot starts
afterwards is what was deployed last. Interrupting this command does not interrupt the deploy.")]
pub(crate) struct DeployArgs {
    /// The image: a file, a folder, a package or a URL
    #[arg(value_name = "IMAGE", value_parser = noun::<Target>, add = crate::commands::completions::packages())]
    image: Target,
    /// The app that it is for (default: the one of the image's name)
    #[arg(long, value_name = "APP", value_parser = app_name, add = crate::commands::completions::apps())]
    name: Option<RunName>,
    /// How long each new instance has to become healthy (default: grace of its [run.health], 30s)
    #[arg(long, value_name = "DURATION", value_parser = noun::<Span>)]
    timeout: Option<Span>,
    #[command(flatten)]
    sources: SourceArgs,
}

pub(crate) fn run(args: DeployArgs, context: &Context) -> Result<ExitCode, Failure> {
    let run_context = context.run_context(&args.sources)?;
    let each = &mut |step: &str| context.say(step);
    let done = ply_run::deploy(&args.image, args.name.as_ref(), args.timeout, &run_context, each)?;
    context.say(done);
    Ok(ExitCode::SUCCESS)
}
