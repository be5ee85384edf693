//! Commands to an app that runs, or that ran.

use crate::logs::InstanceName;
use crate::state::{self, InstanceState};
use crate::volume_store::{VolumeChoice, VolumeRow, remove_volumes, volumes};
use crate::{Context, RunError, control, installed, journal, target};
use ply_image::{Dirs, Entry};
use ply_manifest::{RunName, Span, Target};
use ply_sandbox::Ids;
use std::time::{Duration, Instant};

/// How long a run parent has for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long beyond its own stop timeout a run parent has to end. It kills what doesn't stop by itself.
const END: Duration = Duration::from_secs(3600);

/// The instances of an app that runs, or a sentence with a near name.
pub(crate) fn running(dirs: &Dirs, app: &str) -> Result<Vec<InstanceState>, RunError> {
    let all = state::instances(dirs)?;
    let own: Vec<InstanceState> = all.iter().filter(|s| s.app.as_str() == app).cloned().collect();
    if own.is_empty() {
        return Err(match ply_manifest::nearest(app, all.iter().map(|s| s.app.as_str())) {
            Some(near) => RunError::refused(
                format!("nothing runs under the name {app}"),
                format!("did you mean {near}?"),
            ),
            None => RunError::NotRunning(app.to_owned()),
        });
    }
    Ok(own)
}

