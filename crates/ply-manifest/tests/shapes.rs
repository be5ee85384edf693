//! Whole files: the grouped and the flat form give one value, every key arrives where it belongs, and the
//! files beside the manifest read.

use ply_manifest::*;

const GROUPED: &str = include_str!("data/grouped.toml");
const FLAT: &str = include_str!("data/flat.toml");
const STACK: &str = include_str!("data/stack.toml");
const LEGACY: &str = include_str!("data/legacy-stack.toml");
const LOCK: &str = include_str!("data/ply.lock");

fn manifest(text: &str) -> Manifest {
    Manifest::parse(text, "ply.toml").unwrap_or_else(|faults| panic!("{faults}"))
}

#[test]
fn grouped_and_flat_are_one_value() {
    assert_eq!(manifest(GROUPED), manifest(FLAT));
}

#[test]
fn every_key_arrives() {
    let m = manifest(GROUPED);
    assert_eq!(m.kind(), Kind::App);
    assert_eq!(m.package.name.as_str(), "shop");
    assert_eq!(m.package.owner.unwrap().as_str(), "acme");
    let (base, dependency) = m.build.base.unwrap();
    assert_eq!(
        (base.as_str(), dependency.range, dependency.source.as_deref()),
        ("debian", Range::Major(13), Some("corp"))
    );
    assert_eq!(m.build.include, ["dist/", "*.json"]);
    assert_eq!(m.build.dependencies.len(), 3);
    assert_eq!(m.build.requires_abi.unwrap().for_arch(Arch::Arm64), "linux-x64-gnu");
    assert_eq!(m.layer.abi.unwrap().for_arch(Arch::Arm64), "linux-arm64-gnu");
    assert_eq!(m.layer.ld_library_path, ["/opt/shop-1.2.0/lib"]);
    assert_eq!(m.run.entrypoint.unwrap(), Entrypoint::Argv(vec!["node".into(), "server.js".into()]));
    assert_eq!(m.run.workdir.as_deref(), Some("/opt/shop"));
    assert_eq!(m.run.stop_signal.unwrap().to_string(), "SIGQUIT");
    assert_eq!(m.run.capabilities.to_string(), "chown,net_bind_service");
    assert_eq!(m.run.env[0], ("NODE_ENV".to_owned(), "production".to_owned()));
    assert_eq!(m.run.params.unwrap()["api_key"], Param::Secret { external: true });
    assert_eq!(m.run.ports["admin"], 3001);
    assert_eq!(m.run.volumes["uploads"].scope, VolumeScope::Shared);
    assert!(m.run.volumes["cache"].ephemeral);
    assert_eq!(m.run.egress.unwrap().len(), 6);
    assert_eq!(m.run.mem.unwrap(), Limit::Between { min: Bytes(256 << 20), max: Bytes(2 << 30) });
    assert_eq!(m.run.cpu.unwrap().max().millis, 1500);
    assert_eq!(m.run.pids, Some(256));
    let scale = m.run.scale.unwrap();
    assert_eq!((scale.min, scale.max, scale.signal), (0, 4, Some(ScaleSignal::Memory)));
    assert_eq!(scale.target.as_deref(), Some("70"));
    assert_eq!(m.run.health.unwrap().grace, Span::from_secs(45));
    assert_eq!(m.run.restart.policy, RestartPolicy::OnFailure);
    assert_eq!(m.run.link_requests.len(), 2);
    assert!(m.run.link_requests[0].read_only);
}

#[test]
fn only_package_is_required() {
    let m = manifest("[package]\nname = \"a\"\nversion = \"1.0.0\"\n");
    assert_eq!(m.kind(), Kind::Layer);
    assert_eq!(m.run, Run::default());
    let m = manifest("package = { name = \"debian\", version = \"13.0.0\", base = true }");
    assert_eq!(m.kind(), Kind::Base);
    let m = manifest("package = { name = \"a\", version = \"1.0.0\" }\nrun.entrypoint = [\"./a\"]");
    assert_eq!(m.kind(), Kind::App);
}

#[test]
fn braces_and_dollars_are_literal_without_params() {
    let head = "[package]\nname = \"a\"\nversion = \"1.0.0\"\n[run.env]\nA = \"{x} $Y }\"\n";
    assert_eq!(manifest(head).run.env[0].1, "{x} $Y }");
    assert!(Manifest::parse(&format!("{head}[run.params]\n"), "ply.toml").is_err());
}

#[test]
fn an_empty_egress_is_a_claim_and_a_missing_one_is_none() {
    let head = "[package]\nname = \"a\"\nversion = \"1.0.0\"\n";
    assert_eq!(manifest(head).run.egress, None);
    assert_eq!(manifest(&format!("{head}[run.network]\negress = []\n")).run.egress, Some(vec![]));
}

