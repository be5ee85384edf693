//! What is compiled before it is packed: Go, Rust, Java, and a binary that is there already.

use super::{Detected, Peek, Stack, argv, debian};
use crate::elf::{self, ElfFacts};
use ply_manifest::{Arch, PackageName};
use toml_edit::DocumentMut;

/// Folders that a server of one program reads at run time.
const ASSETS: [&str; 9] =
    ["assets", "config", "locales", "migrations", "public", "static", "templates", "views", "web"];

/// An app that is one program at `path`, which is there, or which `command` makes. `dynamic` says whether the
/// program needs a C library when it can't be asked.
pub(super) fn one_program(
    peek: &Peek,
    mut found: Detected,
    path: &str,
    command: &str,
    dynamic: bool,
) -> Detected {
    let there = peek.executable(path).and_then(|bytes| elf::facts(&bytes));
    let needs_base = match &there {
        Some(facts) => {
            explain(&mut found, path, facts);
            is_dynamic(facts)
        }
        None => {
            found.notes.push(format!("{path} isn't there yet: run {command} before ply build"));
            dynamic
        }
    };
    if needs_base {
        found.base = Some(debian());
    }
    found.include = vec![path.to_owned()];
    found.include.extend(ASSETS.iter().filter(|a| peek.is_dir(a)).map(|a| format!("{a}/")));
    found.start(argv(&[&format!("./{path}")]))
}

fn is_dynamic(facts: &ElfFacts) -> bool {
    facts.interpreter.is_some() || !facts.needed.is_empty()
}

/// Says what would keep a program from starting.
fn explain(found: &mut Detected, path: &str, facts: &ElfFacts) {
    if facts.machine != Arch::HOST.as_str() {
        found
            .notes
            .push(format!("{path} is for {}: build the image with --arch {}", facts.machine, facts.machine));
    }
    if facts.interpreter.as_deref().is_some_and(|i| i.contains("ld-musl")) {
        found.notes.push(format!(
            "{path} was linked against musl, which the base debian doesn't have: link it statically"
        ));
    }
}

pub(super) fn go(peek: &Peek) -> Option<Detected> {
    let module = peek.text("go.mod")?;
    let name = module.lines().find_map(|l| l.trim().strip_prefix("module ")).map(|m| {
        let m = m.trim().trim_matches('"');
        // A major version at the end (`…/app/v2`) is not the name.
        let last = m.rsplit('/').next().unwrap_or(m);
        let is_major =
            last.len() > 1 && last.starts_with('v') && last[1..].bytes().all(|b| b.is_ascii_digit());
        if is_major { m.rsplit('/').nth(1).unwrap_or(m).to_owned() } else { last.to_owned() }
    });
    let found = Detected::of(peek, Stack::Go, "go.mod").identity(name.as_deref(), None, None);
    let out = programs(peek, &["", "bin/"]).into_iter().next().unwrap_or_else(|| found.name.to_string());
    let package = if peek.is_file("main.go") {
        ".".to_owned()
    } else {
        match peek.names("cmd").as_slice() {
            [] => ".".to_owned(),
            all => format!("./cmd/{}", all.iter().find(|n| **n == out).unwrap_or(&all[0])),
        }
    };
    let command = format!("CGO_ENABLED=0 go build -o {out} {package}");
    Some(one_program(peek, found, &out, &command, false))
}

pub(super) fn rust(peek: &Peek) -> Option<Detected> {
    let manifest: DocumentMut = peek.text("Cargo.toml")?.parse().ok()?;
    let package = manifest.get("package");
    let field = |name: &str| package.and_then(|p| p.get(name)).and_then(|v| v.as_str());
    let mut found = Detected::of(peek, Stack::Rust, "Cargo.toml").identity(
        field("name"),
        field("version"),
        field("description"),
    );
    found.license = field("license").map(str::to_owned);
    let binary = field("name").unwrap_or(found.name.as_str()).to_owned();
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let places = [format!("target/{target}/release/{binary}"), format!("target/release/{binary}")];
    let there = places.iter().find(|p| peek.executable(p).is_some());
    let path = there.unwrap_or(&places[0]).clone();
    let command = format!("cargo build --release --target {target}");
    Some(one_program(peek, found, &path, &command, false))
}

