//! Filling the holes of an app's environment: manifest env, params, facts, overrides and the caller's
//! variables in; each variable with its value and whether it holds a secret out. Pure; nothing is minted.
//!
//! Whatever a value read decides whether it is a secret, through any number of computed params. What fills a
//! hole is never cut again. Source: the manifest reference, "params" and "Running a keg with params directly".

use crate::params::{BUILT_IN, LIVE};
use crate::template::{Holes, Piece, Template, TemplateError};
use crate::{Param, nearest};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The most bytes of one filled value: what the kernel takes for one string of an environment (execve(2)).
const MOST_BYTES: usize = 128 * 1024;

/// Whether a value is sealed ciphertext (`enc:v1:…`): never cut, never filled, always masked.
pub fn is_sealed(value: &str) -> bool {
    let Some((version, _)) = value.strip_prefix("enc:v").and_then(|rest| rest.split_once(':')) else {
        return false;
    };
    !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit())
}

/// The built-in facts of one run. `addr` and `base_url` follow from `host` and `port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The name that the app runs under.
    pub name: String,
    /// The package's version.
    pub version: String,
    /// The arch of the image.
    pub arch: String,
    /// The image, as messages name it.
    pub image: String,
    /// How many instances.
    pub scale: u32,
    /// The app's address, or the reason why this run has none.
    pub host: Result<String, String>,
    /// The port inside, or the reason why this run has none.
    pub port: Result<u16, String>,
}

impl Facts {
    /// A fact by name: its value, or the reason why this run doesn't have it. `None` for any other name.
    pub fn get(&self, name: &str) -> Option<Result<String, String>> {
        let host = || self.host.clone();
        let addr = || Ok(format!("{}:{}", self.host.clone()?, self.port.clone()?));
        Some(match name {
            "name" => Ok(self.name.clone()),
            "version" => Ok(self.version.clone()),
            "arch" => Ok(self.arch.clone()),
            "image" => Ok(self.image.clone()),
            "scale" => Ok(self.scale.to_string()),
            "host" => host(),
            "port" => self.port.clone().map(|p| p.to_string()),
            "addr" => addr(),
            "base_url" => addr().map(|addr| format!("http://{addr}")),
            _ => return None,
        })
    }
}

/// A filled value.
#[derive(Clone, PartialEq, Eq)]
pub struct Filled {
    /// The value.
    pub value: String,
    /// Whether a secret is in it, so that plans and errors mask it.
    pub secret: bool,
}

impl fmt::Debug for Filled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value: &dyn fmt::Debug = if self.secret { &"…" } else { &self.value };
        f.debug_struct("Filled").field("value", value).field("secret", &self.secret).finish()
    }
}

/// One variable of the environment.
#[derive(Clone, PartialEq, Eq)]
pub struct EnvVar {
    /// The name.
    pub key: String,
    /// The value, filled.
    pub value: String,
    /// Whether it is masked wherever people see it.
    pub secret: bool,
    /// Who gave it.
    pub origin: EnvOrigin,
}

impl fmt::Debug for EnvVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?} ({:?})", self.key, if self.secret { "…" } else { &self.value }, self.origin)
    }
}

/// Who gave a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvOrigin {
    /// The manifest's `[run.env]` (or what overlays it).
    Manifest,
    /// The caller, by an env file or `-e`: taken as it is, never filled. The place in the list that was given.
    Given(usize),
}

/// Why a value can't be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamCause {
    /// A secret is read in a run that has nowhere to keep one.
    #[error("reads a secret param — pass -e {key}=… , or run it from a stack (ply up mints secrets)")]
    Secret {
        /// The variable that reads it.
        key: String,
    },
    /// An external secret that nobody gave.
    #[error("reads {{{0}}}, an external secret that nobody gave")]
    External(String),
    /// A secret that the caller has not minted yet.
    #[error("reads {{{0}}}, a secret that has no value yet")]
    Unminted(String),
    /// A fact that this run doesn't have, and why.
    #[error("reads {{{name}}}, which this run does not have: {why}")]
    Fact {
        /// The fact.
        name: String,
        /// The reason.
        why: String,
    },
    /// A variable of the caller's that is not set.
    #[error("reads ${0}, which is not set")]
    Var(String),
    /// A hole that names nothing.
    #[error("reads {{{name}}}, which names nothing")]
    Unknown {
        /// The hole.
        name: String,
        /// A near name.
        near: Option<String>,
    },
    /// A value that changes after launch.
    #[error("reads {{{0}}}, which changes after launch")]
    Live(String),
    /// Params that read each other.
    #[error("reads {{{0}}}, which reads itself")]
    Circle(String),
    /// A value that can't be cut.
    #[error("{0}")]
    Template(TemplateError),
    /// A value that grew beyond what the kernel takes.
    #[error("grows beyond {MOST_BYTES} bytes")]
    TooLong,
}

