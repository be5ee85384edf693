//! A world for one test: folders of its own, an app made of busybox, and the example `mini` to drive.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long what must happen may take: it ends a test that hangs, and no loaded machine comes near.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Who runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Root,
    User,
}

pub(crate) struct World {
    dir: tempfile::TempDir,
    ids: Option<(u32, u32)>,
    cgroup: String,
}

const MANIFEST: &str = "[package]\nname = \"bb\"\nversion = \"1.0.0\"\n\n[run]\nentrypoint = [\"busybox\", \"sh\"]\n\
                        [run.env]\nGREETING = \"hello\"\n";

impl World {
    pub(crate) fn new(who: Who) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test needs root: tools/world cargo test");
        let dir = tempfile::Builder::new().prefix("ply-run-").tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let ids =
            (who == Who::User).then(|| plytest().expect("the user plytest is not there: use tools/world"));
        let name = dir.path().file_name().unwrap().to_string_lossy().into_owned();
        let world = Self { dir, ids, cgroup: format!("{name}.test") };
        std::fs::copy(mini(), world.path("mini")).unwrap();
        let app = world.path("app");
        std::fs::create_dir_all(app.join("bin")).unwrap();
        std::fs::create_dir_all(app.join("seed")).unwrap();
        std::fs::write(app.join("seed/first"), "from the image\n").unwrap();
        std::fs::write(app.join("seed/index.html"), "from the image\n").unwrap();
        std::fs::write(app.join("ply.toml"), MANIFEST).unwrap();
        let busybox = ["/usr/bin/busybox", "/bin/busybox"].iter().find(|p| Path::new(p).exists());
        std::fs::copy(busybox.expect("the package busybox-static is needed"), app.join("bin/busybox"))
            .unwrap();
        for applet in "sh cat id sleep ls hostname stat stty tty test touch true".split(' ') {
            std::os::unix::fs::symlink("busybox", app.join("bin").join(applet)).unwrap();
        }
        std::fs::create_dir(world.path("layer")).unwrap();
        std::fs::write(world.path("layer/ply.toml"), "[package]\nname = \"lib\"\nversion = \"1.0.0\"\n")
            .unwrap();
        std::fs::write(world.path("layer/file"), "x").unwrap();
        std::fs::create_dir(world.path("stack")).unwrap();
        let stack = "[package]\nname = \"stack\"\n[[service]]\nrun = \"redis@8\"\nname = \"redis\"\n";
        std::fs::write(world.path("stack/ply.toml"), stack).unwrap();
        std::fs::write(world.path("torn.img"), "hsqs and nothing more").unwrap();
        if let Some((uid, gid)) = world.ids {
            give(world.dir.path(), uid, gid);
        }
        world
    }

    pub(crate) fn path(&self, rest: &str) -> PathBuf {
        self.dir.path().join(rest)
    }

    pub(crate) fn mini(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.path("mini"));
        command.args(args).current_dir(self.dir.path()).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", self.dir.path()).env("PLY_CGROUP", &self.cgroup);
        for (name, folder) in [("PLY_DATA_DIR", "data"), ("PLY_RUN_DIR", "run"), ("PLY_CONFIG_DIR", "config")]
        {
            command.env(name, self.path(folder));
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some((uid, gid)) = self.ids {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Runs to the end: exit code, standard output, standard error.
    pub(crate) fn run(&self, args: &[&str]) -> (i32, String, String) {
        let done = self.mini(args).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code().unwrap_or(-1), text(&done.stdout), text(&done.stderr))
    }

    /// Starts something and waits for a line.
    pub(crate) fn start(&self, args: &[&str], line: &str) -> Running {
        let mut child = self.mini(args).stdin(Stdio::null()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut seen = String::new();
        while !seen.ends_with(&format!("{line}\n")) {
            if out.read_line(&mut seen).unwrap() == 0 {
                let mut err = String::new();
                child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
                panic!("{args:?} ended before {line:?}: {seen} {err}");
            }
        }
        Running { child, out, seen }
    }

    pub(crate) fn terminal(&self, args: &[&str]) -> Screen {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        set_size(&master, 24, 80);
        let mut command = self.mini(args);
        command.env("TERM", "vt100");
        command
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave.try_clone().unwrap());
        // SAFETY: setsid and an ioctl are fine between fork and exec.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            })
        };
        let child = command.spawn().unwrap();
        rustix::fs::fcntl_setfl(&master, rustix::fs::OFlags::NONBLOCK).unwrap();
        Screen { child, master, slave, seen: String::new() }
    }

    /// No state, no lease, no cgroup, no mount but the pinned layers.
    pub(crate) fn assert_nothing_left(&self) {
        for folder in ["run/state", "run/names"] {
            let left: Vec<_> = std::fs::read_dir(self.path(folder)).into_iter().flatten().flatten().collect();
            assert!(left.is_empty(), "{folder}: {left:?}");
        }
        let ids: Vec<String> = std::fs::read_dir(self.path("run/ids"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name().into_string().unwrap())
            .filter(|n| n != "lock")
            .collect();
        assert!(ids.is_empty(), "{ids:?}");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let own = self.dir.path().to_str().unwrap();
        let left: Vec<&str> =
            mounts.lines().filter(|l| l.contains(own) && !l.contains("run/layers")).collect();
        assert!(left.is_empty(), "{left:?}");
        let cgroups = find_folders(Path::new("/sys/fs/cgroup"), &self.cgroup);
        let full: Vec<PathBuf> = cgroups
            .iter()
            .flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten())
            .filter(|e| e.path().is_dir())
            .map(|e| e.path())
            .collect();
        assert!(full.is_empty(), "{full:?}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let keep = std::collections::BTreeSet::new();
        let _ = ply_sandbox::gc(&self.path("run"), &keep);
        for dir in find_folders(Path::new("/sys/fs/cgroup"), &self.cgroup) {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Folders of a name at most two levels below `root`.
fn find_folders(root: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let levels = |dir: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path())
            .filter(|p| p.is_dir())
            .collect()
    };
    for one in levels(root) {
        found.extend([one.clone()].into_iter().chain(levels(&one)).filter(|p| p.ends_with(name)));
    }
    found
}

fn give(path: &Path, uid: u32, gid: u32) {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid)).unwrap();
    if std::fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), uid, gid);
        }
    }
}

