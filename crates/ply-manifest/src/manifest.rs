//! `ply.toml` as a value: identity, what makes the image, how it runs. Grouped and flat files give the same
//! value. Source: the manifest reference. Reading one is `parse.rs`.

use crate::{
    Bytes, Capabilities, Cores, EgressEntry, Owner, PackageName, Range, Signal, SourceSpec, Span, UserSpec,
    Version,
};
use std::collections::BTreeMap;
use std::fmt;

/// A manifest of an app, a layer or a base, validated whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Identity.
    pub package: Package,
    /// What makes the image.
    pub build: Build,
    /// How it runs; defaults, all overridable.
    pub run: Run,
    /// What the package gives to those that depend on it.
    pub layer: LayerSection,
}

/// What a manifest is, derived from what it declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Has an entrypoint: runnable.
    App,
    /// No entrypoint: files under `/opt/<name>-<version>/` for others.
    Layer,
    /// `base = true`: owns `/`.
    Base,
    /// `[[service]]` blocks: several apps, wired.
    Composition,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::App => "app",
            Self::Layer => "layer",
            Self::Base => "base",
            Self::Composition => "stack",
        })
    }
}

impl Manifest {
    /// Base, app or layer.
    pub fn kind(&self) -> Kind {
        if self.build.is_base {
            Kind::Base
        } else if self.run.entrypoint.is_some() {
            Kind::App
        } else {
            Kind::Layer
        }
    }
}

/// `[package]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Package {
    /// `name`.
    pub name: PackageName,
    /// `version`.
    pub version: Version,
    /// `owner`: the registry namespace that `ply push` uses.
    pub owner: Option<Owner>,
    /// `description`.
    pub description: Option<String>,
    /// `license`.
    pub license: Option<String>,
    /// `homepage`.
    pub homepage: Option<String>,
}

/// `[build]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Build {
    /// `base`: what owns `/`; none for a base itself and for an app that needs none.
    pub base: Option<(PackageName, Dependency)>,
    /// `base = true`.
    pub is_base: bool,
    /// `include`: paths and globs, empty where everything ships.
    pub include: Vec<String>,
    /// `[build.dependencies]`.
    pub dependencies: BTreeMap<PackageName, Dependency>,
    /// `[build.requires] abi`.
    pub requires_abi: Option<AbiName>,
    /// `[build.sources]`, by alias.
    pub sources: BTreeMap<String, SourceSpec>,
}

/// What is asked of one dependency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// Which versions will do.
    pub range: Range,
    /// The alias in `[build.sources]`; the default source where none is given.
    pub source: Option<String>,
}

/// An ABI as written, `linux-x64-gnu`; `{arch}` may stand for the arch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AbiName(pub String);

impl AbiName {
    /// The ABI for one arch: `{arch}` filled.
    pub fn for_arch(&self, arch: crate::Arch) -> String {
        self.0.replace("{arch}", arch.as_str())
    }
}

impl fmt::Display for AbiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `[layer]`: what a package gives to those that depend on it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LayerSection {
    /// Absolute folders for `PATH`.
    pub path: Vec<String>,
    /// Absolute folders for `LD_LIBRARY_PATH`.
    pub ld_library_path: Vec<String>,
    /// Plain variables.
    pub env: BTreeMap<String, String>,
    /// The ABI that its native files were built for.
    pub abi: Option<AbiName>,
}

/// `[run]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// `entrypoint`.
    pub entrypoint: Option<Entrypoint>,
    /// `user`; root inside where none is given.
    pub user: Option<UserSpec>,
    /// `workdir`; the app's prefix where none is given.
    pub workdir: Option<String>,
    /// `stop_signal`; SIGTERM where none is given.
    pub stop_signal: Option<Signal>,
    /// `capabilities`.
    pub capabilities: Capabilities,
    /// `[run.env]`, in the order of the file.
    pub env: Vec<(String, String)>,
    /// `[run.params]`; none where the table is absent, so that `{}` in env stays literal.
    pub params: Option<BTreeMap<String, Param>>,
    /// `[run.ports]`, by label.
    pub ports: BTreeMap<String, u16>,
    /// `[run.volumes]`, by name.
    pub volumes: BTreeMap<String, Volume>,
    /// `[run.network] egress`; none where not declared, empty where it claims to talk to nobody.
    pub egress: Option<Vec<EgressEntry>>,
    /// `[run.resources] mem`.
    pub mem: Option<Limit<Bytes>>,
    /// `[run.resources] cpu`.
    pub cpu: Option<Limit<Cores>>,
    /// `[run.resources] pids`.
    pub pids: Option<u32>,
    /// `[run.scale]`.
    pub scale: Option<Scale>,
    /// `[run.health]`.
    pub health: Option<Health>,
    /// `[run.restart]`.
    pub restart: Restart,
    /// `[run.requests] links`.
    pub link_requests: Vec<LinkRequest>,
}

