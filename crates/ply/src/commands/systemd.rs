//! `ply systemd`: the unit that keeps an app running, over crashes and reboots.

use crate::commands::run::{RunArgs, options};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::put;
use clap::Args;
use ply_host::{Manager, Unit};
use ply_run::options::EnvFlag;
use std::process::ExitCode;

/// Print a systemd unit that runs an app, with the flags of ply run
#[derive(Debug, Args)]
#[command(
    mut_arg("user", |arg| arg.long("run-user")),
    mut_arg("terminal", |arg| arg.hide(true)),
    mut_arg("detach", |arg| arg.hide(true)),
    mut_arg("plan", |arg| arg.hide(true)),
    mut_arg("json", |arg| arg.hide(true))
)]
#[command(after_help = "\
Examples:
  ply systemd ./web-1.0.0-linux-x64.img --publish 80:3000 > /etc/systemd/system/ply-web.service
  systemctl daemon-reload && systemctl enable --now ply-web
  ply systemd redis@8 --user > ~/.config/systemd/user/ply-redis.service

The image is brought into the store and recorded under the app's name. The unit starts what is
recorded, so after ply deploy a restart or a reboot starts what was deployed last. Here --user
means your own systemd; the user that the app runs as is --run-user.")]
pub(crate) struct SystemdArgs {
    #[command(flatten)]
    run: RunArgs,
    /// For your own systemd, not the machine's
    #[arg(long = "user", id = "own")]
    own: bool,
}

pub(crate) fn run(args: SystemdArgs, context: &Context) -> Result<ExitCode, Failure> {
    let root = ply_sandbox::Host::probe(&ply_run::Context::cgroup_from_env()).root;
    if !args.own && !root {
        return Err(Failure::usage("your account's apps are not for the machine's systemd")
            .hint("add --user for your own systemd, or run it with sudo for the machine's"));
    }
    let (what, options, plan, _) = options(args.run)?;
    if plan {
        return Err(Failure::usage("--plan is for ply run").hint("leave it out: this starts nothing"));
    }
    let run_context = context.run_context(&options.sources)?;
    let flags = options.run.to_flags(&run_context.cwd)?;
    let plan = ply_run::install(&what, &options.run, &run_context)?;
    if options.run.env.iter().any(|e| matches!(e, EnvFlag::Set(..))) {
        context.say("the values of -e stand in the unit, for everyone on this host to read: keep secrets in an --env-file");
    }
    let folders = ["PLY_DATA_DIR", "PLY_RUN_DIR", "PLY_CONFIG_DIR"];
    let env = folders.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    let program = std::env::current_exe()
        .map_err(|why| Failure::new(format!("this program's own path can't be found: {why}")))?;
    let manager = if args.own { Manager::User } else { Manager::System };
    let unit = Unit {
        name: plan.name.clone(),
        description: plan.description.clone(),
        program,
        flags,
        args: options.run.args.clone(),
        env: env.collect(),
        manager,
        stop_timeout: plan.stop_timeout,
        never_again: options.run.restart.as_deref() == Some("never"),
        privileged: plan.privileged,
    };
    put(unit.text().trim_end());
    let file = unit.file_name();
    context.say(format!("recorded {} as {}", plan.image, plan.name));
    context.say(match manager {
        Manager::System => format!(
            "put the unit into /etc/systemd/system/{file}, then: systemctl daemon-reload && systemctl enable --now {file}"
        ),
        Manager::User => format!(
            "put the unit into ~/.config/systemd/user/{file}, then: systemctl --user daemon-reload && systemctl --user enable --now {file}; to have it start without a login: loginctl enable-linger"
        ),
    });
    Ok(ExitCode::SUCCESS)
}
