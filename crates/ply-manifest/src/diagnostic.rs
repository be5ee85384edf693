//! Errors with a place: file, line, column, what is wrong, what to write instead.

use std::fmt;

/// A place in a text: 1-based line, 1-based column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl Place {
    /// The place of byte `offset` of `text`; the end of the text where the offset is beyond it.
    pub fn of(text: &str, offset: usize) -> Self {
        let before = &text[..floor_boundary(text, offset)];
        let line_start = before.rfind('\n').map_or(0, |n| n + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

/// The end of the last whole character that begins at or before byte `offset`.
pub(crate) fn floor_boundary(text: &str, offset: usize) -> usize {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

/// What kind of rule a fault breaks, for callers that go on differently after each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FaultKind {
    /// A value has another type than its key takes.
    Type,
    /// Anything else.
    #[default]
    Rule,
}

/// One fault of a file. Prints as `file:line:col: message`, and the hint is for the caller to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file as the user knows it.
    pub file: String,
    /// Where in it; none where the fault is the whole file's.
    pub place: Option<Place>,
    /// What was found and which rule it breaks, in one sentence.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
    /// Which kind of rule it breaks.
    pub kind: FaultKind,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(Place { line, column }) => write!(f, "{}:{line}:{column}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

/// All faults of a file, at least one, in the order of their places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            diagnostic.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

impl From<Diagnostic> for Diagnostics {
    fn from(one: Diagnostic) -> Self {
        Self(vec![one])
    }
}
