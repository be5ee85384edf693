//! The lock inside a runnable package, resolved from the registry that it goes into.

use crate::base::range as base_range;
use crate::error::{ForgeError, Result};
use crate::forge::Forge;
use crate::recipe::{Need, Recipe, Source};
use crate::registry::Registry;
use ply_manifest::{Arch, ImageName, Lock, LockedPackage, Manifest, PackageName, SourceSpec, Version};
use ply_source::SourceError;
use ply_source::mvs::{self, Ask, Facts, Listing, Pick, Prefer, Universe};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Forge {
    /// The lock that goes into a runnable package: the newest in the registry that its ranges allow.
    pub(crate) fn lock_of(
        &self,
        recipe: &Recipe,
        arch: Arch,
        registry: &Registry,
        source: &SourceSpec,
    ) -> Result<Option<String>> {
        if !recipe.runnable || recipe.needs.is_empty() {
            return Ok(None);
        }
        let mut asks = Vec::new();
        for Need { name, range, base } in &recipe.needs {
            let range = match (range, &recipe.source) {
                (Some(range), _) => range.clone(),
                (None, Source::Deb(deb)) => base_range(&*self.suite(&deb.suite, arch)?)?,
                (None, _) => ply_manifest::Range::Any,
            };
            asks.push(Ask { name: name.clone(), range, source: source.clone(), base: *base });
        }
        let root = Facts {
            name: recipe.name.clone(),
            version: recipe.version.clone().unwrap_or(Version::new(0, 0, 0)),
            is_base: false,
            needs_base: false,
            asks,
            abi: None,
            requires_abi: None,
        };
        let mut universe = Shelf { registry, arch, source };
        let graph = mvs::solve(&root, arch, &|_| Prefer::Newest, &mut universe)
            .map_err(|e| ForgeError::Resolution(Box::new(e)))?;
        let mut lock = Lock::default();
        for node in graph.nodes {
            let image = ImageName { name: node.pick.name, version: node.pick.version, arch };
            let digest = BTreeMap::from([(arch, registry.digest(&image)?.sha256)]);
            let package =
                LockedPackage { name: image.name, version: image.version, source: source.clone(), digest };
            lock.packages.push(package);
        }
        Ok(Some(lock.to_string()))
    }
}

/// The registry as the resolution sees it.
struct Shelf<'a> {
    registry: &'a Registry,
    arch: Arch,
    source: &'a SourceSpec,
}

#[allow(clippy::result_large_err, reason = "the error is ply-source's, and the trait asks for it")]
impl Universe for Shelf<'_> {
    fn list(
        &mut self,
        wanted: &[(PackageName, SourceSpec)],
    ) -> Vec<std::result::Result<Listing, SourceError>> {
        let one = |(name, _): &(PackageName, SourceSpec)| {
            let (own, other): (Vec<ImageName>, Vec<ImageName>) =
                self.registry.images(name).into_iter().partition(|i| i.arch == self.arch);
            let versions = |images: Vec<ImageName>| images.into_iter().map(|i| i.version).collect();
            Ok(Listing { versions: versions(own), other_arch: versions(other) })
        };
        wanted.iter().map(one).collect()
    }

    fn read(&mut self, wanted: &[Pick]) -> Vec<std::result::Result<Arc<Facts>, SourceError>> {
        let one = |pick: &Pick| {
            let image = ImageName { name: pick.name.clone(), version: pick.version.clone(), arch: self.arch };
            let why = "its manifest is not beside it".to_owned();
            let text = self.registry.manifest_text(&image);
            let text = text.ok_or_else(|| SourceError::NoImage { place: image.to_string(), why })?;
            let manifest =
                Manifest::parse(&text, &format!("{}.toml", image.stem())).map_err(SourceError::Inside)?;
            Facts::of(&manifest, self.arch, Some(self.source), self.source).map(Arc::new)
        };
        wanted.iter().map(one).collect()
    }

    fn nearest(&mut self, _: &PackageName, _: &SourceSpec) -> Option<String> {
        None
    }
}
