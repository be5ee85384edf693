//! What this machine can do, as plain data: everything the launch decides by, so that a plan can be printed
//! and tested without the machine.

use crate::place::{self, CgroupPlace};
use crate::{Ids, LaunchError, SubIds};
use serde::{Deserialize, Serialize};
use std::cell::LazyCell;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What this machine and this caller can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The caller's user id.
    pub uid: u32,
    /// The caller's group id.
    pub gid: u32,
    /// Whether the caller is root with the rights of root (rootful).
    pub root: bool,
    /// What the kernel can.
    pub kernel: Kernel,
    /// The id ranges delegated to the caller; empty for root.
    pub sub_ids: SubIds,
    /// `newuidmap`, where it is installed.
    pub newuidmap: Option<PathBuf>,
    /// `newgidmap`, where it is installed.
    pub newgidmap: Option<PathBuf>,
    /// How cgroups are mounted here.
    pub cgroup: CgroupKind,
    /// Where the cgroups of this process's boxes go.
    pub cgroup_place: CgroupPlace,
    /// Whether the caller can make folders at that place in the v2 hierarchy.
    pub cgroup_writable: bool,
    /// Why it can't, where [`Host::settle`] was told.
    pub cgroup_refusal: Option<String>,
    /// Which limits hold here.
    pub enforced: Enforced,
    /// The memory of the machine in bytes.
    pub memory_bytes: u64,
}

/// What the kernel can.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Its release, as `uname -r` says it.
    pub release: String,
    /// Major and minor version.
    pub version: (u32, u32),
    /// Whether this caller can make user namespaces; else why not, in words.
    pub user_namespaces: Result<(), String>,
    /// overlayfs is there.
    pub overlay: bool,
    /// squashfs is there.
    pub squashfs: bool,
    /// Loop devices are there.
    pub loop_devices: bool,
    /// A squashfs can be id-mapped (6.2).
    pub squashfs_idmap: bool,
    /// An overlay can have id-mapped layers (5.19).
    pub overlay_idmap: bool,
    /// A layer of an overlay can be a detached mount (6.15).
    pub overlay_detached: bool,
    /// An overlay in a user namespace can have its upper on tmpfs (user xattrs on tmpfs, 6.6).
    pub tmpfs_user_xattr: bool,
    /// `openat2` is there (5.6); without it nothing is launched.
    pub openat2: bool,
    /// seccomp filters are there.
    pub seccomp: bool,
}

/// How cgroups are mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupKind {
    /// v2 alone, at this path.
    V2 {
        /// The mount point.
        mount: PathBuf,
    },
    /// v1 controllers, with v2 beside them where `unified` says so.
    V1 {
        /// The v1 pids controller's mount point.
        pids: Option<PathBuf>,
        /// The v2 hierarchy without those controllers.
        unified: Option<PathBuf>,
    },
    /// None.
    None,
}

/// Which limits hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    /// `pids`, by a cgroup. (`RLIMIT_NPROC` in the box's own user namespace holds it in any case.)
    pub pids: bool,
    /// Memory.
    pub memory: bool,
    /// CPU.
    pub cpu: bool,
}

