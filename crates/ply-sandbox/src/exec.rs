//! One more process in a box that runs, with no more rights than the app has.
//!
//! A helper without anything of the caller's open starts the process inside, and stays outside to reap it and
//! whatever else becomes its child: a pid namespace ends only when all that ran in it is reaped, and the caller may
//! be stopped (Ctrl-Z) for as long as its user likes.

use crate::defences::{Defence, stands};
use crate::error::Step;
use crate::inner::{kinds, way_in};
use crate::inside::beneath;
use crate::instance::{Asked, Born, start_time};
use crate::keeper::on_keeper;
use crate::plan::explain_start;
use crate::rights::{self, App, Standard};
use crate::rootfs::{above_standard, must};
use crate::sys::{self, Side, Sys, borrow, raw};
use crate::wire::{self, At, Failure, Message};
use crate::{Exit, Ids, LaunchError, Network, Process, ProcessId, Stdio, WindowSize};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::process::{Signal, WaitIdOptions};
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
    /// The process, killed first; the helper reaps it.
    process: Born,
    /// Ends as the process ends, with its code.
    helper: Helper,
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
    let cgroup = Cgroup::of(target).map_err(|source| LaunchError::Step { step: Step::JoinCgroup, source })?;
    let (ours, theirs) = wire::pair().at(Step::Talk)?;
    let theirs = above_standard(theirs).at(Step::Talk)?;
    let guard = own_pidfd().at(Step::Parent)?;
    let kinds = kinds(target);
    // The pid namespace is that of the helper's children. Rootless, nothing can be joined before the user namespace.
    let first = match target.ids {
        Ids::Rootless { .. } => libc::CLONE_NEWUSER | libc::CLONE_NEWPID,
        Ids::Leased { .. } | Ids::Host => libc::CLONE_NEWPID,
    };
    let plan = Plan {
        app: &app,
        way_in: raw(&way_in),
        socket: raw(&theirs),
        guard: raw(&guard),
        asked: standard.asked(),
        unified: cgroup.unified.as_ref().map(raw),
        door: cgroup.door.as_ref().map(raw),
        first,
        then: kinds & !first,
        user: (target.process.uid, target.process.gid),
        arguments: crate::init::arguments(),
    };
    // SAFETY: the child goes into `help`, which neither allocates nor returns.
    let helper = match unsafe { sys::clone3(0, None) }.at(Step::Fork)? {
        Side::Child => {
            let Err(failure) = help(&plan);
            wire::report_and_exit(plan.socket, failure)
        }
        Side::Parent { pid, pidfd } => Helper(Born { pid, pidfd }),
    };
    drop((theirs, guard, cgroup));
    drop(standard);
    rights::raise_open_files(helper.0.pid);
    let start = |failure| explain_start(failure, argv, &target.process.workdir);
    wire::send(ours.as_fd(), Message::Go, &[]).at(Step::Talk).map_err(start)?;
    // The helper sends the process by its descriptor, the process its terminal if it has one. What is said first
    // counts: only the last of it could be said by somebody who took the socket from the stub.
    let (mut process, mut terminal) = (None::<Born>, None::<(Option<i32>, OwnedFd)>);
    loop {
        let mut fd = None;
        let received = wire::receive(ours.as_fd(), |_, got| fd = Some(got)).at(Step::Talk)?;
        match received.message {
            None => break,
            Some(Message::Failed(failure)) => return Err(start(failure)),
            Some(Message::App(pid)) if process.is_none() && received.pid == Some(helper.0.pid) => {
                process = fd.map(|pidfd| Born { pid, pidfd });
            }
            Some(Message::Go) if terminal.is_none() => terminal = fd.map(|fd| (received.pid, fd)),
            Some(Message::App(_) | Message::Go) => {}
        }
    }
    let Some(process) = process else {
        return Err(LaunchError::Gone("it ended meanwhile".into()));
    };
    let terminal = terminal.filter(|(from, _)| *from == Some(process.pid)).map(|(_, fd)| fd);
    Ok(Exec { process, helper, terminal, exit: None })
}

/// The process that waits for the one inside. Dropping it waits: it is never killed, since who it has to reap would be
/// left to others, and the box could not end before they did.
#[derive(Debug)]
struct Helper(Born);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.wait(WaitIdOptions::empty());
    }
}

/// A descriptor of this process, by which a child knows that it lives.
fn own_pidfd() -> Sys<OwnedFd> {
    let me = rustix::process::getpid();
    rustix::process::pidfd_open(me, rustix::process::PidfdFlags::empty()).and_then(above_standard)
}

/// The box's cgroups, to be entered by the process: born into v2, through the door of v1.
struct Cgroup {
    unified: Option<OwnedFd>,
    door: Option<OwnedFd>,
}

impl Cgroup {
    fn of(target: &ExecTarget) -> io::Result<Self> {
        let mut cgroup = Self { unified: None, door: None };
        for folder in &target.cgroups {
            if folder.join("cgroup.controllers").exists() {
                if matches!(target.ids, Ids::Rootless { .. }) {
                    crate::place::stand_beside(folder)?;
                }
                cgroup.unified = Some(above_standard(fs::File::open(folder)?.into())?);
            } else {
                let tasks = fs::OpenOptions::new().write(true).open(folder.join("tasks"))?;
                cgroup.door = Some(above_standard(tasks.into())?);
            }
        }
        Ok(cgroup)
    }
}

