//! The last round, checked whole: every range of the final graph, one source a name, one base, one ABI, no cycle.
//! Each refusal shows the chain of who asked for what.

use super::order::layer_order;
use super::{Ask, Facts, Graph, Listing, Node, Pick, Solver};
use crate::{Asked, AskedBase, SourceError};
use ply_manifest::{Arch, PackageName, Version};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The graph as reached from the root: for each name who asks for it, nearest to the root first.
struct Reached<'a> {
    root: &'a Facts,
    facts: BTreeMap<PackageName, Arc<Facts>>,
    /// The first that asked for each name; none where that is the root.
    parent: BTreeMap<PackageName, Option<PackageName>>,
    asks: BTreeMap<PackageName, Vec<(Option<PackageName>, Ask)>>,
    /// What is said of bases other than the root's, or where the root has none.
    foreign_bases: Vec<(Option<PackageName>, Ask)>,
    /// A package that asks for the root.
    of_root: Option<PackageName>,
}

impl Reached<'_> {
    /// From the root down to `asker`, each as `name version`.
    fn chain(&self, asker: Option<&PackageName>) -> Vec<String> {
        let mut chain = Vec::new();
        let mut at = asker;
        while let Some(name) = at {
            chain.push(self.facts.get(name).map_or_else(|| name.to_string(), |facts| facts.label()));
            at = self.parent.get(name).and_then(Option::as_ref);
        }
        chain.push(self.root.label());
        chain.reverse();
        chain
    }

    fn asked(&self, (asker, ask): &(Option<PackageName>, Ask)) -> Asked {
        Asked { chain: self.chain(asker.as_ref()), range: ask.range.clone() }
    }

    /// An ask for a base, whose name the reader needs too.
    fn asked_base(&self, (asker, ask): &(Option<PackageName>, Ask)) -> AskedBase {
        AskedBase {
            name: ask.name.clone(),
            asked: Asked { chain: self.chain(asker.as_ref()), range: ask.range.clone() },
        }
    }

    fn all_asked(&self, name: &PackageName) -> Vec<Asked> {
        self.asks.get(name).into_iter().flatten().map(|one| self.asked(one)).collect()
    }

    fn said_by(&self, asker: Option<&PackageName>) -> String {
        self.chain(asker).join(" → ")
    }
}

