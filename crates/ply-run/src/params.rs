//! The params of a standalone run: declared defaults, `--param`, and the facts of the run fill the holes of
//! `[run.env]`. Pure. Source: the manifest reference, "Running a keg with params directly".

use crate::RunError;
use crate::env::Filled;
use crate::options::KeyValue;
use ply_manifest::{Holes, Param, Piece, Template, nearest};
use std::collections::BTreeMap;

/// The facts of a run; one that this run doesn't have is none, and an error only where it is read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts(pub(crate) BTreeMap<&'static str, String>);

/// Why a fact can be missing, for the error that names the gap.
fn gap(fact: &str) -> &'static str {
    match fact {
        "port" | "addr" | "base_url" => "this run publishes no port, and the manifest declares not exactly one",
        _ => "this run doesn't have it",
    }
}

/// What fills the holes.
pub(crate) struct Namespace<'a> {
    /// The app, for errors.
    pub(crate) app: &'a str,
    /// `[run.params]`; without it nothing is a hole.
    pub(crate) declared: Option<&'a BTreeMap<String, Param>>,
    /// `--param`.
    pub(crate) given: BTreeMap<String, String>,
    /// The facts.
    pub(crate) facts: Facts,
    /// The caller's environment and the env files.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
}

/// Checks `--param` against what is declared.
pub(crate) fn given(
    declared: Option<&BTreeMap<String, Param>>,
    flags: &[KeyValue],
) -> Result<BTreeMap<String, String>, RunError> {
    let mut values = BTreeMap::new();
    for flag in flags {
        let known = declared.is_some_and(|d| d.contains_key(&flag.key));
        if !known {
            let names = || declared.into_iter().flatten().map(|(name, _)| name.as_str());
            let hint = match nearest(&flag.key, names()) {
                Some(near) => format!("did you mean {near:?}?"),
                None if declared.is_none_or(BTreeMap::is_empty) => "the manifest declares none".to_owned(),
                None => format!("declared are {}", names().collect::<Vec<_>>().join(", ")),
            };
            return Err(RunError::usage(format!("--param {}: the app has no param of that name", flag.key), hint));
        }
        values.insert(flag.key.clone(), flag.value.clone());
    }
    Ok(values)
}

