//! Commands to a running app: files in `data/apps/<app>/control/`, written whole and renamed in, seen at once by
//! its run parent, taken in order, answered in `results/<id>.json` and `last-result`. Who may write the folder
//! may command the app, nobody else. There is no socket.

use crate::RunError;
use crate::files::{make_dir, read_json, write_json, write_whole};
use crate::installed::app_dir;
use ply_image::Dirs;
use ply_manifest::{RunName, Span};
use rustix::fs::inotify;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The longest control file that is read.
const COMMAND_MAX: u64 = 4096;

/// What a control file asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    /// `stop`: every instance, and the run.
    Stop,
    /// `scale`: so many instances.
    Scale(u32),
    /// `scale` with `auto`: as many as the run decides by itself.
    Unpin,
    /// `restart`: every instance anew, one after the other.
    Restart,
    /// `deploy`: every instance anew from the image at this path; each has so long to become healthy.
    Deploy { image: PathBuf, timeout: Option<Span> },
    /// Nothing that can be acted on: why.
    Wrong(String),
}

impl Ask {
    /// What a file of this verb, with these contents, asks for.
    fn read(verb: &str, contents: &[u8]) -> Self {
        let text = std::str::from_utf8(contents).map(str::trim);
        match verb {
            "stop" => Self::Stop,
            "restart" => Self::Restart,
            "scale" => match text.map(str::parse) {
                Ok(Ok(number)) => Self::Scale(number),
                _ if text == Ok("auto") => Self::Unpin,
                _ => Self::Wrong("scale takes a number of instances, as in 3, or auto".to_owned()),
            },
            "deploy" => Self::deploy(contents),
            _ => Self::Wrong(format!("this version of ply doesn't act on {verb:?}")),
        }
    }

    /// The path of an image, and on a line of its own, where it is wanted, `timeout=60s`.
    fn deploy(contents: &[u8]) -> Self {
        let mut lines = contents.split(|b| *b == b'\n');
        let path = lines.next().unwrap_or_default().trim_ascii();
        let rest: Vec<&[u8]> = lines.map(<[u8]>::trim_ascii).filter(|l| !l.is_empty()).collect();
        let image = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        if !image.is_absolute() || path.contains(&0) {
            return Self::Wrong("deploy takes the absolute path of an image file".to_owned());
        }
        let timeout = match rest[..] {
            [] => None,
            [line] => match std::str::from_utf8(line).ok().and_then(|l| l.strip_prefix("timeout=")) {
                Some(span) => match span.parse() {
                    Ok(span) => Some(span),
                    Err(_) => return Self::Wrong(format!("deploy: {span:?} is not a time, as 60s is one")),
                },
                None => return Self::Wrong("deploy: its second line may say timeout=60s".to_owned()),
            },
            _ => return Self::Wrong("deploy takes a path, and a line timeout=60s".to_owned()),
        };
        Self::Deploy { image, timeout }
    }
}

/// One control file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    /// What is asked.
    pub(crate) ask: Ask,
    /// What stands behind the verb and a dot; empty for a plain file.
    pub(crate) id: String,
}

/// The answer to one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlResult {
    /// Whether this is the end of it.
    pub done: bool,
    /// Whether it was done as asked.
    pub ok: bool,
    /// One sentence.
    pub message: String,
    /// The next thing to type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The last lines of the instance that it failed at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// What was done on the way, a line each.
    #[serde(default)]
    pub steps: Vec<String>,
}

impl ControlResult {
    /// An answer without steps.
    pub(crate) fn now(ok: bool, message: impl Into<String>) -> Self {
        Self { done: true, ok, message: message.into(), hint: None, lines: Vec::new(), steps: Vec::new() }
    }
}

/// The control folder of a running app.
pub(crate) struct Control {
    dir: PathBuf,
    watch: OnceLock<OwnedFd>,
    /// Whether the folder was looked through since it is watched.
    listed: Cell<bool>,
}

impl Control {
    /// Makes the folder. What an earlier run was asked is forgotten.
    pub(crate) fn open(dirs: &Dirs, app: &RunName) -> Result<Self, RunError> {
        let dir = app_dir(dirs, app.as_str()).join("control");
        let results = dir.join("results");
        make_dir(&results)?;
        for folder in [&dir, &results] {
            ply_image::sweep_pending(folder);
        }
        let control = Self { dir, watch: OnceLock::new(), listed: Cell::new(false) };
        for name in control.files() {
            let _ = std::fs::remove_file(control.dir.join(name));
        }
        Ok(control)
    }