impl Solver<'_> {
    /// Checks the selection whole and puts it into layer order.
    pub(super) fn finish(mut self, arch: Arch) -> Result<Graph, SourceError> {
        let reached = self.reach(self.root);
        self.check_ranges(&reached, arch)?;
        check_sources(&reached)?;
        check_bases(&reached)?;
        let base = self.root.base().map(|ask| ask.name.clone());
        let order = check_cycles(&reached, base.as_ref())?;
        check_abi(&reached, base.as_ref(), &order)?;
        let node = |name: PackageName| {
            let pick = self.selected.remove(&name).expect("a name in the order was selected");
            let askers = reached.asks.get(&name).into_iter().flatten();
            let mut requested_by: Vec<String> = askers
                .map(|(asker, _)| match asker {
                    Some(asker) => reached.facts[asker].label(),
                    None => reached.root.label(),
                })
                .collect();
            requested_by.sort();
            requested_by.dedup();
            Node {
                facts: reached.facts[&name].clone(),
                base: base.as_ref() == Some(&name),
                pick,
                requested_by,
            }
        };
        Ok(Graph { nodes: order.into_iter().map(node).collect() })
    }

    /// Walks the final graph from the root, breadth first, by name within a level.
    fn reach<'a>(&self, root: &'a Facts) -> Reached<'a> {
        let mut reached = Reached {
            root,
            facts: BTreeMap::new(),
            parent: BTreeMap::new(),
            asks: BTreeMap::new(),
            foreign_bases: Vec::new(),
            of_root: None,
        };
        let mut queue: VecDeque<(Option<PackageName>, &[Ask])> =
            VecDeque::from([(None, root.asks.as_slice())]);
        while let Some((asker, asks)) = queue.pop_front() {
            for ask in asks {
                if !self.counts(ask) {
                    match ask.base {
                        true => reached.foreign_bases.push((asker.clone(), ask.clone())),
                        false => reached.of_root = reached.of_root.or_else(|| asker.clone()),
                    }
                    continue;
                }
                let name = &ask.name;
                reached.asks.entry(name.clone()).or_default().push((asker.clone(), ask.clone()));
                if reached.parent.contains_key(name) {
                    continue;
                }
                reached.parent.insert(name.clone(), asker.clone());
                let read = self.selected.get(name).and_then(|pick| self.read.get(pick));
                if let Some(Ok(facts)) = read {
                    reached.facts.insert(name.clone(), facts.clone());
                    queue.push_back((Some(name.clone()), &facts.asks));
                }
            }
        }
        reached
    }

    /// Every name has a version that suits all, and a manifest that could be read.
    fn check_ranges(&mut self, reached: &Reached<'_>, arch: Arch) -> Result<(), SourceError> {
        for (name, asks) in &reached.asks {
            let suits = |version: &Version| asks.iter().all(|(_, ask)| ask.range.contains(version));
            match self.selected.get(name).filter(|pick| suits(&pick.version)).cloned() {
                None => return Err(self.no_version(reached, name, arch)),
                Some(pick) => {
                    if !matches!(self.read.get(&pick), Some(Ok(_))) {
                        return Err(self.unread(reached, pick));
                    }
                }
            }
        }
        Ok(())
    }

    /// The error of a manifest that could not be read, with those who ask for the package.
    fn unread(&mut self, reached: &Reached<'_>, pick: Pick) -> SourceError {
        let asks = reached.all_asked(&pick.name);
        match self.read.remove(&pick) {
            Some(Err(SourceError::NotThere { what, place, origin, .. })) => {
                SourceError::NotThere { what, place, origin, asks }
            }
            Some(Err(error)) => error,
            _ => SourceError::NoSuchPackage {
                name: pick.name,
                origin: pick.source.to_string(),
                nearest: None,
                asks,
            },
        }
    }

    /// Why no version of `name` suits.
    fn no_version(&mut self, reached: &Reached<'_>, name: &PackageName, arch: Arch) -> SourceError {
        let asks = reached.all_asked(name);
        let source = reached.asks[name][0].1.source.clone();
        let Listing { mut versions, other_arch } = match self.listings.remove(&(name.clone(), source.clone()))
        {
            Some(Ok(listing)) => listing,
            Some(Err(error)) => return error,
            // Only exact versions are asked for, and they differ.
            None => return SourceError::Conflict { name: name.clone(), asks, versions: Vec::new() },
        };
        versions.sort();
        let origin = source.to_string();
        if versions.is_empty() && other_arch.is_empty() {
            let nearest = self.universe.nearest(name, &source);
            return SourceError::NoSuchPackage { name: name.clone(), origin, nearest, asks };
        }
        let nowhere = asks.iter().find(|ask| !versions.iter().any(|v| ask.range.contains(v)));
        match nowhere.map(|ask| ask.range.clone()) {
            Some(range) if other_arch.iter().any(|v| range.contains(v)) => {
                SourceError::OtherArch { name: name.clone(), range, arch, origin }
            }
            Some(range) => {
                let asks = asks.into_iter().filter(|ask| ask.range == range).collect();
                SourceError::NotInRange { name: name.clone(), range: Box::new(range), origin, asks, versions }
            }
            None => SourceError::Conflict { name: name.clone(), asks, versions },
        }
    }
}

