//! One process in a box: namespaces, ids, mounts, devices, rights, limits, init, exec.

mod spec;

pub use spec::{Ids, Layer, Limits, Mount, MountOwner, Network, Process, ScratchFile, ScratchFolder, Spec};
