//! `ply check`: what can be said about an image or a directory without running it, for people and for CI. Source:
//! spec, "Images, the build, the store".

mod image;
mod policy;

use crate::build::{all_match, include, manifest_text, read_document};
use crate::ship::{self, Rules};
use crate::walk::walk;
use crate::{BuildError, entrypoint};
use ply_image::{Image, LayerStack};
use ply_manifest::{Arch, Diagnostics, Document, Kind, Lock, Manifest, Policy};
use ply_source::{Fetcher, Mode};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The image can't run, or the policy forbids it: the check fails.
    Error,
    /// Worth knowing: the check passes.
    Warning,
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule: one of [`RULES`].
    pub rule: &'static str,
    /// How bad.
    pub level: Level,
    /// One sentence.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// What is looked at, in this order. `policy` only where one is given.
pub const RULES: [&str; 8] =
    ["manifest", "structure", "name", "lock", "layers", "abi", "entrypoint", "policy"];

/// What `ply check` found. Its JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// What was checked, as the person named it.
    pub target: String,
    /// `app`, `layer`, `base` or `stack`; none where the manifest could not be read.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Whether there is no error among the findings.
    pub ok: bool,
    /// The rules that were looked at. A fault of the manifest ends the check.
    pub checked: Vec<&'static str>,
    /// What was found, in the order of the rules.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    fn new(target: &str) -> Self {
        Self { target: target.to_owned(), kind: None, ok: true, checked: Vec::new(), findings: Vec::new() }
    }

    fn checks(&mut self, rule: &'static str) {
        self.checked.push(rule);
    }

    fn add(&mut self, rule: &'static str, level: Level, message: impl Into<String>, hint: Option<String>) {
        self.findings.push(Finding { rule, level, message: message.into(), hint });
    }

    fn error(&mut self, rule: &'static str, message: impl Into<String>, hint: Option<String>) {
        self.add(rule, Level::Error, message, hint);
    }

    fn faults(&mut self, rule: &'static str, faults: &Diagnostics) {
        for fault in &faults.0 {
            self.error(rule, fault.to_string(), fault.hint.clone());
        }
    }

    /// A file inside an image, which nobody mends: one that has a fault is likely to have many.
    fn first_fault(&mut self, rule: &'static str, faults: &Diagnostics) {
        let Some(first) = faults.0.first() else { return };
        let more = match faults.0.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more faults"),
        };
        self.error(
            rule,
            format!("{first}{more}"),
            Some("build the image again, or fetch it again".to_owned()),
        );
    }

    fn done(mut self) -> Self {
        self.findings.sort_by_key(|f| RULES.iter().position(|r| *r == f.rule));
        self.ok = self.findings.iter().all(|f| f.level != Level::Error);
        self
    }
}

/// What is known of a package when its graph is looked at.
struct Subject<'a> {
    manifest: &'a Manifest,
    arch: Arch,
    /// The packages below it, in layer order.
    layers: Vec<Arc<Manifest>>,
}

/// Checks an image or a directory at `path`; `shown` is how the person named it. Layers that the store doesn't have
/// are fetched. Errors only where the target itself can't be read; everything else is a finding.
pub fn check(
    path: &Path,
    shown: &str,
    policy: Option<&Policy>,
    fetcher: &Fetcher,
) -> Result<CheckReport, BuildError> {
    let report = CheckReport::new(shown);
    if path.is_dir() {
        directory(path, report, policy, fetcher)
    } else {
        image::check(path, report, policy, fetcher)
    }
}

