//! The one error of all nouns: what was found, the rule it breaks, and what would do instead.

use crate::diagnostic::floor_boundary;

/// Why a text is not a value of some noun. `Display` is one sentence without a trailing full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NounError {
    /// What was found and which rule it breaks.
    pub message: String,
    /// What to write instead, where one can tell.
    pub hint: Option<String>,
}

impl NounError {
    /// An error without a hint.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: elide(message.into()), hint: None }
    }

    /// The same error with a hint of what to write instead.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(elide(hint.into()));
        self
    }
}

/// A message as it is, or without its middle where somebody's text made it longer than anyone reads.
pub(crate) fn elide(message: String) -> String {
    const MOST: usize = 400;
    const KEPT: usize = 180;
    if message.len() <= MOST {
        return message;
    }
    let head = floor_boundary(&message, KEPT);
    let tail = floor_boundary(&message, message.len() - KEPT);
    format!("{}…{}", &message[..head], &message[tail..])
}

/// Implements `Serialize` and `Deserialize` of a noun through its text.
macro_rules! serde_by_text {
    ($($noun:ty),+ $(,)?) => {$(
        impl serde::Serialize for $noun {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $noun {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}
pub(crate) use serde_by_text;
