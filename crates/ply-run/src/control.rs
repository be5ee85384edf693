//! Commands to a running app: files in `data/apps/<app>/control/`, written whole and renamed in, seen at once by
//! its run parent, taken in order, answered in `results/<id>.json` and `last-result`. Who may write the folder
//! may command the app, nobody else. There is no socket.

use crate::RunError;
use crate::files::{make_dir, read_json, write_json, write_whole};
use crate::installed::app_dir;
use ply_image::Dirs;
use ply_manifest::RunName;
use rustix::fs::inotify;
use serde::{Deserialize, Serialize};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
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
    /// A verb that this version doesn't act on, or none at all.
    Unknown(String),
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
    /// Whether it was done.
    pub ok: bool,
    /// One sentence.
    pub message: String,
}

/// The control folder of a running app.
pub(crate) struct Control {
    dir: PathBuf,
    watch: OnceLock<OwnedFd>,
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
        let control = Self { dir, watch: OnceLock::new() };
        for (path, _) in control.files() {
            let _ = std::fs::remove_file(path);
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

    /// What was asked since the last call, oldest first. Each file is gone afterwards.
    pub(crate) fn take(&self) -> Vec<Command> {
        if let Some(watch) = self.watch.get() {
            let mut buffer = [MaybeUninit::<u8>::uninit(); 2048];
            let mut reader = inotify::Reader::new(watch, &mut buffer);
            while reader.next().is_ok() {}
        }
        let mut commands = Vec::new();
        for (path, name) in self.files() {
            let (verb, id) = name.split_once('.').unwrap_or((&name, ""));
            let ask = if verb == "stop" { Ask::Stop } else { Ask::Unknown(verb.to_owned()) };
            let well = id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)) && id.len() <= 64;
            commands.push(Command { ask, id: if well { id.to_owned() } else { String::new() } });
            let _ = std::fs::remove_file(path);
        }
        commands
    }

    /// The files of the folder, oldest first.
    fn files(&self) -> Vec<(PathBuf, String)> {
        let Ok(entries) = std::fs::read_dir(&self.dir) else { return Vec::new() };
        let mut files: Vec<_> = entries
            .flatten()
            .filter_map(|e| {
                let meta = e.metadata().ok().filter(|m| m.is_file() && m.len() <= COMMAND_MAX)?;
                let name = e.file_name().into_string().ok()?;
                (!name.starts_with('.') && name != "last-result")
                    .then(|| (meta.modified().ok(), e.path(), name))
            })
            .collect();
        files.sort();
        files.into_iter().map(|(_, path, name)| (path, name)).collect()
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

/// Puts a command into the folder of a running app and waits for its answer, or for `gone` to say that nobody
/// will give one.
pub(crate) fn ask(
    dirs: &Dirs,
    app: &RunName,
    verb: &str,
    timeout: Duration,
    gone: &dyn Fn() -> bool,
) -> Result<Option<ControlResult>, RunError> {
    let dir = app_dir(dirs, app.as_str()).join("control");
    let id = format!("{}-{}", std::process::id(), crate::state::now_ms());
    let result = dir.join("results").join(format!("{id}.json"));
    write_whole(&dir.join(format!("{verb}.{id}")), b"", false)?;
    let until = Instant::now() + timeout;
    loop {
        if let Some(answer) = read_result(&result)? {
            let _ = std::fs::remove_file(&result);
            return Ok(Some(answer));
        }
        if gone() {
            return read_result(&result);
        }
        if Instant::now() >= until {
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
        let expected = [
            Command { ask: Ask::Unknown("scale".into()), id: String::new() },
            Command { ask: Ask::Stop, id: "a-1".into() },
        ];
        assert_eq!(taken, expected);
        assert!(control.take().is_empty());
        let result = ControlResult { ok: true, message: "stopped".into() };
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
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    if let Some(command) = control.take().first() {
                        control.answer(command, &ControlResult { ok: true, message: "done".into() });
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            ask(&dirs, &app, "stop", Duration::from_secs(5), &|| false).unwrap()
        });
        assert_eq!(answer.unwrap().message, "done");
        assert_eq!(ask(&dirs, &app, "stop", Duration::from_secs(5), &|| true).unwrap(), None);
        let error = ask(&dirs, &app, "stop", Duration::from_millis(30), &|| false).unwrap_err();
        assert_eq!(error.to_string(), "web did not answer within 30ms");
    }
}
