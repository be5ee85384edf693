//! `--set KEY=VALUE`: any key of `[run]` by its dotted name. The key is put into the manifest's text and the
//! text is read again, so every rule of a manifest holds for a flag too.

use crate::RunError;
use crate::options::KeyValue;
use ply_manifest::Manifest;
use toml_edit::{DocumentMut, Item, Table, Value};

/// The keys that the flat form of a manifest keeps under `[package]`.
const FLAT_IN_PACKAGE: [&str; 5] = ["entrypoint", "user", "workdir", "stop_signal", "capabilities"];

/// The manifest `text` with the flags laid over its `[run]`.
pub fn with_settings(text: &str, file: &str, flags: &[KeyValue]) -> Result<Manifest, RunError> {
    let mut text = text.to_owned();
    let mut manifest = Manifest::parse(&text, file)?;
    let mut failure = None;
    // `scale.min` is the plan's: it means slots from the first day, the rest of scaling comes later.
    for flag in flags.iter().filter(|f| f.key != "scale.min") {
        let wrong = |why: &str, hint: Option<String>| RunError::Usage {
            message: format!("--set {}={}: {why}", flag.key, flag.value),
            hint: hint.unwrap_or_else(|| {
                "keys are those of [run] with dots, as in --set resources.mem=512M".to_owned()
            }),
        };
        // A bare 60s is no TOML value, "60s" is; 1.5 is both, and the manifest says which it takes.
        let typed = flag.value.parse::<Value>().ok().filter(|v| !v.is_str());
        let mut faults = Vec::new();
        let mut edits = Vec::new();
        for value in typed.into_iter().chain([Value::from(flag.value.clone())]) {
            let edited = set(&text, &flag.key, value).ok_or_else(|| wrong("there is no such key", None))?;
            match Manifest::parse(&edited, file) {
                Ok(read) => {
                    (text, manifest) = (edited, read);
                    (faults, edits) = (Vec::new(), Vec::new());
                    failure = None;
                    break;
                }
                Err(found) => {
                    faults.extend(found.0.into_iter().next());
                    edits.push(edited);
                }
            }
        }
        // Neither reading fits: one that has the right type may still need a flag that follows.
        let of_type = |fault: &ply_manifest::Diagnostic| fault.kind != ply_manifest::FaultKind::Type;
        let which = faults.iter().position(of_type).unwrap_or(0);
        if let Some(fault) = faults.into_iter().nth(which) {
            failure = Some(wrong(&fault.message, fault.hint));
            text = edits.swap_remove(which);
        }
    }
    match failure {
        Some(failure) => Err(failure),
        None => Ok(manifest),
    }
}

/// The text with one key of `[run]` set, where that key stands: flat where the flat form has it already, else
/// under `[run]`.
fn set(text: &str, dotted: &str, value: Value) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let parts: Vec<&str> = dotted.split('.').collect();
    if parts.iter().any(|p| p.is_empty()) {
        return None;
    }
    let in_package = |d: &DocumentMut| d.get("package").and_then(|p| p.get(parts[0])).is_some();
    let mut full: Vec<&str> = Vec::new();
    if FLAT_IN_PACKAGE.contains(&parts[0]) && in_package(&document) {
        full.push("package");
    } else if document.get(parts[0]).is_none() || parts[0] == "package" || parts[0] == "build" {
        full.push("run");
    }
    full.extend(&parts);
    let (last, tables) = full.split_last()?;
    let mut item = document.as_item_mut();
    for key in tables {
        let table = item.as_table_like_mut()?;
        if !table.contains_key(key) {
            let mut new = Table::new();
            new.set_implicit(true);
            table.insert(key, Item::Table(new));
        }
        item = table.get_mut(key)?;
        // A volume written short, as a path, becomes the table that it stands for.
        if parts[0] == "volumes"
            && let Some(short) = item.as_str().map(str::to_owned)
        {
            let mut table = toml_edit::InlineTable::new();
            table.insert("path", short.into());
            *item = Item::Value(Value::InlineTable(table));
        }
    }
    let table = item.as_table_like_mut()?;
    // A table in the place of a value (or the other way round) is replaced whole.
    table.remove(last);
    table.insert(last, Item::Value(value));
    Some(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPED: &str = "[package]\nname = \"web\"\nversion = \"1.0.0\"\n\n[run]\nentrypoint = [\"/bin/x\"]\n\
        [run.env]\nA = \"1\"\n[run.volumes]\ndata = \"/d\"\n[run.resources]\nmem = \"512M\"\n";
    const FLAT: &str = "[package]\nname = \"web\"\nversion = \"1.0.0\"\nentrypoint = [\"/bin/x\"]\n\
        workdir = \"/a\"\n[env]\nA = \"1\"\n[resources]\nmem = \"512M\"\n";

    fn with(text: &str, flags: &[&str]) -> Result<Manifest, String> {
        let flags: Vec<KeyValue> = flags.iter().map(|f| f.parse().unwrap()).collect();
        with_settings(text, "ply.toml", &flags).map_err(|e| e.to_string())
    }

    #[test]
    fn keys_are_set_in_both_shapes() {
        for text in [GROUPED, FLAT] {
            let run = with(
                text,
                &[
                    "workdir=/b",
                    "env.B=two",
                    "resources.mem=1G",
                    "resources.cpu=1.5",
                    "resources.pids=99",
                    "scale.min=2",
                ],
            );
            let run = run.unwrap().run;
            assert_eq!(run.workdir.as_deref(), Some("/b"));
            assert!(run.env.contains(&("B".to_owned(), "two".to_owned())), "{:?}", run.env);
            assert_eq!(run.mem.unwrap().max().0, 1 << 30);
            assert_eq!(run.cpu.unwrap().max().millis, 1500);
            assert_eq!(run.pids, Some(99));
        }
        let run =
            with(GROUPED, &["capabilities=[\"chown\"]", "entrypoint=[\"/bin/y\", \"z\"]", "user=app:1:2"]);
        let run = run.unwrap().run;
        assert_eq!(run.capabilities.to_string(), "chown");
        assert_eq!(run.entrypoint.unwrap().argv(&[]), ["/bin/y", "z"]);
        let run = with(GROUPED, &["volumes.data.scope=shared"]).unwrap().run;
        assert_eq!(run.volumes["data"].scope, ply_manifest::VolumeScope::Shared);
        assert_eq!(run.volumes["data"].path, "/d");
    }

    #[test]
    fn a_wrong_key_or_value_is_refused_with_the_manifests_own_words() {
        let error = with(GROUPED, &["wrkdir=/b"]).unwrap_err();
        assert!(error.starts_with("--set wrkdir=/b: ") && error.contains("wrkdir"), "{error}");
        assert!(with(GROUPED, &["resources.mem=lots"]).is_err());
        assert!(with(GROUPED, &["a..b=1"]).is_err());
        // The reading whose type fits is the one that is explained, whatever its words are.
        let error = with(GROUPED, &["scale.max=0"]).unwrap_err();
        assert!(!error.contains("a string"), "{error}");
        let error = with(GROUPED, &["workdir=, not a path"]).unwrap_err();
        assert!(error.starts_with("--set workdir=, not a path: ") && error.contains("absolute"), "{error}");
        assert!(with(GROUPED, &["package.name=x"]).is_err());
        assert!(with(GROUPED, &["build.base=x"]).is_err());
        assert!(with(FLAT, &["env=1"]).is_err());
    }
}
