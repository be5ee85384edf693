//! The last steps of a process before it is the app, for launch and for exec alike: what it must not have is
//! taken away in the order in which each step is still allowed. Nothing here allocates.

use crate::defences::{Defence, stands};
use crate::error::Step;
use crate::rootfs::must;
use crate::seccomp::{self, Instruction};
use crate::spec::Process;
use crate::stub::{REPORT_FD, STUB_FD};
use crate::sys::{self, Sys, borrow, check};
use crate::wire::{self, At, Failure};
use crate::{Ids, LaunchError};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::process::Signal;
use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The most open files: soft, hard.
const OPEN_FILES: (u64, u64) = (65_536, 524_288);
/// Queued signals and timers of one box.
const PENDING_SIGNALS: u64 = 4_096;
/// Bytes of POSIX message queues of one box.
const QUEUE_BYTES: u64 = 262_144;
/// Where a program without a slash is looked for when the environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Everything about the app's process, laid out before the clone.
pub(crate) struct App {
    candidates: Vec<CString>,
    _arguments: Vec<CString>,
    _environment: Vec<CString>,
    /// Room for the path, then the arguments, then a null.
    argv: Box<[Cell<*const c_char>]>,
    envp: Box<[*const c_char]>,
    workdir: CString,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    set_groups: bool,
    capabilities: u64,
    filter: Option<&'static [Instruction]>,
    no_new_privs: bool,
    processes: Option<u32>,
    stub: OwnedFd,
}

/// What 0, 1 and 2 become.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Standard {
    /// These, each 10 or above.
    Fds([RawFd; 3]),
    /// This terminal, which becomes the controlling one.
    Terminal(RawFd),
}

fn c_string(text: &str, what: &str) -> Result<CString, LaunchError> {
    CString::new(text).map_err(|_| LaunchError::Invalid(format!("{what} has a null byte: {text:?}")))
}

impl App {
    /// Lays everything out.
    pub(crate) fn new(
        process: &Process,
        argv: &[String],
        ids: &Ids,
        privileged: bool,
        processes: u32,
    ) -> Result<Self, LaunchError> {
        let Some(program) = argv.first().filter(|program| !program.is_empty()) else {
            return Err(LaunchError::Invalid("there is no program to run".into()));
        };
        let candidates = if program.contains('/') {
            vec![c_string(program, "the program")?]
        } else {
            let path = process.env.iter().rev().find(|(name, _)| name == "PATH");
            let path = path.map_or(DEFAULT_PATH, |(_, value)| value);
            // An empty part would mean the working directory, which is never meant.
            path.split(':')
                .filter(|folder| folder.starts_with('/'))
                .map(|folder| c_string(&format!("{folder}/{program}"), "PATH"))
                .collect::<Result<_, _>>()?
        };
        let arguments =
            argv.iter().map(|argument| c_string(argument, "an argument")).collect::<Result<Vec<_>, _>>()?;
        let environment = process
            .env
            .iter()
            .map(|(name, value)| c_string(&format!("{name}={value}"), "a variable"))
            .collect::<Result<Vec<_>, _>>()?;
        let pointers = std::iter::once(std::ptr::null())
            .chain(arguments.iter().map(|argument| argument.as_ptr()))
            .chain([std::ptr::null()]);
        let only_root = matches!(ids, Ids::Rootless { sub_gids, .. } if sub_gids.is_empty());
        if only_root && !process.groups.is_empty() {
            return Err(LaunchError::Unmapped {
                what: "group",
                id: process.groups[0],
                reason: "this user has no delegated range, so only root exists inside".into(),
            });
        }
        Ok(Self {
            candidates,
            argv: pointers.map(Cell::new).collect(),
            envp: environment.iter().map(|entry| entry.as_ptr()).chain([std::ptr::null()]).collect(),
            _arguments: arguments,
            _environment: environment,
            workdir: c_string(&process.workdir, "the working directory")?,
            uid: Uid::from_raw(process.uid),
            gid: Gid::from_raw(process.gid),
            groups: process.groups.iter().map(|gid| Gid::from_raw(*gid)).collect(),
            // Without a group range the kernel refuses setgroups in the namespace (user_namespaces(7)).
            set_groups: !only_root,
            capabilities: process.capabilities & last_capabilities(),
            filter: (!privileged).then(|| seccomp::filter(process.capabilities)),
            no_new_privs: !privileged,
            // Without a namespace of its own the count would be over all of the host's processes of the user.
            processes: (!matches!(ids, Ids::Host)).then_some(processes),
            stub: crate::stub::file()
                .and_then(|file| Ok(crate::rootfs::above_standard(file)?))
                .map_err(|source| LaunchError::Step { step: Step::Stub, source })?,
        })
        .map(|mut app: Self| {
            if privileged {
                app.capabilities = last_capabilities();
            }
            app
        })
    }

