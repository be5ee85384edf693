//! One more process in a box that runs, with no more rights than the app has.
//!
//! A helper without anything of the caller's open joins the namespaces and starts the process as a sibling of
//! itself, so that the caller waits for it directly and no process of ours stays between.

use crate::defences::{Defence, stands};
use crate::error::Step;
use crate::inner::{kinds, way_in};
use crate::inside::beneath;
use crate::instance::{Born, start_time};
use crate::keeper::on_keeper;
use crate::plan::explain_start;
use crate::rights::{self, App, Standard};
use crate::rootfs::{above_standard, must};
use crate::sys::{self, Side, borrow, raw};
use crate::wire::{self, At, Failure, Message};
use crate::{Exit, Ids, LaunchError, Network, Process, ProcessId, Stdio};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::process::WaitIdOptions;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

/// A running box, as a later process (`ply exec`) finds it in a state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecTarget {
    /// Pid 1 of the box.
    pub init: ProcessId,
    /// The app's process.
    pub app: ProcessId,
    /// The ids of the box.
    pub ids: Ids,
    /// The app's process facts: environment, workdir, user, groups, capabilities.
    pub process: Process,
    /// The network of the box.
    pub network: Network,
    /// Whether the box keeps everything.
    pub privileged: bool,
    /// The most processes, for `RLIMIT_NPROC`.
    pub pids: u32,
    /// The cgroup folders of the box: v2, and v1 controllers where they are used.
    pub cgroups: Vec<PathBuf>,
}

/// A process that was started in a running box. Dropping it kills it.
#[derive(Debug)]
pub struct Exec {
    born: Born,
    terminal: Option<OwnedFd>,
    exit: Option<Exit>,
}

/// Starts `argv` in the box: its namespaces, cgroup, user, environment, workdir, capabilities and filter.
///
/// # Errors
/// [`LaunchError::Gone`] if the box has ended (or another process has its pid now), and those of a launch.
pub fn exec(target: &ExecTarget, argv: &[String], stdio: Stdio) -> Result<Exec, LaunchError> {
    on_keeper(|| parent(target, argv, stdio))
}

fn parent(target: &ExecTarget, argv: &[String], stdio: Stdio) -> Result<Exec, LaunchError> {
    let app = App::new(&target.process, argv, &target.ids, target.privileged, target.pids)?;
    let standard = stdio.above_standard()?;
    let way_in = above_standard(way_in(target)?).at(Step::Join)?;
    let cgroup = Cgroup::of(target)?;
    let (ours, theirs) = wire::pair().at(Step::Talk)?;
    let theirs = above_standard(theirs).at(Step::Talk)?;
    let guard = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())
        .and_then(above_standard)
        .at(Step::Parent)?;
    let plan = Plan {
        app: &app,
        way_in: raw(&way_in),
        socket: raw(&theirs),
        guard: raw(&guard),
        standing: standard.raw(),
        kinds: kinds(target),
        user: (target.process.uid, target.process.gid),
        arguments: crate::init::arguments(),
    };
    // SAFETY: the child goes into `join`, which neither allocates nor returns.
    let helper = match unsafe { sys::clone3(0, cgroup.unified.as_ref().map(AsFd::as_fd)) }.at(Step::Fork)? {
        Side::Child => {
            let Err(failure) = join(&plan);
            wire::report_and_exit(plan.socket, failure)
        }
        Side::Parent { pid, pidfd } => Born { pid, pidfd },
    };
    drop((theirs, guard));
    let size = standard.size;
    drop(standard);
    cgroup.enter_v1(helper.pid)?;
    rights::raise_open_files(helper.pid);
    let start = |failure| explain_start(failure, argv, &target.process.workdir);
    wire::send(ours.as_fd(), Message::Go, &[]).at(Step::Talk).map_err(start)?;
    // First the process itself comes, by its descriptor, then its terminal if it has one.
    let (mut born, mut terminal) = (None, None);
    loop {
        let mut fd = None;
        let received = wire::receive(ours.as_fd(), |_, got| fd = Some(got)).at(Step::Talk)?;
        match received.message {
            None => break,
            Some(Message::Failed(failure)) => return Err(start(failure)),
            Some(Message::App(pid)) => born = fd.map(|pidfd| Born { pid, pidfd }),
            Some(Message::Go) => terminal = fd,
        }
    }
    let Some(born) = born else {
        return Err(LaunchError::Gone("it ended meanwhile".into()));
    };
    if let (Some(terminal), Some(size)) = (&terminal, size) {
        size.set(terminal).at(Step::Terminal)?;
    }
    Ok(Exec { born, terminal, exit: None })
}

/// The box's cgroups, to be entered.
struct Cgroup {
    unified: Option<OwnedFd>,
    v1: Vec<PathBuf>,
}

impl Cgroup {
    fn of(target: &ExecTarget) -> Result<Self, LaunchError> {
        let mut cgroup = Self { unified: None, v1: Vec::new() };
        for folder in &target.cgroups {
            if folder.join("cgroup.controllers").exists() {
                let open = fs::File::open(folder);
                let step = |source| LaunchError::Step { step: Step::JoinCgroup, source };
                cgroup.unified = Some(open.map_err(step)?.into());
            } else {
                cgroup.v1.push(folder.clone());
            }
        }
        Ok(cgroup)
    }

