//! Reading `config.toml` and the policy of `ply check --against`.

use super::{MOST_BYTES, run};
use crate::walk::document;
use crate::{Config, Diagnostics, PackageName, Policy, Reference};

impl Config {
    /// Reads `config.toml`. `file` is the name that errors show.
    pub fn parse(text: &str, file: &str) -> Result<Self, Diagnostics> {
        document(text, file, MOST_BYTES, |root, faults| {
            let default_source = root.take("default_source").and_then(|e| e.noun(faults));
            Some(Self { default_source })
        })
    }
}

impl Policy {
    /// Reads a policy. `file` is the name that errors show.
    pub fn parse(text: &str, file: &str) -> Result<Self, Diagnostics> {
        document(text, file, MOST_BYTES, |root, faults| {
            let mut policy = Self::default();
            if let Some(entry) = root.take("bases") {
                let bases: Vec<Reference> = entry
                    .array(faults)
                    .unwrap_or_default()
                    .iter()
                    .filter_map(|e| {
                        let base: Reference = e.noun(faults)?;
                        if base.owner.is_some() {
                            faults.at_hint(
                                &e.span(),
                                format!("{:?} names an owner", base.to_string()),
                                "write \"debian@13\"",
                            );
                            return None;
                        }
                        Some(base)
                    })
                    .collect();
                policy.bases = Some(bases);
            }
            if let Some(mut table) = root.take("least").and_then(|e| e.table(faults)) {
                for entry in table.all() {
                    match entry.key.parse::<PackageName>() {
                        Err(error) => faults.noun(&entry.key_span, error),
                        Ok(name) => {
                            if let Some(version) = entry.noun(faults) {
                                policy.least.insert(name, version);
                            }
                        }
                    }
                }
            }
            if let Some(mut table) = root.take("capabilities").and_then(|e| e.table(faults)) {
                if let Some(entry) = table.take("forbid") {
                    policy.forbidden_capabilities = entry
                        .array(faults)
                        .unwrap_or_default()
                        .iter()
                        .filter_map(|e| e.noun(faults))
                        .collect();
                    policy.forbidden_capabilities.sort();
                    policy.forbidden_capabilities.dedup();
                }
                table.finish(faults);
            }
            if let Some(mut table) = root.take("egress").and_then(|e| e.table(faults)) {
                policy.egress_declared =
                    table.take("declared").and_then(|e| e.boolean(faults)).unwrap_or(false);
                policy.egress_allowed = table.take("allow").map(|e| run::egress(&e, faults));
                policy.egress_required =
                    table.take("require").map(|e| run::egress(&e, faults)).unwrap_or_default();
                table.finish(faults);
            }
            Some(policy)
        })
    }
}
