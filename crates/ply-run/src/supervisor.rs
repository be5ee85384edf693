//! When each instance is started, asked to stop, given connections and taken out of them: the run parent's decisions
//! as a pure state machine. It reads no clock and does no I/O, so that a simulation can drive it through years.
//!
//! `step(now, event)` gives what is to be done, in order. Whoever drives it does all of it before the next event; a
//! start that doesn't succeed is reported as that instance's end. [`Supervisor::wake`] says when it wants to be
//! called at the latest. Scale changes, rolls, deploys and stops are plans over the same slots (`plans`): a stop goes
//! before everything, a scale change holds at once, restarts and deploys come one after the other.

mod plans;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use ply_manifest::RestartPolicy;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long an instance with nothing to ask must have run to be called healthy.
pub(crate) const SETTLE: Duration = Duration::from_millis(200);
/// The first pause between two questions of the gate; it doubles.
const GATE_FIRST: Duration = Duration::from_millis(50);
/// The longest.
const GATE_LAST: Duration = Duration::from_secs(1);
/// How often a healthy or unhealthy instance is asked.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// How many answers in a row must be missed.
const MISSES: u8 = 3;
/// How long an instance must have been healthy for its failures to be forgotten.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

/// A command that waits for its answer.
pub(crate) type Ticket = u64;

/// One life of a slot: which slot, and the how-manieth start of the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Life {
    pub(crate) slot: u32,
    pub(crate) run: u64,
}

/// What a slot is started from, an image with its plan, numbered as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release(pub(crate) u32);

impl Release {
    /// What the run begins with.
    pub(crate) const FIRST: Self = Self(1);
}

/// How it is known that an instance is healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// There is nothing to ask: it is once it has run for a moment.
    Runs,
    /// A port is asked until it answers, and then no more.
    Once { grace: Duration },
    /// A port is asked as long as the instance runs.
    Always { grace: Duration },
}

/// The rules of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) restart: RestartPolicy,
    /// The first pause before a restart; it doubles a failure.
    pub(crate) backoff: Duration,
    pub(crate) max_backoff: Duration,
    pub(crate) gate: Gate,
    /// From the stop signal to the kill.
    pub(crate) stop_timeout: Duration,
    /// The longest wait for the connections of one that leaves.
    pub(crate) drain: Duration,
    /// The least and the most instances.
    pub(crate) least: u32,
    pub(crate) most: u32,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The run begins, with that many slots.
    Begin(u32),
    /// A start has succeeded: the instance's time begins now.
    Started(Life),
    /// An instance has ended. `spread` (of 255) is the random part of a pause before its restart.
    Ended { life: Life, code: i32, spread: u8 },
    /// Its port took a connection, or didn't.
    Answer { life: Life, yes: bool },
    /// The last connection of one that leaves has ended.
    Drained(Life),
    /// So many instances, please.
    Scale { ticket: Ticket, to: u32 },
    /// The number of instances is the run's own again.
    Unpin(Ticket),
    /// Every instance anew, one after the other.
    Restart(Ticket),
    /// Every instance anew from another release. Where there is one instance only and `spare` is set, its successor
    /// stands beside it until it is healthy.
    Deploy { ticket: Ticket, release: Release, policy: Policy, spare: bool },
    /// The run shall end.
    Stop,
    /// At once.
    Kill,
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Start(Life, Release),
    /// Ask its port, and tell the answer.
    Ask(Life),
    /// It is healthy: it gets connections from now on.
    Join(Life),
    /// It gets no more, but those that it has go on; tell when the last has ended.
    Drain(Life),
    /// It is not healthy: it gets no more until it answers.
    Unhealthy(Life),
    /// The stop signal; no new connections either.
    Signal(Life),
    Kill(Life),
    /// It has ended, and its slot waits so long for the next start.
    Wait(Life, Duration),
    /// It has ended, and its slot stays as it is.
    Over(Life),
    /// The slot is no longer one.
    Forget(u32),
    /// Every instance is of this release: it is what a start of the app takes from now on.
    Current(Release),
    /// A roll goes on.
    Progress(Ticket, Step),
    /// What became of a command.
    Answer(Ticket, Outcome),
}

/// What a roll has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It begins with a slot.
    Begins(u32),
    /// The slot's new instance is healthy.
    Healthy(u32),
    /// The slot's new instance is not: every slot goes back to the release before.
    Fails(Life, Failure),
    /// A slot goes back.
    Back(u32),
}

/// Why a gate was not passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The new instance ended with this code before it was healthy.
    Died { code: i32 },
    /// It never answered.
    Silent,
}

