//! The forge: what it is set up with once, and its verbs `base` and `deb`.

use crate::base::{self, Base};
use crate::closure::{self, Ask};
use crate::complete::{Known, complete};
use crate::debian::apt::Apt;
use crate::debian::suite::Suite;
use crate::debian::version;
use crate::download::Downloads;
use crate::error::{ForgeError, Result};
use crate::files::{Files, Spool};
use crate::http::Client;
use crate::inventory::{self, Line};
use crate::keg::{self, Shape};
use crate::mint::{Draft, Minted};
use crate::observer::{Observer, Silent};
use ply_image::Dirs;
use ply_manifest::{Arch, PackageName, Version};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use toml_edit::{DocumentMut, Item, Table, value};

/// The suite that is taken where none is named.
pub const DEFAULT_SUITE: &str = "trixie";

/// What a forge is set up with.
#[derive(Debug, Clone)]
pub struct ForgeOptions {
    /// Where downloads are kept, by digest.
    pub cache: PathBuf,
    /// A mirror in place of apt's own sources.
    pub mirror: Option<String>,
    /// The root below which apt's configuration is read; `/`.
    pub apt_root: PathBuf,
    /// Threads for packing; 0 for as many as there are processors.
    pub threads: usize,
    /// Who hears of what happens.
    pub observer: Arc<dyn Observer>,
}

impl ForgeOptions {
    /// The cache below the data folder, apt's own sources, nobody listening.
    pub fn new(dirs: &Dirs) -> Self {
        Self {
            cache: dirs.data.join("cache"),
            mirror: None,
            apt_root: "/".into(),
            threads: 0,
            observer: Arc::new(Silent),
        }
    }
}

/// `ply forge base debian`.
#[derive(Debug, Clone)]
pub struct BaseRequest {
    /// The suite's code name.
    pub suite: String,
    /// What it is for.
    pub arch: Arch,
    /// The folder that gets the image.
    pub out: PathBuf,
}

/// `ply forge deb PACKAGE`.
#[derive(Debug, Clone)]
pub struct DebRequest {
    /// Debian's package.
    pub package: String,
    /// The keg's name; the package's, folded, where none is given.
    pub name: Option<PackageName>,
    /// The suite's code name.
    pub suite: String,
    /// What it is for.
    pub arch: Arch,
    /// Further packages that go in whole.
    pub with: Vec<String>,
    /// Libraries that are not looked for; a trailing `*` stands for any ending.
    pub skip_so: Vec<String>,
    /// Links below the prefix: name and target.
    pub symlinks: BTreeMap<String, String>,
    /// Further folders of `PATH`, relative to the prefix.
    pub path: Vec<String>,
    /// Files and folders that stay out, relative to the prefix.
    pub exclude: Vec<String>,
    /// Whether the keg depends on the base of its suite; a static program need not.
    pub base: bool,
    /// The folder that gets the image.
    pub out: PathBuf,
}

impl DebRequest {
    /// A request with nothing but the package; the default suite, this host's arch, the current folder.
    pub fn new(package: &str) -> Self {
        Self {
            package: package.to_owned(),
            name: None,
            suite: DEFAULT_SUITE.to_owned(),
            arch: Arch::HOST,
            with: Vec::new(),
            skip_so: Vec::new(),
            symlinks: BTreeMap::new(),
            path: Vec::new(),
            exclude: Vec::new(),
            base: true,
            out: ".".into(),
        }
    }
}

/// What to write into the manifest of a keg beyond what is found out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Template {
    /// The recipe's `ply.toml`; a manifest from Debian's own words where there is none.
    pub(crate) text: Option<String>,
    /// What errors call it.
    pub(crate) file: String,
    /// The runtime prefix is `/opt/<name>` rather than `/opt/<name>-<version>`.
    pub(crate) runnable: bool,
    /// A folder whose files are laid over the prefix.
    pub(crate) overlay: Option<PathBuf>,
    /// A version in place of the folded one.
    pub(crate) version: Option<Version>,
}

type SuiteKey = (String, Arch);
/// One value being made for one key: whoever holds the lock makes it.
type Slot<T> = Arc<Mutex<Option<Arc<T>>>>;
type Kept<K, T> = Mutex<HashMap<K, Slot<T>>>;

/// Mints packages. Shared between threads; a suite and its base are read once.
#[derive(Debug)]
pub struct Forge {
    options: ForgeOptions,
    apt: Apt,
    pub(crate) downloads: Downloads,
    suites: Kept<SuiteKey, Suite>,
    bases: Kept<SuiteKey, Base>,
}