impl Namespace<'_> {
    /// The value of `[run.env]` `key` with its holes filled.
    pub(crate) fn fill(&self, key: &str, text: &str) -> Result<Filled, RunError> {
        if self.declared.is_none() || ply_manifest::is_sealed(text) {
            return Ok(Filled { value: text.to_owned(), secret: false });
        }
        self.template(key, text, Holes::BOTH, &mut Vec::new())
    }

    fn template(
        &self,
        key: &str,
        text: &str,
        holes: Holes,
        path: &mut Vec<String>,
    ) -> Result<Filled, RunError> {
        let app = self.app;
        let template = Template::parse(text, holes)
            .map_err(|e| RunError::refused(format!("{app}: [env] {key}: {e}"), e.hint()))?;
        let mut out = Filled { value: String::new(), secret: false };
        for piece in template.pieces {
            match piece {
                Piece::Text(text) => out.value.push_str(&text),
                Piece::Var(name) => {
                    let value = (self.variable)(&name).ok_or_else(|| {
                        RunError::refused(
                            format!("{app}: [env] {key} reads ${name}, which is not set"),
                            format!("export {name}, put it into an --env-file, or pass -e {key}=…"),
                        )
                    })?;
                    out.value.push_str(&value);
                }
                Piece::Hole(name) => {
                    let filled = self.hole(key, &name, path)?;
                    out.value.push_str(&filled.value);
                    out.secret |= filled.secret;
                }
            }
        }
        Ok(out)
    }

    fn hole(&self, key: &str, name: &str, path: &mut Vec<String>) -> Result<Filled, RunError> {
        let app = self.app;
        let param = self.declared.and_then(|d| d.get(name));
        if let Some(value) = self.given.get(name) {
            let secret = matches!(param, Some(Param::Secret { .. }));
            return Ok(Filled { value: value.clone(), secret });
        }
        match param {
            Some(Param::Secret { .. }) => Err(RunError::refused(
                format!("{app}: [env] {key} reads a secret param"),
                format!("pass -e {key}=…, or run it from a stack: ply up mints secrets"),
            )),
            // A parsed manifest has no circles; this holds for any other value, too.
            Some(Param::Value(_)) if path.iter().any(|p| p == name) => {
                Err(RunError::plain(format!("{app}: params read each other in a circle: {}", path.join(" → "))))
            }
            Some(Param::Value(text)) => {
                path.push(name.to_owned());
                let filled = self.template(key, text, Holes::BRACES, path)?;
                path.pop();
                Ok(filled)
            }
            None => match self.facts.0.get(name) {
                Some(value) => Ok(Filled { value: value.clone(), secret: false }),
                None => Err(RunError::refused(
                    format!("{app}: [env] {key} reads {{{name}}}: {}", gap(name)),
                    format!("pass -e {key}=…, or publish a port with --publish"),
                )),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(declared: &[(&str, Param)], given: &[(&str, &str)], text: &str) -> Result<Filled, String> {
        let declared = declared.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
        let namespace = Namespace {
            app: "postgres",
            declared: Some(&declared),
            given: given.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            facts: Facts(BTreeMap::from([("host", "postgres.ply".to_owned())])),
            variable: &|name| (name == "USER").then(|| "{user}".to_owned()),
        };
        namespace.fill("K", text).map_err(|e| e.to_string())
    }

    fn value(text: &str) -> Param {
        Param::Value(text.to_owned())
    }

    #[test]
    fn holes_are_filled_from_params_facts_and_variables_once() {
        let declared = [("user", value("pg")), ("url", value("x://{user}@{host}")), ("dead", value("{port}"))];
        let text = |t: &str| fill(&declared, &[], t).map(|f| f.value);
        assert_eq!(text("{url}").unwrap(), "x://pg@postgres.ply");
        assert_eq!(text("a {{b}} $$ {user}").unwrap(), "a {b} $ pg");
        assert_eq!(text("$USER").unwrap(), "{user}", "what a variable brings is never cut again");
        assert_eq!(fill(&declared, &[("user", "{host}")], "{user}").unwrap().value, "{host}");
        assert_eq!(text("$NOPE").unwrap_err(), "postgres: [env] K reads $NOPE, which is not set");
        assert_eq!(
            text("{dead}").unwrap_err(),
            "postgres: [env] K reads {port}: this run publishes no port, and the manifest declares not exactly one"
        );
    }

    #[test]
    fn a_secret_is_never_minted_here_and_is_marked_where_it_was_given() {
        let declared = [("password", Param::Secret { external: false }), ("url", value("x://:{password}@h"))];
        assert_eq!(fill(&declared, &[], "{url}").unwrap_err(), "postgres: [env] K reads a secret param");
        let filled = fill(&declared, &[("password", "pw")], "{url}").unwrap();
        assert_eq!(filled, Filled { value: "x://:pw@h".into(), secret: true });
        let circle = [("a", value("{b}")), ("b", value("{a}"))];
        assert_eq!(fill(&circle, &[], "{a}").unwrap_err(), "postgres: params read each other in a circle: a → b");
    }

    #[test]
    fn an_unknown_param_is_an_error_with_a_near_name() {
        let declared = BTreeMap::from([("password".to_owned(), Param::Secret { external: false })]);
        let error = given(Some(&declared), &["pasword=x".parse().unwrap()]).unwrap_err();
        assert_eq!(error.to_string(), "--param pasword: the app has no param of that name");
        assert_eq!(error.hint().as_deref(), Some("did you mean \"password\"?"));
    }
}
