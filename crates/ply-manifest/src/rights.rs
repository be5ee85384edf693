//! What an app keeps and who it is: capabilities, stop signals, users.

use crate::nearest;
use crate::noun::{NounError, serde_by_text};
use std::fmt;
use std::str::FromStr;

/// Every capability of Linux 6.x, in the order of its number (capabilities(7)).
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// One capability, by its number. Parses in any case, with or without `CAP_`; prints in lower case without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability(u8);

impl Capability {
    /// The kernel's number of this capability (linux/capability.h).
    pub fn number(self) -> u8 {
        self.0
    }
}

impl FromStr for Capability {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let lower = s.to_ascii_lowercase();
        let name = lower.strip_prefix("cap_").unwrap_or(&lower);
        match NAMES.iter().position(|n| *n == name) {
            Some(number) => Ok(Self(number as u8)),
            None => {
                Err(NounError::new(format!("{s:?} is not a capability")).hint(match nearest(name, NAMES) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => "names are those of capabilities(7), as in \"chown\" or \"net_bind_service\""
                        .to_owned(),
                }))
            }
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES[usize::from(self.0)])
    }
}

/// What an app keeps after rights are stripped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Capabilities {
    /// Nothing, the default.
    #[default]
    None,
    /// The fourteen that Docker keeps by default.
    Oci,
    /// Exactly these, sorted, each once.
    Only(Vec<Capability>),
}

impl Capabilities {
    const OCI: [u8; 14] = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31];

    /// What is kept, as a sorted list.
    pub fn list(&self) -> Vec<Capability> {
        match self {
            Self::None => Vec::new(),
            Self::Oci => Self::OCI.into_iter().map(Capability).collect(),
            Self::Only(list) => list.clone(),
        }
    }

    /// What is kept, as the kernel's bit set.
    pub fn bits(&self) -> u64 {
        self.list().iter().fold(0, |bits, c| bits | 1 << c.number())
    }
}

/// The flag's grammar: `none`, `oci`, or names with commas.
impl FromStr for Capabilities {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        match s {
            "" | "none" => Ok(Self::None),
            "oci" => Ok(Self::Oci),
            names => {
                let mut list: Vec<Capability> =
                    names.split(',').map(|n| n.trim().parse()).collect::<Result<_, _>>()?;
                list.sort();
                list.dedup();
                Ok(Self::Only(list))
            }
        }
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Oci => f.write_str("oci"),
            Self::Only(list) if list.is_empty() => f.write_str("none"),
            Self::Only(list) => {
                let names: Vec<String> = list.iter().map(Capability::to_string).collect();
                f.write_str(&names.join(","))
            }
        }
    }
}

/// The standard signals of signal(7) by number; numbers are those of x64 and arm64.
const SIGNALS: [(&str, i32); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// A signal by name (any case, `SIG` optional) or a real-time one as `RTMIN+3`. Prints as `SIGTERM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(i32);

impl Signal {
    /// SIGTERM, the default way to ask an app to shut down.
    pub const TERM: Self = Self(15);
    const RTMIN: i32 = 34;
    const RTMAX: i32 = 64;

    /// The number on x64 and arm64.
    pub fn number(self) -> i32 {
        self.0
    }
}

impl FromStr for Signal {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let upper = s.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let realtime = || {
            let offset: i32 = match name.strip_prefix("RTMIN")? {
                "" => 0,
                plus => {
                    let digits = plus.strip_prefix('+')?;
                    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??
                }
            };
            (0..=Self::RTMAX - Self::RTMIN).contains(&offset).then_some(Self::RTMIN + offset)
        };
        let standard = SIGNALS.iter().find(|(n, _)| *n == name).map(|(_, number)| *number);
        standard.or_else(realtime).map(Self).ok_or_else(|| {
            NounError::new(format!("{s:?} is not a signal")).hint(
                match nearest(name, SIGNALS.iter().map(|(n, _)| *n)) {
                    Some(near) => format!("did you mean \"SIG{near}\"?"),
                    None => "write a name as \"SIGTERM\", \"quit\" or \"SIGRTMIN+3\"".to_owned(),
                },
            )
        })
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SIGNALS.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => write!(f, "SIG{name}"),
            None if self.0 == Self::RTMIN => f.write_str("SIGRTMIN"),
            None => write!(f, "SIGRTMIN+{}", self.0 - Self::RTMIN),
        }
    }
}

/// A user of the app: `name:uid:gid`. The manifest's form; a flag may also give `name` or `uid[:gid]`,
/// which are looked up in the image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserSpec {
    /// The name in passwd and group.
    pub name: String,
    /// The user id inside.
    pub uid: u32,
    /// The group id inside.
    pub gid: u32,
}

impl FromStr for UserSpec {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = |why: &str| {
            NounError::new(format!("{s:?} is not a user: {why}"))
                .hint("write a user as \"name:uid:gid\", as in \"appuser:1000:1000\"")
        };
        let parts: Vec<&str> = s.split(':').collect();
        let [name, uid, gid] = parts[..] else { return Err(wrong("it has not three parts")) };
        let well = !name.is_empty()
            && name.len() <= 32
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
            && !name.as_bytes()[0].is_ascii_digit()
            && !name.starts_with('-');
        if !well {
            return Err(wrong(
                "a name has lower-case letters, digits, _ and -, at most 32, and begins with a letter or _",
            ));
        }
        let id = |text: &str| {
            let id: u32 = text.parse().ok()?;
            (id <= 65_535 && text.bytes().all(|b| b.is_ascii_digit())).then_some(id)
        };
        let (Some(uid), Some(gid)) = (id(uid), id(gid)) else {
            return Err(wrong("ids are numbers from 0 to 65535"));
        };
        Ok(Self { name: name.to_owned(), uid, gid })
    }
}

impl fmt::Display for UserSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.name, self.uid, self.gid)
    }
}

serde_by_text!(Capability, Capabilities, Signal, UserSpec);
