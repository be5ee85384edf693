//! `[run]`: how an app runs, and every rule about it that the manifest alone can break.

use super::{Group, Places, package};
use crate::walk::{Entry, Faults, Section, absolute_path};
use crate::{
    Capabilities, Capability, EgressEntry, Entrypoint, Health, Limit, LinkRequest, NounError, Rate, Restart,
    RestartPolicy, Run, Scale, ScaleSignal, Span, Volume, VolumeScope, nearest, params,
};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use toml::de::DeValue;

/// The most instances that `[run.scale]` and a member's `scale` may ask for.
pub(super) const MOST_INSTANCES: i64 = 10_000;

/// Reads `[run]`, or its keys from their flat places.
pub(super) fn read(places: &mut Places<'_, '_>, faults: &mut Faults<'_>) -> Run {
    let mut run = Run::default();
    if let Some(entry) = places.key(Group::Run, "entrypoint", faults) {
        places.entrypoint = Some(entry.span());
        run.entrypoint = entrypoint(&entry, faults);
    }
    if let Some(entry) = places.key(Group::Run, "user", faults) {
        run.user = entry.noun(faults);
    }
    if let Some(entry) = places.key(Group::Run, "workdir", faults) {
        run.workdir = path(&entry, faults);
    }
    if let Some(entry) = places.key(Group::Run, "stop_signal", faults) {
        run.stop_signal = entry.noun(faults);
    }
    if let Some(entry) = places.key(Group::Run, "capabilities", faults) {
        run.capabilities = capabilities(&entry, faults);
    }
    let env = places.table(Group::Run, "env", faults).map(|table| package::variables(table, faults));
    let declared = places.table(Group::Run, "params", faults);
    let declared = declared.map(|table| params::read(table, faults));
    if let (Some(declared), Some(env)) = (&declared, &env) {
        params::check_env(declared, env, faults);
    }
    run.env = env.unwrap_or_default().into_iter().map(|(key, value, _)| (key, value)).collect();
    run.params = declared.map(|d| d.into_iter().map(|(name, p)| (name, p.param)).collect());
    if let Some(table) = places.table(Group::Run, "ports", faults) {
        run.ports = ports(table, faults);
    }
    if let Some(table) = places.table(Group::Run, "volumes", faults) {
        run.volumes = volumes(table, faults);
    }
    if let Some(mut table) = places.table(Group::Run, "network", faults) {
        run.egress = table.take("egress").map(|e| egress(&e, faults));
        table.finish(faults);
    }
    if let Some(table) = places.table(Group::Run, "resources", faults) {
        resources(table, &mut run, faults);
    }
    if let Some(table) = places.table(Group::Run, "scale", faults) {
        run.scale = scale(table, &run, faults);
    }
    if let Some(table) = places.table(Group::Run, "health", faults) {
        run.health = health(table, &run.ports, faults);
    }
    if let Some(table) = places.table(Group::Run, "restart", faults) {
        run.restart = restart(table, faults);
    }
    if let Some(mut table) = places.table(Group::Run, "requests", faults) {
        if let Some(entry) = table.take("links") {
            run.link_requests = links(&entry, faults);
        }
        table.finish(faults);
    }
    run
}

