//! `ply config`: the folders, the default source, and where each was said.

use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use ply_source::DefaultSource;
use std::process::ExitCode;

/// Show the folders and the default source, and where each comes from
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply config
  ply config --json")]
pub(crate) struct ConfigArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: ConfigArgs, context: &Context) -> Result<ExitCode, Failure> {
    let source = DefaultSource::find(&context.dirs)?;
    let from = |variable: &str| match std::env::var_os(variable).is_some_and(|v| !v.is_empty()) {
        true => variable.to_owned(),
        false => "the default".to_owned(),
    };
    let folders = [
        ("data_dir", &context.dirs.data, from("PLY_DATA_DIR")),
        ("run_dir", &context.dirs.run, from("PLY_RUN_DIR")),
        ("config_dir", &context.dirs.config, from("PLY_CONFIG_DIR")),
    ];
    if args.json {
        let mut object = serde_json::Map::new();
        for (key, path, from) in folders {
            object.insert(key.to_owned(), path.display().to_string().into());
            object.insert(format!("{key}_from"), from.into());
        }
        object.insert("default_source".to_owned(), source.spec.to_string().into());
        object.insert("default_source_from".to_owned(), source.from.to_string().into());
        output::json(&object)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows: Vec<Vec<String>> = folders
        .into_iter()
        .map(|(key, path, from)| vec![key.to_owned(), path.display().to_string(), from])
        .collect();
    rows.push(vec!["default_source".to_owned(), source.spec.to_string(), source.from.to_string()]);
    output::table(&["SETTING", "VALUE", "FROM"], rows);
    context.say(format!("settings that last stand in {}", context.dirs.config.join("config.toml").display()));
    Ok(ExitCode::SUCCESS)
}