/// The end of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A restart is done, with so many instances.
    Rolled(u32),
    /// A deploy is done, with so many instances.
    Deployed(u32),
    /// The number of instances is changed.
    Scaled { from: u32, to: u32 },
    /// The least number is this.
    TooFew(u32),
    /// The most is this.
    TooMany(u32),
    /// A restart ended at this slot.
    Failed(u32, Failure),
    /// A deploy failed at this slot; every slot that it had changed has the release before again.
    Reverted(u32, Failure),
    /// The run stops.
    Stopping,
}

/// Where a slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It runs, and its gate is not passed.
    Starting {
        since: Duration,
    },
    Healthy {
        since: Duration,
    },
    Unhealthy,
    /// Out of the pool, with connections.
    Draining {
        until: Duration,
    },
    /// Asked to stop.
    Stopping {
        kill_at: Duration,
        killed: bool,
    },
    /// It will be started again.
    Backoff {
        until: Duration,
    },
    /// It won't.
    Exited,
}

/// What follows the end of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// What the restart policy says.
    Policy,
    /// A new one.
    Again,
    /// Its slot is given up.
    Remove,
    /// Nothing: the run stops.
    End,
}

/// When the port is asked.
#[derive(Debug, Clone, Copy)]
struct Asking {
    /// The next time; none where it isn't asked any more.
    at: Option<Duration>,
    /// A question has no answer yet.
    open: bool,
    pause: Duration,
    misses: u8,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    life: Life,
    /// What its present life was started from, and the rules of that.
    release: Release,
    policy: Policy,
    /// What its next life is started from.
    wants: Release,
    /// It stands in for the only instance, and counts once its gate is passed.
    spare: bool,
    phase: Phase,
    next: Next,
    asking: Asking,
    /// The last pause before a restart, without and with its random part; zero where none was, or all is forgiven.
    pause: (Duration, Duration),
}

impl Slot {
    fn lives(&self) -> bool {
        !matches!(self.phase, Phase::Backoff { .. } | Phase::Exited)
    }

    /// It counts: neither on its way out for good nor a spare one.
    fn is_member(&self) -> bool {
        self.next != Next::Remove && !self.spare
    }

    fn joined(&self) -> bool {
        matches!(self.phase, Phase::Healthy { .. })
    }

    /// When something is to be done about it.
    fn wake(&self) -> Option<Duration> {
        match self.phase {
            Phase::Starting { since } if self.policy.gate == Gate::Runs => Some(since + SETTLE),
            Phase::Starting { .. } | Phase::Healthy { .. } | Phase::Unhealthy => {
                self.asking.at.filter(|_| !self.asking.open)
            }
            Phase::Draining { until } | Phase::Backoff { until } => Some(until),
            Phase::Stopping { kill_at, killed } => (!killed).then_some(kill_at),
            Phase::Exited => None,
        }
    }
}

/// One app's slots and the plans over them.
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// The rules of each release that is in use.
    releases: BTreeMap<Release, Policy>,
    /// What a new slot is started from.
    current: Release,
    slots: BTreeMap<u32, Slot>,
    now: Duration,
    runs: u64,
    /// The number of slots that the run began with.
    own: u32,
    stopping: bool,
    roll: Option<plans::Roll>,
    /// Restarts and deploys that come later.
    waiting: VecDeque<plans::Order>,
    out: Vec<Action>,
}

