//! The two helpers of every black-box test: a world (folders of its own, as root or as an unprivileged user) and
//! a command in it. Tests run under `tools/world`, which gives them a network, a user and a hosts file that
//! are nobody else's; without it they fail, they don't skip.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The unprivileged user with a range of ids that `tools/world` provides.
const USER: u32 = 4711;
/// The one without a range.
const BARE: u32 = 4712;

/// Who runs ply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Root,
    User,
    /// A user without a range of ids.
    Bare,
}

/// Both of the modes that are one product.
pub(crate) const BOTH: [Who; 2] = [Who::Root, Who::User];

/// Folders of one test, and who owns them.
pub(crate) struct World {
    dir: tempfile::TempDir,
    who: Who,
}

impl World {
    pub(crate) fn new(who: Who) -> Self {
        assert!(
            std::env::var_os("PLY_TEST_WORLD").is_some(),
            "end-to-end tests run inside tools/world: use `make test`"
        );
        let dir = tempfile::Builder::new().prefix("ply-e2e-").tempdir_in("/tmp").expect("a folder");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("mode");
        let world = Self { dir, who };
        for sub in ["work", "home", "data", "run", "config", "registry"] {
            world.mkdir(sub);
        }
        world
    }

    /// A path in the world.
    pub(crate) fn path(&self, rel: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(rel)
    }

    /// Makes a folder that belongs to who runs ply.
    pub(crate) fn mkdir(&self, rel: impl AsRef<Path>) -> PathBuf {
        let path = self.path(rel);
        fs::create_dir_all(&path).expect("mkdir");
        self.give(&path);
        path
    }

    /// Writes a file below `work/`, with its folders.
    pub(crate) fn write(&self, rel: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path("work").join(rel);
        let parent = path.parent().expect("a parent");
        fs::create_dir_all(parent).expect("mkdir");
        fs::write(&path, contents).expect("write");
        for up in path.ancestors().take_while(|p| *p != self.path("work")) {
            self.give(up);
        }
        path
    }

    /// Reads a file below `work/`.
    pub(crate) fn read(&self, rel: impl AsRef<Path>) -> String {
        fs::read_to_string(self.path("work").join(rel)).expect("read")
    }

    /// Copies a tree into `work/`.
    pub(crate) fn copy(&self, from: &Path, rel: &str) -> PathBuf {
        let to = self.path("work").join(rel);
        fs::create_dir_all(to.parent().expect("a parent")).expect("mkdir");
        let status = Command::new("cp").arg("-rT").arg(from).arg(&to).status().expect("cp");
        assert!(status.success());
        if let Some(id) = self.id() {
            let status = Command::new("chown")
                .args(["-Rh", &format!("{id}:{id}")])
                .arg(self.path("work"))
                .status()
                .expect("chown");
            assert!(status.success());
        }
        to
    }

    /// The folder of this world's cgroups, relative to where cgroups are mounted.
    fn cgroup(&self) -> String {
        self.dir.path().file_name().expect("a name").to_string_lossy().into_owned()
    }

    /// That folder in every hierarchy in which it is.
    pub(crate) fn cgroups(&self) -> Vec<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        let cgroup = |line: &str| {
            let mut words = line.split(' ').skip(1);
            let (place, kind) = (words.next()?, words.next()?);
            let folder = Path::new(place).join(self.cgroup());
            (kind.starts_with("cgroup") && folder.is_dir()).then_some(folder)
        };
        mounts.lines().filter_map(cgroup).collect()
    }

    fn id(&self) -> Option<u32> {
        match self.who {
            Who::Root => None,
            Who::User => Some(USER),
            Who::Bare => Some(BARE),
        }
    }

    fn give(&self, path: &Path) {
        if let Some(id) = self.id() {
            std::os::unix::fs::chown(path, Some(id), Some(id)).expect("chown");
        }
    }

    /// Any program in this world, as who runs ply, in `work/`, with a small environment.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.path("home"))
            .env("LANG", "C.UTF-8")
            .env("PLY_DATA_DIR", self.path("data"))
            .env("PLY_RUN_DIR", self.path("run"))
            .env("PLY_CONFIG_DIR", self.path("config"))
            .env("PLY_CGROUP", self.cgroup())
            .env("PLY_REGISTRY", registry())
            .env("NO_COLOR", "1")
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
        if let Some(id) = self.id() {
            // SAFETY: only system calls between fork and exec.
            unsafe {
                command.pre_exec(move || {
                    if libc::setgroups(0, std::ptr::null()) != 0
                        || libc::setresgid(id, id, id) != 0
                        || libc::setresuid(id, id, id) != 0
                    {
                        return Err(std::io::Error::last_os_error());
                    }
                    Ok(())
                });
            }
        }
        command
    }

    /// `ply ARGS…` in this world.
    pub(crate) fn ply<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command(ply_binary());
        command.args(args);
        command
    }

    /// Runs `ply ARGS…` to its end.
    pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Done {
        finish(self.ply(args), self.dir.path())
    }

    /// Runs a command to its end.
    pub(crate) fn finish(&self, command: Command) -> Done {
        finish(command, self.dir.path())
    }

    /// Starts `ply ARGS…`; it is ended with the value.
    pub(crate) fn start<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        let mut command = self.ply(args);
        let out = self.path(format!("out-{}", unique()));
        let err = self.path(format!("err-{}", unique()));
        command.stdout(fs::File::create(&out).expect("out")).stderr(fs::File::create(&err).expect("err"));
        Running { child: command.spawn().expect("ply starts"), out, err, root: self.dir.path().to_owned() }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Trees of a rootless store belong to mapped ids: root clears them.
        let _ = fs::remove_dir_all(self.dir.path());
        for folder in self.cgroups() {
            let _ = fs::remove_dir(folder);
        }
    }
}

fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The program under test: `PLY_BIN`, else the one that cargo built with the tests.
pub(crate) fn ply_binary() -> PathBuf {
    std::env::var_os("PLY_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_ply")), PathBuf::from)
}

/// The folder of what `tools/fixtures` made.
pub(crate) fn cache() -> PathBuf {
    let dir = std::env::var_os("PLY_TEST_CACHE")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache"), PathBuf::from);
    assert!(
        dir.join("registry/state.json").exists(),
        "no minted packages at {}: use `make test`",
        dir.display()
    );
    dir
}

/// The registry of minted packages, as a source.
pub(crate) fn registry() -> String {
    format!("file://{}/registry/{{package}}", cache().display())
}

/// The examples of the repository.
pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// A command that ended. Paths of the world read as `[WORLD]` in what it printed.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl Done {
    /// Fails the test unless it ended with `code`, showing all that it printed.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "\n--- out\n{}--- err\n{}", self.out, self.err);
        self
    }

    /// What a user sees, for snapshots: exit code, results, messages.
    pub(crate) fn seen(&self) -> String {
        format!(
            "exit: {}\n--- out\n{}--- err\n{}",
            self.code.map_or("none".into(), |c| c.to_string()),
            self.out,
            self.err
        )
    }
}

fn finish(mut command: Command, root: &Path) -> Done {
    let started = Instant::now();
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&root.display().to_string(), "[WORLD]");
    Done {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
        took: started.elapsed(),
    }
}

/// A command that still runs. Dropping it ends it.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: PathBuf,
    err: PathBuf,
    root: PathBuf,
}

impl Running {
    /// What it printed so far.
    pub(crate) fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// What it said so far.
    pub(crate) fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: kill takes two numbers; the child is not reaped yet, so the id is its.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Waits for its end, at most `limit` on a quiet machine.
    #[track_caller]
    pub(crate) fn wait(&mut self, limit: Duration) -> Done {
        let limit = limit * PATIENCE;
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                let text = |s: String| s.replace(&self.root.display().to_string(), "[WORLD]");
                return Done {
                    code: status.code(),
                    out: text(self.out()),
                    err: text(self.err()),
                    took: started.elapsed(),
                };
            }
            assert!(
                started.elapsed() < limit,
                "still running after {limit:?}\n--- out\n{}--- err\n{}",
                self.out(),
                self.err()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A limit only ends a test that hangs: a loaded machine gets this many times as long.
const PATIENCE: u32 = 10;

/// Waits until `ready` gives something, at most `limit` on a quiet machine.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, limit: Duration, mut ready: impl FnMut() -> Option<T>) -> T {
    let limit = limit * PATIENCE;
    let started = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The body of `http://127.0.0.1:PORT/PATH`, or none where nobody answers yet.
pub(crate) fn http_get(port: u16, path: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (_, body) = text.split_once("\r\n\r\n")?;
    Some(body.to_owned())
}

/// A port that is free now, one a call, below the range that the kernel hands out.
pub(crate) fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 10_000 + (std::process::id() % 200) as u16 * 100;
    loop {
        let port = start + NEXT.fetch_add(1, Ordering::Relaxed) % 100;
        if std::net::TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// What a run could leave behind on this host: mounts, loop devices and processes of this world.
pub(crate) fn leftovers(world: &World) -> Vec<String> {
    let root = world.path("").display().to_string();
    let root = root.trim_end_matches('/');
    let mut found = Vec::new();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    // The pin of the shared layer mounts stays on purpose: it is a cache that gc empties.
    found.extend(
        mounts
            .lines()
            .filter(|l| l.contains(root) && !l.contains("/run/layers"))
            .map(|l| format!("mount: {l}")),
    );
    for entry in fs::read_dir("/proc").expect("proc").flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid.bytes().all(|b| b.is_ascii_digit())
            && let Ok(environ) = fs::read(entry.path().join("environ"))
            && String::from_utf8_lossy(&environ).contains(&format!("PLY_DATA_DIR={root}"))
        {
            let cmdline = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(format!("process {pid}: {}", String::from_utf8_lossy(&cmdline).replace('\0', " ")));
        }
    }
    found
}

/// What must not be there either when a ply has swept and gc has run: cgroups, leases, state files, the layers' pin, loop
/// devices over images of this world, network namespaces and scratch.
pub(crate) fn leftovers_after_gc(world: &World) -> Vec<String> {
    let mut found = leftovers(world);
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    let root = world.path("").display().to_string();
    let root = root.trim_end_matches('/');
    found.extend(mounts.lines().filter(|l| l.contains(root)).map(|l| format!("mount: {l}")));
    let mut folder = |what: &str, path: PathBuf, counts: &dyn Fn(&str) -> bool| {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if counts(&name) {
                found.push(format!("{what}: {name}"));
            }
        }
    };
    for cgroup in world.cgroups() {
        // The files of a cgroup are its controllers'; a box has a folder.
        let is_folder = |name: &str| cgroup.join(name).is_dir();
        folder("cgroup", cgroup.clone(), &is_folder);
    }
    folder("lease", world.path("run/ids"), &|name| name != "lock");
    folder("state", world.path("run/state"), &|_| true);
    folder("scratch", world.path("data/scratch"), &|_| true);
    folder("file", world.path("run"), &|name| name == "layers");
    for entry in fs::read_dir("/sys/block").expect("sysfs").flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if backing.contains(root) {
            found.push(format!("loop device: {} {backing}", entry.file_name().to_string_lossy()));
        }
    }
    found
}
