//! The slots of a run: which instances are there, what their state files say, who gets the next connection and how
//! many each has.

use crate::parent::Event;
use crate::relay::Backends;
use crate::state::{self, InstanceState, Status, now_ms};
use crate::supervisor::Life;
use crate::{journal, ports};
use ply_image::Dirs;
use ply_manifest::Bytes;
use ply_sandbox::Instance;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// How long after its start an instance that refuses connections is not spoken of.
const STARTING_MS: u64 = 3_000;

/// Which ports of an instance matter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doors {
    /// The port whose answer makes it healthy.
    pub(crate) gate: Option<u16>,
    /// Where each published port leads to, in the plan's order.
    pub(crate) published: Vec<u16>,
}

/// One slot.
struct Slot {
    life: Life,
    /// The running instance; none after its end.
    instance: Option<Instance>,
    /// What its state file says.
    state: InstanceState,
    doors: Doors,
    /// Healthy: it gets connections.
    joined: bool,
    /// It shall end: it gets no connection in any case.
    leaves: bool,
    load: Rc<Load>,
    /// Milliseconds since 1970 at which its launch began, and at which its instance was started.
    began_ms: u64,
    started_ms: u64,
    /// How its instance ended, for the journal.
    ended: Value,
}

/// The connections of an instance.
#[derive(Default)]
struct Load {
    open: Cell<usize>,
    /// Whether somebody waits for the last one's end.
    awaited: Cell<bool>,
}

/// One connection of an instance, as long as it lasts.
pub(crate) struct Hold {
    life: Life,
    load: Rc<Load>,
    tell: UnboundedSender<Event>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.load.open.set(self.load.open.get() - 1);
        if self.load.open.get() == 0 && self.load.awaited.get() {
            let _ = self.tell.send(Event::Idle(self.life));
        }
    }
}

/// Sockets that were made inside ahead of need: going in costs a thread or a process, so the busier a slot is, the
/// more are made at once.
#[derive(Default)]
struct Stock {
    sockets: Vec<OwnedFd>,
    batch: usize,
}

/// The most sockets that are made at once.
const BATCH_MAX: usize = 32;

/// All slots of a run.
pub(crate) struct Pool {
    slots: RefCell<BTreeMap<u32, Slot>>,
    dirs: Dirs,
    /// The slot that had the last connection.
    turn: Cell<u32>,
    told: RefCell<BTreeSet<(u32, u16)>>,
    stock: RefCell<BTreeMap<(u32, bool), Stock>>,
    tell: UnboundedSender<Event>,
    pub(crate) say: Rc<dyn Fn(&str)>,
}

impl Pool {
    pub(crate) fn new(dirs: Dirs, tell: UnboundedSender<Event>, say: Rc<dyn Fn(&str)>) -> Self {
        let (slots, told, stock) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { slots, dirs, turn: Cell::new(0), told, stock, tell, say }
    }

    /// Puts a running instance into its slot.
    pub(crate) fn add(&self, life: Life, instance: Instance, mut state: InstanceState, doors: Doors) {
        let began_ms = state.since_ms;
        state.status = Status::Running;
        state.since_ms = now_ms();
        state.target = Some(instance.target().clone());
        self.save(&state);
        let image = state.image.to_string();
        let detail = json!({"image": image, "digest": state.digest, "pid": instance.app().pid});
        journal::event(&self.dirs, state.app.as_str(), Some(state.slot), "start", detail);
        self.put(life, Some(instance), state, doors, (began_ms, Value::Null));
    }

    /// An instance that could not be started is one that has ended.
    pub(crate) fn add_failed(&self, life: Life, mut state: InstanceState, code: i32, why: &str) {
        state.exit_code = Some(code);
        let ended = json!({"code": code, "oom": false, "asked": false, "uptime_ms": 0, "error": why});
        let began_ms = state.since_ms;
        self.put(life, None, state, Doors::default(), (began_ms, ended));
    }

    /// With when its launch began, and how it ended where it has.
    fn put(
        &self,
        life: Life,
        instance: Option<Instance>,
        state: InstanceState,
        doors: Doors,
        (began_ms, ended): (u64, Value),
    ) {
        let slot = Slot {
            life,
            instance,
            state,
            doors,
            joined: false,
            leaves: false,
            load: Rc::default(),
            began_ms,
            started_ms: now_ms(),
            ended,
        };
        self.slots.borrow_mut().insert(life.slot, slot);
    }

    /// How often the slot was started so far.
    pub(crate) fn starts(&self, slot: u32) -> u32 {
        self.slots.borrow().get(&slot).map_or(0, |s| s.state.restarts + 1)
    }

