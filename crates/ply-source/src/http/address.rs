//! Which hosts plain http may go to: this machine and RFC 1918 networks. Source: the registries reference, "Source
//! kinds".

use std::net::{IpAddr, Ipv6Addr};

/// Whether an address is this machine's own, or in a private IPv4 network (RFC 1918). An IPv4 address inside an IPv6 one
/// counts as what it is.
pub(crate) fn is_near(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private(),
        IpAddr::V6(v6) => {
            v6 == Ipv6Addr::LOCALHOST || v6.to_ipv4_mapped().is_some_and(|v4| is_near(v4.into()))
        }
    }
}

/// Whether a name means this machine whatever any name server says (RFC 6761, 6.3).
pub(crate) fn is_localhost(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_may_go_to_this_machine_and_private_networks_only() {
        for near in [
            "127.0.0.1",
            "127.9.9.9",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(is_near(near.parse().unwrap()), "{near}");
        }
        for far in [
            "1.1.1.1",
            "172.32.0.1",
            "192.169.0.1",
            "169.254.1.1",
            "0.0.0.0",
            "100.64.0.1",
            "::",
            "2001:db8::1",
            "::ffff:1.1.1.1",
        ] {
            assert!(!is_near(far.parse().unwrap()), "{far}");
        }
        for local in ["localhost", "LOCALHOST", "localhost.", "a.localhost"] {
            assert!(is_localhost(local), "{local}");
        }
        for other in ["localhost.example.com", "notlocalhost", "local"] {
            assert!(!is_localhost(other), "{other}");
        }
    }
}
