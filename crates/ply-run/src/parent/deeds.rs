//! What the supervisor decides, done: launches, signals, questions to ports, answers to commands, and a word to the
//! user where it matters.

use super::{Event, Ready, when_readable};
use crate::control::{Ask, Command, Control, ControlResult};
use crate::decide::{Asked, Loaded};
use crate::pool::{Doors, Pool};
use crate::prepare::{self, Preparing};
use crate::state::{InstanceState, Status, now_ms, this_process};
use crate::streams::{Ends, Streams};
use crate::supervisor::{
    self, Action, Failure, Gate, Life, Outcome, Policy, Release, Step, Supervisor, Ticket,
};
use crate::target::Found;
use crate::{Plan, RunError, installed, journal, logs};
use ply_image::{Dirs, Store};
use ply_manifest::{Digest, RunName, Span};
use ply_sandbox::{Host, Ids, Instance, LaunchContext};
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::spawn_local;

/// How many of its last lines are told of an instance that a command failed at: a stack trace stands below its error.
const LINES: usize = 15;
/// What an instance wrote last may come this long after its end.
const LATE: Duration = Duration::from_millis(100);

/// The run parent's hands.
pub(super) struct Deeds {
    pub(super) name: RunName,
    pub(super) sup: Supervisor,
    pub(super) pool: Rc<Pool>,
    pub(super) streams: Streams,
    pub(super) control: Rc<Control>,
    pub(super) dirs: Dirs,
    /// Locks and leases.
    pub(super) held: Box<dyn std::any::Any>,
    asked: Asked,
    host: Host,
    ids: Ids,
    cgroup_parent: PathBuf,
    say: Rc<dyn Fn(&str)>,
    /// What slots run from or may be started from.
    loaded: BTreeMap<Release, Loaded>,
    /// How many releases there were.
    releases: u32,
    /// What each slot's present life was started from.
    lives: BTreeMap<u32, Release>,
    send: UnboundedSender<Event>,
    began: Instant,
    /// Commands that wait for their answer.
    open: BTreeMap<Ticket, Open>,
    tickets: Ticket,
    /// Deploys whose image is not ready yet, in their order; the first one is on its way.
    deploys: VecDeque<Deploy>,
}

/// A command that waits for its answer.
struct Open {
    command: Command,
    result: ControlResult,
    /// The instance that it failed at: its slot, its start, its end.
    failed: Option<(u32, SystemTime, SystemTime)>,
    /// What couldn't be written down.
    unwritten: Option<String>,
}

/// A deploy that waits for its image.
struct Deploy {
    ticket: Ticket,
    image: PathBuf,
    timeout: Option<Span>,
    preparing: Option<Preparing>,
}

impl Deeds {
    pub(super) fn new(ready: Ready, pool: Rc<Pool>, streams: Streams, send: UnboundedSender<Event>) -> Self {
        let Ready { name, first, asked, host, ids, dirs, cgroup_parent, control, say, held, .. } = ready;
        Self {
            name,
            sup: Supervisor::new(policy(&first.plan, None)),
            pool,
            streams,
            control,
            dirs,
            held,
            asked,
            host,
            ids,
            cgroup_parent,
            say,
            loaded: BTreeMap::from([(Release::FIRST, first)]),
            releases: Release::FIRST.0,
            lives: BTreeMap::new(),
            send,
            began: Instant::now(),
            open: BTreeMap::new(),
            tickets: 0,
            deploys: VecDeque::new(),
        }
    }

    /// When the supervisor wants to be called.
    pub(super) fn wake(&self) -> Option<Instant> {
        self.sup.wake().map(|at| self.began + at)
    }

    /// What new slots are started from.
    pub(super) fn current(&self) -> &Loaded {
        &self.loaded[&self.sup.current()]
    }

    /// The run in one line.
    pub(super) fn status(&self) -> String {
        let (healthy, members) = (self.sup.serving(), self.sup.members());
        format!("{}: {healthy} of {members} healthy", self.current().plan.image)
    }

    /// How a slot's present life runs.
    fn plan_of(&self, slot: u32) -> &Plan {
        let release = self.lives.get(&slot).copied().unwrap_or_else(|| self.sup.current());
        self.loaded.get(&release).map_or(&self.current().plan, |l| &l.plan)
    }

