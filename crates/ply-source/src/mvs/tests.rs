//! The rules of selection as tables, and its promises as properties against brute force.

use super::{Ask, Facts, Graph, Listing, Pick, Prefer, Universe, solve};
use crate::SourceError;
use ply_manifest::{Arch, PackageName, Range, SourceSpec, Version};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn name(text: &str) -> PackageName {
    text.parse().unwrap()
}

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

fn source(text: &str) -> SourceSpec {
    text.parse().unwrap()
}

/// `c 1.2`, `base debian 13` or `c 1 from /other`.
fn ask(text: &str) -> Ask {
    let (base, text) = text.strip_prefix("base ").map_or((false, text), |rest| (true, rest));
    let (text, from) = text.split_once(" from ").unwrap_or((text, "/usual"));
    let (of, range) = text.split_once(' ').unwrap();
    Ask { name: name(of), range: range.parse().unwrap(), source: source(from), base }
}

/// `a 1.0.0: c 1, base debian 13; abi x; requires y; is base; needs base`.
fn facts(line: &str) -> Facts {
    let (head, rest) = line.split_once(':').unwrap_or((line, ""));
    let (of, number) = head.split_once(' ').unwrap();
    let mut made = Facts {
        name: name(of),
        version: version(number),
        is_base: false,
        needs_base: false,
        asks: Vec::new(),
        abi: None,
        requires_abi: None,
    };
    for (i, part) in rest.split(';').map(str::trim).enumerate() {
        if part == "is base" {
            made.is_base = true;
        } else if part == "needs base" {
            made.needs_base = true;
        } else if let Some(abi) = part.strip_prefix("abi ") {
            made.abi = Some(abi.to_owned());
        } else if let Some(abi) = part.strip_prefix("requires ") {
            made.requires_abi = Some(abi.to_owned());
        } else if i == 0 && !part.is_empty() {
            made.asks = part.split(',').map(|a| ask(a.trim())).collect();
        }
    }
    made
}

#[derive(Default, Clone)]
struct World {
    packages: Vec<Facts>,
    other_arch: BTreeMap<PackageName, Vec<Version>>,
    listed: BTreeSet<PackageName>,
    read: BTreeSet<(PackageName, Version)>,
}

impl World {
    fn of(lines: &[&str]) -> Self {
        Self { packages: lines.iter().map(|line| facts(line)).collect(), ..Self::default() }
    }
}

impl Universe for World {
    fn list(&mut self, wanted: &[(PackageName, SourceSpec)]) -> Vec<Result<Listing, SourceError>> {
        let listing = |of: &PackageName| Listing {
            versions: self.packages.iter().filter(|f| f.name == *of).map(|f| f.version.clone()).collect(),
            other_arch: self.other_arch.get(of).cloned().unwrap_or_default(),
        };
        let answers = wanted.iter().map(|(of, _)| Ok(listing(of))).collect();
        self.listed.extend(wanted.iter().map(|(of, _)| of.clone()));
        answers
    }

    fn read(&mut self, wanted: &[Pick]) -> Vec<Result<Arc<Facts>, SourceError>> {
        self.read.extend(wanted.iter().map(|p| (p.name.clone(), p.version.clone())));
        let find = |pick: &Pick| {
            let found = self.packages.iter().find(|f| f.name == pick.name && f.version == pick.version);
            found.map(|f| Arc::new(f.clone())).ok_or_else(|| SourceError::NotThere {
                what: format!("{}-{}", pick.name, pick.version),
                place: "/usual".to_owned(),
                origin: pick.source.to_string(),
                asks: Vec::new(),
            })
        };
        wanted.iter().map(find).collect()
    }

    fn nearest(&mut self, _: &PackageName, _: &SourceSpec) -> Option<String> {
        self.packages.first().map(|f| f.name.to_string())
    }
}

