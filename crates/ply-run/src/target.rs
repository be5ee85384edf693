//! From WHAT to an image in the store and everything under it: a path, a file, a URL or a reference; a directory
//! is built first. Checked before anything is mounted: what it is, for which arch, whether every layer is there.

use crate::RunError;
use crate::context::Context;
use crate::options::{RunOptions, What};
use crate::plan::PlanLayer;
use crate::rootfs::Looks;
use ply_build::{BuildRequest, Output};
use ply_image::{Entry, Image, LayerStack, Origin, RunningLock, Store};
use ply_manifest::{Arch, DevOverlay, Digest, Document, ImageName, Kind, Manifest, Target};
use ply_sandbox::{Host, Ids, in_user_namespace};
use std::path::{Path, PathBuf};

/// An image with all its layers, in the store.
pub(crate) struct Found {
    /// The app's manifest, `--set` laid over it.
    pub(crate) manifest: Manifest,
    /// The app's image, then its layers down to the base.
    pub(crate) entries: Vec<Entry>,
    /// `ply.dev.toml` and its folder.
    pub(crate) overlay: Option<(DevOverlay, PathBuf)>,
    /// Held as long as the app runs, so that neither gc nor rm takes a layer.
    pub(crate) locks: Vec<RunningLock>,
}

/// Finds, builds or fetches what is to run.
pub(crate) fn find(what: &What, options: &RunOptions, context: &Context) -> Result<Found, RunError> {
    // Until every image is locked for itself, gc must not come between.
    let _hold = context.store.hold().map_err(RunError::from_image)?;
    let mut overlay = None;
    let app = match what {
        What::Installed(name) => installed(name, context)?,
        What::Target(target) => app(target, &mut overlay, context)?,
    };
    let manifest = manifest(&app, options)?;
    if let What::Target(Target::Path(path)) = what
        && manifest.kind() == Kind::Layer
        && !context.path(path).join("ply.toml").exists()
    {
        return Err(RunError::refused(
            format!("nothing in {} tells how it starts", path.display()),
            format!(
                "ply init {0} writes a ply.toml there: give it an entrypoint, then ply run {0}",
                path.display()
            ),
        ));
    }
    check_kind(&manifest, &app, options)?;
    let (entries, locks) = with_layers(app, context)?;
    Ok(Found { manifest, entries, overlay, locks })
}

/// An image with all its layers, brought into the store and held there: what is deployed. What it is for is not
/// looked at yet.
pub(crate) fn bring(target: &Target, context: &Context) -> Result<(Vec<Entry>, Vec<RunningLock>), RunError> {
    let _hold = context.store.hold().map_err(RunError::from_image)?;
    let app = app(target, &mut None, context)?;
    check_arch(&app)?;
    with_layers(app, context)
}

/// The app's own image: built, fetched, or taken into the store.
fn app(
    target: &Target,
    overlay: &mut Option<(DevOverlay, PathBuf)>,
    context: &Context,
) -> Result<Entry, RunError> {
    let store = &context.store;
    match target {
        Target::Path(path) => {
            let path = context.path(path);
            if std::fs::metadata(&path).map_err(|why| no_path(&path, why))?.is_dir() {
                *overlay = dev_overlay(&path)?;
                build(&path, context)
            } else {
                file(&path, store)
            }
        }
        Target::File(name) => file(&context.path(name), store),
        Target::Url(url) => context.fetcher.url(url).map_err(RunError::from_source),
        Target::Reference(reference) => context.fetcher.lookup(reference).map_err(|error| {
            let folder = context.cwd.join(reference.name.as_str());
            match RunError::from_source(error) {
                RunError::Refused { message, .. } if reference.owner.is_none() && folder.is_dir() => {
                    RunError::refused(
                        message,
                        format!("for the folder of that name, write ./{}", reference.name),
                    )
                }
                other => other,
            }
        }),
        Target::Docker(image) => Err(RunError::NotBuilt(format!("docker://{image}"))),
        Target::Git(url) => Err(RunError::NotBuilt(url.clone())),
    }
}

/// The manifest of an app, `--set` laid over it.
fn manifest(app: &Entry, options: &RunOptions) -> Result<Manifest, RunError> {
    let text = app.manifest_text().map_err(RunError::from_image)?;
    crate::settings::with_settings(&text, &app.name.to_string(), &options.set)
}

/// The image and everything under it, locked.
fn with_layers(app: Entry, context: &Context) -> Result<(Vec<Entry>, Vec<RunningLock>), RunError> {
    let below = match app.lock().map_err(RunError::from_image)? {
        Some(lock) => context.fetcher.ensure_lock(&lock).map_err(RunError::from_source)?,
        None => Vec::new(),
    };
    let mut entries = vec![app];
    entries.extend(below);
    let locks = locks(&entries, &context.store)?;
    Ok((entries, locks))
}

