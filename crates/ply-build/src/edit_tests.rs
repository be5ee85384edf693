use super::*;
use ply_manifest::Manifest;
use proptest::prelude::*;

fn addition(word: &str) -> Addition {
    let (base, word) = match word.strip_prefix("base ") {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let (word, source) = match word.split_once(" from ") {
        Some((word, source)) => (word, Some(source.to_owned())),
        None => (word, None),
    };
    let (name, range) = word.split_once('@').unwrap();
    Addition { name: name.parse().unwrap(), range: range.parse().unwrap(), source, base }
}

fn add(text: &str, word: &str) -> String {
    match add_dependency(text, "ply.toml", &addition(word)) {
        Ok(Edited::Changed(text)) => text,
        Ok(Edited::Already) => "already".to_owned(),
        Err(error) => format!("error: {error}"),
    }
}

const HEAD: &str = "[package]\nname = \"app9\"\nversion = \"1.0.0\"\n";

#[test]
fn a_dependency_is_added_where_dependencies_are() {
    for (before, word, after) in [
        // Grouped, with comments and an odd layout.
        (
            "[build] # what makes it\nbase = \"debian@13\"   # ours\n\n# the runtime\n[build.dependencies]\nnode   = \"22\"  # long-term\n\n[run]\nentrypoint = [\"x\"]\n",
            "redis@8",
            "[build] # what makes it\nbase = \"debian@13\"   # ours\n\n# the runtime\n[build.dependencies]\nnode   = \"22\"  # long-term\nredis = \"8\"\n\n[run]\nentrypoint = [\"x\"]\n",
        ),
        // Sorted stays sorted.
        (
            "[build]\nbase = \"debian@13\"\n[build.dependencies]\n# first\nb = \"1\"\n# last\nd = \"1\"\n",
            "c@2",
            "[build]\nbase = \"debian@13\"\n[build.dependencies]\n# first\nb = \"1\"\nc = \"2\"\n# last\nd = \"1\"\n",
        ),
        // No table yet: it comes behind [build], before [run].
        (
            "\n[build]\nbase = \"debian@13\"\n\n[run]\nentrypoint = [\"x\"]\n",
            "node@22",
            "\n[build]\nbase = \"debian@13\"\n\n[build.dependencies]\nnode = \"22\"\n\n[run]\nentrypoint = [\"x\"]\n",
        ),
        // Inline.
        (
            "[build]\nbase = \"debian@13\"\ndependencies = { node = \"22\" }\n",
            "redis@8",
            "[build]\nbase = \"debian@13\"\ndependencies = { node = \"22\", redis = \"8\" }\n",
        ),
        // Flat.
        (
            "base = \"debian@13\"\nentrypoint = [\"x\"]\n\n[dependencies]\nnode = \"22\"\n\n[ports]\nweb = 80\n",
            "ffmpeg@6.1 from mine",
            "base = \"debian@13\"\nentrypoint = [\"x\"]\n\n[dependencies]\nffmpeg = { source = \"mine\", version = \"6.1\" }\nnode = \"22\"\n\n[ports]\nweb = 80\n",
        ),
        (
            "base = \"debian@13\"\nentrypoint = [\"x\"]\n",
            "node@22",
            "base = \"debian@13\"\nentrypoint = [\"x\"]\n\n[dependencies]\nnode = \"22\"\n",
        ),
        // A dot in a name is quoted.
        (
            "[build]\nbase = \"debian@13\"\n[build.dependencies]\n",
            "boost1.84@1.84",
            "[build]\nbase = \"debian@13\"\n[build.dependencies]\n\"boost1.84\" = \"1.84\"\n",
        ),
        // Nothing but a header.
        ("", "node@22", "\n[build]\n\n[build.dependencies]\nnode = \"22\"\n"),
    ] {
        // A source alias has to be declared.
        let sources = |flat: bool| match (word.contains("from"), flat) {
            (false, _) => "",
            (true, false) => "[build.sources]\nmine = \"github:o/r\"\n",
            (true, true) => "[sources]\nmine = \"github:o/r\"\n",
        };
        let flat = before.contains("[dependencies]");
        let (before, after) =
            (format!("{HEAD}{before}{}", sources(flat)), format!("{HEAD}{after}{}", sources(flat)));
        assert_eq!(add(&before, word), after);
    }
}

#[test]
fn a_range_that_is_there_is_moved_and_the_same_one_is_said() {
    let text = format!(
        "{HEAD}[build]\nbase = \"debian@13\"\n[build.dependencies]\nnode = \"20\" # why\nff = {{ source = \"a\", version = \"6\" }} # x\n[build.sources]\na = \"github:o/r\"\n"
    );
    assert_eq!(add(&text, "node@20"), "already");
    assert_eq!(add(&text, "ff@6"), "already");
    assert_eq!(add(&text, "ff@6 from a"), "already");
    assert_eq!(add(&text, "node@22"), text.replace("\"20\" # why", "\"22\" # why"));
    assert_eq!(add(&text, "ff@7"), text.replace("\"6\"", "\"7\""));
    assert_eq!(
        add(&text, "node@20 from a"),
        text.replace("\"20\" # why", "{ source = \"a\", version = \"20\" } # why")
    );
    let range = "22.6".parse().unwrap();
    let moved = set_range(&text, "ply.toml", &"node".parse().unwrap(), &range).unwrap();
    assert_eq!(moved, Edited::Changed(text.replace("\"20\"", "\"22.6\"")));
    let error = set_range(&text, "ply.toml", &"redis".parse().unwrap(), &range).unwrap_err();
    assert_eq!(error.to_string(), "ply.toml has no dependency redis");
    assert_eq!(error.hint().as_deref(), Some("add it with: ply add redis"));
}

#[test]
fn a_base_is_set_in_each_of_its_forms() {
    for (before, word, after) in [
        (
            "[build]\nbase = \"debian@12\" # ours\n",
            "base debian@13",
            "[build]\nbase = \"debian@13\" # ours\n",
        ),
        ("[build]\nbase = \"debian@13\"\n", "base debian@13", "already"),
        (
            "[build]\nbase = { name = \"debian\", version = \"12\" }\n",
            "base debian@13",
            "[build]\nbase = { name = \"debian\", version = \"13\" }\n",
        ),
        ("entrypoint = [\"x\"]\n", "base debian@13", "entrypoint = [\"x\"]\nbase = \"debian@13\"\n"),
        (
            "[run]\nentrypoint = [\"x\"]\n",
            "base debian@13",
            "[run]\nentrypoint = [\"x\"]\n\n[build]\nbase = \"debian@13\"\n",
        ),
        (
            "[build]\nbase = true\n",
            "base debian@13",
            "error: ply.toml is the manifest of a base, which stands on nothing",
        ),
    ] {
        let unchanged = after.starts_with("error") || after == "already";
        let after = if unchanged { after.to_owned() } else { format!("{HEAD}{after}") };
        assert_eq!(add(&format!("{HEAD}{before}"), word), after, "{before}");
    }
    let text = format!("{HEAD}base = \"debian@12\"\nentrypoint=[\"x\"]\n");
    let moved = set_range(&text, "ply.toml", &"debian".parse().unwrap(), &"13".parse().unwrap()).unwrap();
    assert_eq!(moved, Edited::Changed(text.replace("@12", "@13")));
}

#[test]
fn what_is_no_manifest_is_not_edited() {
    let error = add_dependency("[package\n", "ply.toml", &addition("node@22")).unwrap_err();
    assert!(error.to_string().starts_with("ply.toml:1:"), "{error}");
    let stack = "[package]\nname = \"s\"\n[[service]]\nrun = \"redis@8\"\n";
    assert_eq!(add(stack, "node@22"), "error: ply.toml is a composition: it has members, not dependencies");
    assert!(
        add(&format!("{HEAD}[build]\nbase=\"debian@13\"\n"), "node@22 from nowhere")
            .starts_with("error: ply.toml:")
    );
}

#[test]
fn the_range_of_a_new_dependency_is_its_major_or_below_one_its_minor() {
    for (version, range) in
        [("22.6.0", "22"), ("8.0.2+3.deb13u1", "8"), ("0.4.2", "0.4"), ("2.0.0-rc.1", "2.0.0-rc.1")]
    {
        assert_eq!(default_range(&version.parse().unwrap()).to_string(), range);
    }
}

proptest! {
    #[test]
    fn what_is_added_is_there_and_nothing_else_changed(
        names in proptest::collection::btree_map("[a-z]{1,3}", 0_u64..9, 0..5),
        name in "[a-z]{1,3}", range in 0_u64..9, flat in any::<bool>(), inline in any::<bool>(),
    ) {
        let list: Vec<String> = names.iter().map(|(n, r)| format!("{n} = \"{r}\"")).collect();
        let table = if flat { "dependencies" } else { "build.dependencies" };
        let list = if inline { format!("[build]\nbase = \"base9@1\"\ndependencies = {{ {} }}\n", list.join(", ")) } else {
            format!("{}[{table}]\n{}\n", if flat { "base = \"base9@1\"\n" } else { "[build]\nbase = \"base9@1\"\n" }, list.join("\n"))
        };
        let text = format!("{HEAD}{list}# the end\n");
        let added = Addition { name: name.parse().unwrap(), range: Range::Major(range), source: None, base: false };
        let now = match add_dependency(&text, "ply.toml", &added).unwrap() {
            Edited::Already => { prop_assert_eq!(names.get(&name), Some(&range)); text.clone() }
            Edited::Changed(text) => text,
        };
        let mut expected = Manifest::parse(&text, "ply.toml").unwrap();
        let dependency = ply_manifest::Dependency { range: Range::Major(range), source: None };
        expected.build.dependencies.insert(name.parse().unwrap(), dependency);
        prop_assert_eq!(Manifest::parse(&now, "ply.toml").unwrap(), expected);
        prop_assert!(now.ends_with("# the end\n") || inline);
        prop_assert_eq!(add_dependency(&now, "ply.toml", &added).unwrap(), Edited::Already);
    }

    #[test]
    fn no_text_panics(text in ".{0,120}", table in any::<bool>()) {
        let text = if table { format!("[build]\n{text}") } else { text };
        let _ = add_dependency(&text, "f", &addition("node@22"));
        let _ = add_dependency(&text, "f", &addition("base debian@13"));
    }
}
