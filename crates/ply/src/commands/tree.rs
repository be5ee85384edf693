//! `ply tree`: who brings what, with sizes.

use crate::cli::SourceArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::folder::Folder;
use crate::output::{self, put, size};
use clap::Args;
use ply_manifest::Arch;
use ply_source::TreeNode;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show which package brings which, with sizes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply tree
  ply tree --dir ./app --json")]
pub(crate) struct TreeArgs {
    /// The folder with the ply.toml
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    sources: SourceArgs,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: TreeArgs, context: &Context) -> Result<ExitCode, Failure> {
    let folder = Folder::read(&args.dir)?;
    let fetcher = context.fetcher(&args.sources, Arch::HOST)?;
    let tree = fetcher.tree(&folder.manifest, folder.lock()?)?;
    if args.json {
        output::json(&tree)?;
        return Ok(ExitCode::SUCCESS);
    }
    put(&format!("{} {}  (all layers: {})", tree.name, tree.version, size(tree.bytes)));
    branches(&tree.children, "");
    Ok(ExitCode::SUCCESS)
}

/// Prints the lines below one package, each behind `indent`.
fn branches(nodes: &[TreeNode], indent: &str) {
    for (i, node) in nodes.iter().enumerate() {
        let last = i + 1 == nodes.len();
        let (knot, below) = if last { ("└── ", "    ") } else { ("├── ", "│   ") };
        let size = node.bytes.map_or(String::new(), |bytes| format!("  {}", size(bytes)));
        let base = if node.base { "  (base)" } else { "" };
        let repeated = if node.repeated { "  (see above)" } else { "" };
        put(&format!("{indent}{knot}{} {}{size}{base}{repeated}", node.name, node.version));
        branches(&node.children, &format!("{indent}{below}"));
    }
}
