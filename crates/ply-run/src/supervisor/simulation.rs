//! Years of an app in seconds: random programs, random operators, a clock that jumps. After each step the rules of
//! the supervisor are checked against a bookkeeping of its own. `PLY_SIM_STEPS` says how many steps (else a
//! million), `PLY_SIM_SEED` repeats a run.

use super::*;
use std::collections::BTreeSet;

/// A small generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn ms(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.below(most))
    }
}

/// How a program behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Good,
    CrashesAtOnce,
    CrashesLate,
    /// Never opens its port.
    Hangs,
    /// Answers as it likes.
    Lies,
    /// Takes no notice of the stop signal.
    Deaf,
    /// Does its work and ends well.
    Ends,
    /// Dies whenever it loses its last connection or is told anything.
    DiesOnReload,
}

const PROGRAMS: [Program; 8] = [
    Program::Good,
    Program::CrashesAtOnce,
    Program::CrashesLate,
    Program::Hangs,
    Program::Lies,
    Program::Deaf,
    Program::Ends,
    Program::DiesOnReload,
];

/// An instance that lives.
#[derive(Debug)]
struct Alive {
    release: Release,
    policy: Policy,
    program: Program,
    since: Duration,
    opens_at: Duration,
    answered: bool,
    misses: u32,
    joined: Option<Duration>,
    /// When its drain began.
    drains: Option<Duration>,
    drained: bool,
    signalled: Option<Duration>,
    killed: bool,
}

/// What will happen, by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Coming {
    End { life: Life, code: i32 },
    Started { life: Life },
    Answer { life: Life },
    Drained { life: Life },
}

struct World {
    random: Random,
    sup: Supervisor,
    /// What each release is: its rules, and a program that all its instances run.
    releases: BTreeMap<Release, (Policy, Option<Program>)>,
    /// What was deployed last.
    current: Release,
    /// The deploys that are asked for, by ticket; whether one goes back.
    deploys: BTreeMap<Ticket, Release>,
    back: bool,
    now: Duration,
    alive: BTreeMap<Life, Alive>,
    coming: BTreeSet<(Duration, u64, Coming)>,
    count: u64,
    open: BTreeMap<Ticket, Duration>,
    tickets: Ticket,
    /// The failures of a slot with a release since it was last forgiven, and its last pause.
    pauses: BTreeMap<u32, (Release, u32, Duration)>,
    stop: Option<Duration>,
    /// When a stop must have ended.
    ends_by: Option<Duration>,
    kill: bool,
    /// The end that is being told, and what had run.
    ending: Option<(Life, i32, Release)>,
    wanted: u32,
    /// What the run began with, and who asks for that.
    own: u32,
    unpins: BTreeSet<Ticket>,
    starts: u64,
}

fn random_policy(random: &mut Random) -> Policy {
    let grace = Duration::from_secs(1 + random.below(40));
    let gate = match random.below(3) {
        0 => Gate::Runs,
        1 => Gate::Once { grace },
        _ => Gate::Always { grace },
    };
    let restart = match random.below(5) {
        0 => RestartPolicy::Never,
        1 => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    };
    Policy {
        restart,
        backoff: Duration::from_millis(1 + random.below(5000)),
        max_backoff: Duration::from_secs(5 + random.below(60)),
        gate,
        stop_timeout: random.ms(20_000),
        drain: random.ms(15_000),
        least: 1 + u32::from(random.one_in(8)),
        most: 6,
    }
}

impl World {
    fn new(mut random: Random) -> Self {
        let policy = random_policy(&mut random);
        let wanted = policy.least + u32::try_from(random.below(3)).unwrap();
        let mut world = Self {
            sup: Supervisor::new(policy),
            random,
            releases: BTreeMap::from([(Release::FIRST, (policy, None))]),
            current: Release::FIRST,
            deploys: BTreeMap::new(),
            back: false,
            now: Duration::ZERO,
            alive: BTreeMap::new(),
            coming: BTreeSet::new(),
            count: 0,
            open: BTreeMap::new(),
            tickets: 0,
            pauses: BTreeMap::new(),
            stop: None,
            ends_by: None,
            kill: false,
            ending: None,
            wanted,
            own: wanted,
            unpins: BTreeSet::new(),
            starts: 0,
        };
        world.tell(Event::Begin(wanted));
        world
    }

