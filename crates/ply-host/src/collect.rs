//! `ply gc` and what it must know: which images the apps of this host need, and which mounts, volumes and
//! leftovers nobody needs. Source: `spec` on the store.

use ply_image::{Dirs, Entry, GcReport, Store};
use ply_manifest::{Digest, ImageName};
use ply_run::{Context, RunError, VolumeChoice};
use ply_sandbox::{Host, Ids, in_user_namespace};
use std::collections::{BTreeMap, BTreeSet};

/// What a collection took away, or would.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// Images and leftovers of the store.
    pub images: GcReport,
    /// The digests whose shared layer mounts are gone.
    pub mounts: Vec<String>,
    /// Ephemeral volumes that nobody runs on, as `APP/NAME.N`.
    pub volumes: Vec<String>,
}

/// Who needs each image: the installed and the running apps, by name. An image that is only there for a rollback
/// counts as the app's.
///
/// # Errors
/// A record of an app that can't be read: then nothing may be taken for unneeded.
pub fn needed_by(dirs: &Dirs) -> Result<BTreeMap<Digest, Vec<String>>, RunError> {
    let mut who: BTreeMap<Digest, BTreeSet<String>> = BTreeMap::new();
    let mut note = |digest: Digest, app: &ply_manifest::RunName| {
        who.entry(digest).or_default().insert(app.to_string());
    };
    for installed in ply_run::all_installed(dirs)? {
        let previous = installed.previous.iter().flat_map(|p| p.layers.iter().chain([&p.digest]));
        for digest in installed.layers.iter().chain([&installed.digest]).chain(previous) {
            note(*digest, &installed.app);
        }
    }
    for instance in ply_run::instances(dirs)? {
        for digest in instance.layers.iter().chain([&instance.digest]) {
            note(*digest, &instance.app);
        }
    }
    Ok(who.into_iter().map(|(digest, apps)| (digest, apps.into_iter().collect())).collect())
}

/// The caller's own mapping: a rootless caller's extracted trees belong to ids that only it can touch.
fn caller() -> (Host, Ids) {
    let host = Host::probe(&Context::cgroup_from_env());
    let ids = host.ids((0, 1));
    (host, ids)
}

/// Removes one image with its tree. Whether somebody needs it is the caller's to know.
///
/// # Errors
/// It runs, it isn't there, or the system's.
pub fn remove_image(store: &Store, entry: &Entry) -> Result<(), RunError> {
    let (_, ids) = caller();
    let removed: Result<(), String> =
        in_user_namespace(&ids, || store.remove(&entry.digest).map_err(|error| error.to_string()))
            .map_err(RunError::from_launch)?;
    removed.map_err(RunError::plain)
}

/// Removes what no installed or running app needs: images, their shared mounts, ephemeral volumes, leftovers of
/// killed commands. With `dry_run` only tells.
///
/// # Errors
/// A record that can't be read, a store that is busy, or the system's.
pub fn collect(dirs: &Dirs, dry_run: bool) -> Result<Collected, RunError> {
    let (host, ids) = caller();
    let store = Store::open(dirs).map_err(RunError::from_image)?;
    if !dry_run {
        ply_run::sweep(dirs, &host, &Context::cgroup_from_env());
    }
    let keep: BTreeSet<Digest> = needed_by(dirs)?.into_keys().collect();
    let mut collected = Collected { images: images(&store, &ids, &keep, dry_run)?, ..Collected::default() };
    let ephemeral = ply_run::volumes(dirs)?.into_iter().filter(|volume| volume.ephemeral && !volume.in_use);
    for volume in ephemeral {
        if !dry_run {
            ply_run::remove_volumes(dirs, &ids, &VolumeChoice::Named(volume.id()))?;
        }
        collected.volumes.push(volume.id());
    }
    if !dry_run {
        collected.images.freed += ply_build::sweep_records(&dirs.data);
        ply_sandbox::sweep_scratch(&ids, &dirs.data).map_err(RunError::from_launch)?;
        for leftover in ply_run::volume_leftovers(dirs) {
            ply_sandbox::remove_all(&ids, &leftover).map_err(RunError::from_launch)?;
        }
        let running: BTreeSet<String> =
            ply_run::running_digests(dirs)?.into_iter().map(|digest| digest.to_string()).collect();
        collected.mounts = ply_sandbox::gc(&dirs.run, &running)
            .map_err(|why| RunError::plain(format!("the shared layer mounts can't be taken away: {why}")))?
            .unmounted;
    }
    Ok(collected)
}

/// The store's own collection, done as the caller's mapped root, so that it may remove trees of mapped ids.
fn images(store: &Store, ids: &Ids, keep: &BTreeSet<Digest>, dry_run: bool) -> Result<GcReport, RunError> {
    type Told = (Vec<(Digest, Option<ImageName>)>, Vec<Digest>, usize, u64);
    let told: Result<Told, String> = in_user_namespace(ids, || {
        let report = store.gc(keep, dry_run).map_err(|error| error.to_string())?;
        Ok((report.removed, report.running, report.leftovers, report.freed))
    })
    .map_err(RunError::from_launch)?;
    let (removed, running, leftovers, freed) = told.map_err(RunError::plain)?;
    Ok(GcReport { removed, running, leftovers, freed })
}
