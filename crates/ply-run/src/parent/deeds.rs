//! What the supervisor decides, done: launches, signals, questions to ports, answers to commands, and a word to the
//! user where it matters.

use super::{Event, Ready, when_readable};
use crate::control::{Ask, Command, Control, ControlResult};
use crate::pool::Pool;
use crate::state::{InstanceState, Status, now_ms, this_process};
use crate::streams::{Ends, Streams};
use crate::supervisor::{self, Action, Gate, Life, Outcome, Policy, Step, Supervisor, Ticket};
use crate::{RunError, journal};
use ply_manifest::Span;
use ply_sandbox::{Instance, LaunchContext, ProcessId};
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::spawn_local;

/// The run parent's hands.
pub(super) struct Deeds {
    pub(super) ready: Ready,
    pub(super) sup: Supervisor,
    pub(super) pool: Rc<Pool>,
    pub(super) streams: Streams,
    pub(super) control: Rc<Control>,
    send: UnboundedSender<Event>,
    began: Instant,
    /// Commands that wait for their answer.
    open: BTreeMap<Ticket, (Command, ControlResult)>,
    tickets: Ticket,
}

impl Deeds {
    pub(super) fn new(ready: Ready, pool: Rc<Pool>, streams: Streams, send: UnboundedSender<Event>) -> Self {
        let plan = &ready.plan;
        let gate = match plan.health {
            None => Gate::Runs,
            Some(health) => {
                let grace = Duration::from_millis(health.grace_ms);
                if health.always { Gate::Always { grace } } else { Gate::Once { grace } }
            }
        };
        let sup = Supervisor::new(Policy {
            restart: plan.restart.policy,
            backoff: plan.restart.backoff.0,
            max_backoff: plan.restart.max_backoff.0,
            gate,
            stop_timeout: plan.stop_timeout,
            drain: plan.drain,
            least: plan.least,
            most: if plan.terminal { 1 } else { crate::options::MAX_SCALE },
        });
        let control = Rc::clone(&ready.control);
        let (began, open) = (Instant::now(), BTreeMap::new());
        Self { ready, sup, pool, streams, control, send, began, open, tickets: 0 }
    }

    /// When the supervisor wants to be called.
    pub(super) fn wake(&self) -> Option<Instant> {
        self.sup.wake().map(|at| self.began + at)
    }

