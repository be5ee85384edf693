//! `data/events.log`: what happened, one JSON line each, for `ply events` and `ply why`. Rotated at 4 MiB: the older
//! half is `events.log.1`. Every run parent writes here, each line whole, and any of them may be killed within one.

use crate::RunError;
use crate::logs::{InstanceName, rfc3339};
use crate::ring::clean;
use ply_image::Dirs;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const LIMIT: u64 = 4 << 20;
/// How often somebody who follows looks for more.
const LOOK_EVERY: Duration = Duration::from_millis(100);

fn path(dirs: &Dirs) -> PathBuf {
    dirs.data.join("events.log")
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

/// Writes one event of an app, or of one of its slots. A failing disk stops nothing.
pub(crate) fn event(dirs: &Dirs, app: &str, slot: Option<u32>, what: &str, more: Value) {
    let mut line =
        json!({"format": 1, "time_ms": crate::state::now_ms(), "app": app, "slot": slot, "event": what});
    if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
        line.extend(more);
    }
    let _ = append(&path(dirs), &format!("{line}\n"), LIMIT);
}

/// Adds a line. Whoever writes holds the lock, so that a full journal is put aside once.
fn append(path: &Path, line: &str, limit: u64) -> io::Result<()> {
    loop {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let meta = file.metadata()?;
        if std::fs::metadata(path).map(|m| m.ino()).ok() != Some(meta.ino()) {
            // Put aside meanwhile by somebody else.
            continue;
        }
        if meta.len() > limit {
            std::fs::rename(path, older(path))?;
            continue;
        }
        let mut last = [b'\n'];
        if meta.len() > 0 {
            file.read_exact_at(&mut last, meta.len() - 1)?;
        }
        // A line that was cut off by a kill doesn't take the next one with it.
        let text = if last == [b'\n'] { line.to_owned() } else { format!("\n{line}") };
        return (&file).write_all(text.as_bytes());
    }
}

/// One event: its line as written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event(pub(crate) Value);

impl Event {
    /// None for what is not a whole event: a line that was cut off.
    fn parse(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let whole = value["app"].is_string() && value["event"].is_string() && value["time_ms"].is_u64();
        whole.then_some(Self(value))
    }

    pub(crate) fn app(&self) -> &str {
        self.0["app"].as_str().unwrap_or_default()
    }

    pub(crate) fn slot(&self) -> Option<u32> {
        self.0["slot"].as_u64().and_then(|n| u32::try_from(n).ok())
    }

    pub(crate) fn what(&self) -> &str {
        self.0["event"].as_str().unwrap_or_default()
    }

    pub(crate) fn time_ms(&self) -> u64 {
        self.0["time_ms"].as_u64().unwrap_or_default()
    }

    fn is_of(&self, wanted: Option<&InstanceName>) -> bool {
        wanted.is_none_or(|w| w.app == self.app() && (w.slot.is_none() || w.slot == self.slot()))
    }

    /// The event in words, without its time and name.
    pub(crate) fn words(&self) -> String {
        let text = |key: &str| clean(self.0[key].as_str().unwrap_or("?").as_bytes());
        let number = |key: &str| self.0[key].as_u64().unwrap_or_default();
        match self.what() {
            "start" => format!("started: {}, process {}", text("image"), number("pid")),
            "healthy" => format!("healthy: port {} answers", number("port")),
            "unhealthy" => {
                let why = if self.0["never_answered"] == true { "never answered" } else { "does not answer" };
                let mut words = format!("unhealthy: port {} {why}", number("port"));
                if let Some(ports) = self.0["listens"].as_array() {
                    let ports: Vec<String> = ports.iter().map(Value::to_string).collect();
                    let on = if ports.is_empty() { "no port".to_owned() } else { ports.join(", ") };
                    let _ = write!(words, "; it listens on {on}");
                }
                words
            }
            "leave" => format!("leaves, with {} connections", number("connections")),
            "exit" => self.exit_words(),
            "lost" => {
                format!("its run parent (process {}) has died, and the instance with it", number("parent"))
            }
            "removed" => "removed".to_owned(),
            "deployed" => format!("deployed: {}", text("image")),
            "deploy_failed" => format!("deploy failed: {}", text("why")),
            "command" => {
                let refused = if self.0["ok"] == false { "refused or failed: " } else { "" };
                format!("command {}: {refused}{}", text("verb"), text("message"))
            }
            other => clean(other.as_bytes()),
        }
    }