fn plytest() -> Option<(u32, u32)> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|l| l.starts_with("plytest:"))?;
    let fields: Vec<&str> = line.split(':').collect();
    Some((fields[2].parse().ok()?, fields[3].parse().ok()?))
}

/// The example, beside this test in the target folder.
fn mini() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(2).unwrap().join("examples/mini");
    assert!(path.exists(), "{} is not built: cargo build -p ply-run --examples", path.display());
    path
}

pub(crate) struct Running {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    seen: String,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&mut self, signal: i32) {
        send(self.child.id(), signal);
    }

    pub(crate) fn finish(self) -> (i32, String) {
        let (code, out, _) = self.finish_all();
        (code, out)
    }

    pub(crate) fn finish_all(mut self) -> (i32, String, String) {
        let status = wait_at_most(&mut self.child, PATIENCE);
        self.out.read_to_string(&mut self.seen).unwrap();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (status.code().unwrap_or(-1), self.seen, err)
    }
}

pub(crate) struct Screen {
    child: Child,
    master: OwnedFd,
    slave: std::fs::File,
    pub(crate) seen: String,
}

impl Screen {
    fn look(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(n) = rustix::io::read(&self.master, &mut buffer) {
            if n == 0 {
                break;
            }
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
        }
    }

    pub(crate) fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.seen.contains(text) {
            assert!(Instant::now() < until, "no {text:?} in {:?}", self.seen);
            std::thread::sleep(Duration::from_millis(10));
            self.look();
        }
    }

    pub(crate) fn type_text(&mut self, text: &str) {
        std::fs::File::from(self.master.try_clone().unwrap()).write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        set_size(&self.master, rows, columns);
    }

    pub(crate) fn signal(&mut self, signal: i32) {
        send(self.child.id(), signal);
    }

    pub(crate) fn echoes(&self) -> bool {
        let modes = rustix::termios::tcgetattr(self.slave.as_fd()).unwrap();
        modes.local_modes.contains(rustix::termios::LocalModes::ECHO | rustix::termios::LocalModes::ICANON)
    }

    pub(crate) fn finish(&mut self) -> i32 {
        let until = Instant::now() + PATIENCE;
        loop {
            self.look();
            if let Some(status) = self.child.try_wait().unwrap() {
                self.look();
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < until, "it has not ended: {:?}", self.seen);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn set_size(terminal: &OwnedFd, rows: u16, columns: u16) {
    let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(terminal, size).unwrap();
}

pub(crate) fn send(pid: u32, signal: i32) {
    let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::try_from(signal).unwrap()).unwrap();
}

pub(crate) fn wait_at_most(child: &mut Child, most: Duration) -> ExitStatus {
    let until = Instant::now() + most;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < until, "it has not ended");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn soon(most: Duration, mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + most;
    while !done() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// The processes of this machine with a text in their command line, but for run parents and their helpers, which
/// have it as an argument of their own.
pub(crate) fn processes_with(mark: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let line = |e: std::fs::DirEntry| {
        let bytes = std::fs::read(e.path().join("cmdline")).ok()?;
        let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
        text.contains(mark).then(|| format!("{} {text}", e.file_name().to_string_lossy()))
    };
    entries.filter_map(line).collect()
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What an HTTP/1.0 request for `/` brings; nothing where the connection is closed.
pub(crate) fn get(port: u16) -> String {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A small generator (xorshift), its seed from the clock.
pub(crate) struct Random {
    pub(crate) seed: u64,
    state: u64,
}

impl Random {
    pub(crate) fn new() -> Self {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let seed = clock.as_nanos() as u64 | 1;
        Self { seed, state: seed }
    }

    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % most
    }
}
