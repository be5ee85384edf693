//! The two files that say how names become addresses: hosts(5) and resolv.conf(5). A static binary has no NSS to read
//! them for it.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::Path;
use std::time::Duration;

/// The most name servers that are asked, as in the C library.
const MOST_SERVERS: usize = 3;
/// The most search domains.
const MOST_DOMAINS: usize = 32;
/// The longest file that is read; a longer one counts as empty.
const LONGEST: u64 = 8 << 20;

/// What `resolv.conf` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DnsConfig {
    /// The name servers, in order.
    pub(crate) servers: Vec<SocketAddr>,
    /// The domains that are tried behind a short name, in order.
    pub(crate) search: Vec<String>,
    /// A name with at least so many dots is tried as it is first.
    pub(crate) ndots: usize,
    /// The wait for one answer.
    pub(crate) timeout: Duration,
    /// How often each server is asked.
    pub(crate) attempts: usize,
    /// Whether to ask by TCP only.
    pub(crate) tcp_only: bool,
}

impl DnsConfig {
    /// Reads a file; one that is missing gives the defaults: a name server on this machine.
    pub(crate) fn read(path: &Path) -> Self {
        Self::parse(&read(path))
    }

    /// Lines that are not understood are passed over, as the C library does.
    pub(crate) fn parse(text: &str) -> Self {
        let mut config = Self {
            servers: Vec::new(),
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
            tcp_only: false,
        };
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or("");
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") if config.servers.len() < MOST_SERVERS => {
                    config.servers.extend(words.next().and_then(server));
                }
                Some("search" | "domain") => {
                    config.search =
                        words.take(MOST_DOMAINS).map(|d| d.trim_end_matches('.').to_owned()).collect();
                    config.search.retain(|domain| !domain.is_empty());
                }
                Some("options") => words.for_each(|option| config.option(option)),
                _ => {}
            }
        }
        if config.servers.is_empty() {
            config.servers.push(SocketAddr::from(([127, 0, 0, 1], 53)));
        }
        config
    }

    fn option(&mut self, option: &str) {
        let (key, value) = option.split_once(':').unwrap_or((option, ""));
        match (key, value.parse::<u32>()) {
            ("ndots", Ok(n)) => self.ndots = n.min(15) as usize,
            ("timeout", Ok(n)) => self.timeout = Duration::from_secs(n.clamp(1, 30).into()),
            ("attempts", Ok(n)) => self.attempts = n.clamp(1, 5) as usize,
            ("use-vc", _) => self.tcp_only = true,
            _ => {}
        }
    }

    /// The full names to try for `host`, in order. One with a dot at its end is tried as it is only.
    pub(crate) fn candidates(&self, host: &str) -> Vec<String> {
        if let Some(full) = host.strip_suffix('.') {
            return vec![full.to_owned()];
        }
        let mut names: Vec<String> = self.search.iter().map(|domain| format!("{host}.{domain}")).collect();
        let as_it_is = if host.matches('.').count() >= self.ndots { 0 } else { names.len() };
        names.insert(as_it_is, host.to_owned());
        names
    }
}

/// The address of a name server; a link-local one may carry its interface, as in `fe80::1%eth0`.
fn server(text: &str) -> Option<SocketAddr> {
    let (address, zone) = text.split_once('%').map_or((text, None), |(a, z)| (a, Some(z)));
    Some(match (address.parse().ok()?, zone) {
        (IpAddr::V6(v6), Some(zone)) => {
            let index = zone.parse().ok().or_else(|| interface_index(zone))?;
            SocketAddr::V6(SocketAddrV6::new(v6, 53, 0, index))
        }
        (address, _) => SocketAddr::new(address, 53),
    })
}

fn interface_index(name: &str) -> Option<u32> {
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if !plain || name.starts_with('.') {
        return None;
    }
    std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok()?.trim().parse().ok()
}

/// The addresses of `host` in a hosts file, in its order.
pub(crate) fn in_hosts_file(path: &Path, host: &str) -> Vec<IpAddr> {
    in_hosts(&read(path), host)
}

fn in_hosts(text: &str, host: &str) -> Vec<IpAddr> {
    let host = host.trim_end_matches('.');
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else { continue };
        if words.any(|name| name.eq_ignore_ascii_case(host)) && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// The text of a file, lossy where it is not UTF-8; empty where it can't be read.
fn read(path: &Path) -> String {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() <= LONGEST => {
            std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_read_as_the_c_library_reads_it() {
        let config = DnsConfig::parse(
            "# a comment\nnameserver 192.0.2.1 # near\nnameserver 2001:db8::1\nnameserver nonsense\n\
             nameserver 192.0.2.3\nnameserver 192.0.2.4\ndomain old.example\nsearch a.example. b.example\n\
             options ndots:2 timeout:1 attempts:9 use-vc rotate\n\u{fffd}\n",
        );
        let servers: Vec<String> = config.servers.iter().map(SocketAddr::to_string).collect();
        assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.3:53"]);
        assert_eq!(config.search, ["a.example", "b.example"]);
        assert_eq!((config.ndots, config.attempts, config.tcp_only), (2, 5, true));
        assert_eq!(config.timeout, Duration::from_secs(1));
        assert_eq!(DnsConfig::parse("").servers, [SocketAddr::from(([127, 0, 0, 1], 53))]);
    }

    #[test]
    fn short_names_are_tried_in_the_search_domains_first() {
        let config = DnsConfig::parse("search a.example b.example\n");
        assert_eq!(config.candidates("www"), ["www.a.example", "www.b.example", "www"]);
        assert_eq!(config.candidates("x.org"), ["x.org", "x.org.a.example", "x.org.b.example"]);
        assert_eq!(config.candidates("www."), ["www"]);
    }

    #[test]
    fn a_hosts_file_gives_every_address_of_a_name() {
        let text = "127.0.0.1 localhost\n10.0.0.1 Reg reg.lan # the registry\n\n#10.0.0.9 reg\n::2 reg\nx reg\n10.0.0.1 reg\n";
        let shown: Vec<String> = in_hosts(text, "REG").iter().map(IpAddr::to_string).collect();
        assert_eq!(shown, ["10.0.0.1", "::2"]);
        assert_eq!(in_hosts(text, "reg.lan.").len(), 1);
        assert!(in_hosts(text, "registry").is_empty());
    }
}
