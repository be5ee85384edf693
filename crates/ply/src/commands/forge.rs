//! `ply forge`: mints bases and packages from what the machine's package managers give.

use crate::cli::noun;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{clean, put, size};
use clap::{Args, Subcommand};
use ply_forge::{AllRequest, BaseRequest, DebRequest, ForgeOptions, Minted, Observer};
use ply_manifest::{Arch, PackageName};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Mint bases and packages
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply forge all packages/ -o /srv/packages
                           mint what changed into a folder that is a registry
  ply forge base debian --suite trixie -o .
  ply forge deb ffmpeg -o .

Use the registry with PLY_REGISTRY=file:///srv/packages/{package}")]
pub(crate) struct ForgeArgs {
    #[command(subcommand)]
    what: Forge,
}

#[derive(Debug, Subcommand)]
enum Forge {
    /// Make a minimal base from a distribution
    Base(BaseArgs),
    /// Turn a Debian package into a keg
    Deb(DebArgs),
    /// Mint every recipe of a folder into a registry
    All(AllArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply forge base debian
  ply forge base debian --suite bookworm --arch arm64 -o /srv/packages/debian")]
struct BaseArgs {
    /// The distribution
    #[arg(value_parser = ["debian"])]
    distribution: String,
    /// The suite
    #[arg(long, default_value = "trixie")]
    suite: String,
    /// For this arch: x64 or arm64
    #[arg(long, value_name = "ARCH", value_parser = noun::<Arch>, default_value_t = Arch::HOST)]
    arch: Arch,
    /// Where to write the image
    #[arg(short = 'o', long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
    /// Another mirror than apt's own
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply forge deb ffmpeg
  ply forge deb redis-server --name redis --skip-so libsystemd.so.0 -o /srv/packages/redis")]
struct DebArgs {
    /// The Debian package
    package: String,
    /// The package's name in ply (default: folded from Debian's)
    #[arg(long, value_parser = noun::<PackageName>)]
    name: Option<PackageName>,
    /// The suite
    #[arg(long, default_value = "trixie")]
    suite: String,
    /// For this arch: x64 or arm64
    #[arg(long, value_name = "ARCH", value_parser = noun::<Arch>, default_value_t = Arch::HOST)]
    arch: Arch,
    /// Put another Debian package into the keg too
    #[arg(long, value_name = "PACKAGE")]
    with: Vec<String>,
    /// Leave a library out
    #[arg(long, value_name = "SONAME")]
    skip_so: Vec<String>,
    /// Make a link: A names B
    #[arg(long, value_name = "A=B")]
    symlink: Vec<String>,
    /// A folder of the keg for PATH
    #[arg(long, value_name = "DIR")]
    path: Vec<String>,
    /// Where to write the image
    #[arg(short = 'o', long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
    /// Another mirror than apt's own
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ply forge all packages/ -o /srv/packages
  ply forge all packages/ -o /srv/packages --only node --only redis")]
struct AllArgs {
    /// The folder of recipes
    #[arg(value_name = "DIR")]
    recipes: PathBuf,
    /// The registry's folder
    #[arg(short = 'o', long, value_name = "REGISTRY")]
    output: PathBuf,
    /// Only these recipes, and what they need
    #[arg(long, value_name = "NAME", value_parser = noun::<PackageName>)]
    only: Vec<PackageName>,
    /// For this arch: x64 or arm64
    #[arg(long, value_name = "ARCH", value_parser = noun::<Arch>, default_value_t = Arch::HOST)]
    arch: Arch,
    /// Another mirror than apt's own
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
}

pub(crate) fn run(args: ForgeArgs, context: &Context) -> Result<ExitCode, Failure> {
    match args.what {
        Forge::Base(args) => base(args, context),
        Forge::Deb(args) => deb(args, context),
        Forge::All(args) => all(args, context),
    }
}

/// Prints what minting says as it goes.
#[derive(Debug)]
struct Notes {
    quiet: bool,
    verbose: bool,
}

impl Observer for Notes {
    fn note(&self, text: &str) {
        if !self.quiet {
            eprintln!("note: {}", clean(text));
        }
    }

    fn step(&self, text: &str) {
        if self.verbose {
            eprintln!("{}", clean(text));
        }
    }
}

fn forge(mirror: Option<String>, context: &Context) -> Result<ply_forge::Forge, Failure> {
    let mut options = ForgeOptions::new(&context.dirs);
    options.mirror = mirror;
    options.observer = Arc::new(Notes { quiet: context.shared.quiet, verbose: context.shared.verbose });
    Ok(ply_forge::Forge::new(options)?)
}

fn base(args: BaseArgs, context: &Context) -> Result<ExitCode, Failure> {
    let request = BaseRequest { suite: args.suite, arch: args.arch, out: args.output };
    show(&forge(args.mirror, context)?.base(&request)?, context);
    Ok(ExitCode::SUCCESS)
}

fn deb(args: DebArgs, context: &Context) -> Result<ExitCode, Failure> {
    let mut request = DebRequest::new(&args.package);
    request.name = args.name;
    request.suite = args.suite;
    request.arch = args.arch;
    request.with = args.with;
    request.skip_so = args.skip_so;
    request.path = args.path;
    request.out = args.output;
    for link in args.symlink {
        let (from, to) = link.split_once('=').ok_or_else(|| {
            Failure::usage(format!("--symlink takes A=B: {link:?}")).hint("A is made, and names B")
        })?;
        request.symlinks.insert(from.to_owned(), to.to_owned());
    }
    let minted = forge(args.mirror, context)?.deb(&request)?;
    show(&minted, context);
    Ok(ExitCode::SUCCESS)
}

fn all(args: AllArgs, context: &Context) -> Result<ExitCode, Failure> {
    let mut request = AllRequest::new(args.recipes, args.output);
    request.only = args.only;
    request.archs = vec![args.arch];
    let report = forge(args.mirror, context)?.all(&request)?;
    for minted in &report.minted {
        show(minted, context);
    }
    if !report.unchanged.is_empty() {
        let names: Vec<String> = report.unchanged.iter().map(ToString::to_string).collect();
        context.say(format!("unchanged: {}", names.join(", ")));
    }
    if report.failed.is_empty() {
        context.say(format!("the registry: {}", report.source));
        return Ok(ExitCode::SUCCESS);
    }
    for failed in report.failed {
        let hint = failed.error.hint();
        Failure::new(format!("{}: {}", failed.name, failed.error)).maybe_hint(hint).report();
    }
    Ok(ExitCode::FAILURE)
}

/// One minted image: its closure with sizes, what is missing, and the line that names it.
fn show(minted: &Minted, context: &Context) {
    if context.shared.verbose {
        for line in &minted.packages {
            context.say(format!("  {} {}  {}", line.name, line.version, size(line.installed_kib * 1024)));
        }
    }
    for note in &minted.notes {
        context.say(format!("note: {note}"));
    }
    for missing in &minted.unresolved {
        context.say(format!("unresolved: {} wants {}", missing.file, missing.library));
    }
    put(&format!("{}  {}  {}", minted.path.display(), size(minted.bytes), minted.digest));
}
