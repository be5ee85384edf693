//! `ply forge all`: every recipe of a folder into a registry, what changed only, several at once, in the order of their
//! dependencies.
//!
//! What an image is made of has one digest, its key: the recipe's files, the packages that go in, the lock, the rules of
//! this forge. An image with that key in the registry is left alone. Where something changed and the version did not
//! (a library inside got a fix, a recipe was edited), the version gets a revision of its own, since the bytes of a published
//! version never change: `8.0.2+3` → `8.0.2+3.0.2`, which sorts behind the version and before Debian's next revision.

use crate::complete::{Known, complete};
use crate::download::hex;
use crate::error::{ForgeError, Result};
use crate::files::Spool;
use crate::forge::{ABI, DebRequest, Forge, Template};
use crate::keg::{self, Shape};
use crate::mint::{Draft, Minted};
use crate::npm::{self, Tarball};
use crate::recipe::{Recipe, Source};
use crate::registry::Registry;
use crate::revision::{newest_revision, next_revision};
use ply_manifest::{Arch, ImageName, PackageName, SourceSpec, Version};
use sha2::{Digest as _, Sha256};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The rules by which files become images, as a number: when they change, everything is minted anew.
const RULES: u32 = 1;

/// `ply forge all PACKAGES -o REGISTRY`.
#[derive(Debug, Clone)]
pub struct AllRequest {
    /// The folder with one folder a recipe.
    pub recipes: PathBuf,
    /// The folder that becomes, or is, a registry.
    pub registry: PathBuf,
    /// For which arches.
    pub archs: Vec<Arch>,
    /// Only these packages and the recipes that they need; all where the list is empty.
    pub only: Vec<PackageName>,
    /// What the locks inside runnable packages name as the source: a template that holds wherever the registry is
    /// copied to. Digests decide; whoever has them serves.
    pub published_at: SourceSpec,
}

impl AllRequest {
    /// Every recipe for this host's arch, published as the official registry is.
    pub fn new(recipes: impl Into<PathBuf>, registry: impl Into<PathBuf>) -> Self {
        Self {
            recipes: recipes.into(),
            registry: registry.into(),
            archs: vec![Arch::HOST],
            only: Vec::new(),
            published_at: SourceSpec::Http(SourceSpec::OFFICIAL.to_owned()),
        }
    }
}

/// What became of a run over all recipes, each list in the order of names.
#[derive(Debug, Default)]
pub struct AllReport {
    /// New images.
    pub minted: Vec<Minted>,
    /// Images that were there already.
    pub unchanged: Vec<ImageName>,
    /// Recipes that could not be minted; the others were.
    pub failed: Vec<Failure>,
    /// The registry as a source, `file:///…/{package}`.
    pub source: String,
}

/// A recipe that could not be minted.
#[derive(Debug)]
pub struct Failure {
    /// The package.
    pub name: PackageName,
    /// For which arch.
    pub arch: Arch,
    /// Why.
    pub error: ForgeError,
}

enum Outcome {
    Minted(Box<Minted>),
    Unchanged(ImageName),
}

/// One recipe for one arch.
struct Task<'a> {
    recipe: &'a Recipe,
    arch: Arch,
    /// Tasks that come first, by index.
    after: BTreeSet<usize>,
}

#[derive(Default)]
struct Progress {
    begun: BTreeSet<usize>,
    done: BTreeMap<usize, Result<Outcome>>,
}