    fn exit_words(&self) -> String {
        let span = |key: &str| self.0[key].as_u64().map(|ms| ply_manifest::Span(Duration::from_millis(ms)));
        let code = self.0["code"].as_i64().unwrap_or_default();
        let mut words = match self.0["error"].as_str() {
            Some(error) => format!("could not be started: {}", clean(error.as_bytes())),
            None if self.0["oom"] == true => format!("killed: out of memory (exit code {code})"),
            None if code > 128 => format!("ended by signal {} (exit code {code})", code - 128),
            None => format!("ended with exit code {code}"),
        };
        if let Some(uptime) = span("uptime_ms").filter(|u| !u.0.is_zero()) {
            let _ = write!(words, " after {uptime}");
        }
        if self.0["asked"] == true {
            words.push_str(", as asked");
        }
        match span("again_in_ms") {
            Some(pause) if pause.0.is_zero() => words.push_str("; started again at once"),
            Some(pause) => {
                let _ = write!(words, "; started again in {pause}");
            }
            None => {}
        }
        words
    }

    /// The event as a line for people.
    fn line(&self) -> String {
        let time = rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(self.time_ms()));
        let slot = self.slot().map_or_else(String::new, |n| format!(".{n}"));
        format!("{time} {}{slot} {}", clean(self.app().as_bytes()), self.words())
    }
}

/// Reads whole lines from where the last call ended.
struct Tail {
    file: BufReader<File>,
    at: u64,
    inode: u64,
}

impl Tail {
    fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let inode = file.metadata().ok()?.ino();
        Some(Self { file: BufReader::new(file), at: 0, inode })
    }

    fn read(&mut self, each: &mut dyn FnMut(Event)) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.at))?;
        loop {
            let mut line = Vec::new();
            let n = self.file.read_until(b'\n', &mut line)?;
            if n == 0 || line.last() != Some(&b'\n') {
                // Not written to its end yet.
                return Ok(());
            }
            self.at += n as u64;
            if let Some(event) = Event::parse(&String::from_utf8_lossy(&line)) {
                each(event);
            }
        }
    }
}

/// Every event of the journal, oldest first.
pub(crate) fn all(dirs: &Dirs) -> Result<Vec<Event>, RunError> {
    let path = path(dirs);
    let mut found = Vec::new();
    for file in [older(&path), path] {
        if let Some(mut tail) = Tail::open(&file) {
            tail.read(&mut |event| found.push(event)).map_err(RunError::io("can't read", file))?;
        }
    }
    Ok(found)
}

/// A name that nothing is known of is a slip of the pen.
fn known(dirs: &Dirs, wanted: &InstanceName) -> Result<(), RunError> {
    let all = all(dirs)?;
    let runs = crate::state::instances(dirs)?;
    if all.iter().any(|e| e.is_of(Some(wanted))) || runs.iter().any(|s| s.app.as_str() == wanted.app) {
        return Ok(());
    }
    let near = ply_manifest::nearest(&wanted.app, all.iter().map(Event::app));
    let same = all.iter().any(|e| e.app() == wanted.app);
    Err(RunError::refused(
        format!("nothing is known of {wanted}"),
        match near {
            _ if same => format!("ply events {} shows all of it", wanted.app),
            Some(near) => format!("did you mean {near}?"),
            None => "ply events shows everything".to_owned(),
        },
    ))
}

