//! `ply logs`: the rings of an app's instances, merged by time, while it runs, after it died and after a reboot.

use crate::RunError;
use crate::ring::{LogLine, RingReader, clean};
use ply_image::Dirs;
use serde_json::json;
use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// What to show and how.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// Goes on with what comes, as long as it runs.
    pub follow: bool,
    /// Only the last so many lines.
    pub last: Option<usize>,
    /// Only lines from this moment on.
    pub since: Option<SystemTime>,
    /// A time in front of each line.
    pub timestamps: bool,
    /// JSON lines.
    pub json: bool,
    /// Control codes as the app wrote them; else cleaned.
    pub raw: bool,
}

/// `APP` or `APP.N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceName {
    /// The app.
    pub app: String,
    /// The slot, where one was named.
    pub slot: Option<u32>,
}

impl std::str::FromStr for InstanceName {
    type Err = ply_manifest::NounError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let (app, slot) = match s.split_once('.') {
            Some((app, n)) => {
                let slot = n.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
                    ply_manifest::NounError::new(format!("{s:?} is not an instance"))
                        .hint("write APP or APP.N, as in web.2")
                })?;
                (app, Some(slot))
            }
            None => (s, None),
        };
        app.parse::<ply_manifest::RunName>()?;
        Ok(Self { app: app.to_owned(), slot })
    }
}

impl std::fmt::Display for InstanceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.slot {
            Some(slot) => write!(f, "{}.{slot}", self.app),
            None => f.write_str(&self.app),
        }
    }
}

/// The logs on disk: app, slot, file; all where nothing is named.
fn rings(dirs: &Dirs, wanted: Option<&InstanceName>) -> Vec<(String, u32, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(dirs.data.join("logs")) else { return Vec::new() };
    let mut found: Vec<(String, u32, PathBuf)> = entries
        .flatten()
        .filter_map(|e| {
            let name = e.file_name().into_string().ok()?;
            let (app, slot) = name.strip_suffix(".log")?.rsplit_once('.')?;
            let slot = slot.parse().ok()?;
            let is_it = wanted.is_none_or(|w| w.app == app && w.slot.is_none_or(|s| s == slot));
            is_it.then(|| (app.to_owned(), slot, e.path()))
        })
        .collect();
    found.sort();
    found
}

/// Writes the logs of an app (or an instance, or of all) to `out`. Following ends when `out` closes, and when nothing
/// of it runs any more.
pub fn logs(
    dirs: &Dirs,
    wanted: Option<&InstanceName>,
    options: &LogOptions,
    out: &mut dyn Write,
) -> Result<(), RunError> {
    let files = rings(dirs, wanted);
    if let (Some(name), true) = (wanted, files.is_empty()) {
        let all = rings(dirs, None);
        let near = ply_manifest::nearest(&name.app, all.iter().map(|(app, _, _)| app.as_str()));
        return Err(RunError::refused(
            format!("there is no log of {name}"),
            near.map_or("ply ps lists what runs".to_owned(), |n| format!("did you mean {n}?")),
        ));
    }
    let several_apps = files.iter().any(|(app, _, _)| *app != files[0].0);
    let several = files.len() > 1;
    let mut readers: Vec<(String, u32, RingReader)> =
        files.into_iter().map(|(app, slot, path)| (app, slot, RingReader::open(&path))).collect();
    let mut show = |app: &str, slot: u32, line: &LogLine| -> std::io::Result<()> {
        if options.since.is_some_and(|since| line.time < since) {
            return Ok(());
        }
        let label = match (several_apps, several) {
            (true, _) => format!("{app}.{slot} | "),
            (false, true) => format!("{app}.{slot} | "),
            (false, false) => String::new(),
        };
        write_line(out, app, slot, line, &label, options)
    };
    let failed = |why: std::io::Error| RunError::Io {
        what: "the log can't be read",
        path: dirs.data.join("logs"),
        why,
    };
    // What is there by now, in the order of time; the lines of one instance keep theirs.
    let mut first: VecDeque<(SystemTime, usize, LogLine)> = VecDeque::new();
    for (n, (_, _, reader)) in readers.iter_mut().enumerate() {
        let mut own = Vec::new();
        reader.read(&mut |line| own.push((line.time, n, line))).map_err(failed)?;
        if !options.follow {
            own.extend(reader.take_open().map(|line| (line.time, n, line)));
        }
        first.extend(own);
    }
    first.make_contiguous().sort_by_key(|(time, n, _)| (*time, *n));
    if let Some(last) = options.last {
        first.drain(..first.len().saturating_sub(last));
    }
    for (_, n, line) in &first {
        let (app, slot, _) = &readers[*n];
        if show(app, *slot, line).is_err() {
            return Ok(());
        }
    }
    drop(first);
    if !options.follow {
        return Ok(());
    }
    loop {
        // Looked at before the last read, so that what an app wrote at its end is still shown.
        let over = !runs(dirs, wanted);
        std::thread::sleep(Duration::from_millis(100));
        for (app, slot, reader) in &mut readers {
            let mut closed = false;
            let mut each = |line: LogLine| closed |= show(app, *slot, &line).is_err();
            reader.read(&mut each).map_err(failed)?;
            if closed {
                return Ok(());
            }
        }
        if over {
            for (app, slot, reader) in &mut readers {
                for line in reader.take_open() {
                    let _ = show(app, *slot, &line);
                }
            }
            return Ok(());
        }
    }
}

