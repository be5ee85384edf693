//! The environment of an app: where each variable comes from, and which of two wins. Pure.
//!
//! The order, last wins: base defaults, the layers' contributions, the manifest, the dev overlay, env files,
//! `-e`. Nothing else of the caller's environment gets in. Source: "Environment" of the run's spec.

use crate::RunError;
use crate::options::EnvFlag;
use ply_manifest::{EnvOrigin, LayerSection, Params};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What is searched for programs when nothing says more.
pub(crate) const BASE_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where a variable's value was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// ply's own default.
    Default,
    /// A package's `[layer]`: `name-version`, or several for a joined path.
    Layer(String),
    /// `[run.env]` of the manifest.
    Manifest,
    /// `ply.dev.toml`.
    DevOverlay,
    /// An env file, by its path as written.
    EnvFile(String),
    /// `-e`.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Layer(name) => write!(f, "layer {name}"),
            Self::Manifest => f.write_str("manifest"),
            Self::DevOverlay => f.write_str("ply.dev.toml"),
            Self::EnvFile(path) => write!(f, "env file {path}"),
            Self::Flag => f.write_str("-e"),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// One variable, with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedVar {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
    /// Who said it.
    pub origin: Origin,
    /// Whether it is never shown.
    pub secret: bool,
}

impl PlannedVar {
    /// The value as it may be shown: masked where it is a secret, a login's password masked in a URL.
    pub fn shown(&self) -> String {
        if self.secret { MASK.to_owned() } else { mask_login(&self.value) }
    }
}

/// What stands for a value that is never shown.
pub const MASK: &str = "••••••";

/// One layer's contribution, the app's own first and the base's last.
#[derive(Debug, Clone)]
pub struct Contribution {
    /// `name-version`.
    pub layer: String,
    /// What its manifest says in `[layer]`.
    pub section: LayerSection,
}

/// Everything that an environment is made of.
pub struct EnvParts<'a> {
    /// The home folder of the run user.
    pub home: &'a str,
    /// The terminal's kind.
    pub term: &'a str,
    /// The app's own folders for programs, in front of every layer's.
    pub app_bins: &'a [String],
    /// The layers in order, the app first.
    pub layers: &'a [Contribution],
    /// `[run.env]`, in order.
    pub manifest: &'a [(String, String)],
    /// The dev overlay's; merged over the manifest's, holes active alike.
    pub overlay: &'a [(String, String)],
    /// Env files: the path as written, and the pairs.
    pub files: &'a [(String, Vec<(String, String)>)],
    /// `-e`.
    pub flags: &'a [EnvFlag],
    /// What fills the holes of the manifest's values.
    pub params: Params<'a>,
}

