//! `ply stats`: what each instance uses now. What is counted since the start comes from the kernel, rates from two
//! looks at it.

use crate::commands::running;
use crate::logs::InstanceName;
use crate::state::{self, InstanceState};
use crate::{RunError, plan::PlannedLimits};
use ply_image::Dirs;
use ply_manifest::RunName;
use ply_sandbox::{ProcessId, Usage};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// What one instance uses.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stat {
    /// The app.
    pub name: RunName,
    /// The slot.
    pub slot: u32,
    /// Processor over the time since the last look, in percent of one core; null where it isn't counted, and on a
    /// first look.
    pub cpu_percent: Option<f64>,
    /// Counters and limits of the kernel, each null where this host doesn't count it.
    #[serde(flatten)]
    pub usage: Usage,
    /// The limits that were asked for, enforced or not.
    pub limits: Option<PlannedLimits>,
}

/// Looks at what runs, again and again: rates are between one look and the next.
#[derive(Debug, Default)]
pub struct Watch {
    /// Processor time of each instance, by its first process, at the last look.
    last: BTreeMap<(i32, u64), (Instant, u64)>,
}

impl Watch {
    /// What every instance uses, or those of one name, by app and slot. Only the running ones are there.
    ///
    /// # Errors
    /// Where nothing runs under the name, or a state file is a newer ply's.
    pub fn look(&mut self, dirs: &Dirs, name: Option<&InstanceName>) -> Result<Vec<Stat>, RunError> {
        let all = match name {
            Some(name) => of(running(dirs, &name.app)?, name)?,
            None => state::instances(dirs)?,
        };
        let mut seen = BTreeMap::new();
        let mut stats = Vec::new();
        for instance in all {
            let Some(target) = instance.target else { continue };
            let usage = target.usage();
            let now = Instant::now();
            let ProcessId { pid, start_time } = target.init;
            let cpu_percent = usage.cpu_usec.and_then(|cpu| {
                seen.insert((pid, start_time), (now, cpu));
                let (then, before) = self.last.get(&(pid, start_time))?;
                percent(cpu.saturating_sub(*before), now.duration_since(*then).as_micros())
            });
            stats.push(Stat {
                name: instance.app,
                slot: instance.slot,
                cpu_percent,
                usage,
                limits: instance.limits,
            });
        }
        self.last = seen;
        Ok(stats)
    }
}

/// The instances that a name means.
fn of(all: Vec<InstanceState>, name: &InstanceName) -> Result<Vec<InstanceState>, RunError> {
    let Some(slot) = name.slot else { return Ok(all) };
    let there: Vec<String> = all.iter().map(|s| format!("{}.{}", s.app, s.slot)).collect();
    let own: Vec<InstanceState> = all.into_iter().filter(|s| s.slot == slot).collect();
    if own.is_empty() {
        return Err(RunError::refused(
            format!("{name} does not run"),
            format!("there is {}", there.join(", ")),
        ));
    }
    Ok(own)
}

/// Used of passed microseconds, in percent with one decimal; none where no time has passed.
fn percent(used: u64, passed: u128) -> Option<f64> {
    (passed > 0).then(|| (used as f64 * 1000.0 / passed as f64).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::{dirs, sample};
    use crate::state::{save, this_process};

    #[test]
    fn rates_are_percent_of_one_core() {
        for (used, passed, expected) in
            [(500, 1000, Some(50.0)), (2000, 1000, Some(200.0)), (1, 3000, Some(0.0)), (1, 0, None)]
        {
            assert_eq!(percent(used, passed), expected);
        }
    }

    #[test]
    fn a_slot_that_is_not_there_names_those_that_are() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = dirs(dir.path());
        save(&dirs, &sample("web", 2, this_process())).unwrap();
        let mut watch = Watch::default();
        // It has no process yet.
        assert_eq!(watch.look(&dirs, None).unwrap(), []);
        let error = watch.look(&dirs, Some(&"web.3".parse().unwrap())).unwrap_err();
        assert_eq!(error.to_string(), "web.3 does not run");
        assert_eq!(error.hint().unwrap(), "there is web.2");
        assert!(watch.look(&dirs, Some(&"api".parse().unwrap())).is_err());
    }
}
