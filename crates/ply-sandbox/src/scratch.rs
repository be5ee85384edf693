//! Scratch in a folder, for kernels on which an overlay in a user namespace can't have its upper on tmpfs (before
//! 6.6: no user xattrs there, and so no folder that replaces one of a layer). It lives below the data folder,
//! is named after the box and its maker, and goes with the instance.

use crate::cgroup::Owner;
use crate::{Host, Ids, LaunchError, Spec, userns};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A box's scratch folder; removed on drop.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
    ids: Ids,
}

impl Scratch {
    /// Makes one if this box needs it here.
    pub(crate) fn make(spec: &Spec, host: &Host, data_dir: &Path) -> Result<Option<Self>, LaunchError> {
        if host.kernel.tmpfs_user_xattr || !matches!(spec.ids, Ids::Rootless { .. }) {
            return Ok(None);
        }
        let path = data_dir.join("scratch").join(format!("{}.{}", spec.id, Owner::me()));
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|source| LaunchError::Source { path: path.clone(), source })?;
        Ok(Some(Self { path, ids: spec.ids.clone() }))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = userns::remove_all(&self.ids, &self.path);
    }
}

/// Removes the scratch folders whose maker is dead. Gives how many went.
///
/// # Errors
/// The system's, when the folder can't be listed or a scratch folder can't be removed.
pub fn sweep_scratch(ids: &Ids, data_dir: &Path) -> Result<usize, LaunchError> {
    let folder = data_dir.join("scratch");
    let wrong = |source| LaunchError::Source { path: folder.clone(), source };
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other.map_err(wrong)?,
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry.map_err(wrong)?;
        let owner = entry.file_name().to_str().and_then(Owner::of);
        if owner.is_some_and(|owner| !owner.lives()) {
            userns::remove_all(ids, &entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}