fn directory(
    dir: &Path,
    mut report: CheckReport,
    policy: Option<&Policy>,
    fetcher: &Fetcher,
) -> Result<CheckReport, BuildError> {
    let (text, file) = match manifest_text(dir) {
        Err(BuildError::Manifest(faults)) => {
            report.checks("manifest");
            report.faults("manifest", &faults);
            return Ok(report.done());
        }
        other => other?,
    };
    report.checks("manifest");
    let manifest = match read_document(&text, &file) {
        Ok(Document::Package(manifest)) => *manifest,
        Ok(Document::Composition(_)) => {
            report.kind = Some(Kind::Composition.to_string());
            return Ok(report.done());
        }
        Err(BuildError::Manifest(faults)) => {
            report.faults("manifest", &faults);
            return Ok(report.done());
        }
        Err(other) => return Err(other),
    };
    report.kind = Some(manifest.kind().to_string());

    report.checks("structure");
    match what_ships(dir, &manifest, &text, &file) {
        Ok(()) => {}
        Err(error @ BuildError::Io { .. }) => return Err(error),
        Err(error) => report.error("structure", error.to_string(), error.hint()),
    }

    report.checks("lock");
    let arch = fetcher.options().arch;
    let lock_file = dir.join("ply.lock");
    let existing = match std::fs::read_to_string(&lock_file) {
        Ok(text) => match Lock::parse(&text, &lock_file.display().to_string()) {
            Ok(lock) => Some(lock),
            Err(faults) => {
                report.faults("lock", &faults);
                return Ok(report.done());
            }
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(BuildError::io("read", &lock_file, e)),
    };
    let stands_alone = manifest.build.base.is_none() && manifest.build.dependencies.is_empty();
    let mut layers = Vec::new();
    let mut images = Vec::new();
    if !(stands_alone && existing.is_none()) {
        if existing.is_none() {
            let hint = Some("write it with: ply build".to_owned());
            report.add(
                "lock",
                Level::Warning,
                "there is no ply.lock, so that each build resolves anew",
                hint,
            );
        }
        report.checks("layers");
        report.checks("abi");
        // The resolver checks the whole graph: who asks for what, one version a name, one base, one ABI.
        match fetcher.resolve(&manifest, existing.as_ref(), Mode::Keep) {
            Ok(resolution) => {
                if existing.is_some() && resolution.changed {
                    let hint = Some("bring it up to date with: ply build".to_owned());
                    report.error("lock", "ply.lock does not satisfy the manifest", hint);
                }
                for package in &resolution.packages {
                    images.push(Image::open(&package.entry.image)?);
                    layers.push(package.manifest.clone());
                }
            }
            Err(error) => {
                report.error("layers", error.to_string(), error.hint());
                return Ok(report.done());
            }
        }
    }
    let subject = Subject { manifest: &manifest, arch, layers };
    // Of a directory only the programs of packages can be looked for: its own files are no image yet.
    if let Some(ply_manifest::Entrypoint::Argv(argv)) = &manifest.run.entrypoint
        && argv.first().is_some_and(|a| !a.contains('/'))
        && !entrypoint::OWN_FOLDERS.iter().any(|folder| dir.join(folder).join(&argv[0]).exists())
    {
        report.checks("entrypoint");
        let bare = Manifest {
            run: ply_manifest::Run {
                entrypoint: Some(ply_manifest::Entrypoint::Argv(vec![argv[0].clone()])),
                ..manifest.run.clone()
            },
            ..manifest.clone()
        };
        entrypoint_finding(
            &mut report,
            &Subject { manifest: &bare, arch, layers: subject.layers.clone() },
            images,
            false,
        )?;
    }
    if let Some(policy) = policy {
        policy::check(&mut report, &subject, policy);
    }
    Ok(report.done())
}

/// The rules of a build over the directory as it is now.
fn what_ships(dir: &Path, manifest: &Manifest, text: &str, file: &str) -> Result<(), BuildError> {
    let rules = Rules {
        include: include(manifest, text, file)?,
        allow_secrets: false,
        base: manifest.kind() == Kind::Base,
        outputs: Vec::new(),
    };
    let listing = walk(dir, &rules)?;
    all_match(&rules.include, &listing, text, file)?;
    ship::decide(&listing.entries, &rules).map(drop)
}

fn entrypoint_finding(
    report: &mut CheckReport,
    subject: &Subject<'_>,
    images: Vec<Image>,
    app_on_top: bool,
) -> Result<(), BuildError> {
    let layers: Vec<&Manifest> = subject.layers.iter().map(|m| &**m).collect();
    let stack = LayerStack::new(images);
    if let Some(problem) = entrypoint::problem(subject.manifest, subject.arch, &stack, &layers, app_on_top)? {
        report.error("entrypoint", problem.message, problem.hint);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
