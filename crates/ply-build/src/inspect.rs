//! `ply inspect`: what a package declares, straight from its manifest, and what it is made of, from its lock. The
//! keys of the JSON are stable; what isn't declared is null, which is not the same as empty.

use crate::BuildError;
use crate::build::{manifest_text, read_document};
use crate::record::digest_of;
use ply_image::{Entry, Image};
use ply_manifest::{
    Arch, Capabilities, Composition, Dependency, Digest, Document, Entrypoint, Health, ImageName, Limit,
    Lock, Manifest, PackageName, Param, RestartPolicy, ScaleSignal, VolumeScope,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

/// What a package declares.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inspection {
    /// `app`, `layer`, `base` or `stack`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name.
    pub name: String,
    /// The version; a composition may have none.
    pub version: Option<String>,
    /// The arch that the image is for; none for a directory.
    pub arch: Option<String>,
    /// The registry namespace.
    pub owner: Option<String>,
    /// One line for the registry.
    pub description: Option<String>,
    /// The licence.
    pub license: Option<String>,
    /// The home page.
    pub homepage: Option<String>,
    /// The base as `name@range`.
    pub base: Option<String>,
    /// Dependencies: name to range.
    pub dependencies: BTreeMap<String, String>,
    /// Sources by alias.
    pub sources: BTreeMap<String, String>,
    /// The ABI that it needs or states, with the arch filled in where it is known.
    pub abi: Option<String>,
    /// The entrypoint's argv.
    pub entrypoint: Option<Vec<String>>,
    /// `name:uid:gid`; none is root inside.
    pub user: Option<String>,
    /// The folder that it starts in, where it says one.
    pub workdir: Option<String>,
    /// The signal that means "shut down", where it says one.
    pub stop_signal: Option<String>,
    /// What it keeps after rights are stripped: `none`, `oci`, or names with commas.
    pub capabilities: String,
    /// Variables, in the order of the file.
    pub env: Vec<Variable>,
    /// Params by name.
    pub params: BTreeMap<String, InspectedParam>,
    /// Ports by label.
    pub ports: BTreeMap<String, u16>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, InspectedVolume>,
    /// Whom it talks to: none where not declared, empty where it claims to talk to nobody.
    pub egress: Option<Vec<String>>,
    /// Limits as written: `mem`, `cpu`, `pids`.
    pub resources: BTreeMap<&'static str, String>,
    /// The health gate, where there is one.
    pub health: Option<InspectedHealth>,
    /// `never`, `on-failure` or `always`.
    pub restart: &'static str,
    /// Autoscaling, where it is declared.
    pub scale: Option<InspectedScale>,
    /// Host paths that the image asks for; never given without the operator's word.
    pub requests: Vec<InspectedLink>,
    /// What it gives to those that depend on it.
    pub layer: InspectedLayer,
    /// The members of a composition.
    pub members: Vec<InspectedMember>,
    /// The layers below it, from its lock, in layer order.
    pub layers: Vec<LockedLayer>,
    /// The image's digest.
    pub digest: Option<String>,
    /// The image's size in bytes.
    pub bytes: Option<u64>,
}

/// One variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Variable {
    pub name: String,
    pub value: String,
}

/// One param.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InspectedParam {
    /// The default, perhaps with holes; none for a secret.
    pub default: Option<String>,
    /// Whether it is a secret.
    pub secret: bool,
    /// Whether a secret is provided, never minted.
    pub external: bool,
}

/// One volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InspectedVolume {
    /// Where it is inside.
    pub path: String,
    /// `instance` or `shared`.
    pub scope: &'static str,
    /// Whether `ply gc` may take it.
    pub ephemeral: bool,
}

/// The health gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InspectedHealth {
    /// The port that must accept a connection.
    pub port: u16,
    /// The cold-start budget.
    pub grace: String,
}

/// Autoscaling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the manifest")]
pub struct InspectedScale {
    pub min: u32,
    pub max: u32,
    pub signal: Option<String>,
    pub target: Option<String>,
    pub idle: Option<String>,
}

