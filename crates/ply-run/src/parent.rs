//! The run parent: an ordinary process that starts the slots and watches them until each has ended. One thread,
//! one event loop; events are an instance's end, a signal, a timer, an answer of its port, a control file, a
//! connection, bytes. What follows from them is decided by the supervisor; here it is done.

mod deeds;

use crate::RunError;
use crate::control::Control;
use crate::decide::{Asked, Loaded};
use crate::detach::Reporter;
use crate::notify::Notify;
use crate::pool::Pool;
use crate::pump;
use crate::signals::Signals;
use crate::streams::Streams;
use crate::supervisor::{self, Life, SETTLE, Ticket};
use deeds::Deeds;
use ply_image::Dirs;
use ply_manifest::{Digest, RunName};
use ply_sandbox::{Host, Ids};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::spawn_local;

/// How long after its start a run listens to commands: the shortest ones never do.
const WATCH_AFTER: Duration = Duration::from_millis(50);
/// How long after its start a run is taken as one that goes on.
const REST_AFTER: Duration = Duration::from_secs(1);
/// How long `-d` waits for an app that is started again and again.
const READY_WAIT: Duration = Duration::from_secs(30);

/// Everything that is ready before the first launch. What is in here is held until the run has ended.
pub(crate) struct Ready {
    pub(crate) name: RunName,
    /// What the run begins with.
    pub(crate) first: Loaded,
    pub(crate) asked: Asked,
    pub(crate) host: Host,
    pub(crate) ids: Ids,
    pub(crate) dirs: Dirs,
    pub(crate) cgroup_parent: PathBuf,
    /// Listeners, with the place of their port in the plan.
    pub(crate) listeners: Vec<(usize, OwnedFd)>,
    pub(crate) control: Rc<Control>,
    pub(crate) say: Rc<dyn Fn(&str)>,
    /// Locks and leases.
    pub(crate) held: Box<dyn std::any::Any>,
}

pub(crate) enum Event {
    /// An instance.
    Ended(Life),
    /// Whether its port took a connection.
    Answer(Life, bool),
    /// The last connection of one that leaves has ended.
    Idle(Life),
    /// The image of a deploy is in the store with its layers, by their digests; or why not.
    Prepared(Ticket, Result<Vec<Digest>, RunError>),
    /// A signal or a control file may be there.
    Look,
    /// Ctrl-], three times.
    StopKeys,
}

/// The same in the background: whatever goes wrong before the app runs is told to the command that waits.
pub(crate) fn run_reporting(ready: Ready, reporter: Reporter) -> u8 {
    match reporter.twin() {
        Ok(twin) => run(ready, Some(reporter)).unwrap_or_else(|error| {
            twin.failed(&error);
            error.exit_code()
        }),
        Err(error) => {
            reporter.failed(&error);
            error.exit_code()
        }
    }
}

/// Runs it all to its end, and gives the exit code.
pub(crate) fn run(ready: Ready, reporter: Option<Reporter>) -> Result<u8, RunError> {
    let failed = |why: std::io::Error| RunError::plain(format!("the run parent can't work: {why}"));
    crate::rest::one_heap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let signals = Signals::take().map_err(failed)?;
    allow_descriptors();
    let local = tokio::task::LocalSet::new();
    let code = local.block_on(&runtime, watch(ready, signals, reporter));
    drop(local);
    code
}

/// As many descriptors as the host allows: a connection takes two. The app's own limit is not this one.
fn allow_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

