//! What an app opens and whom it talks to: publish flags and egress entries.

use crate::noun::{NounError, serde_by_text};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Where a port is published on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PublishAddress {
    /// Every address of the host; the default.
    Public,
    /// The bridge's gateway: other ply apps on this host only.
    Internal,
    /// One address; `[::]` and IPv6 literals stand in brackets.
    Ip(IpAddr),
}

/// The transport of a published port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP, the default.
    Tcp,
    /// UDP, written `/udp`.
    Udp,
}

/// `[ADDR:]PORT[:INSTANCE_PORT][/udp]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Publish {
    /// Where on the host.
    pub address: PublishAddress,
    /// The host's port; never 0.
    pub port: u16,
    /// The instance's port, where given; never 0. By default the single declared port, else `port`.
    pub instance_port: Option<u16>,
    /// TCP or UDP.
    pub transport: Transport,
}

impl FromStr for Publish {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = |why: &str| {
            NounError::new(format!("{s:?} is not a port to publish: {why}"))
                .hint("write [ADDR:]PORT[:INSTANCE_PORT][/udp], as in 8080:3000 or 127.0.0.1:8080:3000")
        };
        let (rest, transport) = match s.split_once('/') {
            None | Some((_, "tcp")) => (s.strip_suffix("/tcp").unwrap_or(s), Transport::Tcp),
            Some((rest, "udp")) => (rest, Transport::Udp),
            Some(_) => return Err(wrong("what follows / is tcp or udp")),
        };
        let (address, ports) = if let Some(bracketed) = rest.strip_prefix('[') {
            let (ip, ports) =
                bracketed.split_once("]:").ok_or_else(|| wrong("[ADDR] is followed by :PORT"))?;
            let ip: Ipv6Addr = ip.parse().map_err(|_| wrong("what stands in brackets is no IPv6 address"))?;
            (PublishAddress::Ip(ip.into()), ports)
        } else {
            match rest.split_once(':') {
                Some(("public", ports)) => (PublishAddress::Public, ports),
                Some(("internal", ports)) => (PublishAddress::Internal, ports),
                Some((first, ports)) if !first.bytes().all(|b| b.is_ascii_digit()) => {
                    let ip: Ipv4Addr = first.parse().map_err(|_| {
                        wrong("an address is public, internal, an IPv4 address or [an IPv6 address]")
                    })?;
                    (PublishAddress::Ip(ip.into()), ports)
                }
                _ => (PublishAddress::Public, rest),
            }
        };
        let port = |text: &str| match text.parse::<u16>() {
            Ok(p) if p != 0 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(p),
            _ => Err(wrong("a port is a number from 1 to 65535")),
        };
        let (host, instance) = match ports.split_once(':') {
            Some((host, instance)) => (host, Some(port(instance)?)),
            None => (ports, None),
        };
        Ok(Self { address, port: port(host)?, instance_port: instance, transport })
    }
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            PublishAddress::Public => {}
            PublishAddress::Internal => f.write_str("internal:")?,
            PublishAddress::Ip(IpAddr::V4(ip)) => write!(f, "{ip}:")?,
            PublishAddress::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:")?,
        }
        write!(f, "{}", self.port)?;
        if let Some(port) = self.instance_port {
            write!(f, ":{port}")?;
        }
        if self.transport == Transport::Udp { f.write_str("/udp") } else { Ok(()) }
    }
}

/// One destination that an app claims: a host name, `*.suffix`, an address, a range, or `*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EgressEntry {
    /// `*`: anywhere.
    Any,
    /// An exact host name, in lower case without a trailing dot.
    Host(String),
    /// `*.suffix`: every name below the suffix, not the suffix itself.
    Suffix(String),
    /// One address.
    Address(IpAddr),
    /// A range in CIDR notation: its network address and prefix length in bits.
    Network(IpAddr, u8),
}

impl FromStr for EgressEntry {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = |why: &str| {
            NounError::new(format!("{s:?} is not an egress entry: {why}")).hint(
                "write a host name, \"*.example.com\", an IP address, a range as \"10.0.0.0/8\", or \"*\"",
            )
        };
        if s == "*" {
            return Ok(Self::Any);
        }
        if let Ok(ip) = s.parse::<IpAddr>() {
            return Ok(Self::Address(ip));
        }
        if let Some((ip, bits)) = s.split_once('/') {
            let ip: IpAddr = ip.parse().map_err(|_| wrong("a range begins with an IP address"))?;
            let width = if ip.is_ipv4() { 32 } else { 128 };
            let length: u8 = match bits.parse() {
                Ok(n) if n <= width && bits.bytes().all(|b| b.is_ascii_digit()) => n,
                _ => return Err(wrong("its prefix length is out of range")),
            };
            let network = mask(ip, length);
            if network != ip {
                return Err(
                    wrong("bits are set beyond its prefix").hint(format!("{network}/{length} would do"))
                );
            }
            return Ok(Self::Network(ip, length));
        }
        let lower = s.to_ascii_lowercase();
        let name = lower.strip_suffix('.').unwrap_or(&lower);
        let (suffix, name) = match name.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, name),
        };
        let label = |l: &str| {
            !l.is_empty()
                && l.len() <= 63
                && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
                && !l.starts_with('-')
                && !l.ends_with('-')
        };
        if name.len() > 253 || !name.split('.').all(label) {
            return Err(wrong("it is no host name"));
        }
        if name.split('.').next_back().is_some_and(|l| l.bytes().all(|b| b.is_ascii_digit())) {
            return Err(wrong("it looks like an address but is none"));
        }
        Ok(if suffix { Self::Suffix(name.to_owned()) } else { Self::Host(name.to_owned()) })
    }
}

fn mask(ip: IpAddr, length: u8) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => {
            let bits = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            Ipv4Addr::from(u32::from(v4) & bits).into()
        }
        IpAddr::V6(v6) => {
            let bits = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            Ipv6Addr::from(u128::from(v6) & bits).into()
        }
    }
}

impl fmt::Display for EgressEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Host(name) => f.write_str(name),
            Self::Suffix(name) => write!(f, "*.{name}"),
            Self::Address(ip) => write!(f, "{ip}"),
            Self::Network(ip, length) => write!(f, "{ip}/{length}"),
        }
    }
}

serde_by_text!(Publish, EgressEntry);
