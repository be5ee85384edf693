//! What a member waits for: `db`, `server.ready`, `server.ready == 'ok'`. Nothing else, ever.

use crate::RunName;
use crate::noun::{NounError, serde_by_text};
use crate::template::param_name;
use std::fmt;
use std::str::FromStr;

/// A condition of `after`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Condition {
    /// The member that is waited for.
    pub member: RunName,
    /// The value of its live tree, where one is named; else the member's health.
    pub value: Option<String>,
    /// What that value must be; else that it is there.
    pub equals: Option<String>,
}

impl FromStr for Condition {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = || {
            NounError::new(format!("{s:?} is not a condition"))
                .hint("write \"db\", \"server.ready\" or \"server.ready == 'ok'\"")
        };
        let (left, equals) = match s.split_once("==") {
            None => (s, None),
            Some((left, right)) => {
                let text =
                    right.trim().strip_prefix('\'').and_then(|t| t.strip_suffix('\'')).ok_or_else(wrong)?;
                if text.contains('\'') || text.chars().any(char::is_control) {
                    return Err(wrong());
                }
                (left.trim(), Some(text.to_owned()))
            }
        };
        let (member, value) = match left.split_once('.') {
            None => (left, None),
            Some((member, value)) if param_name(value) => (member, Some(value.to_owned())),
            Some(_) => return Err(wrong()),
        };
        if equals.is_some() && value.is_none() {
            return Err(wrong());
        }
        Ok(Self { member: member.parse().map_err(|_| wrong())?, value, equals })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.member)?;
        if let Some(value) = &self.value {
            write!(f, ".{value}")?;
        }
        match &self.equals {
            Some(text) => write!(f, " == '{text}'"),
            None => Ok(()),
        }
    }
}

serde_by_text!(Condition);