/// One host path that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InspectedLink {
    /// The path on the host.
    pub host: String,
    /// The path inside.
    pub at: String,
    /// Whether it is read-only.
    pub read_only: bool,
}

/// What a package gives to those that depend on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct InspectedLayer {
    /// Folders for `PATH`.
    pub path: Vec<String>,
    /// Folders for `LD_LIBRARY_PATH`.
    pub ld_library_path: Vec<String>,
    /// Plain variables.
    pub env: BTreeMap<String, String>,
}

/// One member of a composition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InspectedMember {
    /// Its name.
    pub name: String,
    /// What it runs.
    pub run: String,
    /// What it waits for.
    pub after: Vec<String>,
}

/// One layer of the resolved graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LockedLayer {
    /// The package.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its digest for the arch in question; none where the lock has none for it.
    pub digest: Option<String>,
    /// The template of its source.
    pub source: String,
}

/// What is known of an image beside its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFacts {
    /// What it is for.
    pub arch: Arch,
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub bytes: u64,
}

/// What an image of the store declares, and its manifest's text.
pub fn inspect_entry(entry: &Entry) -> Result<(Inspection, String), BuildError> {
    let facts = ImageFacts { arch: entry.name.arch, digest: entry.digest, bytes: entry.bytes };
    let text = entry.manifest_text()?;
    let manifest = parse(&text, &entry.name.to_string())?;
    Ok((of_package(&manifest, entry.lock()?.as_ref(), Some(&facts)), text))
}

/// What an image file or a directory declares, and its manifest's text. An image's bytes are hashed.
pub fn inspect_path(path: &Path) -> Result<(Inspection, String), BuildError> {
    if path.is_dir() {
        let (text, file) = manifest_text(path)?;
        return match read_document(&text, &file)? {
            Document::Package(manifest) => {
                let lock_file = path.join("ply.lock");
                let lock = std::fs::read_to_string(&lock_file)
                    .ok()
                    .map(|t| Lock::parse(&t, &lock_file.display().to_string()).map_err(BuildError::Lock));
                Ok((of_package(&manifest, lock.transpose()?.as_ref(), None), text))
            }
            Document::Composition(composition) => Ok((of_composition(&composition), text)),
        };
    }
    let image = Image::open(path)?;
    let text = image.manifest_text()?;
    let manifest = parse(&text, &path.display().to_string())?;
    let lock =
        image.lock_text()?.map(|t| Lock::parse(&t, "/.lock.toml").map_err(BuildError::Lock)).transpose()?;
    let name: Option<ImageName> = path.file_name().and_then(|n| n.to_str()?.parse().ok());
    // A name that tells no arch is taken for one that this host runs.
    let arch = name.map_or(Arch::HOST, |n| n.arch);
    let facts = ImageFacts { arch, digest: digest_of(path)?, bytes: image.length() };
    Ok((of_package(&manifest, lock.as_ref(), Some(&facts)), text))
}

fn parse(text: &str, file: &str) -> Result<Manifest, BuildError> {
    Manifest::parse(text, file).map_err(BuildError::Manifest)
}

