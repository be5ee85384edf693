//! Starting `/bin/true` on a Debian base: as root beside `runc` and Docker, as a user beside `bwrap`. What a run keeps in
//! memory while its app sleeps, how long the shortest command takes, and how big the program is.

use crate::docker::Daemon;
use crate::{Options, extract, many};
use anyhow::{Context, Result, bail, ensure};
use ply_bench::{Row, duel, measure, median};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The users that `tools/world` provides: one with a range of ids, one without.
const USER: &str = "plytest";
const BARE: &str = "plybare";
/// These commands are short: more turns cost little and steady the median.
const TURNS: usize = 3;
/// The most that run parent and init may hold together while the app sleeps, in bytes.
const IDLE: u64 = 3_000_000;
/// The most that `ply exec APP true` may take.
const EXEC: Duration = Duration::from_millis(10);
/// The most that the program may take on disk, in bytes.
const PROGRAM: u64 = 20_000_000;
/// The most that `ply --version` may take.
const VERSION: Duration = Duration::from_millis(5);
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(crate) fn run(options: &Options) -> Result<Vec<Row>> {
    let ply = program()?;
    let cache = std::env::var_os("PLY_TEST_CACHE").map_or_else(|| PathBuf::from(".cache"), PathBuf::from);
    let registry =
        cache.join("registry").canonicalize().context("no minted packages: `make fixtures` makes them")?;
    let user = user_of(USER)?;
    let peer = Peer::new(&registry)?;
    let rounds = options.rounds * TURNS;

    let root = World::new(&ply, &registry, "root", None)?;
    let runc = duel(rounds, &mut || Ok(root.launch()), &mut || Ok(peer.runc()))
        .context("as root, beside Debian's runc; ply's own words come from `ply run` in the same folders")?;
    let docker = match Daemon::start(&peer.rootfs())? {
        Some(daemon) => Some(duel(rounds, &mut || Ok(root.launch()), &mut || Ok(daemon.run()))?),
        None => None,
    };
    let root_idle = root.idle(rounds)?;
    let many = many::rows(&root)?;
    drop(root);

    let own = World::new(&ply, &registry, "user", Some(user))?;
    let bwrap = duel(rounds, &mut || Ok(own.launch()), &mut || Ok(peer.bwrap(user)))
        .context("as a user, beside bwrap of Debian's bubblewrap")?;
    let user_idle = own.idle(rounds)?;
    drop(own);
    // bwrap maps one id; with no range of ids ply does the same.
    let bare = user_of(BARE)?;
    let one = World::new(&ply, &registry, "bare", Some(bare))?;
    let bare = duel(rounds, &mut || Ok(one.launch()), &mut || Ok(peer.bwrap(bare)))
        .context("as a user without a range of ids, beside bwrap")?;
    drop(one);

    let mut version = Vec::new();
    for round in 0..=rounds {
        let sample = measure(Command::new(&ply).arg("--version"))?;
        if round > 0 {
            version.push(sample);
        }
    }
    let mut rows = vec![
        Row::time("launch, root: wall", runc.ours.wall, "runc", runc.peer.wall, Some(0.5)),
        Row::time("launch, root: processor", runc.ours.cpu, "runc", runc.peer.cpu, None),
    ];
    if let Some(docker) = docker {
        let target = Some(1.0 / 25.0);
        rows.push(Row::time("launch, root: wall", docker.ours.wall, "docker", docker.peer.wall, target));
    }
    rows.extend([
        Row::time("launch, user: wall", bwrap.ours.wall, "bwrap", bwrap.peer.wall, Some(2.0)),
        Row::time("launch, user: processor", bwrap.ours.cpu, "bwrap", bwrap.peer.cpu, None),
        Row::time("launch, user with one id: wall", bare.ours.wall, "bwrap", bare.peer.wall, Some(2.0)),
        Row::size_at_most("idle run, root: memory", root_idle.memory, IDLE),
        Row::size_at_most("idle run, user: memory", user_idle.memory, IDLE),
        Row::at_most("ply exec true, root", root_idle.exec, EXEC),
        Row::at_most("ply exec true, user", user_idle.exec, EXEC),
    ]);
    rows.extend(many);
    rows.extend([
        Row::at_most("ply --version", median(&version).wall, VERSION),
        Row::size_at_most("the program", fs::metadata(&ply)?.len(), PROGRAM),
    ]);
    Ok(rows)
}

/// What was measured beside an app that sleeps.
struct Idle {
    /// What all processes of the run but its app hold for themselves, in bytes.
    memory: u64,
    /// How long the shortest command inside takes.
    exec: Duration,
}

/// The program under test: `PLY_BIN`, else the `ply` beside this one.
fn program() -> Result<PathBuf> {
    let path = match std::env::var_os("PLY_BIN") {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()?.with_file_name("ply"),
    };
    path.canonicalize().with_context(|| format!("no program at {}: `make build` makes it", path.display()))
}