impl Forge {
    /// Mints what changed. A recipe that fails does not keep others from being minted; what it would have brought
    /// stays as it was in the registry.
    ///
    /// # Errors
    /// When recipes can't be read, or need each other in a circle, or the registry can't be written.
    pub fn all(&self, request: &AllRequest) -> Result<AllReport> {
        let mut recipes = Recipe::read_all(&request.recipes)?;
        if let Some(unknown) = request.only.iter().find(|n| !recipes.iter().any(|r| r.name == **n)) {
            return Err(ForgeError::Recipe {
                file: request.recipes.display().to_string(),
                why: format!("there is no recipe for {unknown}"),
                hint: ply_manifest::nearest(unknown.as_str(), recipes.iter().map(|r| r.name.as_str()))
                    .map(|near| format!("did you mean {near:?}?")),
            });
        }
        if !request.only.is_empty() {
            let wanted = with_needs(&recipes, &request.only);
            recipes.retain(|r| wanted.contains(&r.name));
        }
        let registry = Registry::open(&request.registry)?;
        let tasks = tasks(&recipes, &request.archs)?;
        let progress = Mutex::new(Progress::default());
        let changed = Condvar::new();
        let workers = self.threads().min(tasks.len()).max(1);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| self.work(&tasks, &progress, &changed, &registry, request));
            }
        });
        registry.finish()?;
        let mut report = AllReport { source: registry.source(), ..AllReport::default() };
        for (i, outcome) in progress.into_inner().unwrap_or_else(PoisonError::into_inner).done {
            match outcome {
                Ok(Outcome::Minted(minted)) => report.minted.push(*minted),
                Ok(Outcome::Unchanged(image)) => report.unchanged.push(image),
                Err(error) => {
                    let (name, arch) = (tasks[i].recipe.name.clone(), tasks[i].arch);
                    report.failed.push(Failure { name, arch, error });
                }
            }
        }
        Ok(report)
    }

    /// Takes tasks whose predecessors are done until none is left.
    fn work(
        &self,
        tasks: &[Task<'_>],
        progress: &Mutex<Progress>,
        changed: &Condvar,
        registry: &Registry,
        request: &AllRequest,
    ) {
        let lock = || progress.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut state = lock();
            let next = loop {
                if state.begun.len() == tasks.len() {
                    return;
                }
                let ready = |i: &usize| {
                    !state.begun.contains(i)
                        && tasks[*i].after.iter().all(|before| state.done.contains_key(before))
                };
                match (0..tasks.len()).find(ready) {
                    Some(i) => break i,
                    None => state = changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            state.begun.insert(next);
            drop(state);
            let outcome = self.mint(tasks[next].recipe, tasks[next].arch, registry, request);
            lock().done.insert(next, outcome);
            changed.notify_all();
        }
    }

    /// Mints one recipe for one arch, if anything of it changed.
    fn mint(
        &self,
        recipe: &Recipe,
        arch: Arch,
        registry: &Registry,
        request: &AllRequest,
    ) -> Result<Outcome> {
        let inputs = self.inputs(recipe, arch)?;
        let lock = self.lock_of(recipe, arch, registry, &request.published_at)?;
        let mut hash = Sha256::new();
        for part in [
            &format!("rules {RULES} {arch}"),
            &recipe.digest,
            &inputs.lines,
            &lock.clone().unwrap_or_default(),
        ] {
            hash.update(format!("{} ", part.len()));
            hash.update(part);
        }
        let key = hex(&<[u8; 32]>::from(hash.finalize()));
        if let Some(record) = registry.by_key(&recipe.name, &key) {
            return Ok(Outcome::Unchanged(record.image));
        }
        let made = self.draft(recipe, arch, &inputs, None)?;
        let natural = made.draft.manifest.package.version.clone();
        let mut version = newest_revision(registry, &recipe.name, &natural);
        let mut made =
            if version == natural { made } else { self.draft(recipe, arch, &inputs, Some(&version))? };
        loop {
            made.draft.lock_text.clone_from(&lock);
            if let Some(error) = unresolved(&made.draft) {
                return Err(error);
            }
            let image = made.draft.image();
            let text = registry.manifest_text(&image);
            let same_text = text.is_none_or(|text| text == made.draft.manifest_text);
            if same_text {
                self.observer().step(&format!("packing {image}"));
                let minted = made.draft.pack_beside(&registry.folder(&recipe.name), self.threads())?;
                let there = registry.images(&recipe.name).contains(&image);
                if !there || registry.digest(&image)?.sha256 == minted.digest {
                    let path = registry
                        .add(&minted, &key)
                        .inspect_err(|_| drop(std::fs::remove_file(&minted.path)))?;
                    let minted = Minted { path, ..minted };
                    return Ok(if there {
                        Outcome::Unchanged(image)
                    } else {
                        Outcome::Minted(Box::new(minted))
                    });
                }
                let _ = std::fs::remove_file(&minted.path);
            }
            if matches!(recipe.source, Source::Base { .. }) {
                return Err(ForgeError::Published { name: image.to_string() });
            }
            version = next_revision(&natural, &version)?;
            self.observer()
                .note(&format!("{image} is published with other bytes: {version} is minted beside it"));
            made = self.draft(recipe, arch, &inputs, Some(&version))?;
        }
    }

    /// What a recipe's bytes come from, found in the indexes alone: nothing is unpacked for it.
    fn inputs(&self, recipe: &Recipe, arch: Arch) -> Result<Inputs> {
        let line =
            |p: &crate::debian::index::Package<'_>| format!("{} {} {}\n", p.name, p.version, p.sha256());
        let mut tarball = None;
        let lines = match &recipe.source {
            Source::Base { suite } => {
                let suite = self.suite(suite, arch)?;
                let packages = crate::base::packages(&suite)?;
                suite.version.clone() + &packages.iter().map(line).collect::<String>()
            }
            Source::Deb(deb) => {
                let suite = self.suite(&deb.suite, arch)?;
                let base = crate::base::packages(&suite)?;
                let names: BTreeSet<&str> = base.iter().map(|p| p.name).collect();
                let roots: Vec<&str> =
                    std::iter::once(&deb.package).chain(&deb.with).map(String::as_str).collect();
                let reachable = suite.closure(&roots, &|name| names.contains(name))?;
                // Of the base only which packages it has counts, not their versions.
                let skipped: String = names.iter().map(|name| format!("without {name}\n")).collect();
                skipped + &reachable.iter().map(line).collect::<String>()
            }
            Source::Npm(npm) => {
                let found = npm::find(npm, arch, &recipe.file, &self.downloads)?;
                let line = found.identity();
                tarball = Some(found);
                line
            }
            Source::Files => String::new(),
        };
        Ok(Inputs { lines, tarball })
    }

    fn draft(&self, recipe: &Recipe, arch: Arch, inputs: &Inputs, version: Option<&Version>) -> Result<Made> {
        let template = Template {
            text: Some(recipe.text.clone()),
            file: recipe.file.clone(),
            runnable: recipe.runnable,
            overlay: recipe.overlay(),
            version: version.or(recipe.version.as_ref()).cloned(),
        };
        match &recipe.source {
            Source::Base { suite } => {
                let (draft, base) = self.draft_base(suite, arch, Some(&template))?;
                Ok(Made { draft, _held: base })
            }
            Source::Deb(deb) => {
                let request = DebRequest {
                    package: deb.package.clone(),
                    name: Some(recipe.name.clone()),
                    suite: deb.suite.clone(),
                    arch,
                    with: deb.with.clone(),
                    skip_so: deb.skip_so.clone(),
                    symlinks: deb.symlinks.clone(),
                    path: deb.path.clone(),
                    exclude: deb.exclude.clone(),
                    base: deb.base,
                    out: PathBuf::new(),
                };
                let (draft, spool) = self.draft_deb(&request, &template)?;
                Ok(Made { draft, _held: spool })
            }
            Source::Npm(npm) => {
                let shape =
                    Shape { symlinks: npm.symlinks.clone(), exclude: npm.exclude.clone(), path: Vec::new() };
                self.draft_files(recipe, arch, &template, inputs.tarball.as_ref(), &shape)
            }
            Source::Files => self.draft_files(recipe, arch, &template, None, &Shape::default()),
        }
    }

    /// A package of a tarball's files, or of the recipe's own alone, under its prefix.
    fn draft_files(
        &self,
        recipe: &Recipe,
        arch: Arch,
        template: &Template,
        tarball: Option<&Tarball>,
        shape: &Shape,
    ) -> Result<Made> {
        let spool = Spool::new(&self.downloads.work())?;
        let version = match (&template.version, tarball) {
            (Some(version), _) => version.clone(),
            (None, Some(tarball)) => tarball.version.clone(),
            (None, None) => {
                return Err(ForgeError::Recipe {
                    file: recipe.file.clone(),
                    why: "[package] has no version, and nothing else tells it".to_owned(),
                    hint: Some("write version = \"1.0.0\"".to_owned()),
                });
            }
        };
        let name = &recipe.name;
        let prefix = if recipe.runnable { format!("/opt/{name}") } else { format!("/opt/{name}-{version}") };
        let mut files = tarball.map(|t| t.unpack(&self.downloads, &spool)).transpose()?.unwrap_or_default();
        // Before its folders for PATH and libraries are told: they may be the recipe's own alone.
        if let Some(dir) = &template.overlay {
            self.lay_over(&mut files, dir, "", &spool)?;
        }
        let keg = keg::shape(&files, &prefix, shape)?;
        let known = Known {
            version: Some(version),
            path: keg.path,
            ld_library_path: keg.ld_library_path,
            abi: tarball.is_some().then(|| ABI.to_owned()),
            prefix,
            replace_version: true,
            ..Known::default()
        };
        let (manifest_text, manifest) = complete(&recipe.text, &recipe.file, &known)?;
        let draft = Draft {
            files: keg.files,
            manifest_text,
            manifest,
            lock_text: None,
            arch,
            is_base: false,
            packages: Vec::new(),
            unresolved: Vec::new(),
            notes: keg.notes,
        };
        Ok(Made { draft, _held: spool })
    }
}

/// What the indexes say of a recipe's bytes.
struct Inputs {
    /// Each of them as a line.
    lines: String,
    tarball: Option<Tarball>,
}

/// A draft with whatever keeps its contents.
struct Made {
    draft: Draft,
    _held: Arc<dyn Any + Send + Sync>,
}

fn unresolved(draft: &Draft) -> Option<ForgeError> {
    let list: Vec<String> = draft.unresolved.iter().map(ToString::to_string).collect();
    (!list.is_empty()).then(|| ForgeError::Unresolved {
        package: draft.manifest.package.name.to_string(),
        count: list.len(),
        list: list.join("; "),
    })
}

/// Some packages, and all that they need.
fn with_needs(recipes: &[Recipe], only: &[PackageName]) -> BTreeSet<PackageName> {
    let mut wanted = BTreeSet::new();
    let mut queue = only.to_vec();
    while let Some(name) = queue.pop() {
        let of_name = recipes.iter().filter(|r| r.name == name);
        let needs = of_name.flat_map(|r| r.needs.iter().map(|need| need.name.clone()));
        queue.extend(needs.filter(|need| !wanted.contains(need)));
        wanted.insert(name);
    }
    wanted
}

/// The tasks, each with those that come first.
fn tasks<'a>(recipes: &'a [Recipe], archs: &[Arch]) -> Result<Vec<Task<'a>>> {
    let mut tasks: Vec<Task<'a>> = recipes
        .iter()
        .flat_map(|recipe| archs.iter().filter(|a| recipe.archs.contains(a)).map(move |arch| (recipe, *arch)))
        .map(|(recipe, arch)| Task { recipe, arch, after: BTreeSet::new() })
        .collect();
    for i in 0..tasks.len() {
        let before = (0..tasks.len()).filter(|j| {
            tasks[*j].arch == tasks[i].arch
                && tasks[i].recipe.needs.iter().any(|n| n.name == tasks[*j].recipe.name)
        });
        tasks[i].after = before.collect();
    }
    let mut done = BTreeSet::new();
    while done.len() < tasks.len() {
        let ready: Vec<usize> =
            (0..tasks.len()).filter(|i| !done.contains(i) && tasks[*i].after.is_subset(&done)).collect();
        if ready.is_empty() {
            let stuck: BTreeSet<&str> = (0..tasks.len())
                .filter(|i| !done.contains(i))
                .map(|i| tasks[i].recipe.name.as_str())
                .collect();
            return Err(ForgeError::Cycle(stuck.into_iter().collect::<Vec<_>>().join(", ")));
        }
        done.extend(ready);
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(dir: &std::path::Path, name: &str, needs: &str) -> Recipe {
        let dir = dir.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let ply = format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\n[build.dependencies]\n{needs}");
        std::fs::write(dir.join("ply.toml"), ply).unwrap();
        std::fs::write(dir.join("forge.toml"), "kind = \"files\"\n").unwrap();
        Recipe::read(&dir).unwrap()
    }

    #[test]
    fn tasks_wait_for_their_own_arch_and_a_circle_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let recipes = [recipe(dir.path(), "a", "b = \"1\"\n"), recipe(dir.path(), "b", "")];
        let made = tasks(&recipes, &Arch::ALL).unwrap();
        let after: Vec<Vec<usize>> = made.iter().map(|t| t.after.iter().copied().collect()).collect();
        assert_eq!(after, [vec![2], vec![3], vec![], vec![]]);
        let only = with_needs(&recipes, &["a".parse().unwrap()]);
        assert_eq!(only.len(), 2, "a package comes with what it needs");
        let circle = [recipe(dir.path(), "a", "b = \"1\"\n"), recipe(dir.path(), "b", "a = \"1\"\n")];
        let error = tasks(&circle, &[Arch::X64]).err().unwrap();
        assert_eq!(error.to_string(), "recipes depend on each other in a circle: a, b");
    }
}
