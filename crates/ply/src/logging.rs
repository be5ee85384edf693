//! Diagnostic lines on standard error, for `-v` and `PLY_LOG=debug`. What a user must know is never said
//! through this: it is for following what ply does.

use crate::cli::Shared;
use log::{Level, LevelFilter, Log, Metadata, Record};

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("ply")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = match record.level() {
                Level::Error => "error",
                Level::Warn => "warning",
                Level::Info => "info",
                Level::Debug => "debug",
                Level::Trace => "trace",
            };
            eprintln!("{level}: {}", record.args());
        }
    }

    fn flush(&self) {}
}

/// Starts logging at the level of `PLY_LOG` (`error` to `trace`), else info with `-v`, else warnings.
pub(crate) fn start(shared: &Shared) {
    let from_env = std::env::var("PLY_LOG").ok().and_then(|level| level.parse::<LevelFilter>().ok());
    let level = from_env.unwrap_or(match (shared.quiet, shared.verbose) {
        (true, _) => LevelFilter::Error,
        (_, true) => LevelFilter::Info,
        _ => LevelFilter::Warn,
    });
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(level);
    }
}