/// Writes the events of an app (or an instance, or of all) to `out`; following ends when `out` closes.
pub fn events(
    dirs: &Dirs,
    wanted: Option<&InstanceName>,
    follow: bool,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), RunError> {
    crate::state::bury(dirs);
    if let Some(wanted) = wanted {
        known(dirs, wanted)?;
    }
    let path = path(dirs);
    let failed = RunError::io("can't read", path.clone());
    let mut closed = false;
    let mut show = |event: Event| {
        if event.is_of(wanted) && !closed {
            let line = if json { event.0.to_string() } else { event.line() };
            closed = writeln!(out, "{line}").and_then(|()| out.flush()).is_err();
        }
        closed
    };
    let mut read = || -> io::Result<()> {
        if let Some(mut old) = Tail::open(&older(&path)) {
            old.read(&mut |event| {
                show(event);
            })?;
        }
        let mut now = Tail::open(&path);
        loop {
            let mut closed = false;
            if let Some(tail) = &mut now {
                tail.read(&mut |event| closed = show(event))?;
            }
            if closed || !follow {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
            // Put aside: the rest of the old one, then the new one from its beginning.
            let inode = std::fs::metadata(&path).ok().map(|m| m.ino());
            if now.as_ref().map(|t| t.inode) != inode {
                if let Some(tail) = &mut now {
                    tail.read(&mut |event| closed = show(event))?;
                }
                now = Tail::open(&path);
            }
        }
    };
    read().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::dirs;

    #[test]
    fn a_cut_line_takes_no_other_with_it() {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(root.path());
        std::fs::create_dir_all(&dirs.data).unwrap();
        event(&dirs, "web", Some(1), "start", json!({"image": "web-1.0.0-linux-x64.img", "pid": 42}));
        let whole = std::fs::read_to_string(path(&dirs)).unwrap();
        for cut in 1..whole.len() {
            std::fs::write(path(&dirs), &whole[..cut]).unwrap();
            event(&dirs, "db", Some(2), "exit", json!({"code": 137, "oom": true, "uptime_ms": 2000}));
            let found = all(&dirs).unwrap();
            // Cut before its line's end only, it is whole all the same.
            assert_eq!(found.len(), if cut == whole.len() - 1 { 2 } else { 1 }, "cut at {cut}");
            assert_eq!(found.last().unwrap().words(), "killed: out of memory (exit code 137) after 2s");
        }
        let mut out = Vec::new();
        events(&dirs, Some(&"db".parse().unwrap()), false, false, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.ends_with("Z db.2 killed: out of memory (exit code 137) after 2s\n"), "{out}");
    }

    #[test]
    fn writers_at_once_put_a_full_journal_aside_and_lose_nothing() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("events.log");
        // As much as fits into two halves: nothing may be missing after one rotation.
        let line = |n: usize| format!("{{\"app\":\"a\",\"event\":\"e\",\"time_ms\":{n}}}\n");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for n in 0..50 {
                        append(path, &line(writer * 50 + n), 5000).unwrap();
                    }
                });
            }
        });
        let read = |p: &Path| std::fs::read_to_string(p).unwrap_or_default();
        let text = read(&older(&path)) + &read(&path);
        let mut times: Vec<u64> = text.lines().map(|l| Event::parse(l).unwrap().time_ms()).collect();
        times.sort_unstable();
        assert_eq!(times, (0..200).collect::<Vec<u64>>());
        assert!(older(&path).exists());
    }

    #[test]
    fn each_event_has_words() {
        for (event, words) in [
            (
                json!({"event": "exit", "code": 1, "uptime_ms": 1500, "again_in_ms": 2000}),
                "ended with exit code 1 after 1s500ms; started again in 2s",
            ),
            (
                json!({"event": "exit", "code": 143, "asked": true}),
                "ended by signal 15 (exit code 143), as asked",
            ),
            (json!({"event": "exit", "code": 125, "error": "no room"}), "could not be started: no room"),
            (
                json!({"event": "unhealthy", "port": 80, "never_answered": true, "listens": [3000]}),
                "unhealthy: port 80 never answered; it listens on 3000",
            ),
            (
                json!({"event": "unhealthy", "port": 80, "never_answered": true, "listens": []}),
                "unhealthy: port 80 never answered; it listens on no port",
            ),
            (
                json!({"event": "command", "verb": "scale", "ok": true, "message": "a goes"}),
                "command scale: a goes",
            ),
            (
                json!({"event": "deployed", "image": "a-2.0.0-linux-x64.img"}),
                "deployed: a-2.0.0-linux-x64.img",
            ),
            (
                json!({"event": "deploy_failed", "why": "a.1 ended with exit code 1 before it was healthy"}),
                "deploy failed: a.1 ended with exit code 1 before it was healthy",
            ),
            (json!({"event": "leave", "connections": 2}), "leaves, with 2 connections"),
        ] {
            assert_eq!(Event(event).words(), words);
        }
    }
}
