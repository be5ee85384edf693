//! Whole files as properties: what prints reads back, and two readers of one file agree.

use ply_manifest::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn digests() -> impl Strategy<Value = BTreeMap<Arch, Digest>> {
    let arch = prop_oneof![Just(Arch::X64), Just(Arch::Arm64)];
    prop::collection::btree_map(arch, any::<[u8; 32]>().prop_map(Digest::from_bytes), 0..3)
}

fn noun<T: std::str::FromStr<Err = NounError> + std::fmt::Debug + 'static>(
    pattern: &'static str,
) -> BoxedStrategy<T> {
    pattern.prop_filter_map("no such noun", |text: String| text.parse::<T>().ok()).boxed()
}

fn locks() -> impl Strategy<Value = Lock> {
    let version =
        || noun::<Version>("[0-9]\\.[0-9]{1,3}\\.[0-9](-rc\\.[0-9])?(\\+[a-z0-9]{1,5}(\\.[0-9])?)?");
    let source = noun::<SourceSpec>(
        "(file://)?/[a-z \"\\\\é]{0,8}(/\\{package\\})?|https://[a-z]{1,8}\\.example/[a-z\"]{0,4}\\{owner\\}",
    );
    let name = noun::<PackageName>("[a-z][a-z0-9.+_]{0,8}");
    let package = (name, version(), source, digests())
        .prop_map(|(name, version, source, digest)| LockedPackage { name, version, source, digest });
    let packages = prop::collection::vec(package, 0..6).prop_map(|mut all| {
        let mut seen = std::collections::BTreeSet::new();
        all.retain(|p| seen.insert(p.name.clone()));
        all
    });
    let service = ("[^\\p{C}]{0,12}", version(), digests())
        .prop_map(|(reference, version, digest)| LockedService { reference, version, digest });
    let services = prop::collection::btree_map("[a-zA-Z0-9][a-zA-Z0-9._-]{0,8}", service, 0..4);
    (packages, services).prop_map(|(packages, services)| Lock { packages, services })
}

proptest! {
    #[test]
    fn a_lock_prints_as_what_reads_back(lock in locks()) {
        let printed = lock.to_string();
        prop_assert_eq!(Lock::parse(&printed, "ply.lock").map_err(|f| f.to_string()), Ok(lock));
    }

    #[test]
    fn an_env_file_gives_back_what_was_written(pairs in prop::collection::btree_map("[A-Z][A-Z0-9_.]{0,8}", "[^\\x00\\r\\n]{0,20}", 0..8)) {
        let text: String = pairs.iter().map(|(k, v)| format!("{k}=\"{v}\"\n")).collect();
        let read = EnvFile::parse(&text, ".env")?;
        prop_assert_eq!(read, pairs.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_literal_with_its_marks_doubled_fills_to_itself(text in "[^\\x00]{0,40}") {
        let escaped = text.replace('{', "{{").replace('}', "}}").replace('$', "$$");
        let declared = BTreeMap::new();
        let none = BTreeMap::new();
        let missing = || Err("none".to_owned());
        let facts = Facts { name: "a".into(), version: "1.0.0".into(), arch: "x64".into(), image: "a".into(), scale: 1, host: missing(), port: Err("none".into()) };
        let params = Params { app: "a", declared: Some(&declared), overrides: &none, secrets: None, facts: &facts };
        let env = params.env(&[("A".to_owned(), escaped)], &[], &|_| None);
        prop_assert_eq!(&env.expect("nothing to fill")[0].value, &text);
    }
}

/// Every table and key of a manifest, moved about: the order of a file never changes what it says.
#[test]
fn the_order_of_tables_changes_nothing_but_the_order_of_env() {
    let text = include_str!("data/flat.toml");
    let (head, rest) = text.split_once("\n[dependencies]").unwrap();
    let rest = format!("[dependencies]{rest}");
    let mut tables: Vec<&str> = rest.split("\n\n").collect();
    let straight = Manifest::parse(text, "ply.toml").unwrap();
    for _ in 0..tables.len() {
        tables.rotate_left(1);
        let turned = format!("{head}\n\n{}\n", tables.join("\n\n"));
        assert_eq!(Manifest::parse(&turned, "ply.toml").as_ref(), Ok(&straight));
    }
}

/// Our walk over spans and the library's own deserializer see the same values.
#[test]
fn json_of_toml_is_what_the_library_reads() {
    let files = [
        include_str!("data/grouped.toml"),
        include_str!("data/stack.toml"),
        include_str!("data/ply.lock"),
        "a = 0x1f\nb = 1e3\nc = -0.5\nd = [true, [], {}]\n",
    ];
    for text in files {
        let theirs: serde_json::Value = toml::from_str(text).unwrap();
        assert_eq!(toml_to_json(text, "ply.toml").unwrap(), theirs);
    }
    let odd = toml_to_json("a = nan\nb = -inf\nc = 1979-05-27\n", "ply.toml").unwrap();
    assert_eq!(odd.to_string(), r#"{"a":"nan","b":"-inf","c":"1979-05-27"}"#);
    assert!(toml_to_json("a = 9223372036854775808\n", "ply.toml").is_err());
}

#[test]
fn a_catalog_leaves_out_what_it_can_t_trust_and_says_so() {
    let text = r#"{"new": {}, "packages": [
      {"name": "Bad Name", "versions": []},
      {"name": "a", "namespace": null, "versions": [
        {"version": "1.0.0", "img": "a-1.0.0-linux-arm64.img", "volumes": null, "sha256": "0cf857870cf857870cf857870cf857870cf857870cf857870cf857870cf85787"},
        {"version": "1.0", "img": "a-1.0.0-linux-x64.img"},
        {"version": "2.0.0", "img": "b-2.0.0-linux-x64.img"},
        {"version": "3.0.0", "img": "a-3.0.0-linux-x64.img", "arch": "arm64"},
        {"version": "4.0.0", "img": "a-4.0.0-linux-x64.img", "sha256": "beef"},
        {"version": "5.0.0", "src": "https://packages.example/a-5.0.0-linux-x64.img"},
        {"version": "6.0.0", "img": null, "src": "https://packages.example/a-6.0.0.toml"}]}]}"#;
    let catalog = Catalog::parse(text, "state.json").unwrap();
    let versions = &catalog.packages[0].versions;
    let seen: Vec<(String, Option<Arch>)> =
        versions.iter().map(|v| (v.version.to_string(), v.arch)).collect();
    assert_eq!(
        seen,
        [("1.0.0".into(), Some(Arch::Arm64)), ("5.0.0".into(), Some(Arch::X64)), ("6.0.0".into(), None)]
    );
    assert!(versions[0].sha256.is_some());
    insta::assert_snapshot!(catalog.skipped.join("\n"), @r#"
    "Bad Name" is not a package name: a name has only lower-case letters, digits and . _ - +
    a "1.0": "1.0" is not a version: it has not three parts
    a "2.0.0": its file is named b-2.0.0-linux-x64.img
    a "3.0.0": it says arm64, and its file is for x64
    a "4.0.0": "sha256:beef" is not a digest
    "#);
    let index = Index::parse(
        r#"["b-2.0.0-linux-x64.img", "b-10.0.0-linux-x64.img", "x.toml", 3, "b-2.0.0-linux-x64.img"]"#,
        "index.json",
    );
    let names: Vec<String> = index.unwrap().images.iter().map(ImageName::to_string).collect();
    assert_eq!(names, ["b-2.0.0-linux-x64.img", "b-10.0.0-linux-x64.img"]);
}