    /// Watches the folder from now on: the descriptor becomes readable when something was put into it. Not done
    /// before it is worth it, since the end of a watch costs the kernel a grace period of some 10 ms.
    pub(crate) fn watch(&self) -> std::io::Result<OwnedFd> {
        let watch = match self.watch.get() {
            Some(watch) => watch,
            None => {
                let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
                let events = inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::CLOSE_WRITE;
                inotify::add_watch(&watch, &self.dir, events)?;
                self.watch.get_or_init(|| watch)
            }
        };
        Ok(rustix::io::fcntl_dupfd_cloexec(watch, 3)?)
    }

    /// What was asked since the last call, in order. Each file is gone afterwards.
    pub(crate) fn take(&self) -> Vec<Command> {
        self.written().into_iter().filter_map(|name| self.take_one(&name)).collect()
    }

    /// The names of what was written whole: those that the kernel tells of, and at first whatever is there. (A file
    /// that is only just being written is there too, without its contents.)
    fn written(&self) -> Vec<String> {
        let mut names = Vec::new();
        let Some(watch) = self.watch.get() else { return self.files() };
        let mut buffer = [MaybeUninit::<u8>::uninit(); 2048];
        let mut reader = inotify::Reader::new(watch, &mut buffer);
        let mut lost = !self.listed.replace(true);
        while let Ok(event) = reader.next() {
            lost |= event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
            names.extend(event.file_name().and_then(|n| n.to_str().ok()).map(str::to_owned));
        }
        if lost {
            names.extend(self.files());
        }
        names
    }

    /// The command in a file; none where it is not one, or was taken already.
    fn take_one(&self, name: &str) -> Option<Command> {
        if name.starts_with('.') || name == "last-result" {
            return None;
        }
        let path = self.dir.join(name);
        let meta = std::fs::symlink_metadata(&path).ok()?;
        let (verb, id) = name.split_once('.').unwrap_or((name, ""));
        let well = id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)) && id.len() <= 64;
        if meta.is_dir() {
            // Only what was put in its place is: the folder of the results belongs here.
            return None;
        }
        let ask = if !meta.is_file() {
            Ask::Wrong(format!("{name:?} is no plain file"))
        } else if !well {
            Ask::Wrong(format!("{name:?}: behind the dot stand letters, digits, - and _, 64 at most"))
        } else if meta.len() > COMMAND_MAX {
            Ask::Wrong(format!("{name:?} is too long for a command"))
        } else {
            match std::fs::read(&path) {
                Ok(contents) => Ask::read(verb, &contents),
                Err(why) => Ask::Wrong(format!("{name:?} can't be read: {why}")),
            }
        };
        let _ = std::fs::remove_file(path);
        Some(Command { ask, id: if well { id.to_owned() } else { String::new() } })
    }

    /// The names of the folder's files, oldest first.
    fn files(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.dir) else { return Vec::new() };
        let mut files: Vec<_> = entries
            .flatten()
            .filter_map(|e| {
                let meta = e.metadata().ok().filter(std::fs::Metadata::is_file)?;
                Some((meta.modified().ok(), e.file_name().into_string().ok()?))
            })
            .collect();
        files.sort();
        files.into_iter().map(|(_, name)| name).collect()
    }

    /// Answers one.
    pub(crate) fn answer(&self, command: &Command, result: &ControlResult) {
        if !command.id.is_empty() {
            let _ = write_json(&self.result_file(&command.id), result, false);
        }
        let _ = write_json(&self.dir.join("last-result"), result, false);
    }

    fn result_file(&self, id: &str) -> PathBuf {
        self.dir.join("results").join(format!("{id}.json"))
    }
}

