//! What only a host with systemd and the whole cgroup v2 can show. `tools/vm` runs these tests as root inside its
//! virtual machine, one at a time, with ply's own default folders; anywhere else they fail.

mod after_the_reboot;
mod delegation;
mod limits;
mod units;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The user with a range of ids and a systemd of its own.
const USER: u32 = 4711;

/// How long anything may take that isn't measured: the machine is emulated.
const PATIENCE: Duration = Duration::from_secs(40);

/// Who runs ply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Root,
    User,
    /// A user without a range, without a session and without a systemd.
    Bare,
}

const BOTH: [Who; 2] = [Who::Root, Who::User];

impl Who {
    /// A program as this user, with the environment that a login gives.
    fn command(self, program: &str) -> Command {
        assert!(
            std::env::var_os("PLY_VM").is_some(),
            "these tests run in a machine of their own: use `make test-vm`"
        );
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LANG", "C.UTF-8");
        command.stdin(Stdio::null()).current_dir("/");
        let (name, id) = match self {
            Self::Root => {
                command.env("HOME", "/root");
                return command;
            }
            Self::User => ("plytest", USER),
            Self::Bare => ("plybare", 4712),
        };
        command.env("HOME", format!("/home/{name}")).env("USER", name).uid(id).gid(id);
        if self == Self::User {
            let run = format!("/run/user/{id}");
            command
                .env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={run}/bus"))
                .env("XDG_RUNTIME_DIR", run);
        }
        command
    }

    /// `ply ARGS…`.
    fn ply(self, args: &[&str]) -> Command {
        let mut command = self.command(&ply());
        command.args(args);
        command
    }

    /// Runs `ply ARGS…` to its end.
    fn done(self, args: &[&str]) -> Done {
        done(self.ply(args))
    }

    /// Starts a shell script as the app NAME, with flags of `ply run`.
    fn start(self, name: &str, flags: &[&str], script: &str) -> App {
        let args =
            [&["run", "/lane/busybox.img", "--name", name], flags, &["--", "sh", "-c", script]].concat();
        let said = PathBuf::from(format!("/tmp/said-{name}"));
        let file = fs::File::create(&said).unwrap();
        let parent = self.ply(&args).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        App { who: self, name: name.to_owned(), parent, said }
    }

    /// What `ply ps --json` says of an app, once it runs.
    fn running(self, name: &str) -> Option<Row> {
        let listed = self.done(&["ps", "--json"]).expect(0).out;
        let rows: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
        let row = rows.into_iter().find(|row| row["name"] == name && row["status"] == "running")?;
        let pid = row["pid"].as_i64()?;
        let parent = row["parent_pid"].as_i64()?;
        Some(Row { pid, parent })
    }
}

/// The program under test.
fn ply() -> String {
    std::env::var("PLY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_ply").to_owned())
}

/// Processes of a running app.
struct Row {
    pid: i64,
    parent: i64,
}

impl Row {
    /// The cgroup of the app.
    fn cgroup(&self) -> Cgroup {
        Cgroup::of(self.pid)
    }
}

/// A folder of the cgroup v2 hierarchy.
#[derive(Debug, Clone)]
struct Cgroup(PathBuf);

impl Cgroup {
    fn of(pid: i64) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        Self(Path::new("/sys/fs/cgroup").join(text.trim_end().strip_prefix("0::/").unwrap()))
    }

    fn read(&self, file: &str) -> String {
        let path = self.0.join(file);
        fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            .trim_end()
            .to_owned()
    }

    /// The number behind a word in a file of pairs.
    fn field(&self, file: &str, word: &str) -> u64 {
        let text = self.read(file);
        let line = text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{word} in {text}")).parse().unwrap()
    }

    fn is_gone(&self) -> bool {
        !self.0.exists()
    }
}

/// A run in front. Dropping it kills it.
struct App {
    who: Who,
    name: String,
    parent: Child,
    said: PathBuf,
}

impl App {
    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Waits until it runs.
    fn running(&mut self) -> Row {
        let (who, name) = (self.who, self.name.clone());
        eventually(&format!("{who:?}'s {name} runs"), || {
            if let Some(status) = self.parent.try_wait().unwrap() {
                panic!("{who:?}'s {name} ended: {status}\n{}", self.said());
            }
            who.running(&name)
        })
    }

    /// Waits for its end and gives its code.
    fn wait(&mut self) -> i32 {
        let parent = &mut self.parent;
        let status = eventually("its end", || parent.try_wait().unwrap());
        status.code().unwrap_or_else(|| panic!("{status}"))
    }

    fn stop(&mut self) {
        self.who.done(&["stop", &self.name]).expect(0);
        self.wait();
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.parent.kill();
        let _ = self.parent.wait();
    }
}

/// A command that ended.
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Done {
    #[track_caller]
    fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "\n--- out\n{}--- err\n{}", self.out, self.err);
        self
    }
}

fn done(mut command: Command) -> Done {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Done { code: status.code(), out: text(stdout), err: text(stderr) }
}

/// Waits until `ready` gives something.
#[track_caller]
fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