    fn save(&self, state: &InstanceState) {
        if let Err(e) = state::save(&self.dirs, state) {
            (self.say)(&format!("the state of {}.{} can't be written: {e}", state.app, state.slot));
        }
    }

    /// Changes what is known of a slot.
    fn with<T>(&self, life: Life, change: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        let mut slots = self.slots.borrow_mut();
        slots.get_mut(&life.slot).filter(|s| s.life == life).map(change)
    }

    fn note(&self, slot: &Slot, what: &str, detail: Value) {
        journal::event(&self.dirs, slot.state.app.as_str(), Some(slot.state.slot), what, detail);
    }

    /// It is healthy: it gets connections.
    pub(crate) fn join(&self, life: Life) {
        self.with(life, |slot| {
            slot.joined = true;
            if slot.doors.gate.is_some() {
                slot.state.health = Some("healthy".to_owned());
                self.save(&slot.state);
                self.note(slot, "healthy", json!({"port": slot.doors.gate}));
            }
        });
    }

    /// It is not healthy: it gets none until it answers.
    pub(crate) fn unhealthy(&self, life: Life) {
        self.with(life, |slot| {
            let never = slot.state.health.is_none();
            slot.joined = false;
            slot.state.health = Some("unhealthy".to_owned());
            self.save(&slot.state);
            let listens = slot.instance.as_ref().map(|i| ports::open_inside(i.app().pid));
            let detail = json!({"port": slot.doors.gate, "never_answered": never, "listens": listens});
            self.note(slot, "unhealthy", detail);
        });
    }

    /// It gets no new connection. True where it has none: nothing is to be waited for.
    pub(crate) fn drain(&self, life: Life) -> bool {
        let idle = self.with(life, |slot| {
            (slot.joined, slot.leaves) = (false, true);
            slot.load.awaited.set(true);
            slot.state.status = Status::Stopping;
            slot.state.since_ms = now_ms();
            self.save(&slot.state);
            let open = slot.load.open.get();
            self.note(slot, "leave", json!({"connections": open}));
            open == 0
        });
        idle.unwrap_or(true)
    }

    /// Sends it the stop signal.
    pub(crate) fn stop(&self, life: Life, signal: i32) {
        self.with(life, |slot| {
            (slot.joined, slot.leaves) = (false, true);
            if slot.state.status != Status::Stopping {
                slot.state.status = Status::Stopping;
                slot.state.since_ms = now_ms();
                self.save(&slot.state);
            }
            if let Some(instance) = &slot.instance {
                let _ = instance.signal(signal);
            }
        });
    }

    /// Sends a signal to an instance.
    pub(crate) fn signal(&self, life: Life, signal: i32) {
        self.with(life, |slot| slot.instance.as_ref().map(|i| i.signal(signal)));
    }

    /// Sends a signal to the instance of a run that has a single one.
    pub(crate) fn forward(&self, signal: i32) {
        let slots = self.slots.borrow();
        if let (1, Some(instance)) = (slots.len(), slots.values().next().and_then(|s| s.instance.as_ref())) {
            let _ = instance.signal(signal);
        }
    }

    /// Takes the end of an instance, if it has ended: its exit code.
    pub(crate) fn reap(&self, life: Life) -> Option<i32> {
        let code = self.with(life, |slot| {
            let instance = slot.instance.as_mut()?;
            let code = match instance.try_wait() {
                Ok(Some(exit)) => exit.code(),
                Ok(None) => return None,
                // Its end can't be asked any more: it is over all the same.
                Err(_) => i32::from(crate::EXIT_PLY),
            };
            let oom = code != 0 && instance.oom_kills().unwrap_or(0) > 0;
            let state = &mut slot.state;
            if oom {
                let limit = state.limits.and_then(|limits| limits.memory_bytes);
                let limit = limit.map_or("the host's".to_owned(), |bytes| format!("limit {}", Bytes(bytes)));
                let why = format!("killed: out of memory ({limit})");
                (self.say)(&format!("{}.{} {why}", state.app, state.slot));
                state.ended_by = Some(why);
            }
            let uptime_ms = now_ms().saturating_sub(slot.started_ms);
            let asked = state.status == Status::Stopping;
            slot.ended = json!({"code": code, "oom": oom, "asked": asked, "uptime_ms": uptime_ms});
            state.exit_code = Some(code);
            state.target = None;
            state.health = None;
            slot.instance = None;
            slot.joined = false;
            Some(code)
        });
        self.stock.borrow_mut().retain(|(slot, _), _| *slot != life.slot);
        code.flatten()
    }

