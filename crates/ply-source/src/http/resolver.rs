//! From a host's name to its addresses in a static binary: `localhost`, the hosts file, name servers. It is also where
//! plain http is kept near: the check stands on the very addresses that are connected to, so that no name server can
//! answer differently a second time.

use super::address::{is_localhost, is_near};
use super::dns;
use super::dns_config::{DnsConfig, in_hosts_file};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// How long an answer is used again.
const KEPT: Duration = Duration::from_secs(30);
/// The longest that one name may take, where nothing shorter is set.
const LONGEST: Duration = Duration::from_secs(30);
/// The most addresses of one host that are tried.
const MOST_TRIED: usize = 8;

/// Why a host can't be connected to.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostError {
    #[error("{0}")]
    NoAddress(String),
    #[error("a public address")]
    Public,
}

/// ply's resolver for ureq.
#[derive(Debug)]
pub(super) struct OwnResolver {
    pub(super) hosts_file: PathBuf,
    pub(super) resolver_file: PathBuf,
    /// Whether plain http may only go to near addresses.
    pub(super) keep_near: bool,
    kept: Mutex<HashMap<String, (Instant, Vec<IpAddr>)>>,
}

impl OwnResolver {
    pub(super) fn new(hosts_file: PathBuf, resolver_file: PathBuf, keep_near: bool) -> Self {
        Self { hosts_file, resolver_file, keep_near, kept: Mutex::default() }
    }

    /// The addresses of a host: a literal address, this machine, the hosts file, the name servers.
    fn addresses(&self, host: &str, deadline: Instant) -> Result<Vec<IpAddr>, HostError> {
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = bare.parse() {
            return Ok(vec![address]);
        }
        if is_localhost(host) {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let key = host.to_ascii_lowercase();
        if let Some((at, addresses)) = self.kept.lock().unwrap_or_else(|e| e.into_inner()).get(&key)
            && at.elapsed() < KEPT
        {
            return Ok(addresses.clone());
        }
        let mut addresses = in_hosts_file(&self.hosts_file, host);
        if addresses.is_empty() {
            let config = DnsConfig::read(&self.resolver_file);
            addresses = dns::resolve(&config, host, deadline).map_err(HostError::NoAddress)?;
        }
        // IPv4 first: hosts without a working IPv6 route are the commoner fault.
        addresses.sort_by_key(IpAddr::is_ipv6);
        self.kept.lock().unwrap_or_else(|e| e.into_inner()).insert(key, (Instant::now(), addresses.clone()));
        Ok(addresses)
    }
}

impl Resolver for OwnResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().ok_or(ureq::Error::HostNotFound)?;
        let plain = uri.scheme_str() == Some("http");
        let port = uri.port_u16().unwrap_or(if plain { 80 } else { 443 });
        let deadline = Instant::now() + (*timeout.after).min(LONGEST);
        let other = |error: HostError| ureq::Error::Other(Box::new(error));
        let mut addresses = self.addresses(host, deadline).map_err(other)?;
        if plain && self.keep_near {
            addresses.retain(|address| is_near(*address));
            if addresses.is_empty() {
                return Err(other(HostError::Public));
            }
        }
        let mut result = self.empty();
        for address in addresses.into_iter().take(MOST_TRIED) {
            result.push(SocketAddr::new(address, port));
        }
        Ok(result)
    }
}
