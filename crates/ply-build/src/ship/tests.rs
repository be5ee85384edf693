use super::*;
use proptest::prelude::*;

/// `path/` is a folder, `path@` a symlink, the rest are files.
fn listing(paths: &[&str]) -> Vec<Entry> {
    paths
        .iter()
        .map(|p| match p.as_bytes() {
            [path @ .., b'/'] => Entry { path: path.to_vec(), kind: EntryKind::Dir },
            [path @ .., b'@'] => Entry { path: path.to_vec(), kind: EntryKind::Symlink },
            path => Entry { path: path.to_vec(), kind: EntryKind::File(1) },
        })
        .collect()
}

fn rules(include: &[&str]) -> Rules {
    Rules {
        include: Include::parse(include).unwrap(),
        allow_secrets: false,
        base: false,
        outputs: Vec::new(),
    }
}

fn ships(paths: &[&str], include: &[&str]) -> String {
    let listing = listing(paths);
    let rules = rules(include);
    let unmatched = rules.include.unmatched(&listing);
    if !unmatched.is_empty() {
        return format!("nothing matches {}", unmatched.join(" and "));
    }
    match decide(&listing, &rules) {
        Ok(decision) => decision.ships.iter().map(|n| listing[*n].shown()).collect::<Vec<_>>().join(" "),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn without_include_everything_ships_but_what_never_does() {
    let paths = [
        ".git/",
        ".gitignore",
        "ply.toml",
        "ply.lock",
        "ply.dev.toml",
        "app-1.0.0-linux-x64.img",
        "old.img",
        "src/",
        "src/__pycache__/",
        "src/__pycache__/a.pyc",
        "src/.DS_Store",
        "src/a.py",
        "src/.git",
        "disk.img/",
        ".ply-tmp-17-0",
        "link@",
        "package.json",
    ];
    assert_eq!(ships(&paths, &[]), ".gitignore ply.toml src/ src/a.py disk.img/ link package.json");
    let decision = decide(&listing(&paths), &rules(&[])).unwrap();
    assert_eq!(
        decision.left_out,
        [
            ".git/",
            "app-1.0.0-linux-x64.img",
            "old.img",
            "ply.dev.toml",
            "ply.lock",
            "src/.DS_Store",
            "src/.git",
            "src/__pycache__/"
        ]
    );
}

#[test]
fn include_is_a_whitelist_of_paths_and_globs() {
    let paths = [
        "README.md",
        "dist/",
        "dist/a.js",
        "dist/sub/",
        "dist/sub/b.js",
        "distant",
        "server.js",
        "src/",
        "src/a.ts",
        "src/deep/",
        "src/deep/c.ts",
        "src/deep/d.js",
    ];
    for (include, expected) in [
        (vec!["dist/"], "dist/ dist/a.js dist/sub/ dist/sub/b.js"),
        (vec!["dist"], "dist/ dist/a.js dist/sub/ dist/sub/b.js"),
        (vec!["./dist//"], "dist/ dist/a.js dist/sub/ dist/sub/b.js"),
        (vec!["server.js", "README.md"], "README.md server.js"),
        (vec!["*.js"], "server.js"),
        (vec!["**/*.js"], "dist/a.js dist/sub/b.js server.js src/deep/d.js"),
        (vec!["src/*"], "src/a.ts src/deep/ src/deep/c.ts src/deep/d.js"),
        (vec!["src/**/*.ts"], "src/a.ts src/deep/c.ts"),
        (vec!["{server.js,src/a.ts}"], "server.js src/a.ts"),
        (
            vec!["."],
            "README.md dist/ dist/a.js dist/sub/ dist/sub/b.js distant server.js src/ src/a.ts src/deep/ src/deep/c.ts src/deep/d.js",
        ),
        (vec!["dist/sub/b.js"], "dist/sub/b.js"),
        (vec!["dst/"], "nothing matches dst/"),
        (vec!["server.js/"], "nothing matches server.js/"),
        (vec!["*.py", "dist", "lib/"], "nothing matches *.py and lib/"),
    ] {
        assert_eq!(ships(&paths, &include), expected, "{include:?}");
    }
}

#[test]
fn a_name_with_brackets_is_itself() {
    assert_eq!(
        ships(&["pages/", "pages/[slug].js", "pages/s.js"], &["pages/[slug].js"]),
        "pages/[slug].js pages/s.js"
    );
}

#[test]
fn an_entry_that_is_no_path_beneath_the_directory_is_an_error() {
    for (entry, why) in [
        ("/etc", "it is absolute"),
        ("../x", "it leaves the directory"),
        ("a/../b", "it leaves the directory"),
        (" ", "it is empty"),
    ] {
        assert_eq!(Include::parse(&[entry]).unwrap_err(), (entry.to_owned(), why.to_owned()));
    }
    assert!(Include::parse(&["a[".to_owned()]).unwrap_err().1.contains("no glob"));
}

#[test]
fn what_never_ships_does_when_it_is_named() {
    let paths =
        [".git/", ".git/HEAD", "a.img", "ply.lock", "src/", "src/__pycache__/", "src/__pycache__/x.pyc", "z"];
    for (include, expected) in [
        (vec![".git/HEAD"], ".git/HEAD"),
        (vec![".git"], ".git/ .git/HEAD"),
        (vec!["*.img", "ply.lock"], "a.img ply.lock"),
        (vec!["src/__pycache__/"], "src/__pycache__/ src/__pycache__/x.pyc"),
        (vec!["**/__pycache__"], "src/__pycache__/ src/__pycache__/x.pyc"),
        (vec!["src"], "src/"),
        (vec!["*"], "src/ z"),
        (vec!["**"], "src/ z"),
    ] {
        assert_eq!(ships(&paths, &include), expected, "{include:?}");
    }
}

#[test]
fn credentials_that_are_swept_in_refuse_and_are_all_listed() {
    let paths = [
        ".aws/",
        ".aws/config",
        ".aws/credentials",
        ".env",
        ".env.production",
        "certs/",
        "certs/ca.pem",
        "certs/site.key",
        "id_rsa",
        "id_rsa.pub",
        "index.js",
        "keys.js",
        "sub/.npmrc",
    ];
    assert_eq!(
        ships(&paths, &[]),
        "error: files that look like credentials would ship: .aws/, .env, .env.production, certs/site.key, id_rsa, sub/.npmrc"
    );
    let error = decide(&listing(&paths), &rules(&[])).unwrap_err();
    let hint = error.hint().unwrap();
    for way in ["include", "remove or move", "--allow-secrets"] {
        assert!(hint.contains(way), "{hint}");
    }
    assert_eq!(
        ships(&paths, &["certs/", "index.js"]),
        "error: a file that looks like a credential would ship: certs/site.key"
    );
    assert_eq!(ships(&paths, &["certs/*.key", "index.js"]), "certs/site.key index.js");
    assert_eq!(ships(&paths, &["certs/", "certs/site.key"]), "certs/ certs/ca.pem certs/site.key");
    assert_eq!(ships(&paths, &[".aws/config"]), ".aws/config");
    assert_eq!(
        ships(&paths, &[".aws/"]),
        "error: a file that looks like a credential would ship: .aws/credentials"
    );
    assert_eq!(ships(&paths, &["*"]), ships(&paths, &[]));
    let mut allowed = rules(&[]);
    allowed.allow_secrets = true;
    assert_eq!(decide(&listing(&paths), &allowed).unwrap().ships.len(), paths.len());
}

#[test]
fn names_of_credentials_are_known_and_others_are_not_taken_for_them() {
    for name in [
        ".env",
        ".env.local",
        ".ENV",
        "a/b.key",
        ".npmrc",
        ".netrc",
        ".pgpass",
        "id_rsa",
        "id_ed25519",
        "home/.docker/config.json",
        ".git-credentials",
        "store.p12",
        ".pypirc",
    ] {
        assert!(looks_like_a_credential(name.as_bytes(), false), "{name}");
    }
    for name in [
        "env",
        "environment.ts",
        "id_rsa.pub",
        "monkey",
        "key",
        "config.json",
        "docker/config.json",
        "keyboard.keys",
        "cacert.pem",
        ".environment",
        "locales/auth.json",
        "package.json",
    ] {
        assert!(!looks_like_a_credential(name.as_bytes(), false), "{name}");
    }
    assert!(looks_like_a_credential(b"home/.ssh", true));
    assert!(!looks_like_a_credential(b".env", true), "a folder of that name is a virtual environment");
}

#[test]
fn special_files_are_refused_by_name_and_fifos_ship_in_a_base() {
    let listing = [
        Entry { path: b"a.sock".to_vec(), kind: EntryKind::Socket },
        Entry { path: b"pipe".to_vec(), kind: EntryKind::Fifo },
        Entry { path: b"null".to_vec(), kind: EntryKind::Device },
    ];
    assert_eq!(
        decide(&listing, &rules(&[])).unwrap_err().to_string(),
        "special files can't be in an image: a.sock (a socket), null (a device), pipe (a fifo)"
    );
    let mut base = rules(&[]);
    base.base = true;
    assert_eq!(decide(&listing[1..2], &base).unwrap().ships, [0]);
    // Left out by `include`, they are nobody's business.
    let mut with_file = listing.to_vec();
    with_file.push(Entry { path: b"x".to_vec(), kind: EntryKind::File(1) });
    assert_eq!(decide(&with_file, &rules(&["x"])).unwrap().ships, [3]);
}

#[test]
fn an_output_within_the_directory_never_ships_and_a_base_keeps_its_manifest_out_of_its_root() {
    let mut rules = rules(&[]);
    rules.outputs = vec![b"out/app.squashfs".to_vec()];
    let entries = listing(&["out/", "out/app.squashfs", "ply.toml"]);
    assert_eq!(decide(&entries, &rules).unwrap().ships, [0, 2]);
    rules.base = true;
    assert_eq!(decide(&entries, &rules).unwrap().ships, [0]);
}

#[test]
fn the_walk_looks_only_where_something_may_ship() {
    let none = rules(&[]);
    assert!(none.descends(b"src") && !none.descends(b".git") && !none.descends(b"a/__pycache__"));
    let some = rules(&["dist/app/", "src/**/*.ts", ".git/HEAD"]);
    for (path, expected) in [
        ("dist", true),
        ("dist/app", true),
        ("dist/app/x", true),
        ("dist/other", false),
        ("node_modules", false),
        ("src", true),
        ("src/a/b", true),
        (".git", true),
        (".git/objects", false),
    ] {
        assert_eq!(some.descends(path.as_bytes()), expected, "{path}");
    }
    assert!(rules(&["**/*.ts"]).descends(b"any/where"));
}

fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{1,2}",
        Just(".env".to_owned()),
        Just(".git".to_owned()),
        Just("x.key".to_owned()),
        Just("y.img".to_owned()),
        Just("__pycache__".to_owned()),
        Just(".ssh".to_owned())
    ]
}