    fn later(&mut self, after: Duration, what: Coming) {
        self.count += 1;
        self.coming.insert((self.now + after, self.count, what));
    }

    /// One event into the supervisor, and all that it asks for; whether that is anything.
    fn tell(&mut self, event: Event) -> bool {
        let actions = self.sup.step(self.now, event);
        let mut ends = 0;
        for action in &actions {
            self.act(action, &mut ends);
        }
        if let Some((life, ..)) = self.ending.take() {
            assert_eq!(ends, 1, "{life:?} has ended, and what follows is said once: {actions:?}");
        } else {
            assert_eq!(ends, 0, "nothing has ended: {actions:?}");
        }
        self.check();
        !actions.is_empty()
    }

    fn act(&mut self, action: &Action, ends: &mut u32) {
        match *action {
            Action::Start(life, release) => self.start(life, release),
            Action::Ask(life) => {
                let alive = &self.alive[&life];
                assert!(alive.policy.gate != Gate::Runs, "there is nothing to ask");
                assert!(alive.signalled.is_none() && alive.drains.is_none(), "it leaves, and is asked");
                // A question has a time limit of its own.
                let after = self.random.ms(1000);
                self.later(after, Coming::Answer { life });
            }
            Action::Join(life) => {
                let now = self.now;
                let alive = self.alive.get_mut(&life).expect("a dead instance joins");
                let gate = alive.policy.gate;
                assert!(alive.joined.is_none() && alive.signalled.is_none() && alive.drains.is_none());
                match gate {
                    Gate::Runs => assert!(now >= alive.since + SETTLE),
                    _ => assert!(alive.answered, "it joins before it has answered"),
                }
                alive.joined = Some(now);
                alive.misses = 0;
            }
            Action::Drain(life) => {
                let now = self.now;
                let others = self.alive.iter().any(|(l, a)| *l != life && a.joined.is_some());
                assert!(others && self.stop.is_none(), "it drains, and nobody else serves");
                let alive = self.alive.get_mut(&life).unwrap();
                assert!(alive.joined.take().is_some());
                alive.drains = Some(now);
                let dies = alive.program == Program::DiesOnReload;
                if self.random.one_in(3) {
                    self.later(Duration::ZERO, Coming::Drained { life });
                } else if self.random.one_in(2) {
                    let after = self.random.ms(20_000);
                    self.later(after, Coming::Drained { life });
                }
                if dies {
                    let after = self.random.ms(500);
                    self.later(after, Coming::End { life, code: 1 });
                }
            }
            Action::Unhealthy(life) => {
                let now = self.now;
                let alive = self.alive.get_mut(&life).unwrap();
                let gate = alive.policy.gate;
                if alive.joined.take().is_some() {
                    assert!(alive.misses >= u32::from(MISSES), "it leaves before its third miss");
                } else {
                    let (Gate::Once { grace } | Gate::Always { grace }) = gate else { panic!("{gate:?}") };
                    assert!(now >= alive.since + grace, "its gate failed before its grace was over");
                }
            }
            Action::Signal(life) => self.signal(life),
            Action::Kill(life) => {
                let (now, kill) = (self.now, self.kill);
                let alive = self.alive.get_mut(&life).unwrap();
                let patience = alive.policy.stop_timeout;
                let signalled = alive.signalled.expect("it is killed before it was asked to stop");
                assert!(kill || now >= signalled + patience, "it is killed before its time");
                assert!(!alive.killed || kill);
                alive.killed = true;
                let after = self.random.ms(20);
                self.later(after, Coming::End { life, code: 137 });
            }
            Action::Wait(life, pause) => {
                *ends += 1;
                self.waits(life, pause);
            }
            Action::Over(life) => {
                *ends += 1;
                let (ended, code, release) = self.ending.expect("it is over, and has not ended");
                assert_eq!(ended, life);
                let by_policy = match self.releases[&release].0.restart {
                    RestartPolicy::Never => true,
                    RestartPolicy::OnFailure => code == 0,
                    RestartPolicy::Always => false,
                };
                let left = life.slot > 0 && !self.is_member(life.slot);
                assert!(by_policy || self.stop.is_some() || left, "outside its policy: {life:?} {code}");
            }
            Action::Forget(slot) => {
                assert!(self.alive.keys().all(|l| l.slot != slot), "a living slot is forgotten");
                self.pauses.remove(&slot);
            }
            Action::Current(release) => {
                assert!(self.deploys.values().any(|r| *r == release) && !self.back);
                self.current = release;
                self.wanted = self.wanted.max(self.releases[&release].0.least);
            }
            Action::Progress(ticket, step) => {
                assert!(self.open.contains_key(&ticket));
                if let Step::Fails(life, _) = step {
                    assert!(self.deploys.contains_key(&ticket) && !self.back);
                    assert!(self.alive.get(&life).is_none_or(|a| a.joined.is_none()));
                    self.back = true;
                }
            }
            Action::Answer(ticket, outcome) => {
                assert!(self.open.remove(&ticket).is_some(), "{ticket} is answered twice");
                let deployed = self.deploys.remove(&ticket);
                match outcome {
                    Outcome::Scaled { from, to } => {
                        assert_eq!(from, self.wanted);
                        if self.unpins.remove(&ticket) {
                            assert_eq!(to, self.own.max(self.releases[&self.current].0.least));
                        }
                        self.wanted = to;
                    }
                    Outcome::Deployed(_) => assert_eq!(deployed, Some(self.current)),
                    Outcome::Reverted(..) => assert!(deployed.is_some() && std::mem::take(&mut self.back)),
                    Outcome::Stopping => self.back = false,
                    _ => assert_eq!(deployed, None),
                }
                // (Unless the next one has begun in the same step.)
                if let Outcome::Deployed(_) | Outcome::Reverted(..) = outcome
                    && self.sup.roll.is_none()
                {
                    // Whatever came between: all of it is what was deployed last.
                    for slot in self.sup.slots.values().filter(|s| s.is_member()) {
                        assert_eq!(slot.wants, self.current, "{outcome:?} {slot:?}");
                        assert!(slot.release == self.current || slot.next == Next::Again, "{slot:?}");
                    }
                }
            }
        }
    }

