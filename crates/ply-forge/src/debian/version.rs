//! Debian's versions: their order (deb-version(7)), and how they fold into ply's grammar.

use ply_manifest::{NounError, PackageName, Version};
use std::cmp::Ordering;

/// Orders two Debian versions as dpkg does: epoch, upstream version, revision.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (epoch_a, upstream_a, revision_a) = parts(a);
    let (epoch_b, upstream_b, revision_b) = parts(b);
    number_order(epoch_a, epoch_b)
        .then_with(|| part_order(upstream_a, upstream_b))
        .then_with(|| part_order(revision_a, revision_b))
}

/// Epoch, upstream version and revision; a missing epoch or revision is `0`.
fn parts(version: &str) -> (&str, &str, &str) {
    let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, "0"));
    (epoch, upstream, revision)
}

fn number_order(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// The alternating comparison of deb-version(7): a run of non-digits, then a run of digits, and so on.
fn part_order(mut a: &str, mut b: &str) -> Ordering {
    /// `~` sorts before the end, the end before letters, letters before the rest.
    fn weight(c: Option<u8>) -> i32 {
        match c {
            Some(b'~') => -1,
            None => 0,
            Some(c) if c.is_ascii_alphabetic() => i32::from(c),
            Some(c) => i32::from(c) + 256,
        }
    }
    let split =
        |s: &str, digits: bool| s.bytes().position(|c| c.is_ascii_digit() != digits).unwrap_or(s.len());
    while !a.is_empty() || !b.is_empty() {
        let (end_a, end_b) = (split(a, false), split(b, false));
        let (word_a, word_b) = (&a.as_bytes()[..end_a], &b.as_bytes()[..end_b]);
        for i in 0..word_a.len().max(word_b.len()) {
            match weight(word_a.get(i).copied()).cmp(&weight(word_b.get(i).copied())) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        (a, b) = (&a[end_a..], &b[end_b..]);
        let (end_a, end_b) = (split(a, true), split(b, true));
        match number_order(&a[..end_a], &b[..end_b]) {
            Ordering::Equal => {}
            unequal => return unequal,
        }
        (a, b) = (&a[end_a..], &b[end_b..]);
    }
    Ordering::Equal
}

/// Folds a Debian version into one of ply's. The rule is total and keeps Debian's order where semver can:
///
/// - the epoch is dropped;
/// - of the upstream version, the leading numbers separated by dots are the three parts: a missing one is 0,
///   a fourth and later ones go to the front of the revision;
/// - whatever else upstream says (`+dfsg`, `~rc1`, `p1`, `a`) follows in the revision, then Debian's own revision;
/// - in the revision every character outside `0-9A-Za-z` becomes a dot, and empty parts vanish;
/// - a version that begins with no number is `0.0.0+<all of it>`.
///
/// `5:8.0.2-3+deb13u1` → `8.0.2+3.deb13u1`; `17.6-1` → `17.6.0+1`.
///
/// # Errors
/// None for what dpkg accepts; a number beyond 64 bits is said as such.
pub fn fold(debian: &str) -> Result<Version, NounError> {
    let without_epoch = debian.split_once(':').map_or(debian, |(_, rest)| rest);
    let (upstream, revision) = match without_epoch.rsplit_once('-') {
        Some((upstream, revision)) => (upstream, revision),
        None => (without_epoch, ""),
    };
    let mut numbers = Vec::new();
    let mut rest = upstream;
    loop {
        let end = rest.bytes().position(|c| !c.is_ascii_digit()).unwrap_or(rest.len());
        if end == 0 {
            break;
        }
        let plain = rest[..end].trim_start_matches('0');
        numbers.push(if plain.is_empty() { "0" } else { plain });
        rest = &rest[end..];
        // A dot joins the next number only where a number follows it.
        match rest.strip_prefix('.') {
            Some(after) if after.starts_with(|c: char| c.is_ascii_digit()) => rest = after,
            _ => break,
        }
    }
    let mut extra: Vec<&str> = numbers.split_off(numbers.len().min(3));
    numbers.resize(3, "0");
    let words = |text: &'_ str| -> Vec<String> {
        text.split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|w| !w.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let mut identifiers: Vec<String> = extra.drain(..).map(str::to_owned).collect();
    identifiers.extend(words(rest));
    identifiers.extend(words(revision));
    let mut text = numbers.join(".");
    if !identifiers.is_empty() {
        text.push('+');
        text.push_str(&identifiers.join("."));
    }
    text.parse()
}

/// Folds a Debian package's name: `postgresql-17` → `postgresql17`, `libstdc++6` stays.
///
/// # Errors
/// When nothing of it can stand in a name.
pub fn fold_name(debian: &str) -> Result<PackageName, NounError> {
    PackageName::fold(debian).ok_or_else(|| NounError::new(format!("{debian:?} folds to no package name")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn debian_orders_its_versions() {
        let ordered = [
            "1.0~~",
            "1.0~~a",
            "1.0~",
            "1.0",
            "1.0-1",
            "1.0-1+b1",
            "1.0-1+deb13u1",
            "1.0-1+deb13u10",
            "1.0-1.1",
            "1.0a",
            "1.0+dfsg",
            "1.0.1",
            "1.2",
            "1.10",
            "1:0.1",
            "2:0",
        ];
        for (i, a) in ordered.iter().enumerate() {
            for (j, b) in ordered.iter().enumerate() {
                assert_eq!(compare(a, b), i.cmp(&j), "{a} against {b}");
            }
        }
        assert_eq!(compare("1.0", "1.0-0"), Ordering::Equal);
        assert_eq!(compare("0:1.00", "1.0"), Ordering::Equal);
    }

    #[test]
    fn versions_fold_to_three_parts_and_a_revision() {
        let table = [
            ("5:8.0.2-3+deb13u1", "8.0.2+3.deb13u1"),
            ("17.6-1", "17.6.0+1"),
            ("3.13.5-2+deb13u5", "3.13.5+2.deb13u5"),
            ("1:1.37.0-6+b9", "1.37.0+6.b9"),
            ("7:7.1.2-0+deb13u1", "7.1.2+0.deb13u1"),
            ("20250419+deb13u1", "20250419.0.0+deb13u1"),
            ("2026f-0+deb13u1", "2026.0.0+f.0.deb13u1"),
            ("1.35+dfsg-3.1", "1.35.0+dfsg.3.1"),
            ("1.3.4.20250131-1", "1.3.4+20250131.1"),
            ("3.5.9-1~deb13u1", "3.5.9+1.deb13u1"),
            ("4.11~rc2-1", "4.11.0+rc2.1"),
            ("1:9.2p1-2", "9.2.0+p1.2"),
            ("6.5", "6.5.0"),
            ("01.02-1", "1.2.0+1"),
            ("1.0.-1", "1.0.0+1"),
            ("a1-2", "0.0.0+a1.2"),
        ];
        for (debian, ply) in table {
            assert_eq!(fold(debian).unwrap().to_string(), ply, "{debian}");
        }
    }

    #[test]
    fn a_new_revision_of_debian_is_a_newer_version() {
        let ordered = ["8.0.2-3", "8.0.2-3+b1", "8.0.2-3+deb13u1", "8.0.2-3+deb13u10", "8.0.3-1", "8.10.0-1"];
        let folded: Vec<Version> = ordered.iter().map(|v| fold(v).unwrap()).collect();
        assert!(folded.is_sorted_by(|a, b| a < b), "{folded:?}");
    }

    #[test]
    fn names_fold() {
        for (debian, ply) in [
            ("postgresql-17", "postgresql17"),
            ("libstdc++6", "libstdc++6"),
            ("node-3d", "node3d"),
            ("redis", "redis"),
        ] {
            assert_eq!(fold_name(debian).unwrap().as_str(), ply);
        }
    }

    proptest! {
        #[test]
        fn every_version_of_dpkgs_grammar_folds(v in "([0-9]{1,3}:)?[0-9][0-9A-Za-z.+~]{0,12}(-[0-9A-Za-z.+~]{1,8})?") {
            let folded = fold(&v).unwrap();
            prop_assert_eq!(folded.to_string().parse::<Version>().unwrap(), folded);
        }

        #[test]
        fn the_order_is_antisymmetric(a in "[0-9a~+.:-]{0,8}", b in "[0-9a~+.:-]{0,8}") {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
        }
    }
}
