//! `ply run`: one image plus its runtime flags.

use crate::cli::{SourceArgs, noun, whole};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, put};
use clap::Args;
use ply_manifest::{Bytes, Capabilities, Cores, Publish, RunName, Signal, Span, Target};
use ply_run::RunOptions;
use ply_run::What;
use ply_run::options::{
    AddHost, EntrypointFlag, EnvFlag, KeyValue, LinkFlag, NetworkFlag, UserFlag, VolumeFlag,
};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run an app in a box
#[derive(Debug, Args)]
#[command(after_help = "\
WHAT is told apart by its form:
  redis@8, owner/app@1.2             a package, the newest in range
  ./app, ../app, /srv/app, .         a folder, built if it changed
  app-1.0.0-linux-x64.img            an image file
  https://host/app-1.0.0-linux-x64.img

Examples:
  ply run redis@8 --publish 6379
  ply run . --publish 8080:3000 -e NODE_ENV=development
  ply run redis@8 -t --entrypoint /bin/sh
  ply run api@2 --name api -d --mem 512M --pids 256
  ply run ./app --plan               print what would be done, start nothing

Exit code: the app's; 128+N for a signal; 125 where ply failed, 126 and 127 where the
entrypoint can't be run or isn't there, 2 for a wrong command line.")]
pub(crate) struct RunArgs {
    /// What to run: a package, a folder, an image file or a URL
    #[arg(value_name = "WHAT", value_parser = noun::<Target>, required_unless_present = "installed",
          conflicts_with = "installed", add = crate::commands::completions::packages())]
    pub(crate) what: Option<Target>,
    /// Run what was run last under this name
    #[arg(long, value_name = "NAME", value_parser = noun::<RunName>)]
    pub(crate) installed: Option<RunName>,
    /// The app's name on this host (default: the package's)
    #[arg(long, value_name = "NAME", value_parser = noun::<RunName>)]
    pub(crate) name: Option<RunName>,
    /// Set a variable; KEY alone takes the caller's value
    #[arg(short = 'e', long = "env", value_name = "KEY[=VALUE]", value_parser = noun::<EnvFlag>)]
    pub(crate) env: Vec<EnvFlag>,
    /// Read variables from a file of KEY=VALUE lines
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Publish a port: [ADDR:]PORT[:INSTANCE_PORT][/udp]
    #[arg(long, short = 'p', value_name = "PUBLISH", value_parser = noun::<Publish>)]
    pub(crate) publish: Vec<Publish>,
    /// A domain for the edge (not in this version)
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Vec<String>,
    /// Keep a path: NAME:PATH, or PATH
    #[arg(long, value_name = "[NAME:]PATH", value_parser = noun::<VolumeFlag>)]
    pub(crate) volume: Vec<VolumeFlag>,
    /// Bind a host path: HOST:CONTAINER[:ro]
    #[arg(long, value_name = "HOST:CONTAINER[:ro]", value_parser = noun::<LinkFlag>)]
    pub(crate) link: Vec<LinkFlag>,
    /// Bind the host paths that the image asks for
    #[arg(long)]
    pub(crate) grant_links: bool,
    /// Wait for another app (not in this version)
    #[arg(long, value_name = "APP")]
    pub(crate) after: Vec<String>,
    /// How long to wait for it (not in this version)
    #[arg(long, value_name = "DURATION", value_parser = noun::<Span>)]
    pub(crate) after_timeout: Option<Span>,
    /// How many instances
    #[arg(long, value_name = "N", value_parser = whole::<1, 1000>, allow_negative_numbers = true)]
    pub(crate) scale: Option<u32>,
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// Egress policy: off, audit or enforce (not in this version)
    #[arg(long, value_name = "MODE")]
    pub(crate) egress: Option<String>,
    /// Allow a destination (not in this version)
    #[arg(long, value_name = "ENTRY")]
    pub(crate) egress_allow: Vec<String>,
    /// The network: none for loopback alone, host for the host's
    #[arg(long, value_name = "NETWORK", value_parser = noun::<NetworkFlag>)]
    pub(crate) network: Option<NetworkFlag>,
    /// A resolver for the app
    #[arg(long, value_name = "IP")]
    pub(crate) dns: Vec<IpAddr>,
    /// A line for the app's hosts file
    #[arg(long, value_name = "NAME:IP", value_parser = noun::<AddHost>)]
    pub(crate) add_host: Vec<AddHost>,
    /// Give the app a device of the host
    #[arg(long, value_name = "PATH")]
    pub(crate) device: Vec<PathBuf>,
    /// Replace the entrypoint; a text with spaces is run by /bin/sh
    #[arg(long, value_name = "ENTRYPOINT", value_parser = noun::<EntrypointFlag>)]
    pub(crate) entrypoint: Option<EntrypointFlag>,
    /// Run as this user: a name, UID[:GID] or NAME:UID:GID
    #[arg(long, value_name = "USER", value_parser = noun::<UserFlag>)]
    pub(crate) user: Option<UserFlag>,
    /// Start in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// The signal that asks the app to stop
    #[arg(long, value_name = "SIGNAL", value_parser = noun::<Signal>)]
    pub(crate) stop_signal: Option<Signal>,
    /// How long it may take to stop before it is killed
    #[arg(long, value_name = "DURATION", value_parser = noun::<Span>)]
    pub(crate) stop_timeout: Option<Span>,
    /// How long connections of an instance that leaves may take to end (default: 10s)
    #[arg(long, value_name = "DURATION", value_parser = noun::<Span>)]
    pub(crate) drain: Option<Span>,
    /// Capabilities to keep: none, oci, or names with commas
    #[arg(long, value_name = "LIST", value_parser = noun::<Capabilities>)]
    pub(crate) capabilities: Option<Capabilities>,
    /// Make the app pid 1 itself
    #[arg(long)]
    pub(crate) no_init: bool,
    /// Most memory, as 512M
    #[arg(long, value_name = "SIZE", value_parser = noun::<Bytes>)]
    pub(crate) mem: Option<Bytes>,
    /// Most processor time, as 1.5 cores
    #[arg(long, value_name = "CORES", value_parser = noun::<Cores>)]
    pub(crate) cpu: Option<Cores>,
    /// Most processes and threads
    #[arg(long, value_name = "N", value_parser = whole::<1, { u32::MAX }>, allow_negative_numbers = true)]
    pub(crate) pids: Option<u32>,
    /// When to start it again: never, on-failure or always
    #[arg(long, value_name = "POLICY")]
    pub(crate) restart: Option<String>,
    /// Set a param that the manifest declares
    #[arg(long, value_name = "KEY=VALUE", value_parser = noun::<KeyValue>)]
    pub(crate) param: Vec<KeyValue>,
    /// Set any key of [run] by its dotted name
    #[arg(long, value_name = "KEY=VALUE", value_parser = noun::<KeyValue>)]
    pub(crate) set: Vec<KeyValue>,
    /// Give the app a terminal of its own
    #[arg(short = 't', long = "terminal")]
    pub(crate) terminal: bool,
    /// Return once it runs, and leave it in the background
    #[arg(short = 'd', long = "detach", conflicts_with = "terminal")]
    pub(crate) detach: bool,
    /// Print what would be done (what it must read is fetched or built), and start nothing
    #[arg(long)]
    pub(crate) plan: bool,
    /// With --plan: as JSON
    #[arg(long, requires = "plan")]
    pub(crate) json: bool,
    /// Keep every right; for software that you trust as the host
    #[arg(long)]
    pub(crate) privileged: bool,
    /// Arguments for the entrypoint
    #[arg(last = true, value_name = "ARG")]
    pub(crate) args: Vec<String>,
}

