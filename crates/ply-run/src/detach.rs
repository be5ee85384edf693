//! `-d`: the run parent goes to the background, and the command returns once the app runs. What goes wrong until
//! then travels back through a pipe and is the command's own error.

use crate::RunError;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;

/// What the run parent tells the command that started it.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    /// It runs; what to say.
    Running(Vec<String>),
    /// It doesn't.
    Failed { code: u8, message: String, hint: Option<String> },
}

/// The two sides after [`split`].
pub(crate) enum Side {
    /// The command: what became of it, and the process of the run parent.
    Command(Result<Vec<String>, RunError>),
    /// The run parent, in a session of its own.
    Parent(Reporter),
}

/// Tells the command, once.
pub(crate) struct Reporter(File);

/// Forks. The command side waits until the other has reported.
pub(crate) fn split() -> Result<Side, RunError> {
    let failed = |why: std::io::Error| RunError::plain(format!("it can't go to the background: {why}"));
    let (read, write) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    // SAFETY: no other thread of ours runs here: fetches and builds have joined theirs, the event loop has not
    // begun. The child goes on with this process's memory as it is.
    match unsafe { nix::unistd::fork() }.map_err(|e| failed(e.into()))? {
        nix::unistd::ForkResult::Parent { .. } => {
            drop(write);
            Ok(Side::Command(wait(read)))
        }
        nix::unistd::ForkResult::Child => {
            drop(read);
            rustix::process::setsid().map_err(|e| failed(e.into()))?;
            Ok(Side::Parent(Reporter(File::from(write))))
        }
    }
}

fn wait(read: OwnedFd) -> Result<Vec<String>, RunError> {
    // One line, not up to the end: who is still there may hold the pipe open.
    let mut text = String::new();
    let _ = BufReader::new(File::from(read)).read_line(&mut text);
    match serde_json::from_str(&text) {
        Ok(Told::Running(lines)) => Ok(lines),
        Ok(Told::Failed { code, message, hint }) => Err(RunError::Background { code, message, hint }),
        Err(_) => Err(RunError::plain("the run parent ended before the app ran")),
    }
}

impl Reporter {
    /// A second one, for a failure after the first was handed on. Whichever speaks first is heard.
    pub(crate) fn twin(&self) -> Result<Self, RunError> {
        self.0
            .try_clone()
            .map(Self)
            .map_err(|why| RunError::plain(format!("it can't go to the background: {why}")))
    }

    /// It runs. From here on nobody sees what this process writes.
    pub(crate) fn running(self, lines: Vec<String>) {
        if let Ok(null) = crate::pump::null() {
            for fd in 0..3 {
                // SAFETY: 0, 1 and 2 are open and nobody in this process owns them as a value that closes them.
                unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), fd) };
            }
        }
        // A folder that the caller was in is not held busy.
        let _ = std::env::set_current_dir("/");
        self.tell(&Told::Running(lines));
    }

    /// It doesn't.
    pub(crate) fn failed(self, error: &RunError) {
        self.tell(&Told::Failed { code: error.exit_code(), message: error.to_string(), hint: error.hint() });
    }

    fn tell(mut self, told: &Told) {
        if let Ok(mut text) = serde_json::to_vec(told) {
            text.push(b'\n');
            let _ = self.0.write_all(&text);
        }
    }
}