/// An argv, or a string for `/bin/sh -c`; neither empty.
pub(super) fn entrypoint(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Option<Entrypoint> {
    const FORMS: &str = "write an array as [\"node\", \"server.js\"], or a string for /bin/sh";
    match entry.value.get_ref() {
        DeValue::String(_) => {
            let text = entry.string(faults)?;
            if text.trim().is_empty() {
                faults.at_hint(&entry.span(), format!("{} is empty", entry.label), FORMS);
                return None;
            }
            Some(Entrypoint::Shell(text.to_owned()))
        }
        DeValue::Array(_) => {
            let argv = entry.strings(faults)?;
            if argv.first().is_none_or(String::is_empty) {
                faults.at_hint(&entry.span(), format!("{} names no program", entry.label), FORMS);
                return None;
            }
            Some(Entrypoint::Argv(argv))
        }
        _ => {
            entry.mistyped("an array of strings or a string", faults);
            None
        }
    }
}

/// An absolute path without `..`.
fn path(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Option<String> {
    let text = entry.string(faults)?;
    match absolute_path(text) {
        Ok(path) => Some(path),
        Err(why) => {
            faults
                .at(&entry.span(), format!("{} must be an absolute path, not {text:?}: {why}", entry.label));
            None
        }
    }
}

fn capabilities(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Capabilities {
    const FORMS: &str = "write \"oci\" for Docker's fourteen, or a list as [\"chown\", \"net_bind_service\"]";
    match entry.value.get_ref() {
        DeValue::String(text) if text == "oci" => Capabilities::Oci,
        DeValue::String(text) => {
            faults.at_hint(
                &entry.span(),
                format!("{} must be \"oci\" or a list, not {text:?}", entry.label),
                FORMS,
            );
            Capabilities::None
        }
        DeValue::Array(_) => {
            let mut list: Vec<Capability> =
                entry.array(faults).unwrap_or_default().iter().filter_map(|e| e.noun(faults)).collect();
            list.sort();
            list.dedup();
            if list.is_empty() { Capabilities::None } else { Capabilities::Only(list) }
        }
        _ => {
            entry.mistyped("\"oci\" or a list", faults);
            Capabilities::None
        }
    }
}

fn ports(mut table: Section<'_>, faults: &mut Faults<'_>) -> BTreeMap<String, u16> {
    let mut ports = BTreeMap::new();
    for entry in table.all() {
        if !label(entry.key) {
            faults.at_hint(
                &entry.key_span,
                format!("{:?} is not the label of a port", entry.key),
                "a label has letters, digits, . _ and -",
            );
            continue;
        }
        if let Some(port) = entry.integer(1, 65_535, faults) {
            ports.insert(entry.key.to_owned(), port as u16);
        }
    }
    ports
}

/// Letters, digits, `.`, `_`, `-`; the first a letter or digit; at most 64.
pub(super) fn label(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.as_bytes()[0].is_ascii_alphanumeric()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// The folder of the kernel that a path leads into: nothing is mounted there.
fn of_the_box(path: &str) -> Option<&'static str> {
    ["/proc", "/sys", "/dev"]
        .into_iter()
        .find(|own| path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

fn volumes(mut table: Section<'_>, faults: &mut Faults<'_>) -> BTreeMap<String, Volume> {
    let mut volumes: BTreeMap<String, Volume> = BTreeMap::new();
    let mut paths: BTreeMap<String, &str> = BTreeMap::new();
    for entry in table.all() {
        if !label(entry.key) {
            faults.at_hint(
                &entry.key_span,
                format!("{:?} is not the name of a volume", entry.key),
                "a name has letters, digits, . _ and -, the first a letter or a digit, at most 64",
            );
            continue;
        }
        let Some((volume, span)) = volume(&entry, faults) else { continue };
        if volume.path == "/" {
            faults.at(&span, format!("volume {:?} is at /, where the base is", entry.key));
            continue;
        }
        if let Some(own) = of_the_box(&volume.path) {
            faults.at_hint(
                &span,
                format!("volume {:?} is at {}, and {own} is the box's own", entry.key, volume.path),
                "keep data elsewhere, as in /data or /var/lib/myapp",
            );
            continue;
        }
        if let Some(other) = paths.get(&volume.path) {
            faults.at(&span, format!("volume {:?} is at {}, where {other:?} is too", entry.key, volume.path));
            continue;
        }
        paths.insert(volume.path.clone(), entry.key);
        volumes.insert(entry.key.to_owned(), volume);
    }
    volumes
}

fn volume(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Option<(Volume, std::ops::Range<usize>)> {
    if !entry.is_table() {
        if !entry.value.get_ref().is_str() {
            entry.mistyped("an absolute path or a table", faults);
            return None;
        }
        let path = path(entry, faults)?;
        return Some((Volume { path, scope: VolumeScope::Instance, ephemeral: false }, entry.span()));
    }
    let mut table = entry.table(faults)?;
    let place = table.need("path", "write { path = \"/var/lib/myapp\" }", faults);
    let path = place.as_ref().and_then(|e| path(e, faults));
    let scopes = [("instance", VolumeScope::Instance), ("shared", VolumeScope::Shared)];
    let scope = table.take("scope").and_then(|e| choice(&e, &scopes, faults)).unwrap_or_default();
    let ephemeral = table.take("ephemeral").and_then(|e| e.boolean(faults)).unwrap_or(false);
    table.finish(faults);
    Some((Volume { path: path?, scope, ephemeral }, place?.span()))
}

/// One of a few words.
pub(super) fn choice<T: Copy>(entry: &Entry<'_>, words: &[(&str, T)], faults: &mut Faults<'_>) -> Option<T> {
    let text = entry.string(faults)?;
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Some(*value);
    }
    let known: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
    let hint =
        nearest(text, words.iter().map(|(word, _)| *word)).map(|near| format!("did you mean {near:?}?"));
    let known = match known.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => known.join(""),
    };
    faults.add(Some(&entry.span()), format!("{} must be {known}, not {text:?}", entry.label), hint);
    None
}

/// A list of destinations.
pub(super) fn egress(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Vec<EgressEntry> {
    entry.array(faults).unwrap_or_default().iter().filter_map(|e| e.noun(faults)).collect()
}

fn resources(mut table: Section<'_>, run: &mut Run, faults: &mut Faults<'_>) {
    run.mem = table.take("mem").and_then(|e| limit(&e, faults));
    run.cpu = table.take("cpu").and_then(|e| limit(&e, faults));
    run.pids = table.take("pids").and_then(|e| e.integer(1, 4_194_304, faults)).map(|n| n as u32);
    table.finish(faults);
}

/// A fixed value, or `{ min, max }`.
fn limit<T>(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Option<Limit<T>>
where
    T: FromStr<Err = NounError> + Copy + PartialOrd + std::fmt::Display,
{
    let amount = |e: &Entry<'_>, faults: &mut Faults<'_>| -> Option<T> {
        let value: T = e.noun_or_number(faults)?;
        if value.to_string() == "0" {
            faults.at(&e.span(), format!("{} is 0, and nothing runs with that", e.label));
            return None;
        }
        Some(value)
    };
    if !entry.is_table() {
        return amount(entry, faults).map(Limit::Fixed);
    }
    let mut table = entry.table(faults)?;
    let hint = "a range is { min = …, max = … }";
    let min = table.need("min", hint, faults).and_then(|e| amount(&e, faults));
    let max = table.need("max", hint, faults).and_then(|e| amount(&e, faults));
    table.finish(faults);
    let (min, max) = (min?, max?);
    if min > max {
        faults.at(&entry.span(), format!("{} has a min above its max: {min} > {max}", entry.label));
        return None;
    }
    Some(Limit::Between { min, max })
}

fn scale(mut table: Section<'_>, run: &Run, faults: &mut Faults<'_>) -> Option<Scale> {
    let span = table.span.clone();
    let min = table.take("min");
    let max = table.take("max");
    let signal_entry = table.take("signal");
    let target_entry = table.take("target");
    let idle_entry = table.take("idle");
    let path_entry = table.take("metrics_path");
    let cooldown = table.take("cooldown").and_then(|e| e.noun::<Span>(faults));
    let before = faults.len();
    let least = min.as_ref().map_or(Some(1), |e| e.integer(0, MOST_INSTANCES, faults));
    let most = match &max {
        Some(entry) => entry.integer(1, MOST_INSTANCES, faults),
        None => least.map(|n| n.max(1)),
    };
    let signal = signal_entry.as_ref().and_then(|e| scale_signal(e, faults));
    let target = match (&target_entry, &signal) {
        (Some(entry), Some(signal)) => scale_target(entry, signal, faults),
        _ => None,
    };
    let idle = idle_entry.as_ref().and_then(|e| e.noun::<Span>(faults));
    let metrics_path = path_entry.as_ref().and_then(|e| path(e, faults));
    table.finish(faults);
    let (least, most) = (least?, most?);
    let title = "[run.scale]";
    if least > most {
        faults.at(&span, format!("{title} has a min above its max: {least} > {most}"));
    }
    if least == 0 && idle_entry.is_none() {
        faults.at_hint(&span, format!("{title} has min = 0 and no idle"), "write idle = \"10m\"");
    }
    if let (true, Some(entry)) = (least > 0, &idle_entry) {
        faults.at_hint(
            &entry.key_span,
            format!("{title} has idle, and min = {least} never sleeps"),
            "write min = 0",
        );
    }
    if most > 1 && signal_entry.is_none() {
        faults.at_hint(
            &span,
            format!("{title} has max = {most} and no signal"),
            "write signal = \"cpu\" and target = \"70\"",
        );
    } else if signal_entry.is_some() && target_entry.is_none() {
        faults.at_hint(&span, format!("{title} has a signal and no target"), "write target = \"70\"");
    } else if let (None, Some(entry)) = (&signal_entry, &target_entry) {
        faults.at(&entry.key_span, format!("{title} has a target and no signal"));
    }
    if let Some(entry) = &signal_entry {
        match &signal {
            Some(ScaleSignal::Memory) if run.mem.is_none() => faults.at_hint(
                &entry.span(),
                format!("{title} watches memory, and [run.resources] has no mem"),
                "write mem = \"512M\" in [run.resources]",
            ),
            Some(ScaleSignal::Metric(name)) if run.ports.is_empty() => faults.at_hint(
                &entry.span(),
                format!("{title} watches the metric {name:?}, and no port is declared to read it from"),
                "write web = 3000 in [run.ports]",
            ),
            _ => {}
        }
    }
    if let Some(entry) = &path_entry
        && !matches!(signal, Some(ScaleSignal::Metric(_)))
    {
        faults.at(&entry.key_span, format!("{title} has a metrics_path and no metric: signal"));
    }
    if faults.len() > before {
        return None;
    }
    Some(Scale { min: least as u32, max: most as u32, signal, target, cooldown, metrics_path, idle })
}

fn scale_signal(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Option<ScaleSignal> {
    let text = entry.string(faults)?;
    if let Some(name) = text.strip_prefix("metric:") {
        let well = !name.is_empty()
            && !name.as_bytes()[0].is_ascii_digit()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_:".contains(&b));
        if !well {
            faults.at_hint(
                &entry.span(),
                format!("{name:?} is not the name of a metric"),
                "write metric:queue_depth",
            );
            return None;
        }
        return Some(ScaleSignal::Metric(name.to_owned()));
    }
    match text {
        "cpu" => Some(ScaleSignal::Cpu),
        "memory" => Some(ScaleSignal::Memory),
        "net" => Some(ScaleSignal::Net),
        _ => {
            let hint = match nearest(text, ["cpu", "memory", "net"]) {
                Some(near) => format!("did you mean {near:?}?"),
                None => "write \"cpu\", \"memory\", \"net\" or \"metric:NAME\"".to_owned(),
            };
            faults.at_hint(&entry.span(), format!("{text:?} is not a signal to scale on"), hint);
            None
        }
    }
}

/// Percent for cpu and memory, a rate for net, a number for a metric; kept as text without `%`.
fn scale_target(entry: &Entry<'_>, signal: &ScaleSignal, faults: &mut Faults<'_>) -> Option<String> {
    let text = match entry.value.get_ref() {
        DeValue::Integer(_) | DeValue::Float(_) => crate::walk::plain_text(entry.value.get_ref())?,
        _ => entry.string(faults)?.to_owned(),
    };
    let (kept, form) = match signal {
        ScaleSignal::Cpu | ScaleSignal::Memory => {
            let number = text.strip_suffix('%').unwrap_or(&text);
            let percent = number.parse::<u32>().ok().filter(|n| (1..=100).contains(n));
            (percent.map(|n| n.to_string()), "percent, as \"70%\", from 1 to 100")
        }
        ScaleSignal::Net => {
            (text.parse::<Rate>().ok().filter(|r| r.0 > 0).map(|r| r.to_string()), "a rate, as \"40MB/s\"")
        }
        ScaleSignal::Metric(_) => {
            let number = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
            (number.map(|_| text.clone()), "a number above 0")
        }
    };
    if kept.is_none() {
        faults.at(&entry.span(), format!("{} must be {form} for this signal, not {text:?}", entry.label));
    }
    kept
}

fn health(mut table: Section<'_>, ports: &BTreeMap<String, u16>, faults: &mut Faults<'_>) -> Option<Health> {
    let grace = table.take("grace").and_then(|e| e.noun(faults)).unwrap_or(Span::from_secs(30));
    let port = match table.take("port") {
        Some(entry) => entry.integer(1, 65_535, faults).map(|n| n as u16),
        None => match ports.values().collect::<Vec<_>>()[..] {
            [only] => Some(*only),
            [] => {
                faults.at_hint(
                    &table.span,
                    "[run.health] has no port, and none is declared",
                    "write port = 3000",
                );
                None
            }
            _ => {
                let labels: Vec<&str> = ports.keys().map(String::as_str).collect();
                faults.at_hint(
                    &table.span,
                    format!("[run.health] has no port, and several are declared: {}", labels.join(", ")),
                    "say which: port = 3000",
                );
                None
            }
        },
    };
    table.finish(faults);
    Some(Health { port: port?, grace })
}

fn restart(mut table: Section<'_>, faults: &mut Faults<'_>) -> Restart {
    let mut restart = Restart::default();
    let words = [
        ("never", RestartPolicy::Never),
        ("on-failure", RestartPolicy::OnFailure),
        ("always", RestartPolicy::Always),
    ];
    if let Some(policy) = table.take("policy").and_then(|e| choice(&e, &words, faults)) {
        restart.policy = policy;
    }
    let mut pause = |key, faults: &mut Faults<'_>| {
        let entry = table.take(key)?;
        let span: Span = entry.noun(faults)?;
        if span.0.is_zero() {
            faults.at(&entry.span(), format!("{} is 0, and a pause is longer", entry.label));
            return None;
        }
        Some(span)
    };
    let backoff = pause("backoff", faults);
    let most = pause("max_backoff", faults);
    restart.backoff = backoff.unwrap_or(restart.backoff);
    restart.max_backoff = most.unwrap_or(restart.max_backoff.max(restart.backoff));
    if restart.backoff > restart.max_backoff {
        let (first, last) = (restart.backoff, restart.max_backoff);
        faults
            .at(&table.span, format!("[run.restart] has a backoff above its max_backoff: {first} > {last}"));
    }
    table.finish(faults);
    restart
}

fn links(entry: &Entry<'_>, faults: &mut Faults<'_>) -> Vec<LinkRequest> {
    const FORMS: &str =
        "write \"/host/path:/container/path\", or { host = \"/host/path\", at = \"/container/path\" }";
    let mut links: Vec<LinkRequest> = Vec::new();
    let mut taken = BTreeSet::new();
    for value in entry.array(faults).unwrap_or_default() {
        let link = if value.is_table() {
            let Some(mut table) = value.table(faults) else { continue };
            let host = table.need("host", FORMS, faults).and_then(|e| path(&e, faults));
            let at = table.need("at", FORMS, faults).and_then(|e| path(&e, faults));
            table.finish(faults);
            let (Some(host), Some(at)) = (host, at) else { continue };
            LinkRequest { host, at, read_only: false }
        } else {
            let Some(text) = value.string(faults) else { continue };
            let (pair, read_only) = match text.strip_suffix(":ro") {
                Some(pair) => (pair, true),
                None => (text, false),
            };
            let parts: Vec<&str> = pair.split(':').collect();
            let [host, at] = parts[..] else {
                faults.at_hint(&value.span(), format!("{text:?} is not a link"), FORMS);
                continue;
            };
            match (absolute_path(host), absolute_path(at)) {
                (Ok(host), Ok(at)) => LinkRequest { host, at, read_only },
                (Err(why), _) => {
                    faults.at_hint(&value.span(), format!("the host's path {host:?} won't do: {why}"), FORMS);
                    continue;
                }
                (_, Err(why)) => {
                    faults.at_hint(&value.span(), format!("the path inside {at:?} won't do: {why}"), FORMS);
                    continue;
                }
            }
        };
        if link.at == "/" {
            faults.at(&value.span(), "a link is at /, where the base is");
        } else if let Some(own) = of_the_box(&link.at) {
            faults.at_hint(
                &value.span(),
                format!("a link is at {}, and {own} is the box's own", link.at),
                "a device of the host comes in with ply run --device",
            );
        } else if !taken.insert(link.at.clone()) {
            faults.at(&value.span(), format!("two links are at {}", link.at));
        } else {
            links.push(link);
        }
    }
    links
}
