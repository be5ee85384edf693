//! `ply run`, from the words to the end of the app: find, plan, make ready, watch.

use crate::context::Context;
use crate::control::Control;
use crate::files::{LockFile, SharedLock, make_dir};
use crate::lease::{Lease, RANGE};
use crate::links::HostMeta;
use crate::options::{RunOptions, What};
use crate::parent::Ready;
use crate::plan::{Plan, PlanInput, PlannedPublish};
use crate::target::{self, Found};
use crate::volume_store::prepare;
use crate::{RunError, detach, installed, relay, state};
use ply_image::Dirs;
use ply_manifest::{EnvFile, PublishAddress, RunName};
use ply_sandbox::{Host, Ids};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Makes the plan of a run, for `--plan`. What is missing is fetched or built; nothing is run or installed.
pub fn plan(what: &What, options: &RunOptions, context: &Context) -> Result<Plan, RunError> {
    options.check()?;
    let host = Host::probe(&context.cgroup_parent);
    decide(what, options, context, &host).map(|(_, plan)| plan)
}

/// Runs an app until every slot has ended, and gives the exit code of the command. The context goes with it: while
/// the app runs, nothing of the wire is kept.
pub fn run(what: &What, options: &RunOptions, context: Context) -> Result<u8, RunError> {
    options.check()?;
    let host = Host::probe(&context.cgroup_parent);
    state::sweep(&context.dirs, &host, &context.cgroup_parent);
    host.check().map_err(RunError::from_launch)?;
    let (found, plan) = decide(what, options, &context, &host)?;
    for notice in &plan.notices {
        context.say(notice);
    }
    if !options.detach {
        return crate::parent::run(make_ready(found, plan, host, context)?, None);
    }
    match detach::split()? {
        detach::Side::Command(told) => {
            for line in told? {
                context.say(&line);
            }
            Ok(0)
        }
        detach::Side::Parent(reporter) => {
            let code = match make_ready(found, plan, host, context) {
                Ok(ready) => crate::parent::run_reporting(ready, reporter),
                Err(error) => {
                    reporter.failed(&error);
                    error.exit_code()
                }
            };
            // Not through the command's own end: that is the other side's.
            std::process::exit(i32::from(code))
        }
    }
}

/// What is to run, and how: everything that can be refused before anything is touched.
fn decide(
    what: &What,
    options: &RunOptions,
    context: &Context,
    host: &Host,
) -> Result<(Found, Plan), RunError> {
    let env_files = env_files(options, context)?;
    let found = target::find(what, options, context)?;
    let layers = found.layers(host, &host.ids((0, RANGE)))?;
    let stack = found.stack()?;
    let mut named = options.clone();
    if let (What::Installed(name), None) = (what, &options.name) {
        named.name = Some(name.clone());
    }
    let input = PlanInput {
        manifest: &found.manifest,
        layers: &layers,
        overlay: found.overlay.as_ref().map(|(overlay, dir)| (overlay, dir.as_path())),
        env_files: &env_files,
        options: &named,
        host,
        root: &stack,
        cwd: &context.cwd,
        caller: &|name| std::env::var(name).ok(),
        host_stat: &|path| HostMeta::of(path),
    };
    let mut plan = crate::plan::plan(&input)?;
    if plan.network == ply_sandbox::Network::Host && plan.resolver.is_empty() {
        plan.resolver = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    }
    Ok((found, plan))
}

/// The env files, read whole.
#[expect(clippy::type_complexity, reason = "a list of named lists of pairs, as the plan takes it")]
fn env_files(
    options: &RunOptions,
    context: &Context,
) -> Result<Vec<(String, Vec<(String, String)>)>, RunError> {
    let read = |path: &PathBuf| {
        let full = context.path(path);
        let bytes = std::fs::read(&full).map_err(RunError::io("an env file can't be read", &full))?;
        let name = path.display().to_string();
        let text = String::from_utf8(bytes)
            .map_err(|_| RunError::plain(format!("{name}: an env file is UTF-8 text, and this is not")))?;
        Ok((name.clone(), EnvFile::parse(&text, &name)?))
    };
    options.env_files.iter().map(read).collect()
}