    /// The descriptor that the child must keep.
    pub(crate) fn stub(&self) -> RawFd {
        self.stub.as_raw_fd()
    }

    /// Becomes the app, or says on the socket what went wrong and ends this process.
    pub(crate) fn become_app(&self, socket: RawFd, standard: Standard, guard: Option<RawFd>) -> ! {
        let report = Cell::new(socket);
        let Err(failure) = self.steps(&report, standard, guard);
        wire::report_and_exit(report.get(), failure)
    }

    fn steps(
        &self,
        report: &Cell<RawFd>,
        standard: Standard,
        guard: Option<RawFd>,
    ) -> Result<Infallible, Failure> {
        // A session of its own: no terminal of anybody else's, and signals to a group stay inside.
        let _ = rustix::process::setsid();
        let (standard, terminal) = match standard {
            Standard::Fds(fds) => (fds, false),
            Standard::Terminal(fd) => ([fd; 3], true),
        };
        for (place, fd) in standard.into_iter().enumerate() {
            // SAFETY: the three places are nobody's any more; the given descriptors are 10 or above.
            check(i64::from(unsafe { libc::dup2(fd, place as i32) })).at(Step::Standard)?;
        }
        if terminal {
            rustix::process::ioctl_tiocsctty(borrow(0)).at(Step::Terminal)?;
        }
        if stands(Defence::Limits) {
            self.limits().at(Step::Limits)?;
        }
        self.rights()?;
        // As the user, so that a folder that only root may enter isn't entered; no magic link, so that no folder
        // of the host is (CVE-2024-21626 was a working directory through a leaked descriptor).
        let workdir = find(&self.workdir, OFlags::PATH | OFlags::DIRECTORY).at(Step::Workdir)?;
        rustix::process::fchdir(&workdir).at(Step::Workdir)?;
        drop(workdir);
        if self.no_new_privs && stands(Defence::NoNewPrivs) {
            rustix::thread::set_no_new_privs(true).at(Step::NoNewPrivs)?;
        }
        if let Some(filter) = self.filter.filter(|_| stands(Defence::Filter)) {
            install(filter).at(Step::Filter)?;
        }
        // 3 is the report and 4 the stub until the exec; nothing else is open from here on. The guard moves to 5
        // if there is one, and is closed before the exec.
        let places = [(report.get(), REPORT_FD), (self.stub(), STUB_FD), (guard.unwrap_or(-1), STUB_FD + 1)];
        let places = &places[..2 + usize::from(guard.is_some())];
        for &(fd, place) in places {
            // The stub itself closes the report on the app's exec: it needs it until then.
            let flags = if place == REPORT_FD && stands(Defence::Stub) { 0 } else { libc::O_CLOEXEC };
            // SAFETY: all descriptors that are still needed are 10 or above.
            check(i64::from(unsafe { libc::dup3(fd, place, flags) })).at(Step::Descriptors)?;
        }
        report.set(REPORT_FD);
        if stands(Defence::Descriptors) {
            let last = STUB_FD + places.len() as i32 - 1;
            sys::close_range(last as u32, u32::MAX, 0).at(Step::Descriptors)?;
        }
        default_signals();
        rustix::process::umask(Mode::from_raw_mode(0o022));
        if let Some(_moved) = guard {
            // Every change of ids and rights clears the death signal, so it is set after the last of them, and
            // the parent is looked for after that: it may have died in between.
            end_with_parent(borrow(STUB_FD + 1), Signal::KILL)?;
            sys::close_range((STUB_FD + 1) as u32, u32::MAX, 0).at(Step::Descriptors)?;
        }
        if !stands(Defence::NotDumpable) {
            // For the attack suite, which looks for what can be seen in the moment that this is.
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
        let path = self.choose().at(Step::Program)?;
        self.argv[0].set(path.as_ptr());
        self.unseen().at(Step::Stub)?;
        // SAFETY: both arrays end with a null and, like the strings, live as long as this process image.
        let _ = check(unsafe {
            let (folder, path, argv) = if stands(Defence::Stub) {
                (STUB_FD, c"", self.argv.as_ptr())
            } else {
                (libc::AT_FDCWD, path, self.argv[1..].as_ptr())
            };
            libc::syscall(
                libc::SYS_execveat,
                folder,
                path.as_ptr(),
                argv,
                self.envp.as_ptr(),
                libc::AT_EMPTY_PATH,
            )
        })
        .at(Step::Stub)?;
        unreachable!("a process image was replaced")
    }

    fn limits(&self) -> Sys<()> {
        let set = |resource: u32, soft: u64, hard: u64| {
            let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
            // SAFETY: the struct outlives the call.
            check(unsafe {
                libc::syscall(libc::SYS_prlimit64, 0, resource, &raw const limit, std::ptr::null::<u8>())
            })
            .map(drop)
        };
        set(libc::RLIMIT_CORE, 0, 0)?;
        let allowed = hard_limit(libc::RLIMIT_NOFILE);
        set(libc::RLIMIT_NOFILE, OPEN_FILES.0.min(allowed), OPEN_FILES.1.min(allowed))?;
        // Both are counted against the owner of the user namespace, the host's root or the caller, too: one box must
        // not use up what every other process of that user has.
        for (resource, most) in
            [(libc::RLIMIT_SIGPENDING, PENDING_SIGNALS), (libc::RLIMIT_MSGQUEUE, QUEUE_BYTES)]
        {
            let most = most.min(hard_limit(resource));
            set(resource, most, most)?;
        }
        if let Some(processes) = self.processes {
            let count = u64::from(processes);
            set(libc::RLIMIT_NPROC, count, count)?;
        }
        Ok(())
    }

    /// Bounding set, groups, gid, uid, the other four sets.
    fn rights(&self) -> Result<(), Failure> {
        let lower = stands(Defence::Capabilities);
        if lower {
            bound(self.capabilities).at(Step::Capabilities)?;
        }
        let keep = self.capabilities != 0 && !self.uid.is_root();
        if keep {
            rustix::thread::set_keep_capabilities(true).at(Step::Capabilities)?;
        }
        // Exactly these groups (CVE-2022-2989, CVE-2022-36109, CVE-2023-25173 kept some of the caller's, or of root's).
        if self.set_groups && stands(Defence::Groups) {
            rustix::thread::set_thread_groups(&self.groups).at(Step::Groups)?;
        }
        rustix::thread::set_thread_res_gid(self.gid, self.gid, self.gid).at(Step::User)?;
        rustix::thread::set_thread_res_uid(self.uid, self.uid, self.uid).at(Step::User)?;
        if lower {
            // Root's exec takes what is permitted from the bounding set; anybody else's from the ambient one.
            set_capabilities(self.capabilities, self.inheritable()).at(Step::Capabilities)?;
            ambient(if keep { self.capabilities } else { 0 }).at(Step::Capabilities)?;
        }
        if !stands(Defence::NotDumpable) {
            return Ok(());
        }
        // A change of ids makes a process as dumpable as `fs.suid_dumpable` says, which a host may have at 1; this one
        // still has our memory (CVE-2016-9962).
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
            .at(Step::Capabilities)
    }

    /// Nothing, unless the exec of somebody who isn't root must keep something: for exec too (CVE-2022-27649,
    /// CVE-2022-29162, CVE-2025-27612).
    fn inheritable(&self) -> u64 {
        if self.uid.is_root() && stands(Defence::Inheritable) { 0 } else { self.capabilities }
    }

    /// What runs an unreadable file isn't dumpable, but root of the box with CAP_DAC_OVERRIDE may read the stub's: where
    /// it is a rootless caller's, it is that root's own. So the kernel is asked without any right in effect. The exec
    /// puts all back: root's from the bounding set, anybody else's from the ambient one (capabilities(7)).
    fn unseen(&self) -> Sys<()> {
        if !stands(Defence::Capabilities) {
            return Ok(());
        }
        capset(0, self.capabilities, self.inheritable())
    }

    /// The first candidate that is a file which this user may execute.
    fn choose(&self) -> Sys<&CStr> {
        let mut problem = Errno::NOENT;
        for path in &self.candidates {
            match usable(path) {
                Ok(()) => return Ok(path),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => problem = errno,
            }
        }
        Err(problem)
    }
}

/// Opens a path as this process sees it, through no magic link.
fn find(path: &CStr, flags: OFlags) -> Sys<OwnedFd> {
    let mut resolve = ResolveFlags::empty();
    if stands(Defence::NoMagicLinks) {
        resolve |= ResolveFlags::NO_MAGICLINKS;
    }
    rustix::fs::openat2(rustix::fs::CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn usable(path: &CStr) -> Sys<()> {
    let file = find(path, OFlags::PATH)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    must(kind == FileType::RegularFile, Errno::ACCESS)?;
    rustix::fs::accessat(rustix::fs::CWD, path, rustix::fs::Access::EXEC_OK, AtFlags::EACCESS)
}

/// Every capability that this kernel knows, as a bit set.
pub(crate) fn last_capabilities() -> u64 {
    static ALL: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *ALL.get_or_init(|| {
        let last = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap");
        let last = last.ok().and_then(|text| text.trim().parse::<u32>().ok()).unwrap_or(40).min(62);
        (1u64 << (last + 1)) - 1
    })
}

/// Takes everything but `keep` from the bounding set.
pub(crate) fn bound(keep: u64) -> Sys<()> {
    for capability in 0..64 {
        if keep >> capability & 1 == 0 {
            // SAFETY: no memory is passed.
            match check(i64::from(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) })) {
                // Past the last one.
                Err(Errno::INVAL) => break,
                other => other?,
            };
        }
    }
    Ok(())
}

/// Sets the permitted and effective sets, and the inheritable one (capset(2)).
pub(crate) fn set_capabilities(kept: u64, inheritable: u64) -> Sys<()> {
    capset(kept, kept, inheritable)
}

fn capset(effective: u64, permitted: u64, inheritable: u64) -> Sys<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let halves = [effective, permitted, inheritable].map(|set| [set as u32, (set >> 32) as u32]);
    let [effective, permitted, inheritable] = halves;
    let data = [effective[0], permitted[0], inheritable[0], effective[1], permitted[1], inheritable[1]];
    // SAFETY: both have the kernel's layout and outlive the call.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) })?;
    Ok(())
}

