//! The run parent: an ordinary process that starts the slots and watches them until each has ended. One thread,
//! one event loop; events are an instance's end, a signal, a timer, a control file, a connection, bytes.

use crate::control::{Ask, Control, ControlResult};
use crate::detach::Reporter;
use crate::pool::Pool;
use crate::pump;
use crate::relay::Backends;
use crate::signals::Signals;
use crate::state::{InstanceState, Status, now_ms, this_process};
use crate::streams::{Ends, Streams};
use crate::{Plan, RunError};
use ply_image::Dirs;
use ply_manifest::Digest;
use ply_sandbox::{Host, Ids, Instance, LaunchContext};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_local;

/// How long after its start a run listens to commands: the shortest ones never do.
const WATCH_AFTER: Duration = Duration::from_millis(50);
/// How long after its start a run is taken as one that goes on.
const REST_AFTER: Duration = Duration::from_secs(1);
/// How long `-d` waits for the app's port.
const READY_WAIT: Duration = Duration::from_secs(30);
/// How long after its start an app that dies at once is still this command's matter, under `-d`.
const SETTLE: Duration = Duration::from_millis(100);

/// Everything that is ready before the first launch. What is in here is held until the run has ended.
pub(crate) struct Ready {
    pub(crate) plan: Plan,
    pub(crate) host: Host,
    pub(crate) ids: Ids,
    pub(crate) dirs: Dirs,
    pub(crate) cgroup_parent: PathBuf,
    pub(crate) digests: Vec<Digest>,
    /// The host folders of each slot's volumes.
    pub(crate) volumes: Vec<Vec<PathBuf>>,
    /// Listeners, with the place of their port in the plan.
    pub(crate) listeners: Vec<(usize, OwnedFd)>,
    pub(crate) control: Control,
    pub(crate) say: Box<dyn Fn(&str)>,
    /// The port that tells that it is ready, for `-d`.
    pub(crate) ready_port: Option<u16>,
    /// Locks and leases.
    pub(crate) held: Box<dyn std::any::Any>,
}

pub(crate) enum Event {
    /// The instance of a slot.
    Ended(u32),
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
    let say = std::mem::replace(&mut ready.say, Box::new(|_| ()));
    let pool = Rc::new(Pool::new(ready.dirs.clone(), say));
    let signals = Rc::new(signals);
    let tell = send.clone();
    when_readable(signals.descriptor().map_err(failed)?, move || tell.send(Event::Look).is_ok())
        .map_err(failed)?;
    let mut streams = Streams::new(&ready.plan, reporter.is_some()).map_err(failed)?;
    let began = SystemTime::now();
    for slot in 1..=ready.plan.scale {
        match start(&ready, slot, &pool, &mut streams, &send) {
            Ok(()) => {}
            Err(error) => {
                // Whatever has started goes with it: a run is all of its slots or none.
                pool.clear();
                return Err(error);
            }
        }
    }
    for (n, listener) in std::mem::take(&mut ready.listeners) {
        let port = ready.plan.publish[n].instance_port;
        spawn_local(crate::relay::serve(listener, port, Rc::clone(&pool)));
    }
    let background = reporter.is_some();
    if let Some(reporter) = reporter {
        report(reporter, &ready, &pool, &mut events, &streams, began).await;
        let _ = send.send(Event::Look);
    }
    let stop_timeout = ready.plan.stop_timeout;
    let stop_signal = ready.plan.stop_signal.number();
    let Ready { plan, host, control, held, .. } = ready;
    drop((plan, host));
    let control = Rc::new(control);
    let (watched, tell) = (Rc::clone(&control), send.clone());
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
        rest();
    });

    let mut stop = Stop { asked: false, since: None, killed: false, interrupts: 0 };
    while pool.running() > 0 {
        let deadline = stop.since.filter(|_| !stop.killed).map(|since| since + stop_timeout);
        let event = tokio::select! {
            event = events.recv() => event,
            () = until(deadline) => {
                stop.killed = true;
                pool.signal_all(libc::SIGKILL);
                continue;
            }
        };
        match event {
            Some(Event::Ended(slot)) => {
                pool.ended(slot, stop.asked);
            }
            Some(Event::StopKeys) => stop.ask(&pool, stop_signal),
            None => {}
            Some(Event::Look) => {
                while let Some(signal) = signals.next() {
                    match signal {
                        libc::SIGINT | libc::SIGTERM | libc::SIGHUP => {
                            stop.interrupts += u32::from(signal == libc::SIGINT);
                            if stop.interrupts >= 2 && stop.asked {
                                stop.killed = true;
                                pool.signal_all(libc::SIGKILL);
                            } else {
                                stop.ask(&pool, stop_signal);
                            }
                        }
                        libc::SIGQUIT => {
                            stop.ask(&pool, stop_signal);
                            stop.killed = true;
                            pool.signal_all(libc::SIGKILL);
                        }
                        libc::SIGWINCH => streams.resize(),
                        forwarded if pool.slots.borrow().len() == 1 => pool.signal_all(forwarded),
                        _ => {}
                    }
                }
                for command in control.take() {
                    let result = match &command.ask {
                        Ask::Stop => {
                            stop.ask(&pool, stop_signal);
                            ControlResult { ok: true, message: "stopping".to_owned() }
                        }
                        Ask::Unknown(verb) => ControlResult {
                            ok: false,
                            message: format!("this version of ply doesn't act on {verb:?}"),
                        },
                    };
                    control.answer(&command, &result);
                }
            }
        }
    }
    let patience = match (background, stop.interrupts >= 2, stop.asked) {
        (true, _, _) | (_, true, _) => Some(Duration::from_millis(100)),
        (_, _, true) => Some(Duration::from_secs(2)),
        _ => None,
    };
    streams.finish(&signals, patience).await;
    let code = exit_code(&pool.codes(), stop.asked, stop_signal);
    pool.clear();
    drop(held);
    Ok(code)
}