fn locks(entries: &[Entry], store: &Store) -> Result<Vec<RunningLock>, RunError> {
    entries.iter().map(|e| store.lock_running(&e.digest).map_err(RunError::from_image)).collect()
}

fn no_path(path: &Path, why: std::io::Error) -> RunError {
    match why.kind() {
        std::io::ErrorKind::NotFound => RunError::refused(
            format!("there is nothing at {}", path.display()),
            "name a directory with a ply.toml, an image file, or an app of a registry as redis@8",
        ),
        _ => RunError::io("can't read", path)(why),
    }
}

/// An image file, taken into the store.
fn file(path: &Path, store: &Store) -> Result<Entry, RunError> {
    let meta = std::fs::metadata(path).map_err(|why| no_path(path, why))?;
    if !meta.is_file() {
        return Err(RunError::plain(format!("{} is not an image file", path.display())));
    }
    // One of the store's own is there already.
    if path.file_name().is_some_and(|n| n == "image.img")
        && let Some(digest) =
            path.parent().filter(|d| d.parent() == Some(store.dir())).and_then(Path::file_name)
        && let Some(digest) = digest.to_str().and_then(|d| d.parse().ok())
        && let Some(entry) = store.get(&digest).map_err(RunError::from_image)?
    {
        return Ok(entry);
    }
    // Its name says what it is; one that was renamed says it inside.
    let named = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse().ok());
    let image = match named {
        Some(name) => name,
        None => Image::open(path).and_then(|i| i.name(Arch::HOST)).map_err(RunError::from_image)?,
    };
    store.insert_file(path, Origin { source: None, image }).map_err(RunError::from_image)
}

fn installed(name: &ply_manifest::RunName, context: &Context) -> Result<Entry, RunError> {
    let Some(record) = crate::installed::installed(&context.dirs, name)? else {
        let all = crate::installed::all_installed(&context.dirs)?;
        let near = ply_manifest::nearest(name.as_str(), all.iter().map(|i| i.app.as_str()));
        return Err(RunError::refused(
            format!("nothing is installed under the name {name}"),
            near.map_or("ply run WHAT installs".to_owned(), |n| format!("did you mean {n}?")),
        ));
    };
    known(name, &record.image, record.digest, context)
}

/// An image that an app had: from the store, or from a source that still has it.
pub(crate) fn known(
    name: &ply_manifest::RunName,
    image: &ImageName,
    digest: Digest,
    context: &Context,
) -> Result<Entry, RunError> {
    if let Some(entry) = context.store.get(&digest).map_err(RunError::from_image)? {
        return Ok(entry);
    }
    context.fetcher.ensure_digest(image, digest, None).map_err(|_| {
        RunError::refused(
            format!("the image of {name} is not in the store any more: {image} {digest}"),
            format!(
                "run it again as you did first, or ply run {}@{} --name {name}",
                image.name, image.version
            ),
        )
    })
}

/// Builds a directory into the store; a directory without `ply.toml` with the manifest that `ply init -y` would
/// write, shown in full.
fn build(dir: &Path, context: &Context) -> Result<Entry, RunError> {
    let mut request = BuildRequest::new(dir, context.dirs.clone());
    request.output = Output::Store;
    request.epoch = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|t| t.parse().ok()).unwrap_or(0);
    let path = dir.join("ply.toml");
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            if let Document::Composition(_) = Document::parse(&text, &shown(&path, &context.cwd))? {
                return Err(composition(&dir.display().to_string()));
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let detected = ply_build::detect(dir).map_err(RunError::io("can't read", dir))?;
            let text = ply_build::init_manifest(&detected);
            context.say(&format!(
                "{} has no ply.toml; running it with this one (ply init writes it):",
                dir.display()
            ));
            for line in text.trim_end().lines() {
                context.say(&format!("    {line}"));
            }
            request.manifest = Some(text);
        }
        Err(why) => return Err(RunError::io("can't read", path)(why)),
    }
    let built = ply_build::build(&request, &context.fetcher).map_err(RunError::from_build)?;
    for notice in &built.notices {
        context.say(notice);
    }
    let entry = context.store.get(&built.digest).map_err(RunError::from_image)?;
    entry
        .ok_or_else(|| RunError::plain(format!("the image just built is not in the store: {}", built.digest)))
}

/// A path as the user knows it: relative where it is below the caller's folder.
fn shown(path: &Path, cwd: &Path) -> String {
    path.strip_prefix(cwd).unwrap_or(path).display().to_string()
}