/// What a manifest declares.
pub fn of_package(manifest: &Manifest, lock: Option<&Lock>, image: Option<&ImageFacts>) -> Inspection {
    let (package, build, run) = (&manifest.package, &manifest.build, &manifest.run);
    let arch = image.map_or(Arch::HOST, |i| i.arch);
    let text = |value: &dyn Display| value.to_string();
    let abi = build.requires_abi.as_ref().or(manifest.layer.abi.as_ref());
    let base = |(name, asked): &(PackageName, Dependency)| format!("{name}@{}", asked.range);
    let mut resources = BTreeMap::new();
    if let Some(mem) = &run.mem {
        resources.insert("mem", limit(mem));
    }
    if let Some(cpu) = &run.cpu {
        resources.insert("cpu", limit(cpu));
    }
    if let Some(pids) = run.pids {
        resources.insert("pids", pids.to_string());
    }
    Inspection {
        kind: manifest.kind().to_string(),
        name: text(&package.name),
        version: Some(text(&package.version)),
        arch: image.map(|i| text(&i.arch)),
        owner: package.owner.as_ref().map(|o| text(o)),
        description: package.description.clone(),
        license: package.license.clone(),
        homepage: package.homepage.clone(),
        base: build.base.as_ref().map(base),
        dependencies: build
            .dependencies
            .iter()
            .map(|(name, asked)| (text(name), text(&asked.range)))
            .collect(),
        sources: build.sources.iter().map(|(alias, source)| (alias.clone(), text(source))).collect(),
        abi: abi.map(|abi| if image.is_some() { abi.for_arch(arch) } else { text(abi) }),
        entrypoint: run.entrypoint.as_ref().map(|e: &Entrypoint| e.argv(&[])),
        user: run.user.as_ref().map(|u| text(u)),
        workdir: run.workdir.clone(),
        stop_signal: run.stop_signal.as_ref().map(|s| text(s)),
        capabilities: capabilities(&run.capabilities),
        env: run
            .env
            .iter()
            .map(|(name, value)| Variable { name: name.clone(), value: value.clone() })
            .collect(),
        params: run.params.iter().flatten().map(|(name, p)| (name.clone(), param(p))).collect(),
        ports: run.ports.clone(),
        volumes: run
            .volumes
            .iter()
            .map(|(name, v)| {
                let scope = match v.scope {
                    VolumeScope::Instance => "instance",
                    VolumeScope::Shared => "shared",
                };
                (name.clone(), InspectedVolume { path: v.path.clone(), scope, ephemeral: v.ephemeral })
            })
            .collect(),
        egress: run.egress.as_ref().map(|list| list.iter().map(|e| text(e)).collect()),
        resources,
        health: run.health.as_ref().map(|h: &Health| InspectedHealth { port: h.port, grace: text(&h.grace) }),
        restart: match run.restart.policy {
            RestartPolicy::Never => "never",
            RestartPolicy::OnFailure => "on-failure",
            RestartPolicy::Always => "always",
        },
        scale: run.scale.as_ref().map(|s| InspectedScale {
            min: s.min,
            max: s.max,
            signal: s.signal.as_ref().map(|signal| match signal {
                ScaleSignal::Cpu => "cpu".to_owned(),
                ScaleSignal::Memory => "memory".to_owned(),
                ScaleSignal::Net => "net".to_owned(),
                ScaleSignal::Metric(name) => format!("metric:{name}"),
            }),
            target: s.target.clone(),
            idle: s.idle.as_ref().map(|i| text(i)),
        }),
        requests: run
            .link_requests
            .iter()
            .map(|l| InspectedLink { host: l.host.clone(), at: l.at.clone(), read_only: l.read_only })
            .collect(),
        layer: InspectedLayer {
            path: manifest.layer.path.clone(),
            ld_library_path: manifest.layer.ld_library_path.clone(),
            env: manifest.layer.env.clone(),
        },
        members: Vec::new(),
        layers: lock.map(|l| layers(l, arch)).unwrap_or_default(),
        digest: image.map(|i| text(&i.digest)),
        bytes: image.map(|i| i.bytes),
    }
}

