//! What every verb shares: the folders, and how loud to be. Opens nothing by itself.

use crate::cli::{Shared, SourceArgs};
use crate::failure::Failure;
use crate::progress::Bars;
use ply_image::{Dirs, Entry, Image, Origin, Store};
use ply_manifest::{Arch, Target};
use ply_sandbox::{Host, Ids};
use ply_source::{DefaultSource, FetchOptions, Fetcher, SourceOrigin};
use std::path::PathBuf;
use std::sync::Arc;

/// The folders of the calling user, and what every verb takes.
pub(crate) struct Context {
    pub(crate) dirs: Dirs,
    pub(crate) shared: Shared,
}

impl Context {
    /// From the environment. Errors: a run folder that others could have made.
    pub(crate) fn new(shared: Shared) -> Result<Self, Failure> {
        let dirs = Dirs::from_env().map_err(|why| {
            Failure::new(format!("ply's folders can't be used: {why}"))
                .hint("set PLY_DATA_DIR, PLY_RUN_DIR and PLY_CONFIG_DIR to absolute paths, or remove what stands there")
        })?;
        Ok(Self { dirs, shared })
    }

    /// The store of this host.
    pub(crate) fn store(&self) -> Result<Store, Failure> {
        Ok(Store::open(&self.dirs)?)
    }

    /// A fetcher for one arch, with the flags of the verb and progress on standard error.
    pub(crate) fn fetcher(&self, sources: &SourceArgs, arch: Arch) -> Result<Fetcher, Failure> {
        let mut options = FetchOptions::new(self.store()?, &self.dirs)?;
        options.arch = arch;
        options.insecure = sources.insecure_source;
        if let Some(spec) = &sources.source {
            options.source = Some(spec.clone());
            options.default_source = DefaultSource { spec: spec.clone(), from: SourceOrigin::Flag };
        }
        options.progress = Arc::new(Bars::new(self.shared.quiet));
        Ok(Fetcher::new(options))
    }

    /// A line for the person at the terminal, on standard error, unless `-q`.
    pub(crate) fn say(&self, line: impl std::fmt::Display) {
        if !self.shared.quiet {
            anstream::eprintln!("{}", crate::output::clean_lines(&line.to_string()));
        }
    }
}

/// What a target names: an image in the store, or a folder with a manifest.
pub(crate) enum Found {
    Image(Box<Entry>),
    Folder(PathBuf),
}

impl Context {
    /// Looks a target up: a package is fetched, a file is put into the store.
    pub(crate) fn image(&self, what: &Target, fetcher: &Fetcher) -> Result<Found, Failure> {
        let path = match what {
            Target::Reference(reference) => return Ok(Found::Image(Box::new(fetcher.lookup(reference)?))),
            Target::Url(url) => return Ok(Found::Image(Box::new(fetcher.url(url)?))),
            Target::Docker(_) | Target::Git(_) => {
                return Err(Failure::new(format!("{what} can't be read by this version"))
                    .hint("images of other tools and git repositories come with a later version"));
            }
            Target::Path(path) | Target::File(path) => path,
        };
        if path.is_dir() {
            return Ok(Found::Folder(path.clone()));
        }
        let named = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        let image = match named {
            Some(name) => name,
            None => Image::open(path)?.name(Arch::HOST)?,
        };
        Ok(Found::Image(Box::new(self.store()?.insert_file(path, Origin { source: None, image })?)))
    }

    /// The caller's own mapping of ids, for files that belong to its delegated ones.
    pub(crate) fn ids(&self) -> Ids {
        Host::probe(&ply_run::Context::cgroup_from_env()).ids((0, 1))
    }

    /// What `ply-run` works in.
    pub(crate) fn run_context(&self, sources: &SourceArgs) -> Result<ply_run::Context, Failure> {
        let quiet = self.shared.quiet;
        Ok(ply_run::Context {
            dirs: self.dirs.clone(),
            store: self.store()?,
            fetcher: self.fetcher(sources, Arch::HOST)?,
            cgroup_parent: ply_run::Context::cgroup_from_env(),
            cwd: std::env::current_dir()
                .map_err(|why| Failure::new(format!("the current folder can't be read: {why}")))?,
            say: Box::new(move |line| {
                if !quiet {
                    anstream::eprintln!("{}", crate::output::clean_lines(line));
                }
            }),
        })
    }
}
