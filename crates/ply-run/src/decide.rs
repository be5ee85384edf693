//! From an image with all its layers to how it runs: at a run's start, and again, with the same flags, for every
//! image that is deployed to it.

use crate::files::SharedLock;
use crate::lease::RANGE;
use crate::links::HostMeta;
use crate::options::RunOptions;
use crate::plan::{Plan, PlanInput};
use crate::target::{self, Found};
use crate::volume_store::prepare;
use crate::{RunError, context};
use ply_image::{Dirs, RunningLock};
use ply_manifest::{Digest, EnvFile};
use ply_sandbox::{Host, Ids};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Env files: the path as written, and what they hold.
pub(crate) type EnvFiles = Vec<(String, Vec<(String, String)>)>;

/// What a run was asked for, whatever its image.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) options: RunOptions,
    /// The caller's folder: relative host paths are against it.
    pub(crate) cwd: PathBuf,
}

impl Asked {
    /// The env files, read whole.
    pub(crate) fn env_files(&self) -> Result<EnvFiles, RunError> {
        let read = |path: &PathBuf| {
            let full = context::from_folder(&self.cwd, path);
            let bytes = std::fs::read(&full).map_err(RunError::io("an env file can't be read", &full))?;
            let name = path.display().to_string();
            let text = String::from_utf8(bytes).map_err(|_| {
                RunError::plain(format!("{name}: an env file is UTF-8 text, and this is not"))
            })?;
            Ok((name.clone(), EnvFile::parse(&text, &name)?))
        };
        self.options.env_files.iter().map(read).collect()
    }

    /// How an image runs: everything that can be refused before anything is touched.
    pub(crate) fn plan(&self, found: &Found, env_files: &EnvFiles, host: &Host) -> Result<Plan, RunError> {
        let layers = found.layers(host, &host.ids((0, RANGE)))?;
        let looks = found.looks();
        let input = PlanInput {
            manifest: &found.manifest,
            layers: &layers,
            overlay: found.overlay.as_ref().map(|(overlay, dir)| (overlay, dir.as_path())),
            env_files,
            options: &self.options,
            host,
            root: &looks,
            cwd: &self.cwd,
            caller: &|name| std::env::var(name).ok(),
            host_stat: &|path: &Path| HostMeta::of(path),
        };
        let mut plan = crate::plan::plan(&input)?;
        if plan.network == ply_sandbox::Network::Host && plan.resolver.is_empty() {
            plan.resolver = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        }
        Ok(plan)
    }
}

/// What slots are started from: an image with its layers, how it runs, and its volumes.
pub(crate) struct Loaded {
    pub(crate) plan: Plan,
    /// The digests of its layers, its own first.
    pub(crate) digests: Vec<Digest>,
    pub(crate) volumes: Volumes,
    /// Held as long as anything may be started from it, so that neither gc nor rm takes a layer.
    _locks: Vec<RunningLock>,
}

impl Loaded {
    pub(crate) fn new(plan: Plan, found: Found, dirs: &Dirs, say: Rc<dyn Fn(&str)>) -> Self {
        let images = found.entries.iter().map(|e| e.image.clone()).collect();
        let volumes = Volumes { dirs: dirs.clone(), images, say, ready: BTreeMap::new() };
        Self { plan, digests: found.digests(), volumes, _locks: found.locks }
    }

    /// Makes the volumes of a slot ready, and gives their folders in the plan's order.
    pub(crate) fn volumes_of(&mut self, slot: u32, ids: &Ids) -> Result<Vec<PathBuf>, RunError> {
        self.volumes.of(slot, &self.plan, ids)
    }
}

/// The host folders of each slot's volumes, made when the slot first starts, and the locks that keep them.
pub(crate) struct Volumes {
    dirs: Dirs,
    /// The image and its layers: what a new volume begins with.
    images: Vec<PathBuf>,
    say: Rc<dyn Fn(&str)>,
    ready: BTreeMap<u32, (Vec<PathBuf>, Vec<SharedLock>)>,
}

impl Volumes {
    /// The folders of a slot, in the plan's order.
    fn of(&mut self, slot: u32, plan: &Plan, ids: &Ids) -> Result<Vec<PathBuf>, RunError> {
        if let Some((folders, _)) = self.ready.get(&slot) {
            return Ok(folders.clone());
        }
        let user = (plan.user.uid != 0).then_some(&plan.user);
        let (mut folders, mut locks) = (Vec::new(), Vec::new());
        for volume in &plan.volumes {
            let stack = || target::stack(&self.images);
            let ready = prepare(&self.dirs, &plan.name, volume, slot, user, ids, &stack)?;
            if let Some(warning) = ready.warning {
                (self.say)(&format!("WARNING: {warning}"));
            }
            folders.push(ready.path);
            locks.push(ready.lock);
        }
        self.ready.insert(slot, (folders.clone(), locks));
        Ok(folders)
    }

    /// The slot is no longer one: its volumes may be removed.
    pub(crate) fn let_go(&mut self, slot: u32) {
        self.ready.remove(&slot);
    }
}
