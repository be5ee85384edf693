//! ply: a package manager and a container runtime in one binary.
//!
//! `main` reads the command line, sets up what every verb shares, and hands over to the one file of the
//! verb under `commands/`. Results go to standard output, everything else to standard error.

// The doc lines of flags are the help texts, where brackets mean what may be left out.
#![allow(rustdoc::broken_intra_doc_links, reason = "help texts are no links")]

mod cli;
mod commands;
mod context;
mod elsewhere;
mod failure;
mod folder;
mod logging;
mod output;
mod progress;

use clap::{CommandFactory, FromArgMatches};
use cli::{Cli, Verb};
use context::Context;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    clap_complete::CompleteEnv::with_factory(Cli::command).complete();
    let args: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if let Some(answer) = args.get(1).and_then(|word| elsewhere::answer(&word.to_string_lossy())) {
        return Failure::usage(answer.message).hint(answer.hint).report();
    }
    let first = args.iter().skip(1).map(|arg| arg.to_string_lossy()).find(|arg| !arg.starts_with('-'));
    let first = first.map(std::borrow::Cow::into_owned);
    let matches = match Cli::command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => match unknown_verb(&error, first.as_deref()) {
            Some(failure) => return failure.report(),
            None => error.exit(),
        },
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    logging::start(&cli.shared);
    match dispatch(cli) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// A first word that is no verb, with the one that was meant, if one is near.
fn unknown_verb(error: &clap::Error, first: Option<&str>) -> Option<Failure> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    else {
        return None;
    };
    if first != Some(word) {
        return None;
    }
    let cli = Cli::command();
    let verbs = cli.get_subcommands().filter(|c| !c.is_hide_set()).map(clap::Command::get_name);
    let near = ply_manifest::nearest(word, verbs);
    let hint = near.map_or("ply --help lists the verbs".to_owned(), |near| format!("did you mean {near}?"));
    Some(Failure::usage(format!("ply has no verb {word:?}")).hint(hint))
}

/// The exit code of `ply run` and `ply exec` where ply itself failed.
const PLY_FAILED: u8 = ply_run::EXIT_PLY;

/// The table of contents: each arm is one thing that ply does.
fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    let runs = matches!(cli.verb, Verb::Run(_) | Verb::Exec(_));
    let context = Context::new(cli.shared).map_err(|f| if runs { f.unless_coded(PLY_FAILED) } else { f })?;
    match cli.verb {
        Verb::Init(args) => commands::init::run(args, &context),
        Verb::Add(args) => commands::add::run(args, &context),
        Verb::Update(args) => commands::update::run(args, &context),
        Verb::Search(args) => commands::search::run(args, &context),
        Verb::Outdated(args) => commands::outdated::run(args, &context),
        Verb::Tree(args) => commands::tree::run(args, &context),
        Verb::Build(args) => commands::build::run(args, &context),
        Verb::Check(args) => commands::check::run(args, &context),
        Verb::Inspect(args) => commands::inspect::run(args, &context),
        Verb::Forge(args) => commands::forge::run(args, &context),
        Verb::Run(args) => commands::run::run(*args, &context).map_err(|f| f.unless_coded(PLY_FAILED)),
        Verb::Exec(args) => commands::exec::run(args, &context),
        Verb::Ps(args) => commands::ps::run(args, &context),
        Verb::Stats(args) => commands::stats::run(args, &context),
        Verb::Logs(args) => commands::logs::run(args, &context),
        Verb::Events(args) => commands::events::run(args, &context),
        Verb::Why(args) => commands::why::run(args, &context),
        Verb::Stop(args) => commands::stop::run(args, &context),
        Verb::Restart(args) => commands::restart::run(args, &context),
        Verb::Scale(args) => commands::scale::run(args, &context),
        Verb::Deploy(args) => commands::deploy::run(args, &context),
        Verb::Rollback(args) => commands::rollback::run(args, &context),
        Verb::Rm(args) => commands::rm::run(args, &context),
        Verb::Fetch(args) => commands::fetch::run(args, &context),
        Verb::Store(args) => commands::store::run(args, &context),
        Verb::Volume(args) => commands::volume::run(args, &context),
        Verb::Gc(args) => commands::gc::run(args, &context),
        Verb::Verify(args) => commands::verify::run(args, &context),
        Verb::Systemd(args) => commands::systemd::run(*args, &context),
        Verb::Config(args) => commands::config::run(args, &context),
        Verb::Completions(args) => commands::completions::run(args, &context),
        Verb::Man(args) => commands::man::run(args, &context),
        Verb::Prepare(args) => commands::prepare::run(args, &context),
    }
}