struct Plan<'a> {
    app: &'a App,
    way_in: RawFd,
    socket: RawFd,
    guard: RawFd,
    asked: Asked,
    unified: Option<RawFd>,
    door: Option<RawFd>,
    /// The namespaces that the helper joins.
    first: i32,
    /// Those that the process joins by itself.
    then: i32,
    user: (u32, u32),
    arguments: (usize, usize),
}

/// The helper: it joins what it must to start the process inside, and ends as that ends.
fn help(plan: &Plan<'_>) -> Result<Infallible, Failure> {
    let [a, b, c] = plan.asked.kept(plan.socket);
    let other = |fd: Option<RawFd>| fd.unwrap_or(plan.socket);
    let (unified, door) = (other(plan.unified), other(plan.door));
    if stands(Defence::Descriptors) {
        sys::close_all_but(&[plan.socket, plan.guard, plan.way_in, plan.app.stub(), a, b, c, unified, door])
            .at(Step::Descriptors)?;
    }
    crate::init::forget_arguments(plan.arguments, c"ply-exec");
    rights::set_blocked(u64::MAX);
    // A session of its own: what stops the caller at its terminal doesn't stop who has to reap.
    let _ = rustix::process::setsid();
    // Before it joins, so that at no moment anybody inside can look into it: it has our program in its memory
    // (CVE-2016-9962, CVE-2019-5736).
    if stands(Defence::NotDumpable) {
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
            .at(Step::Join)?;
    }
    let released = wire::receive(borrow(plan.socket), |_, _| ()).at(Step::Talk)?;
    must(released.message == Some(Message::Go), Errno::PIPE).at(Step::Talk)?;
    crate::launch::new_session_keyring();
    sys::setns(borrow(plan.way_in), plan.first).at(Step::Join)?;
    // After the change of rights, which clears it. Not to be killed by it, but to kill and reap.
    rights::end_with_parent(borrow(plan.guard), Signal::TERM)?;
    let me = own_pidfd().at(Step::Parent)?;
    // SAFETY: the child goes into `join` and never returns from here.
    match unsafe { sys::clone3(0, plan.unified.map(borrow)) }.at(Step::Fork)? {
        Side::Child => {
            let Err(failure) = join(plan, raw(&me));
            wire::report_and_exit(plan.socket, failure)
        }
        Side::Parent { pid, pidfd } => {
            wire::send(borrow(plan.socket), Message::App(pid), &[pidfd.as_fd()]).at(Step::Talk)?;
            // The socket too: its end tells the caller that the program has started.
            sys::close_range(0, u32::MAX, 0).at(Step::Descriptors)?;
            crate::init::wait_for(pid)
        }
    }
}

/// The process, in the box's pid namespace, on its way to the program.
fn join(plan: &Plan<'_>, guard: RawFd) -> Result<Infallible, Failure> {
    // From here on the files are the box's. Nothing is loaded by name, no module, no locale, no library: this program is
    // static and looks nobody up (CVE-2019-14271).
    // Before anything is started that would have to be counted too, and while the rights to do so are there.
    if let Some(door) = plan.door {
        sys::enter_cgroup(door).at(Step::JoinCgroup)?;
    }
    sys::setns(borrow(plan.way_in), plan.then).at(Step::Join)?;
    if (plan.first | plan.then) & libc::CLONE_NEWUSER != 0 {
        // Who joins a user namespace is nobody there at first.
        rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).at(Step::Ids)?;
        rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).at(Step::Ids)?;
    }
    let standard = match plan.asked {
        Asked::Fds(fds) => Standard::Fds(fds),
        Asked::Terminal(size) => Standard::Terminal(terminal(plan, size)?),
    };
    plan.app.become_app(plan.socket, standard, Some(guard));
}

/// A terminal out of the box's devpts, which is looked up without following anything, and must be one.
fn terminal(plan: &Plan<'_>, size: WindowSize) -> Result<RawFd, Failure> {
    const DEVPTS_SUPER_MAGIC: i64 = 0x1cd1;
    let root = rustix::fs::open(c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .at(Step::Terminal)?;
    let pts = beneath(&root, c"dev/pts", OFlags::RDONLY | OFlags::DIRECTORY).at(Step::Terminal)?;
    let kind = rustix::fs::fstatfs(&pts).at(Step::Terminal)?.f_type;
    must(kind as i64 == DEVPTS_SUPER_MAGIC, Errno::NODEV).at(Step::Terminal)?;
    let (master, slave, _) = crate::terminal::make(&pts, plan.user, size).at(Step::Terminal)?;
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
        self.helper.0.pidfd.as_fd()
    }

    /// The process as seen from outside; its start time is 0 if it has ended already.
    pub fn process(&self) -> ProcessId {
        ProcessId { pid: self.process.pid, start_time: start_time(self.process.pid).unwrap_or(0) }
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
        self.process.signal(signal)
    }

    /// How it ended, `None` while it runs. Doesn't wait.
    ///
    /// # Errors
    /// The system's.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        self.helper.0.ended(&mut self.exit, WaitIdOptions::NOHANG)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&mut self) -> io::Result<Exit> {
        self.helper.0.end(&mut self.exit)
    }
}
