//! The plan: everything that a run will do, decided before anything is touched. A pure function of manifest,
//! lock, flags and facts about the host; `--plan` prints it, and tests compare it.

use crate::env::{Contribution, EnvParts, PlannedVar, compose};
use crate::links::{HostMeta, PlannedLink, plan_links};
use crate::options::{MAX_SCALE, NetworkFlag, RunOptions, absolute};
use crate::rootfs::Rootfs;
use crate::user::{User, plan_user};
use crate::volumes::{PlannedVolume, plan_volumes};
use crate::{RunError, program};
use ply_manifest::{
    DevOverlay, Digest, ImageName, LayerSection, Limit, Manifest, Publish, PublishAddress, Restart, RunName,
    Signal,
};
use ply_sandbox::Host;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The least memory that a run may be limited to, in bytes.
const LEAST_MEMORY: u64 = 1 << 20;
/// The fewest processes that a run may be limited to.
const LEAST_PIDS: u32 = 2;
/// The limit on processes where nothing is said. Source: "limits" of the box.
pub const DEFAULT_PIDS: u32 = 4096;
/// How long a stop waits before it kills.
pub const DEFAULT_STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one that leaves may finish its connections.
pub const DEFAULT_DRAIN: Duration = Duration::from_secs(10);
/// The time that a published port has to answer where `[run.health]` says nothing.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// One layer of a run, as the plan needs it; the app's own image is the first.
#[derive(Debug, Clone)]
pub struct PlanLayer {
    /// The identity of its bytes.
    pub digest: Digest,
    /// Its name.
    pub name: ImageName,
    /// Its image in the store.
    pub image: PathBuf,
    /// Its extracted tree, where the host needs one.
    pub tree: Option<PathBuf>,
    /// What its manifest gives to others.
    pub section: LayerSection,
}

/// What a plan is made of.
pub struct PlanInput<'a> {
    /// The app's manifest, `--set` laid over it.
    pub manifest: &'a Manifest,
    /// The layers, topmost first.
    pub layers: &'a [PlanLayer],
    /// `ply.dev.toml` and the app's folder.
    pub overlay: Option<(&'a DevOverlay, &'a Path)>,
    /// Env files: the path as written, and what they hold.
    pub env_files: &'a [(String, Vec<(String, String)>)],
    /// The flags.
    pub options: &'a RunOptions,
    /// What the host can do.
    pub host: &'a Host,
    /// The image's files.
    pub root: &'a dyn Rootfs,
    /// The caller's folder.
    pub cwd: &'a Path,
    /// The caller's environment.
    pub caller: &'a dyn Fn(&str) -> Option<String>,
    /// What stands at a host path.
    pub host_stat: &'a dyn Fn(&Path) -> io::Result<HostMeta>,
}

/// One port that is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedPublish {
    /// Where on the host: `public` or an address.
    #[serde(serialize_with = "by_text")]
    pub address: ShownAddress,
    /// The port on the host.
    pub port: u16,
    /// The port inside.
    pub instance_port: u16,
}

/// A publish address that prints as the flag's grammar writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownAddress(pub PublishAddress);

impl std::fmt::Display for ShownAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            PublishAddress::Public => f.write_str("public"),
            PublishAddress::Internal => f.write_str("internal"),
            PublishAddress::Ip(ip) if ip.is_ipv6() => write!(f, "[{ip}]"),
            PublishAddress::Ip(ip) => write!(f, "{ip}"),
        }
    }
}

fn by_text<S: serde::Serializer>(value: &impl std::fmt::Display, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(value)
}

/// How an instance shows that it is healthy: its port takes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PlannedHealth {
    /// The port inside.
    pub port: u16,
    /// The time that it has from its start, in milliseconds.
    pub grace_ms: u64,
    /// Whether it is asked for as long as it runs (`[run.health]`), or only at its start (a published port).
    pub always: bool,
}

/// How ids inside map to ids outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IdMode {
    /// A range leased for the app.
    Leased,
    /// The caller is root inside.
    Rootless,
    /// No user namespace: this host can't.
    Host,
}

