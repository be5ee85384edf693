//! The `ply.toml` of what was detected, with a short comment where a newcomer would ask.

use super::Detected;
use ply_manifest::Entrypoint;
use std::fmt::Write;

/// The `ply.toml` that `ply init -y` writes for what was detected. It always parses.
pub fn init_manifest(detected: &Detected) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text);
        out.push('\n');
    };
    line("[package]");
    line(&format!("name = {}", quoted(detected.name.as_str())));
    line(&format!("version = {}", quoted(&detected.version.to_string())));
    for (key, value) in [("description", &detected.description), ("license", &detected.license)] {
        if let Some(value) = value {
            line(&format!("{key} = {}", quoted(value)));
        }
    }
    if detected.base.is_some() || !detected.include.is_empty() {
        line("\n[build]");
    }
    if let Some((name, range)) = &detected.base {
        line(&format!("base = {}", quoted(&format!("{name}@{range}"))));
    }
    if !detected.include.is_empty() {
        line("# Only these ship. Without this line everything does.");
        line(&format!("include = {}", list(&detected.include)));
    }
    if !detected.dependencies.is_empty() {
        line("\n# Ranges: \"22\" is any 22.x.y. ply.lock keeps the exact versions; commit it.");
        line("[build.dependencies]");
        for (name, range) in &detected.dependencies {
            line(&format!("{} = {}", key(name.as_str()), quoted(&range.to_string())));
        }
    }
    line("\n[run]");
    match &detected.entrypoint {
        Some(Entrypoint::Argv(argv)) => line(&format!("entrypoint = {}", list(argv))),
        Some(Entrypoint::Shell(text)) => {
            line("# A string is given to /bin/sh.");
            line(&format!("entrypoint = {}", shell(text)));
        }
        None => {
            line("# How it starts: a program and its arguments, in the app's own folder.");
            line("# entrypoint = [\"./program\"]");
        }
    }
    if !detected.env.is_empty() {
        line("\n[run.env]");
        for (name, value) in &detected.env {
            line(&format!("{} = {}", key(name), quoted(value)));
        }
    }
    if let Some(port) = detected.port {
        line("\n# What it listens on. To reach it from outside: ply run . --publish PORT");
        line("[run.ports]");
        line(&format!("web = {port}"));
    }
    out
}

fn list(words: &[String]) -> String {
    format!("[{}]", words.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(", "))
}

/// A TOML basic string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A key, bare where TOML allows it.
pub(crate) fn key(text: &str) -> String {
    let bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { text.to_owned() } else { quoted(text) }
}

/// A shell text over several lines, as a literal where it can be one.
fn shell(text: &str) -> String {
    let plain = |c: char| c == '\n' || c == '\t' || !c.is_control();
    if text.contains("'''") || !text.chars().all(plain) {
        return quoted(text);
    }
    format!("'''\n{text}'''")
}