async fn watch(mut ready: Ready, signals: Signals, reporter: Option<Reporter>) -> Result<u8, RunError> {
    let failed = |why: std::io::Error| RunError::plain(format!("the run parent can't work: {why}"));
    let (send, mut events) = unbounded_channel();
    let pool = Rc::new(Pool::new(ready.dirs.clone(), send.clone(), Rc::clone(&ready.say)));
    let tell = send.clone();
    when_readable(signals.descriptor().map_err(failed)?, move || tell.send(Event::Look).is_ok())
        .map_err(failed)?;
    let streams = Streams::new(&ready.first.plan, reporter.is_some()).map_err(failed)?;
    let listeners = std::mem::take(&mut ready.listeners);
    let started = SystemTime::now();
    let scale = ready.first.plan.scale;
    let mut deeds = Deeds::new(ready, Rc::clone(&pool), streams, send.clone());
    // A run is all of its slots or none: what doesn't start takes along whatever has.
    deeds.tell(supervisor::Event::Begin(scale)).inspect_err(|_| pool.clear())?;
    for (n, listener) in listeners {
        spawn_local(crate::relay::serve(listener, n, Rc::clone(&pool)));
    }
    let background = reporter.is_some();
    let (watched, tell) = (Rc::clone(&deeds.control), send.clone());
    spawn_local(async move {
        tokio::time::sleep(WATCH_AFTER).await;
        let again = tell.clone();
        if let Ok(watch) = watched.watch() {
            let _ = when_readable(watch, move || again.send(Event::Look).is_ok());
        }
        // What came before there was a watch.
        let _ = tell.send(Event::Look);
    });
    spawn_local(async {
        tokio::time::sleep(REST_AFTER).await;
        crate::rest::rest();
    });

    let mut interrupts = 0;
    let mut waits = reporter;
    // Once it is known how the instances came up, or nobody should wait longer for that.
    let mut ready_by = Some(Instant::now() + READY_WAIT + SETTLE);
    let mut notify = Notify::from_env();
    loop {
        let (now, stopping) = (Instant::now(), deeds.sup.is_stopping());
        if deeds.sup.settled().is_some() || stopping || ready_by.is_some_and(|by| now >= by) {
            ready_by = None;
            if let Some(reporter) = waits.take() {
                report(reporter, &deeds, started).await;
            }
        }
        notify.update(now, ready_by.is_none(), stopping, || deeds.status());
        if deeds.sup.is_over() {
            break;
        }
        let wake = [deeds.wake(), ready_by, notify.wake()].into_iter().flatten().min();
        let event = tokio::select! {
            event = events.recv() => event,
            // What has happened by now comes before what the time has come for.
            () = until(wake) => {
                tokio::task::yield_now().await;
                events.try_recv().ok()
            }
        };
        match event {
            None => deeds.tell(supervisor::Event::Tick)?,
            Some(Event::Ended(life)) => deeds.ended(life)?,
            Some(Event::Answer(life, yes)) => deeds.tell(supervisor::Event::Answer { life, yes })?,
            Some(Event::Idle(life)) => deeds.tell(supervisor::Event::Drained(life))?,
            Some(Event::Prepared(ticket, prepared)) => deeds.prepared(ticket, prepared)?,
            Some(Event::StopKeys) => deeds.tell(supervisor::Event::Stop)?,
            Some(Event::Look) => {
                while let Some(signal) = signals.next() {
                    match signal {
                        libc::SIGINT | libc::SIGTERM | libc::SIGHUP => {
                            interrupts += u32::from(signal == libc::SIGINT);
                            let kill = interrupts >= 2 && deeds.sup.is_stopping();
                            let what = if kill { supervisor::Event::Kill } else { supervisor::Event::Stop };
                            deeds.tell(what)?;
                        }
                        libc::SIGQUIT => deeds.tell(supervisor::Event::Kill)?,
                        libc::SIGWINCH => deeds.streams.resize(),
                        forwarded => pool.forward(forwarded),
                    }
                }
                deeds.commands()?;
            }
        }
    }
    let stopped = deeds.sup.is_stopping();
    let patience = match (background, interrupts >= 2, stopped) {
        (true, _, _) | (_, true, _) => Some(Duration::from_millis(100)),
        (_, _, true) => Some(Duration::from_secs(2)),
        _ => None,
    };
    let stop_signal = deeds.current().plan.stop_signal.number();
    let Deeds { streams, held, .. } = deeds;
    streams.finish(&signals, patience).await;
    let code = exit_code(&pool.codes(), stopped, stop_signal);
    pool.clear();
    drop(held);
    Ok(code)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// The first slot's code that is not 0. Asked to stop, an app that did so (by itself, or by the signal) ended well.
fn exit_code(codes: &[i32], asked: bool, stop_signal: i32) -> u8 {
    let well = |code: &i32| *code == 0 || (asked && *code == 128 + stop_signal);
    codes.iter().find(|c| !well(c)).map_or(0, |code| u8::try_from(*code).unwrap_or(crate::EXIT_PLY))
}

/// Calls `each` whenever the descriptor has something to read, until it says no.
pub(crate) fn when_readable(fd: OwnedFd, mut each: impl FnMut() -> bool + 'static) -> std::io::Result<()> {
    let fd = pump::watched(fd)?;
    spawn_local(async move {
        // Edge by edge: whoever hears of it reads until nothing is left.
        while let Ok(mut guard) = fd.readable().await {
            guard.clear_ready();
            if !each() {
                return;
            }
        }
    });
    Ok(())
}

/// `-d`: the app is ready, or won't be soon: lets the command go.
async fn report(reporter: Reporter, deeds: &Deeds, started: SystemTime) {
    let name = &deeds.name;
    if deeds.sup.is_over() {
        let codes = deeds.pool.codes();
        let code = exit_code(&codes, false, 0);
        deeds.streams.settle(SETTLE).await;
        // Of the slot that gives the code; what an earlier run of this name wrote is none of its lines.
        let slot = codes.iter().position(|c| *c != 0).map_or(1, |n| n as u32 + 1);
        let lines = crate::logs::last_lines(&deeds.dirs, name.as_str(), slot, started, 5);
        let message = format!("{name} ended at once, with exit code {code}{lines}");
        if code == 0 {
            reporter.running(vec![message]);
            return;
        }
        let error =
            RunError::Background { code, message, hint: Some(format!("see all of it: ply logs {name}")) };
        reporter.failed(&error);
        return;
    }
    let mut lines = vec![format!("{name} runs in the background")];
    match (deeds.sup.settled(), deeds.current().plan.health) {
        (Some(silent), Some(health)) => {
            for slot in silent {
                lines.push(format!("nothing listens on port {} in {name}.{slot} yet", health.port));
            }
        }
        (None, _) if !deeds.sup.is_stopping() => lines.push(format!("{name} is not healthy yet")),
        _ => {}
    }
    lines.push(format!("see it with ply ps and ply logs -f {name}, stop it with ply stop {name}"));
    reporter.running(lines);
}

#[cfg(test)]
mod tests {
    use super::exit_code;

    #[test]
    fn the_first_slot_that_failed_gives_the_code() {
        let term = 15;
        let table: [(&[i32], bool, u8); 8] = [
            (&[0, 0], false, 0),
            (&[0, 3, 4], false, 3),
            (&[143], false, 143),
            (&[143, 0], true, 0),
            (&[137], true, 137),
            (&[0, 1], true, 1),
            (&[], false, 0),
            (&[300], false, 125),
        ];
        for (codes, asked, expected) in table {
            assert_eq!(exit_code(codes, asked, term), expected, "{codes:?} {asked}");
        }
    }
}