    fn is_member(&self, slot: u32) -> bool {
        self.sup.slots.get(&slot).is_some_and(Slot::is_member)
    }

    fn start(&mut self, life: Life, release: Release) {
        let deployed = self.deploys.values().any(|r| *r == release);
        assert!(release == self.current || deployed, "nobody wants {release:?}");
        let (policy, all) = self.releases[&release];
        if self.pauses.get(&life.slot).is_some_and(|(of, ..)| *of != release) {
            self.pauses.remove(&life.slot);
        }
        assert!(self.stop.is_none(), "started after a stop");
        assert!(self.alive.keys().all(|l| l.slot != life.slot), "two instances live in slot {}", life.slot);
        self.starts += 1;
        assert_eq!(life.run, self.starts);
        let launched = self.random.ms(300);
        self.later(launched, Coming::Started { life });
        let program = all.unwrap_or(PROGRAMS[usize::try_from(self.random.below(8)).unwrap()]);
        let opens_at = self.now + self.random.ms(20_000);
        if self.random.one_in(50) {
            // It can't be launched at all.
            self.later(Duration::ZERO, Coming::End { life, code: 125 });
        }
        match program {
            Program::CrashesAtOnce => {
                let after = self.random.ms(50);
                self.later(after, Coming::End { life, code: 1 });
            }
            Program::CrashesLate => {
                let after = self.random.ms(200_000);
                self.later(after, Coming::End { life, code: 139 });
            }
            Program::Ends => {
                let after = self.random.ms(100_000);
                self.later(after, Coming::End { life, code: 0 });
            }
            _ => {}
        }
        let alive = Alive {
            release,
            policy,
            program,
            since: self.now,
            opens_at,
            answered: false,
            misses: 0,
            joined: None,
            drains: None,
            drained: false,
            signalled: None,
            killed: false,
        };
        self.alive.insert(life, alive);
    }

    fn signal(&mut self, life: Life) {
        let (now, stop) = (self.now, self.stop);
        let others = self.alive.iter().any(|(l, a)| *l != life && a.joined.is_some());
        let alive = self.alive.get_mut(&life).expect("a dead instance is signalled");
        assert!(alive.signalled.is_none(), "the stop signal comes twice");
        if stop.is_none() {
            match alive.drains {
                Some(since) => {
                    assert!(alive.drained || now >= since + alive.policy.drain, "signalled while it drains")
                }
                None => {
                    assert!(alive.joined.is_none() || !others, "signalled in the pool while others serve")
                }
            }
        }
        alive.joined = None;
        alive.signalled = Some(now);
        if alive.program != Program::Deaf {
            let code = if self.random.one_in(2) { 0 } else { 143 };
            let after = self.random.ms(15_000);
            self.later(after, Coming::End { life, code });
        }
    }

