//! What a fetch may be told: where to look, how long to wait, how much to take.

use crate::{DefaultSource, Progress, Silent, SourceError, Store};
use ply_image::Dirs;
use ply_manifest::{Arch, Bytes, SourceSpec};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Everything a [`crate::Fetcher`] is made of.
#[derive(Clone)]
pub struct FetchOptions {
    /// Where images are kept.
    pub store: Store,
    /// What images are for; the host's own unless one builds for another.
    pub arch: Arch,
    /// `--source`: answers for every package whose source has no alias of its own.
    pub source: Option<SourceSpec>,
    /// What answers where neither the manifest nor `--source` says anything.
    pub default_source: DefaultSource,
    /// `--insecure-source`: plain http to any host.
    pub insecure: bool,
    /// Who draws.
    pub progress: Arc<dyn Progress>,
    /// Timeouts, retries, limits.
    pub network: NetworkOptions,
}

impl FetchOptions {
    /// The options of this host and environment, without `--source`, silent.
    /// Errors: `PLY_REGISTRY` or `config.toml` holds something that is not a source.
    pub fn new(store: Store, dirs: &Dirs) -> Result<Self, SourceError> {
        Ok(Self {
            store,
            arch: Arch::HOST,
            source: None,
            default_source: DefaultSource::find(dirs)?,
            insecure: false,
            progress: Arc::new(Silent),
            network: NetworkOptions::from_env(),
        })
    }
}

/// Timeouts, retries and limits of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkOptions {
    /// The longest wait for a connection, TLS included; 15 s.
    pub connect: Duration,
    /// The longest wait for the next byte; 30 s. There is no limit on a whole transfer.
    pub stall: Duration,
    /// How often a request that may pass is tried in all; 5.
    pub attempts: u32,
    /// The pause before the second attempt; it doubles each time; 500 ms.
    pub first_pause: Duration,
    /// The longest pause, also where a server asks for more by `Retry-After`; 60 s.
    pub longest_pause: Duration,
    /// How many files come at once; 4.
    pub parallel: usize,
    /// The largest image that is taken; 64 GiB.
    pub largest_image: Bytes,
    /// The largest `index.json` or `state.json`; 64 MiB.
    pub largest_document: Bytes,
    /// The hosts file; `/etc/hosts`, or what `PLY_HOSTS_FILE` names.
    pub hosts_file: PathBuf,
    /// The resolver's file; `/etc/resolv.conf`.
    pub resolver_file: PathBuf,
    /// Root certificates in PEM, in place of the system's; `SSL_CERT_FILE`.
    pub certificates: Option<PathBuf>,
    /// `HTTP_PROXY`, or `http_proxy`: for http URLs.
    pub http_proxy: Option<String>,
    /// `HTTPS_PROXY`, or `https_proxy`: for https URLs.
    pub https_proxy: Option<String>,
    /// `NO_PROXY`, or `no_proxy`: hosts that are reached directly.
    pub no_proxy: Option<String>,
}

impl Default for NetworkOptions {
    /// The figures above, no proxies, the system's files.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            stall: Duration::from_secs(30),
            attempts: 5,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(60),
            parallel: 4,
            largest_image: Bytes(64 << 30),
            largest_document: Bytes(64 << 20),
            hosts_file: "/etc/hosts".into(),
            resolver_file: "/etc/resolv.conf".into(),
            certificates: None,
            http_proxy: None,
            https_proxy: None,
            no_proxy: None,
        }
    }
}

impl NetworkOptions {
    /// The defaults with what the environment says: proxies, `SSL_CERT_FILE`, `PLY_HOSTS_FILE`.
    pub fn from_env() -> Self {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let either = |upper: &str| var(&upper.to_lowercase()).or_else(|| var(upper));
        let all = either("ALL_PROXY");
        let defaults = Self::default();
        Self {
            hosts_file: var("PLY_HOSTS_FILE").map_or(defaults.hosts_file, PathBuf::from),
            certificates: var("SSL_CERT_FILE").map(PathBuf::from),
            http_proxy: either("HTTP_PROXY").or_else(|| all.clone()),
            https_proxy: either("HTTPS_PROXY").or(all),
            no_proxy: either("NO_PROXY"),
            ..defaults
        }
    }
}
