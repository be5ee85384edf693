//! `data/events.log`: what happened, one JSON line each, for `ply events` and `ply why`. Rotated at 4 MiB.

use ply_image::Dirs;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

const LIMIT: u64 = 4 << 20;

/// Writes one event of an instance. A failing disk stops nothing.
pub(crate) fn event(dirs: &Dirs, app: &str, slot: u32, what: &str, more: Value) {
    let path = dirs.data.join("events.log");
    let mut line =
        json!({"format": 1, "time_ms": crate::state::now_ms(), "app": app, "slot": slot, "event": what});
    if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
        line.extend(more);
    }
    if std::fs::metadata(&path).is_ok_and(|m| m.len() > LIMIT) {
        let _ = std::fs::rename(&path, dirs.data.join("events.log.1"));
    }
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).mode(0o600).open(&path) {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}
