//! Edits of `ply.toml` that keep every comment and the layout: `ply add`, and a range that is moved. Grouped and
//! flat manifests stay what they are.

use ply_manifest::{Diagnostics, Document, PackageName, Range, Version};
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike, Value};

/// What `ply add` is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// The package.
    pub name: PackageName,
    /// Which versions will do.
    pub range: Range,
    /// The alias in `[build.sources]`; for one that is there already, none leaves its source as it is.
    pub source: Option<String>,
    /// Whether it is the base rather than a dependency.
    pub base: bool,
}

/// What an edit did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edited {
    /// The manifest as it now reads.
    Changed(String),
    /// It says that already: nothing to write.
    Already,
}

/// Why a manifest was not edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The file is no manifest, or would not be one afterwards.
    #[error("{0}")]
    Manifest(Diagnostics),
    /// A composition has members, not dependencies.
    #[error("{0} is a composition: it has members, not dependencies")]
    Composition(String),
    /// A base has no base and no dependencies.
    #[error("{0} is the manifest of a base, which stands on nothing")]
    IsBase(String),
    /// A range was to be moved that isn't there.
    #[error("{file} has no dependency {name}")]
    NotThere {
        /// The file.
        file: String,
        /// The package.
        name: PackageName,
    },
}

impl EditError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Manifest(all) => all.0.iter().find_map(|d| d.hint.clone()),
            Self::Composition(_) => {
                Some("add a member by hand: [[service]] with run = \"NAME@RANGE\"".to_owned())
            }
            Self::IsBase(_) => None,
            Self::NotThere { name, .. } => Some(format!("add it with: ply add {name}")),
        }
    }
}

/// The range that `ply add NAME` writes for the newest version: its major, or below 1.0 its minor.
pub fn default_range(newest: &Version) -> Range {
    match newest.parts() {
        _ if newest.is_prerelease() => Range::Exact(newest.clone()),
        (0, minor, _) => Range::Minor(0, minor),
        (major, ..) => Range::Major(major),
    }
}

/// Adds a dependency (or the base) to the manifest `text`, or moves it where it is there. `file` is the name that
/// errors show. What comes out is a valid manifest.
pub fn add_dependency(text: &str, file: &str, addition: &Addition) -> Result<Edited, EditError> {
    edit(text, file, |document| {
        let grouped = is_grouped(document);
        if addition.base {
            let home = if grouped { "build" } else { "package" };
            return set_base(table(document, home), file, addition);
        }
        let dependencies = if grouped {
            below(table(document, "build"), "dependencies")
        } else {
            table(document, "dependencies")
        };
        Ok(set_dependency(dependencies, addition))
    })
}

/// Moves the range of a dependency (or the base) that the manifest `text` already has.
pub fn set_range(text: &str, file: &str, name: &PackageName, range: &Range) -> Result<Edited, EditError> {
    let there = |base| Addition { name: name.clone(), range: range.clone(), source: None, base };
    edit(text, file, |document| {
        let has = |section: Option<&Item>| {
            section.and_then(Item::as_table_like).is_some_and(|t| t.get(name.as_str()).is_some())
        };
        let nested = document.get("build").and_then(|b| b.as_table_like()?.get("dependencies"));
        if has(nested) {
            let dependencies = below(table(document, "build"), "dependencies");
            return Ok(set_dependency(dependencies, &there(false)));
        }
        if has(document.get("dependencies")) {
            return Ok(set_dependency(table(document, "dependencies"), &there(false)));
        }
        for home in ["build", "package"] {
            let base = document.get(home).and_then(|t| t.as_table_like()?.get("base")).map(base_name);
            if base.flatten().as_deref() == Some(name.as_str()) {
                return set_base(table(document, home), file, &there(true));
            }
        }
        Err(EditError::NotThere { file: file.to_owned(), name: name.clone() })
    })
}

