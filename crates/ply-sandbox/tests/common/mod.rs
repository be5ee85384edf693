//! A small image, a world of folders, and four-line ways to run things in a box.
#![allow(dead_code, unreachable_pub, missing_docs)]

use ply_sandbox::{
    Exit, Host, Ids, Instance, LaunchContext, LaunchError, Layer, Limits, Mount, MountOwner, Network,
    Process, ScratchFile, Spec, Stdio,
};
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The first leased id of rootful test boxes.
pub const LEASE: u32 = 2_000_000;
pub const PARENT: &str = "ply-test";

/// Folders of a world of its own, and an image in it.
pub struct World {
    dir: PathBuf,
    /// Whether the folders go, and the layers are unmounted, with this value.
    owned: Option<tempfile::TempDir>,
    pub host: Host,
    pub layers: Vec<Layer>,
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    /// A world whose image was changed before it was packed.
    pub fn with(change: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::Builder::new().prefix("ply-box-").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let dir_path = dir.path().to_path_buf();
        let tree = dir_path.join("tree");
        make_tree(&tree);
        change(&tree);
        fs::create_dir(dir.path().join("run")).unwrap();
        fs::create_dir(dir.path().join("data")).unwrap();
        let mut world = Self::open(dir_path);
        world.owned = Some(dir);
        let (tree, image) = (world.path("tree"), world.path("image.img"));
        if world.host.root {
            let packed = Command::new("mksquashfs")
                .args([&tree, &image])
                .args([
                    "-noappend",
                    "-noI",
                    "-noD",
                    "-noF",
                    "-quiet",
                    "-no-progress",
                    "-all-root",
                    "-processors",
                    "1",
                ])
                .output()
                .expect("mksquashfs is installed");
            assert!(packed.status.success(), "{packed:?}");
        }
        world
    }