prop_compose! {
    fn tree()(paths in proptest::collection::vec(proptest::collection::vec(part(), 1..4), 1..12)) -> Vec<Entry> {
        let mut entries = std::collections::BTreeMap::new();
        for parts in paths {
            for n in 1..parts.len() {
                entries.insert(parts[..n].join("/").into_bytes(), EntryKind::Dir);
            }
            entries.entry(parts.join("/").into_bytes()).or_insert(EntryKind::File(1));
        }
        entries.into_iter().map(|(path, kind)| Entry { path, kind }).collect()
    }
}

proptest! {
    #[test]
    fn nothing_ships_that_looks_like_a_credential_or_never_ships(entries in tree()) {
        match decide(&entries, &rules(&[])) {
            Ok(decision) => for n in decision.ships {
                for p in ancestry(&entries[n].path) {
                    let dir = p.len() < entries[n].path.len() || entries[n].kind == EntryKind::Dir;
                    prop_assert!(!looks_like_a_credential(p, dir));
                    prop_assert!(![&b".git"[..], b"__pycache__"].contains(&last_part(p)));
                }
            },
            Err(BuildError::Secrets(all)) => prop_assert!(!all.is_empty()),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter(entries in tree(), seed in any::<u64>()) {
        let mut shuffled = entries.clone();
        let len = shuffled.len();
        for n in 0..len {
            shuffled.swap(n, (seed as usize).wrapping_mul(n + 7) % len);
        }
        let names = |list: &[Entry]| {
            decide(list, &rules(&[])).map_err(|e| e.to_string()).map(|d| {
                let mut names: Vec<_> = d.ships.iter().map(|n| list[*n].path.clone()).collect();
                names.sort();
                (names, d.left_out)
            })
        };
        prop_assert_eq!(names(&entries), names(&shuffled));
    }

    #[test]
    fn what_ships_is_reached_by_the_walk(entries in tree(), pattern in proptest::collection::vec(part(), 1..3)) {
        let rules = rules(&[&pattern.join("/")]);
        if let Ok(decision) = decide(&entries, &rules) {
            for n in decision.ships {
                let path = &entries[n].path;
                for above in ancestry(path).filter(|p| p.len() < path.len()) {
                    prop_assert!(rules.descends(above), "{}", String::from_utf8_lossy(above));
                }
            }
        }
    }
}