/// Reads, changes and reads again. `change` says whether it changed anything.
fn edit(
    text: &str,
    file: &str,
    change: impl FnOnce(&mut DocumentMut) -> Result<bool, EditError>,
) -> Result<Edited, EditError> {
    // The manifest's own parser words faults of the file; a manifest that only lacks what is added is edited.
    let Ok(mut document) = text.parse::<DocumentMut>() else {
        return Err(match Document::parse(text, file) {
            Err(faults) => EditError::Manifest(faults),
            Ok(_) => EditError::Manifest(Diagnostics(Vec::new())),
        });
    };
    if let Ok(Document::Composition(_)) = Document::parse(text, file) {
        return Err(EditError::Composition(file.to_owned()));
    }
    if !change(&mut document)? {
        return Ok(Edited::Already);
    }
    let text = document.to_string();
    Document::parse(&text, file).map_err(EditError::Manifest)?;
    Ok(Edited::Changed(text))
}

/// Whether the manifest has the grouped shape. One that shows neither is grouped, which is the shape to write.
fn is_grouped(document: &DocumentMut) -> bool {
    if document.contains_key("build") || document.contains_key("run") {
        return !document.contains_key("dependencies");
    }
    let flat_tables = [
        "dependencies",
        "sources",
        "requires",
        "env",
        "ports",
        "volumes",
        "params",
        "network",
        "resources",
        "health",
        "restart",
        "scale",
        "requests",
    ];
    let flat_keys = ["base", "entrypoint", "include", "user", "workdir", "capabilities", "stop_signal"];
    let in_package = |key: &&str| {
        document.get("package").and_then(Item::as_table_like).is_some_and(|p| p.get(key).is_some())
    };
    !flat_tables.iter().any(|t| document.contains_key(t)) && !flat_keys.iter().any(in_package)
}

/// A table at the top, made where it is missing.
fn table<'d>(document: &'d mut DocumentMut, key: &str) -> &'d mut dyn TableLike {
    let item = document.entry(key).or_insert_with(|| {
        let mut table = Table::new();
        table.decor_mut().set_prefix("\n");
        Item::Table(table)
    });
    as_table(item)
}

/// A table below another one, inline where that one is.
fn below<'t>(parent: &'t mut dyn TableLike, key: &str) -> &'t mut dyn TableLike {
    if parent.get(key).is_none() {
        // Keys with dots (`build.base = …`) and inline tables hold values only.
        let inline = parent.is_dotted() || parent.get_values().is_empty() && !parent.is_empty();
        let item = if inline {
            Item::Value(Value::InlineTable(InlineTable::new()))
        } else {
            let mut table = Table::new();
            table.decor_mut().set_prefix("\n");
            Item::Table(table)
        };
        parent.insert(key, item);
    }
    as_table(parent.get_mut(key).unwrap_or_else(|| unreachable!("it was just made")))
}

fn as_table(item: &mut Item) -> &mut dyn TableLike {
    if item.as_table_like().is_none() {
        // What stands there is no table: the manifest is wrong, and its own parser will say so.
        *item = Item::Table(Table::new());
    }
    item.as_table_like_mut().unwrap_or_else(|| unreachable!("it is a table now"))
}

