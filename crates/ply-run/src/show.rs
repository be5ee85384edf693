//! How a plan is printed: for people, and as JSON with stable keys. Secrets are masked in both.

use crate::env::PlannedVar;
use crate::links::PlannedLink;
use crate::plan::{IdMode, Plan, PlannedHealth};
use ply_manifest::{Restart, RestartPolicy};
use serde_json::{Value, json};
use std::fmt::{self, Write};

impl Plan {
    /// The plan as JSON.
    pub fn to_json(&self) -> Value {
        let layers = self.layers.iter().map(|l| json!({"image": l.name, "digest": l.digest}));
        let env = self
            .env
            .iter()
            .map(|v| json!({"name": v.name, "value": v.shown(), "origin": v.origin, "secret": v.secret}));
        json!({
            "name": self.name,
            "image": self.image,
            "digest": self.digest,
            "scale": self.scale,
            "layers": layers.collect::<Vec<_>>(),
            "entrypoint": self.argv,
            "env": env.collect::<Vec<_>>(),
            "workdir": self.workdir,
            "user": self.user,
            "ids": self.ids,
            "stop_signal": self.stop_signal,
            "stop_timeout_ms": ms(self.stop_timeout),
            "drain_ms": ms(self.drain),
            "restart": {
                "policy": policy_word(self.restart.policy),
                "backoff_ms": ms(self.restart.backoff.0),
                "max_backoff_ms": ms(self.restart.max_backoff.0),
            },
            "health": self.health,
            "capabilities": self.capabilities,
            "init": self.init,
            "privileged": self.privileged,
            "terminal": self.terminal,
            "volumes": self.volumes,
            "links": self.links,
            "requested_links": self.requested_links,
            "devices": self.devices,
            "network": network_word(self.network),
            "publish": self.publish,
            "limits": self.limits,
            "scratch_bytes": self.scratch_bytes,
            "notices": self.notices,
        })
    }
}

fn ms(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn policy_word(policy: RestartPolicy) -> &'static str {
    match policy {
        RestartPolicy::Never => "never",
        RestartPolicy::OnFailure => "on-failure",
        RestartPolicy::Always => "always",
    }
}

fn network_word(network: ply_sandbox::Network) -> &'static str {
    match network {
        ply_sandbox::Network::Own => "own",
        ply_sandbox::Network::None => "none",
        ply_sandbox::Network::Host => "host",
    }
}

/// The plan for people.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |key: &str, value: &dyn fmt::Display| writeln!(f, "{key:<12} {value}");
        line("name", &self.name)?;
        line("image", &format_args!("{} {}", self.image, self.digest))?;
        line("instances", &self.scale)?;
        line("entrypoint", &words(&self.argv))?;
        line("workdir", &self.workdir)?;
        let user = &self.user;
        let groups: String = user.groups.iter().fold(String::new(), |mut out, g| {
            let _ = write!(out, ", group {g}");
            out
        });
        line("user", &format_args!("{} ({}:{}{groups}), home {}", user.name, user.uid, user.gid, user.home))?;
        line(
            "ids",
            &match self.ids {
                IdMode::Leased => "a range of 65536 that is nobody outside",
                IdMode::Rootless => "root inside is you",
                IdMode::Host => "those of the host: no user namespace",
            },
        )?;
        let rights = match (self.privileged, self.capabilities.is_empty()) {
            (true, _) => "all (--privileged)".to_owned(),
            (false, true) => "none".to_owned(),
            (false, false) => self.capabilities.join(", "),
        };
        line("capabilities", &rights)?;
        line("pid 1", if self.init { &"an init of ply's" } else { &"the app itself" })?;
        line(
            "stop",
            &format_args!("{}, killed after {}", self.stop_signal, ply_manifest::Span(self.stop_timeout)),
        )?;
        if self.restart.policy != RestartPolicy::Never {
            let Restart { policy, backoff, max_backoff } = self.restart;
            line("restart", &format_args!("{} after {backoff}, up to {max_backoff}", policy_word(policy)))?;
        }
        if let Some(PlannedHealth { port, grace_ms, always }) = self.health {
            let grace = ply_manifest::Span(std::time::Duration::from_millis(grace_ms));
            let then = if always { ", then every 5s" } else { "" };
            line("health", &format_args!("port {port} takes a connection within {grace}{then}"))?;
        }
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "no limit".to_owned());
        line("memory", &or_none(self.limits.memory_bytes.map(|b| ply_manifest::Bytes(b).to_string())))?;
        line(
            "cpu",
            &or_none(self.limits.cpu_millis.map(|millis| ply_manifest::Cores { millis }.to_string())),
        )?;
        line("processes", &self.limits.pids)?;
        line("scratch", &ply_manifest::Bytes(self.scratch_bytes))?;
        line("network", &network_word(self.network))?;
        for p in &self.publish {
            line("publish", &format_args!("{}:{} to {}", p.address, p.port, p.instance_port))?;
        }
        for v in &self.volumes {
            let scope = if v.shared { "shared" } else { "one a slot" };
            let kind = if v.ephemeral { ", ephemeral" } else { "" };
            line("volume", &format_args!("{} at {} ({scope}{kind})", v.name, v.path))?;
        }
        for PlannedLink { host, at, read_only, .. } in &self.links {
            let mode = if *read_only { " (read-only)" } else { "" };
            line("link", &format_args!("{} at {at}{mode}", host.display()))?;
        }
        for device in &self.devices {
            line("device", &device.display())?;
        }
        writeln!(f, "layers")?;
        for layer in &self.layers {
            writeln!(f, "  {} {}", layer.name, layer.digest)?;
        }
        writeln!(f, "environment")?;
        let width = self.env.iter().map(|v| v.name.len()).max().unwrap_or(0);
        for var in &self.env {
            let PlannedVar { name, origin, .. } = var;
            // A value with line breaks or control codes is shown quoted: one line a variable, whatever it holds.
            let value = var.shown();
            let value = if value.chars().any(char::is_control) { format!("{value:?}") } else { value };
            writeln!(f, "  {name:<width$}  {value}  ({origin})")?;
        }
        Ok(())
    }
}

/// An argv as a shell would take it back.
fn words(argv: &[String]) -> String {
    let plain =
        |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._+-@:,=%".contains(&b));
    let quoted = argv
        .iter()
        .map(|word| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) });
    quoted.collect::<Vec<_>>().join(" ")
}
