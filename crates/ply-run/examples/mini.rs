//! The smallest caller of this crate: `mini run WHAT [flags] [-- ARG…]`, `mini ps|logs|stop|rm|exec …`. It is
//! what the crate's black-box tests drive.

use ply_run::options::RunOptions;
use ply_run::{Context, InstanceName, LogOptions, RunError, What};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match act(&words) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            ply_run::restore_terminal();
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("hint: {hint}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}

fn context(options: &RunOptions) -> Result<Context, RunError> {
    let dirs = ply_image::Dirs::from_env().map_err(|e| RunError::plain(e.to_string()))?;
    let store = ply_image::Store::open(&dirs).map_err(|e| RunError::plain(e.to_string()))?;
    let mut fetch =
        ply_source::FetchOptions::new(store.clone(), &dirs).map_err(|e| RunError::plain(e.to_string()))?;
    fetch.source.clone_from(&options.source);
    Ok(Context {
        dirs,
        store,
        fetcher: ply_source::Fetcher::new(fetch),
        cgroup_parent: Context::cgroup_from_env(),
        cwd: std::env::current_dir().unwrap_or_default(),
        say: Box::new(|line| eprintln!("{line}")),
    })
}

fn act(words: &[String]) -> Result<u8, RunError> {
    let (verb, rest) = words.split_first().ok_or_else(|| RunError::usage("no verb", "run"))?;
    match verb.as_str() {
        "run" | "plan" | "plan-json" => {
            let (what, options) = parse(rest)?;
            let context = context(&options)?;
            if verb == "run" {
                return ply_run::run(&what, &options, context);
            }
            let plan = ply_run::plan(&what, &options, &context)?;
            if verb == "plan" { print!("{plan}") } else { println!("{:#}", plan.to_json()) }
        }
        "ps" => {
            for row in ply_run::ps(&context(&RunOptions::default())?.dirs)? {
                let health = row.health.as_deref().unwrap_or("-");
                let (status, restarts) = (row.status.as_str(), row.restarts);
                println!("{}.{} {status} {:?} {health} {restarts}", row.name, row.slot, row.pid);
            }
        }
        "logs" => {
            let name: InstanceName = rest[0].parse()?;
            let options = LogOptions { follow: rest.get(1).is_some_and(|f| f == "-f"), ..Default::default() };
            ply_run::logs(
                &context(&RunOptions::default())?.dirs,
                Some(&name),
                &options,
                &mut std::io::stdout(),
            )?;
        }
        "stop" => ply_run::stop(&context(&RunOptions::default())?.dirs, &rest[0].parse()?)?,
        "why" => print!("{}", ply_run::why(&context(&RunOptions::default())?.dirs, &rest[0].parse()?)?),
        "events" => {
            let dirs = context(&RunOptions::default())?.dirs;
            ply_run::events(&dirs, None, rest.contains(&"-f".into()), false, &mut std::io::stdout())?;
        }
        "scale" => {
            let to = rest[1].parse().map_err(|_| RunError::usage("no number", "3"))?;
            println!("{}", ply_run::scale(&context(&RunOptions::default())?.dirs, &rest[0].parse()?, to)?);
        }
        "restart" => {
            let dirs = context(&RunOptions::default())?.dirs;
            println!("{}", ply_run::restart(&dirs, &rest[0].parse()?, &mut |step| println!("{step}"))?);
        }
        "rm" => {
            let context = context(&RunOptions::default())?;
            let ids = ply_sandbox::Host::probe(&context.cgroup_parent).ids((0, 65_536));
            let with_volumes = rest.get(1).is_some_and(|f| f == "--volumes");
            println!("{:?}", ply_run::rm(&context.dirs, &rest[0].parse()?, with_volumes, &ids)?);
        }
        "volume-rm" => {
            let context = context(&RunOptions::default())?;
            let ids = ply_sandbox::Host::probe(&context.cgroup_parent).ids((0, 65_536));
            ply_run::remove_volumes(&context.dirs, &ids, &ply_run::VolumeChoice::Named(rest[0].clone()))?;
        }
        "exec" => {
            let (terminal, rest) = match rest.split_first() {
                Some((flag, rest)) if flag == "-t" => (true, rest),
                _ => (false, rest),
            };
            return ply_run::exec(
                &context(&RunOptions::default())?.dirs,
                &rest[0].parse()?,
                &rest[1..],
                terminal,
            );
        }
        other => return Err(RunError::usage(format!("no such verb: {other}"), "run")),
    }
    Ok(0)
}

fn parse(words: &[String]) -> Result<(What, RunOptions), RunError> {
    let mut options = RunOptions::default();
    let mut what = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().unwrap_or_default();
        match word.as_str() {
            "--" => {
                options.args = words.by_ref().cloned().collect();
            }
            "--name" => options.name = Some(value().parse()?),
            "-e" => options.env.push(value().parse()?),
            "--env-file" => options.env_files.push(value().into()),
            "--publish" => options.publish.push(value().parse()?),
            "--volume" => options.volumes.push(value().parse()?),
            "--link" => options.links.push(value().parse()?),
            "--grant-links" => options.grant_links = true,
            "--scale" => options.scale = value().parse().ok(),
            "--source" => options.source = Some(value().parse()?),
            "--network" => options.network = Some(value().parse()?),
            "--dns" => options.dns.extend(value().parse::<std::net::IpAddr>().ok()),
            "--add-host" => options.add_hosts.push(value().parse()?),
            "--device" => options.devices.push(value().into()),
            "--entrypoint" => options.entrypoint = Some(value().parse()?),
            "--user" => options.user = Some(value().parse()?),
            "--workdir" => options.workdir = Some(value()),
            "--stop-signal" => options.stop_signal = Some(value().parse()?),
            "--stop-timeout" => options.stop_timeout = Some(value().parse()?),
            "--capabilities" => options.capabilities = Some(value().parse()?),
            "--no-init" => options.no_init = true,
            "--mem" => options.mem = Some(value().parse()?),
            "--pids" => options.pids = value().parse().ok(),
            "--param" => options.params.push(value().parse()?),
            "--set" => options.set.push(value().parse()?),
            "--restart" => options.restart = Some(value()),
            "--drain" => options.drain = Some(value().parse()?),
            "--domain" => options.domains.push(value()),
            "-t" => options.terminal = true,
            "-d" => options.detach = true,
            "--privileged" => options.privileged = true,
            "--installed" => what = Some(What::Installed(value().parse()?)),
            flag if flag.starts_with('-') => {
                return Err(RunError::usage(format!("unknown flag {flag}"), "see parse in mini.rs"));
            }
            target => what = Some(What::Target(target.parse()?)),
        }
    }
    Ok((what.ok_or_else(|| RunError::usage("nothing to run", "write WHAT"))?, options))
}
