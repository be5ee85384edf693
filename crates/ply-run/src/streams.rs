//! The three streams of a run: what the app gets as 0, 1 and 2, and the tasks that move its bytes.

use crate::Plan;
use crate::parent::Event;
use crate::pool::Pool;
use crate::pump::{self, Outlet, Sink, pump_in, pump_out};
use crate::ring::{RingWriter, Stream};
use crate::signals::Signals;
use crate::terminal::{self, RawMode, StopKeys};
use ply_image::Dirs;
use ply_sandbox::Stdio;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::{JoinHandle, spawn_local};

/// Our ends of an instance's pipes: output, errors, input.
pub(crate) type Ends = Option<(OwnedFd, OwnedFd, Option<OwnedFd>)>;

/// The caller's three streams, and the tasks that move bytes.
pub(crate) struct Streams {
    out: Option<Rc<Sink>>,
    err: Option<Rc<Sink>>,
    stdin: bool,
    raw: Option<RawMode>,
    terminal: Option<OwnedFd>,
    outputs: Vec<JoinHandle<()>>,
    input: Option<JoinHandle<()>>,
    /// Whether more than one instance has written to the caller's streams.
    several: Rc<Cell<bool>>,
    /// The log of each slot, over every start.
    rings: BTreeMap<u32, Rc<RefCell<RingWriter>>>,
}

impl Streams {
    pub(crate) fn new(plan: &Plan, background: bool) -> std::io::Result<Self> {
        // A stream that the caller has closed takes nothing.
        let sink = |fd: std::os::fd::BorrowedFd<'_>| Sink::new(fd).ok().map(Rc::new);
        let (out, err) = if background {
            (None, None)
        } else {
            (sink(rustix::stdio::stdout()), sink(rustix::stdio::stderr()))
        };
        let raw = if plan.terminal && !background { RawMode::enter()? } else { None };
        let stdin = plan.scale == 1 && !background && rustix::io::fcntl_getfd(rustix::stdio::stdin()).is_ok();
        Ok(Self {
            out,
            err,
            stdin,
            raw,
            terminal: None,
            outputs: Vec::new(),
            input: None,
            several: Rc::new(Cell::new(plan.scale > 1)),
            rings: BTreeMap::new(),
        })
    }

    /// What the app gets as 0, 1 and 2, and our ends of it.
    pub(crate) fn stdio(&self, plan: &Plan, slot: u32) -> std::io::Result<(Stdio, Ends)> {
        if plan.terminal {
            return Ok((Stdio::Terminal(terminal::size()), None));
        }
        let (out, theirs_out) = pump::app_pipe(true)?;
        let (err, theirs_err) = pump::app_pipe(true)?;
        let (input, theirs_in) = if self.stdin && slot == 1 {
            let (ours, theirs) = pump::app_pipe(false)?;
            (Some(ours), theirs)
        } else {
            (None, pump::null()?)
        };
        Ok((Stdio::Fds([theirs_in, theirs_out, theirs_err]), Some((out, err, input))))
    }

    /// The log of a slot; a run without one is said.
    pub(crate) fn ring(
        &mut self,
        dirs: &Dirs,
        app: &str,
        slot: u32,
        pool: &Pool,
    ) -> Option<Rc<RefCell<RingWriter>>> {
        if let Some(ring) = self.rings.get(&slot) {
            return Some(Rc::clone(ring));
        }
        let dir = dirs.data.join("logs");
        let open = crate::files::make_dir(&dir)
            .and_then(|()| RingWriter::open(&dir.join(format!("{app}.{slot}.log"))));
        match open {
            Ok(ring) => {
                let ring = Rc::new(RefCell::new(ring));
                self.rings.insert(slot, Rc::clone(&ring));
                Some(ring)
            }
            Err(e) => {
                (pool.say)(&format!("{app}.{slot} runs without a log: {e}"));
                None
            }
        }
    }

