//! Reading `ply.dev.toml` beside an app.

use super::{MOST_BYTES, package, run};
use crate::walk::document;
use crate::{DevOverlay, Diagnostics};

impl DevOverlay {
    /// Reads a dev overlay of an app. `file` is the name that errors show.
    pub fn parse(text: &str, file: &str) -> Result<Self, Diagnostics> {
        document(text, file, MOST_BYTES, |root, faults| {
            let mut overlay = Self::default();
            if let Some(entry) = root.take("entrypoint") {
                overlay.entrypoint = run::entrypoint(&entry, faults);
            }
            if let Some(table) = root.take("env").and_then(|e| e.table(faults)) {
                overlay.env = package::variables(table, faults).into_iter().map(|(k, v, _)| (k, v)).collect();
            }
            if let Some(entry) = root.take("links") {
                for value in entry.array(faults).unwrap_or_default() {
                    let Some(text) = value.line(faults) else { continue };
                    let parts: Vec<&str> = text.split(':').collect();
                    let well = match parts[..] {
                        [host, inside] | [host, inside, "ro"] => !host.is_empty() && !inside.is_empty(),
                        _ => false,
                    };
                    let climbs = parts.get(1).is_some_and(|p| p.split('/').any(|part| part == ".."));
                    if !well {
                        faults.at_hint(
                            &value.span(),
                            format!("{text:?} is not a link"),
                            "write HOST:CONTAINER, or HOST:CONTAINER:ro",
                        );
                    } else if climbs {
                        faults.at(&value.span(), format!("the path inside {:?} holds ..", parts[1]));
                    } else {
                        overlay.links.push(text.to_owned());
                    }
                }
            }
            Some(overlay)
        })
    }
}
