//! The belt between reading, compressing and writing: a fixed number of buffers goes round. Whoever reads waits
//! for a free one, so nothing piles up; whoever writes takes them in the order in which they were read.

use crate::format::{BLOCK, DATA_RAW};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use zstd_safe::CCtx;

/// One block on its way.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// What was read.
    pub(crate) data: Vec<u8>,
    packed: Vec<u8>,
    raw: bool,
}

impl Chunk {
    fn new() -> Self {
        Self { data: Vec::with_capacity(BLOCK), packed: Vec::with_capacity(BLOCK), raw: false }
    }

    /// What goes to the image.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.raw { &self.data } else { &self.packed }
    }

    /// The size field that describes it.
    pub(crate) fn size_field(&self) -> u32 {
        self.bytes().len() as u32 | if self.raw { DATA_RAW } else { 0 }
    }

    /// Compresses; what doesn't shrink stays as it is.
    fn pack(&mut self, context: &mut CCtx<'_>, level: i32) {
        self.packed.clear();
        self.packed.resize(self.data.len().saturating_sub(1), 0);
        match context.compress(&mut self.packed[..], &self.data, level) {
            Ok(length) => {
                self.packed.truncate(length);
                self.raw = false;
            }
            Err(_) => self.raw = true,
        }
    }
}

#[derive(Default)]
struct State {
    free: Vec<Chunk>,
    jobs: VecDeque<(u32, Chunk)>,
    done: BTreeMap<u32, Chunk>,
    /// How many blocks there will be, once reading has ended.
    total: Option<u32>,
    stopped: bool,
}

pub(crate) struct Pipe {
    state: Mutex<State>,
    freed: Condvar,
    fed: Condvar,
    packed: Condvar,
}

impl Pipe {
    pub(crate) fn new(buffers: usize) -> Self {
        let free = (0..buffers).map(|_| Chunk::new()).collect();
        Self {
            state: Mutex::new(State { free, ..State::default() }),
            freed: Condvar::new(),
            fed: Condvar::new(),
            packed: Condvar::new(),
        }
    }

    /// An empty buffer, as soon as there is one; none after [`Pipe::stop`].
    pub(crate) fn take(&self) -> Option<Chunk> {
        let mut state = wait(&self.freed, self.lock(), |s| !s.stopped && s.free.is_empty());
        if state.stopped {
            return None;
        }
        state.free.pop().map(|mut chunk| {
            chunk.data.clear();
            chunk
        })
    }

    /// Hands block number `number` to the compressors. Numbers run from 0 without gaps.
    pub(crate) fn feed(&self, number: u32, chunk: Chunk) {
        self.lock().jobs.push_back((number, chunk));
        self.fed.notify_one();
    }

    /// A buffer that was not needed after all.
    pub(crate) fn give_back(&self, chunk: Chunk) {
        self.lock().free.push(chunk);
        self.freed.notify_one();
    }

    /// There are no blocks beyond the first `total`.
    pub(crate) fn close(&self, total: u32) {
        self.lock().total = Some(total);
        self.fed.notify_all();
        self.packed.notify_all();
    }

    /// Something went wrong: everybody goes home.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.freed.notify_all();
        self.fed.notify_all();
        self.packed.notify_all();
    }

    /// A compressor's whole life.
    pub(crate) fn work(&self, level: i32) {
        let mut context = CCtx::create();
        loop {
            let mut state =
                wait(&self.fed, self.lock(), |s| !s.stopped && s.total.is_none() && s.jobs.is_empty());
            if state.stopped {
                return;
            }
            let Some((number, mut chunk)) = state.jobs.pop_front() else { return };
            drop(state);
            chunk.pack(&mut context, level);
            self.lock().done.insert(number, chunk);
            self.packed.notify_one();
        }
    }

    /// Block number `number` once it is compressed; none when there are no more, or after [`Pipe::stop`].
    pub(crate) fn next(&self, number: u32) -> Option<Chunk> {
        let mut state = wait(&self.packed, self.lock(), |s| {
            !s.stopped && !s.done.contains_key(&number) && s.total.is_none_or(|total| number < total)
        });
        if state.stopped { None } else { state.done.remove(&number) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait<'a>(
    on: &Condvar,
    state: MutexGuard<'a, State>,
    until_not: impl FnMut(&mut State) -> bool,
) -> MutexGuard<'a, State> {
    on.wait_while(state, until_not).unwrap_or_else(PoisonError::into_inner)
}
