//! Params as a manifest declares them: reading `[run.params]`, and every fault that the manifest alone shows.
//! Filling them is `resolve.rs`. Source: the manifest reference, "params".

use crate::Param;
use crate::template::{Holes, Template, param_name};
use crate::walk::{Entry, Faults, Section};
use std::collections::BTreeMap;
use std::ops::Range;

/// The facts that every package has without declaring them.
pub(crate) const BUILT_IN: [&str; 9] =
    ["name", "version", "host", "port", "addr", "base_url", "scale", "arch", "image"];

/// The values that change after launch; never read by env or by a param's default.
pub(crate) const LIVE: [&str; 4] = ["state", "instances", "started_at", "restarts"];

/// Whether a name can't be declared: the built-in facts, the live values and `self`.
pub(crate) fn is_reserved(name: &str) -> bool {
    BUILT_IN.contains(&name) || LIVE.contains(&name) || name == "self"
}

/// A declared param and where its value stands.
pub(crate) struct Declared {
    pub(crate) param: Param,
    pub(crate) span: Range<usize>,
}

/// Reads `[run.params]`: names, values, holes that name nothing, live names, cycles.
pub(crate) fn read(mut table: Section<'_>, faults: &mut Faults<'_>) -> BTreeMap<String, Declared> {
    let mut declared = BTreeMap::new();
    for entry in table.all() {
        if is_reserved(entry.key) {
            faults.at_hint(
                &entry.key_span,
                format!("{:?} is a name of ply's own and can't be a param", entry.key),
                format!("reserved are {}, {} and self", BUILT_IN.join(", "), LIVE.join(", ")),
            );
            continue;
        }
        if !param_name(entry.key) {
            faults.at_hint(
                &entry.key_span,
                format!("{:?} is not the name of a param", entry.key),
                "a name has letters, digits, _ and -, at most 64",
            );
            continue;
        }
        if let Some(param) = read_one(&entry, faults) {
            declared.insert(entry.key.to_owned(), Declared { param, span: entry.span() });
        }
    }
    check_holes(&declared, faults);
    declared
}

fn read_one(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Option<Param> {
    if !entry.is_table() {
        if !entry.value.get_ref().is_str() {
            entry.mistyped("a string", faults);
            return None;
        }
        return Some(Param::Value(entry.string(faults)?.to_owned()));
    }
    let mut table = entry.table(faults)?;
    let secret_entry = table.take("secret");
    let secret = secret_entry.as_ref().and_then(|e| e.boolean(faults));
    let external = table.take("external").and_then(|e| e.boolean(faults)).unwrap_or(false);
    for key in ["value", "default"] {
        if let Some(value) = table.take(key) {
            faults.at_hint(
                &value.key_span,
                format!("param {:?} is secret and has a {key} too", entry.key),
                "leave the value out: ply mints one, or with external = true the operator gives it",
            );
        }
    }
    table.finish(faults);
    match (secret, secret_entry) {
        (Some(true), _) => Some(Param::Secret { external }),
        (None, Some(_)) => None,
        _ => {
            faults.at_hint(
                &entry.span(),
                format!("param {:?} is a table and not secret", entry.key),
                "write a string for a value, or { secret = true }",
            );
            None
        }
    }
}

fn check_holes(declared: &BTreeMap<String, Declared>, faults: &mut Faults<'_>) {
    let mut edges: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, param) in declared {
        let Param::Value(value) = &param.param else { continue };
        match Template::parse(value, Holes::BRACES) {
            Err(error) => {
                faults.at_hint(&param.span, format!("param {name:?}: {error}"), error.hint());
            }
            Ok(template) => {
                check_names(&format!("param {name:?}"), &template, declared, &param.span, faults);
                edges.insert(name, template.holes().map(str::to_owned).collect());
            }
        }
    }
    for cycle in cycles(&edges) {
        let first = &declared[&cycle[0]];
        faults.at(&first.span, format!("params read each other in a circle: {}", chain(&cycle)));
    }
}

