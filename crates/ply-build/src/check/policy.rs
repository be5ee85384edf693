//! A policy over what a package is made of and what it asks for. Pure.

use super::{CheckReport, Subject};
use ply_manifest::{EgressEntry, Kind, Policy};
use std::net::IpAddr;

pub(super) fn check(report: &mut CheckReport, subject: &Subject<'_>, policy: &Policy) {
    report.checks("policy");
    let manifest = subject.manifest;
    let base = subject.layers.iter().find(|m| m.kind() == Kind::Base);
    if let (Some(allowed), Some(base)) = (&policy.bases, base) {
        let package = &base.package;
        if !allowed.iter().any(|r| r.name == package.name && r.range.contains(&package.version)) {
            let list = allowed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let hint = if list.is_empty() {
                "the policy allows no base: link the app statically".to_owned()
            } else {
                format!("allowed are: {list}")
            };
            let message = format!("the policy does not allow the base {} {}", package.name, package.version);
            report.error("policy", message, Some(hint));
        }
    }
    let graph = std::iter::once(manifest).chain(subject.layers.iter().map(|m| &**m));
    for package in graph.map(|m| &m.package) {
        if let Some(least) = policy.least.get(&package.name).filter(|least| package.version < **least) {
            let message =
                format!("{} is {}, and the policy asks for {least} at least", package.name, package.version);
            report.error("policy", message, Some(format!("move it with: ply update {}", package.name)));
        }
    }
    let kept = manifest.run.capabilities.list();
    let forbidden: Vec<String> =
        policy.forbidden_capabilities.iter().filter(|c| kept.contains(c)).map(ToString::to_string).collect();
    if !forbidden.is_empty() {
        let message = format!("the policy forbids capabilities that the app keeps: {}", forbidden.join(", "));
        report.error("policy", message, Some("take them out of [run] capabilities".to_owned()));
    }
    if manifest.kind() != Kind::App {
        return;
    }
    let Some(claims) = &manifest.run.egress else {
        if policy.egress_declared || policy.egress_allowed.is_some() || !policy.egress_required.is_empty() {
            let hint = "say in [run.network] egress whom the app talks to; [] is nobody";
            report.error(
                "policy",
                "the policy asks for declared egress, and the app declares none",
                Some(hint.to_owned()),
            );
        }
        return;
    };
    if let Some(allowed) = &policy.egress_allowed {
        for claim in claims.iter().filter(|c| !allowed.iter().any(|a| covers(a, c))) {
            let message = format!("the policy does not allow egress to {claim}");
            report.error("policy", message, None);
        }
    }
    for wanted in policy.egress_required.iter().filter(|w| !claims.iter().any(|c| covers(c, w))) {
        let message = format!("the policy asks for egress to {wanted}, which the app does not claim");
        report.error("policy", message, Some(format!("add it to [run.network] egress: \"{wanted}\"")));
    }
}

/// Whether every destination of `inner` is one of `outer`.
fn covers(outer: &EgressEntry, inner: &EgressEntry) -> bool {
    use EgressEntry::{Address, Any, Host, Network, Suffix};
    let below = |name: &str, suffix: &str| name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'));
    match (outer, inner) {
        (Any, _) => true,
        (Suffix(suffix), Host(name)) => below(name, suffix),
        (Suffix(suffix), Suffix(inner)) => inner == suffix || below(inner, suffix),
        (Network(network, bits), Address(ip)) => contains(*network, *bits, *ip),
        (Network(network, bits), Network(inner, inner_bits)) => {
            inner_bits >= bits && contains(*network, *bits, *inner)
        }
        _ => outer == inner,
    }
}

fn contains(network: IpAddr, bits: u8, ip: IpAddr) -> bool {
    let (a, b, width) = match (network, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(u32::from(a)), u128::from(u32::from(b)), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a), u128::from(b), 128),
        _ => return false,
    };
    let shift = width - u32::from(bits);
    shift == 128 || (a ^ b) >> shift == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_covers_what_lies_within_it() {
        for (outer, inner, expected) in [
            ("*", "example.com", true),
            ("*", "10.0.0.0/8", true),
            ("example.com", "example.com", true),
            ("example.com", "api.example.com", false),
            ("*.example.com", "api.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "badexample.com", false),
            ("*.example.com", "*.api.example.com", true),
            ("*.example.com", "*.example.com", true),
            ("*.api.example.com", "*.example.com", false),
            ("example.com", "*", false),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.1.0.0/16", "10.0.0.0/8", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("::/0", "2001:db8::1", true),
            ("::/0", "1.2.3.4", false),
            ("2001:db8::/32", "2001:db8::/48", true),
        ] {
            assert_eq!(covers(&outer.parse().unwrap(), &inner.parse().unwrap()), expected, "{outer} {inner}");
        }
    }
}