    /// Tells the supervisor, and does what it says. Only a launch of the very first instances can fail it.
    pub(super) fn tell(&mut self, event: supervisor::Event) -> Result<(), RunError> {
        let first = matches!(event, supervisor::Event::Begin(_));
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.sup.step(self.began.elapsed(), event) {
                match action {
                    Action::Start(life) => {
                        if let Err(error) = self.start(life) {
                            if first {
                                return Err(error);
                            }
                            let name = &self.ready.plan.name;
                            (self.ready.say)(&format!("{name}.{} can't be started: {error}", life.slot));
                            let code = i32::from(error.exit_code());
                            events.push_back(supervisor::Event::Ended { life, code, spread: spread() });
                        }
                    }
                    Action::Drain(life) => {
                        if self.pool.drain(life) {
                            events.push_back(supervisor::Event::Drained(life));
                        }
                    }
                    other => self.act(other),
                }
            }
        }
        Ok(())
    }

    fn act(&mut self, action: Action) {
        let pool = &self.pool;
        let name = &self.ready.plan.name;
        let say = |text: String| (self.ready.say)(&text);
        match action {
            Action::Start(_) | Action::Drain(_) => {}
            Action::Ask(life) => self.ask(life),
            Action::Join(life) => pool.join(life),
            Action::Unhealthy(life) => {
                if let Some(health) = self.ready.plan.health.filter(|h| h.always) {
                    say(format!("{name}.{} is unhealthy: port {} does not answer", life.slot, health.port));
                }
                pool.unhealthy(life);
            }
            Action::Signal(life) => pool.stop(life, self.ready.plan.stop_signal.number()),
            Action::Kill(life) => pool.signal(life, libc::SIGKILL),
            Action::Wait(life, pause) => {
                if let Some(code) = pool.follows(life, Some(pause))
                    && !pause.is_zero()
                {
                    let pause = Span(Duration::from_millis(pause.as_millis() as u64));
                    say(format!(
                        "{name}.{} ended with exit code {code}, started again in {pause}",
                        life.slot
                    ));
                }
            }
            Action::Over(life) => {
                pool.follows(life, None);
            }
            Action::Forget(slot) => {
                pool.forget(slot);
                self.ready.volumes.let_go(slot);
            }
            Action::Progress(ticket, step) => {
                let text = match step {
                    Step::Begins(slot) => format!("{name}.{slot} is started anew"),
                    Step::Healthy(slot) => format!("{name}.{slot} is healthy"),
                };
                if let Some((command, result)) = self.open.get_mut(&ticket) {
                    result.steps.push(text);
                    self.control.answer(command, result);
                }
            }
            Action::Answer(ticket, outcome) => {
                let (ok, message) = self.words(outcome);
                if let Some((command, mut result)) = self.open.remove(&ticket) {
                    (result.done, result.ok, result.message) = (true, ok, message);
                    self.note(&command, &result);
                    self.control.answer(&command, &result);
                }
            }
        }
    }

    /// What became of a command, in one sentence.
    fn words(&self, outcome: Outcome) -> (bool, String) {
        let name = &self.ready.plan.name;
        let instances = |n: u32| if n == 1 { "1 instance".to_owned() } else { format!("{n} instances") };
        match outcome {
            Outcome::Rolled(n) => (true, format!("{name} runs anew: {}", instances(n))),
            Outcome::Scaled { from, to } if from == to => {
                (true, format!("{name} has {} already", instances(to)))
            }
            Outcome::Scaled { from, to } => (true, format!("{name} goes from {from} to {}", instances(to))),
            Outcome::TooFew(least) => {
                (false, format!("the least that {name} may have is {}", instances(least)))
            }
            Outcome::TooMany(most) => {
                (false, format!("the most that {name} may have is {}", instances(most)))
            }
            Outcome::Died { slot, code } => {
                (false, format!("{name}.{slot} ended with exit code {code} before it was healthy"))
            }
            Outcome::Silent { slot } => {
                let port = self.ready.plan.health.map_or(0, |h| h.port);
                (false, format!("{name}.{slot} did not answer on port {port} in its time"))
            }
            Outcome::Stopping => (false, format!("{name} stops")),
        }
    }

    /// A command and what became of it, for the journal.
    fn note(&self, command: &Command, result: &ControlResult) {
        let verb = match &command.ask {
            Ask::Stop => "stop",
            Ask::Scale(_) => "scale",
            Ask::Restart => "restart",
            Ask::Wrong(_) => "?",
        };
        let detail = json!({"verb": verb, "ok": result.ok, "message": result.message});
        journal::event(&self.ready.dirs, self.ready.plan.name.as_str(), None, "command", detail);
    }

    /// An instance may have ended.
    pub(super) fn ended(&mut self, life: Life) -> Result<(), RunError> {
        match self.pool.reap(life) {
            Some(code) => self.tell(supervisor::Event::Ended { life, code, spread: spread() }),
            None => Ok(()),
        }
    }

    /// Takes what is in the control folder.
    pub(super) fn commands(&mut self) -> Result<(), RunError> {
        for command in self.control.take() {
            self.tickets += 1;
            let ticket = self.tickets;
            let event = match &command.ask {
                Ask::Stop => {
                    let result = ControlResult::now(true, "stopping");
                    self.note(&command, &result);
                    self.control.answer(&command, &result);
                    supervisor::Event::Stop
                }
                Ask::Wrong(why) => {
                    let result = ControlResult::now(false, why);
                    self.note(&command, &result);
                    self.control.answer(&command, &result);
                    continue;
                }
                Ask::Scale(to) => supervisor::Event::Scale { ticket, to: *to },
                Ask::Restart => supervisor::Event::Restart(ticket),
            };
            let taken = ControlResult { done: false, ..ControlResult::now(true, "taken") };
            if event != supervisor::Event::Stop {
                self.control.answer(&command, &taken);
                self.open.insert(ticket, (command, taken));
            }
            self.tell(event)?;
        }
        Ok(())
    }

    /// Asks the port of an instance whether it takes a connection.
    fn ask(&self, life: Life) {
        let (pool, send) = (Rc::clone(&self.pool), self.send.clone());
        let Some(health) = self.ready.plan.health else { return };
        spawn_local(async move {
            let yes = crate::relay::answers(&*pool, life.slot, health.port).await;
            let _ = send.send(Event::Answer(life, yes));
        });
    }

    /// Starts one slot.
    fn start(&mut self, life: Life) -> Result<(), RunError> {
        let (ready, slot) = (&mut self.ready, life.slot);
        let plan = &ready.plan;
        let me = this_process();
        let volumes = ready.volumes.of(slot, plan, &ready.ids)?;
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
            restarts: self.pool.starts(slot),
            health: None,
            address: None,
            publish: plan
                .publish
                .iter()
                .map(|p| format!("{}:{}:{}", p.address, p.port, p.instance_port))
                .collect(),
            volumes: volumes.clone(),
            target: None,
        };
        // Written before anything is made, so that whatever a kill leaves has a name.
        crate::state::save(&ready.dirs, &state)?;
        let launched = launch(ready, slot, volumes, &self.streams, me);
        let (mut instance, ends) = match launched {
            Ok(launched) => launched,
            Err(error) => {
                self.pool.add_failed(life, state, i32::from(error.exit_code()), &error.to_string());
                return Err(error);
            }
        };
        let failed =
            |why: std::io::Error| RunError::plain(format!("{}.{slot} can't be watched: {why}", plan.name));
        let pidfd = rustix::io::fcntl_dupfd_cloexec(instance.pidfd(), 3).map_err(|e| failed(e.into()))?;
        let tell = self.send.clone();
        // Once: the pidfd of a process that was waited for stays readable for ever.
        let ended = move || {
            let _ = tell.send(Event::Ended(life));
            false
        };
        when_readable(pidfd, ended).map_err(failed)?;
        let ring = self.streams.ring(&ready.dirs, plan.name.as_str(), slot, &self.pool);
        let terminal = instance.take_terminal();
        self.pool.add(life, instance, state);
        self.streams.connect(plan, slot, ring, ends, terminal, &self.send).map_err(failed)
    }
}

fn launch(
    ready: &Ready,
    slot: u32,
    volumes: Vec<std::path::PathBuf>,
    streams: &Streams,
    me: ProcessId,
) -> Result<(Instance, Ends), RunError> {
    let plan = &ready.plan;
    let placement = crate::plan::Placement {
        slot,
        id: format!("{}.{slot}-{}-{}", plan.name, me.pid, me.start_time),
        ids: ready.ids.clone(),
        volumes,
    };
    let context = LaunchContext {
        run_dir: &ready.dirs.run,
        data_dir: &ready.dirs.data,
        host: &ready.host,
        cgroup_parent: &ready.cgroup_parent,
    };
    let (stdio, ends) =
        streams.stdio(plan, slot).map_err(|why| RunError::plain(format!("no pipe can be made: {why}")))?;
    let instance = ply_sandbox::launch(&plan.spec(&placement), &context, stdio);
    Ok((instance.map_err(RunError::from_launch)?, ends))
}

/// The random part of a pause.
fn spread() -> u8 {
    RandomState::new().hash_one(0_u8) as u8
}
