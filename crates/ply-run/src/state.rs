//! What runs now: one file an instance, `run/state/<app>.<n>.json`, written whole by its run parent. A pid alone
//! is no identity: with its start time it is. Files of dead parents are swept by the next ply.

use crate::files::{make_dir, read_json, start_time, write_json};
use crate::plan::PlannedLimits;
use crate::{RunError, journal};
use ply_image::Dirs;
use ply_manifest::{Digest, ImageName, RunName};
use ply_sandbox::{ExecTarget, ProcessId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where an instance is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Its box is being made.
    Starting,
    /// Its process runs.
    Running,
    /// It was asked to stop.
    Stopping,
    /// It has ended, and is started again after a pause.
    Waiting,
    /// It has ended for good; its run parent still serves others.
    Exited,
}

impl Status {
    /// The word in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Waiting => "waiting",
            Self::Exited => "exited",
        }
    }
}

/// One instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceState {
    /// The app.
    pub app: RunName,
    /// The slot, from 1.
    pub slot: u32,
    /// The image.
    pub image: ImageName,
    /// Its digest.
    pub digest: Digest,
    /// Digests of every layer, the app's own first.
    pub layers: Vec<Digest>,
    /// The run parent.
    pub parent: ProcessId,
    /// Where it is in its life.
    pub status: Status,
    /// Milliseconds since 1970 at which `status` began.
    pub since_ms: u64,
    /// How it ended, as a shell would show it.
    pub exit_code: Option<i32>,
    /// What ended it, where that isn't its own doing: `killed: out of memory (limit 64M)`.
    #[serde(default)]
    pub ended_by: Option<String>,
    /// The limits that hold for it now.
    #[serde(default)]
    pub limits: Option<PlannedLimits>,
    /// How often it was started again.
    pub restarts: u32,
    /// `healthy`, `unhealthy`, or none where nothing checks.
    pub health: Option<String>,
    /// Its own address, where it has one.
    pub address: Option<String>,
    /// What is published for it, as `ADDR:PORT:INSTANCE_PORT`.
    pub publish: Vec<String>,
    /// Host folders of its volumes.
    pub volumes: Vec<PathBuf>,
    /// What `ply exec` needs; none before it runs and after its end. Holds the environment, so the file is
    /// closed to others and this never reaches a listing.
    pub target: Option<ExecTarget>,
}

/// A row of `ply ps`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The app.
    pub name: RunName,
    /// The slot.
    pub slot: u32,
    /// `starting`, `running`, `stopping`, `waiting` or `exited`.
    pub status: Status,
    /// `healthy`, `unhealthy`, or null.
    pub health: Option<String>,
    /// Whole seconds in this status.
    pub uptime_s: u64,
    /// How often it was started again.
    pub restarts: u32,
    /// Its address, or null.
    pub address: Option<String>,
    /// What is published for it.
    pub publish: Vec<String>,
    /// The image's file name.
    pub image: ImageName,
    /// Its digest.
    pub digest: Digest,
    /// The app's process on the host, or null.
    pub pid: Option<i32>,
    /// The run parent's process.
    pub parent_pid: i32,
    /// How ids inside map to ids outside.
    pub ids: Option<ply_sandbox::Ids>,
    /// How it ended, or null.
    pub exit_code: Option<i32>,
    /// What ended it, where that isn't its own doing, or null.
    pub ended_by: Option<String>,
    /// Its limits.
    pub limits: Option<PlannedLimits>,
    /// Whether its run parent is of a ply that was replaced since.
    pub outdated: bool,
}

/// Whether the program that a process runs is no longer the file that it was started from. Not told of processes of
/// others.
fn outdated(process: ProcessId) -> bool {
    let program = std::fs::read_link(format!("/proc/{}/exe", process.pid));
    program.is_ok_and(|path| path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)"))
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

/// Whether the process still is the one that is meant.
pub(crate) fn alive(process: ProcessId) -> bool {
    u32::try_from(process.pid).ok().and_then(start_time) == Some(process.start_time)
}

/// This process.
pub(crate) fn this_process() -> ProcessId {
    let pid = std::process::id();
    ProcessId { pid: pid.cast_signed(), start_time: start_time(pid).unwrap_or(0) }
}

fn folder(dirs: &Dirs) -> PathBuf {
    dirs.run.join("state")
}

/// The state file of an instance.
fn file(dirs: &Dirs, app: &str, slot: u32) -> PathBuf {
    folder(dirs).join(format!("{app}.{slot}.json"))
}

/// Writes an instance's state.
pub(crate) fn save(dirs: &Dirs, state: &InstanceState) -> Result<(), RunError> {
    make_dir(&folder(dirs))?;
    write_json(&file(dirs, state.app.as_str(), state.slot), state, false)
}

/// Forgets an instance.
pub(crate) fn forget(dirs: &Dirs, app: &str, slot: u32) {
    let _ = std::fs::remove_file(file(dirs, app, slot));
}

/// Every instance whose run parent lives, by app and slot. A file that can't be read is passed over, unless
/// it is from a newer ply.
pub fn instances(dirs: &Dirs) -> Result<Vec<InstanceState>, RunError> {
    let mut found: BTreeMap<(RunName, u32), InstanceState> = BTreeMap::new();
    for path in state_files(dirs) {
        match read_json::<InstanceState>(&path) {
            Ok(Some(state)) if alive(state.parent) => {
                found.insert((state.app.clone(), state.slot), state);
            }
            Err(newer @ RunError::Newer { .. }) => return Err(newer),
            _ => {}
        }
    }
    Ok(found.into_values().collect())
}

fn state_files(dirs: &Dirs) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder(dirs)) else { return Vec::new() };
    let is_state = |p: &Path| {
        p.extension().is_some_and(|e| e == "json")
            && p.file_name().is_some_and(|n| !n.to_string_lossy().starts_with('.'))
    };
    entries.flatten().map(|e| e.path()).filter(|p| is_state(p)).collect()
}

