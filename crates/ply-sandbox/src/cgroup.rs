//! A box's cgroup: made before the process, left only when it is empty. On v2 every limit, on v1 the pids
//! controller; what isn't enforced is [`crate::Host::notices`]'s to say.
//!
//! A folder is named after the box and after who made it (pid and start time), so that the next ply knows
//! which ones nobody will remove any more.

use crate::defences::{Defence, stands};
use crate::{CgroupKind, Enforced, Host, LaunchError, Limits, Step, place};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The cgroups of one box; removed on drop, for which they must be empty.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    /// The v2 folder, open, to be cloned into.
    pub(crate) unified: Option<OwnedFd>,
    /// All folders, v2 first.
    pub(crate) folders: Vec<PathBuf>,
}

impl Cgroups {
    /// Makes the folders and sets the limits.
    pub(crate) fn make(host: &Host, parent: &Path, id: &str, limits: &Limits) -> Result<Self, LaunchError> {
        let name = format!("{id}.{}", Owner::me());
        let mut made = Self::default();
        let (unified, pids_v1) = match &host.cgroup {
            CgroupKind::V2 { mount } => (Some(mount), None),
            CgroupKind::V1 { pids, unified } => (unified.as_ref(), pids.as_ref()),
            CgroupKind::None => (None, None),
        };
        let wrong = |source| LaunchError::Step { step: Step::Cgroup, source };
        if let Some(mount) = unified.filter(|_| host.cgroup_writable) {
            let folder = made.folder(mount, parent, &name, true).map_err(wrong)?;
            if matches!(host.cgroup, CgroupKind::V2 { .. }) && stands(Defence::CgroupLimits) {
                set_v2(&folder, host.enforced, limits).map_err(wrong)?;
            }
            made.unified = Some(fs::File::open(&folder).map_err(wrong)?.into());
        }
        if let Some(mount) = pids_v1.filter(|_| host.enforced.pids && stands(Defence::CgroupLimits)) {
            let folder = made.folder(mount, parent, &name, false).map_err(wrong)?;
            fs::write(folder.join("pids.max"), limits.pids.to_string()).map_err(wrong)?;
        }
        Ok(made)
    }

    /// Makes a folder (and its parents, with the controllers passed down) and remembers it.
    fn folder(&mut self, mount: &Path, parent: &Path, name: &str, unified: bool) -> io::Result<PathBuf> {
        let folder = mount.join(parent).join(name);
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match unified {
                    true => place::make(mount, parent)?,
                    false => fs::create_dir_all(mount.join(parent))?,
                }
                fs::create_dir(&folder)?;
            }
            other => other?,
        }
        self.folders.push(folder.clone());
        Ok(folder)
    }

    /// Changes the limits of a box that runs. Limits that the host doesn't enforce are passed over here, as at the
    /// start; [`Host::notices`] said so.
    pub(crate) fn set(&self, limits: &Limits) -> io::Result<()> {
        for (at, folder) in self.folders.iter().enumerate() {
            match at == 0 && self.unified.is_some() {
                true => set_v2(folder, place::controllers(folder, "cgroup.controllers"), limits)?,
                false => fs::write(folder.join("pids.max"), limits.pids.to_string())?,
            }
        }
        Ok(())
    }

    /// The door of the v1 folder, for the box's first process to go through by itself; on v2 it was born inside.
    /// A thread that moves itself by `tasks` takes no lock; moving another by `cgroup.procs` waits for every
    /// processor of the machine (5 to 17 ms, measured).
    pub(crate) fn door_v1(&self) -> io::Result<Option<OwnedFd>> {
        let skip = usize::from(self.unified.is_some());
        let Some(folder) = self.folders.get(skip) else { return Ok(None) };
        Ok(Some(fs::OpenOptions::new().write(true).open(folder.join("tasks"))?.into()))
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        remove(&self.folders);
    }
}

