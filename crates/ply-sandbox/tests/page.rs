//! The security page and the code agree: each public number that the page names stands at a line of code, and each attack
//! has its row in the page's table.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All the text below a folder, of files with these endings.
fn text_below(folder: &Path, endings: &[&str], text: &mut String) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            text_below(&path, endings, text);
        } else if endings.iter().any(|ending| path.extension().is_some_and(|found| found == *ending)) {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

fn numbers(text: &str) -> BTreeSet<&str> {
    let end = |rest: &str| rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
    text.match_indices("CVE-").map(|(at, _)| text[at..at + end(&text[at..])].trim_end_matches('-')).collect()
}

#[test]
fn every_number_of_the_page_stands_in_the_code() {
    let page = fs::read_to_string(repository().join("docs/security.md")).unwrap();
    let mut code = String::new();
    for entry in fs::read_dir(repository().join("crates")).unwrap().map(Result::unwrap) {
        text_below(&entry.path().join("src"), &["rs"], &mut code);
    }
    let (named, standing) = (numbers(&page), numbers(&code));
    assert!(named.len() > 40, "{named:?}");
    assert_eq!(
        named.difference(&standing).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "on the page, not in the code"
    );
    assert_eq!(
        standing.difference(&named).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "in the code, not on the page"
    );
}

#[test]
fn every_attack_has_its_row() {
    let page = fs::read_to_string(repository().join("docs/security.md")).unwrap();
    let rows = fs::read_to_string(repository().join("crates/ply-sandbox/tests/attacks/rows.rs")).unwrap();
    let mut attacks = String::new();
    text_below(&repository().join("crates/ply-sandbox/tests/attack"), &["c"], &mut attacks);
    let names: BTreeSet<String> = attacks
        .split("\nATTACK(")
        .skip(1)
        .map(|rest| rest.split(',').next().unwrap().replace('_', "-"))
        .collect();
    assert!(names.len() > 100);
    for name in &names {
        // Those that need a user, a terminal, or another box are in tests of their own.
        let apart = ["setuid-root", "setuid-file", "inheritable", "exec-watched", "swap", "device-locked"];
        let terminal = name.starts_with("terminal-");
        let in_rows = rows.contains(&format!("\"{name}\"")) || rows.contains(&format!("\"{name}="));
        assert!(in_rows || apart.contains(&name.as_str()), "{name} isn't tried");
        if in_rows && !terminal {
            assert!(page.contains(&format!("| `{name}` |")), "{name} isn't on the page: make attack-table");
        }
    }
}