    /// What follows the end of an instance: another start after a pause, or none.
    /// Gives the exit code.
    pub(crate) fn follows(&self, life: Life, again: Option<Duration>) -> Option<i32> {
        self.with(life, |slot| {
            slot.state.status = if again.is_some() { Status::Waiting } else { Status::Exited };
            slot.state.since_ms = now_ms();
            self.save(&slot.state);
            let mut detail = std::mem::take(&mut slot.ended);
            if detail.is_object() {
                let pause = again.map(|p| u64::try_from(p.as_millis()).unwrap_or(u64::MAX));
                detail["again_in_ms"] = json!(pause);
                self.note(slot, "exit", detail);
            }
            slot.state.exit_code
        })
        .flatten()
    }

    /// The slot is no longer one.
    pub(crate) fn forget(&self, slot: u32) {
        if let Some(slot) = self.slots.borrow_mut().remove(&slot) {
            state::forget(&self.dirs, slot.state.app.as_str(), slot.state.slot);
        }
    }

    /// Milliseconds since 1970 at which the launch of a slot's instance began.
    pub(crate) fn began_ms(&self, life: Life) -> Option<u64> {
        self.with(life, |slot| slot.began_ms)
    }

    /// The exit codes, in slot order.
    pub(crate) fn codes(&self) -> Vec<i32> {
        self.slots.borrow().values().filter_map(|s| s.state.exit_code).collect()
    }

    /// Forgets every slot; what still runs ends here.
    pub(crate) fn clear(&self) {
        for (_, slot) in std::mem::take(&mut *self.slots.borrow_mut()) {
            drop(slot.instance);
            state::forget(&self.dirs, slot.state.app.as_str(), slot.state.slot);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Backends for Pool {
    type Hold = Hold;

    /// Those that are healthy. Where none is: those that run and were not asked to leave. A connection that one of
    /// them takes is an answer.
    fn next(&self) -> Option<(u32, Hold)> {
        let slots = self.slots.borrow();
        let after = self.turn.get();
        let around = || slots.range(after + 1..).chain(slots.range(..=after)).map(|(_, slot)| slot);
        let open = |s: &&Slot| s.instance.is_some() && !s.leaves;
        let slot = around().find(|s| s.joined).or_else(|| around().find(open))?;
        self.turn.set(slot.life.slot);
        slot.load.open.set(slot.load.open.get() + 1);
        let hold = Hold { life: slot.life, load: Rc::clone(&slot.load), tell: self.tell.clone() };
        Some((slot.life.slot, hold))
    }

    fn socket(&self, slot: u32, ipv6: bool) -> io::Result<OwnedFd> {
        let slots = self.slots.borrow();
        let instance = slots.get(&slot).and_then(|s| s.instance.as_ref());
        let instance = instance.ok_or(io::ErrorKind::NotConnected)?;
        let mut all = self.stock.borrow_mut();
        let stock = all.entry((slot, ipv6)).or_default();
        if stock.sockets.is_empty() {
            stock.batch = (stock.batch * 2).clamp(1, BATCH_MAX);
            stock.sockets =
                if ipv6 { instance.tcp6_sockets(stock.batch)? } else { instance.tcp_sockets(stock.batch)? };
        }
        stock.sockets.pop().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn port(&self, slot: u32, n: usize) -> Option<u16> {
        self.slots.borrow().get(&slot)?.doors.published.get(n).copied()
    }

    fn count(&self) -> usize {
        let slots = self.slots.borrow();
        match slots.values().filter(|s| s.joined).count() {
            0 => slots.values().filter(|s| s.instance.is_some() && !s.leaves).count(),
            healthy => healthy,
        }
    }

    fn connected(&self, slot: u32, port: u16) {
        let slots = self.slots.borrow();
        if let Some(slot) = slots.get(&slot)
            && !slot.joined
            && slot.doors.gate == Some(port)
        {
            let _ = self.tell.send(Event::Answer(slot.life, true));
        }
    }

    fn refused(&self, slot: u32, port: u16) {
        let slots = self.slots.borrow();
        let Some(found) = slots.get(&slot) else { return };
        let Some(pid) = found.instance.as_ref().map(|i| i.app().pid) else { return };
        // One that has just started is still on its way to its port.
        if now_ms().saturating_sub(found.state.since_ms) < STARTING_MS {
            return;
        }
        if !self.told.borrow_mut().insert((slot, port)) {
            return;
        }
        let app = &found.state.app;
        let others = ports::open_inside(pid);
        (self.say)(&match others.as_slice() {
            _ if ports::inside(pid, port) != ports::Inside::Nothing => {
                format!("{app}.{slot} does not take connections on port {port}")
            }
            [] => format!("nothing listens on port {port} in {app}.{slot}"),
            ports => {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                format!("nothing listens on port {port} in {app}.{slot}; it listens on {}", ports.join(", "))
            }
        });
    }
}
