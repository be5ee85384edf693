//! Where the attacks are run: an image with the programs and with bait, a folder of the host's, and a caller outside who
//! has what nobody inside may get at: a process, a key, a group, sockets, shared memory.

use crate::common::{World, again, attack, pipes, read_all, user};
use ply_sandbox::{Defence, Exit, Ids, Mount, MountOwner, Network, Spec, without};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A group of the caller's that no box is given.
const GROUP: u32 = 4242;
/// The description of a key of the caller's.
const KEY: &str = "ply-attack";
/// The most that scratch holds on this stage, in bytes.
pub(crate) const SCRATCH: u64 = 8 << 20;

/// What an attack came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Got {
    /// It got through.
    Through,
    /// This errno stopped it.
    Stopped(i32),
    /// This signal ended it.
    Killed(i32),
}

impl Got {
    fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            None if text == "through" => Some(Self::Through),
            None => text.parse().ok().map(Self::Stopped),
            Some(("signal", number)) => number.parse().ok().map(Self::Killed),
            Some(_) => None,
        }
    }
}

pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) link: Mount,
    arguments: BTreeMap<&'static str, String>,
    memory: i32,
    queue: CString,
    /// Held open, and left open for whoever is started: bait.
    _held: (TcpListener, UnixListener, OwnedFd),
}