    /// A world that is there, and that another process takes away.
    pub fn open(dir: PathBuf) -> Self {
        let digest = format!("sha256:{}", dir.file_name().unwrap().to_str().unwrap());
        let layer = Layer { digest, image: dir.join("image.img"), tree: Some(dir.join("tree")) };
        Self { dir, owned: None, host: Host::probe(Path::new(PARENT)), layers: vec![layer] }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn ids(&self) -> Ids {
        self.host.ids((LEASE, 65_536))
    }

    pub fn spec(&self, argv: &[&str]) -> Spec {
        Spec {
            id: format!("test-{}", unique()),
            hostname: "box-1".into(),
            layers: self.layers.clone(),
            ids: self.ids(),
            process: Process {
                argv: argv.iter().map(|argument| (*argument).to_owned()).collect(),
                env: vec![("PATH".into(), "/bin".into()), ("HOME".into(), "/root".into())],
                workdir: "/".into(),
                uid: 0,
                gid: 0,
                groups: vec![],
                capabilities: 0,
                stop_signal: 15,
            },
            mounts: vec![],
            files: vec![ScratchFile {
                path: "/etc/passwd".into(),
                contents: b"root:x:0:0::/root:/bin/sh\n".to_vec(),
                mode: 0o644,
            }],
            folders: vec![],
            links: vec![],
            devices: vec![],
            network: Network::Own,
            limits: Limits { memory: None, cpu_millis: None, pids: 200 },
            scratch_bytes: 64 << 20,
            init: true,
            privileged: false,
        }
    }

    pub fn launch(&self, spec: &Spec, stdio: Stdio) -> Result<Instance, LaunchError> {
        let (run, data) = (self.path("run"), self.path("data"));
        let context = LaunchContext {
            run_dir: &run,
            data_dir: &data,
            host: &self.host,
            cgroup_parent: Path::new(PARENT),
        };
        ply_sandbox::launch(spec, &context, stdio)
    }

    /// Runs a box to its end.
    pub fn run(&self, spec: &Spec) -> Ran {
        match self.try_run(spec) {
            Ok(ran) => ran,
            Err(error) => panic!("{error}"),
        }
    }

    pub fn try_run(&self, spec: &Spec) -> Result<Ran, LaunchError> {
        let (stdio, readers) = pipes();
        let mut instance = self.launch(spec, stdio)?;
        let [out, err] = readers.map(read_all);
        let exit = instance.wait().unwrap();
        Ok(Ran { out, err, exit })
    }

    /// Runs a shell script in a box and gives what it printed; it must succeed.
    pub fn sh(&self, script: &str) -> String {
        let ran = self.run(&self.spec(&["sh", "-c", script]));
        assert_eq!(ran.exit, Exit::Code(0), "{ran:?}");
        ran.out
    }

    pub fn volume(&self, name: &str, target: &str) -> Mount {
        let source = self.path(name);
        fs::create_dir_all(&source).unwrap();
        Mount { source, target: target.into(), read_only: false, owner: MountOwner::Inside }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.host.root && self.owned.is_some() {
            ply_sandbox::gc(&self.path("run"), &Default::default()).unwrap();
        }
    }
}

#[derive(Debug)]
pub struct Ran {
    pub out: String,
    pub err: String,
    pub exit: Exit,
}

pub fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Empty input, and pipes to read the two outputs from.
pub fn pipes() -> (Stdio, [OwnedFd; 2]) {
    let null = fs::File::open("/dev/null").unwrap();
    let (out, out_end) = std::io::pipe().unwrap();
    let (err, err_end) = std::io::pipe().unwrap();
    (Stdio::Fds([null.into(), out_end.into(), err_end.into()]), [out.into(), err.into()])
}

pub fn read_all(fd: OwnedFd) -> String {
    let mut text = Vec::new();
    fs::File::from(fd).read_to_end(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

fn make_tree(tree: &Path) {
    for folder in ["bin", "etc", "root", "tmp", "var/tmp", "srv", "home", "run"] {
        fs::create_dir_all(tree.join(folder)).unwrap();
    }
    let busybox = tree.join("bin/busybox");
    fs::copy("/bin/busybox", &busybox).expect("busybox-static is installed");
    fs::set_permissions(&busybox, fs::Permissions::from_mode(0o755)).unwrap();
    let list = Command::new("/bin/busybox").arg("--list").output().unwrap();
    for applet in String::from_utf8(list.stdout).unwrap().lines().filter(|name| *name != "busybox") {
        symlink("busybox", tree.join("bin").join(applet)).unwrap();
    }
    fs::copy(attack(), tree.join("bin/attack")).unwrap();
    fs::write(tree.join("etc/motd"), "hello\n").unwrap();
    fs::write(tree.join("etc/group"), "root:x:0:\n").unwrap();
}

/// The program that attacks (`tests/attack/`): where `PLY_TEST_ATTACK` says, on a machine that compiles nothing; else
/// built when its source changed.
pub fn attack() -> PathBuf {
    if let Some(built) = std::env::var_os("PLY_TEST_ATTACK") {
        return built.into();
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attack");
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("attack");
    let changed = |path: &Path| fs::metadata(path).and_then(|is| is.modified()).ok();
    let sources: Vec<_> = fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().path()).collect();
    if changed(&built) < sources.iter().map(|path| changed(path)).max().flatten() {
        let fresh = built.with_extension(unique());
        let done = Command::new(source.join("build")).arg(&fresh).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        fs::rename(fresh, &built).unwrap();
    }
    built
}

/// Makes a test of each function twice: as root, and as the unprivileged user.
#[macro_export]
macro_rules! both {
    ($($name:ident)*) => {
        mod root_box {
            $(#[test]
            fn $name() {
                assert!(rustix::process::geteuid().is_root(), "these tests need root");
                super::$name();
            })*
        }
        mod rootless_box {
            $(#[test]
            fn $name() {
                if $crate::common::as_user(concat!("rootless_box::", stringify!($name))) {
                    super::$name();
                }
            })*
        }
    };
}

/// The unprivileged user of the rootless tests; made, with an id range, where it isn't there yet.
const USER: &str = "plytest";

/// Runs the test `name` again as the unprivileged user; true in that second run, which then does the work.
/// Fails when the tests don't run as root: who can't become the user can't show anything.
pub fn as_user(name: &str) -> bool {
    if std::env::var_os("PLY_TEST_AS_USER").is_some() {
        assert!(!rustix::process::geteuid().is_root());
        return true;
    }
    assert!(rustix::process::geteuid().is_root(), "run the tests as root: they become {USER} by themselves");
    let (uid, gid) = user();
    let mut again = again(name);
    again.env("PLY_TEST_AS_USER", "1");
    use std::os::unix::process::CommandExt;
    again.gid(gid).uid(uid);
    passes(again);
    false
}

/// This test program again, for one test.
pub fn again(name: &str) -> Command {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([name, "--exact", "--nocapture", "--test-threads=1"]).current_dir("/");
    again
}

/// Runs it to its end; it must pass.
pub fn passes(mut again: Command) {
    let ran = again.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{again:?}:\n{said}");
    assert!(said.contains("1 passed"), "{again:?} didn't run:\n{said}");
    if std::env::var_os("PLY_TEST_SHOW").is_some() {
        println!("{said}");
    }
}

pub fn user() -> (u32, u32) {
    static MADE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let found = || {
        let passwd = fs::read_to_string("/etc/passwd").unwrap();
        passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            (fields[0] == USER).then(|| (fields[2].parse().unwrap(), fields[3].parse().unwrap()))
        })
    };
    let run = |program: &str, arguments: &[&str]| {
        let done = Command::new(program).args(arguments).output().unwrap();
        // Another test program may have been faster.
        assert!(done.status.success() || found().is_some(), "{program}: {done:?}");
    };
    let id = found().unwrap_or_else(|| {
        run("useradd", &["--create-home", "--shell", "/bin/sh", USER]);
        found().unwrap()
    });
    for file in ["/etc/subuid", "/etc/subgid"] {
        let text = fs::read_to_string(file).unwrap_or_default();
        if !text.lines().any(|line| line.starts_with(&format!("{USER}:"))) {
            let option = if file.ends_with("uid") { "--add-subuids" } else { "--add-subgids" };
            run("usermod", &[option, "500000000-500065535", USER]);
        }
    }
    id
}