/// Puts a command into the folder of a running app and waits for its end, or for `gone` to say that nobody will
/// tell one. A first answer must come within `timeout`; `each` sees the steps on the way.
pub(crate) fn ask(
    dirs: &Dirs,
    app: &RunName,
    (verb, contents): (&str, &str),
    timeout: Duration,
    gone: &dyn Fn() -> bool,
    each: &mut dyn FnMut(&str),
) -> Result<Option<ControlResult>, RunError> {
    let dir = app_dir(dirs, app.as_str()).join("control");
    let id = format!("{}-{}", std::process::id(), crate::state::now_ms());
    let result = dir.join("results").join(format!("{id}.json"));
    write_whole(&dir.join(format!("{verb}.{id}")), contents.as_bytes(), false)?;
    let until = Instant::now() + timeout;
    let (mut heard, mut told) = (false, 0);
    loop {
        let last = gone();
        if let Some(answer) = read_result(&result)? {
            heard = true;
            answer.steps.iter().skip(told).for_each(|step| each(step));
            told = answer.steps.len().max(told);
            if answer.done {
                let _ = std::fs::remove_file(&result);
                return Ok(Some(answer));
            }
        }
        if last {
            return Ok(None);
        }
        if !heard && Instant::now() >= until {
            return Err(RunError::plain(format!(
                "{app} did not answer within {}",
                ply_manifest::Span(timeout)
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read_result(path: &Path) -> Result<Option<ControlResult>, RunError> {
    read_json(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::dirs;

    #[test]
    fn commands_are_taken_in_order_answered_and_gone() {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(root.path());
        let app: RunName = "web".parse().unwrap();
        let dir = app_dir(&dirs, "web").join("control");
        make_dir(&dir).unwrap();
        std::fs::write(dir.join("stop"), "").unwrap();
        let control = Control::open(&dirs, &app).unwrap();
        assert!(control.take().is_empty(), "what an earlier run was asked is forgotten");
        std::fs::write(dir.join("scale"), "3\n").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        write_whole(&dir.join("stop.a-1"), b"", false).unwrap();
        let taken = control.take();
        let expected =
            [Command { ask: Ask::Scale(3), id: String::new() }, Command { ask: Ask::Stop, id: "a-1".into() }];
        assert_eq!(taken, expected);
        assert!(control.take().is_empty());
        let result = ControlResult::now(true, "stopped");
        control.answer(&taken[1], &result);
        assert_eq!(read_result(&dir.join("results/a-1.json")).unwrap(), Some(result.clone()));
        assert_eq!(read_result(&dir.join("last-result")).unwrap(), Some(result));
    }

    #[test]
    fn asking_gets_the_answer_or_learns_that_nobody_is_there() {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(root.path());
        let app: RunName = "web".parse().unwrap();
        let control = Control::open(&dirs, &app).unwrap();
        let stop = ("stop", "");
        let answer = std::thread::scope(|scope| {
            scope.spawn(move || {
                loop {
                    if let Some(command) = control.take().first() {
                        control.answer(command, &ControlResult::now(true, "done"));
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            ask(&dirs, &app, stop, Duration::from_secs(5), &|| false, &mut |_| ()).unwrap()
        });
        assert_eq!(answer.unwrap().message, "done");
        assert_eq!(ask(&dirs, &app, stop, Duration::from_secs(5), &|| true, &mut |_| ()).unwrap(), None);
        let error = ask(&dirs, &app, stop, Duration::from_millis(30), &|| false, &mut |_| ()).unwrap_err();
        assert_eq!(error.to_string(), "web did not answer within 30ms");
    }

    #[test]
    fn rubbish_is_answered_in_one_sentence() {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(root.path());
        let control = Control::open(&dirs, &"web".parse().unwrap()).unwrap();
        let dir = app_dir(&dirs, "web").join("control");
        let _watch = control.watch().unwrap();
        let long = "3".repeat(5000);
        for (name, contents, why) in [
            ("scale", "three", "scale takes a number of instances, as in 3, or auto"),
            ("scale.x", "", "scale takes a number of instances, as in 3, or auto"),
            ("deploy", "web.img", "deploy takes the absolute path of an image file"),
            ("deploy", "/web.img\ntimeout=soon", "deploy: \"soon\" is not a time, as 60s is one"),
            ("deploy", "/web.img\nfast", "deploy: its second line may say timeout=60s"),
            ("deploy", "/a.img\ntimeout=1s\ntimeout=2s", "deploy takes a path, and a line timeout=60s"),
            ("scale", long.as_str(), "\"scale\" is too long for a command"),
            ("dance.7", "", "this version of ply doesn't act on \"dance\""),
        ] {
            std::fs::write(dir.join(name), contents).unwrap();
            let taken = control.take();
            assert_eq!(taken.len(), 1, "{name}");
            assert_eq!(taken[0].ask, Ask::Wrong(why.to_owned()));
        }
        std::fs::write(dir.join(".hidden"), "").unwrap();
        assert!(control.take().is_empty());
        // Neither followed nor opened, and gone.
        std::os::unix::fs::symlink("/etc/hostname", root.path().join("link")).unwrap();
        std::fs::rename(root.path().join("link"), dir.join("scale")).unwrap();
        assert_eq!(control.take()[0].ask, Ask::Wrong("\"scale\" is no plain file".to_owned()));
        assert!(std::fs::symlink_metadata(dir.join("scale")).is_err());
        std::fs::write(dir.join("scale.a b"), "3").unwrap();
        let taken = control.take();
        assert!(
            matches!(&taken[0], Command { ask: Ask::Wrong(why), id } if why.contains("behind the dot") && id.is_empty())
        );
        // Seen as soon as it is whole, not when it is only there.
        let open = std::fs::File::create(dir.join("restart.1")).unwrap();
        assert!(control.take().is_empty());
        drop(open);
        assert_eq!(control.take(), [Command { ask: Ask::Restart, id: "1".into() }]);
    }
}
