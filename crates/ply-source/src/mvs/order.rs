//! Layer order: dependents above dependencies, the base last, unrelated packages by name.

use super::Facts;
use ply_manifest::PackageName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Puts `graph` into layer order, `base` last whatever else is said of it. The error is a cycle: each package needs the next,
/// the first again at the end, beginning with the least name.
pub(super) fn layer_order(
    graph: &BTreeMap<PackageName, Arc<Facts>>,
    base: Option<&PackageName>,
) -> Result<Vec<PackageName>, Vec<PackageName>> {
    let layers = || graph.iter().filter(|(name, _)| Some(*name) != base);
    let needs = |facts: &Facts| -> BTreeSet<PackageName> {
        let layer = |name: &PackageName| graph.contains_key(name) && Some(name) != base;
        facts.asks.iter().map(|ask| &ask.name).filter(|name| layer(name)).cloned().collect()
    };
    let mut dependents: BTreeMap<PackageName, BTreeSet<PackageName>> =
        layers().map(|(name, _)| (name.clone(), BTreeSet::new())).collect();
    for (name, facts) in layers() {
        for needed in needs(facts) {
            dependents.entry(needed).or_default().insert(name.clone());
        }
    }
    let mut waiting: BTreeMap<PackageName, usize> =
        dependents.iter().map(|(name, by)| (name.clone(), by.len())).collect();
    let mut ready: BTreeSet<PackageName> =
        waiting.iter().filter(|(_, count)| **count == 0).map(|(name, _)| name.clone()).collect();
    let mut order = Vec::with_capacity(graph.len());
    while let Some(name) = ready.pop_first() {
        waiting.remove(&name);
        for needed in needs(&graph[&name]) {
            if let Some(count) = waiting.get_mut(&needed) {
                *count -= 1;
                if *count == 0 {
                    ready.insert(needed);
                }
            }
        }
        order.push(name);
    }
    if let Some(start) = waiting.keys().next() {
        return Err(cycle(start, &waiting, &dependents));
    }
    order.extend(base.filter(|base| graph.contains_key(base)).cloned());
    Ok(order)
}

/// The cycle above `start`. Everything in `waiting` has a dependent in `waiting`, so that going up must come back.
fn cycle(
    start: &PackageName,
    waiting: &BTreeMap<PackageName, usize>,
    dependents: &BTreeMap<PackageName, BTreeSet<PackageName>>,
) -> Vec<PackageName> {
    let mut path = vec![start.clone()];
    loop {
        let above = &dependents[&path[path.len() - 1]];
        let Some(next) = above.iter().find(|name| waiting.contains_key(*name)) else { return path };
        if let Some(first) = path.iter().position(|name| name == next) {
            let mut ring: Vec<PackageName> = path.drain(first..).rev().collect();
            let least = ring.iter().enumerate().min_by_key(|(_, name)| *name).map_or(0, |(at, _)| at);
            ring.rotate_left(least);
            ring.push(ring[0].clone());
            return ring;
        }
        path.push(next.clone());
    }
}