/// A stop that was asked for.
struct Stop {
    asked: bool,
    since: Option<Instant>,
    killed: bool,
    interrupts: u32,
}

impl Stop {
    /// Asks every instance, once.
    fn ask(&mut self, pool: &Pool, signal: i32) {
        if !self.asked {
            self.asked = true;
            self.since = Some(Instant::now());
            pool.stopping();
            pool.signal_all(signal);
        }
    }
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
fn when_readable(fd: OwnedFd, mut each: impl FnMut() -> bool + 'static) -> std::io::Result<()> {
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

/// Starts one slot.
fn start(
    ready: &Ready,
    slot: u32,
    pool: &Rc<Pool>,
    streams: &mut Streams,
    send: &UnboundedSender<Event>,
) -> Result<(), RunError> {
    let plan = &ready.plan;
    let me = this_process();
    let state = InstanceState {
        app: plan.name.clone(),
        slot,
        image: plan.image.clone(),
        digest: plan.digest,
        layers: ready.digests.clone(),
        parent: me,
        status: Status::Starting,
        since_ms: now_ms(),
        exit_code: None,
        ended_by: None,
        limits: Some(plan.limits),
        restarts: 0,
        health: None,
        address: None,
        publish: plan
            .publish
            .iter()
            .map(|p| format!("{}:{}:{}", p.address, p.port, p.instance_port))
            .collect(),
        volumes: ready.volumes[slot as usize - 1].clone(),
        target: None,
    };
    // Written before anything is made, so that whatever a kill leaves has a name.
    crate::state::save(&ready.dirs, &state)?;
    let launched = launch(ready, slot, streams, me);
    let (mut instance, ends) =
        launched.inspect_err(|_| crate::state::forget(&ready.dirs, plan.name.as_str(), slot))?;
    let failed =
        |why: std::io::Error| RunError::plain(format!("{}.{slot} can't be watched: {why}", plan.name));
    let pidfd = rustix::io::fcntl_dupfd_cloexec(instance.pidfd(), 3).map_err(|e| failed(e.into()))?;
    let tell = send.clone();
    // Once: the pidfd of a process that was waited for stays readable for ever.
    let ended = move || {
        let _ = tell.send(Event::Ended(slot));
        false
    };
    when_readable(pidfd, ended).map_err(failed)?;
    let ring = streams.ring(&ready.dirs, plan.name.as_str(), slot, pool);
    let terminal = instance.take_terminal();
    pool.add(instance, state);
    streams.connect(plan, slot, ring, ends, terminal, send).map_err(failed)
}

fn launch(
    ready: &Ready,
    slot: u32,
    streams: &Streams,
    me: ply_sandbox::ProcessId,
) -> Result<(Instance, Ends), RunError> {
    let plan = &ready.plan;
    let placement = crate::plan::Placement {
        slot,
        id: format!("{}.{slot}-{}-{}", plan.name, me.pid, me.start_time),
        ids: ready.ids.clone(),
        volumes: ready.volumes[slot as usize - 1].clone(),
    };
    let context = LaunchContext {
        run_dir: &ready.dirs.run,
        data_dir: &ready.dirs.data,
        host: &ready.host,
        cgroup_parent: &ready.cgroup_parent,
    };
    let (stdio, ends) =
        streams.stdio(plan).map_err(|why| RunError::plain(format!("no pipe can be made: {why}")))?;
    let instance = ply_sandbox::launch(&plan.spec(&placement), &context, stdio);
    Ok((instance.map_err(RunError::from_launch)?, ends))
}

/// `-d`: waits until the app is ready, then lets the command go.
async fn report(
    reporter: Reporter,
    ready: &Ready,
    pool: &Pool,
    events: &mut UnboundedReceiver<Event>,
    streams: &Streams,
    started: SystemTime,
) {
    let name = &ready.plan.name;
    let began = Instant::now();
    let mut pause = Duration::from_millis(20);
    let mut listens = ready.ready_port.is_none();
    let mut notes = Vec::new();
    loop {
        while let Ok(event) = events.try_recv() {
            match event {
                Event::Ended(slot) => {
                    pool.ended(slot, false);
                }
                // Looked at when the wait is over.
                Event::Look | Event::StopKeys => {}
            }
        }
        if pool.running() == 0 {
            let codes = pool.codes();
            let code = exit_code(&codes, false, 0);
            streams.settle(SETTLE).await;
            // Of the slot that gives the code; what an earlier run of this name wrote is none of its lines.
            let slot = codes.iter().position(|c| *c != 0).map_or(1, |n| n as u32 + 1);
            let lines = crate::logs::last_lines(&ready.dirs, name.as_str(), slot, started, 5);
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
        if let Some(port) = ready.ready_port.filter(|_| !listens) {
            let slot = pool.next().unwrap_or(1);
            listens = match pool.socket(slot, false) {
                Ok(socket) => crate::relay::answers(socket, port).await,
                Err(_) => false,
            };
            if !listens && began.elapsed() > READY_WAIT {
                notes.push(format!("nothing listens on port {port} in {name} yet"));
                listens = true;
            }
        }
        if listens && began.elapsed() >= SETTLE {
            break;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
    let mut lines = vec![format!("{name} runs in the background")];
    lines.extend(notes);
    lines.push(format!("see it with ply ps and ply logs -f {name}, stop it with ply stop {name}"));
    reporter.running(lines);
}

/// It has started and goes on: what was needed for that goes back to the system. The heap's free pages, and the
/// pages of the program itself that only the start touched (they are in the page cache, should they be needed).
fn rest() {
    // SAFETY: a plain call that gives free heap pages back.
    unsafe { libc::malloc_trim(0) };
    for (start, length) in clean_program_pages().unwrap_or_default() {
        // SAFETY: a read-only mapping of a file none of whose pages was ever written: dropped pages come back from
        // the file as they were.
        unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED) };
    }
}

/// The read-only file mappings of this process without a written page (relocated data has some), as address and
/// length.
fn clean_program_pages() -> Option<Vec<(usize, usize)>> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let mut found = Vec::new();
    let mut at: Option<(usize, usize)> = None;
    for line in smaps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let first = fields.next()?;
        if let Some((start, end)) = first.split_once('-') {
            let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
            let read_only = fields.next().is_some_and(|rights| rights == "r-xp" || rights == "r--p");
            let is_file = fields.nth(3).is_some_and(|path| path.starts_with('/'));
            at = (read_only && is_file).then(|| (start, end - start));
        } else if first == "Anonymous:" && fields.next() == Some("0") {
            found.extend(at.take());
        }
    }
    Some(found)
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
