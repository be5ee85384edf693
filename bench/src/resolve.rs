//! Resolving and locking a graph of 1,000 packages that the store already holds, from a folder that lists them: without a lock, and
//! with one that still satisfies.

use crate::{Options, tree};
use anyhow::{Context, Result, bail};
use ply_bench::{Row, measure, median};
use ply_image::{Attr, Dirs, LEVEL_BUILD, PackOptions, Source, Store, Tree, pack};
use ply_manifest::{Lock, Manifest};
use ply_source::{FetchOptions, Fetcher, Mode};
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The word that makes this binary resolve: `FOLDER`, in which are `packages`, `data`, `ply.toml` and perhaps `ply.lock`.
pub(crate) const CHILD: &str = "child-resolve";
/// How many packages the graph has, base included.
const PACKAGES: usize = 1000;
/// The most that one resolution may take.
const LIMIT: Duration = Duration::from_millis(100);

/// What a build does: reads manifest and lock, resolves, writes the lock if it changed.
pub(crate) fn child(args: &[String]) -> Result<()> {
    let [dir] = args else { bail!("{CHILD} FOLDER") };
    let dir = Path::new(dir);
    let dirs = Dirs { data: dir.join("data"), run: dir.join("run"), config: dir.join("config") };
    let mut options = FetchOptions::new(Store::open(&dirs)?, &dirs)?;
    options.source = Some(dir.join("packages").display().to_string().parse()?);
    let manifest = Manifest::parse(&std::fs::read_to_string(dir.join("ply.toml"))?, "ply.toml")?;
    let at = dir.join("ply.lock");
    let lock = match std::fs::read_to_string(&at) {
        Ok(text) => Some(Lock::parse(&text, "ply.lock")?),
        Err(_) => None,
    };
    let found = Fetcher::new(options).resolve(&manifest, lock.as_ref(), Mode::Keep)?;
    if found.packages.len() != PACKAGES {
        bail!("{} packages were resolved, not {PACKAGES}", found.packages.len());
    }
    if found.changed {
        std::fs::write(at, found.lock.to_string())?;
    }
    Ok(())
}

pub(crate) fn run(options: &Options) -> Result<Vec<Row>> {
    let scratch = tree::scratch()?.canonicalize()?.join("resolve");
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch)?;
    }
    let packages = scratch.join("packages");
    std::fs::create_dir_all(&packages)?;
    publish(&packages)?;
    let root = "[package]\nname = \"app\"\nversion = \"1.0.0\"\n[build]\nbase = \"debian@13\"\n\
                [build.dependencies]\np0 = \"1\"\np1 = \"1\"\n[run]\nentrypoint = [\"/opt/app/app\"]\n";
    std::fs::write(scratch.join("ply.toml"), root)?;
    let lock = scratch.join("ply.lock");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(CHILD).arg(&scratch);
    // The first fills the store.
    measure(&mut command).context("the graph does not resolve")?;
    let (mut fresh, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        std::fs::remove_file(&lock)?;
        fresh.push(measure(&mut command)?);
        kept.push(measure(&mut command)?);
    }
    let (fresh, kept) = (median(&fresh), median(&kept));
    Ok(vec![
        Row::at_most("resolve 1,000 packages: no lock yet", fresh.wall, LIMIT),
        Row::at_most("resolve 1,000 packages: lock kept", kept.wall, LIMIT),
        Row::at_most("resolve 1,000 packages: no lock yet, processor", fresh.cpu, LIMIT),
        Row::at_most("resolve 1,000 packages: lock kept, processor", kept.cpu, LIMIT),
    ])
}

/// A base, and 999 packages in two versions each, of which each asks for up to five behind it; now and then for the newer one.
fn publish(folder: &Path) -> Result<()> {
    image(folder, "debian", "13.0.0", "[build]\nbase = true\n[layer]\nabi = \"linux-{arch}-gnu\"\n")?;
    for i in 0..PACKAGES - 1 {
        let mut rest = format!(
            "description = \"Package {i} of a graph\"\nlicense = \"MIT\"\n[build]\nbase = \"debian@13\"\n[build.dependencies]\n"
        );
        for step in [1, 2, 7, 31, 127] {
            if i + step < PACKAGES - 1 {
                let range = if (i + step).is_multiple_of(50) { "1.1" } else { "1" };
                writeln!(rest, "p{} = \"{range}\"", i + step)?;
            }
        }
        writeln!(rest, "[layer]\npath = [\"/opt/p{i}/bin\"]\nabi = \"linux-{{arch}}-gnu\"")?;
        for version in ["1.0.0", "1.1.0"] {
            image(folder, &format!("p{i}"), version, &rest)?;
        }
    }
    Ok(())
}

fn image(folder: &Path, name: &str, version: &str, rest: &str) -> Result<()> {
    let text = format!("[package]\nname = \"{name}\"\nversion = \"{version}\"\n{rest}");
    let mut tree = Tree::new();
    tree.add_file(".manifest.toml", Source::Bytes(text.into_bytes()), Attr::mode(0o644))?;
    let path = folder.join(format!("{name}-{version}-linux-{}.img", ply_manifest::Arch::HOST));
    let mut file = File::options().read(true).write(true).create_new(true).open(path)?;
    pack(&tree, &PackOptions { threads: 1, ..PackOptions::new(LEVEL_BUILD) }, &mut file)?;
    Ok(())
}