/// The limits of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedLimits {
    /// Memory in bytes, or none.
    pub memory_bytes: Option<u64>,
    /// Thousandths of a core, or none.
    pub cpu_millis: Option<u32>,
    /// Processes and threads.
    pub pids: u32,
}

/// Everything that a run will do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The identity.
    pub name: RunName,
    /// What it is, in the manifest's words; empty where there are none.
    pub description: String,
    /// The image.
    pub image: ImageName,
    /// Its digest.
    pub digest: Digest,
    /// How many slots.
    pub scale: u32,
    /// The layers, topmost first.
    pub layers: Vec<PlanLayer>,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The whole environment, sorted by name.
    pub env: Vec<PlannedVar>,
    /// The working directory.
    pub workdir: String,
    /// The run user.
    pub user: User,
    /// What asks it to stop.
    pub stop_signal: Signal,
    /// How long a stop waits before it kills.
    pub stop_timeout: Duration,
    /// How long one that leaves while others serve may finish its connections.
    pub drain: Duration,
    /// When an instance that has ended is started again.
    pub restart: Restart,
    /// The port that tells whether an instance is healthy, and how it is asked.
    pub health: Option<PlannedHealth>,
    /// The least number of slots.
    pub least: u32,
    /// Names of the capabilities that are kept.
    pub capabilities: Vec<String>,
    /// The same as the kernel's bit set.
    pub capability_bits: u64,
    /// Whether an init of ply's is pid 1.
    pub init: bool,
    /// Whether nothing is taken away from it.
    pub privileged: bool,
    /// `-t`.
    pub terminal: bool,
    /// The volumes, in the order in which they are mounted.
    pub volumes: Vec<PlannedVolume>,
    /// The links, in order.
    pub links: Vec<PlannedLink>,
    /// What the image asks for and doesn't get without `--grant-links`.
    pub requested_links: Vec<String>,
    /// Host devices.
    pub devices: Vec<PathBuf>,
    /// The network.
    pub network: ply_sandbox::Network,
    /// What is published.
    pub publish: Vec<PlannedPublish>,
    /// The limits of each instance.
    pub limits: PlannedLimits,
    /// The most that scratch holds, in bytes.
    pub scratch_bytes: u64,
    /// How ids map.
    pub ids: IdMode,
    /// Files written into scratch; those of the network are made for each slot.
    pub files: Vec<ply_sandbox::ScratchFile>,
    /// Folders made in scratch.
    pub folders: Vec<ply_sandbox::ScratchFolder>,
    /// `--dns`, or the host's servers on the host's network.
    pub resolver: String,
    /// `--add-host` lines of the hosts file.
    pub hosts: Vec<String>,
    /// What the user should know: one line each.
    pub notices: Vec<String>,
}

