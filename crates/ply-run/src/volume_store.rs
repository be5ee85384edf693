//! Volumes on disk: `data/volumes/<app>/<name>.<n>/`, one a slot, or `<name>.shared/`. A new one starts with what
//! the image has at its path. They survive everything but an explicit removal, and one in use is never removed:
//! who uses one holds a shared lock beside it.

use crate::RunError;
use crate::files::{LockFile, SharedLock, make_dir};
use crate::user::User;
use crate::volume_files::{give, seed};
use crate::volumes::PlannedVolume;
use ply_image::{Dirs, LayerStack};
use ply_manifest::RunName;
use ply_sandbox::{Ids, in_user_namespace, remove_all};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A volume that is ready for a slot.
#[derive(Debug)]
pub(crate) struct Ready {
    /// Its folder.
    pub(crate) path: PathBuf,
    /// What is to be said loudly.
    pub(crate) warning: Option<String>,
    /// Keeps it from being removed.
    pub(crate) lock: SharedLock,
}

fn folder(dirs: &Dirs, app: &str) -> PathBuf {
    dirs.data.join("volumes").join(app)
}

fn lock_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.lock"))
}

fn ephemeral_mark(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.ephemeral"))
}

/// Makes a volume ready for `slot`: new ones are seeded from the image; with `user`, all of it is the user's.
pub(crate) fn prepare(
    dirs: &Dirs,
    app: &RunName,
    volume: &PlannedVolume,
    slot: u32,
    user: Option<&User>,
    ids: &Ids,
    stack: &dyn Fn() -> Result<LayerStack, RunError>,
) -> Result<Ready, RunError> {
    let dir = folder(dirs, app.as_str());
    make_dir(&dir)?;
    let name = volume.folder(slot);
    let lock = SharedLock::take(&lock_path(&dir, &name))?;
    if volume.ephemeral {
        crate::files::write_whole(&ephemeral_mark(&dir, &name), b"", false)?;
    }
    let path = dir.join(&name);
    let new = !path.exists();
    let owner = user.map(|u| (u.uid, u.gid));
    if new {
        let stack = stack()?;
        let temp = dir.join(format!(".{name}.new-{}", std::process::id()));
        let inside = volume.path.clone();
        let (work, target) = (temp.clone(), path.clone());
        let seeded: Result<(), String> = in_user_namespace(ids, move || {
            let place = || match std::fs::rename(&work, &target) {
                // Another slot of a shared volume was first.
                Err(_) if target.exists() => std::fs::remove_dir_all(&work),
                other => other,
            };
            let made = seed(&stack, &inside, &work, owner).and_then(|()| place().map_err(|e| e.to_string()));
            made.inspect_err(|_| drop(std::fs::remove_dir_all(&work)))
        })
        .map_err(RunError::from_launch)?;
        seeded.map_err(|why| RunError::plain(format!("the volume {} can't be made: {why}", volume.name)))?;
    } else if let Some((uid, gid)) = owner {
        let (work, shown) = (path.clone(), volume.name.clone());
        let outside = outside(ids, uid, gid);
        let is_theirs = std::fs::metadata(&path).is_ok_and(|m| Some((m.uid(), m.gid())) == outside);
        if !is_theirs {
            let owned: Result<(), String> =
                in_user_namespace(ids, move || give(&work, uid, gid).map_err(|e| e.to_string()))
                    .map_err(RunError::from_launch)?;
            owned.map_err(|why| {
                RunError::plain(format!("the volume {shown} can't be given to its user: {why}"))
            })?;
        }
    }
    let warning = (new && slot > 1 && !volume.shared)
        .then(|| dir.join(volume.folder(1)))
        .filter(|first| std::fs::read_dir(first).is_ok_and(|mut d| d.next().is_some()))
        .filter(|first| older_than_this_run(first))
        .map(|_| {
            format!(
                "{app}.{slot} starts on a new, empty volume {name:?}, while {app}.1 holds data in its own: \
                 slots don't share it unless the manifest says scope = \"shared\"",
                name = volume.name
            )
        });
    Ok(Ready { path, warning, lock })
}

/// Whether a folder was there before this process began: what this run has just made holds nobody's data.
fn older_than_this_run(path: &Path) -> bool {
    let started = std::fs::metadata("/proc/self").and_then(|m| m.modified());
    match (std::fs::metadata(path).and_then(|m| m.created()), started) {
        (Ok(made), Ok(started)) => made < started,
        _ => true,
    }
}

/// The ids on disk of a user inside, as this process sees them.
fn outside(ids: &Ids, uid: u32, gid: u32) -> Option<(u32, u32)> {
    let map = |id: u32, own: u32, ranges: &[(u32, u32)]| {
        if id == 0 {
            return Some(own);
        }
        let mut left = id - 1;
        for (start, count) in ranges {
            if left < *count {
                return Some(start + left);
            }
            left -= count;
        }
        None
    };
    match ids {
        Ids::Rootless { uid: own, gid: own_group, sub_uids, sub_gids } => {
            Some((map(uid, *own, sub_uids)?, map(gid, *own_group, sub_gids)?))
        }
        _ => Some((uid, gid)),
    }
}

