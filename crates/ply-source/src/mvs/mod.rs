//! Minimal Version Selection, pure: for each name the lowest version that satisfies every range of the final graph,
//! where the graph is the root and the selected packages. Nothing here opens a file or a socket; what exists and what
//! a package asks for come through [`Universe`].
//!
//! Selection goes in rounds. Each round looks at the names whose askers changed, picks a version for each, and lets the
//! manifests of the new picks replace what the old ones asked for. Where no name can need itself this settles, after at most
//! as many rounds as there are names, on the one selection in which every name has its lowest suitable version; so neither
//! the order of the manifests nor the order of the answers can show. Where it does not settle, versions from then on
//! only rise, which ends. What nobody satisfies is an error only if it still stands at the end: the last
//! selection is checked whole (`check.rs`), then put into layer order (`order.rs`).

mod check;
mod facts;
mod order;
#[cfg(test)]
mod tests;

pub use facts::{Ask, Facts};

use crate::SourceError;
use ply_manifest::{Arch, PackageName, Range, SourceSpec, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What exists. Both questions come in batches, so that an answer may fetch several things at once; each answer
/// is as long as its question.
pub trait Universe {
    /// The versions of each package in a source.
    fn list(&mut self, wanted: &[(PackageName, SourceSpec)]) -> Vec<Result<Listing, SourceError>>;

    /// What each picked package says in its manifest.
    fn read(&mut self, wanted: &[Pick]) -> Vec<Result<Arc<Facts>, SourceError>>;

    /// The nearest name that a source has, for "did you mean".
    fn nearest(&mut self, name: &PackageName, source: &SourceSpec) -> Option<String>;
}

/// The versions of one package in one source, in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Those that exist for the arch of the resolution.
    pub versions: Vec<Version>,
    /// Those that exist only for others.
    pub other_arch: Vec<Version>,
}

/// One version of one package, and where it is taken from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pick {
    /// The package.
    pub name: PackageName,
    /// The version.
    pub version: Version,
    /// The source.
    pub source: SourceSpec,
}

/// Which of several suitable versions is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prefer {
    /// The lowest.
    Lowest,
    /// The newest, as `ply update` does.
    Newest,
    /// This one while it suits, else the lowest.
    Locked(Version),
}

/// A resolved graph.
#[derive(Debug, Clone)]
pub struct Graph {
    /// The packages in layer order: dependents above dependencies, the base last, unrelated ones by name.
    pub nodes: Vec<Node>,
}

/// One package of a resolved graph.
#[derive(Debug, Clone)]
pub struct Node {
    /// Which, and where from.
    pub pick: Pick,
    /// What it says.
    pub facts: Arc<Facts>,
    /// Whether it is the base.
    pub base: bool,
    /// Who asks for it, as `name version`, sorted.
    pub requested_by: Vec<String>,
}

/// Resolves the graph of `root` for `arch`. `prefer` says for each name which of several suitable versions is taken.
/// The first error in the order of names is reported, whichever answer came first.
pub fn solve(
    root: &Facts,
    arch: Arch,
    prefer: &dyn Fn(&PackageName) -> Prefer,
    universe: &mut dyn Universe,
) -> Result<Graph, SourceError> {
    let mut solver = Solver {
        root,
        prefer,
        universe,
        asks: BTreeMap::new(),
        selected: BTreeMap::new(),
        floors: BTreeMap::new(),
        listings: BTreeMap::new(),
        read: BTreeMap::new(),
        rising: false,
    };
    solver.settle();
    solver.finish(arch)
}

/// Who asks: a package of the graph by name, or the root, which sorts first.
type Asker = Option<PackageName>;

struct Solver<'a> {
    root: &'a Facts,
    prefer: &'a dyn Fn(&PackageName) -> Prefer,
    universe: &'a mut dyn Universe,
    /// Every name that was ever asked for, and who asks for it now.
    asks: BTreeMap<PackageName, BTreeMap<Asker, Ask>>,
    selected: BTreeMap<PackageName, Pick>,
    /// The highest version that each name ever had; binding once `rising`.
    floors: BTreeMap<PackageName, Version>,
    listings: BTreeMap<(PackageName, SourceSpec), Result<Listing, SourceError>>,
    read: BTreeMap<Pick, Result<Arc<Facts>, SourceError>>,
    rising: bool,
}