impl Supervisor {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            releases: BTreeMap::from([(Release::FIRST, policy)]),
            current: Release::FIRST,
            slots: BTreeMap::new(),
            now: Duration::ZERO,
            runs: 0,
            own: 0,
            stopping: false,
            roll: None,
            waiting: VecDeque::new(),
            out: Vec::new(),
        }
    }

    /// Takes one event. A `now` before an earlier one counts as that.
    pub(crate) fn step(&mut self, now: Duration, event: Event) -> Vec<Action> {
        self.now = self.now.max(now);
        match event {
            Event::Begin(slots) => {
                self.own = slots;
                (1..=slots).for_each(|slot| self.start(slot, self.current));
            }
            Event::Started(life) => {
                let since = self.now;
                if let Some(slot) = self.slot(life)
                    && matches!(slot.phase, Phase::Starting { .. })
                {
                    slot.phase = Phase::Starting { since };
                }
            }
            Event::Ended { life, code, spread } => self.ended(life, code, spread),
            Event::Answer { life, yes } => self.answered(life, yes),
            Event::Drained(life) => {
                if let Some(slot) = self.slot(life)
                    && matches!(slot.phase, Phase::Draining { .. })
                {
                    self.signal(life.slot);
                }
            }
            Event::Scale { ticket, to } => self.scale(ticket, to),
            Event::Unpin(ticket) => self.scale(ticket, self.own.max(self.rules().least)),
            Event::Restart(ticket) => self.order(plans::Order { ticket, to: None, spare: false }),
            Event::Deploy { ticket, release, policy, spare } => {
                self.releases.insert(release, policy);
                self.order(plans::Order { ticket, to: Some(release), spare });
            }
            Event::Stop => self.stop(),
            Event::Kill => {
                self.stop();
                self.kill_all();
            }
            Event::Tick => {}
        }
        self.timers();
        self.go_on();
        self.let_go();
        std::mem::take(&mut self.out)
    }

    /// When it wants to be called at the latest.
    pub(crate) fn wake(&self) -> Option<Duration> {
        self.slots.values().filter_map(Slot::wake).min()
    }

    /// Every slot has ended for good.
    pub(crate) fn is_over(&self) -> bool {
        self.slots.values().all(|s| s.phase == Phase::Exited)
            && self.roll.is_none()
            && self.waiting.is_empty()
    }

    /// The run was asked to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// How many slots there are, but for those that leave and a spare one.
    pub(crate) fn members(&self) -> u32 {
        u32::try_from(self.slots.values().filter(|s| s.is_member()).count()).unwrap_or(u32::MAX)
    }

    /// How many of them are healthy.
    pub(crate) fn serving(&self) -> u32 {
        let healthy = self.slots.values().filter(|s| s.is_member() && s.joined()).count();
        u32::try_from(healthy).unwrap_or(u32::MAX)
    }

    /// What a new slot is started from.
    pub(crate) fn current(&self) -> Release {
        self.current
    }

    /// Whether anything runs from a release, or may be started from it.
    pub(crate) fn uses(&self, release: Release) -> bool {
        self.releases.contains_key(&release)
    }

    /// Forgets the releases that nothing needs any more.
    fn let_go(&mut self) {
        if self.releases.len() == 1 {
            return;
        }
        let (slots, roll, waiting, current) = (&self.slots, &self.roll, &self.waiting, self.current);
        self.releases.retain(|release, _| {
            *release == current
                || slots.values().any(|s| s.release == *release || s.wants == *release)
                || roll.as_ref().is_some_and(|r| r.to == Some(*release))
                || waiting.iter().any(|o| o.to == Some(*release))
        });
    }

    /// The rules of the current release.
    fn rules(&self) -> Policy {
        self.releases[&self.current]
    }

    /// The slots that have not answered in their time. None while one is still on its way, through its gate or to a
    /// restart.
    pub(crate) fn settled(&self) -> Option<Vec<u32>> {
        let moving = |p: Phase| matches!(p, Phase::Starting { .. } | Phase::Backoff { .. });
        if self.slots.values().any(|s| moving(s.phase)) {
            return None;
        }
        Some(self.slots.values().filter(|s| s.phase == Phase::Unhealthy).map(|s| s.life.slot).collect())
    }

    /// The slot, if that life is its present one.
    fn slot(&mut self, life: Life) -> Option<&mut Slot> {
        self.slots.get_mut(&life.slot).filter(|s| s.life == life)
    }

    fn answer(&mut self, ticket: Ticket, outcome: Outcome) {
        self.out.push(Action::Answer(ticket, outcome));
    }

    fn start(&mut self, number: u32, release: Release) {
        self.runs += 1;
        let life = Life { slot: number, run: self.runs };
        let policy = self.releases[&release];
        let at = (policy.gate != Gate::Runs).then(|| self.now + GATE_FIRST);
        // Another program has failed nothing yet.
        let same = self.slots.get(&number).filter(|s| s.release == release);
        let pause = same.map_or_else(Default::default, |s| s.pause);
        let slot = Slot {
            life,
            release,
            policy,
            wants: release,
            spare: false,
            phase: Phase::Starting { since: self.now },
            next: Next::Policy,
            asking: Asking { at, open: false, pause: GATE_FIRST, misses: 0 },
            pause,
        };
        self.slots.insert(number, slot);
        self.out.push(Action::Start(life, release));
    }

    fn ended(&mut self, life: Life, code: i32, spread: u8) {
        let now = self.now;
        let Some(slot) = self.slot(life).filter(|s| s.lives()) else { return };
        let gate_open = matches!(slot.phase, Phase::Starting { .. }) && slot.next == Next::Policy;
        if gate_open {
            // A deploy goes back from here, and that is what follows.
            self.gate(life, Err(Failure::Died { code }));
        }
        let Some(slot) = self.slot(life) else { return };
        let (policy, wants) = (slot.policy, slot.wants);
        if let Phase::Healthy { since } = slot.phase
            && now.saturating_sub(since) >= FORGIVEN_AFTER
        {
            slot.pause = Default::default();
        }
        match slot.next {
            Next::Remove => {
                self.slots.remove(&life.slot);
                self.out.push(Action::Over(life));
                self.out.push(Action::Forget(life.slot));
            }
            Next::End => {
                slot.phase = Phase::Exited;
                self.out.push(Action::Over(life));
            }
            Next::Again => {
                self.out.push(Action::Wait(life, Duration::ZERO));
                self.start(life.slot, wants);
            }
            Next::Policy => {
                let again = match policy.restart {
                    RestartPolicy::Never => false,
                    RestartPolicy::OnFailure => code != 0,
                    RestartPolicy::Always => true,
                };
                if again {
                    slot.pause = pause_after(slot.pause, &policy, spread);
                    let (_, pause) = slot.pause;
                    slot.phase = Phase::Backoff { until: now + pause };
                    self.out.push(Action::Wait(life, pause));
                } else {
                    slot.phase = Phase::Exited;
                    self.out.push(Action::Over(life));
                }
            }
        }
    }

    fn answered(&mut self, life: Life, yes: bool) {
        let now = self.now;
        let Some(slot) = self.slot(life) else { return };
        let gate = slot.policy.gate;
        let asking = &mut slot.asking;
        asking.open = false;
        match slot.phase {
            Phase::Starting { .. } | Phase::Unhealthy if yes => self.healthy(life),
            Phase::Healthy { .. } if yes => {
                asking.misses = 0;
                asking.at = asking.at.map(|_| now + CHECK_EVERY);
            }
            Phase::Healthy { .. } => {
                asking.misses += 1;
                asking.at = asking.at.map(|_| now + CHECK_EVERY);
                if asking.misses >= MISSES && asking.at.is_some() {
                    self.unhealthy(life);
                }
            }
            Phase::Starting { since } => {
                let (Gate::Once { grace } | Gate::Always { grace }) = gate else { return };
                let end = since + grace;
                if now >= end {
                    self.unhealthy(life);
                    self.gate(life, Err(Failure::Silent));
                } else {
                    asking.pause = (asking.pause * 2).min(GATE_LAST);
                    // The last question is at the end of the grace.
                    asking.at = Some((now + asking.pause).min(end));
                }
            }
            Phase::Unhealthy => asking.at = Some(now + CHECK_EVERY),
            Phase::Draining { .. } | Phase::Stopping { .. } | Phase::Backoff { .. } | Phase::Exited => {}
        }
    }

    fn healthy(&mut self, life: Life) {
        let now = self.now;
        let Some(slot) = self.slot(life) else { return };
        let always = matches!(slot.policy.gate, Gate::Always { .. });
        slot.phase = Phase::Healthy { since: now };
        slot.asking.misses = 0;
        slot.asking.at = always.then(|| now + CHECK_EVERY);
        self.out.push(Action::Join(life));
        self.gate(life, Ok(()));
    }

    fn unhealthy(&mut self, life: Life) {
        let now = self.now;
        let Some(slot) = self.slot(life) else { return };
        slot.phase = Phase::Unhealthy;
        slot.asking.at = Some(now + CHECK_EVERY);
        self.out.push(Action::Unhealthy(life));
    }

    /// Sends the stop signal, once.
    fn signal(&mut self, number: u32) {
        let now = self.now;
        let Some(slot) = self.slots.get_mut(&number).filter(|s| s.lives()) else { return };
        let kill_at = now + slot.policy.stop_timeout;
        if !matches!(slot.phase, Phase::Stopping { .. }) {
            slot.phase = Phase::Stopping { kill_at, killed: false };
            self.out.push(Action::Signal(slot.life));
        }
    }

    /// Does what the time has come for.
    fn timers(&mut self) {
        let now = self.now;
        let numbers: Vec<u32> = self.slots.keys().copied().collect();
        for number in numbers {
            let Some(slot) = self.slots.get_mut(&number) else { continue };
            if slot.wake().is_none_or(|at| at > now) {
                continue;
            }
            let (life, wants, gate) = (slot.life, slot.wants, slot.policy.gate);
            match &mut slot.phase {
                Phase::Starting { .. } if gate == Gate::Runs => self.healthy(life),
                Phase::Starting { .. } | Phase::Healthy { .. } | Phase::Unhealthy => {
                    slot.asking.open = true;
                    self.out.push(Action::Ask(life));
                }
                Phase::Draining { .. } => self.signal(number),
                Phase::Stopping { killed, .. } => {
                    *killed = true;
                    self.out.push(Action::Kill(life));
                }
                Phase::Backoff { .. } => self.start(number, wants),
                Phase::Exited => {}
            }
        }
    }
}

/// The pause after one more failure, without and with its random part: twice the last up to the most, and up to a
/// tenth more; never less than the last.
fn pause_after(last: (Duration, Duration), policy: &Policy, spread: u8) -> (Duration, Duration) {
    let plain = (last.0 * 2).clamp(policy.backoff.min(policy.max_backoff), policy.max_backoff);
    (plain, (plain + plain / 10 * u32::from(spread) / 255).max(last.1))
}
