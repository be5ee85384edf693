//! What is packed and extracted: a Debian tree of some 190 MB, made once and kept in `.cache`.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tree's size where it has to be made from the host's own files.
const BYTES: u64 = 190_000_000;

/// A folder for what the measurements make.
pub(crate) fn scratch() -> Result<PathBuf> {
    let dir = PathBuf::from(".cache/bench");
    std::fs::create_dir_all(&dir).context("run it from the top folder of the repository")?;
    Ok(dir)
}

/// The Debian tree, or as much of the host's `/usr` where none can be made.
pub(crate) fn debian() -> Result<PathBuf> {
    let tree = scratch()?.join("tree");
    if tree.is_dir() {
        return Ok(tree);
    }
    let half = scratch()?.join("tree.half");
    let _ = std::fs::remove_dir_all(&half);
    eprintln!("making the tree once, with mmdebstrap");
    let made = Command::new("mmdebstrap")
        .args(["--quiet", "--variant=important", "--mode=root", "trixie"])
        .arg(&half)
        .status()
        .is_ok_and(|status| status.success());
    if made {
        for special in std::fs::read_dir(half.join("dev"))?.flatten() {
            let path = special.path();
            let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
        }
    } else {
        eprintln!("that did not work: taking files of /usr instead");
        let _ = std::fs::remove_dir_all(&half);
        let mut left = BYTES;
        copy(Path::new("/usr"), &half, &mut left)?;
    }
    std::fs::rename(&half, &tree)?;
    Ok(tree)
}

/// Copies files and symlinks in sorted order until there are enough.
fn copy(from: &Path, to: &Path, left: &mut u64) -> Result<()> {
    std::fs::create_dir_all(to)?;
    let mut entries: Vec<_> = std::fs::read_dir(from)?.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, copy_to) = (entry.path(), to.join(entry.file_name()));
        let meta = std::fs::symlink_metadata(&path)?;
        if *left == 0 {
            break;
        } else if meta.is_dir() {
            copy(&path, &copy_to, left)?;
        } else if meta.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&path)?, &copy_to)?;
        } else if meta.is_file() {
            std::fs::copy(&path, &copy_to)?;
            *left = left.saturating_sub(meta.len());
        }
    }
    Ok(())
}