    /// Begins to move the bytes of a slot.
    pub(crate) fn connect(
        &mut self,
        plan: &Plan,
        slot: u32,
        ring: Option<Rc<RefCell<RingWriter>>>,
        ends: Ends,
        terminal: Option<OwnedFd>,
        send: &UnboundedSender<Event>,
    ) -> std::io::Result<()> {
        // What an earlier start of the slot has written is out, or goes on by itself.
        self.outputs.retain(|output| !output.is_finished());
        if let Some(input) = self.input.take_if(|_| slot == 1) {
            input.abort();
        }
        let width = plan.scale.to_string().len();
        self.several.set(self.several.get() || slot > 1);
        let prefix = (!plan.terminal).then(|| pump::Prefix {
            text: format!("{}.{slot:<width$} | ", plan.name),
            several: Rc::clone(&self.several),
        });
        let failed_once = std::cell::Cell::new(false);
        let log_failed: Rc<dyn Fn(std::io::Error)> = Rc::new(move |e| {
            if !failed_once.replace(true) {
                eprintln!("the log can't be written: {e}");
            }
        });
        let outlet = |sink: &Option<Rc<Sink>>| Outlet {
            ring: ring.clone(),
            sink: sink.clone(),
            prefix: prefix.clone(),
            log_failed: Rc::clone(&log_failed),
        };
        let mut spawn = |from: OwnedFd, stream, outlet| {
            self.outputs.push(spawn_local(async move {
                let _ = pump_out(from, stream, outlet).await;
            }));
        };
        match (ends, terminal) {
            (_, Some(terminal)) => {
                pump::set_nonblocking(&terminal)?;
                let twin = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 3);
                spawn(twin(&terminal)?, Stream::Out, outlet(&self.out));
                if self.stdin {
                    let (to, from) =
                        (twin(&terminal)?, rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
                    let mut keys = StopKeys::default();
                    let tell = send.clone();
                    let each = move |bytes: &[u8]| {
                        if keys.typed(bytes, Instant::now()) {
                            let _ = tell.send(Event::StopKeys);
                        }
                        true
                    };
                    self.input = Some(spawn_local(async move {
                        let _ = pump_in(from, to, each).await;
                    }));
                }
                self.terminal = Some(terminal);
            }
            (Some((out, err, input)), None) => {
                spawn(out, Stream::Out, outlet(&self.out));
                spawn(err, Stream::Err, outlet(&self.err));
                if let Some(to) = input {
                    let from = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
                    self.input = Some(spawn_local(async move {
                        let _ = pump_in(from, to, |_| true).await;
                    }));
                }
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// Tells the app's terminal the caller's size.
    pub(crate) fn resize(&self) {
        if let Some(terminal) = &self.terminal {
            terminal::follow_size(terminal.as_fd());
        }
    }

    /// Every instance has ended: waits until what they wrote last is in the log, no longer than `patience` (a child
    /// that outlives its app may keep a pipe open).
    pub(crate) async fn settle(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while !self.outputs.iter().all(JoinHandle::is_finished) && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Every instance has ended: what they wrote last still goes out. Who asked for the end waits for a slow reader
    /// no longer than `patience`; who didn't may still end it by a signal.
    pub(crate) async fn finish(mut self, signals: &Signals, patience: Option<Duration>) {
        if let Some(input) = self.input.take() {
            input.abort();
        }
        let until = patience.map(|p| Instant::now() + p);
        for mut output in std::mem::take(&mut self.outputs) {
            while !output.is_finished() {
                tokio::select! {
                    _ = &mut output => break,
                    () = tokio::time::sleep(Duration::from_millis(50)) => {}
                }
                if until.is_some_and(|u| Instant::now() > u)
                    || signals.next().is_some_and(|s| s != libc::SIGWINCH)
                {
                    output.abort();
                    break;
                }
            }
        }
        drop(self.raw.take());
    }
}