/// One volume on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VolumeRow {
    /// The app.
    pub app: String,
    /// Its name.
    pub name: String,
    /// The slot; null where all slots share it.
    pub slot: Option<u32>,
    /// Its folder.
    pub path: PathBuf,
    /// Whether an app runs on it.
    pub in_use: bool,
    /// Whether `ply gc` may take it.
    pub ephemeral: bool,
    /// Whether the app is neither installed nor running.
    pub orphan: bool,
}

impl VolumeRow {
    /// `APP/NAME.N` or `APP/NAME.shared`: how `ply volume rm` names it.
    pub fn id(&self) -> String {
        match self.slot {
            Some(slot) => format!("{}/{}.{slot}", self.app, self.name),
            None => format!("{}/{}.shared", self.app, self.name),
        }
    }
}

/// Every volume, by app, name and slot.
pub fn volumes(dirs: &Dirs) -> Result<Vec<VolumeRow>, RunError> {
    let known: BTreeSet<String> = crate::installed::all_installed(dirs)?
        .into_iter()
        .map(|i| i.app.to_string())
        .chain(crate::state::instances(dirs)?.into_iter().map(|s| s.app.to_string()))
        .collect();
    let mut rows = Vec::new();
    let Ok(apps) = std::fs::read_dir(dirs.data.join("volumes")) else { return Ok(rows) };
    for app in apps.flatten() {
        let Ok(app_name) = app.file_name().into_string() else { continue };
        let Ok(entries) = std::fs::read_dir(app.path()) else { continue };
        for entry in entries.flatten() {
            let Ok(file) = entry.file_name().into_string() else { continue };
            let Some((name, slot)) = file.rsplit_once('.').filter(|(name, _)| !name.is_empty()) else {
                continue;
            };
            let slot = match slot {
                "shared" => None,
                n => match n.parse() {
                    Ok(n) => Some(n),
                    Err(_) => continue,
                },
            };
            if file.starts_with('.') || !entry.file_type().is_ok_and(|t| t.is_dir()) {
                continue;
            }
            rows.push(VolumeRow {
                in_use: matches!(LockFile::try_take(&lock_path(&app.path(), &file)), Ok(Err(_))),
                ephemeral: ephemeral_mark(&app.path(), &file).exists(),
                orphan: !known.contains(&app_name),
                app: app_name.clone(),
                name: name.to_owned(),
                slot,
                path: entry.path(),
            });
        }
    }
    rows.sort_by(|a, b| (&a.app, &a.name, a.slot).cmp(&(&b.app, &b.name, b.slot)));
    Ok(rows)
}

/// Which volumes to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeChoice {
    /// `APP`, `APP/NAME`, `APP/NAME.N` or `APP/NAME.shared`.
    Named(String),
    /// Those of apps that are neither installed nor running.
    Orphans,
}

/// Removes volumes, and gives those that are gone. One in use is an error before anything is removed.
pub fn remove_volumes(dirs: &Dirs, ids: &Ids, choice: &VolumeChoice) -> Result<Vec<VolumeRow>, RunError> {
    let all = volumes(dirs)?;
    let chosen: Vec<VolumeRow> = match choice {
        VolumeChoice::Orphans => all.into_iter().filter(|v| v.orphan && !v.in_use).collect(),
        VolumeChoice::Named(wanted) => {
            let is_it = |v: &VolumeRow| {
                *wanted == v.app || *wanted == format!("{}/{}", v.app, v.name) || *wanted == v.id()
            };
            let chosen: Vec<VolumeRow> = all.iter().filter(|v| is_it(v)).cloned().collect();
            if chosen.is_empty() {
                let names: Vec<String> = match wanted.split_once('/') {
                    // Each part for itself: a slip in the app's name is not outweighed by the rest.
                    Some((app, name)) => {
                        let app =
                            ply_manifest::nearest(app, all.iter().map(|v| v.app.as_str())).unwrap_or(app);
                        let own = |v: &&VolumeRow| v.app == app;
                        let exact = all.iter().filter(own).find(|v| v.id() == format!("{app}/{name}"));
                        let others = all.iter().filter(own).map(VolumeRow::id).collect();
                        exact.map_or(others, |v| vec![v.id()])
                    }
                    None => all.iter().map(|v| v.app.clone()).collect(),
                };
                let near = ply_manifest::nearest(wanted, names.iter().map(String::as_str));
                return Err(RunError::refused(
                    format!("there is no volume {wanted}"),
                    near.map_or("ply volume ls lists them".to_owned(), |n| format!("did you mean {n:?}?")),
                ));
            }
            chosen
        }
    };
    let mut locks = Vec::new();
    for volume in &chosen {
        let dir = folder(dirs, &volume.app);
        let file = volume.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match LockFile::try_take(&lock_path(&dir, &file))? {
            Ok(lock) => locks.push(lock),
            Err(_) => {
                return Err(RunError::refused(
                    format!("the volume {} is in use", volume.id()),
                    format!("stop the app first: ply stop {}", volume.app),
                ));
            }
        }
    }
    for volume in &chosen {
        let dir = folder(dirs, &volume.app);
        let file = volume.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Out of the way first: half a volume never passes for one.
        let gone = dir.join(format!(".{file}.gone-{}", std::process::id()));
        std::fs::rename(&volume.path, &gone).map_err(RunError::io("can't remove", &volume.path))?;
        remove_all(ids, &gone).map_err(RunError::from_launch)?;
        let _ = std::fs::remove_file(ephemeral_mark(&dir, &file));
        drop(locks.pop());
        let _ = std::fs::remove_dir(&dir);
    }
    Ok(chosen)
}