/// Makes the plan. Everything wrong that can be seen from here is an error here.
pub fn plan(input: &PlanInput<'_>) -> Result<Plan, RunError> {
    let (manifest, options, run) = (input.manifest, input.options, &input.manifest.run);
    let mut notices = Vec::new();
    options.check()?;
    let own = input.layers.first().ok_or_else(|| RunError::plain("an app has at least its own layer"))?;
    let name = match &options.name {
        Some(name) => name.clone(),
        None => {
            let name = RunName::from_package(&manifest.package.name);
            if name.as_str() != manifest.package.name.as_str() {
                notices.push(format!("it runs under the name {name}"));
            }
            name
        }
    };

    let overlay = input.overlay.map(|(overlay, _)| overlay);
    let entrypoint = options
        .entrypoint
        .as_ref()
        .map(|e| &e.0)
        .or_else(|| overlay.and_then(|o| o.entrypoint.as_ref()))
        .or(run.entrypoint.as_ref());
    let entrypoint = entrypoint.ok_or_else(|| {
        RunError::refused(
            format!("{} has no entrypoint", own.name),
            "it is a layer or a base for others; name a program with --entrypoint to look inside",
        )
    })?;
    let argv = entrypoint.argv(&options.args);

    let user = plan_user(run.user.as_ref(), options.user.as_ref(), input.root)?;
    check_ids(&user.user, input.host)?;
    let prefix = format!("/opt/{}", manifest.package.name);
    let workdir = match options.workdir.as_deref().or(run.workdir.as_deref()) {
        Some("/") => "/".to_owned(),
        Some(dir) => absolute(dir).ok_or_else(|| {
            RunError::usage(
                format!("{dir:?} is not a working directory"),
                "write an absolute path without ..",
            )
        })?,
        None if input.root.stat(&prefix).is_some_and(|m| m.is_dir) => prefix.clone(),
        None => "/".to_owned(),
    };

    let (least, scale) = scale(input, &mut notices)?;
    let publish = publish(input)?;
    let volumes = plan_volumes(&run.volumes, &options.volumes)?;
    let (links, requested_links) = plan_links(input, &prefix, &user.user, &mut notices)?;
    if let Some(link) = links.iter().find(|l| volumes.iter().any(|v| v.path == l.at)) {
        return Err(RunError::usage(
            format!("a volume and a link are both at {}", link.at),
            "give one of them another path",
        ));
    }
    let env = environment(input, &prefix, &user.user.home, scale, &name, &publish)?;

    let covered = |path: &str| {
        volumes
            .iter()
            .map(|v| v.path.as_str())
            .chain(links.iter().map(|l| l.at.as_str()))
            .any(|m| path == m || path.strip_prefix(m).is_some_and(|rest| rest.starts_with('/')))
    };
    let path = env.iter().find(|v| v.name == "PATH").map_or("", |v| v.value.as_str());
    check_workdir(&workdir, &user.user, &own.name, input.root, &covered)?;
    program::check(&argv[0], path, &workdir, &own.name, input.root, &covered)?;

    let memory_bytes = options.mem.or(run.mem.map(|m| m.max())).map(|b| b.0);
    let limits = PlannedLimits {
        memory_bytes,
        cpu_millis: options.cpu.or(run.cpu.map(|c| c.max())).map(|c| c.millis),
        pids: options.pids.or(run.pids).unwrap_or(DEFAULT_PIDS),
    };
    check_limits(&limits)?;
    let network = match options.network {
        None => ply_sandbox::Network::Own,
        Some(NetworkFlag::None) => ply_sandbox::Network::None,
        Some(NetworkFlag::Host) => {
            notices.push("it uses the host's network: what it opens is open on the host".to_owned());
            ply_sandbox::Network::Host
        }
    };
    if options.privileged {
        notices.push("--privileged: it keeps every capability and has no filter".to_owned());
    }
    notices.extend(host_notices(input.host, &limits));
    notices.extend(not_acted_on(manifest));

    let inits = ["/init", "/sbin/init", "/usr/sbin/init", "/lib/systemd/systemd", "/usr/lib/systemd/systemd"];
    let is_init = inits.contains(&argv[0].as_str()) || argv[0] == "systemd";
    let capabilities = options.capabilities.as_ref().unwrap_or(&run.capabilities);
    if options.capabilities.is_none() && !capabilities.list().is_empty() && !options.privileged {
        notices.push(format!(
            "it keeps capabilities, as its manifest asks: {capabilities} (--capabilities none takes them away)"
        ));
    }
    let (files, folders) = scratch(&user);
    Ok(Plan {
        name,
        description: manifest.package.description.clone().unwrap_or_default(),
        image: own.name.clone(),
        digest: own.digest,
        scale,
        layers: input.layers.to_vec(),
        argv,
        env,
        workdir,
        stop_signal: options.stop_signal.or(run.stop_signal).unwrap_or(Signal::TERM),
        stop_timeout: options.stop_timeout.map_or(DEFAULT_STOP_TIMEOUT, |s| s.0),
        drain: options.drain.map_or(DEFAULT_DRAIN, |s| s.0),
        restart: Restart { policy: options.restart_policy()?.unwrap_or(run.restart.policy), ..run.restart },
        health: health(manifest, &publish),
        least,
        capabilities: capabilities.list().iter().map(ToString::to_string).collect(),
        capability_bits: capabilities.bits(),
        init: !options.no_init && !is_init,
        privileged: options.privileged,
        terminal: options.terminal,
        volumes,
        links,
        requested_links,
        devices: devices(input)?,
        network,
        publish,
        scratch_bytes: memory_bytes.map_or(input.host.memory_bytes / 4, |m| m / 2).max(1 << 20),
        limits,
        ids: match input.host.ids((0, 0)) {
            ply_sandbox::Ids::Leased { .. } => IdMode::Leased,
            ply_sandbox::Ids::Rootless { .. } => IdMode::Rootless,
            ply_sandbox::Ids::Host => IdMode::Host,
        },
        files,
        folders,
        resolver: options.dns.iter().map(|ip| format!("nameserver {ip}\n")).collect(),
        hosts: options.add_hosts.iter().map(|h| format!("{} {}\n", h.ip, h.name)).collect(),
        user: user.user,
        notices,
    })
}

