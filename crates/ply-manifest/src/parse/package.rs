//! `[package]`, `[layer]`, and the manifest as a whole.

use super::{Places, build, run};
use crate::walk::{Entry, Faults, Section, absolute_path};
use crate::{AbiName, Kind, LayerSection, Manifest, Package};
use std::collections::BTreeMap;

/// Reads a manifest from its root table.
pub(super) fn read(root: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Manifest> {
    let header = root.take("package");
    let grouped_build = root.take("build").and_then(|e| e.table(faults));
    let grouped_run = root.take("run").and_then(|e| e.table(faults));
    let layer_table = root.take("layer").and_then(|e| e.table(faults));
    let Some(header) = header else {
        super::no_header(root, "only [package] is required: name = \"myapp\", version = \"1.0.0\"", faults);
        return None;
    };
    let package_table = header.table(faults)?;
    let mut places =
        Places { root, package: package_table, build: grouped_build, run: grouped_run, entrypoint: None };
    let package = read_package(&mut places.package, faults);
    let layer = read_layer(layer_table, &mut places.package, faults);
    let build = build::read(&mut places, package.as_ref().map(|p| &p.name), faults);
    let run = run::read(&mut places, faults);
    let Places { package: rest, build: rest_build, run: rest_run, entrypoint, .. } = places;
    rest.finish(faults);
    for section in [rest_build, rest_run].into_iter().flatten() {
        section.finish(faults);
    }
    let manifest = Manifest { package: package?, build, run, layer };
    if manifest.needs_base() && manifest.build.dependencies.is_empty() {
        faults.at_hint(
            &entrypoint.unwrap_or(header.key_span),
            "an entrypoint that is a string needs /bin/sh, and no base is declared to hold it",
            "declare one, as in base = \"debian@13\" in [build], or write the entrypoint as an array",
        );
    }
    Some(manifest)
}

fn read_package(table: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Package> {
    let name = table.need("name", "write name = \"myapp\"", faults).and_then(|e| e.noun(faults));
    let version = table.need("version", "write version = \"1.0.0\"", faults).and_then(|e| e.noun(faults));
    let owner = table.take("owner").and_then(|e| e.noun(faults));
    let mut line = |key| table.take(key).and_then(|e| e.line(faults).map(str::to_owned));
    let (description, license, homepage) = (line("description"), line("license"), line("homepage"));
    Some(Package { name: name?, version: version?, owner, description, license, homepage })
}

fn read_layer(
    table: Option<Section<'_>>,
    package: &mut Section<'_>,
    faults: &mut Faults<'_>,
) -> LayerSection {
    let older = package.take("provides_abi");
    let mut layer = LayerSection::default();
    let Some(mut table) = table else {
        layer.abi = older.and_then(|e| abi(&e, faults));
        return layer;
    };
    if let Some(entry) = table.take("path") {
        layer.path = folders(&entry, faults);
    }
    if let Some(entry) = table.take("ld_library_path") {
        layer.ld_library_path = folders(&entry, faults);
    }
    if let Some(env) = table.take("env").and_then(|e| e.table(faults)) {
        layer.env = variables(env, faults).into_iter().map(|v| (v.0, v.1)).collect::<BTreeMap<_, _>>();
    }
    layer.abi = super::one_of(table.take("abi"), older, faults).and_then(|e| abi(&e, faults));
    table.finish(faults);
    layer
}

/// A list of absolute folders. A colon would split one when they are joined.
fn folders(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Vec<String> {
    let mut folders = Vec::new();
    for value in entry.array(faults).unwrap_or_default() {
        let Some(text) = value.string(faults) else { continue };
        match absolute_path(text) {
            Ok(_) if text.contains(':') => {
                faults.at(&value.span(), format!("{text:?} holds a colon, which separates folders"));
            }
            Ok(path) => folders.push(path),
            Err(why) => faults.at(&value.span(), format!("{text:?} is not a folder for a layer: {why}")),
        }
    }
    folders
}

/// An ABI: letters, digits, `.`, `_`, `-`, and `{arch}`.
pub(super) fn abi(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Option<AbiName> {
    let text = entry.string(faults)?;
    let plain = text.replace("{arch}", "x64");
    let well = (1..=64).contains(&plain.len())
        && plain.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b));
    if !well {
        faults.at_hint(
            &entry.span(),
            format!("{text:?} is not an ABI"),
            "write one as \"linux-x64-gnu\", or \"linux-{arch}-gnu\" for every arch",
        );
        return None;
    }
    Some(AbiName(text.to_owned()))
}

/// The variables of an env table with the place of each value, in the order of the file.
pub(super) fn variables(
    mut table: Section<'_>,
    faults: &mut Faults<'_>,
) -> Vec<(String, String, std::ops::Range<usize>)> {
    let mut variables = Vec::new();
    for entry in table.all() {
        if let Err(why) = variable_name(entry.key) {
            faults.at(&entry.key_span, format!("{:?} is not the name of a variable: {why}", entry.key));
            continue;
        }
        if let Some(value) = entry.string(faults) {
            variables.push((entry.key.to_owned(), value.to_owned(), entry.span()));
        }
    }
    variables
}

/// Whether a text may be the name of an environment variable (environ(7)): not empty, no `=`, and nothing
/// that a terminal would not show.
pub fn variable_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        Err("it is empty")
    } else if name.contains('=') {
        Err("it holds =")
    } else if name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        Err("it holds a space or a control character")
    } else if name.len() > 255 {
        Err("it is longer than 255 bytes")
    } else {
        Ok(())
    }
}

impl Manifest {
    /// Whether this app must have a base: it has a dependency or a string entrypoint. Only then is `/bin/sh`
    /// or a libc asked for.
    pub fn needs_base(&self) -> bool {
        let shell = matches!(self.run.entrypoint, Some(crate::Entrypoint::Shell(_)));
        self.kind() == Kind::App
            && self.build.base.is_none()
            && (shell || !self.build.dependencies.is_empty())
    }
}