pub(crate) fn run(args: RunArgs, context: &Context) -> Result<ExitCode, Failure> {
    let (what, options, plan, json) = options(args)?;
    let run_context = context.run_context(&options.sources)?;
    let options = options.run;
    if plan {
        let plan = ply_run::plan(&what, &options, &run_context).map_err(Failure::of_run)?;
        match json {
            true => output::json(&plan.to_json())?,
            false => put(plan.to_string().trim_end()),
        }
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::from(ply_run::run(&what, &options, run_context).map_err(Failure::of_run)?))
}

/// The flags as the run takes them, and where packages come from.
pub(crate) struct Options {
    pub(crate) run: RunOptions,
    pub(crate) sources: SourceArgs,
}

/// Sorts the flags: what to run, how, and whether only the plan is wanted, as JSON or text.
pub(crate) fn options(args: RunArgs) -> Result<(What, Options, bool, bool), Failure> {
    let what = match (args.what, args.installed) {
        (Some(target), _) => What::Target(target),
        (None, Some(name)) => What::Installed(name),
        (None, None) => {
            return Err(Failure::usage("nothing is named to run").hint("ply run --help shows how"));
        }
    };
    let run = RunOptions {
        name: args.name,
        env: args.env,
        env_files: args.env_file,
        publish: args.publish,
        domains: args.domain,
        volumes: args.volume,
        links: args.link,
        grant_links: args.grant_links,
        after: args.after,
        after_timeout: args.after_timeout,
        scale: args.scale,
        source: args.sources.source.clone(),
        insecure_source: args.sources.insecure_source,
        egress: args.egress,
        egress_allow: args.egress_allow,
        network: args.network,
        dns: args.dns,
        add_hosts: args.add_host,
        devices: args.device,
        entrypoint: args.entrypoint,
        user: args.user,
        workdir: args.workdir,
        stop_signal: args.stop_signal,
        stop_timeout: args.stop_timeout,
        capabilities: args.capabilities,
        no_init: args.no_init,
        mem: args.mem,
        cpu: args.cpu,
        pids: args.pids,
        restart: args.restart,
        params: args.param,
        set: args.set,
        drain: args.drain,
        terminal: args.terminal,
        detach: args.detach,
        privileged: args.privileged,
        args: args.args,
    };
    Ok((what, Options { run, sources: args.sources }, args.plan, args.json))
}