    fn waits(&mut self, life: Life, pause: Duration) {
        let (ended, code, release) = self.ending.expect("it waits, and has not ended");
        assert_eq!(ended, life);
        assert!(self.stop.is_none());
        if pause.is_zero() {
            // An operator's doing: nothing of the policy.
            return;
        }
        let policy = self.releases[&release].0;
        let allowed = match policy.restart {
            RestartPolicy::Never => false,
            RestartPolicy::OnFailure => code != 0,
            RestartPolicy::Always => true,
        };
        assert!(allowed, "restarted outside its policy: {code}");
        let (_, failures, last) =
            self.pauses.get(&life.slot).copied().unwrap_or((release, 0, Duration::ZERO));
        let plain = (policy.backoff * 2_u32.saturating_pow(failures.min(20))).min(policy.max_backoff);
        assert!(pause >= last, "backoff shrinks: {last:?}, then {pause:?}");
        assert!(pause >= plain && pause <= plain + plain / 10, "{pause:?} after {failures} failures");
        self.pauses.insert(life.slot, (release, failures + 1, pause));
    }

    /// What holds after each step, whatever happened.
    fn check(&self) {
        for (life, alive) in &self.alive {
            let slot = self.sup.slots.get(&life.slot).unwrap_or_else(|| panic!("{life:?} is forgotten"));
            assert_eq!(slot.life, *life);
            assert_eq!(slot.joined(), alive.joined.is_some(), "{life:?} {slot:?}");
            assert_eq!(slot.release, alive.release);
            if matches!(alive.policy.gate, Gate::Always { .. }) && alive.joined.is_some() {
                assert!(alive.misses < u32::from(MISSES), "it missed three and is in the pool");
            }
        }
        for slot in self.sup.slots.values().filter(|s| s.lives()) {
            assert!(self.alive.contains_key(&slot.life), "a dead instance counts as living: {slot:?}");
        }
        if self.stop.is_none() {
            assert_eq!(self.sup.members(), self.wanted);
            assert_eq!(
                self.sup.current(),
                self.current,
                "what a reboot would start is what was deployed last"
            );
            if self.deploys.is_empty() {
                for slot in self.sup.slots.values().filter(|s| s.is_member()) {
                    assert_eq!(slot.wants, self.current, "{slot:?}");
                }
                assert!(!self.sup.slots.values().any(|s| s.spare && s.next != Next::Remove));
            }
        }
        // A spare one alone stands for a release that nobody has chosen yet; the old one serves meanwhile.
        let uncounted = self.sup.slots.values().find(|s| s.spare && s.joined());
        assert!(uncounted.is_none(), "a spare instance has joined and doesn't count: {uncounted:?}");
        assert!(self.sup.releases.len() <= 1 + self.deploys.len() + self.sup.slots.len());
        if let Some(wake) = self.sup.wake() {
            assert!(wake >= self.now, "it wants to be called for what is past: {wake:?} {:?}", self.now);
        }
        if self.sup.is_over() {
            assert!(self.open.is_empty(), "lost commands: {:?}", self.open);
        }
    }

    /// Whatever is next. False once the run is over.
    fn turn(&mut self) -> bool {
        if self.sup.is_over() {
            return false;
        }
        assert!(self.ends_by.is_none_or(|t| self.now <= t), "a stop doesn't end");
        if self.random.one_in(40) {
            self.operate();
            return true;
        }
        let wake = self.sup.wake();
        let next = self.coming.first().copied();
        if self.random.one_in(500) {
            self.jump();
        }
        match (next, wake) {
            (Some(first @ (at, _, coming)), wake) if wake.is_none_or(|w| at <= w) => {
                self.coming.remove(&first);
                self.now = self.now.max(at);
                self.come(coming);
            }
            (_, Some(wake)) => {
                self.now = self.now.max(wake);
                assert!(self.tell(Event::Tick), "it wants to be called, and has nothing to do");
            }
            // Only good programs, and nothing to ask: they run until somebody says something.
            (_, None) => self.operate(),
        }
        true
    }