impl Forge {
    /// A forge. Reads apt's configuration; opens no connection.
    ///
    /// # Errors
    /// A configuration that is not understood, a cache folder that can't be made.
    pub fn new(mut options: ForgeOptions) -> Result<Self> {
        if options.threads == 0 {
            options.threads = std::thread::available_parallelism().map_or(1, usize::from);
        }
        let apt = Apt::read(&options.apt_root)?;
        let client = Client::new(apt.http_proxy.as_deref(), apt.https_proxy.as_deref());
        let downloads = Downloads::new(&options.cache, client)?;
        Ok(Self { options, apt, downloads, suites: Mutex::default(), bases: Mutex::default() })
    }

    /// Bytes that came over the network so far; a second forge of the same packages adds nothing.
    pub fn downloaded(&self) -> u64 {
        self.downloads.fetched()
    }

    /// Who hears of what happens.
    pub(crate) fn observer(&self) -> &dyn Observer {
        &*self.options.observer
    }

    pub(crate) fn threads(&self) -> usize {
        self.options.threads
    }

    pub(crate) fn suite(&self, name: &str, arch: Arch) -> Result<Arc<Suite>> {
        once(&self.suites, (name.to_owned(), arch), || {
            self.observer().step(&format!("reading the package lists of Debian {name} for {arch}"));
            Suite::open(
                name,
                arch,
                &self.apt,
                self.options.mirror.as_deref(),
                &self.downloads,
                self.observer(),
            )
        })
    }

    pub(crate) fn base_of(&self, suite: &Suite) -> Result<Arc<Base>> {
        once(&self.bases, (suite.name.clone(), suite.arch), || {
            self.observer().step(&format!("unpacking the base packages of Debian {}", suite.name));
            base::make(suite, &self.downloads)
        })
    }

    /// Makes the base of a suite: `debian-13.8.0+20261115.a1b2c3d4-linux-x64.img`.
    pub fn base(&self, request: &BaseRequest) -> Result<Minted> {
        let (draft, _spool) = self.draft_base(&request.suite, request.arch, None)?;
        self.observer().step(&format!("packing {}", draft.image()));
        draft.pack(&request.out, self.threads())
    }

    pub(crate) fn draft_base(
        &self,
        suite: &str,
        arch: Arch,
        template: Option<&Template>,
    ) -> Result<(Draft, Arc<Base>)> {
        let suite = self.suite(suite, arch)?;
        let base = self.base_of(&suite)?;
        let version = self.base_version(&suite, &base)?;
        let (own, file) = (base::manifest(&suite, &version), "ply.toml");
        let (text, file) = match template {
            Some(Template { text: Some(text), file, .. }) => (text.as_str(), file.as_str()),
            _ => (own.as_str(), file),
        };
        let known = Known { version: Some(version), abi: Some(ABI.to_owned()), ..Known::default() };
        let (manifest_text, manifest) = complete(text, file, &known)?;
        let draft = Draft {
            files: base.files.clone(),
            manifest_text,
            manifest,
            lock_text: None,
            arch,
            is_base: true,
            packages: base.packages.clone(),
            unresolved: Vec::new(),
            notes: Vec::new(),
        };
        Ok((draft, base))
    }

    /// A base's version, which the package lists of the other arches go into too.
    fn base_version(&self, suite: &Suite, base: &Base) -> Result<Version> {
        let mut others = Vec::new();
        for arch in Arch::ALL.into_iter().filter(|a| *a != suite.arch) {
            match self.suite(&suite.name, arch) {
                Ok(other) => others.push(other),
                Err(why) => self.observer().note(&format!("the base's version leaves {arch} out: {why}")),
            }
        }
        let packages = others.iter().map(|o| base::packages(o)).collect::<Result<Vec<_>>>()?;
        base::base_version(suite, base, &packages)
    }

    /// Makes a keg of a Debian package and of what its programs need beyond the base.
    pub fn deb(&self, request: &DebRequest) -> Result<Minted> {
        let (draft, _spool) =
            self.draft_deb(request, &Template { file: "ply.toml".to_owned(), ..Template::default() })?;
        self.observer().step(&format!("packing {}", draft.image()));
        draft.pack(&request.out, self.threads())
    }

