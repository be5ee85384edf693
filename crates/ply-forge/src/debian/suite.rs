//! One suite for one arch: release files fetched and their signatures checked, package lists checked against them,
//! packages checked against the lists.

use super::apt::Apt;
use super::index::{Index, List, Package};
use super::release::Release;
use super::signature;
use crate::archive::{Compression, Deb, decompressor};
use crate::download::{Downloads, Wanted};
use crate::error::{ForgeError, Result};
use crate::observer::Observer;
use ply_manifest::Arch;
use std::fs::File;
use std::io::Read;
use std::time::{SystemTime, UNIX_EPOCH};

/// The largest release file that is read.
const RELEASE_MAX: u64 = 16 << 20;
/// The largest package list, unpacked.
const LIST_MAX: u64 = 512 << 20;

/// A suite, ready to be asked for packages.
#[derive(Debug)]
pub(crate) struct Suite {
    /// The code name.
    pub(crate) name: String,
    pub(crate) arch: Arch,
    /// The point release as Debian writes it (`13.8`).
    pub(crate) version: String,
    pub(crate) index: Index,
}

/// Debian's name of an arch.
pub(crate) fn debian_arch(arch: Arch) -> &'static str {
    match arch {
        Arch::X64 => "amd64",
        Arch::Arm64 => "arm64",
    }
}

/// Debian's name of the folder of an arch's libraries.
pub(crate) fn triplet(arch: Arch) -> &'static str {
    match arch {
        Arch::X64 => "x86_64-linux-gnu",
        Arch::Arm64 => "aarch64-linux-gnu",
    }
}

impl Suite {
    /// Fetches and checks the indexes of a suite.
    pub(crate) fn open(
        name: &str,
        arch: Arch,
        apt: &Apt,
        mirror: Option<&str>,
        downloads: &Downloads,
        observer: &dyn Observer,
    ) -> Result<Self> {
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase()) {
            return Err(ForgeError::Suite(name.to_owned()));
        }
        let mut lists = Vec::new();
        let mut version = None;
        for repository in apt.repositories(name, mirror)? {
            let url = format!("{}/dists/{}/InRelease", repository.uri, repository.suite);
            let Some((signed, stale)) = downloads.fresh(&url, RELEASE_MAX)? else {
                if repository.required {
                    return Err(ForgeError::Fetch { url, why: "there is no such suite".to_owned() });
                }
                observer.note(&format!("{} has no {}: left out", repository.uri, repository.suite));
                continue;
            };
            if stale {
                observer.note(&format!("{url} did not answer: the copy from before is used"));
            }
            let text = signature::verify(&url, &signed, &repository.signed_by, &downloads.work())?;
            let understood = |why: String| ForgeError::Index { url: url.clone(), why };
            let release = Release::parse(&text).map_err(understood)?;
            if release.origin != "Debian" {
                observer.note(&format!("{url} is not Debian's own ({:?}): left out", release.origin));
                continue;
            }
            if let Some((until, seconds)) = &release.valid_until {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
                if apt.check_valid_until && now > *seconds {
                    return Err(ForgeError::Expired { url, until: until.clone() });
                }
            }
            if repository.suite == name {
                version.clone_from(&release.version);
            }
            for component in &repository.components {
                let Some((listed, expected, bytes)) = release.packages(component, debian_arch(arch)) else {
                    continue;
                };
                let dists = format!("{}/dists/{}", repository.uri, repository.suite);
                let place = match (release.by_hash, expected) {
                    (true, crate::download::Expected::Sha256(hash)) => {
                        let folder = listed.rsplit_once('/').map_or("", |(folder, _)| folder);
                        format!("{dists}/{folder}/by-hash/SHA256/{}", crate::download::hex(hash))
                    }
                    _ => format!("{dists}/{listed}"),
                };
                let wanted = Wanted { url: place, expected: expected.clone(), bytes: Some(bytes) };
                let path = downloads.get(&wanted)?;
                let compression = Compression::of(listed.rsplit('/').next().unwrap_or(listed));
                let file = File::open(&path).map_err(ForgeError::file("cannot read", &path))?;
                let mut text = String::new();
                let plain = decompressor(compression.unwrap_or(Compression::Plain), file);
                let read = plain.and_then(|plain| plain.take(LIST_MAX).read_to_string(&mut text));
                read.map_err(|e| ForgeError::Index { url: wanted.url.clone(), why: e.to_string() })?;
                lists.push(List { uri: repository.uri.clone(), text });
            }
        }
        let version = version.ok_or_else(|| ForgeError::Index {
            url: format!("Debian {name}"),
            why: "its release file names no version: only released suites can be a base".to_owned(),
        })?;
        Ok(Self { name: name.to_owned(), arch, version, index: Index::new(lists) })
    }

    /// The major version, as in `13`.
    pub(crate) fn major(&self) -> &str {
        self.version.split('.').next().unwrap_or(&self.version)
    }

    /// A package by name.
    ///
    /// # Errors
    /// When the suite has none, with the nearest name.
    pub(crate) fn package(&self, name: &str) -> Result<Package<'_>> {
        self.index.get(name).ok_or_else(|| ForgeError::NoPackage {
            name: name.to_owned(),
            suite: self.name.clone(),
            arch: self.arch.to_string(),
            nearest: nearest(name, &self.index.names()).map(str::to_owned),
        })
    }

    /// The closure of `seeds` over `Depends`.
    pub(crate) fn closure(&self, seeds: &[&str], without: &dyn Fn(&str) -> bool) -> Result<Vec<Package<'_>>> {
        for seed in seeds {
            self.package(seed)?;
        }
        self.index.closure(seeds, without).map_err(|(package, wanted)| ForgeError::NoProvider {
            package,
            wanted,
            suite: self.name.clone(),
        })
    }

    /// The `.deb` files of packages, fetched a few at once.
    pub(crate) fn fetch(&self, packages: &[Package<'_>], downloads: &Downloads) -> Result<Vec<Deb>> {
        let understood = |why| ForgeError::Index { url: format!("Debian {}", self.name), why };
        let wanted: Vec<Wanted> =
            packages.iter().map(|p| p.wanted().map_err(understood)).collect::<Result<_>>()?;
        let paths = downloads.get_all(&wanted)?;
        let named = paths
            .iter()
            .zip(&wanted)
            .map(|(path, wanted)| Deb::new(path, wanted.url.rsplit('/').next().unwrap_or(&wanted.url)));
        Ok(named.collect())
    }
}

/// The name with the most letters in common at the front, where it is more than half.
fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let common = |other: &str| name.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let best = names.iter().max_by_key(|n| (common(n), std::cmp::Reverse(n.len())))?;
    (common(best) * 2 > name.len()).then_some(*best)
}
