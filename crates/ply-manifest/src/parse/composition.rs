//! Reading a composition: the header and `[[service]]` members, or legacy `[stack]` and `[[app]]`.

use super::{MOST_BYTES, one_of, package, run};
use crate::params::{LIVE, chain, cycles};
use crate::template::{Holes, Piece, Template, param_name};
use crate::walk::{Entry, Faults, Section, absolute_path, document};
use crate::{
    Composition, Condition, Diagnostics, EgressPolicy, ImageName, Member, MemberEgress, NounError,
    PackageName, Publish, RunName, Target,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use toml::de::DeValue;

/// Whether a file is a composition rather than a package.
pub(super) fn is_one(root: &Section<'_>) -> bool {
    ["service", "app", "stack"].iter().any(|key| root.has(key))
}

impl Composition {
    /// Reads a composition. `file` is the name that errors show.
    pub fn parse(text: &str, file: &str) -> Result<Self, Diagnostics> {
        document(text, file, MOST_BYTES, |root, faults| {
            if !is_one(root) {
                root.all();
                faults.add(
                    None,
                    "it is no composition: it has no [[service]]",
                    Some("`ply run` starts a single app".to_owned()),
                );
                return None;
            }
            read(root, faults)
        })
    }
}

/// A reference from one member to another, and where it stands.
struct Edge {
    to: String,
    span: Range<usize>,
    what: String,
}

pub(super) fn read(root: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Composition> {
    let (package, stack) = (root.take("package"), root.take("stack"));
    let (service, app) = (root.take("service"), root.take("app"));
    let header = one_of(package, stack, faults);
    let Some(header) = header else {
        super::no_header(root, "write [package] with name = \"mystack\"", faults);
        return None;
    };
    let mut table = header.table(faults)?;
    let name = table
        .need("name", "write name = \"mystack\"", faults)
        .and_then(|e| e.noun::<PackageName>(faults))
        .map(|n| n.to_string());
    let owner = table.take("owner").and_then(|e| e.noun(faults));
    let version = table.take("version").and_then(|e| e.noun(faults));
    let mut line = |key| table.take(key).and_then(|e| e.line(faults).map(str::to_owned));
    let (description, env_file) = (line("description"), line("env_file"));
    table.finish(faults);
    let members = one_of(service, app, faults);
    if let Some(entry) = members.as_ref().filter(|e| e.is_table()) {
        let key = entry.key;
        faults.at_hint(&entry.key_span, format!("{key:?} is a list of members"), format!("write [[{key}]]"));
        return None;
    }
    let mut read_members: Vec<Member> = Vec::new();
    let mut edges: Vec<Vec<Edge>> = Vec::new();
    let mut spans = Vec::new();
    let mut names = BTreeSet::new();
    let entries = members.and_then(|e| e.array(faults)).unwrap_or_default();
    if entries.is_empty() && faults.len() == 0 {
        faults.at_hint(&header.key_span, "it has no member", "add [[service]] with run = \"redis@8\"");
    }
    for entry in entries {
        let Some((member, reads)) = read_member(&entry, faults) else { continue };
        if !names.insert(member.name.clone()) {
            faults.at_hint(
                &entry.span(),
                format!("two members are named {:?}", member.name.as_str()),
                "give one another name",
            );
            continue;
        }
        read_members.push(member);
        edges.push(reads);
        spans.push(entry.span());
    }
    check_edges(&read_members, &edges, &spans, faults);
    Some(Composition { name: name?, owner, version, description, env_file, members: read_members })
}

fn read_member(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Option<(Member, Vec<Edge>)> {
    let mut table = entry.table(faults)?;
    let mut reads = Vec::new();
    let run_entry = table.need("run", "write run = \"postgres@17\", or run = \"./server\"", faults);
    let run: Option<Target> = run_entry.as_ref().and_then(|e| {
        e.line(faults)?;
        e.noun(faults)
    });
    let name = match table.take("name") {
        Some(entry) => entry.noun(faults),
        None => run.as_ref().zip(run_entry.as_ref()).and_then(|(target, entry)| {
            let name = default_name(target);
            if name.is_none() {
                faults.at_hint(
                    &entry.span(),
                    "a member has no name, and its run gives none",
                    "write name = \"server\"",
                );
            }
            name
        }),
    };
    let env_entry = one_of(table.take("env"), table.take("e"), faults);
    let env = env_entry.map(|e| read_env(&e, &mut reads, faults)).unwrap_or_default();
    let params = match table.take("params") {
        Some(entry) => read_params(&entry, &mut reads, faults),
        None => BTreeMap::new(),
    };
    let mut after = Vec::new();
    for (text, value) in words(table.take("after"), faults) {
        match text.parse::<Condition>() {
            Ok(condition) => {
                reads.push(Edge {
                    to: condition.member.to_string(),
                    span: value.span(),
                    what: format!("after {text:?}"),
                });
                after.push(text);
            }
            Err(error) => faults.noun(&value.span(), error),
        }
    }
    let mut publish = Vec::new();
    for (text, value) in words(table.take("publish"), faults) {
        if let Some(text) = with_vars::<Publish>(text, &value, faults) {
            publish.push(text);
        }
    }
    let mut domain = Vec::new();
    for (text, value) in words(table.take("domain"), faults) {
        if let Some(text) = with_vars::<Domain>(text, &value, faults) {
            domain.push(text);
        }
    }
    let mut volume = Vec::new();
    for (text, value) in words(table.take("volume"), faults) {
        let path = match text.split_once(':') {
            Some((name, path)) if run::label(name) => path,
            Some((name, _)) => {
                faults.at(&value.span(), format!("{name:?} is not the name of a volume"));
                continue;
            }
            None => text.as_str(),
        };
        match absolute_path(path) {
            Ok(path) if path == "/" => faults.at(&value.span(), "a volume is at /, where the base is"),
            Ok(_) => volume.push(text),
            Err(why) => faults.at_hint(
                &value.span(),
                format!("{text:?} is not a volume: {why}"),
                "write \"/var/lib/data\" or \"data:/var/lib/data\"",
            ),
        }
    }
    let scale = table.take("scale").and_then(|e| e.integer(1, run::MOST_INSTANCES, faults)).map(|n| n as u32);
    let egress = table.take("egress").and_then(|e| read_egress(&e, faults));
    let mut secret_env = Vec::new();
    for (text, value) in words(table.take("secret_env"), faults) {
        match package::variable_name(&text) {
            Ok(()) => secret_env.push(text),
            Err(why) => faults.at(&value.span(), format!("{text:?} is not the name of a variable: {why}")),
        }
    }
    let mut git = |key: &'static str| {
        let entry = table.take(key)?;
        let text = entry.line(faults).map(str::to_owned);
        if let Some(target) = &run
            && !matches!(target, Target::Git(_))
        {
            faults.at_hint(
                &entry.key_span,
                format!("{} is for a member that a repository gives, and this runs {target}", entry.label),
                "leave it out, or write run = \"git+https://…\"",
            );
        }
        text
    };
    let (git_ref, git_build, git_runtime) = (git("ref"), git("build"), git("runtime"));
    table.finish(faults);
    let member = Member {
        run: run?,
        name: name?,
        env,
        params,
        after,
        publish,
        domain,
        volume,
        scale,
        egress,
        secret_env,
        git_ref,
        git_build,
        git_runtime,
    };
    Some((member, reads))
}

/// The image's name, as far as WHAT shows it.
fn default_name(target: &Target) -> Option<RunName> {
    let last = |text: &str| {
        let text = text.split(['?', '#']).next().unwrap_or("");
        text.trim_end_matches('/').rsplit('/').next().unwrap_or("").to_owned()
    };
    let file = |text: String| match text.parse::<ImageName>() {
        Ok(image) => image.name.to_string(),
        Err(_) => text.strip_suffix(".img").unwrap_or(&text).to_owned(),
    };
    let name = match target {
        Target::Reference(reference) => reference.name.to_string(),
        Target::Path(path) | Target::File(path) => {
            let text = last(path.to_str()?);
            if [".", "..", "~"].contains(&text.as_str()) {
                return None;
            }
            file(text)
        }
        Target::Url(url) => file(last(url)),
        Target::Docker(image) => last(image).split([':', '@']).next()?.to_owned(),
        Target::Git(url) => {
            let text = last(url);
            text.strip_suffix(".git").unwrap_or(&text).to_owned()
        }
    };
    RunName::from_package(&PackageName::fold(&name)?).into()
}

/// One string, or a list of them.
fn words<'t>(entry: Option<Entry<'t>>, faults: &mut Faults<'_>) -> Vec<(String, Entry<'t>)> {
    let Some(entry) = entry else { return Vec::new() };
    let values = match entry.value.get_ref() {
        DeValue::String(_) => vec![entry],
        DeValue::Array(_) => entry.array(faults).unwrap_or_default(),
        _ => {
            entry.mistyped("a list of strings", faults);
            return Vec::new();
        }
    };
    values.into_iter().filter_map(|value| Some((value.line(faults)?.to_owned(), value))).collect()
}

/// A noun, or a text with `$VAR` that becomes one at launch.
fn with_vars<T: std::str::FromStr<Err = NounError>>(
    text: String,
    value: &Entry<'_>,
    faults: &mut Faults<'_>,
) -> Option<String> {
    match Template::parse(&text, Holes::VARS) {
        Err(error) => {
            faults.at_hint(&value.span(), error.to_string(), error.hint());
            return None;
        }
        Ok(template)
            if template
                .pieces
                .iter()
                .any(|p| matches!(p, Piece::Text(text) if text.contains(['{', '}']))) =>
        {
            faults.at_hint(&value.span(), format!("{} takes $VAR and no {{}}", value.label), "write $VAR");
            return None;
        }
        Ok(template) if template.vars().next().is_some() => {}
        Ok(_) => {
            if let Err(error) = text.parse::<T>() {
                faults.noun(&value.span(), error);
                return None;
            }
        }
    }
    Some(text)
}

/// A host name under which an app is reached.
struct Domain;

impl std::str::FromStr for Domain {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let name = s.strip_prefix("*.").unwrap_or(s);
        let label = |l: &str| {
            (1..=63).contains(&l.len())
                && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                && !l.starts_with('-')
                && !l.ends_with('-')
        };
        if name.len() <= 253 && name.split('.').all(label) {
            Ok(Self)
        } else {
            Err(NounError::new(format!("{s:?} is not a domain")).hint("write one as \"app.example.com\""))
        }
    }
}

