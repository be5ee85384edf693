//! Packing, beside `mksquashfs` at the same zstd level.

use crate::{Options, tree};
use anyhow::{Context, Result, ensure};
use ply_bench::{Row, duel};
use ply_image::{LEVEL_BUILD, LEVEL_FORGE, PackOptions, ScanOptions, Tree};
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// The word that makes this binary pack: `TREE IMAGE LEVEL THREADS`.
pub(crate) const CHILD: &str = "child-pack";

pub(crate) fn child(args: &[String]) -> Result<()> {
    let [tree, image, level, threads] = args else { anyhow::bail!("{CHILD} TREE IMAGE LEVEL THREADS") };
    let tree = Tree::scan(Path::new(tree), &ScanOptions { keep_owners: true, ..ScanOptions::default() })?;
    let mut options = PackOptions::new(level.parse()?);
    options.keep_owners = true;
    options.threads = threads.parse()?;
    let mut out = File::options().read(true).write(true).create(true).truncate(true).open(image)?;
    ply_image::pack(&tree, &options, &mut out)?;
    Ok(())
}

/// Packs `tree` in a process of its own.
pub(crate) fn command(tree: &Path, image: &Path, level: i32, threads: usize) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(CHILD).arg(tree).arg(image).args([level.to_string(), threads.to_string()]);
    Ok(command)
}

pub(crate) fn run(options: &Options) -> Result<Vec<Row>> {
    let tree = tree::debian()?;
    let dir = tree::scratch()?;
    let (ours, theirs) = (dir.join("ours.img"), dir.join("theirs.img"));
    let mut rows = Vec::new();
    for level in [LEVEL_BUILD, LEVEL_FORGE] {
        let result = duel(options.rounds, &mut || command(&tree, &ours, level, 0), &mut || {
            let mut command = Command::new("mksquashfs");
            command.arg(&tree).arg(&theirs).args([
                "-comp",
                "zstd",
                "-Xcompression-level",
                &level.to_string(),
            ]);
            command.args(["-noappend", "-quiet", "-no-progress"]);
            Ok(command)
        })
        .context("mksquashfs is in Debian's squashfs-tools")?;
        let peer = "mksquashfs";
        let sizes = (ours.metadata()?.len(), theirs.metadata()?.len());
        let what = |what: &str| format!("pack, level {level}: {what}");
        rows.push(Row::time(what("wall"), result.ours.wall, peer, result.peer.wall, Some(1.0)));
        rows.push(Row::time(what("processor"), result.ours.cpu, peer, result.peer.cpu, None));
        rows.push(Row::size(what("size"), sizes.0, peer, sizes.1, Some(1.01)));
        rows.push(Row::size(what("peak memory"), result.ours.peak, peer, result.peer.peak, Some(0.25)));
        let one = dir.join("one-thread.img");
        ply_bench::measure(&mut command(&tree, &one, level, 1)?)?;
        // By another process: what this one ever held would count as its children's.
        let same = Command::new("cmp").arg(&one).arg(&ours).status()?.success();
        ensure!(same, "one thread packs other bytes than several");
    }
    Ok(rows)
}