/// Removes a box's cgroups once nothing runs there. The kernel may need a moment after the last exit.
pub(crate) fn remove(folders: &[PathBuf]) {
    for folder in folders {
        for wait_ms in [0, 1, 2, 5, 10, 20, 50] {
            std::thread::sleep(Duration::from_millis(wait_ms));
            match fs::remove_dir(folder) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                _ => break,
            }
        }
    }
}

/// Writes the limits into a v2 folder; a limit that isn't asked for is lifted.
fn set_v2(folder: &Path, enforced: Enforced, limits: &Limits) -> io::Result<()> {
    let set = |file: &str, value: &str| fs::write(folder.join(file), value);
    if enforced.pids {
        set("pids.max", &limits.pids.to_string())?;
    }
    if enforced.memory {
        // Reclaim starts a little early. Only a little: past it the kernel slows every allocation down by the
        // square of the excess, and a leak is to meet the OOM killer within seconds, not to crawl towards it.
        let high = limits.memory.map(|bytes| bytes - (bytes / 64).min(64 << 20));
        let text = |bytes: Option<u64>| bytes.map_or_else(|| "max".into(), |bytes| bytes.to_string());
        // Where the kernel has no swap accounting the file isn't there.
        let _ = set("memory.swap.max", if limits.memory.is_some() { "0" } else { "max" });
        set("memory.oom.group", if limits.memory.is_some() { "1" } else { "0" })?;
        // Lowered, the first of the two reclaims what is too much before the second would kill for it.
        set("memory.high", &text(high))?;
        set("memory.max", &text(limits.memory))?;
    }
    if enforced.cpu {
        let quota =
            limits.cpu_millis.map_or_else(|| "max".into(), |millis| (u64::from(millis) * 100).to_string());
        set("cpu.max", &format!("{quota} 100000"))?;
    }
    Ok(())
}

/// Who made something on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pid: i32,
    start_time: u64,
}

impl Owner {
    pub(crate) fn me() -> Self {
        let pid = std::process::id() as i32;
        Self { pid, start_time: crate::instance::start_time(pid).unwrap_or(0) }
    }

    /// Of a folder's name, `<id>.<pid>-<start time>`.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let (pid, start_time) = name.rsplit_once('.')?.1.split_once('-')?;
        Some(Self { pid: pid.parse().ok()?, start_time: start_time.parse().ok()? })
    }

    pub(crate) fn lives(self) -> bool {
        crate::instance::start_time(self.pid) == Some(self.start_time)
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.pid, self.start_time)
    }
}

/// Removes the cgroups whose maker is dead, below `parent` (empty: this host's place for them) in every hierarchy that
/// is used here; processes that somehow outlived it are killed first. Gives how many folders went.
///
/// # Errors
/// The system's, when a folder can't be listed.
pub fn sweep(host: &Host, parent: &Path) -> io::Result<usize> {
    let parent = if parent.as_os_str().is_empty() { host.cgroup_place.to_sweep() } else { parent };
    let mounts = match &host.cgroup {
        CgroupKind::V2 { mount } => vec![mount],
        CgroupKind::V1 { pids, unified } => pids.iter().chain(unified).collect(),
        CgroupKind::None => Vec::new(),
    };
    let mut removed = 0;
    for mount in mounts {
        let entries = match fs::read_dir(mount.join(parent)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some(owner) = name.to_str().and_then(Owner::of) else { continue };
            if owner.lives() {
                continue;
            }
            let folder = entry.path();
            let _ = fs::write(folder.join("cgroup.kill"), "1");
            remove(std::slice::from_ref(&folder));
            removed += usize::from(!folder.exists());
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_reads_back_from_a_folders_name() {
        for (name, owner) in [
            ("web-1.123-456", Some(Owner { pid: 123, start_time: 456 })),
            ("a.b.7-8", Some(Owner { pid: 7, start_time: 8 })),
            ("web-1", None),
            ("web.1", None),
            ("x.-5", None),
        ] {
            assert_eq!(Owner::of(name), owner, "{name}");
        }
        assert!(Owner::me().lives());
        assert!(!Owner { start_time: 1, ..Owner::me() }.lives());
    }
}
