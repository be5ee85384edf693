//! The defences of a box by name. Shipped, [`stands`] is always true and costs nothing. The attack suite builds this crate
//! with the feature `weaken`, and switches one defence off at a time: an attack that is stopped all the same was
//! stopped by something else, and a test that never saw it succeed has shown nothing.

use crate::sys::{NO_DEV, NO_SUID};

// What is shipped is built without debug assertions; so nothing that is shipped can have the switches.
#[cfg(all(feature = "weaken", not(debug_assertions)))]
compile_error!("the feature `weaken` is for the attack suite: no release build may have it");

/// What a box is defended by, as far as an attack can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(not(feature = "weaken"), allow(unreachable_pub))]
pub enum Defence {
    /// The system call filter (`seccomp_table`).
    Filter,
    /// No capabilities but those that are kept, in any set (`rights`).
    Capabilities,
    /// An empty inheritable set (`rights`).
    Inheritable,
    /// Exactly the groups that were given (`rights`, `launch`).
    Groups,
    /// An exec gains nothing (`rights`).
    NoNewPrivs,
    /// Limits on descriptors, timers, queues and dumps (`rights`).
    Limits,
    /// A limit on processes by the cgroup (`cgroup`).
    CgroupLimits,
    /// Nobody inside looks into init, or into a process on its way in (`launch`, `exec`).
    NotDumpable,
    /// Nothing of the parent's is open (`launch`, `exec`, `rights`).
    Descriptors,
    /// A working directory and a program are found through no magic link (`rights`).
    NoMagicLinks,
    /// The program is executed by a sealed one, and never by the host's (`stub`).
    Stub,
    /// Parts of `/proc` and `/sys` are hidden or read-only (`masks`).
    Masks,
    /// `/sys` is read-only (`launch`).
    SysReadOnly,
    /// The view of the cgroup is read-only (`launch`).
    CgroupReadOnly,
    /// The cgroup's path is seen from its own root (`launch`).
    CgroupNamespace,
    /// What is given read-only is mounted so (`plan`).
    ReadOnly,
    /// Device nodes in an image, a volume or a link are dead (`layers`, `rootfs`, `plan`).
    NoDevices,
    /// Setuid files are plain files (`layers`, `rootfs`, `plan`).
    NoSetuid,
    /// Places are made on the box's own mounts only (`inside`).
    OwnMounts,
    /// A file of ours replaces what the image has there, and no link is followed (`inside`).
    NewFiles,
    /// `/proc`, `/sys` and `/dev` are put on real folders of the root (`launch`).
    RealFolders,
    /// A session keyring of its own (`launch`).
    Keyring,
    /// Sizes and counts of what is in memory only: scratch, temporary folders, `/dev`, terminals (`plan`, `launch`).
    Sizes,
    /// Ids that are nobody's outside (`userns`). A spec can do without, as on a host that has no such namespaces.
    #[cfg(feature = "weaken")]
    UserNamespace,
    /// Less than all that a user of the host may have of what isn't memory (`masks`).
    Counts,
    /// An ipc namespace of its own (`launch`).
    IpcNamespace,
    /// A network namespace of its own (`launch`). A spec can do without.
    #[cfg(feature = "weaken")]
    NetworkNamespace,
    /// The caller's arguments and environment are taken out of init's memory (`init`).
    Arguments,
}

/// Whether a defence stands.
#[cfg(not(feature = "weaken"))]
pub(crate) const fn stands(_: Defence) -> bool {
    true
}

/// A job as it is.
#[cfg(not(feature = "weaken"))]
pub(crate) const fn carry<T>(job: T) -> T {
    job
}

/// The attributes of a mount whose defences stand. (The numbers are the same for mount(2) and mount_setattr(2).)
pub(crate) fn standing(attributes: u64) -> u64 {
    let off = |defence, bit| if stands(defence) { 0 } else { bit };
    attributes & !(off(Defence::NoSetuid, NO_SUID) | off(Defence::NoDevices, NO_DEV))
}

#[cfg(feature = "weaken")]
pub use switches::without;
#[cfg(feature = "weaken")]
pub(crate) use switches::{carry, stands};

#[cfg(feature = "weaken")]
mod switches {
    use super::Defence;
    use std::cell::Cell;

    thread_local! {
        /// A bit for each defence that is off. Of this thread alone, so that tests beside each other don't meet; a
        /// cloned child has a copy.
        static OFF: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn stands(defence: Defence) -> bool {
        OFF.get() >> defence as u32 & 1 == 0
    }

    /// Does `work` with these defences off, in this thread and where it has something done for it.
    pub fn without<T>(off: &[Defence], work: impl FnOnce() -> T) -> T {
        let before = OFF.replace(off.iter().fold(0, |bits, defence| bits | 1 << *defence as u32));
        let done = work();
        OFF.set(before);
        done
    }

    /// Takes this thread's switches along to the one that does a job for it.
    pub(crate) fn carry<T>(job: impl FnOnce() -> T) -> impl FnOnce() -> T {
        let off = OFF.get();
        move || {
            let before = OFF.replace(off);
            let done = job();
            OFF.set(before);
            done
        }
    }
}
