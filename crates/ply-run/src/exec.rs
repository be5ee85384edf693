//! `ply exec`: one more process in a running instance, with no more rights than the app has.

use crate::RunError;
use crate::commands::running;
use crate::logs::InstanceName;
use crate::pump::{self, Outlet, Sink, pump_in, pump_out};
use crate::ring::Stream;
use crate::signals::Signals;
use crate::terminal::{self, RawMode};
use ply_image::Dirs;
use ply_sandbox::Stdio;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use tokio::task::spawn_local;

/// Runs `argv` in an instance (the first one that runs, where no slot is named) and gives its exit code.
pub fn exec(dirs: &Dirs, name: &InstanceName, argv: &[String], terminal: bool) -> Result<u8, RunError> {
    if argv.is_empty() {
        return Err(RunError::usage("ply exec needs a command", format!("write ply exec {name} COMMAND")));
    }
    let instances = running(dirs, &name.app)?;
    let found = instances.iter().find(|s| s.target.is_some() && name.slot.is_none_or(|slot| slot == s.slot));
    let Some(target) = found.and_then(|s| s.target.clone()) else {
        let slots: Vec<String> = instances.iter().map(|s| format!("{}.{}", s.app, s.slot)).collect();
        return Err(RunError::refused(
            format!("{name} does not run"),
            format!("there is {}", slots.join(", ")),
        ));
    };
    let failed = |why: std::io::Error| RunError::plain(format!("the command can't be watched: {why}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    tokio::task::LocalSet::new().block_on(&runtime, watch(&target, argv, terminal))
}

async fn watch(target: &ply_sandbox::ExecTarget, argv: &[String], terminal: bool) -> Result<u8, RunError> {
    let failed = |why: std::io::Error| RunError::plain(format!("the command can't be watched: {why}"));
    let sink = |fd: std::os::fd::BorrowedFd<'_>| Sink::new(fd).ok().map(Rc::new);
    let (out, err) = (sink(rustix::stdio::stdout()), sink(rustix::stdio::stderr()));
    let outlet =
        |sink: Option<Rc<Sink>>| Outlet { ring: None, sink, prefix: None, log_failed: Rc::new(|_| ()) };
    let stdin = || rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).ok();

    let signals = Signals::take().map_err(failed)?;
    let mut outputs = Vec::new();
    let mut input = None;
    let (mut process, raw, screen) = if terminal {
        let mut process = ply_sandbox::exec(target, argv, Stdio::Terminal(terminal::size()))
            .map_err(RunError::from_launch)?;
        let raw = RawMode::enter().map_err(failed)?;
        let screen = process.take_terminal();
        if let Some(screen) = &screen {
            pump::set_nonblocking(screen).map_err(failed)?;
            let twin = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(|e| failed(e.into()));
            let (from, to) = (twin(screen)?, twin(screen)?);
            let shown = outlet(out);
            outputs.push(spawn_local(async move { drop(pump_out(from, Stream::Out, shown).await) }));
            if let Some(from) = stdin() {
                input = Some(spawn_local(async move { drop(pump_in(from, to, |_| true).await) }));
            }
        }
        (process, raw, screen)
    } else {
        let (ours_out, theirs_out) = pump::app_pipe(true).map_err(failed)?;
        let (ours_err, theirs_err) = pump::app_pipe(true).map_err(failed)?;
        let (ours_in, theirs_in) = pump::app_pipe(false).map_err(failed)?;
        let process = ply_sandbox::exec(target, argv, Stdio::Fds([theirs_in, theirs_out, theirs_err]))
            .map_err(RunError::from_launch)?;
        let (shown, told) = (outlet(out), outlet(err));
        outputs.push(spawn_local(async move { drop(pump_out(ours_out, Stream::Out, shown).await) }));
        outputs.push(spawn_local(async move { drop(pump_out(ours_err, Stream::Err, told).await) }));
        if let Some(from) = stdin() {
            input = Some(spawn_local(async move { drop(pump_in(from, ours_in, |_| true).await) }));
        }
        (process, None, None)
    };

    let pidfd = rustix::io::fcntl_dupfd_cloexec(process.pidfd(), 3).map_err(|e| failed(e.into()))?;
    let ended = pump::watched(pidfd).map_err(failed)?;
    let came = pump::watched(signals.descriptor().map_err(failed)?).map_err(failed)?;
    let code = loop {
        tokio::select! {
            _ = ended.readable() => {
                if let Some(exit) = process.try_wait().map_err(failed)? {
                    break exit.code();
                }
            }
            guard = came.readable() => {
                guard.map_err(failed)?.clear_ready();
                while let Some(signal) = signals.next() {
                    match (signal, &screen) {
                        (libc::SIGWINCH, Some(screen)) => terminal::follow_size(screen.as_fd()),
                        (libc::SIGWINCH, None) => {}
                        (signal, _) => drop(process.signal(signal)),
                    }
                }
            }
        }
    };
    if let Some(input) = input {
        input.abort();
    }
    drop(screen);
    for output in outputs {
        // Something it left behind may hold its output open: that is not waited for longer than for a slow reader.
        let _ = tokio::time::timeout(std::time::Duration::from_millis(500), output).await;
    }
    drop(raw);
    Ok(u8::try_from(code).unwrap_or(crate::EXIT_PLY))
}