/// The rows of `ply ps`, by app and slot.
pub fn ps(dirs: &Dirs) -> Result<Vec<Row>, RunError> {
    let now = now_ms();
    Ok(instances(dirs)?
        .into_iter()
        .map(|s| Row {
            pid: s.target.as_ref().map(|t| t.app.pid),
            ids: s.target.map(|t| t.ids),
            name: s.app,
            slot: s.slot,
            status: s.status,
            health: s.health,
            uptime_s: now.saturating_sub(s.since_ms) / 1000,
            restarts: s.restarts,
            address: s.address,
            publish: s.publish,
            image: s.image,
            digest: s.digest,
            parent_pid: s.parent.pid,
            exit_code: s.exit_code,
            ended_by: s.ended_by,
            limits: s.limits,
            outdated: outdated(s.parent),
        })
        .collect())
}

/// The images and layers that running instances use.
pub fn running_digests(dirs: &Dirs) -> Result<BTreeSet<Digest>, RunError> {
    Ok(instances(dirs)?.into_iter().flat_map(|s| s.layers).collect())
}

/// Takes away the state files of dead run parents, and has the journal say how their instances ended. Gives how many.
pub(crate) fn bury(dirs: &Dirs) -> usize {
    let mut buried = 0;
    for path in state_files(dirs) {
        if let Ok(Some(state)) = read_json::<InstanceState>(&path)
            && !alive(state.parent)
            // Whoever takes it away says it, so that it is said once.
            && std::fs::remove_file(&path).is_ok()
        {
            buried += 1;
            if !matches!(state.status, Status::Exited | Status::Waiting) {
                let detail = json!({"parent": state.parent.pid});
                journal::event(dirs, state.app.as_str(), Some(state.slot), "lost", detail);
            }
        }
    }
    buried
}

/// Takes away what dead run parents left: state files, id leases and empty cgroups. Gives how many instances
/// were swept.
pub fn sweep(dirs: &Dirs, host: &ply_sandbox::Host, cgroup_parent: &Path) -> usize {
    let swept = bury(dirs);
    // Also where no state file says so: a parent may have been killed before it wrote one.
    let _ = ply_sandbox::sweep(host, cgroup_parent);
    crate::lease::sweep(&dirs.run);
    for dir in [folder(dirs), dirs.run.join("ids")] {
        ply_image::sweep_pending(&dir);
    }
    swept
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn dirs(root: &Path) -> Dirs {
        Dirs { data: root.join("data"), run: root.join("run"), config: root.join("config") }
    }

    pub(crate) fn sample(app: &str, slot: u32, parent: ProcessId) -> InstanceState {
        InstanceState {
            app: app.parse().unwrap(),
            slot,
            image: "web-1.0.0-linux-x64.img".parse().unwrap(),
            digest: Digest::from_bytes([7; 32]),
            layers: vec![Digest::from_bytes([7; 32]), Digest::from_bytes([8; 32])],
            parent,
            status: Status::Running,
            since_ms: now_ms() - 5_500,
            exit_code: None,
            ended_by: None,
            limits: None,
            restarts: 0,
            health: None,
            address: None,
            publish: vec!["127.0.0.1:8080:3000".into()],
            volumes: vec![],
            target: None,
        }
    }

    #[test]
    fn only_instances_of_living_parents_are_listed_and_the_rest_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = dirs(dir.path());
        let me = this_process();
        save(&dirs, &sample("web", 2, me)).unwrap();
        save(&dirs, &sample("web", 10, me)).unwrap();
        save(&dirs, &sample("api", 1, me)).unwrap();
        let reused = ProcessId { start_time: me.start_time + 1, ..me };
        save(&dirs, &sample("old", 1, reused)).unwrap();
        std::fs::write(dirs.run.join("state/torn.1.json"), "{\"format\": 1, ").unwrap();
        let rows = ps(&dirs).unwrap();
        let names: Vec<_> = rows.iter().map(|r| format!("{}.{}", r.name, r.slot)).collect();
        assert_eq!(names, ["api.1", "web.2", "web.10"]);
        assert_eq!(rows[0].uptime_s, 5);
        assert_eq!(running_digests(&dirs).unwrap().len(), 2);
        assert_eq!(sweep(&dirs, &ply_sandbox::Host::probe(Path::new("ply-none")), Path::new("ply-none")), 1);
        assert!(!dirs.run.join("state/old.1.json").exists());
        std::fs::write(dirs.run.join("state/new.1.json"), "{\"format\": 2}").unwrap();
        assert!(matches!(ps(&dirs), Err(RunError::Newer { .. })));
    }
}
