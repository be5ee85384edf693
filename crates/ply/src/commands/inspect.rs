//! `ply inspect`: what a package declares, straight from its manifest.

use crate::cli::{SourceArgs, noun};
use crate::context::Context;
use crate::context::Found;
use crate::failure::Failure;
use crate::output::{self, clean, clean_lines, put, size};
use clap::Args;
use ply_build::Inspection;
use ply_manifest::{Arch, Target};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;

/// Show what a package declares
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply inspect redis@8
  ply inspect ./app --json
  ply inspect app-1.0.0-linux-x64.img --manifest")]
pub(crate) struct InspectArgs {
    /// A package, a folder, an image file or a URL
    #[arg(value_name = "WHAT", value_parser = noun::<Target>, add = crate::commands::completions::packages())]
    what: Target,
    /// Print the manifest as it was written
    #[arg(long, conflicts_with = "json")]
    manifest: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sources: SourceArgs,
}

pub(crate) fn run(args: InspectArgs, context: &Context) -> Result<ExitCode, Failure> {
    let (inspection, text) = match &args.what {
        Target::Path(path) | Target::File(path) => ply_build::inspect::inspect_path(path)?,
        what => match context.image(what, &context.fetcher(&args.sources, Arch::HOST)?)? {
            Found::Image(entry) => ply_build::inspect::inspect_entry(&entry)?,
            Found::Folder(path) => ply_build::inspect::inspect_path(&path)?,
        },
    };
    if args.manifest {
        // As it was written where a program reads it; a terminal gets nothing that steers it.
        let text = text.trim_end();
        if std::io::stdout().is_terminal() { put(&clean_lines(text)) } else { put(text) }
    } else if args.json {
        output::json(&inspection)?;
    } else {
        for (what, value) in lines(&inspection) {
            put(&format!("{:<14} {}", format!("{what}:"), clean(&value)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What a person wants to know of a package, a line each; what it does not declare is left out, but for egress.
fn lines(i: &Inspection) -> Vec<(&'static str, String)> {
    let pairs =
        |map: &BTreeMap<String, String>| map.iter().map(|(k, v)| format!("{k} {v}")).collect::<Vec<_>>();
    let ports: Vec<String> = i.ports.iter().map(|(label, port)| format!("{label} {port}")).collect();
    let volumes: Vec<String> = i.volumes.iter().map(|(name, v)| format!("{name} {}", v.path)).collect();
    let params: Vec<String> = i
        .params
        .iter()
        .map(|(name, p)| match (&p.default, p.external) {
            (Some(value), _) => format!("{name}={value}"),
            (None, true) => format!("{name} (secret, from the operator)"),
            (None, false) => format!("{name} (secret)"),
        })
        .collect();
    let resources: Vec<String> = i.resources.iter().map(|(k, v)| format!("{k} {v}")).collect();
    let requests: Vec<String> = i.requests.iter().map(|r| format!("{}:{}", r.host, r.at)).collect();
    let layers: Vec<String> = i.layers.iter().map(|l| format!("{} {}", l.name, l.version)).collect();
    let members: Vec<String> = i.members.iter().map(|m| format!("{} ({})", m.name, m.run)).collect();
    let env: Vec<String> = i.env.iter().map(|v| format!("{}={}", v.name, v.value)).collect();
    let egress = match &i.egress {
        None => "not declared".to_owned(),
        Some(list) if list.is_empty() => "[] (talks to nobody)".to_owned(),
        Some(list) => list.join(", "),
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let runnable = i.entrypoint.is_some();
    let on = |value: String| if runnable { value } else { String::new() };
    let all = [
        ("name", i.name.clone()),
        ("version", text(&i.version)),
        ("type", i.kind.clone()),
        ("description", text(&i.description)),
        ("license", text(&i.license)),
        ("homepage", text(&i.homepage)),
        ("arch", text(&i.arch)),
        ("base", text(&i.base)),
        ("dependencies", pairs(&i.dependencies).join(", ")),
        ("abi", text(&i.abi)),
        ("entrypoint", i.entrypoint.as_ref().map(|argv| argv.join(" ")).unwrap_or_default()),
        ("user", on(i.user.clone().unwrap_or_else(|| "root inside".to_owned()))),
        ("capabilities", on(i.capabilities.clone())),
        ("env", env.join(", ")),
        ("params", params.join(", ")),
        ("ports", ports.join(", ")),
        ("volumes", volumes.join(", ")),
        ("egress", on(egress)),
        ("resources", resources.join(", ")),
        (
            "health",
            i.health.as_ref().map(|h| format!("port {} within {}", h.port, h.grace)).unwrap_or_default(),
        ),
        ("asks for links", requests.join(", ")),
        ("gives PATH", i.layer.path.join(", ")),
        ("gives libs", i.layer.ld_library_path.join(", ")),
        ("gives env", pairs(&i.layer.env).join(", ")),
        ("members", members.join(", ")),
        ("layers", layers.join(", ")),
        ("size", i.bytes.map(size).unwrap_or_default()),
        ("digest", text(&i.digest)),
    ];
    all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}
