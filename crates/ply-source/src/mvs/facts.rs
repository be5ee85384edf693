//! What resolution needs of a manifest, and nothing more.

use crate::SourceError;
use ply_manifest::{AbiName, Dependency, Entrypoint, Manifest, PackageName, Range, SourceSpec, Version};

/// One thing that a manifest asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The package.
    pub name: PackageName,
    /// Which versions will do.
    pub range: Range,
    /// Where it is taken from, already decided.
    pub source: SourceSpec,
    /// Whether it is asked for as the base.
    pub base: bool,
}

/// What resolution needs of one manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The package.
    pub name: PackageName,
    /// Its version.
    pub version: Version,
    /// Whether it is a base.
    pub is_base: bool,
    /// Whether, as a root, it can't do without a base: an app with a dependency or a shell entrypoint.
    pub needs_base: bool,
    /// What it asks for: the base first, then by name.
    pub asks: Vec<Ask>,
    /// The ABI of its files for the arch of the resolution, where it states one.
    pub abi: Option<String>,
    /// The ABI that its `[build.requires]` names.
    pub requires_abi: Option<String>,
}

impl Facts {
    /// The facts of a manifest. `flag` is `--source`, which answers for everything without an alias; `default` is
    /// what answers where neither it nor the manifest's own `default` is given.
    /// Errors: an alias that the manifest does not define.
    pub fn of(
        manifest: &Manifest,
        arch: ply_manifest::Arch,
        flag: Option<&SourceSpec>,
        default: &SourceSpec,
    ) -> Result<Self, SourceError> {
        let sources = &manifest.build.sources;
        let ask = |name: &PackageName, dependency: &Dependency, base: bool| {
            let source = match dependency.source.as_deref() {
                Some(alias) if alias != "default" => {
                    sources.get(alias).ok_or_else(|| SourceError::UnknownAlias {
                        asker: manifest.package.name.to_string(),
                        name: name.clone(),
                        alias: alias.to_owned(),
                    })?
                }
                _ => flag.or_else(|| sources.get("default")).unwrap_or(default),
            };
            let (name, range) = (name.clone(), dependency.range.clone());
            Ok::<_, SourceError>(Ask { name, range, source: source.clone(), base })
        };
        let mut asks = Vec::with_capacity(manifest.build.dependencies.len() + 1);
        if let Some((name, dependency)) = &manifest.build.base {
            asks.push(ask(name, dependency, true)?);
        }
        for (name, dependency) in &manifest.build.dependencies {
            asks.push(ask(name, dependency, false)?);
        }
        let abi = |name: &Option<AbiName>| name.as_ref().map(|abi| abi.for_arch(arch));
        let shell = matches!(manifest.run.entrypoint, Some(Entrypoint::Shell(_)));
        let app = manifest.run.entrypoint.is_some() && !manifest.build.is_base;
        Ok(Self {
            name: manifest.package.name.clone(),
            version: manifest.package.version.clone(),
            is_base: manifest.build.is_base,
            needs_base: app && (shell || !manifest.build.dependencies.is_empty()),
            asks,
            abi: abi(&manifest.layer.abi),
            requires_abi: abi(&manifest.build.requires_abi),
        })
    }

    /// What it says of a base.
    pub fn base(&self) -> Option<&Ask> {
        self.asks.iter().find(|ask| ask.base)
    }

    /// `name version`, as chains and tables print it.
    pub fn label(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}