    /// The clock jumps, forwards or back.
    fn jump(&mut self) {
        let by = self.random.ms(3_600_000);
        if self.random.one_in(3) {
            // Behind what the supervisor was last told, which may be less than what time it is.
            let early = self.sup.step(self.sup.now.saturating_sub(by), Event::Tick);
            assert_eq!(early, [], "time that is past brings nothing");
        } else {
            self.now += by;
            self.ends_by = self.ends_by.map(|t| t + by);
        }
    }

    fn come(&mut self, coming: Coming) {
        match coming {
            Coming::End { life, code } => {
                let Some(alive) = self.alive.remove(&life) else { return };
                let release = alive.release;
                if alive.joined.is_some_and(|since| self.now >= since + FORGIVEN_AFTER) {
                    self.pauses.remove(&life.slot);
                }
                self.ending = Some((life, code, release));
                let spread = u8::try_from(self.random.below(256)).unwrap();
                self.tell(Event::Ended { life, code, spread });
            }
            Coming::Started { life } => {
                let now = self.now;
                if let Some(alive) = self.alive.get_mut(&life).filter(|a| a.joined.is_none()) {
                    alive.since = now;
                }
                self.tell(Event::Started(life));
            }
            Coming::Answer { life } => {
                let lie = self.random.one_in(2);
                let now = self.now;
                let yes = self.alive.get_mut(&life).is_some_and(|alive| {
                    let yes = match alive.program {
                        Program::Hangs => false,
                        Program::Lies => lie,
                        _ => now >= alive.opens_at,
                    };
                    alive.answered |= yes;
                    alive.misses = if yes { 0 } else { alive.misses + 1 };
                    yes
                });
                self.tell(Event::Answer { life, yes });
            }
            Coming::Drained { life } => {
                if let Some(alive) = self.alive.get_mut(&life) {
                    alive.drained = true;
                }
                self.tell(Event::Drained(life));
            }
        }
    }

    /// Another release: every third is all of one kind, which may be a broken one.
    fn deploy(&mut self, ticket: Ticket) -> Event {
        let release = Release(u32::try_from(self.releases.len()).unwrap() + 1);
        let policy = random_policy(&mut self.random);
        let program = PROGRAMS[usize::try_from(self.random.below(8)).unwrap()];
        let all = self.random.one_in(3).then_some(program);
        self.releases.insert(release, (policy, all));
        if self.stop.is_none() {
            self.deploys.insert(ticket, release);
        }
        Event::Deploy { ticket, release, policy, spare: self.random.one_in(2) }
    }

    /// Somebody gives a command.
    fn operate(&mut self) {
        self.tickets += 1;
        let ticket = self.tickets;
        let event = match self.random.below(200) {
            0 => Event::Stop,
            1 => Event::Kill,
            2..40 => Event::Restart(ticket),
            40..90 => self.deploy(ticket),
            90..100 => {
                self.unpins.insert(ticket);
                Event::Unpin(ticket)
            }
            _ => Event::Scale { ticket, to: u32::try_from(self.random.below(8)).unwrap() },
        };
        match event {
            Event::Stop | Event::Kill => {
                self.stop.get_or_insert(self.now);
                let patience = self.alive.values().map(|a| a.policy.stop_timeout).max().unwrap_or_default();
                self.ends_by.get_or_insert(self.now + patience + Duration::from_secs(1));
                self.kill |= event == Event::Kill;
            }
            _ => {
                self.open.insert(ticket, self.now);
            }
        }
        self.tell(event);
    }
}

#[test]
fn a_random_life_keeps_every_rule() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let steps = number("PLY_SIM_STEPS").unwrap_or(1_000_000);
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("PLY_SIM_SEED").unwrap_or(clock.as_nanos() as u64) | 1;
    println!("PLY_SIM_SEED={seed} PLY_SIM_STEPS={steps}");
    let mut random = Random(seed);
    let (mut done, mut runs) = (0, 0);
    while done < steps {
        let mut world = World::new(Random(random.below(u64::MAX) | 1));
        runs += 1;
        while done < steps && world.turn() {
            done += 1;
        }
    }
    println!("{done} steps in {runs} runs");
}