/// One fault of an environment: whose, where, why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// A variable of `[run.env]` can't be filled.
    #[error("{app}: [env] {key} {}{cause}", if matches!(cause, ParamCause::Template(_)) { "can't be read: " } else { "" })]
    Env {
        /// The app.
        app: String,
        /// The variable.
        key: String,
        /// Why.
        cause: ParamCause,
    },
    /// A param that someone asks for can't be filled.
    #[error("{app}: param {name} {}{cause}", if matches!(cause, ParamCause::Template(_)) { "can't be read: " } else { "" })]
    Param {
        /// The app.
        app: String,
        /// The param.
        name: String,
        /// Why.
        cause: ParamCause,
    },
    /// `--param` for a name that the app does not declare.
    #[error("{app} has no param {name:?} to set")]
    NoSuchParam {
        /// The app.
        app: String,
        /// The name.
        name: String,
        /// A near name.
        near: Option<String>,
    },
}

impl ParamError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        let near = |near: &Option<String>| near.as_ref().map(|n| format!("did you mean {n:?}?"));
        let (cause, key) = match self {
            Self::NoSuchParam { near: found, .. } => return near(found),
            Self::Env { cause, key, .. } => (cause, Some(key)),
            Self::Param { cause, .. } => (cause, None),
        };
        let pass = |what: String| match key {
            Some(key) => format!("{what}, or pass -e {key}=…"),
            None => what,
        };
        match cause {
            ParamCause::Secret { .. } | ParamCause::Circle(_) | ParamCause::TooLong => None,
            ParamCause::External(name) | ParamCause::Unminted(name) => {
                Some(pass(format!("give it with --param {name}=…")))
            }
            ParamCause::Fact { .. } => key.map(|key| format!("pass -e {key}=…")),
            ParamCause::Var(name) => Some(pass(format!("set {name}, write $$ for a literal $"))),
            ParamCause::Unknown { near: found, .. } => near(found),
            ParamCause::Live(name) => Some(format!("read it while running, from /run/ply/self/{name}")),
            ParamCause::Template(error) => Some(error.hint()),
        }
    }
}

/// An app's params with all that can fill them.
#[derive(Clone, Copy)]
pub struct Params<'a> {
    /// The app, as errors name it.
    pub app: &'a str,
    /// `[run.params]`; none where the table is absent, and then no hole is active.
    pub declared: Option<&'a BTreeMap<String, Param>>,
    /// `--param K=V`: taken as they are, before all else.
    pub overrides: &'a BTreeMap<String, String>,
    /// The values of secrets, where this run keeps some; none for a standalone run.
    pub secrets: Option<&'a BTreeMap<String, String>>,
    /// The built-in facts.
    pub facts: &'a Facts,
}

/// Values that are known so far.
type Known = BTreeMap<String, Result<Filled, ParamCause>>;

