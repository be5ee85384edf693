//! Drives the forge by hand: `forge base SUITE OUT`, `forge deb PACKAGE OUT [WITH]…`,
//! `forge all RECIPES REGISTRY [ARCH]…`.

use ply_forge::{AllRequest, BaseRequest, DebRequest, Forge, ForgeOptions, Observer};
use ply_image::Dirs;
use ply_manifest::Arch;
use std::sync::Arc;

#[derive(Debug)]
struct Loud;

impl Observer for Loud {
    fn note(&self, text: &str) {
        eprintln!("note: {text}");
    }

    fn step(&self, text: &str) {
        eprintln!("{text}");
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut options = ForgeOptions::new(&Dirs::from_env().expect("dirs"));
    options.observer = Arc::new(Loud);
    let forge = Forge::new(options).unwrap_or_else(|e| panic!("{e}"));
    let began = std::time::Instant::now();
    if args[0] == "all" {
        let mut request = AllRequest::new(&args[1], &args[2]);
        if args.len() > 3 {
            request.archs = args[3..].iter().map(|a| a.parse().expect("arch")).collect();
        }
        let report = forge.all(&request).unwrap_or_else(|e| panic!("{e}\n{:?}", e.hint()));
        for one in &report.minted {
            println!("minted {} {} bytes {}", one.image, one.bytes, one.digest);
            one.notes.iter().for_each(|n| println!("  {n}"));
        }
        report.unchanged.iter().for_each(|i| println!("unchanged {i}"));
        report
            .failed
            .iter()
            .for_each(|f| println!("failed {} {}: {} ({:?})", f.name, f.arch, f.error, f.error.hint()));
        eprintln!("{:?}, {} bytes fetched", began.elapsed(), forge.downloaded());
        return;
    }
    let made = match args[0].as_str() {
        "base" => forge.base(&BaseRequest {
            suite: args[1].clone(),
            arch: args.get(3).map_or(Arch::HOST, |a| a.parse().expect("arch")),
            out: args[2].clone().into(),
        }),
        "deb" => {
            let mut request = DebRequest::new(&args[1]);
            request.out = args[2].clone().into();
            request.with = args[3..].to_vec();
            forge.deb(&request)
        }
        other => panic!("{other}?"),
    };
    let made = made.unwrap_or_else(|e| panic!("{e}\n{:?}", e.hint()));
    println!("{} {} bytes {} files {}", made.image, made.bytes, made.files, made.digest);
    println!("{}", made.manifest_text);
    for line in &made.packages {
        println!("{:30} {:30} {:8} KiB", line.name, line.version, line.installed_kib);
    }
    for one in &made.unresolved {
        println!("unresolved: {} needs {}", one.file, one.library);
    }
    for note in &made.notes {
        println!("note: {note}");
    }
    eprintln!("{:?}, {} bytes fetched", began.elapsed(), forge.downloaded());
}
