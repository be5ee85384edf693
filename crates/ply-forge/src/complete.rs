//! A recipe's `ply.toml` has what a person knows; what only minting knows (the version, the folders of a layer) is
//! written into it here, with comments and layout kept.

use crate::error::{ForgeError, Result};
use ply_manifest::{Manifest, Version};
use std::collections::BTreeMap;
use toml_edit::{Array, DocumentMut, Item, Table, value};

/// What minting found out. Each is written only where the recipe says nothing of its own.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) version: Option<Version>,
    /// `base`, as in `debian@13`.
    pub(crate) base: Option<String>,
    pub(crate) path: Vec<String>,
    pub(crate) ld_library_path: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) abi: Option<String>,
    /// Whether `version` replaces the recipe's.
    pub(crate) replace_version: bool,
    /// What `{prefix}` in the strings of `[layer]` stands for.
    pub(crate) prefix: String,
}

/// Completes the text of a recipe; `file` is what errors call it. What comes out is a whole manifest, checked.
pub(crate) fn complete(text: &str, file: &str, known: &Known) -> Result<(String, Manifest)> {
    let wrong = |why: String, hint: Option<String>| ForgeError::Recipe { file: file.to_owned(), why, hint };
    let mut document: DocumentMut =
        text.parse().map_err(|e: toml_edit::TomlError| wrong(e.message().to_owned(), None))?;
    let root = document.as_table_mut();
    if let Some(version) = &known.version {
        let package = table(root, "package", file)?;
        match package.get_mut("version") {
            None => insert_after(package, "name", "version", value(version.to_string())),
            Some(stated) if known.replace_version => *stated = value(version.to_string()),
            Some(_) => {}
        }
    }
    if let Some(base) = &known.base {
        let build = table(root, "build", file)?;
        if build.get("base").is_none() {
            build.insert("base", value(base.as_str()));
        }
    }
    let layer_known = !known.path.is_empty()
        || !known.ld_library_path.is_empty()
        || !known.env.is_empty()
        || known.abi.is_some()
        || root.contains_key("layer");
    if layer_known {
        let layer = table(root, "layer", file)?;
        let list = |items: &[String]| value(items.iter().map(String::as_str).collect::<Array>());
        for (key, items) in [("path", &known.path), ("ld_library_path", &known.ld_library_path)] {
            if layer.get(key).is_none() && !items.is_empty() {
                layer.insert(key, list(items));
            }
        }
        if let (None, Some(abi)) = (layer.get("abi"), &known.abi) {
            layer.insert("abi", value(abi.as_str()));
        }
        if !known.env.is_empty() {
            let env = layer.entry("env").or_insert(Item::Table(Table::new()));
            let env =
                env.as_table_like_mut().ok_or_else(|| wrong("[layer] env is no table".to_owned(), None))?;
            for (name, text) in &known.env {
                if env.get(name).is_none() {
                    env.insert(name, value(text.as_str()));
                }
            }
        }
        if let Some(layer) = root.get_mut("layer") {
            fill_prefix(layer, &known.prefix);
        }
    }
    let text = document.to_string();
    let manifest = Manifest::parse(&text, file).map_err(|faults| {
        let first = faults.0.first();
        let message = first.map(ToString::to_string).unwrap_or_default();
        let why = message
            .strip_prefix(&format!("{file}: "))
            .or(message.strip_prefix(&format!("{file}:")))
            .map(str::to_owned);
        wrong(why.unwrap_or(message), first.and_then(|f| f.hint.clone()))
    })?;
    Ok((text, manifest))
}

fn table<'a>(root: &'a mut Table, name: &str, file: &str) -> Result<&'a mut Table> {
    root.entry(name).or_insert(Item::Table(Table::new())).as_table_mut().ok_or_else(|| ForgeError::Recipe {
        file: file.to_owned(),
        why: format!("[{name}] is written inline, and minting has to add to it"),
        hint: Some(format!("write it as a table of its own, [{name}]")),
    })
}

/// Inserts a key behind another one, where a person would look for it.
fn insert_after(table: &mut Table, after: &str, key: &str, item: Item) {
    let order: Vec<String> = table.iter().map(|(k, _)| k.to_owned()).collect();
    table.insert(key, item);
    let rank = |k: &str| match order.iter().position(|o| o == k) {
        Some(at) => at * 2,
        None => order.iter().position(|o| o == after).map_or(usize::MAX, |at| at * 2 + 1),
    };
    if order.iter().any(|k| k == after) {
        table.sort_values_by(|a, _, b, _| rank(a.get()).cmp(&rank(b.get())));
    }
}

fn fill_prefix(item: &mut Item, prefix: &str) {
    let fill = |v: &mut toml_edit::Value| {
        if let Some(text) = v.as_str()
            && text.contains("{prefix}")
        {
            let filled = text.replace("{prefix}", prefix);
            let decor = v.decor().clone();
            *v = filled.into();
            *v.decor_mut() = decor;
        }
    };
    match item {
        Item::Value(toml_edit::Value::Array(array)) => array.iter_mut().for_each(fill),
        Item::Value(toml_edit::Value::InlineTable(table)) => table.iter_mut().for_each(|(_, v)| fill(v)),
        Item::Value(v) => fill(v),
        Item::Table(table) => table.iter_mut().for_each(|(_, item)| fill_prefix(item, prefix)),
        Item::ArrayOfTables(_) | Item::None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known {
            version: Some("1.2.3+4".parse().unwrap()),
            base: Some("debian@13".to_owned()),
            path: vec!["/opt/a-1.2.3+4/bin".to_owned()],
            abi: Some("linux-{arch}-gnu".to_owned()),
            prefix: "/opt/a-1.2.3+4".to_owned(),
            ..Known::default()
        }
    }

    #[test]
    fn what_is_known_is_added_and_what_is_said_stays() {
        let text = "# mine\n[package]\nname = \"a\" # the name\ndescription = \"d\"\n\n[layer]\nabi = \"x\"\n\
                    env = { A_HOME = \"{prefix}/a\" }\n";
        let (done, manifest) = complete(text, "ply.toml", &known()).unwrap();
        assert_eq!(
            done,
            "# mine\n[package]\nname = \"a\" # the name\nversion = \"1.2.3+4\"\ndescription = \"d\"\n\n[layer]\nabi = \"x\"\n\
             env = { A_HOME = \"/opt/a-1.2.3+4/a\" }\npath = [\"/opt/a-1.2.3+4/bin\"]\n\n[build]\nbase = \"debian@13\"\n"
        );
        assert_eq!(manifest.layer.env["A_HOME"], "/opt/a-1.2.3+4/a");
    }

    #[test]
    fn faults_name_the_recipe() {
        let error = complete("[package]\nname = \"a b\"\n", "packages/a/ply.toml", &known()).unwrap_err();
        assert!(error.to_string().starts_with("packages/a/ply.toml: 2:8: "), "{error}");
        let error = complete("package = { name = \"a\" }\n", "p/ply.toml", &known()).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
    }
}
