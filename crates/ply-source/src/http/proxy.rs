//! Proxies from the environment: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, and the hosts of `NO_PROXY` that are reached directly.

use super::address::{is_localhost, is_near};
use crate::SourceError;
use ply_manifest::NounError;
use std::net::IpAddr;
use ureq::{Proxy, ProxyProtocol};

/// A proxy as a variable names it. Errors: not a URL, or a kind of proxy that ply can't speak to.
pub(super) fn proxy(variable: &str, text: &str) -> Result<Proxy, SourceError> {
    // A login in the text stays out of the message.
    let shown = text.rsplit('@').next().unwrap_or(text);
    let wrong = |why: &str| SourceError::BadSource {
        said_in: variable.to_owned(),
        error: NounError::new(format!("{shown:?} is not a proxy that ply can use: {why}"))
            .hint("write http://HOST:PORT, or name hosts to reach directly in NO_PROXY"),
    };
    let proxy = Proxy::new(text).map_err(|_| wrong("it is not a URL"))?;
    match proxy.protocol() {
        ProxyProtocol::Http | ProxyProtocol::Https => Ok(proxy),
        _ => Err(wrong("only http and https proxies are spoken to")),
    }
}

/// Whether `host` is reached without a proxy: this machine always, and what `NO_PROXY` lists: `*`, a host, a domain with or without
/// a dot in front, an address, or a network as `10.0.0.0/8`.
pub(super) fn is_direct(list: Option<&str>, host: &str, port: u16) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if is_localhost(&host) || address.is_some_and(|a| a.is_loopback() && is_near(a)) {
        return true;
    }
    list.unwrap_or("").split([',', ' ']).map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        let entry = entry.to_ascii_lowercase();
        let entry = match entry.rsplit_once(':') {
            Some((name, number)) if !name.contains(':') => match number.parse::<u16>() {
                Ok(number) if number != port => return false,
                _ => name.to_owned(),
            },
            _ => entry,
        };
        if entry == "*" {
            return true;
        }
        if let (Some(address), Some((network, bits))) = (address, entry.split_once('/')) {
            return in_network(address, network, bits);
        }
        let domain = entry.trim_start_matches("*.").trim_start_matches('.');
        host == domain || (address.is_none() && host.ends_with(&format!(".{domain}")))
    })
}

fn in_network(address: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let ((a, of_a), (n, of_n)) = (number(address), number(network));
    of_a == of_n && bits <= of_n && (bits == 0 || (a ^ n) >> (128 - bits) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_lists_hosts_domains_addresses_and_networks() {
        let list = Some("internal, .example.com,10.0.0.0/8 reg.lan:5000,2001:db8::/32");
        for direct in [
            "internal",
            "example.com",
            "a.example.com",
            "10.9.9.9",
            "localhost",
            "127.0.0.1",
            "[::1]",
            "2001:db8::7",
            "x.internal",
        ] {
            assert!(is_direct(list, direct, 443), "{direct}");
        }
        assert!(is_direct(list, "reg.lan", 5000));
        for through in ["notexample.com", "11.0.0.1", "reg.lan", "example.org", "2001:db9::1"] {
            assert!(!is_direct(list, through, 443), "{through}");
        }
        assert!(is_direct(Some("*"), "example.org", 443));
        assert!(!is_direct(None, "example.org", 443));
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_refused_without_showing_its_login() {
        assert!(proxy("HTTPS_PROXY", "http://user:secret@proxy.lan:3128").is_ok());
        let wrong = proxy("HTTPS_PROXY", "socks5://user:secret@proxy.lan:1080").unwrap_err().to_string();
        assert!(wrong.starts_with("HTTPS_PROXY: \"proxy.lan:1080\" is not a proxy"), "{wrong}");
    }
}
