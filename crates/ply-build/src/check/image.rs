//! The check of an image: what it is made of, what it asks for, and whether that is there.

use super::{CheckReport, Level, Subject, entrypoint_finding, policy};
use crate::BuildError;
use ply_image::{Image, ImageError};
use ply_manifest::{Arch, ImageName, Kind, Lock, Manifest, PackageName, Policy};
use ply_source::Fetcher;
use std::path::Path;
use std::sync::Arc;

pub(super) fn check(
    path: &Path,
    mut report: CheckReport,
    policy: Option<&Policy>,
    fetcher: &Fetcher,
) -> Result<CheckReport, BuildError> {
    let image = Image::open(path)?;
    report.checks("manifest");
    let text = match image.manifest_text() {
        Ok(text) => text,
        Err(error @ ImageError::Io { .. }) => return Err(error.into()),
        Err(error) => {
            report.error("manifest", error.to_string(), error.hint());
            return Ok(report.done());
        }
    };
    let manifest = match Manifest::parse(&text, "/.manifest.toml") {
        Ok(manifest) => manifest,
        Err(faults) => {
            report.first_fault("manifest", &faults);
            return Ok(report.done());
        }
    };
    report.kind = Some(manifest.kind().to_string());

    report.checks("structure");
    let fat = structure(&mut report, &image, &manifest);

    report.checks("name");
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    let named: Option<ImageName> = file_name.parse().ok();
    let arch = named.as_ref().map_or(fetcher.options().arch, |n| n.arch);
    match &named {
        Some(name) => {
            let inside = ImageName {
                name: manifest.package.name.clone(),
                version: manifest.package.version.clone(),
                arch,
            };
            if *name != inside {
                let message = format!("the file is named {file_name}, and the manifest inside says {inside}");
                report.error("name", message, Some(format!("rename it to {inside}")));
            }
        }
        None => report.add(
            "name",
            Level::Warning,
            format!("the file's name tells no package: {file_name}; it is taken for one for {arch}"),
            Some("an image is named NAME-VERSION-linux-ARCH.img".to_owned()),
        ),
    }

    report.checks("lock");
    let Some(lock) = lock(&mut report, &image, &manifest, arch, fat)? else { return Ok(report.done()) };
    let mut images = vec![image];
    let mut layers: Vec<Arc<Manifest>> = Vec::new();
    if !lock.packages.is_empty() {
        report.checks("layers");
        let mut all = true;
        for package in &lock.packages {
            let entry = match fetcher.ensure(package) {
                Ok(entry) => entry,
                Err(error) => {
                    report.error("layers", error.to_string(), error.hint());
                    all = false;
                    continue;
                }
            };
            let layer = Image::open(&entry.image)?;
            match Manifest::parse(&layer.manifest_text()?, &entry.name.to_string()) {
                Ok(manifest) => layers.push(Arc::new(manifest)),
                Err(faults) => report.first_fault("layers", &faults),
            }
            images.push(layer);
        }
        if !all {
            return Ok(report.done());
        }
        report.checks("abi");
        abi(&mut report, &manifest, &layers, arch);
    }
    let subject = Subject { manifest: &manifest, arch, layers };
    if manifest.kind() == Kind::App {
        report.checks("entrypoint");
        entrypoint_finding(&mut report, &subject, images, true)?;
    }
    if let Some(policy) = policy {
        policy::check(&mut report, &subject, policy);
    }
    Ok(report.done())
}

/// Every entry is looked at. Returns whether the image is fat: it has a root of its own.
fn structure(report: &mut CheckReport, image: &Image, manifest: &Manifest) -> bool {
    let entries = match image.entries() {
        Ok(entries) => entries,
        Err(error) => {
            report.error("structure", error.to_string(), error.hint());
            return false;
        }
    };
    // What the store refuses, a run refuses too.
    if let Err(error) = image.check() {
        report.error("structure", error.to_string(), error.hint());
    }
    let has = |path: &str| entries.iter().any(|e| e.path == Path::new(path));
    let fat = has("bin") || has("usr");
    let (name, version) = (&manifest.package.name, &manifest.package.version);
    let home = match manifest.kind() {
        Kind::Layer => Some(format!("opt/{name}-{version}")),
        Kind::App | Kind::Composition => Some(format!("opt/{name}")),
        Kind::Base => None,
    };
    match home {
        Some(home) if !has(&home) && !fat => {
            report.error("structure", format!("the image has no /{home}, where its files belong"), None);
        }
        None if !has("bin/sh") && !has("usr/bin/sh") => {
            let message = "the base has no /bin/sh, so entrypoints that are a text can't start on it";
            report.add("structure", Level::Warning, message, None);
        }
        _ => {}
    }
    if manifest.kind() == Kind::App && !fat {
        let set = entries.iter().filter(|e| e.stat.is_file() && e.stat.mode & 0o6000 != 0);
        let set: Vec<String> = set.map(|e| format!("/{}", e.path.display())).collect();
        if !set.is_empty() {
            let message = format!("set-user-id files in an image do nothing: {}", set.join(", "));
            report.add("structure", Level::Warning, message, None);
        }
    }
    fat
}