#[test]
fn health_takes_the_single_declared_port() {
    let text = "[package]\nname = \"a\"\nversion = \"1.0.0\"\n[run]\nports = { web = 80 }\nhealth = {}\n";
    assert_eq!(manifest(text).run.health, Some(Health { port: 80, grace: Span::from_secs(30) }));
}

#[test]
fn a_composition_reads_in_both_spellings() {
    let stack = Composition::parse(STACK, "ply.toml").unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(stack.env_file.as_deref(), Some(".env"));
    let names: Vec<&str> = stack.members.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["db", "server", "cache"]);
    let server = &stack.members[1];
    assert_eq!(server.env[0], ("DATABASE_URL".to_owned(), "{db.url}".to_owned()));
    assert_eq!(server.domain, ["stats.example.com"]);
    assert_eq!(server.egress.as_ref().unwrap().mode, EgressPolicy::Enforce);
    assert_eq!(stack.members[2].egress.as_ref().unwrap().mode, EgressPolicy::Off);
    assert_eq!(stack.members[2].git_ref.as_deref(), Some("v1.2"));

    let legacy = Composition::parse(LEGACY, "umami.stack.toml").unwrap_or_else(|f| panic!("{f}"));
    let grouped = LEGACY
        .replace("[stack]", "[package]")
        .replace("[[app]]", "[[service]]")
        .replace("\ne = ", "\nenv = ");
    assert_eq!(Ok(&legacy), Composition::parse(&grouped, "ply.toml").as_ref());
    assert_eq!(legacy.members[1].after, ["umami-db"]);
}

#[test]
fn a_document_is_told_apart_by_its_blocks() {
    assert!(matches!(Document::parse(GROUPED, "ply.toml"), Ok(Document::Package(_))));
    assert!(matches!(Document::parse(STACK, "ply.toml"), Ok(Document::Composition(_))));
    assert!(matches!(Document::parse(LEGACY, "ply.toml"), Ok(Document::Composition(_))));
}

#[test]
fn a_lock_prints_as_it_reads() {
    let lock = Lock::parse(LOCK, "ply.lock").unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(lock.to_string(), LOCK);
    assert_eq!(lock.packages[1].name.as_str(), "debian");
    assert_eq!(lock.services["db"].reference, "postgres@17");
    assert_eq!(Lock::parse("version = 1\n", "ply.lock"), Ok(Lock::default()));
    assert_eq!(Lock::default().to_string(), "version = 1\n");
}

#[test]
fn an_overlay_a_config_and_a_policy_read() {
    let overlay = DevOverlay::parse(include_str!("data/overlay.toml"), "ply.dev.toml").unwrap();
    assert_eq!(overlay.links, ["./src:src", "/tmp/cache:/var/cache/shop:ro"]);
    assert_eq!(overlay.env.len(), 1);
    let config = Config::parse("default_source = \"/srv/{package}\"", "config.toml").unwrap();
    assert_eq!(config.default_source.unwrap().template(), "/srv/{package}");
    assert_eq!(Config::parse("", "config.toml"), Ok(Config::default()));
    let policy = Policy::parse(include_str!("data/policy.toml"), "policy.toml").unwrap();
    assert_eq!(policy.bases.unwrap()[0].to_string(), "debian@13");
    assert_eq!(policy.forbidden_capabilities.len(), 2);
    assert!(policy.egress_declared);
}

#[test]
fn an_env_file_is_lines_and_nothing_is_expanded() {
    let text = "\u{feff}A=1\r\n# no\n\nB=\"two words\"\nC='x'\nD=\"x'\nE=a=b\nF=\nG=$A {x}\nA=2\n #X=1\n";
    let read = EnvFile::parse(text.replace(" #X=1\n", "").as_str(), ".env").unwrap();
    let expected =
        [("A", "2"), ("B", "two words"), ("C", "x"), ("D", "\"x'"), ("E", "a=b"), ("F", ""), ("G", "$A {x}")];
    assert_eq!(read, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
    for wrong in ["export A=1", "A", "=1", " A=1", "A B=1", "A\0=1", "A=\0"] {
        assert!(EnvFile::parse(wrong, ".env").is_err(), "{wrong:?}");
    }
}

/// The recipes of `packages/` are not among them: what a recipe mints gives them their version.
#[test]
fn every_example_of_this_repository_reads() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut read = 0;
    for entry in std::fs::read_dir(&examples).unwrap_or_else(|e| panic!("{}: {e}", examples.display())) {
        let file = entry.unwrap().path().join("ply.toml");
        // An example without a manifest is there on purpose.
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        Document::parse(&text, &file.display().to_string()).unwrap_or_else(|faults| panic!("{faults}"));
        read += 1;
    }
    assert!(read >= 3, "only {read} were found");
}