/// Takes what the run needs for itself: its name, ids, volumes, ports. All of it goes with this process.
fn make_ready(found: Found, plan: Plan, mut host: Host, context: Context) -> Result<Ready, RunError> {
    let dirs = &context.dirs;
    let name = take_name(&dirs.run, &plan.name)?;
    let lease = host.root.then(|| Lease::take(&dirs.run, plan.name.as_str())).transpose()?;
    let ids = host.ids(lease.as_ref().map_or((0, RANGE), |l| (l.start(), RANGE)));
    let listeners = relay::bind(dirs, &plan.publish)?;
    let say: Rc<dyn Fn(&str)> = Rc::from(context.say);
    let images = found.entries.iter().map(|e| e.image.clone()).collect();
    let mut volumes = Volumes { dirs: dirs.clone(), images, say: Rc::clone(&say), ready: BTreeMap::new() };
    for slot in 1..=plan.scale {
        volumes.of(slot, &plan, &ids)?;
    }
    let digests = found.digests();
    installed::record(dirs, &plan.name, &plan.image, &digests)?;
    let control = Rc::new(Control::open(dirs, &plan.name)?);
    for publish in &plan.publish {
        say(&said(publish));
    }
    // Last of all, since it may move this process: what the host gives is known for certain only now.
    let me = state::this_process();
    let cgroup_parent = host.settle(&format!("ply-{}-{}-{}", plan.name, me.pid, me.start_time));
    for notice in crate::plan::host_notices(&host, &plan.limits) {
        if !plan.notices.contains(&notice) {
            say(&notice);
        }
    }
    let Found { locks, .. } = found;
    let Context { dirs, .. } = context;
    let held = Box::new((name, lease, locks));
    Ok(Ready { plan, host, ids, dirs, cgroup_parent, digests, volumes, listeners, control, say, held })
}

/// One run parent a name at a time.
fn take_name(run_dir: &Path, name: &RunName) -> Result<LockFile, RunError> {
    let dir = run_dir.join("names");
    make_dir(&dir)?;
    // A holder that has only just taken it has not said yet who it is.
    for _ in 0..50 {
        match LockFile::try_take(&dir.join(name.as_str()))? {
            Ok(mut lock) => {
                lock.say(&std::process::id().to_string())?;
                return Ok(lock);
            }
            Err(holder) => {
                if let Ok(pid) = holder.trim().parse() {
                    return Err(RunError::Running { name: name.clone(), pid });
                }
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Err(RunError::plain(format!("{name} runs already")))
}

/// The host folders of each slot's volumes, made when the slot first starts, and the locks that keep them.
pub(crate) struct Volumes {
    dirs: Dirs,
    /// The image and its layers: what a new volume begins with.
    images: Vec<PathBuf>,
    say: Rc<dyn Fn(&str)>,
    ready: BTreeMap<u32, (Vec<PathBuf>, Vec<SharedLock>)>,
}

impl Volumes {
    /// The folders of a slot, in the plan's order.
    pub(crate) fn of(&mut self, slot: u32, plan: &Plan, ids: &Ids) -> Result<Vec<PathBuf>, RunError> {
        if let Some((folders, _)) = self.ready.get(&slot) {
            return Ok(folders.clone());
        }
        let user = (plan.user.uid != 0).then_some(&plan.user);
        let (mut folders, mut locks) = (Vec::new(), Vec::new());
        for volume in &plan.volumes {
            let stack = || target::stack(&self.images);
            let ready = prepare(&self.dirs, &plan.name, volume, slot, user, ids, &stack)?;
            if let Some(warning) = ready.warning {
                (self.say)(&format!("WARNING: {warning}"));
            }
            folders.push(ready.path);
            locks.push(ready.lock);
        }
        self.ready.insert(slot, (folders.clone(), locks));
        Ok(folders)
    }

    /// The slot is no longer one: its volumes may be removed.
    pub(crate) fn let_go(&mut self, slot: u32) {
        self.ready.remove(&slot);
    }
}

/// The line about a published port; it says when the port is open to the world.
fn said(publish: &PlannedPublish) -> String {
    let PlannedPublish { address, port, instance_port } = publish;
    match address.0 {
        PublishAddress::Ip(ip) if ip.is_loopback() => {
            format!("port {port} on {address}, this machine only, leads to {instance_port} inside")
        }
        PublishAddress::Ip(ip) if !ip.is_unspecified() => {
            format!("port {port} on {address} leads to {instance_port} inside")
        }
        _ => format!("port {port} leads to {instance_port} inside, open to everyone who reaches this host"),
    }
}