pub(super) fn java(peek: &Peek) -> Option<Detected> {
    let jars = |folder: &str| -> Option<String> {
        let extra = ["-sources.jar", "-javadoc.jar", "-plain.jar", "-tests.jar"];
        let wanted = |n: &String| {
            n.ends_with(".jar") && !n.starts_with("original-") && !extra.iter().any(|e| n.ends_with(e))
        };
        peek.names(folder)
            .into_iter()
            .find(wanted)
            .map(|n| if folder == "." { n } else { format!("{folder}/{n}") })
    };
    let built = peek.first(&["pom.xml", "build.gradle", "build.gradle.kts"]);
    let jar = jars("target").or_else(|| jars("build/libs")).or_else(|| jars("."));
    let evidence = built.map(str::to_owned).or_else(|| jar.clone())?;
    let pom = peek.text("pom.xml").unwrap_or_default();
    // The project's own name and version stand outside of <parent>.
    let own = match (pom.find("<parent>"), pom.find("</parent>")) {
        (Some(from), Some(to)) if from < to => format!("{}{}", &pom[..from], &pom[to..]),
        _ => pom.clone(),
    };
    let tag = |name: &str| {
        let rest = own.split(&format!("<{name}>")).nth(1)?;
        Some(rest.split('<').next()?.trim().to_owned())
    };
    let (artifact, version) = (tag("artifactId"), tag("version"));
    let found = Detected::of(peek, Stack::Java, &evidence)
        .identity(artifact.as_deref(), version.as_deref(), tag("description").as_deref())
        .on("openjdk-jre", "21");
    let gradle = built.and_then(|b| peek.text(b)).unwrap_or_default();
    let (jar, found) = match jar {
        Some(jar) => (jar, found),
        None => {
            let (folder, command) = match built {
                Some("pom.xml") => ("target", "mvn package"),
                _ => ("build/libs", "gradle build"),
            };
            let artifact = artifact.unwrap_or_else(|| found.name.to_string());
            let version = version.map(|v| format!("-{v}")).unwrap_or_default();
            let jar = format!("{folder}/{artifact}{version}.jar");
            let note = format!("{jar} isn't there yet: run {command} before ply build");
            (jar, found.note(note))
        }
    };
    let mut found = found.start(argv(&["java", "-jar", &jar]));
    found.include = vec![jar];
    Some(if pom.contains("spring-boot") || gradle.contains("springframework.boot") {
        found.port(8080)
    } else {
        found
    })
}

/// Executables for Linux in these folders, the one named as the directory first.
fn programs(peek: &Peek, folders: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for folder in folders {
        let names = if folder.is_empty() { peek.top.clone() } else { peek.names(folder) };
        let paths = names.into_iter().map(|n| format!("{folder}{n}"));
        all.extend(paths.filter(|p| {
            let facts = peek.executable(p).and_then(|bytes| elf::facts(&bytes));
            // A shared library may be marked executable; it asks for no loader and has no entry point.
            facts.is_some_and(|f| {
                f.loadable
                    && (f.interpreter.is_some() || f.starts)
                    && !p.ends_with(".so")
                    && !p.contains(".so.")
            })
        }));
    }
    let own = |p: &String| p.rsplit('/').next().and_then(PackageName::fold).is_none_or(|n| n != peek.name);
    all.sort_by_key(own);
    all
}

pub(super) fn binary(peek: &Peek) -> Option<Detected> {
    let all = programs(peek, &["", "bin/", "zig-out/bin/", "build/"]);
    let path = all.first()?.clone();
    let mut found = Detected::of(peek, Stack::Binary, &path);
    if all.len() > 1 {
        found.notes.push(format!("several programs are there: {}; the first starts", all.join(", ")));
    }
    let mut found = one_program(peek, found, &path, "the app's own build", false);
    // Everything ships: what else a lone program needs can't be told.
    found.include.clear();
    Some(found)
}
