//! Whether a release file is signed by a key that this machine trusts, asked of `gpgv` as apt does
//! (apt-secure(8)): one good signature is enough, a bad one is fatal, an unknown key is neither.

use super::apt::SignedBy;
use crate::error::{ForgeError, Result};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Checks a clear-signed file and returns the signed text alone: what stands before or behind it is not signed, and is
/// never read.
pub(crate) fn verify(url: &str, signed: &[u8], by: &SignedBy, scratch: &Path) -> Result<String> {
    let work = scratch.join(format!("verify.{}.{:?}", std::process::id(), std::thread::current().id()));
    std::fs::create_dir_all(&work).map_err(ForgeError::file("cannot create", &work))?;
    let result = verify_in(url, signed, by, &work);
    let _ = std::fs::remove_dir_all(&work);
    result
}

fn verify_in(url: &str, signed: &[u8], by: &SignedBy, work: &Path) -> Result<String> {
    let keyrings = match by {
        SignedBy::Keyrings(paths) => binary_keyrings(paths, work)?,
        SignedBy::Inline(key) => {
            let path = work.join("inline.asc");
            std::fs::write(&path, key).map_err(ForgeError::file("cannot write", &path))?;
            binary_keyrings(&[path], work)?
        }
        SignedBy::Machine | SignedBy::Fingerprints(_) => binary_keyrings(&machine_keyrings(), work)?,
    };
    if keyrings.is_empty() {
        return Err(ForgeError::NoKeyring);
    }
    let text = work.join("text");
    let mut command = Command::new("gpgv");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LC_ALL", "C");
    command.arg("--homedir").arg(work).args(["--status-fd", "1", "--weak-digest", "SHA1"]);
    for keyring in &keyrings {
        command.arg("--keyring").arg(keyring);
    }
    command.arg("--output").arg(&text).arg("-");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => ForgeError::NoGpgv,
        _ => ForgeError::File { what: "cannot start", path: "gpgv".into(), source: e },
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // gpgv reads everything before it says anything; a broken pipe shows as a missing signature below.
        let _ = stdin.write_all(signed);
    }
    let output = child.wait_with_output().map_err(ForgeError::file("cannot wait for", "gpgv"))?;
    let status = String::from_utf8_lossy(&output.stdout);
    judge(&status, by).map_err(|why| ForgeError::Signature { url: url.to_owned(), why })?;
    std::fs::read_to_string(&text).map_err(|_| ForgeError::Signature {
        url: url.to_owned(),
        why: "it is not a clear-signed text".to_owned(),
    })
}

/// Reads gpgv's status lines.
fn judge(status: &str, by: &SignedBy) -> Result<(), String> {
    let mut good = false;
    let mut unknown = Vec::new();
    for line in status.lines() {
        let mut words = line.strip_prefix("[GNUPG:] ").unwrap_or_default().split(' ');
        match words.next() {
            Some("BADSIG") => return Err("a signature does not fit the text".to_owned()),
            Some("VALIDSIG") => {
                let words: Vec<&str> = words.collect();
                good |= match by {
                    // The signing key's fingerprint comes first, its primary key's last.
                    SignedBy::Fingerprints(wanted) => [words.first(), words.last()]
                        .into_iter()
                        .flatten()
                        .any(|f| wanted.iter().any(|w| w == f)),
                    _ => true,
                };
            }
            Some("NO_PUBKEY") => unknown.extend(words.next().map(str::to_owned)),
            _ => {}
        }
    }
    match (good, unknown.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => Err("it holds no good signature".to_owned()),
        (false, false) => Err(format!("no key is known for {}", unknown.join(", "))),
    }
}

/// The keyrings that count where a source names none.
fn machine_keyrings() -> Vec<PathBuf> {
    let mut all = vec![PathBuf::from("/etc/apt/trusted.gpg")];
    if let Ok(listed) = std::fs::read_dir("/etc/apt/trusted.gpg.d") {
        let mut parts: Vec<PathBuf> = listed.filter_map(|e| e.ok().map(|e| e.path())).collect();
        parts.retain(|p| matches!(p.extension().and_then(|e| e.to_str()), Some("gpg" | "asc")));
        parts.sort();
        all.extend(parts);
    }
    for name in ["debian-archive-keyring.gpg", "debian-archive-keyring.pgp"] {
        all.push(Path::new("/usr/share/keyrings").join(name));
    }
    all.retain(|p| p.metadata().is_ok_and(|m| m.len() > 0));
    all
}

/// The same keyrings in the binary form that gpgv takes: an armoured one is copied without its armour.
fn binary_keyrings(paths: &[PathBuf], work: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for (i, path) in paths.iter().enumerate() {
        let bytes = std::fs::read(path).map_err(ForgeError::file("cannot read the keyring", path))?;
        match unarmour(&bytes) {
            Some(binary) => {
                let copy = work.join(format!("{i}.gpg"));
                std::fs::write(&copy, binary).map_err(ForgeError::file("cannot write", &copy))?;
                all.push(copy);
            }
            None => all.push(path.clone()),
        }
    }
    Ok(all)
}

/// The bytes inside ASCII armour (RFC 9580, 6); `None` for what is not armoured. Several blocks are joined.
fn unarmour(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut out = Vec::new();
    let mut blocks = 0;
    let mut lines = text.lines().map(str::trim);
    while lines.any(|l| l.starts_with("-----BEGIN PGP")) {
        blocks += 1;
        let mut body = String::new();
        let mut headers = true;
        for line in lines.by_ref() {
            if line.starts_with("-----END PGP") {
                break;
            }
            if headers && (line.is_empty() || line.contains(": ")) {
                headers &= !line.is_empty();
            } else if !line.starts_with('=') {
                headers = false;
                body.push_str(line);
            }
        }
        out.extend(crate::base64::decode(&body)?);
    }
    (blocks > 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_good_signature_is_enough_and_a_bad_one_is_fatal() {
        let valid = "[GNUPG:] VALIDSIG AAAA 2026-11-21 1 0 4 0 1 8 01 BBBB\n";
        let unknown = "[GNUPG:] NO_PUBKEY 6ED0E7B82643E131\n";
        let bad = "[GNUPG:] BADSIG X Debian\n";
        let machine = SignedBy::Machine;
        assert!(judge(&format!("{unknown}{valid}"), &machine).is_ok());
        assert!(judge(&format!("{valid}{bad}"), &machine).unwrap_err().contains("does not fit"));
        assert!(judge(unknown, &machine).unwrap_err().contains("6ED0E7B82643E131"));
        assert!(judge("", &machine).is_err());
        for (fingerprint, good) in [("AAAA", true), ("BBBB", true), ("CCCC", false)] {
            let by = SignedBy::Fingerprints(vec![fingerprint.to_owned()]);
            assert_eq!(judge(valid, &by).is_ok(), good, "{fingerprint}");
        }
    }

    #[test]
    fn armour_comes_off() {
        let text = "-----BEGIN PGP PUBLIC KEY BLOCK-----\nVersion: x\n\nAQID\nBA==\n=abcd\n-----END PGP PUBLIC KEY BLOCK-----\n";
        assert_eq!(unarmour(text.as_bytes()), Some(vec![1, 2, 3, 4]));
        assert_eq!(unarmour(b"\x99\x01"), None);
        assert_eq!(unarmour(b"words"), None);
    }
}
