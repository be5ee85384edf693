//! `ply store`: what is stored on this host, and who needs it.

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, put, size};
use clap::{Args, Subcommand};
use ply_image::Entry;
use std::process::ExitCode;

/// List the store, or remove an image from it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply store ls
  ply store ls --json
  ply store rm 7c2f19ab04de    the beginning of a digest, as ls shows it")]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    what: Store,
}

#[derive(Debug, Subcommand)]
enum Store {
    /// List images with their size and who needs them
    Ls {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove images that nobody needs
    Rm {
        /// An image's file name, or the beginning of its digest
        #[arg(value_name = "IMAGE|DIGEST", required = true)]
        images: Vec<String>,
    },
}

pub(crate) fn run(args: StoreArgs, context: &Context) -> Result<ExitCode, Failure> {
    match args.what {
        Store::Ls { json } => list(json, context),
        Store::Rm { images } => remove(&images, context),
    }
}

fn list(json: bool, context: &Context) -> Result<ExitCode, Failure> {
    let store = context.store()?;
    let needed = ply_host::needed_by(&context.dirs)?;
    let who = |entry: &Entry| needed.get(&entry.digest).cloned().unwrap_or_default();
    let entries = store.list()?;
    if json {
        let rows: Vec<_> = entries
            .iter()
            .map(|e| {
                serde_json::json!({
                    "name": e.name, "digest": e.digest, "bytes": e.bytes, "tree_bytes": e.tree_bytes(),
                    "source": e.source, "path": e.image, "needed_by": who(e),
                })
            })
            .collect();
        output::json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = entries
        .iter()
        .map(|e| {
            let tree = if e.is_extracted() { size(e.tree_bytes()) } else { "-".to_owned() };
            vec![e.name.to_string(), size(e.bytes), tree, e.digest.short(), who(e).join(", ")]
        })
        .collect();
    output::table(&["IMAGE", "SIZE", "EXTRACTED", "DIGEST", "NEEDED BY"], rows);
    Ok(ExitCode::SUCCESS)
}

fn remove(images: &[String], context: &Context) -> Result<ExitCode, Failure> {
    let store = context.store()?;
    let needed = ply_host::needed_by(&context.dirs)?;
    let entries = store.list()?;
    for image in images {
        let hex = image.strip_prefix("sha256:").unwrap_or(image);
        let long_enough = hex.len() >= 6;
        let matches: Vec<&Entry> = entries
            .iter()
            .filter(|e| e.name.to_string() == *image || (long_enough && e.digest.hex().starts_with(hex)))
            .collect();
        let entry = match matches[..] {
            [entry] => entry,
            [] => {
                return Err(Failure::new(format!("no image in the store is {image:?}"))
                    .hint("ply store ls lists them; write a file name, or six or more digits of a digest"));
            }
            _ => {
                return Err(Failure::new(format!("{} images in the store are {image:?}", matches.len()))
                    .hint("write more digits of the digest that ply store ls shows"));
            }
        };
        if let Some(who) = needed.get(&entry.digest) {
            return Err(Failure::new(format!("{} is needed by {}", entry.name, who.join(", ")))
                .hint(format!("ply rm {} forgets that app", who[0])));
        }
        ply_host::remove_image(&store, entry)?;
        put(&format!("removed {}  {}", entry.name, entry.digest));
    }
    Ok(ExitCode::SUCCESS)
}