    fn enter_v1(&self, pid: i32) -> Result<(), LaunchError> {
        self.v1.iter().try_for_each(|folder| {
            fs::write(folder.join("cgroup.procs"), pid.to_string())
                .map_err(|source| LaunchError::Step { step: Step::JoinCgroup, source })
        })
    }
}

struct Plan<'a> {
    app: &'a App,
    way_in: RawFd,
    socket: RawFd,
    guard: RawFd,
    standing: Option<[RawFd; 3]>,
    kinds: i32,
    user: (u32, u32),
    arguments: (usize, usize),
}

/// The helper: joins, and starts the process as its sibling.
fn join(plan: &Plan<'_>) -> Result<Infallible, Failure> {
    let [a, b, c] = plan.standing.unwrap_or([plan.socket; 3]);
    if stands(Defence::Descriptors) {
        sys::close_all_but(&[plan.socket, plan.guard, plan.way_in, plan.app.stub(), a, b, c])
            .at(Step::Descriptors)?;
    }
    crate::init::forget_arguments(plan.arguments);
    rights::set_blocked(u64::MAX);
    // Before it joins, so that at no moment anybody inside can look into it: it has our program in its memory
    // (CVE-2016-9962, CVE-2019-5736).
    if stands(Defence::NotDumpable) {
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
            .at(Step::Join)?;
    }
    let released = wire::receive(borrow(plan.socket), |_, _| ()).at(Step::Talk)?;
    must(released.message == Some(Message::Go), Errno::PIPE).at(Step::Talk)?;
    crate::launch::new_session_keyring();
    sys::setns(borrow(plan.way_in), plan.kinds).at(Step::Join)?;
    // The pid namespace is its children's, not its own; a sibling is waited for by our parent.
    // SAFETY: the child goes into `joined` and never returns from here.
    match unsafe { sys::clone3(libc::CLONE_PARENT as u64, None) }.at(Step::Fork)? {
        Side::Child => {
            let Err(failure) = joined(plan);
            wire::report_and_exit(plan.socket, failure)
        }
        Side::Parent { pid, pidfd } => {
            wire::send(borrow(plan.socket), Message::App(pid), &[pidfd.as_fd()]).at(Step::Talk)?;
            sys::exit_now(0)
        }
    }
}

/// The process, in the box, on its way to the program.
fn joined(plan: &Plan<'_>) -> Result<Infallible, Failure> {
    if plan.kinds & libc::CLONE_NEWUSER != 0 {
        // Who joins a user namespace is nobody there at first.
        rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).at(Step::Ids)?;
        rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).at(Step::Ids)?;
    }
    let standard = match plan.standing {
        Some(fds) => Standard::Fds(fds),
        None => Standard::Terminal(terminal(plan)?),
    };
    plan.app.become_app(plan.socket, standard, Some(plan.guard));
}

/// A terminal out of the box's devpts, which is looked up without following anything, and must be one.
fn terminal(plan: &Plan<'_>) -> Result<RawFd, Failure> {
    const DEVPTS_SUPER_MAGIC: i64 = 0x1cd1;
    let root = rustix::fs::open(c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .at(Step::Terminal)?;
    let pts = beneath(&root, c"dev/pts", OFlags::RDONLY | OFlags::DIRECTORY).at(Step::Terminal)?;
    let kind = rustix::fs::fstatfs(&pts).at(Step::Terminal)?.f_type;
    must(kind as i64 == DEVPTS_SUPER_MAGIC, Errno::NODEV).at(Step::Terminal)?;
    let (master, slave, _) = crate::terminal::make(&pts, plan.user).at(Step::Terminal)?;
    wire::send(borrow(plan.socket), Message::Go, &[master.as_fd()]).at(Step::Talk)?;
    let slave = above_standard(slave).at(Step::Terminal)?;
    let number = raw(&slave);
    // It stays open until this process has become the program.
    std::mem::forget(slave);
    Ok(number)
}

impl Exec {
    /// A descriptor of the process that becomes readable when it has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.born.pidfd.as_fd()
    }

    /// The process as seen from outside; its start time is 0 if it has ended already.
    pub fn process(&self) -> ProcessId {
        ProcessId { pid: self.born.pid, start_time: start_time(self.born.pid).unwrap_or(0) }
    }

    /// The controlling end of its terminal, once.
    pub fn take_terminal(&mut self) -> Option<OwnedFd> {
        self.terminal.take()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// The system's; having ended is not an error.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        self.born.signal(signal)
    }

    /// How it ended, `None` while it runs. Doesn't wait.
    ///
    /// # Errors
    /// The system's.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        if self.exit.is_none() {
            self.exit = self.born.wait(WaitIdOptions::NOHANG)?;
        }
        Ok(self.exit)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&mut self) -> io::Result<Exit> {
        loop {
            if let Some(exit) = self.exit {
                return Ok(exit);
            }
            self.exit = self.born.wait(WaitIdOptions::empty())?;
        }
    }
}