impl Stage {
    pub(crate) fn new() -> Self {
        let world = World::with(bait);
        // Made by root, with a group that the caller has and no box gets.
        let link = PathBuf::from(std::env::var_os("PLY_TEST_CALLED").unwrap());
        let owner = MountOwner::HostUser { uid: world.host.uid, gid: world.host.gid };
        let link = Mount { source: link, target: "/opt/link".into(), read_only: true, owner };

        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let key = now.subsec_nanos() as i32;
        // SAFETY: no memory is passed.
        let memory = unsafe { libc::shmget(key, 4096, libc::IPC_CREAT | libc::IPC_EXCL | 0o666) };
        assert!(memory >= 0);
        let queue = CString::new(format!("/ply-attack-{}", std::process::id())).unwrap();
        // SAFETY: all-zero is a valid value of this plain struct.
        let mut small: libc::mq_attr = unsafe { std::mem::zeroed() };
        (small.mq_maxmsg, small.mq_msgsize) = (1, 64);
        // SAFETY: the name is a C string, and the struct outlives the call.
        let made = unsafe {
            libc::mq_open(queue.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o666 as libc::mode_t, &raw mut small)
        };
        assert!(made >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the call just made it.
        drop(unsafe { OwnedFd::from_raw_fd(made) });
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = format!("ply-attack-{}", std::process::id());
        let socket = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let root: OwnedFd = fs::File::open("/").unwrap().into();
        rustix::io::fcntl_setfd(&root, rustix::io::FdFlags::empty()).unwrap();
        let arguments = [
            ("pid", std::process::id().to_string()),
            ("memory", key.to_string()),
            ("queue", queue.to_str().unwrap()[1..].to_owned()),
            ("socket", name),
            ("port", port.local_addr().unwrap().port().to_string()),
            ("key", KEY.to_owned()),
            ("scratch", SCRATCH.to_string()),
            ("instances", share("max_user_instances")),
            ("watches", share("max_user_watches")),
        ];
        Self { world, link, arguments: arguments.into(), memory, queue, _held: (port, socket, root) }
    }

    /// A box for attacks, without a program.
    pub(crate) fn spec(&self) -> Spec {
        let mut spec = self.world.spec(&[]);
        spec.mounts.push(self.link.clone());
        spec.scratch_bytes = SCRATCH;
        spec
    }

    /// The command line for these attacks, with the arguments that hold on this stage.
    pub(crate) fn argv(&self, attacks: &[&str]) -> Vec<String> {
        let fill = |attack: &&str| match attack.split_once("={") {
            Some((name, argument)) => format!("{name}={}", self.arguments[argument.trim_end_matches('}')]),
            None => (*attack).to_owned(),
        };
        ["attack".to_owned()].into_iter().chain(attacks.iter().map(fill)).collect()
    }

    /// Tries these attacks in a box, with some defences off. The host must be as it was.
    pub(crate) fn launch(&self, mut spec: Spec, off: &[Defence], attacks: &[&str]) -> Vec<Got> {
        let before = self.host();
        spec.process.argv = self.argv(attacks);
        if off.contains(&Defence::UserNamespace) {
            spec.ids = Ids::Host;
        }
        if off.contains(&Defence::NetworkNamespace) {
            spec.network = Network::Host;
        }
        let ran = without(off, || self.world.run(&spec));
        assert_eq!(ran.exit, Exit::Code(0), "{off:?}: {ran:?}");
        self.as_it_was(&before, off);
        results(&ran.out, attacks)
    }

    /// The same in a process that joins a box of this kind.
    pub(crate) fn exec(&self, mut spec: Spec, off: &[Defence], attacks: &[&str]) -> Vec<Got> {
        let before = self.host();
        spec.process.argv = vec!["sleep".into(), "600".into()];
        let (stdio, _readers) = pipes();
        let instance = self.world.launch(&spec, stdio).unwrap();
        let (stdio, [out, err]) = pipes();
        let exec = || ply_sandbox::exec(instance.target(), &self.argv(attacks), stdio).unwrap();
        let mut exec = without(off, exec);
        let out = read_all(out);
        let exit = exec.wait().unwrap();
        assert_eq!(exit, Exit::Code(0), "{off:?}: {out} {}", read_all(err));
        self.as_it_was(&before, off);
        results(&out, attacks)
    }

    /// The same with no box around: what the programs can do.
    pub(crate) fn outside(&self, attacks: &[&str]) -> Vec<Got> {
        let argv = self.argv(attacks);
        let ran = Command::new(attack()).arg0("attack").args(&argv[1..]).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        results(&String::from_utf8_lossy(&ran.stdout), attacks)
    }

    fn as_it_was(&self, before: &[String], off: &[Defence]) {
        let after = self.host();
        let gone: Vec<_> = before.iter().filter(|fact| !after.contains(fact)).collect();
        let new: Vec<_> = after.iter().filter(|fact| !before.contains(fact)).collect();
        assert!(gone.is_empty() && new.is_empty(), "without {off:?} the host was {gone:?} and is {new:?}");
    }

    /// What an attack that got out would change.
    fn host(&self) -> Vec<String> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mut facts: Vec<String> = [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/hostname",
            "/proc/sys/kernel/sysrq",
            "/proc/sys/vm/overcommit_memory",
            "/proc/sys/fs/file-max",
            "/proc/sys/net/ipv4/ip_unprivileged_port_start",
            "/proc/irq/default_smp_affinity",
            "/proc/swaps",
            "/proc/self/oom_score_adj",
            "/proc/self/cgroup",
            "/sys/kernel/uevent_helper",
        ]
        .map(read)
        .into();
        // Of the mounts those that aren't another test's.
        let here = self.world.path("").to_string_lossy().into_owned();
        let mounts = read("/proc/self/mounts");
        let mounts = mounts.lines().filter(|line| !line.contains("/ply-box-") || line.contains(&here));
        // The layers' pin comes with the first box.
        facts.extend(mounts.filter(|line| !line.contains("/run/layers ")).map(str::to_owned));
        for folder in [self.link.source.clone(), self.world.path("tree"), self.world.path("tree/srv")] {
            let mut names: Vec<_> = fs::read_dir(folder).unwrap().collect::<Result<_, _>>().unwrap();
            names.sort_by_key(fs::DirEntry::file_name);
            facts.extend(names.iter().map(|entry| {
                let is = entry.metadata().unwrap();
                format!("{:?} {:o} {:?}", entry.path(), is.permissions().mode(), is.modified())
            }));
        }
        let null = fs::metadata("/dev/null").unwrap();
        facts.push(format!("{:o}", null.permissions().mode()));
        facts
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // SAFETY: the name is a C string; the other call takes a number and nothing.
        unsafe {
            libc::mq_unlink(self.queue.as_ptr());
            libc::shmctl(self.memory, libc::IPC_RMID, std::ptr::null_mut());
        }
    }
}

