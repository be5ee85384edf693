//! Drives the forge by hand: `forge base SUITE OUT`, `forge deb PACKAGE OUT [--with P]…`.

use ply_forge::{BaseRequest, DebRequest, Forge, ForgeOptions, Observer};
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
