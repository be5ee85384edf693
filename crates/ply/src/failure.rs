//! How a verb ends badly: one sentence, a hint, an exit code. Every crate's errors become one of these at the
//! edge, so that all of ply speaks with one voice.

use anstream::eprintln;
use anstyle::{AnsiColor, Style};
use std::fmt::Display;
use std::process::ExitCode;

/// The command line was wrong.
pub(crate) const USAGE: u8 = 2;

/// One or more faults to report, and the exit code to leave with.
#[derive(Debug)]
pub(crate) struct Failure {
    faults: Vec<(String, Option<String>)>,
    code: u8,
}

impl Failure {
    /// A fault with exit code 1.
    pub(crate) fn new(message: impl Display) -> Self {
        Self { faults: vec![(message.to_string(), None)], code: 1 }
    }

    /// A fault of the command line, exit code 2.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(message).code(USAGE)
    }

    /// The same with a hint for the last fault.
    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        if let Some(last) = self.faults.last_mut() {
            last.1 = Some(hint.to_string());
        }
        self
    }

    /// The same with a hint where there is one.
    pub(crate) fn maybe_hint(self, hint: Option<String>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    /// The same with another exit code.
    pub(crate) fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// The same with `code` where none but the general one was set: a caller of `ply run` must not take ply's own
    /// failure for the app's.
    pub(crate) fn unless_coded(self, code: u8) -> Self {
        if self.code == 1 { self.code(code) } else { self }
    }

    /// Does `each` to all, however some of them end, and reports the faults of all.
    pub(crate) fn of_each<T>(
        all: &[T],
        mut each: impl FnMut(&T) -> Result<(), Self>,
    ) -> Result<ExitCode, Self> {
        let failed: Vec<Self> = all.iter().filter_map(|one| each(one).err()).collect();
        let code = failed.iter().map(|failure| failure.code).max();
        match code {
            None => Ok(ExitCode::SUCCESS),
            Some(code) => Err(Self { faults: failed.into_iter().flat_map(|f| f.faults).collect(), code }),
        }
    }

    /// A fault of `ply run` or `ply exec`, with the exit code that tells it from the app's.
    pub(crate) fn of_run(error: ply_run::RunError) -> Self {
        let code = error.exit_code();
        Self::from(error).code(code)
    }

    /// Prints every fault to standard error and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let bad: Style = AnsiColor::Red.on_default().bold();
        let calm: Style = AnsiColor::Cyan.on_default();
        for (message, hint) in &self.faults {
            eprintln!("{bad}error:{bad:#} {}", plain(message));
            if let Some(hint) = hint {
                for line in hint.lines() {
                    eprintln!("{calm}hint:{calm:#} {}", plain(line));
                }
            }
        }
        ExitCode::from(self.code)
    }
}

/// A message without what could steer the terminal (names and values in it may come from an image), and without the
/// number of a system error, whose words stand before it.
fn plain(message: &str) -> String {
    let lines: Vec<String> = message.split('\n').map(crate::output::clean).collect();
    let mut text = lines.join("\n");
    while let Some(at) = text.find(" (os error ") {
        let Some(end) = text[at..].find(')') else { break };
        text.replace_range(at..=at + end, "");
    }
    text
}

impl From<ply_manifest::Diagnostics> for Failure {
    fn from(all: ply_manifest::Diagnostics) -> Self {
        Self { faults: all.0.into_iter().map(|d| (d.to_string(), d.hint)).collect(), code: 1 }
    }
}

impl From<ply_manifest::NounError> for Failure {
    fn from(error: ply_manifest::NounError) -> Self {
        Self::usage(&error.message).maybe_hint(error.hint)
    }
}

/// The errors of the crates below, each with its hint.
macro_rules! from_crates {
    ($($error:ty),+ $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                let hint = error.hint();
                Self::new(error).maybe_hint(hint)
            }
        }
    )+};
}

impl From<ply_build::EditError> for Failure {
    fn from(error: ply_build::EditError) -> Self {
        match error {
            ply_build::EditError::Manifest(all) => all.into(),
            other => {
                let hint = other.hint();
                Self::new(other).maybe_hint(hint)
            }
        }
    }
}

from_crates!(ply_image::ImageError, ply_source::SourceError, ply_forge::ForgeError);

impl From<ply_build::BuildError> for Failure {
    fn from(error: ply_build::BuildError) -> Self {
        use ply_build::BuildError as E;
        match error {
            // Each fault of a file with its own hint.
            E::Manifest(all) | E::Lock(all) | E::IncludeMatchesNothing(all) | E::IncludeInvalid(all) => {
                all.into()
            }
            other => {
                let hint = other.hint();
                Self::new(other).maybe_hint(hint)
            }
        }
    }
}

impl From<ply_run::RunError> for Failure {
    fn from(error: ply_run::RunError) -> Self {
        match error {
            ply_run::RunError::File(all) => all.into(),
            other => {
                let hint = other.hint();
                Self::new(other).maybe_hint(hint)
            }
        }
    }
}
