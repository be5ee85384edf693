//! Which volumes a run has. Pure: the declared ones and the flags give a list; what is done on disk with it is
//! in `volume_store.rs`.

use crate::RunError;
use crate::options::{VolumeFlag, is_volume_name};
use ply_manifest::{Volume, VolumeScope};
use serde::Serialize;
use std::collections::BTreeMap;

/// One volume of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedVolume {
    /// Its name.
    pub name: String,
    /// Where it is inside.
    pub path: String,
    /// Whether all slots share one; else each slot has its own.
    pub shared: bool,
    /// Whether `ply gc` may take it.
    pub ephemeral: bool,
    /// Whether the manifest declares it; else `--volume` made it.
    pub declared: bool,
}

impl PlannedVolume {
    /// The name of its folder for a slot.
    pub fn folder(&self, slot: u32) -> String {
        if self.shared { format!("{}.shared", self.name) } else { format!("{}.{slot}", self.name) }
    }
}

/// The volumes of a run, in the order of their paths, so that one inside another is mounted after it.
pub fn plan_volumes(
    declared: &BTreeMap<String, Volume>,
    flags: &[VolumeFlag],
) -> Result<Vec<PlannedVolume>, RunError> {
    let mut volumes: Vec<PlannedVolume> = declared
        .iter()
        .map(|(name, v)| PlannedVolume {
            name: name.clone(),
            path: v.path.clone(),
            shared: v.scope == VolumeScope::Shared,
            ephemeral: v.ephemeral,
            declared: true,
        })
        .collect();
    for flag in flags {
        match &flag.name {
            Some(name) => match volumes.iter_mut().find(|v| v.name == *name) {
                Some(known) if known.declared => known.path.clone_from(&flag.path),
                Some(known) if known.path == flag.path => {}
                Some(known) => return Err(twice(name, &known.path, &flag.path)),
                None => volumes.push(new(name, &flag.path)),
            },
            None if volumes.iter().any(|v| v.path == flag.path) => {}
            None => {
                let last = flag.path.rsplit('/').next().unwrap_or_default();
                let name: String = last
                    .chars()
                    .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' })
                    .take(64)
                    .collect();
                let name = name.trim_start_matches(['.', '_', '-']);
                if !is_volume_name(name) {
                    return Err(RunError::usage(
                        format!("--volume {}: no name can be made of its last part", flag.path),
                        format!("give it one: --volume NAME:{}", flag.path),
                    ));
                }
                if let Some(known) = volumes.iter().find(|v| v.name == name) {
                    return Err(twice(name, &known.path, &flag.path));
                }
                volumes.push(new(name, &flag.path));
            }
        }
    }
    volumes.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.name.cmp(&b.name)));
    if let Some(pair) = volumes.windows(2).find(|pair| pair[0].path == pair[1].path) {
        return Err(RunError::usage(
            format!("two volumes at {}: {} and {}", pair[0].path, pair[0].name, pair[1].name),
            "give one of them another path",
        ));
    }
    Ok(volumes)
}

fn new(name: &str, path: &str) -> PlannedVolume {
    PlannedVolume {
        name: name.to_owned(),
        path: path.to_owned(),
        shared: false,
        ephemeral: false,
        declared: false,
    }
}

fn twice(name: &str, one: &str, other: &str) -> RunError {
    RunError::usage(
        format!("two volumes of the name {name}: at {one} and at {other}"),
        format!("give one of them another name: --volume NAME:{other}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(list: &[(&str, &str)]) -> BTreeMap<String, Volume> {
        let volume =
            |path: &str| Volume { path: path.to_owned(), scope: VolumeScope::Instance, ephemeral: false };
        list.iter().map(|(n, p)| (n.to_string(), volume(p))).collect()
    }

    fn plan(list: &[(&str, &str)], flags: &[&str]) -> Result<Vec<(String, String)>, String> {
        let flags: Vec<VolumeFlag> = flags.iter().map(|f| f.parse().unwrap()).collect();
        let planned = plan_volumes(&declared(list), &flags).map_err(|e| e.to_string())?;
        Ok(planned.into_iter().map(|v| (v.name, v.path)).collect())
    }

    #[test]
    fn a_flag_takes_the_declared_volume_moves_it_or_makes_one() {
        let own = |list: &[(&str, &str)]| {
            list.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect::<Vec<_>>()
        };
        assert_eq!(plan(&[("data", "/var/lib/x")], &["/var/lib/x"]).unwrap(), own(&[("data", "/var/lib/x")]));
        assert_eq!(plan(&[("data", "/var/lib/x")], &["data:/d"]).unwrap(), own(&[("data", "/d")]));
        assert_eq!(
            plan(&[("b", "/z")], &["/srv/up loads"]).unwrap(),
            own(&[("up-loads", "/srv/up loads"), ("b", "/z")])
        );
        assert_eq!(plan(&[], &["a:/x", "a:/x"]).unwrap(), own(&[("a", "/x")]));
        assert_eq!(
            plan(&[("data", "/d")], &["/e/data"]).unwrap_err(),
            "two volumes of the name data: at /d and at /e/data"
        );
        assert_eq!(plan(&[("data", "/d")], &["x:/d"]).unwrap_err(), "two volumes at /d: data and x");
        assert_eq!(plan(&[], &["a:/x", "a:/y"]).unwrap_err(), "two volumes of the name a: at /x and at /y");
    }

    #[test]
    fn a_volume_has_a_folder_a_slot_or_one_for_all() {
        let mut volume = new("data", "/d");
        assert_eq!(volume.folder(3), "data.3");
        volume.shared = true;
        assert_eq!(volume.folder(3), "data.shared");
    }
}