/// A user's two ids.
fn user_of(name: &str) -> Result<(u32, u32)> {
    let passwd = fs::read_to_string("/etc/passwd")?;
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name));
    let line = line.with_context(|| format!("no user {name} here: run it inside tools/world, as root"))?;
    let fields: Vec<&str> = line.split(':').collect();
    let [_, _, uid, gid, ..] = fields[..] else { bail!("not a line of a passwd file: {line}") };
    Ok((uid.parse()?, gid.parse()?))
}

/// A new folder that everybody can look into.
pub(crate) fn folder(name: &str) -> Result<PathBuf> {
    // A process number alone isn't unique where every world has numbers of its own.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    let dir = std::env::temp_dir().join(format!("ply-bench-{}-{now}-{name}", std::process::id()));
    fs::create_dir(&dir)?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
    Ok(dir)
}

/// What /run is on every host: a folder in memory.
fn in_memory(folder: &Path) -> Result<()> {
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "mode=755", "none"]).arg(folder);
    prepare(mount)
}

/// Runs a preparing command; what it says is shown where it fails.
pub(crate) fn prepare(mut command: Command) -> Result<()> {
    let done =
        command.stdin(Stdio::null()).output().with_context(|| format!("{command:?} can't be started"))?;
    ensure!(done.status.success(), "{command:?}: {}\n{}", done.status, String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// The same base as a plain folder, for the others.
struct Peer {
    dir: PathBuf,
}

impl Peer {
    fn new(registry: &Path) -> Result<Self> {
        let new = Self { dir: folder("peer")? };
        fs::create_dir(new.dir.join("state"))?;
        in_memory(&new.dir.join("state"))?;
        let mut images: Vec<PathBuf> =
            fs::read_dir(registry.join("debian"))?.flatten().map(|e| e.path()).collect();
        images.retain(|path| path.extension() == Some(OsStr::new("img")));
        images.sort();
        let image = images.last().context("no debian image among the minted packages")?;
        let rootfs = new.dir.join("rootfs");
        let mut extract = Command::new(std::env::current_exe()?);
        extract.arg(extract::CHILD).arg(image).arg(&rootfs);
        prepare(extract)?;
        fs::set_permissions(&rootfs, fs::Permissions::from_mode(0o755))?;
        for mount_point in ["proc", "dev", "sys", "tmp"] {
            fs::create_dir_all(rootfs.join(mount_point))?;
        }
        let mut spec = Command::new("runc");
        spec.arg("spec").arg("--bundle").arg(&new.dir);
        prepare(spec).context("runc is in Debian's runc")?;
        let config = new.dir.join("config.json");
        let text = fs::read_to_string(&config)?;
        let edited = text.replacen("\"terminal\": true", "\"terminal\": false", 1).replacen(
            "\"sh\"",
            "\"/bin/true\"",
            1,
        );
        ensure!(
            edited.contains("\"/bin/true\"") && edited.contains("\"terminal\": false"),
            "an unknown runc spec: {text}"
        );
        fs::write(&config, edited)?;
        Ok(new)
    }

    fn rootfs(&self) -> PathBuf {
        self.dir.join("rootfs")
    }

    fn runc(&self) -> Command {
        let mut command = Command::new("runc");
        command.arg("--root").arg(self.dir.join("state")).args(["run", "--bundle"]).arg(&self.dir);
        command.arg(format!("ply-bench-{}", std::process::id()));
        command
    }

    fn bwrap(&self, (uid, gid): (u32, u32)) -> Command {
        let mut command = Command::new("bwrap");
        command.args(["--unshare-all", "--uid", "0", "--gid", "0", "--ro-bind"]).arg(self.dir.join("rootfs"));
        command.args(["/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/bin/true"]);
        command.env_clear().env("PATH", PATH).current_dir("/").uid(uid).gid(gid);
        command
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.join("state")).status();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Folders of ply's own, in which one app is installed that ends at once and one image is that sleeps.
pub(crate) struct World {
    ply: PathBuf,
    registry: PathBuf,
    dir: PathBuf,
    user: Option<(u32, u32)>,
}

impl World {
    fn new(ply: &Path, registry: &Path, name: &str, user: Option<(u32, u32)>) -> Result<Self> {
        let new = Self { ply: ply.to_owned(), registry: registry.to_owned(), dir: folder(name)?, user };
        for sub in ["data", "run", "config", "true", "sleep"] {
            fs::create_dir(new.dir.join(sub))?;
            if sub == "run" {
                in_memory(&new.dir.join(sub))?;
            }
            new.give(sub)?;
        }
        for (app, entrypoint) in [("true", "[\"/bin/true\"]"), ("sleep", "[\"/bin/sleep\", \"600\"]")] {
            let text = format!(
                "[package]\nname = \"{app}\"\nversion = \"1.0.0\"\n[build]\nbase = \"debian@13\"\n[run]\nentrypoint = {entrypoint}\n"
            );
            fs::write(new.dir.join(app).join("ply.toml"), text)?;
            new.give(&format!("{app}/ply.toml"))?;
            prepare(new.ply(["-q", "build", app, "-o", &format!("{app}/app.img")]))?;
        }
        prepare(new.ply(["-q", "run", "true/app.img", "--name", "true"]))?;
        Ok(new)
    }

    /// Root's own, with its apps.
    pub(crate) fn for_root(name: &str) -> Result<Self> {
        let cache = std::env::var_os("PLY_TEST_CACHE").map_or_else(|| PathBuf::from(".cache"), PathBuf::from);
        let registry = cache
            .join("registry")
            .canonicalize()
            .context("no minted packages: `make fixtures` makes them")?;
        Self::new(&program()?, &registry, name, None)
    }

    /// A path in its folder.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    fn give(&self, path: &str) -> Result<()> {
        if let Some((uid, gid)) = self.user {
            chown(self.dir.join(path), Some(uid), Some(gid))?;
        }
        Ok(())
    }

    pub(crate) fn ply<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(&self.ply);
        command.args(args).env_clear().env("PATH", PATH).env("HOME", &self.dir).current_dir(&self.dir);
        for (key, sub) in [("PLY_DATA_DIR", "data"), ("PLY_RUN_DIR", "run"), ("PLY_CONFIG_DIR", "config")] {
            command.env(key, self.dir.join(sub));
        }
        command.env("PLY_REGISTRY", format!("file://{}/{{package}}", self.registry.display()));
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// One run of what is installed.
    fn launch(&self) -> Command {
        self.ply(["-q", "run", "--installed", "true"])
    }

    /// A run whose app sleeps, two seconds after its start.
    fn idle(&self, rounds: usize) -> Result<Idle> {
        prepare(self.ply(["-q", "run", "-d", "sleep/app.img", "--name", "sleep"]))?;
        let start = Instant::now();
        while !self.processes()?.iter().any(|p| p.is_app) {
            ensure!(start.elapsed() < Duration::from_secs(10), "the sleeping app did not start within 10 s");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_secs(2));
        let (mut sum, mut count) = (0, 0);
        for process in self.processes()?.iter().filter(|p| !p.is_app) {
            let own = many::kilobytes(process.pid, &["Private_Clean:", "Private_Dirty:"])?;
            eprintln!("  {} ({}): {:.2} MB", process.name, process.pid, own as f64 / 1e6);
            sum += own;
            count += 1;
        }
        ensure!(count >= 2, "{count} processes beside the app: not a run parent and an init");
        let mut exec = Vec::new();
        for round in 0..=rounds {
            let sample = measure(&mut self.ply(["exec", "sleep", "/bin/true"]))?;
            if round > 0 {
                exec.push(sample);
            }
        }
        prepare(self.ply(["-q", "stop", "sleep"]))?;
        Ok(Idle { memory: sum, exec: median(&exec).wall })
    }

    /// The processes that got this world's folders in their environment, and all below them.
    pub(crate) fn processes(&self) -> Result<Vec<Process>> {
        let mark = format!("PLY_DATA_DIR={}", self.dir.join("data").display());
        let mut all = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            // One that ends meanwhile is none.
            let (Ok(stat), Ok(environ)) =
                (fs::read_to_string(entry.path().join("stat")), fs::read(entry.path().join("environ")))
            else {
                continue;
            };
            let Some((head, tail)) = stat.rsplit_once(") ") else { continue };
            let name = head.split_once('(').map_or("", |(_, name)| name).to_owned();
            let Some(parent) = tail.split(' ').nth(1).and_then(|p| p.parse::<u32>().ok()) else { continue };
            let ours = environ.split(|b| *b == 0).any(|var| var == mark.as_bytes());
            all.push((Process { pid, is_app: name == "sleep", name }, parent, ours));
        }
        let mut found: Vec<u32> = all.iter().filter(|(_, _, ours)| *ours).map(|(p, ..)| p.pid).collect();
        let mut next = 0;
        while let Some(&above) = found.get(next) {
            for (process, parent, _) in &all {
                if *parent == above && !found.contains(&process.pid) {
                    found.push(process.pid);
                }
            }
            next += 1;
        }
        Ok(all.into_iter().map(|(process, ..)| process).filter(|p| found.contains(&p.pid)).collect())
    }
}

/// A process of a run.
pub(crate) struct Process {
    pub(crate) pid: u32,
    name: String,
    pub(crate) is_app: bool,
}

impl Drop for World {
    fn drop(&mut self) {
        // Also what a failure left: the run, then the layers it shares with the next.
        for args in [&["-q", "rm", "sleep"][..], &["-q", "rm", "true"], &["-q", "gc"]] {
            let _ = self.ply(args.iter().copied()).stdin(Stdio::null()).output();
        }
        let below = self.dir.join("run").display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for at in mounts.lines().rev().filter_map(|l| l.split(' ').nth(4)).filter(|at| at.starts_with(&below))
        {
            let _ = Command::new("umount").arg("-l").arg(at).status();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}
