//! What every command about runs needs: the folders, the store, the wire, and how to speak to the user.

use ply_image::{Dirs, Store};
use ply_source::Fetcher;
use std::path::{Path, PathBuf};

/// The world that a command works in.
pub struct Context {
    /// Data, run and config.
    pub dirs: Dirs,
    /// The images.
    pub store: Store,
    /// Finds, fetches and resolves.
    pub fetcher: Fetcher,
    /// The folder of the instances' cgroups, relative to the cgroup mounts: `PLY_CGROUP`; empty for the place that
    /// the host offers.
    pub cgroup_parent: PathBuf,
    /// The caller's folder: relative host paths are against it.
    pub cwd: PathBuf,
    /// Says one line to the user, on standard error.
    pub say: Box<dyn Fn(&str)>,
}

impl Context {
    /// The cgroup folder of this environment.
    pub fn cgroup_from_env() -> PathBuf {
        std::env::var_os("PLY_CGROUP").map(PathBuf::from).unwrap_or_default()
    }

    pub(crate) fn say(&self, line: &str) {
        (self.say)(line);
    }

    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        from_folder(&self.cwd, path)
    }
}

/// A path of the command line, made absolute: `~` is the caller's home, relative ones are against its folder.
pub(crate) fn from_folder(folder: &Path, path: &Path) -> PathBuf {
    if let Ok(rest) = path.strip_prefix("~")
        && let Some(home) = std::env::var_os("HOME")
    {
        return PathBuf::from(home).join(rest);
    }
    let joined = folder.join(path);
    joined.components().filter(|c| *c != std::path::Component::CurDir).collect()
}
