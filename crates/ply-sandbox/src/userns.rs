//! User namespaces: their maps, and work done as the rootless caller's mapped root. Files that belong to a
//! caller's delegated ids can only be made, changed and removed from inside such a namespace.

use crate::error::Step;
use crate::instance::Born;
use crate::sys::{self, Side, check};
use crate::wire::At;
use crate::{Host, Ids, LaunchError};
use rustix::io::Errno;
use serde::{Serialize, de::DeserializeOwned};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Writes the maps of a process that was just cloned into its own user namespace (user_namespaces(7)).
pub(crate) fn write_maps(pid: i32, ids: &Ids, host: &Host) -> Result<(), LaunchError> {
    match ids {
        Ids::Host => Ok(()),
        Ids::Leased { start, count } => {
            let line = format!("0 {start} {count}");
            write_files(pid, &line, &line, true)
        }
        Ids::Rootless { uid, gid, sub_uids, sub_gids } => {
            let maps = (Map::new(*uid, sub_uids), Map::new(*gid, sub_gids));
            rootless_maps(pid, maps, (host.newuidmap.as_deref(), host.newgidmap.as_deref()))
        }
    }
}

fn write_files(pid: i32, uids: &str, gids: &str, groups: bool) -> Result<(), LaunchError> {
    let write = |file: &str, text: &str| {
        fs::write(format!("/proc/{pid}/{file}"), text)
            .map_err(|source| LaunchError::Step { step: Step::Maps, source })
    };
    if !groups {
        write("setgroups", "deny")?;
    }
    write("uid_map", uids)?;
    write("gid_map", gids)
}

/// The caller as root, its delegated ranges as 1 and up: `(inside, outside, count)`.
struct Map(Vec<(u32, u32, u32)>);

impl Map {
    fn new(caller: u32, ranges: &[(u32, u32)]) -> Self {
        let mut lines = vec![(0, caller, 1)];
        let mut next = 1u32;
        for (start, count) in ranges {
            let count = (*count).min(u32::MAX - 1 - next);
            lines.push((next, *start, count));
            next += count;
        }
        Self(lines)
    }

    fn text(&self) -> String {
        self.0.iter().map(|(inside, outside, count)| format!("{inside} {outside} {count}\n")).collect()
    }

    /// `newuidmap PID INSIDE OUTSIDE COUNT…` (newuidmap(1)). Only numbers go in, of which none reads as an option
    /// (CVE-2024-32462); nothing of the environment does (CVE-2021-21261).
    fn command(&self, helper: &Path, pid: i32) -> Command {
        let mut command = Command::new(helper);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.arg(pid.to_string());
        for (inside, outside, count) in &self.0 {
            command.args([inside.to_string(), outside.to_string(), count.to_string()]);
        }
        command
    }
}

fn rootless_maps(
    pid: i32,
    (uids, gids): (Map, Map),
    helpers: (Option<&Path>, Option<&Path>),
) -> Result<(), LaunchError> {
    if uids.0.len() == 1 || gids.0.len() == 1 {
        return write_files(pid, &uids.text(), &gids.text(), false);
    }
    let (Some(newuidmap), Some(newgidmap)) = helpers else {
        return Err(LaunchError::Host {
            missing: "newuidmap and newgidmap aren't installed".into(),
            hint: "install the package uidmap (shadow-utils)".into(),
        });
    };
    let step = |source| LaunchError::Step { step: Step::Helper, source };
    // Both at once: each costs a fork and an exec.
    let first = uids.command(newuidmap, pid).spawn().map_err(step)?;
    let second = gids.command(newgidmap, pid).spawn();
    let first = first.wait_with_output();
    let second = second.and_then(std::process::Child::wait_with_output);
    for output in [first, second] {
        let output = output.map_err(step)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            return Err(step(io::Error::other(said)));
        }
    }
    Ok(())
}

/// A process's user namespace, if it has one of its own.
pub(crate) fn of_process(pid: i32, ids: &Ids) -> Result<Option<OwnedFd>, LaunchError> {
    if matches!(ids, Ids::Host) {
        return Ok(None);
    }
    match File::open(format!("/proc/{pid}/ns/user")) {
        Ok(file) => Ok(Some(file.into())),
        Err(source) => Err(LaunchError::Step { step: Step::Maps, source }),
    }
}

/// A user namespace with these maps and nobody in it, to id-map a mount with.
pub(crate) fn mapped(uids: &str, gids: &str) -> Result<OwnedFd, LaunchError> {
    // SAFETY: the child makes two system calls and never returns.
    let born = match unsafe { sys::clone3(libc::CLONE_NEWUSER as u64, None) }.at(Step::Clone)? {
        Side::Child => {
            let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
            loop {
                // SAFETY: no memory is passed.
                unsafe { libc::pause() };
            }
        }
        Side::Parent { pid, pidfd } => Born { pid, pidfd },
    };
    write_files(born.pid, uids, gids, true)?;
    let namespace = of_process(born.pid, &Ids::Leased { start: 0, count: 0 })?;
    namespace.ok_or_else(|| LaunchError::Step { step: Step::Maps, source: Errno::NOENT.into() })
}

