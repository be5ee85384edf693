//! The plans over the slots: how many there are, a roll through all of them, the stop.
//!
//! A roll is a restart (each slot keeps its release) or a deploy (each gets another). A deploy whose gate fails turns
//! round: the slot gets its release back at once, then those that were done, the last first.

use super::{Action, Failure, Life, Next, Outcome, Phase, Release, Slot, Step, Supervisor, Ticket};
use std::collections::VecDeque;

/// A roll that is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub(super) ticket: Ticket,
    /// What each slot shall be started from; none where it keeps what it has.
    pub(super) to: Option<Release>,
    /// The successor of a single instance stands beside it until it is healthy.
    pub(super) spare: bool,
}

/// Every slot anew, one after the other.
#[derive(Debug)]
pub(super) struct Roll {
    ticket: Ticket,
    pub(super) to: Option<Release>,
    /// The slots to come.
    todo: VecDeque<u32>,
    /// The one whose new instance is awaited.
    at: Option<u32>,
    /// The slot that leaves once that one, a spare, is healthy.
    replaces: Option<u32>,
    /// The slots that are done, in their order.
    done: Vec<u32>,
    /// Where and why it has turned round.
    failed: Option<(u32, Failure)>,
}

impl Supervisor {
    /// Changes the number of slots: new ones get the lowest free numbers, the highest leave first.
    pub(super) fn scale(&mut self, ticket: Ticket, to: u32) {
        if self.stopping {
            return self.answer(ticket, Outcome::Stopping);
        }
        let rules = self.rules();
        if to < rules.least {
            return self.answer(ticket, Outcome::TooFew(rules.least));
        }
        if to > rules.most {
            return self.answer(ticket, Outcome::TooMany(rules.most));
        }
        let from = self.members();
        for _ in from..to {
            self.one_more();
        }
        for _ in to..from {
            if let Some(number) = self.highest() {
                self.leave(number, Next::Remove);
            }
        }
        self.answer(ticket, Outcome::Scaled { from, to });
    }

    /// One slot more. A deploy that is on its way comes to it in its turn.
    fn one_more(&mut self) {
        let current = self.current;
        let leaving = self.slots.values_mut().find(|s| s.next == Next::Remove && !s.spare);
        let number = match leaving {
            // One that is on its way out comes back as a new instance.
            Some(slot) => {
                (slot.next, slot.wants) = (Next::Again, current);
                slot.life.slot
            }
            None => {
                let free = self.free();
                self.start(free, current);
                free
            }
        };
        if let Some(roll) = self.roll.as_mut().filter(|r| r.to.is_some() && r.failed.is_none()) {
            roll.todo.push_back(number);
        }
    }

    /// The highest slot that counts.
    fn highest(&self) -> Option<u32> {
        self.slots.values().rev().find(|s| s.is_member()).map(|s| s.life.slot)
    }

    /// The lowest free slot.
    fn free(&self) -> u32 {
        (1..).find(|n| !self.slots.contains_key(n)).unwrap_or(u32::MAX)
    }

    /// Lets an instance go: out of the pool, and where others serve its connections may end before it is signalled.
    fn leave(&mut self, number: u32, next: Next) {
        let others = self.slots.values().any(|s| s.life.slot != number && s.joined());
        let now = self.now;
        let Some(slot) = self.slots.get_mut(&number) else { return };
        let (until, wants) = (now + slot.policy.drain, slot.wants);
        match slot.phase {
            Phase::Backoff { .. } | Phase::Exited => {
                if next == Next::Remove {
                    self.slots.remove(&number);
                    self.out.push(Action::Forget(number));
                } else {
                    self.start(number, wants);
                }
            }
            Phase::Healthy { .. } if others => {
                slot.phase = Phase::Draining { until };
                slot.next = next;
                self.out.push(Action::Drain(slot.life));
            }
            _ => {
                slot.next = next;
                // One that drains already goes on with that.
                if !matches!(slot.phase, Phase::Draining { .. }) {
                    self.signal(number);
                }
            }
        }
    }