/// Whether a name in a volumes folder is a leftover of a killed process; for `ply gc`.
pub fn leftovers(dirs: &Dirs) -> Vec<PathBuf> {
    let Ok(apps) = std::fs::read_dir(dirs.data.join("volumes")) else { return Vec::new() };
    let entries = apps.flatten().filter_map(|a| std::fs::read_dir(a.path()).ok()).flatten().flatten();
    let is_leftover = |name: &OsStr| {
        let text = String::from_utf8_lossy(name.as_bytes()).into_owned();
        let maker = [".new-", ".gone-"].iter().find_map(|mark| text.rsplit_once(mark)?.1.parse::<u32>().ok());
        text.starts_with('.') && maker.is_some_and(|pid| crate::files::start_time(pid).is_none())
    };
    let mut found: Vec<PathBuf> = entries.filter(|e| is_leftover(&e.file_name())).map(|e| e.path()).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::dirs;

    fn make(dirs: &Dirs, app: &str, name: &str) -> PathBuf {
        let path = folder(dirs, app).join(name);
        std::fs::create_dir_all(path.join("deep")).unwrap();
        path
    }

    fn here() -> Ids {
        Ids::Host
    }

    #[test]
    fn volumes_are_listed_and_removed_by_name_but_never_in_use() {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(root.path());
        for (app, name) in [("web", "data.1"), ("web", "data.2"), ("web", "up.shared"), ("old", "x.1")] {
            make(&dirs, app, name);
        }
        make(&dirs, "web", ".data.9.new-1");
        let lock = SharedLock::take(&lock_path(&folder(&dirs, "web"), "data.2")).unwrap();
        let ids = |rows: &[VolumeRow]| rows.iter().map(VolumeRow::id).collect::<Vec<_>>();
        let rows = volumes(&dirs).unwrap();
        assert_eq!(ids(&rows), ["old/x.1", "web/data.1", "web/data.2", "web/up.shared"]);
        assert_eq!(rows.iter().map(|r| r.in_use).collect::<Vec<_>>(), [false, false, true, false]);
        let remove = |name: &str| remove_volumes(&dirs, &here(), &VolumeChoice::Named(name.to_owned()));
        assert_eq!(remove("web/data").unwrap_err().to_string(), "the volume web/data.2 is in use");
        assert_eq!(volumes(&dirs).unwrap().len(), 4);
        assert_eq!(ids(&remove("web/data.1").unwrap()), ["web/data.1"]);
        drop(lock);
        assert_eq!(ids(&remove("web").unwrap()), ["web/data.2", "web/up.shared"]);
        let error = remove("old/y.1").unwrap_err();
        assert_eq!(error.to_string(), "there is no volume old/y.1");
        let gone = remove_volumes(&dirs, &here(), &VolumeChoice::Orphans).unwrap();
        assert_eq!(ids(&gone), ["old/x.1"]);
        assert!(volumes(&dirs).unwrap().is_empty());
    }

    #[test]
    fn ids_on_disk_follow_the_map() {
        let rootless = Ids::Rootless {
            uid: 1000,
            gid: 1001,
            sub_uids: vec![(100_000, 10), (500_000, 10)],
            sub_gids: vec![(7000, 65536)],
        };
        assert_eq!(outside(&rootless, 0, 0), Some((1000, 1001)));
        assert_eq!(outside(&rootless, 1, 1), Some((100_000, 7000)));
        assert_eq!(outside(&rootless, 11, 100), Some((500_000, 7099)));
        assert_eq!(outside(&rootless, 21, 1), None);
        assert_eq!(outside(&Ids::Leased { start: 9, count: 9 }, 5, 6), Some((5, 6)));
    }
}
