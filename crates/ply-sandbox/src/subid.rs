//! The id ranges that an administrator delegated to a user: `/etc/subuid` and `/etc/subgid` (subuid(5)).
//! They are read here and not by NSS: a static binary has none.

use serde::{Deserialize, Serialize};
use std::fs;

/// The ranges of one user, `(first id, how many)`, in the order of the files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubIds {
    /// For users.
    pub uids: Vec<(u32, u32)>,
    /// For groups.
    pub gids: Vec<(u32, u32)>,
}

impl SubIds {
    /// The ranges of the user with this id; none where the files don't name it.
    pub fn of(uid: u32) -> Self {
        let passwd = fs::read("/etc/passwd").unwrap_or_default();
        let name = user_name(&String::from_utf8_lossy(&passwd), uid);
        let read = |path| {
            let text = fs::read(path).unwrap_or_default();
            ranges(&String::from_utf8_lossy(&text), name.as_deref(), uid)
        };
        Self { uids: read("/etc/subuid"), gids: read("/etc/subgid") }
    }

    /// Whether any user and any group is delegated.
    pub fn is_empty(&self) -> bool {
        self.uids.is_empty() || self.gids.is_empty()
    }
}

/// The name of a user id in the text of a passwd file (passwd(5)).
fn user_name(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let _password = fields.next()?;
        (fields.next()?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// A user's lines `name-or-id:first:count`. Those that can't be, or reach past the last id, are no ranges.
fn ranges(text: &str, name: Option<&str>, uid: u32) -> Vec<(u32, u32)> {
    let id = uid.to_string();
    text.lines()
        .filter_map(|line| {
            let mut fields = line.trim().split(':');
            let who = fields.next()?;
            if name != Some(who) && who != id {
                return None;
            }
            let (first, count): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            (fields.next().is_none() && count > 0 && first > 0 && first.checked_add(count).is_some())
                .then_some((first, count))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_user_by_name_or_number_are_ranges_and_others_are_not() {
        let text = "# comment\nalice:100000:65536\nbob:165536:65536\n1000:300000:10\nalice:1:0\nalice:0:10\n\
                    alice:4294967295:2\nalice:x:1\nalice:1\nalice:500:5:6\n";
        assert_eq!(ranges(text, Some("alice"), 1000), [(100_000, 65_536), (300_000, 10)]);
        assert_eq!(ranges(text, Some("bob"), 1001), [(165_536, 65_536)]);
        assert_eq!(ranges(text, None, 1002), []);
    }

    #[test]
    fn a_user_is_found_by_number() {
        let passwd = "root:x:0:0::/root:/bin/sh\nbroken\nalice:x:1000:1000::/:/bin/sh\n";
        assert_eq!(user_name(passwd, 1000).as_deref(), Some("alice"));
        assert_eq!(user_name(passwd, 0).as_deref(), Some("root"));
        assert_eq!(user_name(passwd, 7), None);
    }
}