impl Host {
    /// Looks at this machine. `cgroup_parent` is the folder below which instances get their cgroups, relative to
    /// the cgroup mount; empty for the place that this host offers ([`CgroupPlace`]).
    pub fn probe(cgroup_parent: &Path) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let status = read("/proc/self/status");
        let capabilities = u64::from_str_radix(field(&status, "CapEff:"), 16).unwrap_or(0);
        // Root of a user namespace is no root of the machine: it can mount no image.
        let initial = read("/proc/self/uid_map").split_ascii_whitespace().eq(["0", "0", "4294967295"]);
        let root = uid == 0 && initial && capabilities >> SYS_ADMIN & 1 == 1;
        let cgroup = cgroup_kind(&read("/proc/self/mountinfo"));
        let cgroup_place = CgroupPlace::find(&cgroup, cgroup_parent, root, uid);
        let (cgroup_writable, enforced) = enforced(&cgroup, &cgroup_place, root, uid);
        Self {
            uid,
            gid: rustix::process::getegid().as_raw(),
            root,
            kernel: Kernel::probe(root),
            sub_ids: if root { SubIds::default() } else { SubIds::of(uid) },
            newuidmap: find("newuidmap"),
            newgidmap: find("newgidmap"),
            cgroup,
            cgroup_place,
            cgroup_writable,
            cgroup_refusal: None,
            enforced,
            memory_bytes: memory(),
        }
    }

    /// The ids a box gets here: rootful the leased range if the kernel can map (else [`Ids::Host`]), rootless the
    /// caller and its ranges.
    pub fn ids(&self, lease: (u32, u32)) -> Ids {
        if !self.root {
            let usable = self.newuidmap.is_some() && self.newgidmap.is_some() && !self.sub_ids.is_empty();
            let ranges = if usable { self.sub_ids.clone() } else { SubIds::default() };
            Ids::Rootless { uid: self.uid, gid: self.gid, sub_uids: ranges.uids, sub_gids: ranges.gids }
        } else if self.maps() {
            Ids::Leased { start: lease.0, count: lease.1 }
        } else {
            Ids::Host
        }
    }

    /// Whether a rootful box gets a user namespace here.
    fn maps(&self) -> bool {
        self.kernel.user_namespaces.is_ok() && self.kernel.overlay_idmap
    }

    /// Whether layers must be extracted folders here ([`crate::Layer::tree`]), not images.
    pub fn needs_trees(&self) -> bool {
        !self.root
            || (self.maps() && !self.kernel.squashfs_idmap)
            || !self.kernel.squashfs
            || !self.kernel.loop_devices
    }

    /// What keeps any box from running here, or nothing: one sentence and a hint.
    ///
    /// # Errors
    /// [`LaunchError::Host`].
    pub fn check(&self) -> Result<(), LaunchError> {
        let missing =
            |missing: &str, hint: &str| Err(LaunchError::Host { missing: missing.into(), hint: hint.into() });
        if self.kernel.version < (5, 12) {
            return missing(
                &format!("its kernel is too old: {}", self.kernel.release),
                "Linux 5.12 is the oldest that has all the mount calls; 6.6 or newer gives everything",
            );
        }
        if !self.kernel.overlay {
            return missing("its kernel has no overlay filesystem", "load it as root: modprobe overlay");
        }
        if !self.kernel.seccomp {
            return missing("its kernel has no system call filters", "it needs CONFIG_SECCOMP_FILTER");
        }
        match &self.kernel.user_namespaces {
            Err(reason) if !self.root => Err(LaunchError::Host {
                missing: format!("user namespaces are off for this user ({reason})"),
                hint: "run ply as root, or let users make user namespaces".into(),
            }),
            _ => Ok(()),
        }
    }

    /// One line for each thing that this host doesn't give (no user namespace for rootful, limits that aren't
    /// enforced), to be said at every start.
    pub fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        if self.root && !self.maps() {
            let why = match &self.kernel.user_namespaces {
                Err(reason) => reason.clone(),
                Ok(()) => format!("Linux {} can't id-map an overlay", self.kernel.release),
            };
            notices.push(format!("root inside is root of this host: no user namespace ({why})"));
        }
        if self.root && self.needs_trees() {
            let why = match (self.kernel.squashfs, self.kernel.loop_devices) {
                (true, true) => format!("Linux {} can't id-map squashfs, 6.2 can", self.kernel.release),
                (false, _) => "the kernel has no squashfs".into(),
                (true, false) => "the kernel has no loop devices".into(),
            };
            notices.push(format!("layers are used as extracted folders, not as images ({why})"));
        }
        let off: Vec<&str> =
            [(self.enforced.pids, "pids"), (self.enforced.memory, "mem"), (self.enforced.cpu, "cpu")]
                .into_iter()
                .filter_map(|(enforced, name)| (!enforced).then_some(name))
                .collect();
        if !off.is_empty() {
            let why = match (&self.cgroup_refusal, &self.cgroup) {
                (Some(refusal), _) => refusal,
                (None, CgroupKind::V2 { .. }) if self.cgroup_writable => "the cgroup lacks their controllers",
                (None, CgroupKind::V2 { .. }) if self.root => "the cgroup can't be written",
                (None, CgroupKind::V2 { .. }) => "no systemd of this user's delegates a cgroup",
                (None, CgroupKind::V1 { .. }) => "cgroup v2 has no controllers here",
                (None, CgroupKind::None) => "there are no cgroups here",
            };
            notices.push(format!("not enforced on this host: {} ({why})", off.join(", ")));
        }
        notices
    }
}

const SYS_ADMIN: u64 = 21;

impl Kernel {
    fn probe(root: bool) -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let version = version(&release);
        let filesystems = read("/proc/filesystems");
        // Long lists, and most often nothing of them is needed.
        let modules = LazyCell::new(|| {
            read(&format!("/lib/modules/{release}/modules.dep"))
                + &read(&format!("/lib/modules/{release}/modules.builtin"))
        });
        // A module is loaded when it is first asked for.
        let has = |name: &str| {
            filesystems.lines().any(|line| line.split_ascii_whitespace().last() == Some(name))
                || modules.contains(&format!("/{name}.ko"))
        };
        let at_least = |major, minor| version >= (major, minor);
        let (overlay, squashfs) = (has("overlay"), has("squashfs"));
        let loop_devices = Path::new("/dev/loop-control").exists() || modules.contains("/loop.ko");
        Self {
            user_namespaces: user_namespaces(root),
            overlay,
            squashfs,
            loop_devices,
            squashfs_idmap: at_least(6, 2),
            overlay_idmap: at_least(5, 19),
            overlay_detached: at_least(6, 15),
            tmpfs_user_xattr: at_least(6, 6),
            openat2: at_least(5, 6),
            seccomp: Path::new("/proc/sys/kernel/seccomp").exists()
                || read("/proc/self/status").contains("Seccomp:"),
            release,
            version,
        }
    }
}