/// The environment, sorted by name. Holes of what nothing overrides are filled; `caller` is the caller's
/// environment, for `-e KEY` and for `$KEY` in the manifest, where env files come second.
pub fn compose(
    parts: &EnvParts<'_>,
    caller: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<PlannedVar>, RunError> {
    let mut vars: BTreeMap<String, (String, Origin, bool)> = BTreeMap::new();
    let mut set = |name: &str, value: String, origin: Origin, secret: bool| {
        vars.insert(name.to_owned(), (value, origin, secret));
    };

    set("HOME", parts.home.to_owned(), Origin::Default, false);
    set("TERM", parts.term.to_owned(), Origin::Default, false);
    set("LANG", "C.UTF-8".to_owned(), Origin::Default, false);
    let (path, origin) = search_path(parts);
    set("PATH", path, origin, false);

    let (libraries, from) = joined(parts.layers, |section| &section.ld_library_path);
    if !libraries.is_empty() {
        set("LD_LIBRARY_PATH", libraries.join(":"), Origin::Layer(from.join(", ")), false);
    }
    for layer in parts.layers.iter().rev() {
        for (name, value) in &layer.section.env {
            set(name, value.clone(), Origin::Layer(layer.layer.clone()), false);
        }
    }

    let mut manifest: Vec<(String, String)> = parts.manifest.to_vec();
    for (name, value) in parts.overlay {
        match manifest.iter_mut().find(|(known, _)| known == name) {
            Some(known) => known.1.clone_from(value),
            None => manifest.push((name.clone(), value.clone())),
        }
    }
    let (given, origins) = given(parts, caller)?;
    let variable = |key: &str| {
        let pairs = || parts.files.iter().rev().flat_map(|(_, pairs)| pairs.iter().rev());
        caller(key).or_else(|| pairs().find(|(k, _)| k == key).map(|(_, v)| v.clone()))
    };
    let filled = parts.params.env(&manifest, &given, &variable).map_err(|errors| {
        let hint = errors.iter().find_map(|e| e.hint());
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        RunError::Refused { message: lines.join("\n"), hint }
    })?;
    for var in filled {
        let origin = match var.origin {
            EnvOrigin::Given(n) => origins[n].clone(),
            EnvOrigin::Manifest if parts.overlay.iter().any(|(k, _)| *k == var.key) => Origin::DevOverlay,
            EnvOrigin::Manifest => Origin::Manifest,
        };
        set(&var.key, var.value, origin, var.secret);
    }
    for (name, (value, _, _)) in &vars {
        if ply_manifest::is_sealed(value) {
            return Err(RunError::refused(
                format!("{name} holds a sealed value (enc:v1:…), and this version of ply opens none yet"),
                format!("give the value itself: -e {name}=…"),
            ));
        }
    }
    Ok(vars
        .into_iter()
        .map(|(name, (value, origin, secret))| {
            let secret = secret || looks_secret(&name);
            PlannedVar { name, value, origin, secret }
        })
        .collect())
}

/// What the caller gives, in order, and where each was said.
#[expect(clippy::type_complexity, reason = "two lists side by side, used once")]
fn given(
    parts: &EnvParts<'_>,
    caller: &dyn Fn(&str) -> Option<String>,
) -> Result<(Vec<(String, String)>, Vec<Origin>), RunError> {
    let (mut given, mut origins) = (Vec::new(), Vec::new());
    for (file, pairs) in parts.files {
        given.extend(pairs.iter().cloned());
        origins.resize(given.len(), Origin::EnvFile(file.clone()));
    }
    for flag in parts.flags {
        given.push(match flag {
            EnvFlag::Set(name, value) => (name.clone(), value.clone()),
            EnvFlag::FromCaller(name) => {
                let value = caller(name).ok_or_else(|| {
                    RunError::usage(
                        format!("-e {name}: your environment has no variable of that name"),
                        format!("write -e {name}=VALUE, or export {name} first"),
                    )
                })?;
                (name.clone(), value)
            }
        });
        origins.push(Origin::Flag);
    }
    Ok((given, origins))
}

/// `PATH`: the app's own folders, the layers' in order, the usual ones; each once, where it stands first.
fn search_path(parts: &EnvParts<'_>) -> (String, Origin) {
    let (from_layers, names) = joined(parts.layers, |section| &section.path);
    let usual = BASE_PATH.split(':').map(str::to_owned);
    let mut path: Vec<String> = Vec::new();
    for folder in parts.app_bins.iter().cloned().chain(from_layers).chain(usual) {
        if !path.contains(&folder) {
            path.push(folder);
        }
    }
    let origin = if names.is_empty() { Origin::Default } else { Origin::Layer(names.join(", ")) };
    (path.join(":"), origin)
}

/// The folders that layers give, dependents first, each once; and who gave any.
fn joined(layers: &[Contribution], of: impl Fn(&LayerSection) -> &Vec<String>) -> (Vec<String>, Vec<String>) {
    let (mut folders, mut names) = (Vec::new(), Vec::new());
    for layer in layers {
        let given = of(&layer.section);
        if !given.is_empty() {
            names.push(layer.layer.clone());
        }
        for folder in given {
            if !folders.contains(folder) {
                folders.push(folder.clone());
            }
        }
    }
    (folders, names)
}

/// Whether a variable's name says that its value is not for showing.
fn looks_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    ["PASSWORD", "PASSWD", "SECRET", "TOKEN", "API_KEY", "APIKEY", "PRIVATE_KEY", "ACCESS_KEY", "CREDENTIAL"]
        .iter()
        .any(|word| upper.contains(word))
}

