//! Bringing an image and its layers into the store, checked and ready to be mounted, beside a run parent that goes on
//! serving. It is done by a `ply` of its own, so that nothing of the wire stays in the run parent, which has one thread
//! for everything. That one keeps its locks on the images until the run parent has its own.

use crate::context::Context;
use crate::lease::RANGE;
use crate::options::RunOptions;
use crate::target;
use crate::{RunError, pump};
use ply_manifest::{Digest, Target};
use ply_sandbox::Host;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The hidden verb of the command line that does this.
pub const PREPARE: &str = "prepare";

/// What one process tells the other, in one line.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    /// The digests of the image and its layers; all are in the store.
    Ready(Vec<Digest>),
    Failed {
        message: String,
        hint: Option<String>,
    },
}

/// The side of the new process: brings the image, says so on standard output, and holds it until standard input ends.
pub fn prepare(image: &Path, context: &Context) -> Result<(), RunError> {
    let host = Host::probe(&context.cgroup_parent);
    let brought = target::bring(&Target::Path(image.to_owned()), context).and_then(|brought| {
        brought.0.iter().try_for_each(|e| target::make_mountable(e, &host, &host.ids((0, RANGE))))?;
        Ok(brought)
    });
    let told = match &brought {
        Ok((entries, _)) => Told::Ready(entries.iter().map(|e| e.digest).collect()),
        Err(error) => Told::Failed { message: error.to_string(), hint: error.hint() },
    };
    let mut text = serde_json::to_vec(&told).map_err(|e| RunError::plain(e.to_string()))?;
    text.push(b'\n');
    let told = std::io::stdout().write_all(&text).and_then(|()| std::io::stdout().flush());
    told.map_err(|why| RunError::plain(format!("nobody hears it: {why}")))?;
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(brought);
    Ok(())
}

/// A process that brings an image; it ends with this value.
pub(crate) struct Preparing(Child);

impl Preparing {
    /// Starts it, with the sources that the run was asked for.
    pub(crate) fn start(image: &Path, options: &RunOptions) -> std::io::Result<(Self, OwnedFd)> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(PREPARE).arg(image).current_dir("/");
        if let Some(source) = &options.source {
            command.arg(format!("--source={source}"));
        }
        if options.insecure_source {
            command.arg("--insecure-source");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // SAFETY: a single system call between fork and exec.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let mut child = command.spawn()?;
        let told = child.stdout.take().map(OwnedFd::from);
        let preparing = Self(child);
        told.map(|told| (preparing, told)).ok_or_else(|| std::io::ErrorKind::BrokenPipe.into())
    }
}

impl Drop for Preparing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the process tells: the digests of the image and its layers.
pub(crate) async fn told(from: OwnedFd) -> Result<Vec<Digest>, RunError> {
    let broken = |why: String| RunError::plain(format!("the image could not be prepared: {why}"));
    let text = pump::read_line(from).await.map_err(|e| broken(e.to_string()))?;
    match serde_json::from_slice(&text) {
        Ok(Told::Ready(digests)) => Ok(digests),
        Ok(Told::Failed { message, hint }) => Err(RunError::Refused { message, hint }),
        Err(_) => Err(broken("the process that did it has ended".to_owned())),
    }
}