    /// Tells the supervisor, and does what it says. Only a launch of the very first instances can fail it.
    pub(super) fn tell(&mut self, event: supervisor::Event) -> Result<(), RunError> {
        let first = matches!(event, supervisor::Event::Begin(_));
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.sup.step(self.began.elapsed(), event) {
                match action {
                    Action::Start(life, release) => match self.start(life, release) {
                        Ok(()) => events.push_back(supervisor::Event::Started(life)),
                        Err(error) if first => return Err(error),
                        Err(error) => {
                            let name = &self.name;
                            (self.say)(&format!("{name}.{} can't be started: {error}", life.slot));
                            let code = i32::from(error.exit_code());
                            events.push_back(supervisor::Event::Ended { life, code, spread: spread() });
                        }
                    },
                    Action::Drain(life) => {
                        if self.pool.drain(life) {
                            events.push_back(supervisor::Event::Drained(life));
                        }
                    }
                    other => self.act(other),
                }
            }
        }
        self.loaded.retain(|release, _| self.sup.uses(*release));
        if self.sup.is_stopping() {
            for deploy in std::mem::take(&mut self.deploys) {
                self.answer(deploy.ticket, false, format!("{} stops", self.name));
            }
        }
        Ok(())
    }

    fn act(&mut self, action: Action) {
        let pool = &self.pool;
        let name = &self.name;
        let say = |text: String| (self.say)(&text);
        match action {
            Action::Start(..) | Action::Drain(_) => {}
            Action::Ask(life) => self.ask(life),
            Action::Join(life) => pool.join(life),
            Action::Unhealthy(life) => {
                if let Some(health) = self.plan_of(life.slot).health.filter(|h| h.always) {
                    say(format!("{name}.{} is unhealthy: port {} does not answer", life.slot, health.port));
                }
                pool.unhealthy(life);
            }
            Action::Signal(life) => pool.stop(life, self.plan_of(life.slot).stop_signal.number()),
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
                self.lives.remove(&slot);
                self.loaded.values_mut().for_each(|l| l.volumes.let_go(slot));
            }
            Action::Current(release) => self.deployed(release),
            Action::Progress(ticket, step) => self.progress(ticket, step),
            Action::Answer(ticket, outcome) => {
                let (ok, message) = self.words(outcome);
                self.answer(ticket, ok, message);
            }
        }
    }

    /// Every instance is of this release: a start of the app takes it from now on.
    fn deployed(&mut self, release: Release) {
        let Some(loaded) = self.loaded.get(&release) else { return };
        let plan = &loaded.plan;
        let written = installed::record(&self.dirs, &self.name, &plan.image, &loaded.digests);
        if let Err(why) = written {
            let why = format!("what a restart of {} would start could not be written down: {why}", self.name);
            (self.say)(&why);
            self.open.values_mut().for_each(|o| o.unwritten = Some(why.clone()));
        }
        let detail = json!({"image": plan.image.to_string(), "digest": plan.digest});
        journal::event(&self.dirs, self.name.as_str(), None, "deployed", detail);
    }

    /// A roll goes on: said to whoever waits for its end.
    fn progress(&mut self, ticket: Ticket, step: Step) {
        let name = &self.name;
        let deploys = |open: &Open| matches!(open.command.ask, Ask::Deploy { .. });
        let deploys = self.open.get(&ticket).is_some_and(deploys);
        let mut failed = None;
        let text = match step {
            Step::Begins(slot) if deploys => format!("{name}.{slot} is started from the new image"),
            Step::Begins(slot) => format!("{name}.{slot} is started anew"),
            Step::Healthy(slot) => format!("{name}.{slot} is healthy"),
            Step::Fails(life, why) => {
                let started = self.pool.began_ms(life).unwrap_or_else(now_ms);
                let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
                failed = Some((life.slot, at(started), SystemTime::now()));
                let text = failure(name, life.slot, why, self.plan_of(life.slot));
                let detail = json!({"why": text});
                journal::event(&self.dirs, name.as_str(), Some(life.slot), "deploy_failed", detail);
                text
            }
            Step::Back(slot) => {
                format!("{name}.{slot} goes back to {}", self.loaded[&self.sup.current()].plan.image)
            }
        };
        let Some(open) = self.open.get_mut(&ticket) else { return };
        open.failed = open.failed.or(failed);
        open.result.steps.push(text);
        self.control.answer(&open.command, &open.result);
    }

    /// The end of a command.
    fn answer(&mut self, ticket: Ticket, ok: bool, message: String) {
        let Some(Open { command, mut result, failed, unwritten }) = self.open.remove(&ticket) else { return };
        (result.done, result.ok, result.message) = (true, ok && unwritten.is_none(), message);
        if let Some(why) = unwritten {
            result.message = format!("{}; {why}", result.message);
        }
        self.note(&command, &result);
        let Some((slot, from, to)) = failed else { return self.control.answer(&command, &result) };
        // What it wrote last may still be on its way into the log.
        let (control, dirs, name) = (Rc::clone(&self.control), self.dirs.clone(), self.name.clone());
        spawn_local(async move {
            tokio::time::sleep(LATE).await;
            let margin = Duration::from_millis(10);
            result.lines = logs::lines_between(&dirs, name.as_str(), slot, from - margin, to + margin, LINES);
            control.answer(&command, &result);
        });
    }

    /// What became of a command, in one sentence.
    fn words(&self, outcome: Outcome) -> (bool, String) {
        let name = &self.name;
        let instances = |n: u32| if n == 1 { "1 instance".to_owned() } else { format!("{n} instances") };
        match outcome {
            Outcome::Rolled(n) => (true, format!("{name} runs anew: {}", instances(n))),
            Outcome::Deployed(_) => (true, format!("{name} runs {}", self.current().plan.image)),
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
            Outcome::Failed(slot, why) => (false, failure(name, slot, why, self.plan_of(slot))),
            Outcome::Reverted(slot, why) => {
                let why = match why {
                    Failure::Died { code } => format!("ended with exit code {code} before it was healthy"),
                    Failure::Silent => "did not answer in its time".to_owned(),
                };
                let image = &self.current().plan.image;
                (false, format!("the new image failed: {name}.{slot} {why}; {name} runs {image} as before"))
            }
            Outcome::Stopping => (false, format!("{name} stops")),
        }
    }

    /// A command and what became of it, for the journal.
    fn note(&self, command: &Command, result: &ControlResult) {
        let verb = match &command.ask {
            Ask::Stop => "stop",
            Ask::Scale(_) | Ask::Unpin => "scale",
            Ask::Restart => "restart",
            Ask::Deploy { .. } => "deploy",
            Ask::Wrong(_) => "?",
        };
        let detail = json!({"verb": verb, "ok": result.ok, "message": result.message});
        journal::event(&self.dirs, self.name.as_str(), None, "command", detail);
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
                    self.tell(supervisor::Event::Stop)?;
                    continue;
                }
                Ask::Wrong(why) => {
                    let result = ControlResult::now(false, why);
                    self.note(&command, &result);
                    self.control.answer(&command, &result);
                    continue;
                }
                Ask::Scale(to) => Some(supervisor::Event::Scale { ticket, to: *to }),
                Ask::Unpin => Some(supervisor::Event::Unpin(ticket)),
                Ask::Restart => Some(supervisor::Event::Restart(ticket)),
                Ask::Deploy { image, timeout } => {
                    let (image, timeout) = (image.clone(), *timeout);
                    self.deploys.push_back(Deploy { ticket, image, timeout, preparing: None });
                    None
                }
            };
            let result = ControlResult { done: false, ..ControlResult::now(true, "taken") };
            self.control.answer(&command, &result);
            self.open.insert(ticket, Open { command, result, failed: None, unwritten: None });
            match event {
                Some(event) => self.tell(event)?,
                None if self.sup.is_stopping() => self.tell(supervisor::Event::Tick)?,
                None => self.prepare_next(),
            }
        }
        Ok(())
    }

    /// Begins to bring the image of the first deploy that waits.
    fn prepare_next(&mut self) {
        while let Some(deploy) = self.deploys.front_mut().filter(|d| d.preparing.is_none()) {
            let ticket = deploy.ticket;
            match Preparing::start(&deploy.image, &self.asked.options) {
                Ok((preparing, told)) => {
                    deploy.preparing = Some(preparing);
                    let send = self.send.clone();
                    spawn_local(async move {
                        let _ = send.send(Event::Prepared(ticket, prepare::told(told).await));
                    });
                }
                Err(why) => {
                    self.deploys.pop_front();
                    self.answer(ticket, false, format!("the image can't be prepared: {why}"));
                }
            }
        }
    }

    /// The image of a deploy is there: everything else is made ready, and the roll ordered.
    pub(super) fn prepared(
        &mut self,
        ticket: Ticket,
        prepared: Result<Vec<Digest>, RunError>,
    ) -> Result<(), RunError> {
        // Its process holds the images until ours are locked.
        if self.deploys.front().is_none_or(|d| d.ticket != ticket) {
            return Ok(());
        }
        let Some(deploy) = self.deploys.pop_front() else { return Ok(()) };
        let event = prepared.and_then(|digests| self.load(&deploy, &digests));
        match event {
            Ok(Some(event)) => self.tell(event)?,
            Ok(None) => {
                let message = format!("{} runs {} already", self.name, self.current().plan.image);
                self.answer(ticket, true, message);
            }
            Err(error) => {
                if let Some(open) = self.open.get_mut(&ticket) {
                    open.result.hint = error.hint();
                }
                self.answer(ticket, false, error.to_string());
            }
        }
        drop(deploy);
        self.prepare_next();
        Ok(())
    }

    /// The release of an image that is in the store, and the order to roll to it; none where it runs already.
    fn load(&mut self, deploy: &Deploy, digests: &[Digest]) -> Result<Option<supervisor::Event>, RunError> {
        let store = Store::open(&self.dirs).map_err(RunError::from_image)?;
        let found = Found::of(digests, &self.asked.options, &store)?;
        let (old, new) = (&self.current().plan.image, &found.entries[0].name);
        if old.name != new.name {
            return Err(RunError::refused(
                format!("{} is another app's image: {} is {}", new, self.name, old),
                format!("run it beside: ply run {}", deploy.image.display()),
            ));
        }
        let env_files = self.asked.env_files()?;
        let plan = self.asked.plan(&found, &env_files, &self.host)?;
        if self.current().plan.digest == plan.digest {
            return Ok(None);
        }
        for notice in plan.notices.iter().filter(|n| !self.current().plan.notices.contains(n)) {
            (self.say)(notice);
        }
        let own_volume = |plan: &Plan| plan.volumes.iter().any(|v| !v.shared);
        let spare = !plan.terminal
            && plan.network != ply_sandbox::Network::Host
            && !own_volume(&plan)
            && !own_volume(&self.current().plan);
        let rules = policy(&plan, deploy.timeout);
        let mut loaded = Loaded::new(plan, found, &self.dirs, Rc::clone(&self.say));
        for slot in self.lives.keys() {
            loaded.volumes_of(*slot, &self.ids)?;
        }
        self.releases += 1;
        let release = Release(self.releases);
        self.loaded.insert(release, loaded);
        Ok(Some(supervisor::Event::Deploy { ticket: deploy.ticket, release, policy: rules, spare }))
    }

    /// Asks the port of an instance whether it takes a connection.
    fn ask(&self, life: Life) {
        let (pool, send) = (Rc::clone(&self.pool), self.send.clone());
        let Some(health) = self.plan_of(life.slot).health else { return };
        spawn_local(async move {
            let yes = crate::relay::answers(&*pool, life.slot, health.port).await;
            let _ = send.send(Event::Answer(life, yes));
        });
    }

    /// Starts one slot.
    fn start(&mut self, life: Life, release: Release) -> Result<(), RunError> {
        let (slot, name) = (life.slot, &self.name);
        self.lives.insert(slot, release);
        let loaded = self
            .loaded
            .get_mut(&release)
            .ok_or_else(|| RunError::plain(format!("{name}.{slot}: its image is not there any more")))?;
        let me = this_process();
        let volumes = loaded.volumes_of(slot, &self.ids);
        let plan = &loaded.plan;
        let mut state = InstanceState {
            app: name.clone(),
            slot,
            image: plan.image.clone(),
            digest: plan.digest,
            layers: loaded.digests.clone(),
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
            volumes: Vec::new(),
            target: None,
        };
        // Written before anything is made, so that whatever a kill leaves has a name.
        let named = volumes.and_then(|volumes| {
            state.volumes.clone_from(&volumes);
            crate::state::save(&self.dirs, &state)?;
            Ok(volumes)
        });
        let volumes = match named {
            Ok(volumes) => volumes,
            Err(error) => {
                self.pool.add_failed(life, state, i32::from(error.exit_code()), &error.to_string());
                return Err(error);
            }
        };
        let placement = crate::plan::Placement {
            slot,
            id: format!("{name}.{slot}-{}-{}", me.pid, me.start_time),
            ids: self.ids.clone(),
            volumes,
        };
        let context = LaunchContext {
            run_dir: &self.dirs.run,
            data_dir: &self.dirs.data,
            host: &self.host,
            cgroup_parent: &self.cgroup_parent,
        };
        let launched = launch(plan, &placement, &context, &self.streams);
        let (mut instance, ends) = match launched {
            Ok(launched) => launched,
            Err(error) => {
                self.pool.add_failed(life, state, i32::from(error.exit_code()), &error.to_string());
                return Err(error);
            }
        };
        let failed = |why: std::io::Error| RunError::plain(format!("{name}.{slot} can't be watched: {why}"));
        let pidfd = rustix::io::fcntl_dupfd_cloexec(instance.pidfd(), 3).map_err(|e| failed(e.into()))?;
        let tell = self.send.clone();
        // Once: the pidfd of a process that was waited for stays readable for ever.
        let ended = move || {
            let _ = tell.send(Event::Ended(life));
            false
        };
        when_readable(pidfd, ended).map_err(failed)?;
        let ring = self.streams.ring(&self.dirs, name.as_str(), slot, &self.pool);
        let terminal = instance.take_terminal();
        let doors = Doors {
            gate: plan.health.map(|h| h.port),
            published: plan.publish.iter().map(|p| p.instance_port).collect(),
        };
        self.pool.add(life, instance, state, doors);
        self.streams.connect(plan, slot, ring, ends, terminal, &self.send).map_err(failed)
    }
}