/// What a composition declares.
pub fn of_composition(composition: &Composition) -> Inspection {
    Inspection {
        kind: "stack".to_owned(),
        name: composition.name.clone(),
        version: composition.version.as_ref().map(ToString::to_string),
        arch: None,
        owner: composition.owner.as_ref().map(ToString::to_string),
        description: composition.description.clone(),
        license: None,
        homepage: None,
        base: None,
        dependencies: BTreeMap::new(),
        sources: BTreeMap::new(),
        abi: None,
        entrypoint: None,
        user: None,
        workdir: None,
        stop_signal: None,
        capabilities: capabilities(&Capabilities::None),
        env: Vec::new(),
        params: BTreeMap::new(),
        ports: BTreeMap::new(),
        volumes: BTreeMap::new(),
        egress: None,
        resources: BTreeMap::new(),
        health: None,
        restart: "never",
        scale: None,
        requests: Vec::new(),
        layer: InspectedLayer::default(),
        members: composition
            .members
            .iter()
            .map(|m| InspectedMember {
                name: m.name.to_string(),
                run: m.run.to_string(),
                after: m.after.clone(),
            })
            .collect(),
        layers: Vec::new(),
        digest: None,
        bytes: None,
    }
}

fn limit<T: Display>(limit: &Limit<T>) -> String {
    match limit {
        Limit::Fixed(value) => value.to_string(),
        Limit::Between { min, max } => format!("{min} to {max}"),
    }
}

fn capabilities(kept: &Capabilities) -> String {
    match kept {
        Capabilities::None => "none".to_owned(),
        Capabilities::Oci => "oci".to_owned(),
        Capabilities::Only(list) => list.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    }
}

fn param(param: &Param) -> InspectedParam {
    match param {
        Param::Value(value) => {
            InspectedParam { default: Some(value.clone()), secret: false, external: false }
        }
        Param::Secret { external } => InspectedParam { default: None, secret: true, external: *external },
    }
}

fn layers(lock: &Lock, arch: Arch) -> Vec<LockedLayer> {
    lock.packages
        .iter()
        .map(|p| LockedLayer {
            name: p.name.to_string(),
            version: p.version.to_string(),
            digest: p.digest.get(&arch).map(ToString::to_string),
            source: p.source.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_a_manifest_declares_is_in_the_json() {
        let manifest = Manifest::parse(
            r#"
[package]
name = "shop"
version = "1.2.0"
owner = "acme"
description = "Sells things"
[build]
base = "debian@13"
[build.dependencies]
node = "22"
[build.sources]
mine = "github:acme/kegs"
[build.requires]
abi = "linux-{arch}-gnu"
[run]
entrypoint = ["node", "server.js"]
user = "shop:1000:1000"
stop_signal = "quit"
capabilities = ["net_bind_service"]
[run.env]
B = "2"
A = "1"
[run.params]
key = { secret = true, external = true }
level = "info"
[run.ports]
web = 3000
[run.volumes]
data = "/var/lib/shop"
shared = { path = "/srv/x", scope = "shared" }
[run.network]
egress = ["*.stripe.com"]
[run.resources]
mem = { min = "256M", max = "1G" }
cpu = "1.5"
[run.health]
grace = "5s"
[run.requests]
links = ["/var/run/docker.sock:/docker.sock"]
"#,
            "ply.toml",
        )
        .unwrap();
        let digest = Digest::from_bytes([7; 32]);
        let lock = Lock {
            packages: vec![ply_manifest::LockedPackage {
                name: "node".parse().unwrap(),
                version: "22.6.0".parse().unwrap(),
                source: "file:///r/{package}".parse().unwrap(),
                digest: [(Arch::X64, digest)].into(),
            }],
            ..Lock::default()
        };
        let facts = ImageFacts { arch: Arch::X64, digest, bytes: 4096 };
        let shown = of_package(&manifest, Some(&lock), Some(&facts));
        insta::assert_snapshot!(serde_json::to_string_pretty(&shown).unwrap());
    }

    #[test]
    fn egress_that_is_not_declared_is_not_the_same_as_none() {
        let of = |run: &str| {
            let text = format!("[package]\nname=\"x\"\nversion=\"1.0.0\"\n[run]\nentrypoint=[\"x\"]\n{run}");
            let manifest = Manifest::parse(&text, "ply.toml").unwrap();
            serde_json::to_value(of_package(&manifest, None, None)).unwrap()["egress"].to_string()
        };
        assert_eq!(of(""), "null");
        assert_eq!(of("[run.network]\negress=[]"), "[]");
    }
}
