//! What can go wrong on the way into the box, each cause one sentence in the user's words.
//!
//! Inside the box there is no allocation and no formatting: a failing child sends a [`Step`] and an errno, and
//! the sentence is made here, by the parent.

use std::io;
use std::path::PathBuf;

/// Why a box wasn't started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The program isn't in the image (exit code 127).
    #[error("the program isn't in the image: {0}")]
    NotFound(String),
    /// The program is there but can't be executed (exit code 126).
    #[error("the program can't be executed: {program} ({reason})")]
    NotExecutable {
        /// The program as it was asked for.
        program: String,
        /// Why.
        reason: String,
    },
    /// The working directory isn't there, or isn't a directory.
    #[error("the working directory isn't in the image: {path} ({reason})", reason = reason(source))]
    Workdir {
        /// The path inside.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A host path that was to be bound isn't there or can't be read.
    #[error("can't bind {path}: {reason}", path = path.display(), reason = reason(source))]
    Source {
        /// The host path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A place inside can't be used as a mount point, or a scratch file can't be made there.
    #[error("can't use the path {path} inside: {reason}")]
    Target {
        /// The path inside.
        path: String,
        /// Why.
        reason: String,
    },
    /// A user or group that doesn't exist in the box's id range.
    #[error("the {what} {id} has no id outside: {reason}")]
    Unmapped {
        /// `user` or `group`.
        what: &'static str,
        /// The id inside.
        id: u32,
        /// What the range is.
        reason: String,
    },
    /// The host can't do something that is needed.
    #[error("this host can't run the box: {missing}")]
    Host {
        /// What is missing, in words.
        missing: String,
        /// What to do about it.
        hint: String,
    },
    /// A layer can't be mounted.
    #[error("can't mount the layer {digest}: {reason}", reason = reason(source))]
    Layer {
        /// The layer's digest.
        digest: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A layer that must be extracted first isn't.
    #[error("the layer {0} isn't extracted")]
    NotExtracted(String),
    /// The value of a spec that can't be.
    #[error("the box can't be made: {0}")]
    Invalid(String),
    /// The instance isn't there any more (for exec).
    #[error("the instance isn't running: {0}")]
    Gone(String),
    /// A step failed.
    #[error("{step}: {reason}", reason = reason(source))]
    Step {
        /// Which.
        step: Step,
        /// The system's reason.
        source: io::Error,
    },
}

/// The system's reason without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(at) = text.find(" (os error ") {
        text.truncate(at);
    }
    text
}

impl LaunchError {
    /// The exit code that this is to a shell: 127 no such program, 126 not executable, else 125.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable { .. } => 126,
            _ => 125,
        }
    }

    /// The next thing to do, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Host { hint, .. } => Some(hint.clone()),
            // What squashfs says of bytes that it can't read.
            Self::Layer { source, .. } if matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EIO)) => {
                Some(
                    "ply verify finds what is damaged in the store; the next run then fetches it again"
                        .to_owned(),
                )
            }
            _ => None,
        }
    }
}

macro_rules! steps {
    ($($name:ident $words:literal)*) => {
        /// A step of the launch, for the error that names it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Step {
            $(#[doc = $words] $name,)*
        }

        impl Step {
            const ALL: &[Self] = &[$(Self::$name),*];

            fn words(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }
        }
    };
}

steps! {
    Clone "can't make the process and its namespaces"
    Maps "can't write the id maps"
    Helper "newuidmap or newgidmap refused the id maps"
    Cgroup "can't make the cgroup"
    JoinCgroup "can't enter the cgroup"
    Limits "can't set the resource limits"
    Talk "lost the connection to the process in the box"
    Ids "can't become root in the user namespace"
    CgroupNamespace "can't make the cgroup namespace"
    Hostname "can't set the host name"
    Private "can't make the mounts private"
    Pin "can't make the mount namespace for the layers"
    Upper "can't make the scratch filesystem"
    Overlay "can't put the layers together"
    Layer "can't open a layer"
    Pivot "can't change the root"
    Root "can't open the new root"
    Proc "can't mount /proc"
    Sys "can't mount /sys"
    Dev "can't make /dev"
    Device "can't bind the device"
    Tmp "can't mount the temporary folders"
    Mask "can't mask a path"
    Sysctl "can't set the lowest unprivileged port"
    Loopback "can't raise the loopback interface"
    File "can't write the file"
    Folder "can't make the folder"
    Link "can't make the link"
    Source "can't open what is to be bound"
    Target "can't bind at"
    Terminal "can't make the terminal"
    Join "can't join the namespaces"
    Fork "can't start the process"
    Standard "can't set up standard input and output"
    Capabilities "can't drop capabilities"
    Groups "can't set the groups"
    User "can't become the user"
    NoNewPrivs "can't give up new privileges"
    Filter "can't install the system call filter"
    Descriptors "can't close the other descriptors"
    Workdir "can't enter the working directory"
    Program "can't find the program"
    Parent "the process that started the box is gone"
    Stub "can't prepare the start of the program"
    Exec "can't execute the program"
}

impl Step {
    /// The step of a record that came from the box.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.words())
    }
}

impl From<crate::wire::Failure> for LaunchError {
    fn from(failure: crate::wire::Failure) -> Self {
        Self::Step { step: failure.step, source: io::Error::from_raw_os_error(failure.errno) }
    }
}