fn ambient(keep: u64) -> Sys<()> {
    let prctl = |what: libc::c_int, capability: u32| {
        // SAFETY: no memory is passed.
        check(i64::from(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, what, capability, 0, 0) })).map(drop)
    };
    prctl(libc::PR_CAP_AMBIENT_CLEAR_ALL, 0)?;
    (0..64)
        .filter(|capability| keep >> capability & 1 == 1)
        .try_for_each(|capability| prctl(libc::PR_CAP_AMBIENT_RAISE, capability))
}

/// The hard limit of this process, which may only be lowered.
fn hard_limit(resource: u32) -> u64 {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct outlives the call.
    let got =
        unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, std::ptr::null::<u8>(), &raw mut limit) };
    if got == 0 { limit.rlim_max } else { 1024 }
}

/// Lets a process that is about to be a box open as many files as a box may, where the caller has that right.
pub(crate) fn raise_open_files(pid: i32) {
    let limit = libc::rlimit64 { rlim_cur: OPEN_FILES.0, rlim_max: OPEN_FILES.1 };
    // SAFETY: the struct outlives the call. Without the right the host's own limit stands, as the spec allows.
    unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            pid,
            libc::RLIMIT_NOFILE,
            &raw const limit,
            std::ptr::null::<u8>(),
        );
    }
}