/// Whether anything that is wanted still runs, or its run parent still works.
fn runs(dirs: &Dirs, wanted: Option<&InstanceName>) -> bool {
    let is_it = |s: &crate::state::InstanceState| {
        wanted.is_none_or(|w| w.app == s.app.as_str() && w.slot.is_none_or(|slot| slot == s.slot))
            && (wanted.is_none_or(|w| w.slot.is_none()) || s.status != crate::state::Status::Exited)
    };
    crate::state::instances(dirs).is_ok_and(|all| all.iter().any(is_it))
}

fn write_line(
    out: &mut dyn Write,
    app: &str,
    slot: u32,
    line: &LogLine,
    label: &str,
    options: &LogOptions,
) -> std::io::Result<()> {
    let text =
        || if options.raw { String::from_utf8_lossy(&line.bytes).into_owned() } else { clean(&line.bytes) };
    if options.json {
        let value = json!({
            "time": rfc3339(line.time),
            "app": app,
            "slot": slot,
            "stream": line.stream.as_str(),
            "line": text(),
        });
        writeln!(out, "{value}")?;
    } else {
        let time = if options.timestamps { format!("{} ", rfc3339(line.time)) } else { String::new() };
        write!(out, "{label}{time}")?;
        if options.raw {
            out.write_all(&line.bytes)?
        } else {
            out.write_all(text().as_bytes())?
        }
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// A moment as `2026-11-30T23:20:01.042Z`.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (secs, ms) = (since.as_secs(), since.subsec_millis());
    let (days, rest) = (secs / 86_400, secs % 86_400);
    // Civil from days, for the proleptic Gregorian calendar: eras of 400 years, years from March.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{ms:03}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// The last lines that an instance wrote from `since` on, for an error, each on a line of its own; empty where there
/// is none. The ring counts whole milliseconds.
pub(crate) fn last_lines(dirs: &Dirs, app: &str, slot: u32, since: SystemTime, count: usize) -> String {
    let (from, to) = (since - Duration::from_millis(1), SystemTime::now());
    let lines = lines_between(dirs, app, slot, from, to, count);
    lines.iter().fold(String::new(), |out, line| format!("{out}\n    {line}"))
}

/// The last lines that an instance wrote within a time, cleaned.
pub(crate) fn lines_between(
    dirs: &Dirs,
    app: &str,
    slot: u32,
    from: SystemTime,
    to: SystemTime,
    count: usize,
) -> Vec<String> {
    let mut reader = RingReader::open(&dirs.data.join("logs").join(format!("{app}.{slot}.log")));
    let mut lines: VecDeque<String> = VecDeque::new();
    let mut keep = |line: LogLine| {
        if line.time < from || line.time > to {
            return;
        }
        lines.push_back(clean(&line.bytes));
        if lines.len() > count {
            lines.pop_front();
        }
    };
    let _ = reader.read(&mut keep);
    for line in reader.take_open() {
        keep(line);
    }
    lines.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{RingWriter, Stream};
    use crate::state::tests::dirs;

    #[test]
    fn times_are_written_as_people_read_them() {
        let at = |ms| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_827_696_789), "2000-02-29T12:34:56.789Z");
        assert_eq!(at(1_796_083_199_999), "2026-11-30T23:59:59.999Z");
        assert_eq!(at(4_102_444_800_000), "2100-01-01T00:00:00.000Z");
    }

    fn show(dirs: &Dirs, wanted: Option<&str>, options: &LogOptions) -> Result<String, String> {
        let wanted: Option<InstanceName> = wanted.map(|w| w.parse().unwrap());
        let mut out = Vec::new();
        logs(dirs, wanted.as_ref(), options, &mut out).map_err(|e| e.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_logs_of_all_instances_are_merged_by_time() {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(root.path());
        let dir = dirs.data.join("logs");
        std::fs::create_dir_all(&dir).unwrap();
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        let mut one = RingWriter::open(&dir.join("web.1.log")).unwrap();
        let mut two = RingWriter::open(&dir.join("web.2.log")).unwrap();
        one.write(Stream::Out, b"a\x1b[31mred\x1b[0m\n", at(1000)).unwrap();
        two.write(Stream::Err, b"b\n", at(1500)).unwrap();
        one.write(Stream::Out, b"c\nopen", at(2000)).unwrap();
        RingWriter::open(&dir.join("api.1.log")).unwrap().write(Stream::Out, b"x\n", at(1)).unwrap();
        let plain = LogOptions::default();
        assert_eq!(
            show(&dirs, Some("web"), &plain).unwrap(),
            "web.1 | ared\nweb.2 | b\nweb.1 | c\nweb.1 | open\n"
        );
        assert_eq!(show(&dirs, Some("web.2"), &plain).unwrap(), "b\n");
        let last = LogOptions { last: Some(1), raw: true, ..Default::default() };
        assert_eq!(show(&dirs, Some("api"), &last).unwrap(), "x\n");
        let since = LogOptions { since: Some(at(1400)), last: Some(3), ..Default::default() };
        assert_eq!(show(&dirs, Some("web.2"), &since).unwrap(), "b\n");
        let json = LogOptions { json: true, timestamps: true, ..Default::default() };
        assert_eq!(
            show(&dirs, Some("web.2"), &json).unwrap(),
            "{\"app\":\"web\",\"line\":\"b\",\"slot\":2,\"stream\":\"stderr\",\"time\":\"1970-01-01T00:00:01.500Z\"}\n"
        );
        let timed = LogOptions { timestamps: true, ..Default::default() };
        assert_eq!(show(&dirs, Some("web.2"), &timed).unwrap(), "1970-01-01T00:00:01.500Z b\n");
        assert_eq!(show(&dirs, Some("wep"), &plain).unwrap_err(), "there is no log of wep");
        assert!(show(&dirs, None, &plain).unwrap().contains("api.1 | x\n"));
        assert_eq!(last_lines(&dirs, "web", 1, at(0), 2), "\n    c\n    open");
        assert_eq!(
            last_lines(&dirs, "web", 1, at(1500), 5),
            "\n    c\n    open",
            "not those of a run before"
        );
        assert_eq!(last_lines(&dirs, "web", 1, at(2500), 5), "");
    }

    #[test]
    fn instances_are_named_with_or_without_a_slot() {
        let parse = |s: &str| s.parse::<InstanceName>().ok().map(|i| (i.app, i.slot));
        assert_eq!(parse("web"), Some(("web".into(), None)));
        assert_eq!(parse("web.12"), Some(("web".into(), Some(12))));
        for wrong in ["", "web.", "web.0", "web.x", ".1", "Web", "../x"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
