//! Where the cgroups of this process's boxes go. The kernel lets a process give limits only below a folder that is
//! its own, and only where no process stands beside the folders of the boxes: so as a unit of systemd's ply moves
//! itself into a leaf of the delegated folder, a user's ply asks the user's systemd for such a folder (a process
//! can't move itself out of its login scope), and root without either takes `/sys/fs/cgroup/ply/`.

use crate::{CgroupKind, Enforced, Host, systemd};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Where the cgroups of this process's boxes go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupPlace {
    /// Below this folder of each hierarchy.
    Folder(PathBuf),
    /// Below this folder of v2, in which the process stands itself and which was delegated to it.
    Delegated(PathBuf),
    /// Below a scope that the user's systemd is still to be asked for.
    Scope,
}

/// Root's folder where nobody says another.
const BY_HAND: &str = "ply";
/// The leaf of a delegated folder in which its processes stand. The boxes' own names all have a dot.
const LEAF: &str = "parent";

impl CgroupPlace {
    /// The place that this host offers. `asked` is the caller's own wish, empty where it has none.
    pub(crate) fn find(kind: &CgroupKind, asked: &Path, root: bool, uid: u32) -> Self {
        if !asked.as_os_str().is_empty() {
            return Self::Folder(asked.to_path_buf());
        }
        let own = own().unwrap_or_default();
        match kind {
            CgroupKind::V2 { mount } => match delegated(mount, &own) {
                Some(folder) => Self::Delegated(folder),
                None if !root && systemd::is_there(uid) => Self::Scope,
                None => Self::Folder(BY_HAND.into()),
            },
            _ => Self::Folder(BY_HAND.into()),
        }
    }

    /// The folder whose controllers tell what can be enforced; it may not be there yet.
    pub(crate) fn folder(&self, uid: u32) -> PathBuf {
        match self {
            Self::Folder(folder) | Self::Delegated(folder) => folder.clone(),
            Self::Scope => format!("user.slice/user-{uid}.slice/user@{uid}.service").into(),
        }
    }

    /// Where dead processes' cgroups may lie; systemd takes those of its units and scopes away by itself.
    pub(crate) fn to_sweep(&self) -> &Path {
        match self {
            Self::Folder(folder) | Self::Delegated(folder) => folder,
            Self::Scope => Path::new(BY_HAND),
        }
    }
}

/// This process's own folder in the v2 hierarchy, relative to its mount; none where it lies outside of what is seen.
fn own() -> Option<PathBuf> {
    own_of(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
}

/// From `/proc/self/cgroup` (cgroups(7)).
fn own_of(text: &str) -> Option<PathBuf> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = PathBuf::from(path);
    path.components().all(|part| matches!(part, Component::Normal(_))).then_some(path)
}

/// The folder that was delegated to whoever stands in `own`: systemd marks it (systemd.resource-control(5), Delegate=).
fn delegated(mount: &Path, own: &Path) -> Option<PathBuf> {
    let own = match own.file_name() {
        Some(name) if name == LEAF => own.parent()?,
        _ => own,
    };
    let marked = |name: &str| {
        let mut value = [0; 8];
        let length = rustix::fs::getxattr(mount.join(own), name, &mut value).ok()?;
        (value.get(..length) == Some(b"1")).then_some(())
    };
    marked("user.delegate").or_else(|| marked("trusted.delegate"))?;
    writable(&mount.join(own)).then(|| own.to_path_buf())
}

/// Whether folders can be made in a cgroup and processes moved there.
pub(crate) fn writable(folder: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    ["cgroup.procs", "cgroup.subtree_control"]
        .iter()
        .all(|file| accessat(CWD, folder.join(file), Access::WRITE_OK, AtFlags::EACCESS).is_ok())
}

/// The controllers that a folder's children have, or could have.
pub(crate) fn controllers(folder: &Path, file: &str) -> Enforced {
    let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
    let has = |name| text.split_ascii_whitespace().any(|controller| controller == name);
    Enforced { pids: has("pids"), memory: has("memory"), cpu: has("cpu") }
}

