//! A Docker daemon for one measurement: started by hand in folders of its own, without a network, ended with it.

use crate::launch::{folder, prepare};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A daemon with one image, `bench`.
pub(crate) struct Daemon {
    child: Child,
    dir: PathBuf,
}

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

impl Daemon {
    /// Starts it and makes the image out of a folder; none, with a line that says so, where Docker isn't installed.
    pub(crate) fn start(rootfs: &Path) -> Result<Option<Self>> {
        let is_there = |program: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
        };
        if !["dockerd", "containerd", "docker"].into_iter().all(is_there) {
            eprintln!("  no dockerd here (Debian's docker.io): its row is left out");
            return Ok(None);
        }
        let dir = folder("docker")?;
        let log = fs::File::create(dir.join("log"))?;
        let mut command = Command::new("dockerd");
        command.arg("-H").arg(format!("unix://{}", dir.join("sock").display()));
        for (flag, name) in [("--data-root", "data"), ("--exec-root", "exec"), ("--pidfile", "pid")] {
            command.arg(flag).arg(dir.join(name));
        }
        command.args(["--iptables=false", "--ip6tables=false", "--bridge=none"]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("dockerd can't be started")?;
        let mut new = Self { child, dir };
        let start = Instant::now();
        while prepare(new.docker(["version"])).is_err() {
            if start.elapsed() > PATIENCE || new.child.try_wait()?.is_some() {
                let log = fs::read_to_string(new.dir.join("log")).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(5).collect();
                bail!("dockerd doesn't answer: {}", last.join("\n"));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let tar = new.dir.join("bench.tar");
        let mut pack = Command::new("tar");
        pack.arg("-C").arg(rootfs).arg("-cf").arg(&tar).arg(".");
        prepare(pack)?;
        let mut import = new.docker(["import"]);
        import.arg(&tar).arg("bench");
        prepare(import)?;
        prepare(new.run())?;
        Ok(Some(new))
    }

    fn docker<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut command = Command::new("docker");
        command.arg("-H").arg(format!("unix://{}", self.dir.join("sock").display())).args(args);
        command
    }

    /// One run of `/bin/true`, without a network: what Docker does fastest.
    pub(crate) fn run(&self) -> Command {
        self.docker(["run", "--rm", "--network", "none", "bench", "/bin/true"])
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}