/// Checks the holes of `[run.env]` against the declared params.
pub(crate) fn check_env(
    declared: &BTreeMap<String, Declared>,
    env: &[(String, String, Range<usize>)],
    faults: &mut Faults<'_>,
) {
    for (key, value, span) in env {
        if crate::resolve::is_sealed(value) {
            continue;
        }
        match Template::parse(value, Holes::BOTH) {
            Err(error) => faults.at_hint(span, format!("[env] {key}: {error}"), error.hint()),
            Ok(template) => check_names(&format!("[env] {key}"), &template, declared, span, faults),
        }
    }
}

fn check_names(
    who: &str,
    template: &Template,
    declared: &BTreeMap<String, Declared>,
    span: &Range<usize>,
    faults: &mut Faults<'_>,
) {
    for hole in template.holes() {
        if declared.contains_key(hole) || BUILT_IN.contains(&hole) {
            continue;
        }
        if LIVE.contains(&hole) {
            faults.at_hint(
                span,
                format!("{who} reads {{{hole}}}, which changes after launch"),
                format!("read it while running, from /run/ply/self/{hole}"),
            );
        } else if hole.contains('.') || hole == "self" {
            faults.at_hint(
                span,
                format!("{who} reads {{{hole}}}, and only a composition's members read each other"),
                "write {param} for a param of this package",
            );
        } else {
            let known = BUILT_IN.into_iter().chain(declared.keys().map(String::as_str));
            let hint = match faults.near(hole, known) {
                Some(near) => format!("did you mean {{{near}}}?"),
                None => format!("declare it in [run.params], or write {{{{{hole}}}}} for literal text"),
            };
            faults.at_hint(span, format!("{who} reads {{{hole}}}, which names nothing"), hint);
        }
    }
}

/// The most circles that are told of one file: a dense graph has more than anyone can count.
const MOST_CIRCLES: usize = 5;

/// A circle as a chain of names that ends where it began, the middle left out where it is long.
pub(crate) fn chain(circle: &[String]) -> String {
    let mut names: Vec<&str> = circle.iter().map(String::as_str).collect();
    if names.len() > 12 {
        names.splice(6..names.len() - 5, ["…"]);
    }
    names.push(&circle[0]);
    names.join(" → ")
}

/// The first circles of a graph, each once, from its first name in order. No recursion: a chain may be as long as a file.
pub(crate) fn cycles(edges: &BTreeMap<&str, Vec<String>>) -> Vec<Vec<String>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        Open,
        Done,
    }
    let mut marks: BTreeMap<&str, Mark> = BTreeMap::new();
    let mut found = Vec::new();
    for start in edges.keys().copied() {
        if marks.contains_key(start) {
            continue;
        }
        let mut path: Vec<(&str, usize)> = vec![(start, 0)];
        marks.insert(start, Mark::Open);
        while let Some((node, next)) = path.last_mut() {
            let target = edges.get(*node).and_then(|all| all.get(*next));
            *next += 1;
            let Some(target) = target.map(String::as_str) else {
                marks.insert(*node, Mark::Done);
                path.pop();
                continue;
            };
            let Some((&target, _)) = edges.get_key_value(target) else { continue };
            match marks.get(target) {
                None => {
                    marks.insert(target, Mark::Open);
                    path.push((target, 0));
                }
                Some(Mark::Open) => {
                    let from = path.iter().position(|(n, _)| *n == target).unwrap_or(0);
                    let mut circle: Vec<String> = path[from..].iter().map(|(n, _)| (*n).to_owned()).collect();
                    let least =
                        circle.iter().enumerate().min_by_key(|(_, n)| (*n).clone()).map_or(0, |(i, _)| i);
                    circle.rotate_left(least);
                    if !found.contains(&circle) {
                        found.push(circle);
                    }
                    if found.len() == MOST_CIRCLES {
                        return found;
                    }
                }
                Some(Mark::Done) => {}
            }
        }
    }
    found
}
