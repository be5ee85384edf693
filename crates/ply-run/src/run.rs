//! `ply run`, from the words to the end of the app: find, plan, make ready, watch.

use crate::context::Context;
use crate::control::Control;
use crate::decide::{Asked, Loaded};
use crate::files::{LockFile, make_dir};
use crate::lease::{Lease, RANGE};
use crate::options::{RunOptions, What};
use crate::parent::Ready;
use crate::plan::{Plan, PlannedPublish};
use crate::target::{self, Found};
use crate::{RunError, detach, installed, relay, state};
use ply_manifest::{PublishAddress, RunName};
use ply_sandbox::Host;
use std::path::Path;
use std::rc::Rc;

/// Makes the plan of a run, for `--plan`. What is missing is fetched or built; nothing is run or installed.
pub fn plan(what: &What, options: &RunOptions, context: &Context) -> Result<Plan, RunError> {
    options.check()?;
    let host = Host::probe(&context.cgroup_parent);
    decide(what, options, context, &host).map(|(_, plan, _)| plan)
}

/// Runs an app until every slot has ended, and gives the exit code of the command. The context goes with it: while
/// the app runs, nothing of the wire is kept.
pub fn run(what: &What, options: &RunOptions, context: Context) -> Result<u8, RunError> {
    options.check()?;
    let host = Host::probe(&context.cgroup_parent);
    state::sweep(&context.dirs, &host, &context.cgroup_parent);
    host.check().map_err(RunError::from_launch)?;
    let (found, plan, asked) = decide(what, options, &context, &host)?;
    for notice in &plan.notices {
        context.say(notice);
    }
    if !options.detach {
        return crate::parent::run(make_ready(found, plan, asked, host, context)?, None);
    }
    match detach::split()? {
        detach::Side::Command(told) => {
            for line in told? {
                context.say(&line);
            }
            Ok(0)
        }
        detach::Side::Parent(reporter) => {
            let code = match make_ready(found, plan, asked, host, context) {
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

/// Has an app run the same way whenever it is started by its name: brings its image, checks how it would run, and
/// records it as what is installed. Gives how it would run.
///
/// # Errors
/// Whatever `run` would refuse; another image runs under the name now.
pub fn install(what: &What, options: &RunOptions, context: &Context) -> Result<Plan, RunError> {
    options.check()?;
    let host = Host::probe(&context.cgroup_parent);
    let (found, plan, _) = decide(what, options, context, &host)?;
    let running = state::instances(&context.dirs)?;
    if let Some(other) = running.iter().find(|s| s.app == plan.name && s.digest != plan.digest) {
        return Err(RunError::refused(
            format!("{} runs now, from another image: {}", plan.name, other.image),
            format!("deploy the new one first: ply deploy IMAGE --name {}", plan.name),
        ));
    }
    installed::record(&context.dirs, &plan.name, &plan.image, &found.digests())?;
    Ok(plan)
}

/// What is to run, and how: everything that can be refused before anything is touched.
fn decide(
    what: &What,
    options: &RunOptions,
    context: &Context,
    host: &Host,
) -> Result<(Found, Plan, Asked), RunError> {
    let mut asked = Asked { options: options.clone(), cwd: context.cwd.clone() };
    if let (What::Installed(name), None) = (what, &options.name) {
        asked.options.name = Some(name.clone());
    }
    let env_files = asked.env_files()?;
    let found = target::find(what, options, context)?;
    let plan = asked.plan(&found, &env_files, host)?;
    Ok((found, plan, asked))
}

/// Takes what the run needs for itself: its name, ids, volumes, ports. All of it goes with this process.
fn make_ready(
    found: Found,
    plan: Plan,
    asked: Asked,
    mut host: Host,
    context: Context,
) -> Result<Ready, RunError> {
    let Context { dirs, say, .. } = context;
    let say: Rc<dyn Fn(&str)> = Rc::from(say);
    let name = plan.name.clone();
    let lock = take_name(&dirs.run, &name)?;
    let lease = host.root.then(|| Lease::take(&dirs.run, name.as_str())).transpose()?;
    let ids = host.ids(lease.as_ref().map_or((0, RANGE), |l| (l.start(), RANGE)));
    let listeners = relay::bind(&dirs, &plan.publish)?;
    let mut first = Loaded::new(plan, found, &dirs, Rc::clone(&say));
    for slot in 1..=first.plan.scale {
        first.volumes_of(slot, &ids)?;
    }
    installed::record(&dirs, &name, &first.plan.image, &first.digests)?;
    let control = Rc::new(Control::open(&dirs, &name)?);
    for publish in &first.plan.publish {
        say(&said(publish));
    }
    // Last of all, since it may move this process: what the host gives is known for certain only now.
    let me = state::this_process();
    let cgroup_parent = host.settle(&format!("ply-{name}-{}-{}", me.pid, me.start_time));
    for notice in crate::plan::host_notices(&host, &first.plan.limits) {
        if !first.plan.notices.contains(&notice) {
            say(&notice);
        }
    }
    let held = Box::new((lock, lease));
    Ok(Ready { name, first, asked, host, ids, dirs, cgroup_parent, listeners, control, say, held })
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
