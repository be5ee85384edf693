//! What a box uses, read from the kernel's own files at the moment of asking. What a host doesn't count is `None`,
//! never 0.

use crate::{ExecTarget, Network};
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::str::FromStr;

/// What a box uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Processor time so far, in microseconds.
    pub cpu_usec: Option<u64>,
    /// The most processor, in thousandths of a core.
    pub cpu_limit_millis: Option<u64>,
    /// How long it was held back by that limit so far, in microseconds.
    pub throttled_usec: Option<u64>,
    /// In how many periods of 100 ms it was held back so far.
    pub throttled_periods: Option<u64>,
    /// Memory in use, in bytes.
    pub memory_bytes: Option<u64>,
    /// The most memory, in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// The most processes and threads.
    pub pids_limit: Option<u64>,
    /// Bytes received over its own interfaces (loopback is none) so far.
    pub net_received_bytes: Option<u64>,
    /// Bytes sent over its own interfaces so far.
    pub net_sent_bytes: Option<u64>,
    /// How often the kernel killed something in it for memory.
    pub oom_kills: Option<u64>,
}

impl ExecTarget {
    /// What the box uses now.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for folder in &self.cgroups {
            // A v1 folder of the pids controller has the same two files as v2.
            usage.pids = usage.pids.or_else(|| value(&folder.join("pids.current")));
            usage.pids_limit = usage.pids_limit.or_else(|| value(&folder.join("pids.max")));
            if !folder.join("cgroup.controllers").exists() {
                continue;
            }
            let cpu = read(&folder.join("cpu.stat"));
            usage.cpu_usec = keyed(&cpu, "usage_usec");
            usage.throttled_usec = keyed(&cpu, "throttled_usec");
            usage.throttled_periods = keyed(&cpu, "nr_throttled");
            usage.cpu_limit_millis = quota(&read(&folder.join("cpu.max")));
            usage.memory_bytes = value(&folder.join("memory.current"));
            usage.memory_limit_bytes = value(&folder.join("memory.max"));
            usage.oom_kills = keyed(&read(&folder.join("memory.events")), "oom_kill");
        }
        if self.network != Network::Host {
            let text = read(Path::new(&format!("/proc/{}/net/dev", self.init.pid)));
            (usage.net_received_bytes, usage.net_sent_bytes) = traffic(&text).unzip();
        }
        usage
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// A file with one number; `max` is none.
fn value(path: &Path) -> Option<u64> {
    read(path).trim().parse().ok()
}

/// The number behind a word at the start of a line.
pub(crate) fn keyed<T: FromStr>(text: &str, key: &str) -> Option<T> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// From `cpu.max` (quota and period), in thousandths of a core.
fn quota(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period) = (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?);
    quota.checked_mul(1000)?.checked_div(period)
}

/// From `/proc/net/dev` (proc(5)): received and sent bytes of all interfaces but loopback, none where there is none.
fn traffic(text: &str) -> Option<(u64, u64)> {
    let of = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let mut counters = counters.split_ascii_whitespace().map(|number| number.parse::<u64>().unwrap_or(0));
        (name.trim() != "lo").then_some((counters.next()?, counters.nth(7)?))
    };
    text.lines().filter_map(of).reduce(|(a, b), (c, d)| (a + c, b + d))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ids, Process, ProcessId};

    fn target(cgroups: Vec<std::path::PathBuf>) -> ExecTarget {
        let nobody = ProcessId { pid: 0, start_time: 0 };
        ExecTarget {
            init: nobody,
            app: nobody,
            ids: Ids::Host,
            process: Process {
                argv: vec![],
                env: vec![],
                workdir: "/".into(),
                uid: 0,
                gid: 0,
                groups: vec![],
                capabilities: 0,
                stop_signal: 15,
            },
            network: Network::Own,
            privileged: false,
            pids: 1,
            cgroups,
        }
    }

    #[test]
    fn a_v2_folder_tells_everything() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("cgroup.controllers", "cpu memory pids\n"),
            (
                "cpu.stat",
                "usage_usec 1500\nuser_usec 1000\nnr_periods 9\nnr_throttled 4\nthrottled_usec 77\n",
            ),
            ("cpu.max", "150000 100000\n"),
            ("memory.current", "4096\n"),
            ("memory.max", "67108864\n"),
            ("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n"),
            ("pids.current", "3\n"),
            ("pids.max", "max\n"),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let usage = target(vec![dir.path().into()]).usage();
        let expected = Usage {
            cpu_usec: Some(1500),
            cpu_limit_millis: Some(1500),
            throttled_usec: Some(77),
            throttled_periods: Some(4),
            memory_bytes: Some(4096),
            memory_limit_bytes: Some(64 << 20),
            pids: Some(3),
            pids_limit: None,
            net_received_bytes: None,
            net_sent_bytes: None,
            oom_kills: Some(2),
        };
        assert_eq!(usage, expected);
    }

    #[test]
    fn beside_v1_the_pids_are_the_v1_controllers_and_the_rest_is_unknown() {
        let (v2, v1) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(v2.path().join("cgroup.controllers"), "").unwrap();
        fs::write(v2.path().join("cpu.stat"), "usage_usec 8\n").unwrap();
        fs::write(v1.path().join("pids.current"), "5\n").unwrap();
        fs::write(v1.path().join("pids.max"), "200\n").unwrap();
        let usage = target(vec![v2.path().into(), v1.path().into()]).usage();
        let expected = Usage { cpu_usec: Some(8), pids: Some(5), pids_limit: Some(200), ..Usage::default() };
        assert_eq!(usage, expected);
        assert_eq!(target(vec![]).usage(), Usage::default());
    }

    #[test]
    fn traffic_is_that_of_real_interfaces() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets |bytes\n\
            \x20   lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0\n  eth0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n\
            eth1:5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n";
        assert_eq!(traffic(text), Some((105, 26)));
        assert_eq!(traffic("    lo: 9 0 0 0 0 0 0 0 9 0 0 0 0 0 0 0\n"), None);
        assert_eq!(traffic(""), None);
    }
}