fn shown(graph: &Graph) -> String {
    let one = |node: &super::Node| node.facts.label();
    graph.nodes.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn lowest(root: &str, world: &[&str]) -> Result<String, SourceError> {
    solve(&facts(root), Arch::X64, &|_| Prefer::Lowest, &mut World::of(world)).map(|graph| shown(&graph))
}

fn error(root: &str, world: &[&str]) -> String {
    let found = lowest(root, world).unwrap_err();
    match found.hint() {
        Some(hint) => format!("{found}\nhint: {hint}"),
        None => found.to_string(),
    }
}

#[test]
fn the_lowest_version_that_suits_all_is_taken() {
    let table: &[(&str, &[&str], &str)] = &[
        ("app 1.0.0:", &[], ""),
        ("app 1.0.0: a 1", &["a 1.5.0", "a 1.2.0", "a 2.0.0"], "a 1.2.0"),
        ("app 1.0.0: a *", &["a 1.2.0-rc.1", "a 1.3.0"], "a 1.3.0"),
        ("app 1.0.0: a 1.2.0-rc.1", &["a 1.2.0-rc.1", "a 1.3.0"], "a 1.2.0-rc.1"),
        ("app 1.0.0: a 1", &["a 1.2.0+3.deb13u10", "a 1.2.0+3.deb13u2"], "a 1.2.0+3.deb13u2"),
        ("app 1.0.0: a 1, c 1", &["a 1.0.0: c 1.2", "c 1.0.0", "c 1.2.0", "c 1.3.0"], "a 1.0.0, c 1.2.0"),
        // What an older version asked for no longer counts once a newer one is selected.
        (
            "app 1.0.0: a 1, b 1",
            &["a 1.0.0: c 1.5", "a 1.1.0: c 1", "b 1.0.0: a 1.1", "c 1.0.0", "c 1.5.0"],
            "b 1.0.0, a 1.1.0, c 1.0.0",
        ),
        // A conflict on the way is none at the end.
        (
            "app 1.0.0: a 1, b 1, c 2",
            &["a 1.0.0: c 1", "a 1.1.0: c 2", "b 1.0.0: a 1.1", "c 1.0.0", "c 2.0.0"],
            "b 1.0.0, a 1.1.0, c 2.0.0",
        ),
        // A package that is missing on the way is none at the end.
        (
            "app 1.0.0: a 1, b 1",
            &["a 1.0.0: gone 1, lost 1.2.3", "a 1.1.0", "b 1.0.0: a 1.1"],
            "b 1.0.0, a 1.1.0",
        ),
    ];
    for (root, world, expected) in table {
        assert_eq!(lowest(root, world).unwrap(), *expected, "{root} {world:?}");
    }
}

#[test]
fn layers_stand_above_what_they_need_and_the_base_is_last() {
    let world = [
        "a 1.0.0: z 1",
        "m 1.0.0: base debian 13",
        "z 1.0.0",
        "b 1.0.0: a 1, m 1",
        "debian 13.0.0:; is base",
        "debian 13.1.0:; is base",
        "k 1.0.0: base debian 13.1",
    ];
    let table = [
        (
            "app 1.0.0: base debian 13, z 1, a 1, b 1; needs base",
            "b 1.0.0, a 1.0.0, m 1.0.0, z 1.0.0, debian 13.0.0",
        ),
        ("app 1.0.0: base debian 13, m 1, k 1; needs base", "k 1.0.0, m 1.0.0, debian 13.1.0"),
        ("layer 1.0.0: m 1", "m 1.0.0"),
    ];
    for (root, expected) in table {
        assert_eq!(lowest(root, &world).unwrap(), expected, "{root}");
    }
}

#[test]
fn refusals_show_who_asked_for_what() {
    let table: &[(&str, &[&str], &str)] = &[
        (
            "app 1.0.0: a 1, c 2",
            &["a 1.2.0: b 2", "b 2.0.0: c 1", "c 1.0.0", "c 2.0.0"],
            "no version of c suits all that ask for it\n  app 1.0.0 wants 2\n  app 1.0.0 → a 1.2.0 → b 2.0.0 wants 1\n\
             hint: there is: 2.0.0, 1.0.0",
        ),
        (
            "app 1.0.0: a 1.0.0, b 1",
            &["a 1.0.0", "a 1.0.1", "b 1.0.0: a 1.0.1"],
            "no version of a suits all that ask for it\n  app 1.0.0 wants 1.0.0\n  app 1.0.0 → b 1.0.0 wants 1.0.1",
        ),
        (
            "app 1.0.0: a 3",
            &["a 1.0.0", "a 2.0.0-rc.1"],
            "no version of a is in the range 3 in /usual (app 1.0.0 wants 3)\nhint: there is: 2.0.0-rc.1, 1.0.0",
        ),
        (
            "app 1.0.0: aa 3",
            &["a 1.0.0"],
            "no package aa in /usual (app 1.0.0 wants 3)\nhint: did you mean \"a\"?",
        ),
        (
            "app 1.0.0: a 1.0.0",
            &["a 1.0.1"],
            "a-1.0.0 is not there: /usual (source /usual) (app 1.0.0 wants 1.0.0)\n\
             hint: check name, version and arch, or name another source with --source\n\
             where it has a folder for each package, write it as /usual/{package}",
        ),
        (
            "app 1.0.0: a 1",
            &["a 1.0.0: b 1", "b 1.0.0: c 1", "c 1.0.0: a 1"],
            "a cycle of dependencies: a 1.0.0 → b 1.0.0 → c 1.0.0 → a 1.0.0\nhint: take one of them out of what another depends on",
        ),
        (
            "app 1.0.0: a 1",
            &["a 1.0.0: app 1"],
            "a cycle of dependencies: app 1.0.0 → a 1.0.0 → app 1.0.0\nhint: take one of them out of what another depends on",
        ),
        (
            "app 1.0.0: a 1; needs base",
            &["a 1.0.0: base alpine 3"],
            "app 1.0.0 declares no base\n  app 1.0.0 → a 1.0.0 wants alpine 3\nhint: add base = \"alpine@3\" to [build]",
        ),
        (
            "app 1.0.0: a 1; needs base",
            &["a 1.0.0"],
            "app 1.0.0 declares no base\nhint: add base = \"debian@13\" to [build]",
        ),
        (
            "app 1.0.0: base debian 13, a 1; needs base",
            &["a 1.0.0: base alpine 3", "debian 13.0.0:; is base", "alpine 3.0.0:; is base"],
            "two bases: debian (app 1.0.0) and alpine (app 1.0.0 → a 1.0.0)\nhint: take packages that stand on debian",
        ),
        (
            "app 1.0.0: base debian 13, a 1; needs base",
            &["a 1.0.0: base debian 12", "debian 13.0.0:; is base", "debian 12.0.0:; is base"],
            "no version of debian suits all that ask for it\n  app 1.0.0 wants 13\n  app 1.0.0 → a 1.0.0 wants 12\n\
             hint: there is: 13.0.0, 12.0.0",
        ),
        (
            "app 1.0.0: base debian 13, alpine 3; needs base",
            &["debian 13.0.0:; is base", "alpine 3.0.0:; is base"],
            "two bases: debian (app 1.0.0) and alpine (app 1.0.0)\nhint: take packages that stand on debian",
        ),
        (
            "lib 1.0.0: debian 13",
            &["debian 13.0.0:; is base"],
            "lib 1.0.0 takes debian as a dependency, and it is a base\nhint: write base = \"debian@…\" in [build]",
        ),
        (
            "app 1.0.0: base node 22; needs base",
            &["node 22.0.0"],
            "app 1.0.0 takes node as its base, and it is none\nhint: a base has base = true in its own manifest",
        ),
        (
            "app 1.0.0: base debian 13, a 1; needs base",
            &["a 1.0.0: b 1", "b 1.0.0:; abi linux-x64-musl", "debian 13.0.0:; is base; abi linux-x64-gnu"],
            "two ABIs: app 1.0.0 → debian 13.0.0 is linux-x64-gnu, app 1.0.0 → a 1.0.0 → b 1.0.0 is linux-x64-musl\n\
             hint: take packages that were built for one ABI",
        ),
        (
            "app 1.0.0: base debian 13; requires linux-x64-musl; needs base",
            &["debian 13.0.0:; is base; abi linux-x64-gnu"],
            "two ABIs: app 1.0.0 → debian 13.0.0 is linux-x64-gnu, app 1.0.0 is linux-x64-musl\n\
             hint: take packages that were built for one ABI",
        ),
        (
            "app 1.0.0: a 1, b 1",
            &["a 1.0.0: c 1 from /mine", "b 1.0.0: c 1 from /theirs", "c 1.0.0"],
            "c is taken from two places: /mine (app 1.0.0 → a 1.0.0) and /theirs (app 1.0.0 → b 1.0.0)\n\
             hint: say which in your own manifest: c = { version = \"…\", source = \"…\" }",
        ),
    ];
    for (root, world, expected) in table {
        assert_eq!(error(root, world), *expected, "{root} {world:?}");
    }
}

#[test]
fn what_exists_only_for_another_arch_is_said_to() {
    let mut world = World::of(&["a 1.0.0"]);
    world.other_arch.insert(name("a"), vec![version("2.0.0")]);
    let found = solve(&facts("app 1.0.0: a 2"), Arch::X64, &|_| Prefer::Lowest, &mut world).unwrap_err();
    assert_eq!(found.to_string(), "a 2 is there, but not for x64: /usual");
}

#[test]
fn the_root_decides_where_a_package_comes_from() {
    let mut world = World::of(&["a 1.0.0: c 1 from /theirs", "c 1.0.0"]);
    let root = facts("app 1.0.0: a 1, c 1 from /mine");
    let graph = solve(&root, Arch::X64, &|_| Prefer::Lowest, &mut world).unwrap();
    let c = graph.nodes.iter().find(|n| n.pick.name == name("c")).unwrap();
    assert_eq!(c.pick.source, source("/mine"));
    assert_eq!(c.requested_by, ["a 1.0.0", "app 1.0.0"]);
}

#[test]
fn exact_and_locked_versions_need_no_listing() {
    let mut world = World::of(&["a 1.0.0: c 1", "a 1.1.0: c 1", "c 1.0.0", "c 1.4.0"]);
    let locked = |of: &PackageName| match of.as_str() {
        "c" => Prefer::Locked(version("1.4.0")),
        _ => Prefer::Lowest,
    };
    let graph = solve(&facts("app 1.0.0: a 1.1.0"), Arch::X64, &locked, &mut world).unwrap();
    assert_eq!(shown(&graph), "a 1.1.0, c 1.4.0");
    assert!(world.listed.is_empty(), "{:?}", world.listed);
    assert_eq!(world.read.len(), 2);
}

#[test]
fn the_newest_in_range_is_taken_on_request_and_a_locked_one_gives_way() {
    let mut world =
        World::of(&["a 1.0.0: c 1", "a 1.1.0: c 1", "c 1.0.0", "c 1.4.0", "c 2.0.0", "d 1.0.0: c 2"]);
    let graph = solve(&facts("app 1.0.0: a 1"), Arch::X64, &|_| Prefer::Newest, &mut world).unwrap();
    assert_eq!(shown(&graph), "a 1.1.0, c 1.4.0");
    let locked = |_: &PackageName| Prefer::Locked(version("1.0.0"));
    let graph = solve(&facts("app 1.0.0: d 1"), Arch::X64, &locked, &mut world).unwrap();
    assert_eq!(shown(&graph), "d 1.0.0, c 2.0.0");
}

#[test]
fn names_that_could_need_each_other_still_end() {
    // a 1.0.0 needs b 1.5, b 1.5.0 needs a 1.1, a 1.1.0 needs any b: in no selection has every name its lowest.
    // What is taken satisfies every range all the same.
    let world = ["a 1.0.0: b 1.5", "a 1.1.0: b 1", "b 1.0.0", "b 1.5.0: a 1.1"];
    assert_eq!(lowest("app 1.0.0: a 1, b 1", &world).unwrap(), "a 1.1.0, b 1.0.0");
    let world = ["a 1.0.0: b 1.5", "a 1.1.0", "b 1.0.0", "b 1.5.0: a 1.1"];
    assert_eq!(lowest("app 1.0.0: a 1, b 1", &world).unwrap(), "a 1.1.0, b 1.0.0");
    let world = ["a 1.0.0: b 1.5", "a 1.1.0: b 1.5", "b 1.0.0", "b 1.5.0: a 1.1"];
    let found = lowest("app 1.0.0: a 1, b 1", &world).unwrap_err();
    assert_eq!(found.to_string(), "a cycle of dependencies: a 1.1.0 → b 1.5.0 → a 1.1.0");
}

/// A small world without cycles between names: package `i` asks only for packages behind it.
fn small_world() -> impl Strategy<Value = (Facts, Vec<Facts>)> {
    let range = prop_oneof![
        Just("*"),
        Just("1"),
        Just("2"),
        Just("1.0"),
        Just("1.1"),
        Just("2.0"),
        Just("1.1.0"),
        Just("2.0.0"),
    ];
    let asks = |from: usize| {
        prop::collection::vec((from..5usize, range.clone()), 0..3).prop_map(|list| {
            let by_name: BTreeMap<usize, &str> = list.into_iter().collect();
            by_name.into_iter().map(|(i, r)| ask(&format!("p{i} {r}"))).collect::<Vec<_>>()
        })
    };
    let mut packages: Vec<BoxedStrategy<Facts>> = Vec::new();
    for i in 0..5usize {
        for v in ["1.0.0", "1.1.0", "2.0.0"] {
            let make = move |asks| Facts { asks, ..facts(&format!("p{i} {v}")) };
            packages.push(if i == 4 {
                Just(make(Vec::new())).boxed()
            } else {
                asks(i + 1).prop_map(make).boxed()
            });
        }
    }
    (asks(0).prop_map(|asks| Facts { asks, ..facts("app 1.0.0") }), packages)
}

/// The one selection in which each name has the lowest version that suits all who ask, found name by name since nobody
/// asks for a name before it; none where a name has no such version.
fn by_hand(root: &Facts, packages: &[Facts]) -> Option<BTreeMap<PackageName, Version>> {
    let mut asks: Vec<Ask> = root.asks.clone();
    let mut selection = BTreeMap::new();
    for i in 0..5 {
        let of = name(&format!("p{i}"));
        let ranges: Vec<Range> = asks.iter().filter(|a| a.name == of).map(|a| a.range.clone()).collect();
        if ranges.is_empty() {
            continue;
        }
        let suits = |f: &&Facts| f.name == of && ranges.iter().all(|r| r.contains(&f.version));
        let chosen = packages.iter().filter(suits).min_by_key(|f| f.version.clone())?;
        asks.extend(chosen.asks.clone());
        selection.insert(of, chosen.version.clone());
    }
    Some(selection)
}

/// Every selection of the names that it reaches itself, with every range satisfied.
fn all_valid(root: &Facts, packages: &[Facts]) -> Vec<BTreeMap<PackageName, Version>> {
    let mut valid = Vec::new();
    for mut code in 0..4usize.pow(5) {
        let mut selection = BTreeMap::new();
        for i in 0..5 {
            if code % 4 > 0 {
                selection.insert(name(&format!("p{i}")), version(["1.0.0", "1.1.0", "2.0.0"][code % 4 - 1]));
            }
            code /= 4;
        }
        let (mut reached, mut todo, mut well) = (BTreeSet::new(), vec![root], true);
        while let Some(facts) = todo.pop() {
            for ask in &facts.asks {
                match selection.get(&ask.name) {
                    Some(v) if ask.range.contains(v) => {
                        if reached.insert(ask.name.clone()) {
                            todo.extend(packages.iter().find(|f| f.name == ask.name && f.version == *v));
                        }
                    }
                    _ => well = false,
                }
            }
        }
        if well && reached.len() == selection.len() {
            valid.push(selection);
        }
    }
    valid
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_selection_is_the_lowest_that_satisfies_its_own_graph((root, packages) in small_world()) {
        let mut world = World { packages: packages.clone(), ..World::default() };
        let found = solve(&root, Arch::X64, &|_| Prefer::Lowest, &mut world);
        match (found, by_hand(&root, &packages)) {
            (Ok(graph), Some(expected)) => {
                let got: BTreeMap<_, _> =
                    graph.nodes.iter().map(|n| (n.pick.name.clone(), n.pick.version.clone())).collect();
                prop_assert_eq!(&got, &expected);
                // Brute force: it is valid, and lowering any one name alone never is.
                let valid = all_valid(&root, &packages);
                prop_assert!(valid.contains(&got));
                let lower = |v: &BTreeMap<PackageName, Version>| {
                    v.keys().eq(got.keys())
                        && v.iter().zip(&got).filter(|(a, b)| a != b).count() == 1
                        && v.iter().zip(&got).all(|(a, b)| a.1 <= b.1)
                };
                prop_assert!(!valid.iter().any(lower));
                // Layer order: nobody stands below what it needs.
                let at = |of: &PackageName| graph.nodes.iter().position(|n| n.pick.name == *of).unwrap();
                for node in &graph.nodes {
                    for ask in &node.facts.asks {
                        prop_assert!(at(&node.pick.name) < at(&ask.name));
                    }
                }
            }
            (Err(SourceError::Conflict { .. } | SourceError::NotInRange { .. }), None) => {}
            (found, expected) => prop_assert!(false, "{found:?} and {expected:?}"),
        }
    }

    #[test]
    fn the_order_of_answers_never_shows((root, packages) in small_world(), seed in any::<u64>()) {
        let straight = World { packages: packages.clone(), ..World::default() };
        let mut turned = straight.clone();
        let shift = (seed % packages.len() as u64) as usize;
        turned.packages.rotate_left(shift);
        turned.packages.reverse();
        let result = |mut world: World| {
            solve(&root, Arch::X64, &|_| Prefer::Lowest, &mut world).map(|g| shown(&g)).map_err(|e| e.to_string())
        };
        prop_assert_eq!(result(straight), result(turned));
    }

    #[test]
    fn what_can_run_in_circles_ends(lines in prop::collection::vec((0..3usize, 0..3usize, 0..3usize, 0..3usize), 0..12)) {
        let versions = ["1.0.0", "1.1.0", "2.0.0"];
        let ranges = ["1", "1.1", "2"];
        let mut made: BTreeMap<(usize, usize), BTreeMap<usize, usize>> = BTreeMap::new();
        for (of, v, to, r) in lines {
            made.entry((of, v)).or_default().insert(to, r);
        }
        let mut packages = Vec::new();
        for of in 0..3 {
            for (v, number) in versions.iter().enumerate() {
                let asks = made.get(&(of, v)).into_iter().flatten();
                let asks = asks.map(|(to, r)| ask(&format!("p{to} {}", ranges[*r]))).collect();
                packages.push(Facts { asks, ..facts(&format!("p{of} {number}")) });
            }
        }
        let mut world = World { packages, ..World::default() };
        let root = facts("app 1.0.0: p0 1, p1 *, p2 *");
        if let Ok(graph) = solve(&root, Arch::X64, &|_| Prefer::Lowest, &mut world) {
            for node in &graph.nodes {
                for ask in &node.facts.asks {
                    let there = graph.nodes.iter().find(|n| n.pick.name == ask.name);
                    prop_assert!(there.is_some_and(|n| ask.range.contains(&n.pick.version)));
                }
            }
        }
    }
}