/// Installs the filter.
fn install(filter: &[Instruction]) -> Sys<()> {
    #[repr(C)]
    struct Program {
        length: u16,
        filter: *const Instruction,
    }
    let program = Program { length: filter.len() as u16, filter: filter.as_ptr() };
    // SAFETY: the program and what it points to outlive the call.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, 1 /* SECCOMP_SET_MODE_FILTER */, 0, &raw const program)
    })?;
    Ok(())
}

/// Every signal does again what it does by default, and none is blocked.
fn default_signals() {
    // The kernel's struct is at most 32 bytes; all zero is SIG_DFL with no flags.
    let default = [0u64; 8];
    for signal in 1..=64 {
        // SAFETY: the buffer is large enough; for KILL and STOP the call fails and nothing happens.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null::<u8>(), 8);
        }
    }
    set_blocked(0);
}

/// Sets which signals are blocked.
pub(crate) fn set_blocked(signals: u64) {
    // SAFETY: the mask outlives the call.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const signals,
            std::ptr::null::<u8>(),
            8,
        );
    }
}

/// Asks for a signal when the parent dies, and makes sure that it hasn't already: `guard` is the parent's pidfd.
pub(crate) fn end_with_parent(guard: BorrowedFd<'_>, signal: Signal) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(signal)).at(Step::Parent)?;
    let mut poll = [rustix::event::PollFd::from_borrowed_fd(guard, rustix::event::PollFlags::IN)];
    let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let dead = rustix::event::poll(&mut poll, Some(&none)).at(Step::Parent)?;
    must(dead == 0, Errno::SRCH).at(Step::Parent)
}

#[cfg(test)]
#[path = "rights_tests.rs"]
mod tests;