    /// The end of everything: no plan goes on, every command that waits is told.
    pub(super) fn stop(&mut self) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        let waiting = self.waiting.drain(..).map(|o| o.ticket).collect::<Vec<_>>();
        for ticket in self.roll.take().map(|r| r.ticket).into_iter().chain(waiting) {
            self.answer(ticket, Outcome::Stopping);
        }
        let numbers: Vec<u32> = self.slots.keys().copied().collect();
        for number in numbers {
            let Some(slot) = self.slots.get_mut(&number) else { continue };
            if slot.lives() {
                if slot.next != Next::Remove {
                    slot.next = Next::End;
                }
                self.signal(number);
            } else {
                slot.phase = Phase::Exited;
            }
        }
    }

    /// Kills whatever still runs.
    pub(super) fn kill_all(&mut self) {
        for slot in self.slots.values_mut() {
            if let Phase::Stopping { killed, .. } = &mut slot.phase {
                *killed = true;
                self.out.push(Action::Kill(slot.life));
            }
        }
    }

    /// A roll that comes after those that are there.
    pub(super) fn order(&mut self, order: Order) {
        if self.stopping {
            self.answer(order.ticket, Outcome::Stopping);
        } else {
            self.waiting.push_back(order);
        }
    }

    /// A new instance has passed its gate, or hasn't.
    pub(super) fn gate(&mut self, life: Life, passed: Result<(), Failure>) {
        let number = life.slot;
        let Some(roll) = self.roll.as_mut().filter(|r| r.at == Some(number)) else { return };
        let ticket = roll.ticket;
        match passed {
            Ok(()) => {
                roll.at = None;
                roll.done.push(number);
                let replaced = roll.replaces.take();
                self.out.push(Action::Progress(ticket, Step::Healthy(number)));
                if let Some(old) = replaced {
                    // Where the old one was given up meanwhile, another had taken its place.
                    let is_there = self.slots.get(&old).is_some_and(Slot::is_member);
                    let leaves = if is_there { Some(old) } else { self.highest() };
                    if let Some(slot) = self.slots.get_mut(&number) {
                        slot.spare = false;
                    }
                    if let Some(leaves) = leaves {
                        self.leave(leaves, Next::Remove);
                    }
                }
            }
            Err(why) if roll.to.is_none() => {
                self.roll = None;
                self.answer(ticket, Outcome::Failed(number, why));
            }
            // What it had before doesn't come up either: the others go back all the same.
            Err(_) if roll.failed.is_some() => roll.at = None,
            Err(why) => self.turn_round(life, why),
        }
    }

    /// A deploy's gate has failed: everything goes back.
    fn turn_round(&mut self, life: Life, why: Failure) {
        let (number, current) = (life.slot, self.current);
        let Some(roll) = &mut self.roll else { return };
        let (ticket, spare) = (roll.ticket, roll.replaces.take().is_some());
        roll.failed = Some((number, why));
        roll.todo = std::mem::take(&mut roll.done).into_iter().rev().collect();
        roll.at = (!spare).then_some(number);
        self.out.push(Action::Progress(ticket, Step::Fails(life, why)));
        if !spare {
            self.out.push(Action::Progress(ticket, Step::Back(number)));
        }
        let next = if spare { Next::Remove } else { Next::Again };
        if let Some(slot) = self.slots.get_mut(&number) {
            (slot.wants, slot.next) = (current, next);
        }
        if why == Failure::Silent {
            self.leave(number, next);
        }
    }

    /// Goes on with the roll as far as it can, and with those that wait.
    pub(super) fn go_on(&mut self) {
        while !self.stopping {
            let Some(roll) = &mut self.roll else {
                let Some(order) = self.waiting.pop_front() else { return };
                self.begin(order);
                continue;
            };
            if let Some(at) = roll.at {
                // A slot that was given up meanwhile is not waited for.
                if self.slots.get(&at).is_some_and(|s| s.next != Next::Remove) {
                    return;
                }
                roll.at = None;
            }
            let (ticket, to, back) = (roll.ticket, roll.to, roll.failed.is_some());
            match roll.todo.pop_front() {
                None => self.done(),
                Some(number) => {
                    let current = self.current;
                    let Some(slot) = self.slots.get_mut(&number).filter(|s| s.is_member()) else { continue };
                    if let Some(to) = to {
                        slot.wants = if back { current } else { to };
                    }
                    roll.at = Some(number);
                    let step = if back { Step::Back(number) } else { Step::Begins(number) };
                    self.out.push(Action::Progress(ticket, step));
                    self.leave(number, Next::Again);
                }
            }
        }
    }

    fn begin(&mut self, order: Order) {
        let Order { ticket, to, spare } = order;
        let members: VecDeque<u32> =
            self.slots.values().filter(|s| s.is_member()).map(|s| s.life.slot).collect();
        let mut roll =
            Roll { ticket, to, todo: members, at: None, replaces: None, done: Vec::new(), failed: None };
        if let (Some(to), true, [only]) = (to, spare, roll.todo.make_contiguous()) {
            let free = self.free();
            (roll.at, roll.replaces) = (Some(free), Some(*only));
            roll.todo.clear();
            self.out.push(Action::Progress(ticket, Step::Begins(free)));
            self.start(free, to);
            if let Some(slot) = self.slots.get_mut(&free) {
                slot.spare = true;
            }
        }
        self.roll = Some(roll);
    }

    /// The roll is at its end.
    fn done(&mut self) {
        let Some(roll) = self.roll.take() else { return };
        let many = u32::try_from(roll.done.len()).unwrap_or(u32::MAX);
        let outcome = match (roll.failed, roll.to) {
            (Some((slot, why)), _) => Outcome::Reverted(slot, why),
            (None, None) => Outcome::Rolled(many),
            (None, Some(release)) => {
                self.current = release;
                self.out.push(Action::Current(release));
                for _ in self.members()..self.rules().least {
                    self.one_more();
                }
                Outcome::Deployed(many)
            }
        };
        self.answer(roll.ticket, outcome);
    }
}