/// Runs `work` where the ids of `ids` are real: rootless in a forked child in a mapped user namespace, as its
/// root, with all capabilities there; rootful right here. What it gives comes back as JSON.
///
/// Other threads don't exist in the child: `work` must not wait for one, nor use what one may have locked.
///
/// # Errors
/// The namespace's, and a child that died.
pub fn in_user_namespace<T: Serialize + DeserializeOwned>(
    ids: &Ids,
    work: impl FnOnce() -> T,
) -> Result<T, LaunchError> {
    let Ids::Rootless { uid, gid, sub_uids, sub_gids } = ids else { return Ok(work()) };
    let step = |step| move |source: io::Error| LaunchError::Step { step, source };
    let maps = (Map::new(*uid, sub_uids), Map::new(*gid, sub_gids));
    let (answer, answering) = io::pipe().map_err(step(Step::Talk))?;
    let (ready, preparing) = io::pipe().map_err(step(Step::Talk))?;
    let (mapped, mapping) = io::pipe().map_err(step(Step::Talk))?;
    // SAFETY: the C library's fork leaves its allocator usable in the child, which is what `work` needs.
    let pid = check(i64::from(unsafe { libc::fork() })).at(Step::Fork)?;
    if pid == 0 {
        drop((answer, ready, mapping));
        let run = move || -> io::Result<()> {
            // Whoever kills the caller means this too.
            let parent = Some(rustix::process::Signal::KILL);
            rustix::process::set_parent_process_death_signal(parent)?;
            sys::unshare(libc::CLONE_NEWUSER)?;
            drop(preparing);
            let mut word = [0];
            { mapped }.read_exact(&mut word)?;
            let (uid, gid) = (rustix::fs::Uid::ROOT, rustix::fs::Gid::ROOT);
            if word[0] == b'g' {
                rustix::thread::set_thread_groups(&[])?;
            }
            rustix::thread::set_thread_res_gid(gid, gid, gid)?;
            rustix::thread::set_thread_res_uid(uid, uid, uid)?;
            rustix::process::set_parent_process_death_signal(parent)?;
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let result = result.map_err(|_| io::Error::other("panicked"))?;
            serde_json::to_writer(answering, &result).map_err(io::Error::from)
        };
        let code = match run() {
            Ok(()) => 0,
            Err(_) => 125,
        };
        sys::exit_now(code);
    }
    drop((answering, preparing, mapped));
    let pid = pid as i32;
    let pidfd = rustix::process::pidfd_open(
        rustix::process::Pid::from_raw(pid).ok_or(LaunchError::Gone(pid.to_string()))?,
        rustix::process::PidfdFlags::empty(),
    )
    .at(Step::Fork)?;
    let born = Born { pid, pidfd };
    // Its end is closed when the namespace is there, or when the child is gone.
    { ready }.read_to_end(&mut Vec::new()).map_err(step(Step::Talk))?;
    let helpers = (find("newuidmap"), find("newgidmap"));
    let whole = maps.0.0.len() > 1 && maps.1.0.len() > 1;
    rootless_maps(pid, maps, (helpers.0.as_deref(), helpers.1.as_deref()))?;
    io::Write::write_all(&mut { mapping }, if whole { b"g" } else { b"-" }).map_err(step(Step::Talk))?;
    let mut text = Vec::new();
    { answer }.read_to_end(&mut text).map_err(step(Step::Talk))?;
    let exit = born.finish().map_err(step(Step::Talk))?;
    serde_json::from_slice(&text).map_err(|_| LaunchError::Step {
        step: Step::Talk,
        source: io::Error::other(format!("the helper process ended with {}", exit.code())),
    })
}

fn find(helper: &str) -> Option<PathBuf> {
    crate::host::find(helper)
}

/// Removes a folder and all in it, also where files belong to delegated ids. What isn't there is no error, and
/// no link is followed.
///
/// # Errors
/// The system's.
pub fn remove_all(ids: &Ids, path: &Path) -> Result<(), LaunchError> {
    let remove = || match fs::symlink_metadata(path) {
        Ok(is) if is.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    // Most folders are the caller's own, and need no namespace.
    let result = match remove() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            in_user_namespace(ids, || remove().map_err(|error| error.raw_os_error()))?
                .map_err(|code| code.map_or(io::ErrorKind::Other.into(), io::Error::from_raw_os_error))
        }
        other => other,
    };
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(LaunchError::Source { path: path.to_path_buf(), source: error })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_root_and_its_ranges_follow() {
        let map = Map::new(1000, &[(100_000, 10), (200_000, 5)]);
        assert_eq!(map.text(), "0 1000 1\n1 100000 10\n11 200000 5\n");
        assert_eq!(Map::new(7, &[]).text(), "0 7 1\n");
    }
}