/// One source a name: the root's word, else everyone's agreement. Otherwise any package could redirect another's name to
/// a place of its own (dependency confusion).
fn check_sources(reached: &Reached<'_>) -> Result<(), SourceError> {
    for (name, asks) in &reached.asks {
        let (first_asker, first) = &asks[0];
        if first_asker.is_none() {
            continue;
        }
        if let Some((second_asker, second)) = asks.iter().find(|(_, ask)| ask.source != first.source) {
            return Err(SourceError::TwoSources {
                name: name.clone(),
                first: first.source.to_string().into(),
                first_asker: reached.said_by(first_asker.as_ref()).into(),
                second: second.source.to_string().into(),
                second_asker: reached.said_by(second_asker.as_ref()).into(),
            });
        }
    }
    Ok(())
}

/// Exactly one base where the root needs one, named by the root, and nobody who stands on another.
fn check_bases(reached: &Reached<'_>) -> Result<(), SourceError> {
    let root_base = reached.root.base();
    if root_base.is_none() && reached.root.needs_base {
        let asks: Vec<AskedBase> = reached.foreign_bases.iter().map(|one| reached.asked_base(one)).collect();
        let suggestion = reached
            .foreign_bases
            .first()
            .map_or_else(|| "debian@13".to_owned(), |(_, ask)| format!("{}@{}", ask.name, ask.range));
        return Err(SourceError::NoBase { root: reached.root.label(), asks, suggestion });
    }
    if let (Some(base), Some((asker, other))) = (root_base, reached.foreign_bases.first()) {
        return Err(SourceError::TwoBases {
            first: base.name.clone(),
            first_asker: reached.root.label(),
            second: other.name.clone(),
            second_asker: reached.said_by(asker.as_ref()),
        });
    }
    for (name, facts) in &reached.facts {
        let as_base = root_base.is_some_and(|base| base.name == *name);
        if facts.is_base == as_base {
            continue;
        }
        let asker = &reached.asks[name][0].0;
        return Err(match root_base {
            Some(base) if facts.is_base => SourceError::TwoBases {
                first: base.name.clone(),
                first_asker: reached.root.label(),
                second: name.clone(),
                second_asker: reached.said_by(asker.as_ref()),
            },
            _ => SourceError::BaseMismatch {
                name: name.clone(),
                is_base: facts.is_base,
                asker: reached.said_by(asker.as_ref()),
            },
        });
    }
    Ok(())
}

/// The layer order, or the cycle that forbids one.
fn check_cycles(reached: &Reached<'_>, base: Option<&PackageName>) -> Result<Vec<PackageName>, SourceError> {
    if let Some(asker) = &reached.of_root {
        let mut chain = reached.chain(Some(asker));
        chain.push(reached.root.label());
        return Err(SourceError::Cycle { chain });
    }
    layer_order(&reached.facts, base).map_err(|ring| SourceError::Cycle {
        chain: ring.iter().map(|name| reached.facts[name].label()).collect(),
    })
}

/// Every ABI that is stated is the same: the base's, else what the root requires, else the first in layer order. One that
/// states none fits any.
fn check_abi(
    reached: &Reached<'_>,
    base: Option<&PackageName>,
    order: &[PackageName],
) -> Result<(), SourceError> {
    let root = reached.root;
    let own = [&root.requires_abi, &root.abi].into_iter().flatten().map(|abi| (root.label(), abi));
    let of = |name: &PackageName| {
        let facts = &reached.facts[name];
        let label = reached.said_by(Some(name));
        [facts.abi.clone(), facts.requires_abi.clone()]
            .into_iter()
            .flatten()
            .map(move |abi| (label.clone(), abi))
    };
    let stated: Vec<(String, String)> = base
        .into_iter()
        .flat_map(of)
        .chain(own.map(|(label, abi)| (label, abi.clone())))
        .chain(order.iter().filter(|name| Some(*name) != base).flat_map(of))
        .collect();
    let Some((first, first_abi)) = stated.first() else { return Ok(()) };
    match stated.iter().find(|(_, abi)| abi != first_abi) {
        None => Ok(()),
        Some((second, second_abi)) => Err(SourceError::Abi {
            first: first.clone(),
            first_abi: first_abi.clone(),
            second: second.clone(),
            second_abi: second_abi.clone(),
        }),
    }
}