fn set_dependency(dependencies: &mut dyn TableLike, addition: &Addition) -> bool {
    let name = addition.name.as_str();
    let range = addition.range.to_string();
    let Some(existing) = dependencies.get_mut(name) else {
        let sorted = dependencies.iter().map(|(k, _)| k.to_owned()).collect::<Vec<_>>().is_sorted();
        let mut value = dependency(&range, addition.source.as_deref());
        // In an inline table the space in front of `}` belongs to the last value.
        let last = dependencies.iter_mut().last();
        let last = last.map(|(_, item)| item).and_then(Item::as_value_mut);
        let space = last.and_then(|last| {
            let suffix = last.decor().suffix()?.as_str()?.to_owned();
            let blank = !suffix.is_empty() && suffix.trim().is_empty();
            blank.then(|| last.decor_mut().set_suffix("")).map(|()| suffix)
        });
        let inline = space.is_some();
        if let Some(space) = space {
            value = value.decorated(" ", &space);
        }
        dependencies.insert(name, Item::Value(value));
        if sorted && !inline {
            dependencies.sort_values();
        }
        return true;
    };
    let source =
        |item: &Item| item.as_table_like().and_then(|t| t.get("source")?.as_str().map(str::to_owned));
    let (old_source, old_range) = (source(existing), range_of(existing));
    let new_source = addition.source.clone().or_else(|| old_source.clone());
    if old_range.as_deref() == Some(&range) && old_source == new_source {
        return false;
    }
    match existing.as_table_like_mut().filter(|_| new_source.is_some()) {
        Some(table) => {
            set_text(table, "version", &range);
            if let Some(source) = &new_source {
                set_text(table, "source", source);
            }
        }
        None => replace(existing, dependency(&range, new_source.as_deref())),
    }
    true
}

fn set_base(home: &mut dyn TableLike, file: &str, addition: &Addition) -> Result<bool, EditError> {
    let (name, range) = (addition.name.as_str(), addition.range.to_string());
    let short = format!("{name}@{range}");
    let Some(existing) = home.get_mut("base") else {
        let value = match &addition.source {
            None => Value::from(short),
            Some(source) => long_base(name, &range, source),
        };
        home.insert("base", Item::Value(value));
        return Ok(true);
    };
    if existing.as_bool() == Some(true) {
        return Err(EditError::IsBase(file.to_owned()));
    }
    let text = |table: &dyn TableLike, key: &str| table.get(key).and_then(Item::as_str).map(str::to_owned);
    let (before, old_source) = match existing.as_table_like() {
        Some(table) => {
            let range = text(table, "version").unwrap_or_else(|| "*".to_owned());
            (format!("{}@{range}", text(table, "name").unwrap_or_default()), text(table, "source"))
        }
        None => (existing.as_str().unwrap_or_default().to_owned(), None),
    };
    let source = addition.source.clone().or_else(|| old_source.clone());
    if before == short && source == old_source {
        return Ok(false);
    }
    match (existing.as_table_like_mut(), source) {
        (Some(table), source) => {
            set_text(table, "name", name);
            set_text(table, "version", &range);
            if let Some(source) = source {
                set_text(table, "source", &source);
            }
        }
        (None, Some(source)) => replace(existing, long_base(name, &range, &source)),
        (None, None) => replace(existing, Value::from(short)),
    }
    Ok(true)
}

fn dependency(range: &str, source: Option<&str>) -> Value {
    let Some(source) = source else { return Value::from(range) };
    let mut table = InlineTable::new();
    table.insert("source", source.into());
    table.insert("version", range.into());
    Value::InlineTable(table)
}

fn long_base(name: &str, range: &str, source: &str) -> Value {
    let mut table = InlineTable::new();
    table.insert("name", name.into());
    table.insert("version", range.into());
    table.insert("source", source.into());
    Value::InlineTable(table)
}

fn range_of(item: &Item) -> Option<String> {
    let text = item.as_str().or_else(|| item.as_table_like()?.get("version")?.as_str());
    text.map(str::to_owned)
}

fn base_name(item: &Item) -> Option<String> {
    match item.as_str() {
        Some(text) => Some(text.split('@').next().unwrap_or(text).to_owned()),
        None => item.as_table_like()?.get("name")?.as_str().map(str::to_owned),
    }
}

fn set_text(table: &mut dyn TableLike, key: &str, text: &str) {
    match table.get_mut(key) {
        Some(item) => replace(item, Value::from(text)),
        None => {
            table.insert(key, Item::Value(Value::from(text)));
        }
    }
}

/// Another value in the same place: what stands around it, comments too, stays.
fn replace(item: &mut Item, mut value: Value) {
    if let Some(old) = item.as_value() {
        *value.decor_mut() = old.decor().clone();
    }
    *item = Item::Value(value);
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
