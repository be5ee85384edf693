//! Pid 1 of a box: it reaps, forwards signals, and ends with the app. It is a copy of this program that never
//! executes anything: the memory it shares with its parent belongs to the host's user namespace, and it isn't
//! dumpable, so that nobody inside can look into it or reach the host's binary through it (CVE-2019-5736).

use crate::defences::{Defence, stands};
use crate::error::Step;
use crate::rights;
use crate::sys::{self, borrow, check, exit_now};
use crate::wire::{At, Failure};
use rustix::io::Errno;
use rustix::process::Signal;
use std::convert::Infallible;
use std::ffi::CStr;
use std::os::fd::RawFd;

const CAP_KILL: u64 = 1 << 5;

/// Keeps house until the app ends. Comes back only if the setting up failed.
pub(crate) fn keep_house(app: i32, guard: RawFd) -> Result<Infallible, Failure> {
    // All that is needed from here on is to signal processes of any user inside.
    rights::bound(0).at(Step::Capabilities)?;
    rights::set_capabilities(CAP_KILL, 0).at(Step::Capabilities)?;
    rustix::thread::set_no_new_privs(true).at(Step::NoNewPrivs)?;
    rights::end_with_parent(borrow(guard), Signal::KILL)?;
    forget_memory();
    // The socket too: its end tells the parent that both of us are through.
    sys::close_range(0, u32::MAX, 0).at(Step::Descriptors)?;
    loop {
        match wait_signal() {
            libc::SIGCHLD => reap(app),
            signal => {
                // SAFETY: no memory is passed. The app may just have ended; then SIGCHLD follows.
                unsafe { libc::kill(app, signal) };
            }
        }
    }
}

/// The next signal; all are blocked.
fn wait_signal() -> i32 {
    let all = u64::MAX;
    loop {
        // SAFETY: the mask outlives the call; no answer is wanted beyond the number.
        let got = check(unsafe {
            libc::syscall(
                libc::SYS_rt_sigtimedwait,
                &raw const all,
                std::ptr::null::<u8>(),
                std::ptr::null::<u8>(),
                8,
            )
        });
        if let Ok(signal) = got {
            return signal as i32;
        }
    }
}

/// Ends this process as `child` ends. Any signal but that of a child's end, the parent's death by [`rights::end_with_parent`]
/// among them, kills the child first: it is never left to be reaped by somebody else, who might not.
pub(crate) fn wait_for(child: i32) -> ! {
    forget_memory();
    loop {
        match wait_signal() {
            libc::SIGCHLD => reap(child),
            // SAFETY: no memory is passed; the child isn't reaped yet, so the number is still its own. First what it
            // started and kept in its group, such as a shell's commands.
            _ => unsafe {
                libc::kill(-child, libc::SIGKILL);
                libc::kill(child, libc::SIGKILL);
            },
        }
    }
}

/// Reaps every process that ended; when `app` is among them this process ends with its code. Pid 1 takes the box with
/// it: the kernel ends what is left.
fn reap(app: i32) {
    loop {
        let mut status = 0;
        let options = libc::WNOHANG | libc::__WALL;
        // SAFETY: the status outlives the call.
        let pid =
            unsafe { libc::syscall(libc::SYS_wait4, -1, &raw mut status, options, std::ptr::null::<u8>()) };
        match check(pid) {
            Ok(0) => return,
            Ok(pid) if pid as i32 == app => exit_now(if libc::WIFSIGNALED(status) {
                128 + libc::WTERMSIG(status)
            } else {
                libc::WEXITSTATUS(status)
            }),
            Ok(_) | Err(Errno::INTR) => {}
            // Nobody left and the app not seen: it can't be, but an init that waits for nothing must not stay.
            Err(_) => exit_now(125),
        }
    }
}

/// Where the parent's arguments and environment are: what anybody inside could read as `/proc/1/cmdline`, tokens
/// of a command line included. Looked up once, before any clone.
pub(crate) fn arguments() -> (usize, usize) {
    static RANGE: std::sync::OnceLock<(usize, usize)> = std::sync::OnceLock::new();
    *RANGE.get_or_init(|| {
        let text = std::fs::read("/proc/self/maps").unwrap_or_default();
        let line = text.split(|byte| *byte == b'\n').find(|line| line.ends_with(b"[stack]"));
        line.and_then(Map::parse).map_or((0, 0), |map| (map.start, map.end))
    })
}

/// In a child: takes the arguments and the environment out of its memory, before anybody can look, and gives it a
/// name of its own.
pub(crate) fn forget_arguments((start, end): (usize, usize), name: &CStr) {
    let stack = 0u8;
    let here = (&raw const stack).addr();
    if stands(Defence::Arguments) && end > start && !(start..end).contains(&here) {
        // SAFETY: that is the main thread's stack, and this process runs on another one; what was laid out for
        // it is on the heap.
        unsafe { libc::syscall(libc::SYS_munmap, start, end - start) };
    }
    let _ = rustix::thread::set_name(name);
}

/// Gives back the parent's heap and whatever else was anonymous memory: shared copy-on-write now, it would turn
/// into init's own, page by page, as the parent goes on writing. Only the stack in use, and the zeroed data of
/// the program itself, stay.
fn forget_memory() {
    let stack = 0u8;
    let here = (&raw const stack).addr();
    let Ok(file) = rustix::fs::open(
        c"/proc/self/maps",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    ) else {
        return;
    };
    let mut text = [0u8; 16 << 10];
    let mut length = 0;
    while let Ok(got @ 1..) = rustix::io::read(&file, &mut text[length..]) {
        length += got;
    }
    let mut program_end = 0;
    for line in text[..length].split(|byte| *byte == b'\n') {
        let Some(map) = Map::parse(line) else { continue };
        if map.file {
            program_end = map.end;
        } else if map.start == program_end {
            // The program's zeroed data follows its file's last page.
            program_end = 0;
        } else if map.start <= here && here < map.end {
            // What lies below was used on the way here.
            let unused = (here - (64 << 10)) & !0xfff;
            if unused > map.start {
                // SAFETY: below the stack pointer and its red zone nothing is alive.
                unsafe {
                    libc::syscall(libc::SYS_madvise, map.start, unused - map.start, libc::MADV_DONTNEED)
                };
            }
        } else if map.anonymous {
            // SAFETY: from here on this process uses its stack and its program only: `keep_house` makes system
            // calls with locals, and never returns.
            unsafe { libc::syscall(libc::SYS_munmap, map.start, map.end - map.start) };
        }
    }
}

/// A line of `/proc/self/maps`.
struct Map {
    start: usize,
    end: usize,
    file: bool,
    anonymous: bool,
}

impl Map {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let range = words.next()?;
        let dash = range.iter().position(|byte| *byte == b'-')?;
        let name = words.nth(4).unwrap_or_default();
        Some(Self {
            start: hex(&range[..dash])?,
            end: hex(&range[dash + 1..])?,
            file: name.first() == Some(&b'/'),
            anonymous: name.is_empty() || name == b"[heap]" || name.starts_with(b"[anon"),
        })
    }
}

fn hex(digits: &[u8]) -> Option<usize> {
    digits
        .iter()
        .try_fold(0usize, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)? as usize))
}