/// `env`: a list of `K=V`, or a table.
fn read_env(entry: &Entry<'_>, reads: &mut Vec<Edge>, faults: &mut Faults<'_>) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = Vec::new();
    let mut seen = BTreeSet::new();
    let found = if entry.is_table() {
        entry.table(faults).map(|t| package::variables(t, faults)).unwrap_or_default()
    } else {
        let mut found = Vec::new();
        for value in entry.array(faults).unwrap_or_default() {
            let Some(text) = value.string(faults) else { continue };
            let Some((key, rest)) = text.split_once('=') else {
                faults.at_hint(
                    &value.span(),
                    format!("{} must be K=V, and has no =", value.label),
                    "write \"KEY=value\"",
                );
                continue;
            };
            match package::variable_name(key) {
                Ok(()) => found.push((key.to_owned(), rest.to_owned(), value.span())),
                Err(why) => faults.at(&value.span(), format!("{key:?} is not the name of a variable: {why}")),
            }
        }
        found
    };
    for (key, value, span) in found {
        if !seen.insert(key.clone()) {
            faults.at(&span, format!("{key} is set twice"));
            continue;
        }
        read_holes(&format!("env {key}"), &value, &span, reads, faults);
        env.push((key, value));
    }
    env
}

fn read_params(
    entry: &Entry<'_>,
    reads: &mut Vec<Edge>,
    faults: &mut Faults<'_>,
) -> BTreeMap<String, String> {
    let mut params = BTreeMap::new();
    let Some(mut table) = entry.table(faults) else { return params };
    for value in table.all() {
        if !param_name(value.key) || crate::params::is_reserved(value.key) {
            faults.at(&value.key_span, format!("{:?} is not a param that can be set", value.key));
            continue;
        }
        if let Some(text) = value.string(faults) {
            read_holes(&format!("param {}", value.key), text, &value.span(), reads, faults);
            params.insert(value.key.to_owned(), text.to_owned());
        }
    }
    params
}