/// The rules that follow from a plan. `timeout` takes the place of the time that an instance has to become healthy.
fn policy(plan: &Plan, timeout: Option<Span>) -> Policy {
    let gate = match plan.health {
        None => Gate::Runs,
        Some(health) => {
            let grace = timeout.map_or(Duration::from_millis(health.grace_ms), |t| t.0);
            if health.always { Gate::Always { grace } } else { Gate::Once { grace } }
        }
    };
    Policy {
        restart: plan.restart.policy,
        backoff: plan.restart.backoff.0,
        max_backoff: plan.restart.max_backoff.0,
        gate,
        stop_timeout: plan.stop_timeout,
        drain: plan.drain,
        least: plan.least,
        most: if plan.terminal { 1 } else { crate::options::MAX_SCALE },
    }
}

/// Why a new instance did not pass its gate, in one sentence.
fn failure(name: &RunName, slot: u32, why: Failure, plan: &Plan) -> String {
    match why {
        Failure::Died { code } => {
            format!("{name}.{slot} ended with exit code {code} before it was healthy")
        }
        Failure::Silent => {
            let port = plan.health.map_or(0, |h| h.port);
            format!("{name}.{slot} did not answer on port {port} in its time")
        }
    }
}

fn launch(
    plan: &Plan,
    placement: &crate::plan::Placement,
    context: &LaunchContext<'_>,
    streams: &Streams,
) -> Result<(Instance, Ends), RunError> {
    let (stdio, ends) = streams
        .stdio(plan, placement.slot)
        .map_err(|why| RunError::plain(format!("no pipe can be made: {why}")))?;
    let instance = ply_sandbox::launch(&plan.spec(placement), context, stdio);
    Ok((instance.map_err(RunError::from_launch)?, ends))
}

/// The random part of a pause.
fn spread() -> u8 {
    RandomState::new().hash_one(0_u8) as u8
}