/// A box's share of what a user of this host may have.
fn share(file: &str) -> String {
    let whole = fs::read_to_string(format!("/proc/sys/fs/inotify/{file}")).unwrap();
    (whole.trim().parse::<u32>().unwrap() / 4).max(16).to_string()
}

/// What an image may bring to help an attack.
fn bait(tree: &Path) {
    let setuid = tree.join("srv/setuid");
    fs::copy(attack(), &setuid).unwrap();
    fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).unwrap();
    if rustix::process::geteuid().is_root() {
        let node = CString::new(tree.join("srv/null-device").to_str().unwrap()).unwrap();
        let device = libc::makedev(1, 3);
        // SAFETY: the path is a C string.
        assert_eq!(unsafe { libc::mknod(node.as_ptr(), libc::S_IFCHR | 0o666, device) }, 0);
        // SAFETY: the same.
        assert_eq!(unsafe { libc::chmod(node.as_ptr(), 0o666) }, 0);
    }
}

pub(crate) fn results(out: &str, attacks: &[&str]) -> Vec<Got> {
    let mut lines = out.lines();
    let got: Vec<Got> = attacks
        .iter()
        .map(|attack| {
            let name = attack.split('=').next().unwrap();
            let line = lines.next().unwrap_or_else(|| panic!("nothing of {name}: {out}"));
            let rest = line.strip_prefix(name).unwrap_or_else(|| panic!("{name}: {line}: {out}"));
            Got::parse(rest.trim()).unwrap_or_else(|| panic!("{name}: {line}"))
        })
        .collect();
    assert_eq!(lines.next(), None, "{out}");
    got
}

/// This test again, by a caller with a session keyring, a key in it and a group of its own: as root, or as the
/// unprivileged user. True in that second run, which then does the work.
pub(crate) fn called(name: &str, as_user: bool) -> bool {
    if std::env::var_os("PLY_TEST_CALLED").is_some() {
        assert_eq!(rustix::process::geteuid().is_root(), !as_user);
        return true;
    }
    let link = link();
    crate::common::passes(call(name, as_user, link.path()));
    false
}

/// The command that runs a test so, with this folder of the host's.
pub(crate) fn call(name: &str, as_user: bool, link: &Path) -> Command {
    assert!(rustix::process::geteuid().is_root(), "these tests need root");
    // A number that is nobody's in a box, for whoever signals the caller.
    fs::write("/proc/sys/kernel/ns_last_pid", "30000").unwrap();
    let mut again = again(name);
    again.env("PLY_TEST_CALLED", link);
    // While it can be built.
    attack();
    let ids = if as_user { user() } else { (0, 0) };
    // SAFETY: system calls only.
    unsafe { again.pre_exec(move || become_caller(ids)) };
    again
}

/// A folder of the host's with bait.
pub(crate) fn link() -> tempfile::TempDir {
    let link = tempfile::Builder::new().prefix("ply-link-").tempdir().unwrap();
    let file = |name: &str, group, mode| {
        let path = link.path().join(name);
        fs::write(&path, name).unwrap();
        chown(&path, Some(0), Some(group)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    file("for-a-group", GROUP, 0o040);
    file("to-read", 0, 0o666);
    fs::set_permissions(link.path(), fs::Permissions::from_mode(0o755)).unwrap();
    link
}

fn become_caller((uid, gid): (u32, u32)) -> std::io::Result<()> {
    const ADD_KEY: &CStr = c"user";
    let check = |value: i64| if value < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) };
    let key = CString::new(KEY)?;
    // SAFETY: every pointer is to a C string, or to the list of one group, that outlives its call.
    unsafe {
        check(libc::setgroups(1, [GROUP].as_ptr()).into())?;
        check(libc::setresgid(gid, gid, gid).into())?;
        check(libc::setresuid(uid, uid, uid).into())?;
        check(libc::syscall(libc::SYS_keyctl, 1, std::ptr::null::<u8>()))?;
        check(libc::syscall(libc::SYS_add_key, ADD_KEY.as_ptr(), key.as_ptr(), c"secret".as_ptr(), 6, -3))
    }
}
