//! The three folders of ply on this host: data, run and config. Source: DESIGN, "Files".

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where ply keeps its files. `PLY_DATA_DIR`, `PLY_RUN_DIR` and `PLY_CONFIG_DIR` override each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirs {
    /// Store, volumes, installed apps, journal, logs.
    pub data: PathBuf,
    /// State of what runs now; gone after a reboot.
    pub run: PathBuf,
    /// `config.toml`.
    pub config: PathBuf,
}

impl Dirs {
    /// The folders of the calling user, from the environment. Nothing is created but the checked fallback of
    /// the run folder under `/tmp`, which must be the caller's own with mode 0700.
    pub fn from_env() -> io::Result<Self> {
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        // A relative one would be another folder wherever ply is called from.
        let absolute = |name: &str| match var(name) {
            Some(dir) if !dir.is_absolute() => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name} is not an absolute path: {}", dir.display()),
            )),
            dir => Ok(dir),
        };
        let uid = rustix::process::geteuid().as_raw();
        let (data, run, config) =
            (absolute("PLY_DATA_DIR")?, absolute("PLY_RUN_DIR")?, absolute("PLY_CONFIG_DIR")?);
        if uid == 0 {
            return Ok(Self {
                data: data.unwrap_or_else(|| "/var/lib/ply".into()),
                run: run.unwrap_or_else(|| "/run/ply".into()),
                config: config.unwrap_or_else(|| "/etc/ply".into()),
            });
        }
        let home =
            || absolute("HOME")?.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "HOME is not set"));
        // The XDG base directories: a relative one is to be ignored.
        let below_home = |xdg: &str, rest: &str| match var(xdg).filter(|dir| dir.is_absolute()) {
            Some(dir) => Ok(dir.join("ply")),
            None => home().map(|h| h.join(rest).join("ply")),
        };
        Ok(Self {
            data: data.map_or_else(|| below_home("XDG_DATA_HOME", ".local/share"), Ok)?,
            run: run.map_or_else(|| user_run_dir(uid, var("XDG_RUNTIME_DIR")), Ok)?,
            config: config.map_or_else(|| below_home("XDG_CONFIG_HOME", ".config"), Ok)?,
        })
    }

    /// The folder of the store.
    pub fn store(&self) -> PathBuf {
        self.data.join("store")
    }
}

/// `$XDG_RUNTIME_DIR/ply`, else `/run/user/<uid>/ply`, else a checked folder under `/tmp`.
fn user_run_dir(uid: u32, xdg: Option<PathBuf>) -> io::Result<PathBuf> {
    let own = |dir: &Path| dir.metadata().is_ok_and(|m| m.is_dir() && m.uid() == uid);
    if let Some(dir) = xdg.filter(|d| own(d)) {
        return Ok(dir.join("ply"));
    }
    let logind = PathBuf::from(format!("/run/user/{uid}"));
    if own(&logind) {
        return Ok(logind.join("ply"));
    }
    let dir = PathBuf::from(format!("/tmp/ply-{uid}"));
    match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
        Ok(()) => return Ok(dir),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    // Anyone can make this name first: it counts only if it is a real folder, ours, and closed to others.
    let meta = std::fs::symlink_metadata(&dir)?;
    if meta.is_dir() && meta.uid() == uid && meta.mode() & 0o077 == 0 {
        Ok(dir)
    } else {
        let why = format!("{} is not a folder of this user with mode 0700", dir.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }
}
