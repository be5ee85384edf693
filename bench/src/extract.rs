//! Extracting, beside `unsquashfs`, as root with owners kept.

use crate::{Options, pack, tree};
use anyhow::{Context, Result};
use ply_bench::{Row, duel, measure};
use ply_image::{ExtractOptions, Image, LEVEL_FORGE};
use std::process::Command;

/// The word that makes this binary extract: `IMAGE FOLDER`.
pub(crate) const CHILD: &str = "child-extract";

pub(crate) fn child(args: &[String]) -> Result<()> {
    let [image, target] = args else { anyhow::bail!("{CHILD} IMAGE FOLDER") };
    std::fs::create_dir(target)?;
    Image::open(image)?.extract(target, &ExtractOptions { owners: true, ..ExtractOptions::default() })?;
    Ok(())
}

pub(crate) fn run(options: &Options) -> Result<Vec<Row>> {
    let tree = tree::debian()?;
    let dir = tree::scratch()?;
    let image = dir.join("extract.img");
    measure(&mut pack::command(&tree, &image, LEVEL_FORGE, 0)?)?;
    let target = dir.join("extracted");
    let clear = || match std::fs::remove_dir_all(&target) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    };
    let result = duel(
        options.rounds,
        &mut || {
            clear()?;
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(CHILD).arg(&image).arg(&target);
            Ok(command)
        },
        &mut || {
            clear()?;
            let mut command = Command::new("unsquashfs");
            command.args(["-quiet", "-no-progress", "-dest"]).arg(&target).arg(&image);
            Ok(command)
        },
    )
    .context("unsquashfs is in Debian's squashfs-tools")?;
    clear()?;
    let peer = "unsquashfs";
    Ok(vec![
        Row::time("extract: wall", result.ours.wall, peer, result.peer.wall, Some(1.0)),
        Row::time("extract: processor", result.ours.cpu, peer, result.peer.cpu, None),
        Row::size("extract: peak memory", result.ours.peak, peer, result.peer.peak, None),
    ])
}
