//! The slots of a run: which instances are there, what their state files say, and whose turn the next connection is.

use crate::relay::Backends;
use crate::state::{self, InstanceState, Status, now_ms};
use crate::{journal, ports};
use ply_image::Dirs;
use ply_manifest::Bytes;
use ply_sandbox::Instance;
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

/// How long after its start an instance that refuses connections is not spoken of.
const STARTING_MS: u64 = 3_000;

/// One slot.
pub(crate) struct Slot {
    /// The running instance; none after its end.
    pub(crate) instance: Option<Instance>,
    /// What its state file says.
    pub(crate) state: InstanceState,
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
    pub(crate) slots: RefCell<Vec<Slot>>,
    pub(crate) dirs: Dirs,
    turn: Cell<usize>,
    told: RefCell<BTreeSet<(u32, u16)>>,
    stock: RefCell<BTreeMap<(u32, bool), Stock>>,
    pub(crate) say: Box<dyn Fn(&str)>,
}

impl Pool {
    pub(crate) fn new(dirs: Dirs, say: Box<dyn Fn(&str)>) -> Self {
        let (slots, told, stock) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { slots, dirs, turn: Cell::new(0), told, stock, say }
    }

    /// Puts a running instance into its slot.
    pub(crate) fn add(&self, instance: Instance, mut state: InstanceState) {
        state.status = Status::Running;
        state.since_ms = now_ms();
        state.target = Some(instance.target().clone());
        self.save(&state);
        let image = state.image.to_string();
        let detail = json!({"image": image, "digest": state.digest, "pid": instance.app().pid});
        journal::event(&self.dirs, state.app.as_str(), state.slot, "start", detail);
        self.slots.borrow_mut().push(Slot { instance: Some(instance), state });
    }

    fn save(&self, state: &InstanceState) {
        if let Err(e) = state::save(&self.dirs, state) {
            (self.say)(&format!("the state of {}.{} can't be written: {e}", state.app, state.slot));
        }
    }

    /// How many still run.
    pub(crate) fn running(&self) -> usize {
        self.slots.borrow().iter().filter(|s| s.instance.is_some()).count()
    }

    /// Sends a signal to every running instance.
    pub(crate) fn signal_all(&self, signal: i32) {
        for slot in self.slots.borrow().iter() {
            if let Some(instance) = &slot.instance {
                let _ = instance.signal(signal);
            }
        }
    }

    /// Says of every running instance that it was asked to stop.
    pub(crate) fn stopping(&self) {
        for slot in self.slots.borrow_mut().iter_mut().filter(|s| s.instance.is_some()) {
            slot.state.status = Status::Stopping;
            slot.state.since_ms = now_ms();
            self.save(&slot.state);
        }
    }

    /// Takes the end of a slot's instance down, if it has ended.
    pub(crate) fn ended(&self, slot: u32, asked: bool) -> bool {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.iter_mut().find(|s| s.state.slot == slot) else { return false };
        let Some(instance) = &mut slot.instance else { return false };
        let code = match instance.try_wait() {
            Ok(Some(exit)) => exit.code(),
            Ok(None) => return false,
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
        let uptime_ms = now_ms().saturating_sub(state.since_ms);
        let detail = json!({"code": code, "oom": oom, "asked": asked, "uptime_ms": uptime_ms});
        journal::event(&self.dirs, state.app.as_str(), state.slot, "exit", detail);
        state.status = Status::Exited;
        state.since_ms = now_ms();
        state.exit_code = Some(code);
        state.target = None;
        self.save(state);
        slot.instance = None;
        let ended = state.slot;
        self.stock.borrow_mut().retain(|(slot, _), _| *slot != ended);
        true
    }

    /// The exit codes, in slot order.
    pub(crate) fn codes(&self) -> Vec<i32> {
        self.slots.borrow().iter().filter_map(|s| s.state.exit_code).collect()
    }

    /// Forgets every slot; what still runs ends here.
    pub(crate) fn clear(&self) {
        for slot in self.slots.borrow_mut().drain(..) {
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
    fn next(&self) -> Option<u32> {
        let slots = self.slots.borrow();
        let count = slots.len();
        for step in 0..count {
            let at = (self.turn.get() + step) % count;
            if slots[at].instance.is_some() {
                self.turn.set(at + 1);
                return Some(slots[at].state.slot);
            }
        }
        None
    }

    fn socket(&self, slot: u32, ipv6: bool) -> io::Result<OwnedFd> {
        let slots = self.slots.borrow();
        let instance = slots.iter().find(|s| s.state.slot == slot).and_then(|s| s.instance.as_ref());
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

    fn count(&self) -> usize {
        self.running()
    }

    fn refused(&self, slot: u32, port: u16) {
        let slots = self.slots.borrow();
        let Some(found) = slots.iter().find(|s| s.state.slot == slot) else { return };
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
