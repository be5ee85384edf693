//! Extracting, beside `unsquashfs`, as root with owners kept.

use crate::{Options, pack, tree};
use anyhow::{Context, Result};
use ply_bench::{Row, duel, measure};
use ply_image::{ExtractOptions, Image, LEVEL_FORGE};
use std::cell::Cell;
use std::process::Command;

/// The word that makes this binary extract: `IMAGE FOLDER`.
pub(crate) const CHILD: &str = "child-extract";

pub(crate) fn child(args: &[String]) -> Result<()> {
    let [image, target] = args else { anyhow::bail!("{CHILD} IMAGE FOLDER") };
    std::fs::create_dir(target)?;
    Image::open(image)?
        .extract(target, &ExtractOptions { owners: ply_image::Owners::Image, ..ExtractOptions::default() })?;
    Ok(())
}

pub(crate) fn run(options: &Options) -> Result<Vec<Row>> {
    let tree = tree::debian()?;
    let dir = tree::scratch()?;
    let image = dir.join("extract.img");
    measure(&mut pack::command(&tree, &image, LEVEL_FORGE, 0)?)?;
    // A folder for each turn, removed only at the end: for half a minute after a removal ext4 searches for inodes
    // that were not just freed, which takes longer than all the rest.
    let folders = dir.join("extracted");
    let _ = std::fs::remove_dir_all(&folders);
    std::fs::create_dir(&folders)?;
    let next = Cell::new(0);
    let fresh = || {
        next.set(next.get() + 1);
        folders.join(next.get().to_string())
    };
    let result = duel(
        options.rounds,
        &mut || {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(CHILD).arg(&image).arg(fresh());
            Ok(command)
        },
        &mut || {
            let mut command = Command::new("unsquashfs");
            command.args(["-quiet", "-no-progress", "-dest"]).arg(fresh()).arg(&image);
            Ok(command)
        },
    )
    .context("unsquashfs is in Debian's squashfs-tools");
    std::fs::remove_dir_all(&folders)?;
    let result = result?;
    let peer = "unsquashfs";
    Ok(vec![
        Row::time("extract: wall", result.ours.wall, peer, result.peer.wall, Some(1.0)),
        Row::time("extract: processor", result.ours.cpu, peer, result.peer.cpu, None),
        Row::size("extract: peak memory", result.ours.peak, peer, result.peer.peak, None),
    ])
}