    pub(crate) fn draft_deb(&self, request: &DebRequest, template: &Template) -> Result<(Draft, Arc<Spool>)> {
        let suite = self.suite(&request.suite, request.arch)?;
        let package = suite.package(&request.package)?;
        let base = self.base_of(&suite)?;
        let base_packages: BTreeSet<String> = base.packages.iter().map(|p| p.name.clone()).collect();
        let name = match &request.name {
            Some(name) => name.clone(),
            None => version::fold_name(&request.package)?,
        };
        let version = match &template.version {
            Some(version) => version.clone(),
            None => version::fold(package.version)?,
        };
        let roots: Vec<String> = std::iter::once(&request.package).chain(&request.with).cloned().collect();
        let spool = Spool::new(&self.downloads.work())?;
        self.observer().step(&format!("following the libraries of {}", request.package));
        let ask =
            Ask { roots: &roots, skip: &request.skip_so, base: &base.files, base_packages: &base_packages };
        let closure = closure::find(&suite, &ask, &self.downloads, &spool)?;
        let prefix =
            if template.runnable { format!("/opt/{name}") } else { format!("/opt/{name}-{version}") };
        let shape = Shape {
            symlinks: request.symlinks.clone(),
            path: request.path.clone(),
            exclude: request.exclude.clone(),
        };
        let mut keg = keg::relocate(&closure, &base.files, suite.arch, &prefix, &shape)?;
        if let Some(dir) = &template.overlay {
            self.lay_over(&mut keg.files, dir, &prefix, &spool)?;
        }
        let packages: Vec<Line> =
            closure.packages.iter().filter_map(|name| suite.index.get(name)).map(|p| Line::of(&p)).collect();
        keg.files.put_text(&format!("{prefix}/share/ply/packages.json"), 0o644, inventory::render(&packages));
        let known = Known {
            version: Some(version),
            base: request
                .base
                .then(|| base::range(&suite))
                .transpose()?
                .map(|range| format!("debian@{range}")),
            path: keg.path,
            ld_library_path: keg.ld_library_path,
            env: keg.env,
            abi: request.base.then(|| ABI.to_owned()),
            replace_version: true,
            prefix,
        };
        let own;
        let text = match &template.text {
            Some(text) => text,
            None => {
                own = described(&name, package.field("Description"), package.field("Homepage"));
                &own
            }
        };
        let (manifest_text, manifest) = complete(text, &template.file, &known)?;
        let draft = Draft {
            files: keg.files,
            manifest_text,
            manifest,
            lock_text: None,
            arch: request.arch,
            is_base: false,
            packages,
            unresolved: closure.unresolved,
            notes: keg.notes,
        };
        Ok((draft, spool))
    }

    /// Lays a folder of the recipe's own files over a prefix.
    pub(crate) fn lay_over(&self, files: &mut Files, dir: &Path, prefix: &str, spool: &Spool) -> Result<()> {
        let mut over = Files::default();
        over.read_dir(dir, "", spool)?;
        keg::overlay(files, &over, prefix)
    }
}

/// The ABI of everything that is made of Debian's packages.
pub(crate) const ABI: &str = "linux-{arch}-gnu";

/// A manifest from Debian's own words about a package.
fn described(name: &PackageName, description: &str, homepage: &str) -> String {
    let mut document = DocumentMut::new();
    let mut package = Table::new();
    package.insert("name", value(name.as_str()));
    if let Some(line) = description.lines().next().filter(|l| !l.is_empty()) {
        package.insert("description", value(line));
    }
    package.insert("license", value("see share/doc/*/copyright"));
    if !homepage.is_empty() {
        package.insert("homepage", value(homepage));
    }
    document.insert("package", Item::Table(package));
    document.to_string()
}

/// Computes a value once for each key; others who ask for the same wait, others who ask for another don't.
fn once<K: std::hash::Hash + Eq, T>(
    map: &Kept<K, T>,
    key: K,
    make: impl FnOnce() -> Result<T>,
) -> Result<Arc<T>> {
    let slot = Arc::clone(map.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    match &*slot {
        Some(made) => Ok(Arc::clone(made)),
        None => {
            let made = Arc::new(make()?);
            *slot = Some(Arc::clone(&made));
            Ok(made)
        }
    }
}

impl ForgeError {
    /// Unresolved libraries as an error, for those who refuse them.
    pub fn unresolved(minted: &Minted) -> Option<Self> {
        let list: Vec<String> = minted.unresolved.iter().map(ToString::to_string).collect();
        (!list.is_empty()).then(|| Self::Unresolved {
            package: minted.image.name.to_string(),
            count: list.len(),
            list: list.join("; "),
        })
    }
}