/// Major and minor of a release, 0 for what isn't a number.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether this caller can make user namespaces, by the switches that distributions have.
fn user_namespaces(root: bool) -> Result<(), String> {
    if !Path::new("/proc/self/ns/user").exists() {
        return Err("the kernel has none".into());
    }
    let is = |name: &str, value: &str| read(&format!("/proc/sys/{name}")).trim() == value;
    if is("user/max_user_namespaces", "0") {
        return Err("sysctl user.max_user_namespaces is 0".into());
    }
    if !root {
        if is("kernel/unprivileged_userns_clone", "0") {
            return Err("sysctl kernel.unprivileged_userns_clone is 0".into());
        }
        if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
            // The profile that Ubuntu wants of a program that may; "unconfined" is what the switch stops.
            let profile = read("/proc/self/attr/current");
            if profile.trim().is_empty() || profile.starts_with("unconfined") {
                return Err("sysctl kernel.apparmor_restrict_unprivileged_userns is 1".into());
            }
        }
    }
    Ok(())
}

/// From mountinfo (proc(5)): which hierarchies are mounted where.
fn cgroup_kind(mountinfo: &str) -> CgroupKind {
    let (mut unified, mut pids, mut v1) = (None, None, false);
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (Some(place), mut right) = (left.split(' ').nth(4), right.split(' ')) else { continue };
        let (kind, options) = (right.next(), right.nth(1).unwrap_or_default());
        match kind {
            Some("cgroup2") => unified = unified.or_else(|| Some(PathBuf::from(place))),
            Some("cgroup") => {
                v1 = true;
                if options.split(',').any(|option| option == "pids") {
                    pids = pids.or_else(|| Some(PathBuf::from(place)));
                }
            }
            _ => {}
        }
    }
    match (unified, v1) {
        (Some(mount), false) => CgroupKind::V2 { mount },
        (unified, true) => CgroupKind::V1 { pids, unified },
        (None, false) => CgroupKind::None,
    }
}

/// Whether the place can be used, and what can be enforced there.
fn enforced(kind: &CgroupKind, place: &CgroupPlace, root: bool, uid: u32) -> (bool, Enforced) {
    let parent = place.folder(uid);
    // The nearest folder that exists is the one in which the next is made.
    let nearest = |mount: &Path| {
        let wanted = mount.join(&parent);
        wanted.ancestors().find(|folder| folder.is_dir()).map(Path::to_path_buf).unwrap_or(wanted)
    };
    // Folders that a user may write without root are its own (delegated) ones: the whole path must be there.
    let folder = |mount: &Path| if root { nearest(mount) } else { mount.join(&parent) };
    match kind {
        CgroupKind::V2 { mount } => {
            let can = *place == CgroupPlace::Scope || place::writable(&folder(mount));
            let controllers = place::controllers(&nearest(mount), "cgroup.controllers");
            (can, if can { controllers } else { Enforced::default() })
        }
        CgroupKind::V1 { pids, unified } => {
            let writable = |mount: &Path| {
                let file = folder(mount).join("cgroup.procs");
                let access = (rustix::fs::Access::WRITE_OK, rustix::fs::AtFlags::EACCESS);
                rustix::fs::accessat(rustix::fs::CWD, file, access.0, access.1).is_ok()
            };
            (
                unified.as_deref().is_some_and(writable),
                Enforced { pids: pids.as_deref().is_some_and(writable), ..Enforced::default() },
            )
        }
        CgroupKind::None => (false, Enforced::default()),
    }
}

/// A program in the usual folders; the caller's PATH never steers which setuid helper is run.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin", "/run/wrappers/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.is_file())
}

/// The memory of the host, in bytes. (The kernel puts together all of /proc/meminfo for whoever reads it.)
fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    u64::from(info.mem_unit) * info.totalram as u64
}

/// A small file of the kernel, whose size nobody knows beforehand; what is not text is replaced.
fn read(path: &str) -> String {
    let mut bytes = Vec::with_capacity(8192);
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The word behind a label at the start of a line.
fn field<'a>(text: &'a str, label: &str) -> &'a str {
    text.lines()
        .find_map(|line| line.strip_prefix(label))
        .and_then(|rest| rest.split_ascii_whitespace().next())
        .unwrap_or_default()
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
