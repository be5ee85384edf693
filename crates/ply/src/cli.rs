//! The command line as one definition, from which parsing, help, completions and man pages are made.
//! The flags of a verb stand in the verb's own file.

use crate::commands;
use clap::{Args, Parser, Subcommand};

/// npm for containers: build, fetch and run boxed apps. No daemon.
#[derive(Debug, Parser)]
#[command(name = "ply", bin_name = "ply", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "\
A first run:
  ply run redis@8 --publish 6379     fetch it, box it, publish its port
  ply init && ply run . --publish 8080:3000
                                     turn this folder into an app and run it
  ply ps                             what runs on this host

`ply VERB --help` shows each verb's flags and examples.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) shared: Shared,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What every verb takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Shared {
    /// Say only errors and results
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more about what is done
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

/// One variant a verb, in the order of the work: make, run, data, host.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Init(commands::init::InitArgs),
    Add(commands::add::AddArgs),
    Update(commands::update::UpdateArgs),
    Search(commands::search::SearchArgs),
    Outdated(commands::outdated::OutdatedArgs),
    Tree(commands::tree::TreeArgs),
    Build(commands::build::BuildArgs),
    Check(commands::check::CheckArgs),
    Inspect(commands::inspect::InspectArgs),
    Forge(commands::forge::ForgeArgs),
    Run(Box<commands::run::RunArgs>),
    Exec(commands::exec::ExecArgs),
    Ps(commands::ps::PsArgs),
    Stats(commands::stats::StatsArgs),
    Logs(commands::logs::LogsArgs),
    Events(commands::events::EventsArgs),
    Why(commands::why::WhyArgs),
    Stop(commands::stop::StopArgs),
    Restart(commands::restart::RestartArgs),
    Scale(commands::scale::ScaleArgs),
    Deploy(commands::deploy::DeployArgs),
    Rollback(commands::rollback::RollbackArgs),
    Rm(commands::rm::RmArgs),
    Fetch(commands::fetch::FetchArgs),
    Store(commands::store::StoreArgs),
    Volume(commands::volume::VolumeArgs),
    Gc(commands::gc::GcArgs),
    Verify(commands::verify::VerifyArgs),
    Systemd(Box<commands::systemd::SystemdArgs>),
    Config(commands::config::ConfigArgs),
    Completions(commands::completions::CompletionsArgs),
    Man(commands::man::ManArgs),
    #[command(hide = true, name = ply_run::PREPARE)]
    Prepare(commands::prepare::PrepareArgs),
}

/// Where packages are fetched from, for every verb that fetches.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SourceArgs {
    /// Look names up in this source: an https:// URL, file:///DIR, github:OWNER/REPO
    #[arg(long, value_name = "SPEC", value_parser = noun::<ply_manifest::SourceSpec>)]
    pub(crate) source: Option<ply_manifest::SourceSpec>,
    /// Allow plain http:// from hosts that are neither loopback nor private
    #[arg(long)]
    pub(crate) insecure_source: bool,
}

/// A value parser for any noun of ply, with its hint on a second line.
pub(crate) fn noun<T>(text: &str) -> Result<T, String>
where
    T: std::str::FromStr<Err = ply_manifest::NounError>,
{
    text.parse().map_err(|error: ply_manifest::NounError| match error.hint {
        Some(hint) => format!("{}\nhint: {hint}", error.message),
        None => error.message,
    })
}

/// A value parser for whole numbers from `LEAST` to `MOST`.
pub(crate) fn whole<const LEAST: u32, const MOST: u32>(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if (LEAST..=MOST).contains(&number) => Ok(number),
        _ if MOST == u32::MAX => Err(format!("write a whole number from {LEAST} up")),
        _ => Err(format!("write a whole number from {LEAST} to {MOST}")),
    }
}

/// A value parser for the name of an app, where one of its instances can't be meant.
pub(crate) fn app_name(text: &str) -> Result<ply_manifest::RunName, String> {
    match text.parse::<ply_run::InstanceName>() {
        Ok(ply_run::InstanceName { app, slot: Some(_) }) => {
            Err(format!("it is one instance, and this is done to a whole app\nhint: write {app}"))
        }
        _ => noun(text),
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_says_what_it_is_and_shows_examples() {
        for verb in Cli::command().get_subcommands() {
            let name = verb.get_name();
            assert!(verb.get_about().is_some(), "{name} has no description");
            assert!(verb.get_after_help().is_some(), "{name} has no examples");
        }
    }
}
