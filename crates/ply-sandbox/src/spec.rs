//! What a box is, as plain data. It knows nothing of ply: no app names, manifests or state files, so that
//! another program could use this crate. Whoever fills it has decided everything; the launch only acts.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One process in a box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// A name that is unique on this host while the box exists; names its cgroup. Letters, digits, `-`, `.`.
    pub id: String,
    /// The host name inside, at most 63 bytes.
    pub hostname: String,
    /// The layers, the topmost first, at least one.
    pub layers: Vec<Layer>,
    /// How ids inside map to ids outside.
    pub ids: Ids,
    /// What the process is.
    pub process: Process,
    /// Host paths bound inside, in order.
    pub mounts: Vec<Mount>,
    /// Files written into the scratch upper before the start (passwd, group, hosts, resolv.conf…).
    pub files: Vec<ScratchFile>,
    /// Folders made in the scratch upper before the start (a home folder, the workdir).
    pub folders: Vec<ScratchFolder>,
    /// Symbolic links made in the scratch upper before the start, over whatever the image has there
    /// (`/etc/hosts` into a folder that is bound inside: a bound file would keep its old inode).
    pub links: Vec<ScratchLink>,
    /// Host devices made available inside, by absolute host path; they appear at the same path.
    pub devices: Vec<PathBuf>,
    /// The network.
    pub network: Network,
    /// The limits.
    pub limits: Limits,
    /// The most that scratch (the overlay's upper) may hold, in bytes.
    pub scratch_bytes: u64,
    /// Whether an init of ours is pid 1; without, the process itself is.
    pub init: bool,
    /// Keeps every capability and no filter. Never from a manifest.
    pub privileged: bool,
}

/// One layer of the root filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The identity of its bytes, `sha256:<hex>`: one mount a digest on this host.
    pub digest: String,
    /// The squashfs image.
    pub image: PathBuf,
    /// The extracted tree, where there is one: rootless, and rootful where squashfs can't be id-mapped.
    pub tree: Option<PathBuf>,
}

/// How ids inside map to ids outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ids {
    /// Rootful with a user namespace: inside `0..count` is outside `start..start + count`. Layers and volumes
    /// are id-mapped, so that files on disk keep the ids of the inside.
    Leased {
        /// The first id outside.
        start: u32,
        /// How many, for users and groups alike.
        count: u32,
    },
    /// Rootless: the caller is root inside; `1..` are its delegated ranges, empty where it has none.
    Rootless {
        /// The caller's user id.
        uid: u32,
        /// The caller's group id.
        gid: u32,
        /// Delegated user ids as `(start, count)`, in order.
        sub_uids: Vec<(u32, u32)>,
        /// Delegated group ids as `(start, count)`, in order.
        sub_gids: Vec<(u32, u32)>,
    },
    /// Rootful on a host that can do neither: no user namespace.
    Host,
}

/// The process that runs in the box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The program and its arguments; the program is looked up in `PATH` of `env`, inside.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// The absolute working directory, resolved inside.
    pub workdir: String,
    /// The user id inside.
    pub uid: u32,
    /// The group id inside.
    pub gid: u32,
    /// The supplementary groups, exactly.
    pub groups: Vec<u32>,
    /// The capabilities to keep, as the kernel's bit set; 0 keeps none.
    pub capabilities: u64,
    /// The signal that asks it to stop.
    pub stop_signal: i32,
}

/// A host path bound inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The absolute path on the host, a folder or a file.
    pub source: PathBuf,
    /// The absolute path inside; resolved beneath the new root, made where it is missing.
    pub target: String,
    /// Whether nothing may be written through it.
    pub read_only: bool,
    /// Whose the files are.
    pub owner: MountOwner,
}

/// Whose files a bound path shows inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountOwner {
    /// A volume: ids on disk are the ids inside.
    Inside,
    /// A link: the host's `uid:gid` appears as the process's user and group, and the other way round.
    HostUser {
        /// The owner's user id on the host.
        uid: u32,
        /// The owner's group id on the host.
        gid: u32,
    },
}

/// A file in scratch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScratchFile {
    /// The absolute path inside.
    pub path: String,
    /// The whole contents.
    pub contents: Vec<u8>,
    /// The permission bits.
    pub mode: u32,
}

/// A folder in scratch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScratchFolder {
    /// The absolute path inside.
    pub path: String,
    /// The permission bits.
    pub mode: u32,
    /// The owner inside.
    pub uid: u32,
    /// The group inside.
    pub gid: u32,
}

/// A symbolic link in scratch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScratchLink {
    /// The absolute path inside.
    pub path: String,
    /// What it says; it is stored as it stands.
    pub target: String,
}

/// The network of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// A namespace of its own with loopback up. (An address and a way out are laid over it by the caller.)
    Own,
    /// A namespace of its own with nothing but loopback, for good.
    None,
    /// The host's.
    Host,
}

/// Limits; what the host can't enforce is reported by [`crate::Host`], never dropped in silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Thousandths of a core.
    pub cpu_millis: Option<u32>,
    /// Processes and threads; always set.
    pub pids: u32,
}