impl Host {
    /// Makes the place of the cgroups ready, once before the first box of a process: `name` names the scope where one
    /// is asked for. Gives the folder for [`crate::LaunchContext::cgroup_parent`]; what is enforced is known for
    /// certain afterwards. A host that refuses is no error: [`Host::notices`] then tells what isn't enforced.
    pub fn settle(&mut self, name: &str) -> PathBuf {
        let CgroupKind::V2 { mount } = self.cgroup.clone() else {
            return self.cgroup_place.folder(self.uid);
        };
        let ready = match self.cgroup_place.clone() {
            CgroupPlace::Folder(folder) if self.cgroup_writable => make(&mount, &folder).map(|()| folder),
            CgroupPlace::Folder(folder) => return folder,
            CgroupPlace::Delegated(folder) => Ok(folder),
            CgroupPlace::Scope => self.ask_for_scope(name, &mount),
        };
        let ready = ready.and_then(|folder| {
            if matches!(self.cgroup_place, CgroupPlace::Delegated(_)) {
                step_aside(&mount.join(&folder))?;
                pass_down(&mount.join(&folder));
            }
            Ok(folder)
        });
        match ready {
            Ok(folder) => {
                self.enforced = controllers(&mount.join(&folder), "cgroup.subtree_control");
                folder
            }
            Err(why) => {
                self.cgroup_writable = false;
                self.enforced = Enforced::default();
                self.cgroup_refusal = Some(crate::error::reason(&why));
                self.cgroup_place.folder(self.uid)
            }
        }
    }

    fn ask_for_scope(&mut self, name: &str, mount: &Path) -> io::Result<PathBuf> {
        let unit = format!("{name}.scope");
        systemd::start_scope(self.uid, &unit)?;
        // The answer says that the work is queued; it is done when this process stands there.
        for wait_ms in [0, 1, 1, 2, 2, 5, 5, 10, 20, 50, 100, 200, 500, 1000, 2000] {
            std::thread::sleep(std::time::Duration::from_millis(wait_ms));
            let Some(folder) = own().filter(|own| own.ends_with(&unit)) else { continue };
            if writable(&mount.join(&folder)) {
                self.cgroup_place = CgroupPlace::Delegated(folder.clone());
                self.cgroup_writable = true;
                return Ok(folder);
            }
        }
        Err(io::Error::other("the user's systemd did not make the scope in time"))
    }
}

/// Makes sure that this process may put another into a box's folder: the kernel asks for the right to do so at the
/// nearest folder above both. A user's process in its login session is moved into the box's unit for that.
pub(crate) fn stand_beside(folder: &Path) -> io::Result<()> {
    let (Some(own), Some((unit, unit_folder))) = (own(), unit_of(folder)) else { return Ok(()) };
    if is_below(unit_folder, &own) {
        return Ok(());
    }
    systemd::attach(rustix::process::geteuid().as_raw(), unit, &format!("/{LEAF}"))
}

/// The unit of the user's systemd that a folder lies in, and the unit's own folder.
fn unit_of(folder: &Path) -> Option<(&str, &Path)> {
    let unit_folder = folder.parent()?;
    let name = unit_folder.file_name()?.to_str()?;
    (name.ends_with(".scope") || name.ends_with(".service")).then_some((name, unit_folder))
}

/// Whether `own`, relative to the hierarchy, is `folder` or lies below it.
fn is_below(folder: &Path, own: &Path) -> bool {
    own.ancestors().any(|above| !above.as_os_str().is_empty() && folder.ends_with(above))
}

/// Makes a folder and its parents, with the controllers passed down all the way into what is made in it.
pub(crate) fn make(mount: &Path, folder: &Path) -> io::Result<()> {
    let mut at = mount.to_path_buf();
    pass_down(&at);
    for part in folder.components() {
        at.push(part);
        match fs::create_dir(&at) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => pass_down(&at),
        }
    }
    Ok(())
}

