//! `ply.lock`: reading it and printing it. What is printed reads back as the same value.

use super::run::label;
use crate::walk::{Entry, Faults, document};
use crate::{Arch, Diagnostics, Digest, LOCK_FORMAT, Lock, LockedPackage, LockedService};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The most bytes of a lock: a graph of 1,000 packages has a third of a megabyte.
const MOST_BYTES: usize = 16 << 20;

impl Lock {
    /// Reads a lock. `file` is the name that errors show. A lock of a newer format is refused with that
    /// sentence alone.
    pub fn parse(text: &str, file: &str) -> Result<Self, Diagnostics> {
        document(text, file, MOST_BYTES, |root, faults| {
            let format = root.need("version", "a lock begins with version = 1", faults)?;
            let format_span = format.span();
            let format = format.integer(1, i64::from(u32::MAX), faults)?;
            if format > i64::from(LOCK_FORMAT) {
                root.all();
                faults.at_hint(
                    &format_span,
                    format!(
                        "a newer ply wrote this lock: format {format}, and this ply reads up to {LOCK_FORMAT}"
                    ),
                    "update ply",
                );
                return None;
            }
            let mut lock = Self::default();
            let mut names = BTreeSet::new();
            for entry in root.take("package").and_then(|e| e.array(faults)).unwrap_or_default() {
                let Some(package) = read_package(&entry, faults) else { continue };
                if !names.insert(package.name.clone()) {
                    faults.at(&entry.span(), format!("{} is locked twice", package.name));
                }
                lock.packages.push(package);
            }
            if let Some(mut services) = root.take("service").and_then(|e| e.table(faults)) {
                for entry in services.all() {
                    if !label(entry.key) {
                        faults.at(&entry.key_span, format!("{:?} is not the name of a member", entry.key));
                        continue;
                    }
                    if let Some(service) = read_service(&entry, faults) {
                        lock.services.insert(entry.key.to_owned(), service);
                    }
                }
            }
            Some(lock)
        })
    }
}

fn read_package(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Option<LockedPackage> {
    let mut table = entry.table(faults)?;
    let hint = "`ply update` writes the lock anew";
    let name = table.need("name", hint, faults).and_then(|e| e.noun(faults));
    let version = table.need("version", hint, faults).and_then(|e| e.noun(faults));
    let source = table.need("source", hint, faults).and_then(|e| e.noun(faults));
    let digest = table.need("digest", hint, faults).and_then(|e| read_digests(&e, faults));
    table.finish(faults);
    Some(LockedPackage { name: name?, version: version?, source: source?, digest: digest? })
}

fn read_service(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Option<LockedService> {
    let mut table = entry.table(faults)?;
    let hint = "`ply up --refresh` pins the members anew";
    let reference = table.need("ref", hint, faults).and_then(|e| e.line(faults)).map(str::to_owned);
    let version = table.need("version", hint, faults).and_then(|e| e.noun(faults));
    let digest = table.need("digest", hint, faults).and_then(|e| read_digests(&e, faults));
    table.finish(faults);
    Some(LockedService { reference: reference?, version: version?, digest: digest? })
}

fn read_digests(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Option<BTreeMap<Arch, Digest>> {
    let mut digests = BTreeMap::new();
    for value in entry.table(faults)?.all() {
        let arch = match value.key.parse() {
            Ok(arch) => arch,
            Err(error) => {
                faults.noun(&value.key_span, error);
                continue;
            }
        };
        digests.insert(arch, value.noun(faults)?);
    }
    Some(digests)
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "version = {LOCK_FORMAT}")?;
        for package in &self.packages {
            writeln!(f, "\n[[package]]")?;
            writeln!(f, "name = {}", quoted(package.name.as_str()))?;
            writeln!(f, "version = {}", quoted(&package.version.to_string()))?;
            writeln!(f, "source = {}", quoted(package.source.template()))?;
            print_digests(&package.digest, f)?;
        }
        for (member, service) in &self.services {
            writeln!(f, "\n[service.{}]", key(member))?;
            writeln!(f, "ref = {}", quoted(&service.reference))?;
            writeln!(f, "version = {}", quoted(&service.version.to_string()))?;
            print_digests(&service.digest, f)?;
        }
        Ok(())
    }
}

fn print_digests(digests: &BTreeMap<Arch, Digest>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if digests.is_empty() {
        writeln!(f, "digest = {{}}")?;
    }
    for (arch, digest) in digests {
        writeln!(f, "digest.{arch} = \"{digest}\"")?;
    }
    Ok(())
}

fn key(text: &str) -> String {
    let bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { text.to_owned() } else { quoted(text) }
}

/// A TOML basic string on one line.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