fn composition(what: &str) -> RunError {
    RunError::refused(
        format!("{what} is a composition: several apps, wired"),
        format!("start it with ply up {what}"),
    )
}

fn dev_overlay(dir: &Path) -> Result<Option<(DevOverlay, PathBuf)>, RunError> {
    let path = dir.join("ply.dev.toml");
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((DevOverlay::parse(&text, "ply.dev.toml")?, dir.to_owned()))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(RunError::io("can't read", path)(why)),
    }
}

fn check_arch(app: &Entry) -> Result<(), RunError> {
    if app.name.arch == Arch::HOST {
        return Ok(());
    }
    Err(RunError::refused(
        format!("{} is for {}, and this host is {}", app.name, app.name.arch, Arch::HOST),
        format!("build or fetch the image for {}", Arch::HOST),
    ))
}

/// Only an app for this host's arch runs; a base may be looked into with a program that it has.
fn check_kind(manifest: &Manifest, app: &Entry, options: &RunOptions) -> Result<(), RunError> {
    check_arch(app)?;
    let package = &manifest.package;
    match manifest.kind() {
        Kind::Layer => Err(RunError::refused(
            format!("{} is a layer: files for apps that depend on it, nothing to run", package.name),
            format!("add it to an app: ply add {}@{}", package.name, package.version),
        )),
        Kind::Base if options.entrypoint.is_none() => Err(RunError::refused(
            format!("{} is a base: what owns / under an app, nothing to run", package.name),
            format!(
                "name it in an app: [build] base = \"{}@{}\"; or look inside: --entrypoint /bin/sh -t",
                package.name, package.version
            ),
        )),
        Kind::Composition => Err(composition(package.name.as_str())),
        Kind::App | Kind::Base => Ok(()),
    }
}

impl Found {
    /// An image that is in the store with all its layers, the app's own first.
    pub(crate) fn of(digests: &[Digest], options: &RunOptions, store: &Store) -> Result<Self, RunError> {
        let entry = |digest: &Digest| match store.get(digest).map_err(RunError::from_image)? {
            Some(entry) => Ok(entry),
            None => Err(RunError::from_image(ply_image::ImageError::NotInStore(*digest))),
        };
        let entries = digests.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
        let locks = locks(&entries, store)?;
        let app = entries.first().ok_or_else(|| RunError::plain("an app has at least its own layer"))?;
        let manifest = manifest(app, options)?;
        check_kind(&manifest, app, options)?;
        Ok(Self { manifest, entries, overlay: None, locks })
    }

    /// The layers as the plan needs them, ready to be mounted.
    pub(crate) fn layers(&self, host: &Host, ids: &Ids) -> Result<Vec<PlanLayer>, RunError> {
        let trees = host.needs_trees();
        let mut layers = Vec::new();
        for (n, entry) in self.entries.iter().enumerate() {
            make_mountable(entry, host, ids)?;
            let section = if n == 0 {
                self.manifest.layer.clone()
            } else {
                entry.manifest().map_err(RunError::from_image)?.layer
            };
            layers.push(PlanLayer {
                digest: entry.digest,
                name: entry.name.clone(),
                image: entry.image.clone(),
                tree: trees.then(|| entry.tree()),
                section,
            });
        }
        Ok(layers)
    }

    /// The layers as one root, for looks at files.
    pub(crate) fn looks(&self) -> Looks {
        Looks::new(self.entries.iter().map(|e| e.image.clone()).collect())
    }

    /// The digests, the app's own first.
    pub(crate) fn digests(&self) -> Vec<Digest> {
        self.entries.iter().map(|e| e.digest).collect()
    }
}

/// Checks an image of the store. Rootless (and where squashfs can't be id-mapped), it is extracted too, once.
pub(crate) fn make_mountable(entry: &Entry, host: &Host, ids: &Ids) -> Result<(), RunError> {
    entry.check().map_err(RunError::from_image)?;
    if !host.needs_trees() || entry.is_extracted() {
        return Ok(());
    }
    let own = entry.clone();
    let extract = move || own.extract_tree(0).map(drop).map_err(|e| (e.to_string(), e.hint()));
    let done: Result<(), (String, Option<String>)> =
        in_user_namespace(ids, extract).map_err(RunError::from_launch)?;
    done.map_err(|(why, hint)| RunError::Refused {
        message: format!("{} can't be extracted: {why}", entry.name),
        hint,
    })
}

/// Images seen as one root.
pub(crate) fn stack(images: &[PathBuf]) -> Result<LayerStack, RunError> {
    let open = |path: &PathBuf| Image::open(path).map_err(RunError::from_image);
    Ok(LayerStack::new(images.iter().map(open).collect::<Result<_, _>>()?))
}