impl Params<'_> {
    /// The environment of the app: `[run.env]` filled, then what the caller gave (env files, then `-e`), last
    /// wins and taken as it is. A variable that the caller gave is never filled, so nothing that it would
    /// have read can fail. In the order of the manifest, then of the caller. `vars` answers `$VAR`.
    /// All faults come at once.
    pub fn env(
        &self,
        env: &[(String, String)],
        given: &[(String, String)],
        vars: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<EnvVar>, Vec<ParamError>> {
        let mut errors = self.check_overrides();
        let mut known = Known::new();
        let mut out: Vec<EnvVar> = Vec::new();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let last_given: BTreeMap<&str, usize> =
            given.iter().enumerate().map(|(n, (k, _))| (k.as_str(), n)).collect();
        for (key, text) in env {
            let filled = match last_given.get(key.as_str()) {
                Some(_) => Ok(Filled { value: String::new(), secret: self.reads_secret(text) }),
                None => self.fill_env(key, text, vars, &mut known),
            };
            let filled = match filled {
                Ok(filled) => filled,
                Err(cause) => {
                    let app = self.app.to_owned();
                    errors.push(ParamError::Env { app, key: key.clone(), cause });
                    continue;
                }
            };
            let var = EnvVar {
                key: key.clone(),
                value: filled.value,
                secret: filled.secret,
                origin: EnvOrigin::Manifest,
            };
            match places.get(key.as_str()) {
                Some(place) => out[*place] = var,
                None => {
                    places.insert(key, out.len());
                    out.push(var);
                }
            }
        }
        for (n, (key, value)) in given.iter().enumerate() {
            let origin = EnvOrigin::Given(n);
            let (value, sealed) = (value.clone(), is_sealed(value));
            match places.get(key.as_str()) {
                Some(place) => {
                    let var = &mut out[*place];
                    var.secret |= sealed;
                    (var.value, var.origin) = (value, origin);
                }
                None => {
                    places.insert(key, out.len());
                    out.push(EnvVar { key: key.clone(), value, secret: sealed, origin });
                }
            }
        }
        if errors.is_empty() { Ok(out) } else { Err(errors) }
    }

    /// One param or fact, filled: what a consumer reads as `{app.param}`.
    pub fn value(&self, name: &str) -> Result<Filled, ParamError> {
        let mut known = Known::new();
        self.evaluate(name, &mut known).map_err(|cause| ParamError::Param {
            app: self.app.to_owned(),
            name: name.to_owned(),
            cause,
        })
    }

    fn check_overrides(&self) -> Vec<ParamError> {
        let declared = |name: &str| self.declared.is_some_and(|d| d.contains_key(name));
        let unknown = self.overrides.keys().filter(|name| !declared(name));
        let error = |name: &String| ParamError::NoSuchParam {
            app: self.app.to_owned(),
            name: name.clone(),
            near: self.declared.and_then(|d| nearest(name, d.keys().map(String::as_str))).map(str::to_owned),
        };
        unknown.map(error).collect()
    }

    fn fill_env(
        &self,
        key: &str,
        text: &str,
        vars: &dyn Fn(&str) -> Option<String>,
        known: &mut Known,
    ) -> Result<Filled, ParamCause> {
        if is_sealed(text) {
            return Ok(Filled { value: text.to_owned(), secret: true });
        }
        if self.declared.is_none() {
            return Ok(Filled { value: text.to_owned(), secret: false });
        }
        let template = Template::parse(text, Holes::BOTH).map_err(ParamCause::Template)?;
        let mut filled = Filled { value: String::new(), secret: false };
        // The caller's variables first: they are the outer of the two languages.
        let mut from_vars =
            template.vars().map(|name| vars(name).ok_or_else(|| ParamCause::Var(name.to_owned())));
        let answers: Vec<String> = from_vars.by_ref().collect::<Result<_, _>>()?;
        let mut answers = answers.into_iter();
        for piece in &template.pieces {
            match piece {
                Piece::Text(text) => filled.value.push_str(text),
                Piece::Var(_) => filled.value.push_str(&answers.next().unwrap_or_default()),
                Piece::Hole(name) => {
                    let part = self.evaluate(name, known).map_err(|cause| match cause {
                        ParamCause::Secret { .. } => ParamCause::Secret { key: key.to_owned() },
                        other => other,
                    })?;
                    filled.value.push_str(&part.value);
                    filled.secret |= part.secret;
                }
            }
            if filled.value.len() > MOST_BYTES {
                return Err(ParamCause::TooLong);
            }
        }
        Ok(filled)
    }

    /// Whether a text would read a secret, were it filled.
    fn reads_secret(&self, text: &str) -> bool {
        let Some(declared) = self.declared else { return is_sealed(text) };
        let holes = |text: &str, kind| -> Vec<String> {
            Template::parse(text, kind).map(|t| t.holes().map(str::to_owned).collect()).unwrap_or_default()
        };
        let mut seen = BTreeSet::new();
        let mut next = holes(text, Holes::BOTH);
        while let Some(name) = next.pop() {
            match declared.get(&name) {
                Some(Param::Secret { .. }) => return true,
                Some(Param::Value(text))
                    if seen.insert(name.clone()) && !self.overrides.contains_key(&name) =>
                {
                    next.extend(holes(text, Holes::BRACES));
                }
                _ => {}
            }
        }
        is_sealed(text)
    }

    /// One name, filled; each name once. A stack of its own, since a chain may be as long as a file.
    fn evaluate(&self, name: &str, known: &mut Known) -> Result<Filled, ParamCause> {
        let mut open: Vec<(String, Template, Vec<String>)> = Vec::new();
        let mut inside: BTreeSet<String> = BTreeSet::new();
        let mut wanted = name.to_owned();
        loop {
            if !known.contains_key(&wanted) {
                if inside.contains(&wanted) {
                    known.insert(wanted.clone(), Err(ParamCause::Circle(wanted.clone())));
                } else {
                    match self.leaf(&wanted) {
                        Ok(template) => {
                            let holes = template.holes().map(str::to_owned).collect();
                            inside.insert(wanted.clone());
                            open.push((wanted.clone(), template, holes));
                        }
                        Err(answer) => {
                            known.insert(wanted.clone(), answer);
                        }
                    }
                }
            }
            // Go on with the innermost open value: its next unknown hole, or its end.
            loop {
                let Some((name, template, holes)) = open.last_mut() else {
                    return known.get(&wanted).cloned().unwrap_or(Err(ParamCause::Circle(wanted)));
                };
                while holes.last().is_some_and(|hole| known.contains_key(hole)) {
                    holes.pop();
                }
                if let Some(hole) = holes.last() {
                    wanted = hole.clone();
                    break;
                }
                let answer = join(template, known);
                let name = std::mem::take(name);
                open.pop();
                inside.remove(&name);
                // A circle that was found below stays what it is.
                known.entry(name.clone()).or_insert(answer);
                wanted = name;
            }
        }
    }

    /// The template of a computed param, or the answer where there is nothing to compute.
    fn leaf(&self, name: &str) -> Result<Template, Result<Filled, ParamCause>> {
        let plain = |value: &str, secret| Err(Ok(Filled { value: value.to_owned(), secret }));
        let param = self.declared.and_then(|d| d.get(name));
        if let (Some(param), Some(value)) = (param, self.overrides.get(name)) {
            return plain(value, matches!(param, Param::Secret { .. }));
        }
        match param {
            Some(Param::Value(text)) => {
                Template::parse(text, Holes::BRACES).map_err(|error| Err(ParamCause::Template(error)))
            }
            Some(Param::Secret { external }) => match self.secrets.map(|s| s.get(name)) {
                Some(Some(value)) => plain(value, true),
                _ if *external => Err(Err(ParamCause::External(name.to_owned()))),
                Some(None) => Err(Err(ParamCause::Unminted(name.to_owned()))),
                None => Err(Err(ParamCause::Secret { key: name.to_owned() })),
            },
            None => Err(match self.facts.get(name) {
                Some(Ok(value)) => Ok(Filled { value, secret: false }),
                Some(Err(why)) => Err(ParamCause::Fact { name: name.to_owned(), why }),
                None if LIVE.contains(&name) => Err(ParamCause::Live(name.to_owned())),
                None => {
                    let declared = self.declared.into_iter().flatten().map(|(k, _)| k.as_str());
                    let near = nearest(name, declared.chain(BUILT_IN)).map(str::to_owned);
                    Err(ParamCause::Unknown { name: name.to_owned(), near })
                }
            }),
        }
    }
}

/// A template whose holes are all known.
fn join(template: &Template, known: &Known) -> Result<Filled, ParamCause> {
    let mut filled = Filled { value: String::new(), secret: false };
    for piece in &template.pieces {
        match piece {
            Piece::Text(text) => filled.value.push_str(text),
            Piece::Var(name) => return Err(ParamCause::Var(name.clone())),
            Piece::Hole(name) => {
                let part = match known.get(name) {
                    Some(answer) => answer.clone()?,
                    None => return Err(ParamCause::Circle(name.clone())),
                };
                filled.value.push_str(&part.value);
                filled.secret |= part.secret;
            }
        }
        if filled.value.len() > MOST_BYTES {
            return Err(ParamCause::TooLong);
        }
    }
    Ok(filled)
}
