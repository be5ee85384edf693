//! The id ranges that an administrator delegated to a user: `/etc/subuid` and `/etc/subgid` (subuid(5)).
//! They are read here and not by NSS: a static binary has none.

use serde::{Deserialize, Serialize};

/// The ranges of one user, `(first id, how many)`, in the order of the files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubIds {
    /// For users.
    pub uids: Vec<(u32, u32)>,
    /// For groups.
    pub gids: Vec<(u32, u32)>,
}
