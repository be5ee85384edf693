//! The examples are what they say: their manifests are valid, what they ship is there, and the one without a
//! manifest is recognised.

use ply_build::ship::{self, Include};
use ply_build::{Stack, detect, init_manifest};
use ply_manifest::{Entrypoint, Manifest};
use std::path::PathBuf;

fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn manifest(folder: &str) -> Manifest {
    let path = examples().join(folder).join("ply.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    Manifest::parse(&text, &path.display().to_string()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_example_has_a_readme_that_says_how_to_run_it() {
    let mut found = Vec::new();
    for entry in examples().read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let readme = std::fs::read_to_string(path.join("README.md")).unwrap();
            assert!(readme.contains("    ply run "), "{}", path.display());
            found.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    found.sort();
    assert_eq!(found, ["no-manifest", "node-hello", "python-hello", "redis", "static-binary"]);
}

#[test]
fn every_manifest_is_valid_and_ships_what_it_starts() {
    for (folder, made) in [("node-hello", None), ("python-hello", None), ("static-binary", Some("hello"))] {
        let manifest = manifest(folder);
        let include = Include::parse(&manifest.build.include).unwrap();
        let Some(Entrypoint::Argv(argv)) = &manifest.run.entrypoint else { panic!("{folder}: an argv") };
        let started = argv.last().unwrap().trim_start_matches("./");
        assert!(include.covers(started.as_bytes(), ship::EntryKind::File(1)), "{folder}: {started} ships");
        for entry in manifest.build.include.iter().filter(|e| Some(e.as_str()) != made) {
            assert!(examples().join(folder).join(entry).is_file(), "{folder}: {entry} is there");
        }
        assert_eq!(manifest.run.ports.len(), 1, "{folder}");
    }
}

#[test]
fn the_directory_without_a_manifest_is_recognised_whole() {
    let detected = detect(&examples().join("no-manifest")).unwrap();
    assert_eq!((detected.stack, detected.port, detected.notes.len()), (Stack::Node, Some(3000), 0));
    insta::assert_snapshot!(init_manifest(&detected));
}
