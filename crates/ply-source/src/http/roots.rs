//! Whom TLS trusts: the certificates of this system, so that an authority of one's own works, else those of the
//! Mozilla programme that are built in.

use std::path::{Path, PathBuf};
use ureq::tls::{Certificate, PemItem, RootCerts, parse_pem};

/// Where systems keep all their authorities in one PEM file.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/ssl/cert.pem",
];

/// The trusted authorities: those of `named` (from `SSL_CERT_FILE`), else of the system's bundle, else the built-in ones.
/// The error is why `named` can't be used: what a person named must not be passed over.
pub(super) fn root_certificates(named: Option<&Path>) -> Result<RootCerts, String> {
    if let Some(path) = named {
        let found = read(path).map_err(|why| format!("the certificates in {}: {why}", path.display()))?;
        return match found.is_empty() {
            false => Ok(RootCerts::new_with_certs(&found)),
            true => Err(format!("no certificate in {}", path.display())),
        };
    }
    let system =
        BUNDLES.iter().map(PathBuf::from).filter_map(|path| read(&path).ok()).find(|c| !c.is_empty());
    Ok(system.map_or(RootCerts::WebPki, |found| RootCerts::new_with_certs(&found)))
}

fn read(path: &Path) -> std::io::Result<Vec<Certificate<'static>>> {
    let text = std::fs::read(path)?;
    let certificates = parse_pem(&text).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    Ok(certificates.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_named_is_never_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        let why = root_certificates(Some(&file)).unwrap_err();
        assert!(why.contains("ca.pem") && why.contains("No such file"), "{why}");
        std::fs::write(&file, "nothing here").unwrap();
        let why = root_certificates(Some(&file)).unwrap_err();
        assert_eq!(why, format!("no certificate in {}", file.display()));
    }
}
