//! The bodies of the fuzz targets, shared by `fuzz/` (libFuzzer) and by this crate's own tests, which run
//! them over the corpus and over seeded mutations of it. A body panics where a promise is broken.

use crate::*;
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::str::FromStr;

/// A target: any bytes, and a panic where a promise is broken.
pub type Target = fn(&[u8]);

/// Every target by the name of its file in `fuzz/fuzz_targets` and of its folder in `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 12] = [
    ("manifest", manifest),
    ("composition", composition),
    ("overlay", overlay),
    ("lock", lock),
    ("config", config),
    ("policy", policy),
    ("env_file", env_file),
    ("catalog", catalog),
    ("index", index),
    ("toml_json", toml_json),
    ("params", params),
    ("nouns", nouns),
];

/// `ply.toml`: a value that is taken keeps the rules, and one that is refused says where.
pub fn manifest(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read = Manifest::parse(text, "ply.toml");
    if let Err(faults) = &read {
        well_told(text, faults);
    }
    if let Ok(Document::Package(document)) = Document::parse(text, "ply.toml") {
        assert_eq!(read.as_ref(), Ok(&*document));
    }
    let Ok(manifest) = read else { return };
    assert!(toml_to_json(text, "ply.toml").is_ok());
    assert!(manifest.run.volumes.values().all(|v| v.path.starts_with('/') && v.path != "/"));
    assert!(manifest.run.entrypoint.iter().all(|e| !e.argv(&[]).is_empty()));
    let aliases = manifest.build.dependencies.values().filter_map(|d| d.source.as_ref());
    for alias in aliases.chain(manifest.build.base.iter().filter_map(|(_, d)| d.source.as_ref())) {
        assert!(manifest.build.sources.contains_key(alias));
    }
    fill(&manifest);
}

/// Fills the env of a manifest: what was accepted can lack only what the run lacks.
fn fill(manifest: &Manifest) {
    let facts = Facts {
        name: "a".into(),
        version: "1.0.0".into(),
        arch: "x64".into(),
        image: "a".into(),
        scale: 1,
        host: Ok("a.ply".into()),
        port: Ok(80),
    };
    let declared = manifest.run.params.as_ref();
    let secret = "S3CRET-S3CRET";
    let secrets: BTreeMap<String, String> =
        declared.into_iter().flatten().map(|(name, _)| (name.clone(), secret.to_owned())).collect();
    let none = BTreeMap::new();
    let params = Params { app: "a", declared, overrides: &none, secrets: Some(&secrets), facts: &facts };
    match params.env(&manifest.run.env, &[], &|_| Some("v".to_owned())) {
        Ok(env) => {
            for var in env {
                assert!(var.secret || !var.value.contains(secret) || !declares_secret(declared));
            }
        }
        Err(errors) => {
            let long = |e: &ParamError| matches!(e, ParamError::Env { cause: ParamCause::TooLong, .. });
            assert!(errors.iter().all(long), "{errors:?}");
        }
    }
}

fn declares_secret(declared: Option<&BTreeMap<String, Param>>) -> bool {
    declared.into_iter().flatten().any(|(_, p)| matches!(p, Param::Secret { .. }))
}

/// A composition.
pub fn composition(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Composition::parse(text, "ply.toml") {
        Err(faults) => well_told(text, &faults),
        Ok(stack) => {
            let names: std::collections::BTreeSet<&RunName> = stack.members.iter().map(|m| &m.name).collect();
            assert_eq!(names.len(), stack.members.len());
            assert_eq!(Document::parse(text, "ply.toml"), Ok(Document::Composition(stack.clone())));
        }
    }
}

/// `ply.dev.toml`.
pub fn overlay(bytes: &[u8]) {
    told(bytes, DevOverlay::parse);
}

/// `ply.lock`: what is taken prints as what reads back.
pub fn lock(bytes: &[u8]) {
    if let Some(lock) = told(bytes, Lock::parse) {
        assert_eq!(Lock::parse(&lock.to_string(), "ply.lock"), Ok(lock));
    }
}

/// `config.toml`.
pub fn config(bytes: &[u8]) {
    told(bytes, Config::parse);
}

/// A policy.
pub fn policy(bytes: &[u8]) {
    told(bytes, Policy::parse);
}