/// How an app starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entrypoint {
    /// An argv, no shell.
    Argv(Vec<String>),
    /// A string: `["/bin/sh", "-c", TEXT]`; arguments behind it are `"$@"`.
    Shell(String),
}

impl Entrypoint {
    /// The argv with `args` appended; behind a shell string they become `"$@"` (with `$0` = `sh`).
    pub fn argv(&self, args: &[String]) -> Vec<String> {
        let mut argv = match self {
            Self::Argv(argv) => argv.clone(),
            Self::Shell(text) => {
                let mut argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), text.clone()];
                if !args.is_empty() {
                    argv.push("sh".to_owned());
                }
                argv
            }
        };
        argv.extend_from_slice(args);
        argv
    }
}

/// One entry of `[run.params]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Param {
    /// A default value, perhaps with `{other}` holes.
    Value(String),
    /// `{ secret = true }`, minted, or with `external = true` provided by the operator.
    Secret {
        /// Whether ply never mints it.
        external: bool,
    },
}

/// One entry of `[run.volumes]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The absolute path inside.
    pub path: String,
    /// `scope`.
    pub scope: VolumeScope,
    /// Whether `ply gc` may take it.
    pub ephemeral: bool,
}

/// Whose a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VolumeScope {
    /// One a slot; the default.
    #[default]
    Instance,
    /// One for all slots of the app.
    Shared,
}

/// A fixed value, or a range that the run parent resizes between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit<T> {
    /// One value.
    Fixed(T),
    /// `{ min, max }`.
    Between {
        /// The least.
        min: T,
        /// The most.
        max: T,
    },
}

impl<T: Copy> Limit<T> {
    /// The most that is ever allowed.
    pub fn max(&self) -> T {
        match self {
            Self::Fixed(value) => *value,
            Self::Between { max, .. } => *max,
        }
    }
}

/// `[run.scale]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// The least number of instances; 0 lets the app sleep.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// What to watch; needed only when `max > 1`.
    pub signal: Option<ScaleSignal>,
    /// The value to hold: percent for cpu and memory, as written for a metric, a rate for net.
    pub target: Option<String>,
    /// The pause between two changes.
    pub cooldown: Option<Span>,
    /// Where a metric is read.
    pub metrics_path: Option<String>,
    /// How long without connections before the last instance sleeps; needed when `min = 0`.
    pub idle: Option<Span>,
}

/// What autoscaling watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScaleSignal {
    /// `cpu`.
    Cpu,
    /// `memory`.
    Memory,
    /// `net`.
    Net,
    /// `metric:<name>`.
    Metric(String),
}

/// `[run.health]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The port that must accept a connection: as written, or the single declared one.
    pub port: u16,
    /// The cold-start budget, 30 s by default.
    pub grace: Span,
}

/// `[run.restart]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restart {
    /// When to start again.
    pub policy: RestartPolicy,
    /// The first pause; it doubles a failure.
    pub backoff: Span,
    /// The longest pause.
    pub max_backoff: Span,
}

impl Default for Restart {
    fn default() -> Self {
        Self { policy: RestartPolicy::Never, backoff: Span::from_secs(1), max_backoff: Span::from_secs(60) }
    }
}

/// `[run.restart] policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestartPolicy {
    /// The default.
    #[default]
    Never,
    /// After an exit that is not 0.
    OnFailure,
    /// After every exit.
    Always,
}

/// One host path that an image asks for; never applied on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRequest {
    /// The absolute path on the host.
    pub host: String,
    /// The absolute path inside.
    pub at: String,
    /// Whether it is read-only (`:ro`).
    pub read_only: bool,
}