/// Lets the children of a v2 cgroup use what it may use. What can't be passed down shows in the host's facts.
fn pass_down(folder: &Path) {
    let has = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
    for controller in ["pids", "memory", "cpu"] {
        if !has.split_ascii_whitespace().any(|one| one == controller) {
            let _ = fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}"));
        }
    }
}

/// Moves everything that stands in a delegated folder into a leaf of it: controllers are only passed down by a folder
/// without processes of its own (cgroups(7), "no internal processes").
fn step_aside(folder: &Path) -> io::Result<()> {
    let leaf = folder.join(LEAF);
    match fs::create_dir(&leaf) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // What was started meanwhile by one of them is there in the next turn.
    for _ in 0..16 {
        let standing = fs::read_to_string(folder.join("cgroup.procs"))?;
        if standing.is_empty() {
            break;
        }
        for pid in standing.lines() {
            match fs::write(leaf.join("cgroup.procs"), pid) {
                Err(error) if error.raw_os_error() != Some(libc::ESRCH) => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_folder_is_the_one_of_v2_and_inside_what_is_seen() {
        for (text, expected) in [
            ("0::/system.slice/web.service\n", Some("system.slice/web.service")),
            ("4:pids:/a\n1:name=systemd:/b\n0::/c\n", Some("c")),
            ("0::/\n", Some("")),
            ("0::/../other\n", None),
            ("4:pids:/a\n", None),
            ("", None),
        ] {
            assert_eq!(own_of(text), expected.map(PathBuf::from), "{text}");
        }
    }

    #[test]
    fn a_process_in_its_login_session_does_not_stand_in_a_boxs_unit() {
        let folder =
            Path::new("/sys/fs/cgroup/user.slice/user@7.service/app.slice/ply-web-1-2.scope/web.1.3-4");
        let (unit, unit_folder) = unit_of(folder).unwrap();
        assert_eq!(unit, "ply-web-1-2.scope");
        for (own, expected) in [
            ("user.slice/user@7.service/app.slice/ply-web-1-2.scope/parent", true),
            ("user.slice/user@7.service/app.slice/ply-web-1-2.scope", true),
            ("user.slice/session-1.scope", false),
            ("user.slice/user@7.service/app.slice/other.scope", false),
        ] {
            assert_eq!(is_below(unit_folder, Path::new(own)), expected, "{own}");
        }
        assert_eq!(unit_of(Path::new("/sys/fs/cgroup/ply/web.1.3-4")), None);
    }

    #[test]
    fn a_folder_that_the_caller_names_wins_and_root_has_one_of_its_own() {
        let v2 = CgroupKind::V2 { mount: "/nowhere".into() };
        let named = CgroupPlace::find(&v2, Path::new("mine"), true, 0);
        assert_eq!(named, CgroupPlace::Folder("mine".into()));
        assert_eq!(CgroupPlace::find(&v2, Path::new(""), true, 0), CgroupPlace::Folder("ply".into()));
        let v1 = CgroupKind::V1 { pids: None, unified: None };
        assert_eq!(CgroupPlace::find(&v1, Path::new(""), false, 1), CgroupPlace::Folder("ply".into()));
    }

    #[test]
    fn a_folder_without_the_mark_is_not_taken_as_delegated() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(delegated(dir.path(), Path::new("")), None);
    }

    #[test]
    fn a_place_that_refuses_leaves_no_limit_claimed() {
        let mut host = Host::probe(Path::new("ply"));
        host.cgroup = CgroupKind::V2 { mount: "/proc/self/nowhere".into() };
        host.cgroup_place = CgroupPlace::Folder("ply".into());
        (host.cgroup_writable, host.enforced) = (true, Enforced { pids: true, memory: true, cpu: true });
        host.settle("ply-web");
        assert_eq!(host.enforced, Enforced::default());
        assert!(!host.cgroup_writable);
        let said = host.notices();
        assert!(
            said.iter()
                .any(|line| line == "not enforced on this host: pids, mem, cpu (No such file or directory)"),
            "{said:?}"
        );
    }
}