/// An env file: names are names, values have no NUL, each name once.
pub fn env_file(bytes: &[u8]) {
    let Some(env) = told(bytes, EnvFile::parse) else { return };
    let names: std::collections::BTreeSet<&str> = env.iter().map(|(k, _)| k.as_str()).collect();
    assert_eq!(names.len(), env.len());
    assert!(env.iter().all(|(k, v)| variable_name(k).is_ok() && !v.contains('\0')));
}

/// `state.json`: what is taken prints as what reads back, with nothing left out.
pub fn catalog(bytes: &[u8]) {
    let Some(mut catalog) = told(bytes, Catalog::parse) else { return };
    catalog.skipped.clear();
    assert_eq!(Catalog::parse(&catalog.to_string(), "state.json"), Ok(catalog));
}

/// `index.json`.
pub fn index(bytes: &[u8]) {
    let Some(index) = told(bytes, Index::parse) else { return };
    assert!(index.images.is_sorted());
    assert_eq!(Index::parse(&index.to_string(), "index.json"), Ok(index));
}

/// Any TOML as JSON.
pub fn toml_json(bytes: &[u8]) {
    told(bytes, toml_to_json);
}

/// Templates: joined as they were cut, a text with its braces doubled comes back.
pub fn params(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for holes in [Holes::BOTH, Holes::BRACES, Holes::VARS] {
        if let Err(error) = Template::parse(text, holes) {
            assert!(error.to_string().len() < 500 && !error.hint().is_empty());
        }
    }
    let escaped = text.replace('{', "{{").replace('}', "}}").replace('$', "$$");
    let pieces = Template::parse(&escaped, Holes::BOTH).map(|t| t.pieces);
    let expected = if text.is_empty() { Vec::new() } else { vec![Piece::Text(text.to_owned())] };
    assert_eq!(pieces, Ok(expected));
}

/// Every noun: what is taken prints as what parses back.
pub fn nouns(bytes: &[u8]) {
    fn holds<T: FromStr<Err = NounError> + Display + PartialEq + Debug>(text: &str) {
        match text.parse::<T>() {
            Ok(value) => assert_eq!(value.to_string().parse::<T>(), Ok(value)),
            Err(error) => assert!(error.message.len() < 500),
        }
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    holds::<PackageName>(text);
    holds::<Owner>(text);
    holds::<RunName>(text);
    holds::<Version>(text);
    holds::<Range>(text);
    holds::<ImageName>(text);
    holds::<Arch>(text);
    holds::<Digest>(text);
    holds::<Bytes>(text);
    holds::<Span>(text);
    holds::<Cores>(text);
    holds::<Rate>(text);
    holds::<Capability>(text);
    holds::<Capabilities>(text);
    holds::<Signal>(text);
    holds::<UserSpec>(text);
    holds::<Publish>(text);
    holds::<EgressEntry>(text);
    holds::<SourceSpec>(text);
    holds::<Reference>(text);
    holds::<crate::Target>(text);
    holds::<Condition>(text);
    if let Some(name) = PackageName::fold(text) {
        holds::<PackageName>(name.as_str());
        holds::<RunName>(RunName::from_package(&name).as_str());
    }
}

fn told<T>(bytes: &[u8], read: impl Fn(&str, &str) -> Result<T, Diagnostics>) -> Option<T> {
    let text = std::str::from_utf8(bytes).ok()?;
    match read(text, "a file") {
        Ok(value) => Some(value),
        Err(faults) => {
            well_told(text, &faults);
            None
        }
    }
}

/// A refusal has a fault; each has a sentence of bounded length, and a place that is in the file.
fn well_told(text: &str, faults: &Diagnostics) {
    assert!(!faults.0.is_empty());
    let lines: Vec<&str> = text.split('\n').collect();
    for fault in &faults.0 {
        assert!(!fault.message.is_empty() && fault.message.len() < 500, "{fault}");
        assert!(fault.hint.as_ref().is_none_or(|h| !h.is_empty() && h.len() < 500), "{fault}");
        if let Some(Place { line, column }) = fault.place {
            assert!((1..=lines.len()).contains(&line), "{fault}");
            assert!((1..=lines[line - 1].chars().count() + 1).contains(&column), "{fault}");
        }
    }
}