impl Solver<'_> {
    /// Rounds until no selection changes.
    fn settle(&mut self) {
        let mut dirty = BTreeSet::new();
        self.add_asks(&None, &self.root.asks, &mut dirty);
        let mut rounds = 0;
        while !dirty.is_empty() {
            rounds += 1;
            // A graph without cycles settles sooner; whatever goes on longer runs in circles.
            self.rising = self.rising || rounds > self.asks.len() + 2;
            dirty = self.round(&dirty);
        }
    }

    /// One round over the names in `dirty`; gives the names whose askers it changed.
    fn round(&mut self, dirty: &BTreeSet<PackageName>) -> BTreeSet<PackageName> {
        self.list_what_is_needed(dirty);
        let mut changed: Vec<(PackageName, Option<Pick>)> = Vec::new();
        for name in dirty {
            let choice = self.choose(name);
            let before = self.selected.get(name);
            if self.rising && before.is_some() && choice.as_ref().is_none_or(|c| Some(c) == before) {
                continue;
            }
            if choice.as_ref() != before {
                changed.push((name.clone(), choice));
            }
        }
        self.read_manifests(changed.iter().filter_map(|(_, pick)| pick.as_ref()));
        let mut next = BTreeSet::new();
        for (name, pick) in changed {
            let asker = Some(name.clone());
            if let Some(old) = self.selected.remove(&name) {
                self.drop_asks(&asker, &old, &mut next);
            }
            if let Some(pick) = pick {
                let floor = self.floors.entry(name.clone()).or_insert_with(|| pick.version.clone());
                if *floor < pick.version {
                    *floor = pick.version.clone();
                }
                if let Some(Ok(facts)) = self.read.get(&pick) {
                    let asks = facts.clone();
                    self.add_asks(&asker, &asks.asks, &mut next);
                }
                self.selected.insert(name, pick);
            }
        }
        next
    }

    /// Whether an ask takes part in selection: a base counts only as the root's own, and what others say of it then is
    /// a constraint.
    fn counts(&self, ask: &Ask) -> bool {
        let to_root_base = self.root.base().is_some_and(|base| base.name == ask.name);
        ask.name != self.root.name && (!ask.base || to_root_base)
    }

    fn add_asks(&mut self, asker: &Asker, asks: &[Ask], dirty: &mut BTreeSet<PackageName>) {
        for ask in asks {
            if !self.counts(ask) {
                continue;
            }
            let of_name = self.asks.entry(ask.name.clone()).or_default();
            // The root may name its base among its dependencies too; what it says as its base comes first.
            if let Some(other) = of_name.get(asker).filter(|other| other.range != ask.range) {
                let twice = Ask { range: narrower(&other.range, &ask.range), ..ask.clone() };
                of_name.insert(asker.clone(), twice);
            } else {
                of_name.insert(asker.clone(), ask.clone());
            }
            dirty.insert(ask.name.clone());
        }
    }

    fn drop_asks(&mut self, asker: &Asker, old: &Pick, dirty: &mut BTreeSet<PackageName>) {
        let Some(Ok(facts)) = self.read.get(old) else { return };
        for ask in &facts.asks {
            if let Some(of_name) = self.asks.get_mut(&ask.name)
                && of_name.remove(asker).is_some()
            {
                dirty.insert(ask.name.clone());
            }
        }
    }

    /// The source of a name: what the root says, else what the first asker by name says.
    fn source(&self, name: &PackageName) -> Option<&SourceSpec> {
        self.asks.get(name)?.values().next().map(|ask| &ask.source)
    }

    /// The pick of a name for those who ask now; none where nobody asks or nothing suits.
    fn choose(&self, name: &PackageName) -> Option<Pick> {
        let source = self.source(name)?.clone();
        let asks = self.asks.get(name)?;
        let floor = self.rising.then(|| self.floors.get(name)).flatten();
        let suits = |version: &Version| {
            asks.values().all(|ask| ask.range.contains(version)) && floor.is_none_or(|floor| version >= floor)
        };
        let version = match self.without_listing(name) {
            Some(version) => suits(&version).then_some(version)?,
            None => {
                let listing = self.listings.get(&(name.clone(), source.clone()))?.as_ref().ok()?;
                let suitable = listing.versions.iter().filter(|v| suits(v));
                match (self.prefer)(name) {
                    Prefer::Newest => suitable.max()?.clone(),
                    Prefer::Lowest | Prefer::Locked(_) => suitable.min()?.clone(),
                }
            }
        };
        Some(Pick { name: name.clone(), version, source })
    }

    /// The version of a name where it needs no look at the source: an exact one that somebody asks for, or the locked one
    /// while it suits. A pinned graph thus resolves from sources that can't list, and from the store alone.
    fn without_listing(&self, name: &PackageName) -> Option<Version> {
        let asks = self.asks.get(name)?;
        let exact = asks.values().find_map(|ask| match &ask.range {
            Range::Exact(version) => Some(version.clone()),
            _ => None,
        });
        exact.or_else(|| match (self.prefer)(name) {
            Prefer::Locked(version) if asks.values().all(|ask| ask.range.contains(&version)) => Some(version),
            _ => None,
        })
    }

    fn list_what_is_needed(&mut self, dirty: &BTreeSet<PackageName>) {
        let wanted: Vec<(PackageName, SourceSpec)> = dirty
            .iter()
            .filter(|name| self.without_listing(name).is_none())
            .filter_map(|name| Some((name.clone(), self.source(name)?.clone())))
            .filter(|key| !self.listings.contains_key(key))
            .collect();
        if !wanted.is_empty() {
            let answers = self.universe.list(&wanted);
            self.listings.extend(wanted.into_iter().zip(answers));
        }
    }

    fn read_manifests<'p>(&mut self, picks: impl Iterator<Item = &'p Pick>) {
        let wanted: Vec<Pick> = picks.filter(|pick| !self.read.contains_key(*pick)).cloned().collect();
        if !wanted.is_empty() {
            let answers = self.universe.read(&wanted);
            self.read.extend(wanted.into_iter().zip(answers));
        }
    }
}

/// The narrower of two ranges that one manifest gives for one name. Two that exclude each other give the second, which the
/// last check then refuses against the first.
fn narrower(a: &Range, b: &Range) -> Range {
    let rank = |range: &Range| match range {
        Range::Any => 0,
        Range::Major(_) => 1,
        Range::Minor(..) => 2,
        Range::Exact(_) => 3,
    };
    if rank(a) > rank(b) { a.clone() } else { b.clone() }
}
