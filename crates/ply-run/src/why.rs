//! `ply why APP`: what is known of an app's state, put together. Every line is evidence (a state file, the journal, the
//! log), none is a guess.

use crate::RunError;
use crate::journal::{self, Event};
use crate::logs::{lines_between, rfc3339};
use crate::state::{self, Row};
use ply_image::Dirs;
use ply_manifest::RunName;
use serde::Serialize;
use std::fmt;
use std::time::{Duration, SystemTime};

/// How many ends and changes are shown, the newest last.
const SHOWN: usize = 5;
/// How many lines of the log are shown at each end.
const LINES: usize = 10;

/// One event with what the log says at that time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    /// The slot, or null for the whole app.
    pub slot: Option<u32>,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// One sentence.
    pub what: String,
    /// The event as the journal has it.
    pub event: serde_json::Value,
    /// The last lines that the instance wrote until then.
    pub lines: Vec<String>,
}

/// What is known of an app.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Why {
    /// The app.
    pub app: RunName,
    /// What runs of it now.
    pub instances: Vec<Row>,
    /// How its instances ended, oldest first.
    pub exits: Vec<Fact>,
    /// What its ports did not answer to, oldest first.
    pub health: Vec<Fact>,
    /// What was changed: commands and starts, oldest first.
    pub changes: Vec<Fact>,
}

/// Puts together what is known of an app.
pub fn why(dirs: &Dirs, app: &RunName) -> Result<Why, RunError> {
    state::bury(dirs);
    let instances: Vec<Row> = state::ps(dirs)?.into_iter().filter(|row| row.name == *app).collect();
    let all = journal::all(dirs)?;
    let own: Vec<&Event> = all.iter().filter(|e| e.app() == app.as_str()).collect();
    // What was before it was removed is another app's story.
    let removed = own.iter().rposition(|e| e.what() == "removed");
    let own = &own[removed.map_or(0, |at| at + usize::from(at + 1 < own.len()))..];
    if let ([only], true) = (own, instances.is_empty())
        && only.what() == "removed"
    {
        let time = rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(only.time_ms()));
        return Err(RunError::refused(
            format!("{app} was removed at {time}"),
            format!("what was before: ply events {app}"),
        ));
    }
    if own.is_empty() && instances.is_empty() {
        let near = ply_manifest::nearest(app.as_str(), all.iter().map(Event::app));
        return Err(RunError::refused(
            format!("nothing is known of an app of the name {app}"),
            near.map_or("ply ps lists what runs".to_owned(), |n| format!("did you mean {n}?")),
        ));
    }
    let last = |kinds: &[&str]| -> Vec<Fact> {
        let of_kind = own.iter().filter(|e| kinds.contains(&e.what()));
        let count = of_kind.clone().count();
        of_kind.skip(count.saturating_sub(SHOWN)).map(|e| fact(dirs, e, before(own, e))).collect()
    };
    Ok(Why {
        app: app.clone(),
        instances,
        exits: last(&["exit", "lost"]),
        health: last(&["unhealthy"]),
        changes: last(&["command", "deployed", "deploy_failed", "start"]),
    })
}

/// When the slot's life before ended, in milliseconds since 1970; 0 where there was none. (An app may write before its
/// start is in the journal.)
fn before(own: &[&Event], event: &Event) -> u64 {
    let ends = own.iter().take_while(|e| !std::ptr::eq(**e, event));
    let ends = ends.filter(|e| e.slot() == event.slot() && ["exit", "lost"].contains(&e.what()));
    ends.last().map_or(0, |e| e.time_ms())
}

/// `since` is when the life before ended.
fn fact(dirs: &Dirs, event: &Event, since: u64) -> Fact {
    let at = |ms: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
    let (slot, time_ms) = (event.slot(), event.time_ms());
    let lines = match slot {
        Some(slot) if event.what() == "exit" => {
            let from = at(since + 10);
            lines_between(dirs, event.app(), slot, from, at(time_ms + 10), LINES)
        }
        _ => Vec::new(),
    };
    Fact { slot, time_ms, what: event.words(), event: event.0.clone(), lines }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let app = &self.app;
        if self.instances.is_empty() {
            writeln!(f, "{app} does not run")?;
        }
        for row in &self.instances {
            let span = ply_manifest::Span(Duration::from_secs(row.uptime_s));
            write!(f, "{app}.{} {} for {span}", row.slot, row.status.as_str())?;
            if let Some(health) = &row.health {
                write!(f, ", {health}")?;
            }
            if row.restarts > 0 {
                write!(f, ", restarts {}", row.restarts)?;
            }
            writeln!(f, ", {}", row.image)?;
        }
        for (title, facts) in
            [("not healthy", &self.health), ("ends", &self.exits), ("changes", &self.changes)]
        {
            if !facts.is_empty() {
                writeln!(f, "\n{title}")?;
            }
            for fact in facts {
                let time = rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(fact.time_ms));
                let slot = fact.slot.map_or_else(String::new, |n| format!(".{n}"));
                writeln!(f, "  {time} {app}{slot} {}", fact.what)?;
                for line in &fact.lines {
                    writeln!(f, "    | {line}")?;
                }
            }
        }
        Ok(())
    }
}
