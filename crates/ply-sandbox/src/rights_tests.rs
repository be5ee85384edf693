//! Whether the stub can be looked into on its way to the app. It needs root: `tools/world cargo nextest run -p ply-sandbox`.

use super::{ambient, capset};
use crate::sys::{self, check};
use rustix::fs::{Gid, Uid};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// CAP_DAC_OVERRIDE, which reads any file of an id that the namespace maps.
const DAC_OVERRIDE: u64 = 1 << 1;

/// Who owns the files in `/proc` of a process that has just executed the stub as user 1000 with CAP_DAC_OVERRIDE: the
/// user where it is dumpable, root where it isn't (proc(5)). And what it then has in effect.
fn owner_after_exec(effective: u64) -> (u32, String) {
    let stub = crate::stub::file().unwrap();
    let (argv, envp) = ([c"stub".as_ptr(), c"/none".as_ptr(), std::ptr::null()], [std::ptr::null::<u8>()]);
    // SAFETY: the child makes system calls only, and never returns.
    let pid = check(i64::from(unsafe { libc::fork() })).unwrap() as i32;
    if pid == 0 {
        let start = || -> sys::Sys<()> {
            let user = (Uid::from_raw(1000), Gid::from_raw(1000));
            rustix::thread::set_keep_capabilities(true)?;
            rustix::thread::set_thread_res_gid(user.1, user.1, user.1)?;
            rustix::thread::set_thread_res_uid(user.0, user.0, user.0)?;
            capset(DAC_OVERRIDE, DAC_OVERRIDE, DAC_OVERRIDE)?;
            ambient(DAC_OVERRIDE)?;
            // SAFETY: no memory is passed; from here the parent is told of the exec.
            check(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) })?;
            capset(effective, DAC_OVERRIDE, DAC_OVERRIDE)?;
            // SAFETY: both arrays end with a null and live until the exec.
            check(unsafe {
                libc::syscall(
                    libc::SYS_execveat,
                    stub.as_raw_fd(),
                    c"".as_ptr(),
                    argv.as_ptr(),
                    envp.as_ptr(),
                    libc::AT_EMPTY_PATH,
                )
            })
            .map(drop)
        };
        let _ = start();
        sys::exit_now(99);
    }
    let mut status = 0;
    // SAFETY: the number outlives the call.
    check(i64::from(unsafe { libc::waitpid(pid, &raw mut status, 0) })).unwrap();
    assert!(libc::WIFSTOPPED(status), "it ended with {status:#x} before the stub ran");
    let owner = std::fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid();
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let now = text.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim().to_owned();
    // SAFETY: it is our child, and not reaped yet.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, &raw mut status, 0);
    }
    (owner, now)
}

#[test]
fn root_the_stub_is_not_dumpable_for_one_who_may_read_everything() {
    assert_eq!(owner_after_exec(0), (0, "0000000000000002".to_owned()));
    // Without the precaution it would be: this is what it is for.
    assert_eq!(owner_after_exec(DAC_OVERRIDE), (1000, "0000000000000002".to_owned()));
}