/// Notes which members a value reads.
fn read_holes(who: &str, value: &str, span: &Range<usize>, reads: &mut Vec<Edge>, faults: &mut Faults<'_>) {
    if crate::resolve::is_sealed(value) {
        return;
    }
    let template = match Template::parse(value, Holes::BOTH) {
        Ok(template) => template,
        Err(error) => return faults.at_hint(span, format!("{who}: {error}"), error.hint()),
    };
    for piece in template.pieces {
        let Piece::Hole(hole) = piece else { continue };
        let Some((member, param)) = hole.split_once('.') else {
            faults.at_hint(
                span,
                format!("{who} reads {{{hole}}} without saying whose it is"),
                format!("write {{self.{hole}}}, or {{MEMBER.{hole}}}"),
            );
            continue;
        };
        if LIVE.contains(&param) {
            faults.at_hint(
                span,
                format!("{who} reads {{{hole}}}, which changes after launch"),
                format!("read it while running, from /run/ply/{member}/{param}"),
            );
        } else if member != "self" {
            reads.push(Edge {
                to: member.to_owned(),
                span: span.clone(),
                what: format!("{who} reads {{{hole}}}"),
            });
        }
    }
}

fn read_egress(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Option<MemberEgress> {
    let modes =
        [("off", EgressPolicy::Off), ("audit", EgressPolicy::Audit), ("enforce", EgressPolicy::Enforce)];
    if entry.value.get_ref().is_str() {
        return Some(MemberEgress { mode: run::choice(entry, &modes, faults)?, allow: None });
    }
    let mut table = entry.table_or("a mode or { mode, allow }", faults)?;
    let mode_entry = table.take("mode");
    let mode = mode_entry.as_ref().and_then(|e| run::choice(e, &modes, faults));
    let allow = table.take("allow").map(|e| run::egress(&e, faults));
    table.finish(faults);
    match (mode, mode_entry, &allow) {
        (Some(mode), ..) => Some(MemberEgress { mode, allow }),
        (None, None, Some(_)) => Some(MemberEgress { mode: EgressPolicy::Audit, allow }),
        (None, None, None) => {
            faults.at_hint(
                &entry.span(),
                format!("{} says nothing", entry.label),
                "write { mode = \"audit\" }",
            );
            None
        }
        _ => None,
    }
}

/// The first names of a list, so that a hint stays a line.
fn few(names: &[&str]) -> String {
    match names.get(..8) {
        Some(first) if names.len() > 8 => format!("{} and {} more", first.join(", "), names.len() - 8),
        _ => names.join(", "),
    }
}

/// References to members that aren't there, and circles.
fn check_edges(members: &[Member], edges: &[Vec<Edge>], spans: &[Range<usize>], faults: &mut Faults<'_>) {
    let names: Vec<&str> = members.iter().map(|m| m.name.as_str()).collect();
    let known: BTreeSet<&str> = names.iter().copied().collect();
    let mut graph: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, reads) in names.iter().zip(edges) {
        for edge in reads {
            if !known.contains(edge.to.as_str()) {
                let hint = match faults.near(&edge.to, names.iter().copied()) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => format!("members are {}", few(&names)),
                };
                faults.at_hint(
                    &edge.span,
                    format!("{}, and no member is named {:?}", edge.what, edge.to),
                    hint,
                );
            }
        }
        graph.insert(name, reads.iter().map(|e| e.to.clone()).collect());
    }
    for circle in cycles(&graph) {
        let at = names.iter().position(|n| *n == circle[0]).unwrap_or(0);
        faults.at(&spans[at], format!("members wait for each other in a circle: {}", chain(&circle)));
    }
}