/// The graph inside; none ends the check.
fn lock(
    report: &mut CheckReport,
    image: &Image,
    manifest: &Manifest,
    arch: Arch,
    fat: bool,
) -> Result<Option<Lock>, BuildError> {
    let asks = manifest.build.base.is_some() || !manifest.build.dependencies.is_empty();
    let Some(text) = image.lock_text()? else {
        if asks && manifest.kind() == Kind::App && !fat {
            let message = "the image depends on packages and has no /.lock.toml that says which";
            report.error("lock", message, Some("build it again with: ply build".to_owned()));
            return Ok(None);
        }
        return Ok(Some(Lock::default()));
    };
    let lock = match Lock::parse(&text, "/.lock.toml") {
        Ok(lock) => lock,
        Err(faults) => {
            report.first_fault("lock", &faults);
            return Ok(None);
        }
    };
    let mut whole = true;
    for package in lock.packages.iter().filter(|p| !p.digest.contains_key(&arch)) {
        let message = format!("the lock has no digest of {} {} for {arch}", package.name, package.version);
        report.error("lock", message, Some("build it again with: ply build".to_owned()));
        whole = false;
    }
    let base = manifest.build.base.as_ref();
    let direct = manifest.build.dependencies.iter().chain(base.map(|(name, asked)| (name, asked)));
    for (name, asked) in direct {
        let message = match lock.packages.iter().find(|p| p.name == *name) {
            None => format!("the manifest asks for {name} {}, and the lock doesn't have it", asked.range),
            Some(locked) if !asked.range.contains(&locked.version) => {
                format!("the manifest asks for {name} {}, and the lock has {}", asked.range, locked.version)
            }
            Some(_) => continue,
        };
        report.error("lock", message, Some("build it again with: ply build".to_owned()));
    }
    let last = lock.packages.last().map(|p| &p.name);
    if let Some((base, _)) = base
        && last.is_some_and(|last: &PackageName| last != base)
    {
        report.error("lock", format!("the base {base} is not the last layer of the lock"), None);
    }
    Ok(whole.then_some(lock))
}

/// One ABI: that of the base. Source: spec, "Kinds".
fn abi(report: &mut CheckReport, manifest: &Manifest, layers: &[Arc<Manifest>], arch: Arch) {
    let name_of = |m: &Manifest| format!("{} {}", m.package.name, m.package.version);
    let base = layers.iter().find(|m| m.kind() == Kind::Base);
    let given = base.and_then(|b| b.layer.abi.as_ref().map(|abi| (name_of(b), abi.for_arch(arch))));
    let own = [&manifest.build.requires_abi, &manifest.layer.abi];
    let mut stated: Vec<(String, String)> =
        own.into_iter().flatten().map(|abi| (name_of(manifest), abi.for_arch(arch))).collect();
    for layer in layers.iter().filter(|m| m.kind() != Kind::Base) {
        let abis = [&layer.layer.abi, &layer.build.requires_abi];
        stated.extend(abis.into_iter().flatten().map(|abi| (name_of(layer), abi.for_arch(arch))));
    }
    stated.dedup();
    let Some((first, expected)) = given.or_else(|| stated.first().cloned()) else { return };
    for (package, abi) in stated.iter().filter(|(_, abi)| *abi != expected) {
        let message = format!("{package} was built for {abi}, and {first} is {expected}");
        report.error(
            "abi",
            message,
            Some("take a base or a build of the package with the same ABI".to_owned()),
        );
    }
}
