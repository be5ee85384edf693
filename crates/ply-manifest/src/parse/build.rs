//! `[build]`: base, dependencies, include, requires, sources.

use super::{Group, Places, package};
use crate::walk::{Entry, Faults, Section};
use crate::{Build, Dependency, PackageName, Range, Reference, SourceSpec};
use std::collections::BTreeMap;
use toml::de::DeValue;

/// Reads `[build]`, or its keys from their flat places.
pub(super) fn read(places: &mut Places<'_, '_>, own: Option<&PackageName>, faults: &mut Faults<'_>) -> Build {
    let mut build = Build::default();
    let sources = places.table(Group::Build, "sources", faults);
    if let Some(table) = sources {
        build.sources = read_sources(table, faults);
    }
    let base = places.key(Group::Build, "base", faults);
    if let Some(entry) = &base {
        match entry.value.get_ref() {
            DeValue::Boolean(true) => build.is_base = true,
            DeValue::Boolean(false) => faults.at_hint(
                &entry.span(),
                format!("{} is true in a base's own manifest, or names a base", entry.label),
                "leave it out",
            ),
            _ => build.base = read_base(entry, &build.sources, faults),
        }
    }
    if let Some(entry) = places.key(Group::Build, "include", faults) {
        build.include = read_include(&entry, faults);
    }
    if let Some(mut table) = places.table(Group::Build, "dependencies", faults) {
        for entry in table.all() {
            let Some(name) = package_name(&entry, faults) else { continue };
            if Some(&name) == own {
                faults.at(&entry.key_span, format!("{name} depends on itself"));
            }
            if build.base.as_ref().is_some_and(|(base, _)| *base == name) {
                faults.at_hint(
                    &entry.key_span,
                    format!("{name} is the base and a dependency too"),
                    "keep it as the base only",
                );
            }
            if let Some(dependency) = read_dependency(&entry, &build.sources, faults) {
                build.dependencies.insert(name, dependency);
            }
        }
    }
    if let Some(mut table) = places.table(Group::Build, "requires", faults) {
        build.requires_abi = table.take("abi").and_then(|e| package::abi(&e, faults));
        table.finish(faults);
    }
    if let (Some((base, _)), Some(entry)) = (&build.base, &base)
        && Some(base) == own
    {
        faults.at_hint(
            &entry.span(),
            format!("{base} is its own base"),
            "a base's own manifest says base = true",
        );
    }
    build
}

fn package_name(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Option<PackageName> {
    match entry.key.parse() {
        Ok(name) => Some(name),
        Err(error) => {
            faults.noun(&entry.key_span, error);
            None
        }
    }
}

fn read_sources(mut table: Section<'_>, faults: &mut Faults<'_>) -> BTreeMap<String, SourceSpec> {
    let mut sources = BTreeMap::new();
    for entry in table.all() {
        if entry.key.is_empty() || entry.key.chars().any(|c| c.is_control() || c.is_whitespace()) {
            faults.at(&entry.key_span, format!("{:?} is not an alias of a source", entry.key));
            continue;
        }
        if let Some(spec) = entry.noun(faults) {
            sources.insert(entry.key.to_owned(), spec);
        }
    }
    sources
}

/// `"name@range"`, or `{ name, version, source }`.
fn read_base(
    entry: &Entry<'_>,
    sources: &BTreeMap<String, SourceSpec>,
    faults: &mut Faults<'_>,
) -> Option<(PackageName, Dependency)> {
    const FORMS: &str = "write \"debian@13\", or { name = \"debian\", version = \"13\", source = \"alias\" }";
    if let DeValue::String(text) = entry.value.get_ref() {
        if !text.contains('@') {
            faults.at_hint(&entry.span(), format!("{text:?} names a base without a version range"), FORMS);
            return None;
        }
        let reference: Reference = entry.noun(faults)?;
        if reference.owner.is_some() {
            faults.at_hint(
                &entry.span(),
                format!("{text:?} names an owner, and a base comes from a source"),
                "declare the source in [build.sources], and name its alias",
            );
            return None;
        }
        return Some((reference.name, Dependency { range: reference.range, source: None }));
    }
    let mut table = entry.table_or("\"name@range\", a table or true", faults)?;
    let name = table.need("name", FORMS, faults).and_then(|e| e.noun(faults));
    let range = table.need("version", FORMS, faults).and_then(|e| e.noun::<Range>(faults));
    let source = read_alias(&mut table, sources, faults);
    table.finish(faults);
    Some((name?, Dependency { range: range?, source }))
}

/// A range, or `{ version, source }`.
fn read_dependency(
    entry: &Entry<'_>,
    sources: &BTreeMap<String, SourceSpec>,
    faults: &mut Faults<'_>,
) -> Option<Dependency> {
    if !entry.is_table() {
        if !entry.value.get_ref().is_str() {
            entry.mistyped("a string", faults);
            return None;
        }
        return Some(Dependency { range: entry.noun(faults)?, source: None });
    }
    let mut table = entry.table(faults)?;
    if let Some(rest) = split_name(&mut table) {
        faults.at_hint(
            &entry.key_span,
            format!("{} is a table, not a range", entry.label),
            format!("quote a name that holds a dot: \"{}.{rest}\" = \"1.0\"", entry.key),
        );
        return None;
    }
    let hint = format!("write {} = {{ version = \"1.0\", source = \"alias\" }}", entry.key);
    let range = table.need("version", &hint, faults).and_then(|e| e.noun(faults));
    let source = read_alias(&mut table, sources, faults);
    table.finish(faults);
    Some(Dependency { range: range?, source })
}

/// The rest of a name whose dot was read as a nested table, as in `boost1.84 = "1.84"`.
fn split_name<'t>(table: &mut Section<'t>) -> Option<&'t str> {
    if table.has("version") || table.has("source") {
        return None;
    }
    match &table.peek()[..] {
        [only] if only.key.starts_with(|c: char| c.is_ascii_digit()) => Some(only.key),
        _ => None,
    }
}

fn read_alias(
    table: &mut Section<'_>,
    sources: &BTreeMap<String, SourceSpec>,
    faults: &mut Faults<'_>,
) -> Option<String> {
    let entry = table.take("source")?;
    let alias = entry.string(faults)?;
    if !sources.contains_key(alias) {
        let hint = match faults.near(alias, sources.keys().map(String::as_str)) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("declare it: {alias} = \"https://…\" in [build.sources]"),
        };
        faults.at_hint(&entry.span(), format!("no source has the alias {alias:?}"), hint);
    }
    Some(alias.to_owned())
}

fn read_include(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Vec<String> {
    let mut include = Vec::new();
    for value in entry.array(faults).unwrap_or_default() {
        let Some(text) = value.string(faults) else { continue };
        let why = if text.is_empty() {
            "it is empty"
        } else if text.starts_with('/') {
            "it is absolute, and what ships is in the package's folder"
        } else if text.split('/').any(|part| part == "..") {
            "it holds .."
        } else if text.chars().any(char::is_control) {
            "it holds a control character"
        } else {
            include.push(text.to_owned());
            continue;
        };
        faults.at_hint(
            &value.span(),
            format!("{text:?} is nothing to include: {why}"),
            "write paths or globs below the manifest's folder, as in \"dist/\" or \"*.js\"",
        );
    }
    include
}
