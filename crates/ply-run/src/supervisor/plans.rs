//! The plans over the slots: how many there are, a roll through all of them, the stop.

use super::{Action, Next, Outcome, Phase, Step, Supervisor, Ticket};
use std::collections::VecDeque;

/// Every slot anew, one after the other.
#[derive(Debug)]
pub(super) struct Roll {
    ticket: Ticket,
    /// The slots to come.
    todo: VecDeque<u32>,
    /// The one whose new instance is awaited.
    at: Option<u32>,
    done: u32,
}

impl Supervisor {
    /// Changes the number of slots: new ones get the lowest free numbers, the highest leave first.
    pub(super) fn scale(&mut self, ticket: Ticket, to: u32) {
        if self.stopping {
            return self.answer(ticket, Outcome::Stopping);
        }
        if to < self.policy.least {
            return self.answer(ticket, Outcome::TooFew(self.policy.least));
        }
        if to > self.policy.most {
            return self.answer(ticket, Outcome::TooMany(self.policy.most));
        }
        let from = self.members();
        for _ in from..to {
            let leaving = self.slots.values_mut().find(|s| s.next == Next::Remove);
            match leaving {
                // One that is on its way out comes back as a new instance.
                Some(slot) => slot.next = Next::Again,
                None => {
                    let free = (1..).find(|n| !self.slots.contains_key(n)).unwrap_or(u32::MAX);
                    self.start(free);
                }
            }
        }
        for _ in to..from {
            let highest = self.slots.values().rev().find(|s| s.next != Next::Remove).map(|s| s.life.slot);
            if let Some(number) = highest {
                self.leave(number, Next::Remove);
            }
        }
        self.answer(ticket, Outcome::Scaled { from, to });
    }

    /// Lets an instance go: out of the pool, and where others serve its connections may end before it is signalled.
    fn leave(&mut self, number: u32, next: Next) {
        let others = self.slots.values().any(|s| s.life.slot != number && s.joined());
        let until = self.now + self.policy.drain;
        let Some(slot) = self.slots.get_mut(&number) else { return };
        match slot.phase {
            Phase::Backoff { .. } | Phase::Exited => {
                if next == Next::Remove {
                    self.slots.remove(&number);
                    self.out.push(Action::Forget(number));
                } else {
                    self.start(number);
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
        let waiting = self.waiting.drain(..).collect::<Vec<_>>();
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

    /// A new instance has passed its gate, or hasn't.
    pub(super) fn gate(&mut self, number: u32, passed: Result<(), Outcome>) {
        let Some(roll) = self.roll.as_mut().filter(|r| r.at == Some(number)) else { return };
        let ticket = roll.ticket;
        match passed {
            Ok(()) => {
                roll.at = None;
                roll.done += 1;
                self.out.push(Action::Progress(ticket, Step::Healthy(number)));
            }
            Err(why) => {
                self.roll = None;
                self.answer(ticket, why);
            }
        }
    }

    /// Goes on with the roll as far as it can, and with those that wait.
    pub(super) fn go_on(&mut self) {
        while !self.stopping {
            let Some(roll) = &mut self.roll else {
                let Some(ticket) = self.waiting.pop_front() else { return };
                let todo = self.slots.values().filter(|s| s.next != Next::Remove).map(|s| s.life.slot);
                self.roll = Some(Roll { ticket, todo: todo.collect(), at: None, done: 0 });
                continue;
            };
            if let Some(at) = roll.at {
                // A slot that was given up meanwhile is not waited for.
                if self.slots.get(&at).is_some_and(|s| s.next != Next::Remove) {
                    return;
                }
                roll.at = None;
            }
            let ticket = roll.ticket;
            match roll.todo.pop_front() {
                None => {
                    let done = roll.done;
                    self.roll = None;
                    self.answer(ticket, Outcome::Rolled(done));
                }
                Some(number) if self.slots.get(&number).is_some_and(|s| s.next != Next::Remove) => {
                    roll.at = Some(number);
                    self.out.push(Action::Progress(ticket, Step::Begins(number)));
                    self.leave(number, Next::Again);
                }
                Some(_) => {}
            }
        }
    }
}
