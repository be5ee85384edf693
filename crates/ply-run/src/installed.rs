//! What is installed: `data/apps/<app>/installed.json`, written at an app's first run and forgotten by `ply rm`.
//! It says what `--installed` runs, and it is the root from which `ply gc` sees what is needed.

use crate::RunError;
use crate::files::{make_dir, read_json, write_json};
use crate::state::now_ms;
use ply_image::Dirs;
use ply_manifest::{Digest, ImageName, RunName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// One installed app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    /// The name.
    pub app: RunName,
    /// The image that runs under it.
    pub image: ImageName,
    /// Its digest.
    pub digest: Digest,
    /// The digests of its layers, the app's own first, the base's last.
    pub layers: Vec<Digest>,
    /// The layers of the image that ran before: what a rollback takes.
    #[serde(default)]
    pub previous: Option<Previous>,
    /// Milliseconds since 1970.
    pub since_ms: u64,
}

/// The image before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previous {
    /// Its name.
    pub image: ImageName,
    /// Its digest.
    pub digest: Digest,
    /// Its layers.
    pub layers: Vec<Digest>,
}

/// The folder of an app: what is installed, and its control files.
pub(crate) fn app_dir(dirs: &Dirs, app: &str) -> PathBuf {
    dirs.data.join("apps").join(app)
}

fn file(dirs: &Dirs, app: &str) -> PathBuf {
    app_dir(dirs, app).join("installed.json")
}

/// What is installed under a name.
pub fn installed(dirs: &Dirs, app: &RunName) -> Result<Option<Installed>, RunError> {
    read_json(&file(dirs, app.as_str()))
}

/// Records what runs under a name from now on; nothing is written where it already says so.
pub(crate) fn record(
    dirs: &Dirs,
    app: &RunName,
    image: &ImageName,
    layers: &[Digest],
) -> Result<(), RunError> {
    let before = installed(dirs, app)?;
    if before.as_ref().is_some_and(|b| b.layers == layers && b.image == *image) {
        return Ok(());
    }
    let Some(digest) = layers.first().copied() else { return Ok(()) };
    let previous = match before {
        Some(b) if b.digest == digest => b.previous,
        Some(b) => Some(Previous { image: b.image, digest: b.digest, layers: b.layers }),
        None => None,
    };
    make_dir(&app_dir(dirs, app.as_str()))?;
    ply_image::sweep_pending(&app_dir(dirs, app.as_str()));
    let new = Installed {
        app: app.clone(),
        image: image.clone(),
        digest,
        layers: layers.to_vec(),
        previous,
        since_ms: now_ms(),
    };
    write_json(&file(dirs, app.as_str()), &new, true)
}

/// Forgets what was installed under a name, with its control folder.
pub(crate) fn forget(dirs: &Dirs, app: &RunName) -> Result<bool, RunError> {
    let dir = app_dir(dirs, app.as_str());
    match std::fs::remove_dir_all(&dir) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(RunError::io("can't remove", dir)(e)),
    }
}

/// Everything that is installed, by name.
pub fn all_installed(dirs: &Dirs) -> Result<Vec<Installed>, RunError> {
    let Ok(entries) = std::fs::read_dir(dirs.data.join("apps")) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if let Some(one) = read_json::<Installed>(&entry.path().join("installed.json"))? {
            found.push(one);
        }
    }
    found.sort_by(|a, b| a.app.cmp(&b.app));
    Ok(found)
}

/// What `ply gc` must keep: what installed and running apps reach, and what each would roll back to.
pub fn roots(dirs: &Dirs) -> Result<BTreeSet<Digest>, RunError> {
    let mut keep = crate::state::running_digests(dirs)?;
    for app in all_installed(dirs)? {
        keep.extend(app.layers);
        keep.extend(app.previous.into_iter().flat_map(|p| p.layers));
    }
    Ok(keep)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::dirs;

    #[test]
    fn an_app_is_installed_from_its_first_run_and_its_last_image_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = dirs(dir.path());
        let app: RunName = "web".parse().unwrap();
        let d = |n| Digest::from_bytes([n; 32]);
        let image = |v: &str| format!("web-{v}-linux-x64.img").parse::<ImageName>().unwrap();
        record(&dirs, &app, &image("1.0.0"), &[d(1), d(9)]).unwrap();
        let first = installed(&dirs, &app).unwrap().unwrap();
        record(&dirs, &app, &image("1.0.0"), &[d(1), d(9)]).unwrap();
        assert_eq!(installed(&dirs, &app).unwrap().unwrap(), first);
        record(&dirs, &app, &image("2.0.0"), &[d(2), d(9)]).unwrap();
        assert_eq!(roots(&dirs).unwrap(), BTreeSet::from([d(1), d(2), d(9)]));
        record(&dirs, &app, &image("3.0.0"), &[d(3)]).unwrap();
        assert_eq!(roots(&dirs).unwrap(), BTreeSet::from([d(2), d(3), d(9)]));
        assert_eq!(all_installed(&dirs).unwrap().len(), 1);
        assert!(forget(&dirs, &app).unwrap());
        assert!(!forget(&dirs, &app).unwrap());
        assert!(roots(&dirs).unwrap().is_empty());
    }
}