/// `scheme://user:password@…` with the password masked.
fn mask_login(value: &str) -> String {
    let Some((scheme, rest)) = value.split_once("://") else { return value.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@').and_then(|at| rest[..at].find(':').map(|colon| (colon, at))) {
        Some((colon, at)) => format!("{scheme}://{}:{MASK}{}", &rest[..colon], &rest[at..]),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ply_manifest::Facts {
        let none = || "this run has none".to_owned();
        ply_manifest::Facts {
            name: "app".into(),
            version: "1.0.0".into(),
            arch: "x64".into(),
            image: "app-1.0.0-linux-x64.img".into(),
            scale: 1,
            host: Err(none()),
            port: Err(none()),
        }
    }

    fn layer(name: &str, path: &[&str], ld: &[&str], env: &[(&str, &str)]) -> Contribution {
        let own = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
        let section = LayerSection {
            path: own(path),
            ld_library_path: own(ld),
            env: env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            abi: None,
        };
        Contribution { layer: name.to_owned(), section }
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    /// Composes with the parts that a test changes.
    fn with(
        change: &dyn for<'a> Fn(EnvParts<'a>) -> Result<Vec<PlannedVar>, RunError>,
    ) -> Result<Vec<PlannedVar>, RunError> {
        let (facts, overrides) = (facts(), BTreeMap::new());
        change(EnvParts {
            home: "/root",
            term: "xterm",
            app_bins: &[],
            layers: &[],
            manifest: &[],
            overlay: &[],
            files: &[],
            flags: &[],
            params: Params {
                app: "app",
                declared: None,
                overrides: &overrides,
                secrets: None,
                facts: &facts,
            },
        })
    }

    fn find(vars: &[PlannedVar], name: &str) -> (String, String) {
        let var = vars.iter().find(|v| v.name == name).unwrap();
        (var.value.clone(), var.origin.to_string())
    }

    #[test]
    fn each_step_wins_over_the_one_before() {
        // The same variable, said by ever more of the six: the last of them wins.
        let base = layer("debian-13.0.0", &[], &[], &[("X", "base"), ("LANG", "de")]);
        let node = layer("node-22.0.0", &[], &[], &[("X", "node")]);
        let layers = [node, base];
        let manifest = pairs(&[("X", "manifest")]);
        let overlay = pairs(&[("X", "overlay")]);
        let files =
            vec![("a.env".to_owned(), pairs(&[("X", "a")])), ("b.env".to_owned(), pairs(&[("X", "b")]))];
        let flags = [EnvFlag::Set("X".into(), "first".into()), EnvFlag::FromCaller("X".into())];
        let caller = |name: &str| (name == "X").then(|| "caller".to_owned());
        let expected = [
            ("node", "layer node-22.0.0"),
            ("manifest", "manifest"),
            ("overlay", "ply.dev.toml"),
            ("b", "env file b.env"),
            ("first", "-e"),
            ("caller", "-e"),
        ];
        for (step, (value, origin)) in expected.iter().enumerate() {
            let vars = with(&|p| {
                let p = EnvParts {
                    layers: &layers,
                    manifest: if step >= 1 { &manifest } else { &[] },
                    overlay: if step >= 2 { &overlay } else { &[] },
                    files: if step >= 3 { &files } else { &[] },
                    flags: if step >= 4 { &flags[..step - 3] } else { &[] },
                    ..p
                };
                compose(&p, &caller)
            });
            assert_eq!(find(&vars.unwrap(), "X"), (value.to_string(), origin.to_string()), "step {step}");
        }
        let vars = with(&|p| compose(&EnvParts { layers: &layers, ..p }, &caller)).unwrap();
        assert_eq!(find(&vars, "LANG").0, "de");
        assert!(!vars.iter().any(|v| v.value == "caller"), "nothing leaks in from the caller");
    }

    #[test]
    fn paths_are_joined_dependents_first_and_each_once() {
        let layers = [
            layer("app-1.0.0", &["/opt/app/tools"], &["/opt/app/lib"], &[]),
            layer("node-22.0.0", &["/opt/node-22.0.0/bin", "/usr/bin"], &["/opt/node-22.0.0/lib"], &[]),
            layer("debian-13.0.0", &["/usr/bin"], &["/opt/app/lib"], &[]),
        ];
        let bins = ["/opt/app/bin".to_owned()];
        let vars =
            with(&|p| compose(&EnvParts { app_bins: &bins, layers: &layers, ..p }, &|_| None)).unwrap();
        let path = "/opt/app/bin:/opt/app/tools:/opt/node-22.0.0/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin";
        assert_eq!(find(&vars, "PATH").0, path);
        assert_eq!(find(&vars, "LD_LIBRARY_PATH").0, "/opt/app/lib:/opt/node-22.0.0/lib");
    }

    #[test]
    fn an_overridden_hole_is_never_filled_and_stays_a_secret() {
        let declared =
            BTreeMap::from([("password".to_owned(), ply_manifest::Param::Secret { external: false })]);
        let manifest = pairs(&[("DB_URL", "x://{password}"), ("USER_OF", "$WHO")]);
        let flags = [EnvFlag::Set("DB_URL".into(), "{dev}".into())];
        let files = vec![("a.env".to_owned(), pairs(&[("WHO", "file")]))];
        let run = |flags: &[EnvFlag], caller: &dyn Fn(&str) -> Option<String>| {
            with(&|p| {
                let params = Params { declared: Some(&declared), ..p.params };
                compose(&EnvParts { params, manifest: &manifest, files: &files, flags, ..p }, caller)
            })
        };
        let error = run(&[], &|_| None).unwrap_err().to_string();
        assert!(error.starts_with("app: [env] DB_URL reads a secret param"), "{error}");
        let vars = run(&flags, &|_| None).unwrap();
        assert_eq!(find(&vars, "DB_URL").0, "{dev}");
        assert_eq!(vars.iter().find(|v| v.name == "DB_URL").unwrap().shown(), MASK);
        assert_eq!(find(&vars, "USER_OF").0, "file");
        let vars = run(&flags, &|name| (name == "WHO").then(|| "caller".to_owned())).unwrap();
        assert_eq!(find(&vars, "USER_OF").0, "caller");
    }

    #[test]
    fn what_the_caller_lacks_and_what_is_sealed_stops_the_launch() {
        let flags = [EnvFlag::FromCaller("NOPE".into())];
        let error = with(&|p| compose(&EnvParts { flags: &flags, ..p }, &|_| None)).unwrap_err();
        assert_eq!(error.to_string(), "-e NOPE: your environment has no variable of that name");
        let manifest = pairs(&[("KEY", "enc:v1:abc")]);
        let error =
            with(&|p| compose(&EnvParts { manifest: &manifest, ..p }, &|_| None)).unwrap_err().to_string();
        assert!(error.starts_with("KEY holds a sealed value") && !error.contains("abc"), "{error}");
    }

    #[test]
    fn secrets_are_masked() {
        let manifest = pairs(&[
            ("DB_PASSWORD", "hunter2"),
            ("DB", "postgres://u:hunter2@db:5432/x"),
            ("PLAIN", "http://a:1/b@c"),
        ]);
        let vars = with(&|p| compose(&EnvParts { manifest: &manifest, ..p }, &|_| None)).unwrap();
        let shown = |name: &str| vars.iter().find(|v| v.name == name).unwrap().shown();
        assert_eq!(shown("DB_PASSWORD"), MASK);
        assert_eq!(shown("DB"), format!("postgres://u:{MASK}@db:5432/x"));
        assert_eq!(shown("PLAIN"), "http://a:1/b@c");
    }
}