/// Asks a running app to stop and waits for its end.
pub fn stop(dirs: &Dirs, app: &RunName) -> Result<(), RunError> {
    let parent = running(dirs, app.as_str())?[0].parent;
    let gone = || !state::alive(parent);
    match control::ask(dirs, app, ("stop", ""), ANSWER, &gone, &mut |_| ())? {
        Some(answer) if !answer.ok => return Err(RunError::plain(answer.message)),
        _ => {}
    }
    let until = Instant::now() + END;
    while !gone() {
        if Instant::now() > until {
            return Err(RunError::plain(format!(
                "{app} has not ended: its run parent is process {}",
                parent.pid
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Changes the number of an app's instances; new ones get connections when they answer, the highest leave first.
/// Gives what was done, in one sentence.
pub fn scale(dirs: &Dirs, app: &RunName, to: u32) -> Result<String, RunError> {
    command(dirs, app, ("scale", &to.to_string()), &mut |_| ())
}

/// Starts every instance of an app anew, one after the other, and waits for the end of it; `each` sees the steps.
/// Gives what was done, in one sentence.
pub fn restart(dirs: &Dirs, app: &RunName, each: &mut dyn FnMut(&str)) -> Result<String, RunError> {
    command(dirs, app, ("restart", ""), each)
}

/// Has a running app go back to scaling by itself, from the number that its run decides.
pub fn unpin(dirs: &Dirs, app: &RunName) -> Result<String, RunError> {
    command(dirs, app, ("scale", "auto"), &mut |_| ())
}

/// Brings an image into the store and has a running app go over to it, slot by slot; waits for the end of it.
/// Without a name it is the app that the image is of. Each new instance has `timeout` to become healthy, or what its
/// manifest gives. Gives what was done, in one sentence.
///
/// # Errors
/// Nothing runs under the name; the image can't be had or is refused; a new instance did not become healthy: then
/// every slot has what it had before.
pub fn deploy(
    target: &Target,
    name: Option<&RunName>,
    timeout: Option<Span>,
    context: &Context,
    each: &mut dyn FnMut(&str),
) -> Result<String, RunError> {
    if let Some(name) = name {
        running(&context.dirs, name.as_str()).map_err(|e| not_yet(e, &target.to_string(), name))?;
    }
    let (entries, locks) = target::bring(target, context)?;
    let app = &entries[0];
    let own = RunName::from_package(&app.name.name);
    let name = name.unwrap_or(&own);
    let done =
        deploy_entry(app, name, timeout, context, each).map_err(|e| not_yet(e, &target.to_string(), name));
    drop(locks);
    done
}

/// Deploys the image that an app had before its present one.
///
/// # Errors
/// As [`deploy`]; there was none.
pub fn rollback(
    app: &RunName,
    timeout: Option<Span>,
    context: &Context,
    each: &mut dyn FnMut(&str),
) -> Result<String, RunError> {
    running(&context.dirs, app.as_str())?;
    let previous = installed::installed(&context.dirs, app)?.and_then(|i| i.previous);
    let Some(previous) = previous else {
        return Err(RunError::refused(
            format!("{app} had no other image before"),
            format!("deploy the one that you want: ply deploy IMAGE --name {app}"),
        ));
    };
    let entry = target::known(app, &previous.image, previous.digest, context)?;
    deploy_entry(&entry, app, timeout, context, each)
}

fn deploy_entry(
    entry: &Entry,
    name: &RunName,
    timeout: Option<Span>,
    context: &Context,
    each: &mut dyn FnMut(&str),
) -> Result<String, RunError> {
    let mut text = entry.image.display().to_string();
    if let Some(timeout) = timeout {
        text.push_str(&format!("\ntimeout={timeout}"));
    }
    command(&context.dirs, name, ("deploy", &text), each)
}

/// Nothing runs there yet: the first start is a run.
fn not_yet(error: RunError, target: &str, name: &RunName) -> RunError {
    match error {
        RunError::NotRunning(app) => RunError::refused(
            format!("nothing runs under the name {app}, so there is nothing to deploy to"),
            format!("start it: ply run {target} --name {name}"),
        ),
        other => other,
    }
}

fn command(
    dirs: &Dirs,
    app: &RunName,
    verb: (&str, &str),
    each: &mut dyn FnMut(&str),
) -> Result<String, RunError> {
    let parent = running(dirs, app.as_str())?[0].parent;
    let answer = control::ask(dirs, app, verb, ANSWER, &|| !state::alive(parent), each)?;
    match answer {
        Some(answer) if answer.ok => Ok(answer.message),
        Some(answer) => {
            let lines = answer.lines.iter().map(|line| format!("\n    {line}"));
            let evidence = format!("see what happened: ply why {app}");
            Err(RunError::Refused {
                message: std::iter::once(answer.message).chain(lines).collect(),
                hint: Some(answer.hint.unwrap_or(evidence)),
            })
        }
        None => Err(RunError::plain(format!("{app} ended before it was done"))),
    }
}

/// What `ply rm` took away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removed {
    /// Whether it ran and was stopped.
    pub stopped: bool,
    /// Whether it was installed.
    pub installed: bool,
    /// Its volumes that are gone.
    pub volumes: Vec<VolumeRow>,
    /// Its volumes that are kept.
    pub kept: Vec<VolumeRow>,
}

/// Stops an app and forgets it: what is installed, its control folder, its logs, and with `with_volumes` its data.
pub fn rm(dirs: &Dirs, app: &RunName, with_volumes: bool, ids: &Ids) -> Result<Removed, RunError> {
    let mut removed = Removed::default();
    let own = |rows: Vec<VolumeRow>| rows.into_iter().filter(|v| v.app == app.as_str()).collect::<Vec<_>>();
    let runs = state::instances(dirs)?.iter().any(|s| s.app == *app);
    let data = own(volumes(dirs)?);
    let known = runs || installed::installed(dirs, app)?.is_some();
    let only_data = with_volumes && !data.is_empty();
    if !known && !only_data {
        // Whatever it may be known by: installed, running, or by what it left.
        let mut all: Vec<String> =
            installed::all_installed(dirs)?.iter().map(|i| i.app.to_string()).collect();
        all.extend(state::instances(dirs)?.iter().map(|s| s.app.to_string()));
        all.extend(volumes(dirs)?.into_iter().filter(|_| with_volumes).map(|v| v.app));
        let near = ply_manifest::nearest(app.as_str(), all.iter().map(String::as_str));
        return Err(RunError::refused(
            format!("there is no app of the name {app}"),
            near.map_or("ply ps lists what runs".to_owned(), |n| format!("did you mean {n}?")),
        ));
    }
    if runs {
        stop(dirs, app)?;
        removed.stopped = true;
    }
    removed.installed = installed::forget(dirs, app)?;
    if known {
        journal::event(dirs, app.as_str(), None, "removed", serde_json::json!({}));
    }
    for entry in std::fs::read_dir(dirs.data.join("logs")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let stem = name.strip_suffix(".1").filter(|n| n.ends_with(".log")).unwrap_or(&name);
        let instance = stem.strip_suffix(".log").and_then(|s| s.parse::<InstanceName>().ok());
        if instance.is_some_and(|i| i.app == app.as_str()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    if with_volumes && !data.is_empty() {
        removed.volumes = remove_volumes(dirs, ids, &VolumeChoice::Named(app.to_string()))?;
    } else {
        removed.kept = data;
    }
    Ok(removed)
}