/// The working directory is in the image, is made with the box, or comes with a volume or a link.
fn check_workdir(
    dir: &str,
    user: &User,
    image: &ply_manifest::ImageName,
    root: &dyn Rootfs,
    covered: &dyn Fn(&str) -> bool,
) -> Result<(), RunError> {
    let of_the_box = ["/proc", "/sys", "/dev", "/tmp", "/run", "/var/tmp"]
        .iter()
        .any(|made| dir.strip_prefix(made).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    let refused = |message: String| {
        Err(RunError::refused(
            message,
            "name a folder that is there with --workdir, or let a volume or a link bring it",
        ))
    };
    match root.stat(dir) {
        _ if dir == "/" || dir == user.home || of_the_box || covered(dir) => Ok(()),
        Some(meta) if meta.is_dir => Ok(()),
        Some(_) => refused(format!("the working directory is no folder in {image}: {dir}")),
        None => refused(format!("the working directory isn't in {image}: {dir}")),
    }
}

/// Limits below which nothing starts are a slip of the pen.
fn check_limits(limits: &PlannedLimits) -> Result<(), RunError> {
    if let Some(bytes) = limits.memory_bytes.filter(|bytes| *bytes < LEAST_MEMORY) {
        return Err(RunError::usage(
            format!("too little memory for any app: {bytes} B"),
            "write a size with its unit, as in --mem 512M or mem = \"512M\"; the least is 1M",
        ));
    }
    if limits.pids < LEAST_PIDS {
        return Err(RunError::usage(
            format!("too few processes for any app: {}", limits.pids),
            format!("the init of the box is one and the app another: write {LEAST_PIDS} or more"),
        ));
    }
    Ok(())
}

/// Rootless, every id that the run needs must be one of the caller's own.
fn check_ids(user: &User, host: &Host) -> Result<(), RunError> {
    let ply_sandbox::Ids::Rootless { sub_uids, sub_gids, .. } = host.ids((0, 0)) else { return Ok(()) };
    let reach = |ranges: &[(u32, u32)]| 1 + ranges.iter().map(|(_, n)| u64::from(*n)).sum::<u64>();
    let (uids, gids) = (reach(&sub_uids), reach(&sub_gids));
    let gid = user.groups.iter().copied().max().unwrap_or(0).max(user.gid);
    if u64::from(user.uid) < uids && u64::from(gid) < gids {
        return Ok(());
    }
    let what = format!("it runs as {} ({}:{})", user.name, user.uid, user.gid);
    if !host.sub_ids.is_empty() && (host.newuidmap.is_none() || host.newgidmap.is_none()) {
        return Err(RunError::refused(
            format!("{what}, and newuidmap and newgidmap are not installed, so only root exists inside"),
            "install them: sudo apt install uidmap; or run it with --user root",
        ));
    }
    if uids == 1 || gids == 1 {
        return Err(RunError::refused(
            format!("{what}, and your account has no id range, so only root exists inside"),
            "ask for one: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 YOU; or run it with --user root",
        ));
    }
    Err(RunError::refused(
        format!("{what}, and your account's id range ends at {}", uids.min(gids) - 1),
        "have the range made larger in /etc/subuid and /etc/subgid, or run it with another --user",
    ))
}

/// The least number of slots, and how many it starts with.
fn scale(input: &PlanInput<'_>, notices: &mut Vec<String>) -> Result<(u32, u32), RunError> {
    let mut least = input.manifest.run.scale.as_ref().map_or(1, |s| s.min.max(1));
    for set in input.options.set.iter().filter(|s| s.key == "scale.min") {
        least = set.value.parse().ok().filter(|n| (1..=MAX_SCALE).contains(n)).ok_or_else(|| {
            RunError::usage(
                format!("--set scale.min={}: it is not a number of instances", set.value),
                format!("write a number from 1 to {MAX_SCALE}"),
            )
        })?;
    }
    let scale = input.options.scale.unwrap_or(least);
    if scale < least {
        return Err(RunError::usage(
            format!("--scale {scale} is below the least that [run.scale] allows: {least}"),
            format!("add --set scale.min={scale}"),
        ));
    }
    if scale > MAX_SCALE {
        return Err(RunError::usage(format!("{scale} instances are more than a host holds"), "write fewer"));
    }
    if scale > 1 && input.options.terminal {
        return Err(RunError::usage("-t is for a single instance", "add --set scale.min=1, or leave out -t"));
    }
    if scale > 1 && input.options.network == Some(NetworkFlag::Host) && !input.manifest.run.ports.is_empty() {
        notices.push("all instances share the host's ports: only one of them can open each".to_owned());
    }
    Ok((least, scale))
}

/// What tells that an instance is healthy: `[run.health]`, else its first published port.
fn health(manifest: &Manifest, publish: &[PlannedPublish]) -> Option<PlannedHealth> {
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    match &manifest.run.health {
        Some(health) => Some(PlannedHealth { port: health.port, grace_ms: ms(health.grace.0), always: true }),
        None => publish.first().map(|p| PlannedHealth {
            port: p.instance_port,
            grace_ms: ms(DEFAULT_GRACE),
            always: false,
        }),
    }
}

fn publish(input: &PlanInput<'_>) -> Result<Vec<PlannedPublish>, RunError> {
    let ports = &input.manifest.run.ports;
    let single = if ports.len() == 1 { ports.values().next().copied() } else { None };
    let mut planned: Vec<PlannedPublish> = Vec::new();
    for flag in &input.options.publish {
        let Publish { address, port, instance_port, .. } = *flag;
        let one = PlannedPublish {
            address: ShownAddress(address),
            port,
            instance_port: instance_port.or(single).unwrap_or(port),
        };
        if planned.iter().any(|p| p.port == port && p.address == one.address) {
            return Err(RunError::usage(
                format!("--publish {flag}: the port is published twice"),
                "leave one out",
            ));
        }
        planned.push(one);
    }
    if !planned.is_empty() && input.options.network.is_some() {
        let (what, hint) = match input.options.network {
            Some(NetworkFlag::Host) => ("host", "on the host's network the app's own ports are open already"),
            _ => ("none", "leave out one of the two"),
        };
        return Err(RunError::usage(format!("--publish and --network {what} can't go together"), hint));
    }
    Ok(planned)
}

fn devices(input: &PlanInput<'_>) -> Result<Vec<PathBuf>, RunError> {
    for device in &input.options.devices {
        let well = device.is_absolute() && device.starts_with("/dev");
        let meta = (input.host_stat)(device);
        if !well || !meta.as_ref().is_ok_and(|m| m.is_device) {
            return Err(RunError::usage(
                format!("--device {}: no such device", device.display()),
                "write the path of a device below /dev, as in --device /dev/fuse",
            ));
        }
    }
    Ok(input.options.devices.clone())
}

fn environment(
    input: &PlanInput<'_>,
    prefix: &str,
    home: &str,
    scale: u32,
    name: &RunName,
    publish: &[PlannedPublish],
) -> Result<Vec<PlannedVar>, RunError> {
    let (run, options) = (&input.manifest.run, input.options);
    let contributions: Vec<Contribution> = input
        .layers
        .iter()
        .map(|l| Contribution { layer: l.name.stem(), section: l.section.clone() })
        .collect();
    let app_bins: Vec<String> = ["bin", "sbin", "node_modules/.bin"]
        .iter()
        .map(|b| format!("{prefix}/{b}"))
        .filter(|dir| input.root.stat(dir).is_some_and(|m| m.is_dir))
        .collect();
    let term = if options.terminal { (input.caller)("TERM").filter(|t| !t.is_empty()) } else { None };
    let overlay = input.overlay.map_or(&[][..], |(o, _)| &o.env);
    let package = &input.manifest.package;
    let single = if run.ports.len() == 1 { run.ports.values().next().copied() } else { None };
    let facts =
        ply_manifest::Facts {
            name: name.to_string(),
            version: package.version.to_string(),
            arch: input.layers[0].name.arch.to_string(),
            image: input.layers[0].name.to_string(),
            scale,
            host: Ok(format!("{name}.ply")),
            port: publish.first().map(|p| p.instance_port).or(single).ok_or_else(|| {
                "it publishes no port, and the manifest does not declare exactly one".to_owned()
            }),
        };
    let overrides: BTreeMap<String, String> =
        options.params.iter().map(|p| (p.key.clone(), p.value.clone())).collect();
    let parts = EnvParts {
        home,
        term: term.as_deref().unwrap_or("xterm"),
        app_bins: &app_bins,
        layers: &contributions,
        manifest: &run.env,
        overlay,
        files: input.env_files,
        flags: &options.env,
        params: ply_manifest::Params {
            app: package.name.as_str(),
            declared: run.params.as_ref(),
            overrides: &overrides,
            secrets: None,
            facts: &facts,
        },
    };
    compose(&parts, input.caller)
}

/// What the host doesn't give and this run asks for. (`RLIMIT_NPROC` holds the number of processes in any case
/// where there is a user namespace.)
pub(crate) fn host_notices(host: &Host, limits: &PlannedLimits) -> Vec<String> {
    let lacks = [
        ("mem", limits.memory_bytes.is_some() && !host.enforced.memory),
        ("cpu", limits.cpu_millis.is_some() && !host.enforced.cpu),
        ("pids", !host.enforced.pids && matches!(host.ids((0, 0)), ply_sandbox::Ids::Host)),
    ];
    let lacks: Vec<&str> = lacks.iter().filter(|(_, lacks)| *lacks).map(|(name, _)| *name).collect();
    let reword = |notice: String| match notice.strip_prefix("not enforced on this host: ") {
        None => Some(notice),
        Some(_) if lacks.is_empty() => None,
        Some(rest) => {
            let why = rest.find(" (").map_or("", |at| &rest[at..]);
            Some(format!("not enforced on this host: {}{why}", lacks.join(", ")))
        }
    };
    host.notices().into_iter().filter_map(reword).collect()
}

/// What real packages declare and this version doesn't act on yet, in one line.
fn not_acted_on(manifest: &Manifest) -> Option<String> {
    let run = &manifest.run;
    let mut what = Vec::new();
    if run.scale.as_ref().is_some_and(|s| s.max > s.min.max(1) || s.min == 0) {
        what.push("[run.scale] beyond min");
    }
    if matches!(run.mem, Some(Limit::Between { .. })) || matches!(run.cpu, Some(Limit::Between { .. })) {
        what.push("[run.resources] ranges (the most holds)");
    }
    (!what.is_empty()).then(|| format!("not acted on by this version of ply: {}", what.join(", ")))
}

/// The files and folders of scratch that don't depend on the slot.
fn scratch(
    user: &crate::user::PlannedUser,
) -> (Vec<ply_sandbox::ScratchFile>, Vec<ply_sandbox::ScratchFolder>) {
    let mut files = Vec::new();
    for (path, contents) in [("/etc/passwd", &user.passwd), ("/etc/group", &user.group)] {
        if let Some(contents) = contents {
            let contents = contents.clone().into_bytes();
            files.push(ply_sandbox::ScratchFile { path: path.to_owned(), contents, mode: 0o644 });
        }
    }
    let mut folders = Vec::new();
    let (uid, gid) = (user.user.uid, user.user.gid);
    if user.make_home {
        let mode = if uid == 0 { 0o700 } else { 0o755 };
        folders.push(ply_sandbox::ScratchFolder { path: user.user.home.clone(), mode, uid, gid });
    }
    (files, folders)
}

/// What a slot gets at launch, beyond the plan.
#[derive(Debug, Clone)]
pub struct Placement {
    /// The slot, from 1.
    pub slot: u32,
    /// A name that is unique on this host while the box exists.
    pub id: String,
    /// How ids map.
    pub ids: ply_sandbox::Ids,
    /// The host folder of each volume, in the plan's order.
    pub volumes: Vec<PathBuf>,
}

impl Plan {
    /// The host name of a slot: `<app>-<n>`, cut to 63 bytes.
    pub fn hostname(&self, slot: u32) -> String {
        let number = format!("-{slot}");
        let name = self.name.as_str();
        format!("{}{number}", name[..name.len().min(63 - number.len())].trim_end_matches('-'))
    }

    /// The box of one slot.
    pub fn spec(&self, placement: &Placement) -> ply_sandbox::Spec {
        use ply_sandbox::{Layer, Limits, Mount, MountOwner, Process, ScratchFile};
        let hostname = self.hostname(placement.slot);
        let mut files = self.files.clone();
        let mut hosts = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
        hosts.push_str(&format!(
            "127.0.0.1 {hostname} {}.ply {}.{}.ply\n",
            self.name, placement.slot, self.name
        ));
        hosts.extend(self.hosts.iter().map(String::as_str));
        for (path, text) in [("/etc/hosts", hosts.as_str()), ("/etc/resolv.conf", self.resolver.as_str())] {
            let contents = text.as_bytes().to_vec();
            files.push(ScratchFile { path: path.to_owned(), contents, mode: 0o644 });
        }
        let volumes = self.volumes.iter().zip(&placement.volumes).map(|(v, source)| Mount {
            source: source.clone(),
            target: v.path.clone(),
            read_only: false,
            owner: MountOwner::Inside,
        });
        let links = self.links.iter().map(|l| Mount {
            source: l.host.clone(),
            target: l.at.clone(),
            read_only: l.read_only,
            owner: match self.ids {
                IdMode::Leased => MountOwner::HostUser { uid: l.uid, gid: l.gid },
                IdMode::Rootless | IdMode::Host => MountOwner::Inside,
            },
        });
        let mut mounts: Vec<Mount> = volumes.chain(links).collect();
        mounts.sort_by(|a, b| a.target.cmp(&b.target));
        ply_sandbox::Spec {
            id: placement.id.clone(),
            hostname,
            layers: self
                .layers
                .iter()
                .map(|l| Layer { digest: l.digest.to_string(), image: l.image.clone(), tree: l.tree.clone() })
                .collect(),
            ids: placement.ids.clone(),
            process: Process {
                argv: self.argv.clone(),
                env: self.env.iter().map(|v| (v.name.clone(), v.value.clone())).collect(),
                workdir: self.workdir.clone(),
                uid: self.user.uid,
                gid: self.user.gid,
                groups: self.user.groups.clone(),
                capabilities: self.capability_bits,
                stop_signal: self.stop_signal.number(),
            },
            mounts,
            files,
            folders: self.folders.clone(),
            links: Vec::new(),
            devices: self.devices.clone(),
            network: self.network,
            limits: Limits {
                memory: self.limits.memory_bytes,
                cpu_millis: self.limits.cpu_millis,
                pids: self.limits.pids,
            },
            scratch_bytes: self.scratch_bytes,
            init: self.init,
            privileged: self.privileged,
        }
    }
}
