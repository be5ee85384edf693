//! What stops each attack, as data: the errnos by which it may be stopped, the defences of which each alone stops it, and
//! what comes of it when all of those are off.

use End::{Elsewhere, Perhaps, Through};
use libc::{
    EACCES, EAFNOSUPPORT, EAGAIN, EBADF, EBUSY, ECONNREFUSED, EINVAL, EMFILE, ENODATA, ENODEV, ENOENT,
    ENOEXEC, ENOKEY, ENOSPC, ENOSYS, ENOTBLK, ENOTTY, ENXIO, EPERM, EROFS, ESRCH, ESTALE,
};
use ply_sandbox::Defence::{self, *};

/// An attack.
pub(crate) struct Row {
    /// Its name, and its argument: `={…}` is a fact of the stage.
    pub(crate) name: &'static str,
    /// By these errnos it is stopped, whichever defence does it.
    pub(crate) stopped: &'static [i32],
    /// Each of these alone stops it. None: the kernel does, and the reason is the end.
    pub(crate) by: &'static [Defence],
    /// With all of them off.
    pub(crate) end: End,
    /// The same for a box of an ordinary user, where it differs.
    pub(crate) user: Option<(&'static [Defence], End)>,
}

/// What an attack comes to when nothing of ours is in its way.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// It gets through.
    Through,
    /// It gets through, or finds one of these errnos where this kernel doesn't have the thing.
    Perhaps(&'static [i32]),
    /// Something else stops it, with one of these errnos.
    Elsewhere(&'static str, &'static [i32]),
}

const fn row(name: &'static str, stopped: &'static [i32], by: &'static [Defence], end: End) -> Row {
    Row { name, stopped, by, end, user: None }
}

impl Row {
    const fn user(self, by: &'static [Defence], end: End) -> Self {
        Self { user: Some((by, end)), ..self }
    }

    /// What stops it, and its end: for root's boxes or an ordinary user's. That user's own ids can't be switched off, and
    /// stop whatever those of root's boxes stop.
    pub(crate) fn of(&self, root: bool) -> (Vec<Defence>, End) {
        match self.user {
            Some((by, end)) if !root => (by.to_vec(), end),
            _ if !root && self.by.contains(&UserNamespace) => {
                let by = self.by.iter().copied().filter(|defence| *defence != UserNamespace);
                (by.collect(), Elsewhere("the ids of the user", self.stopped))
            }
            _ => (self.by.to_vec(), self.end),
        }
    }
}

/// With a filter, without capabilities, as nobody outside.
const F: &[Defence] = &[Filter];
const FC: &[Defence] = &[Filter, Capabilities];
const FCU: &[Defence] = &[Filter, Capabilities, UserNamespace];
const CU: &[Defence] = &[Capabilities, UserNamespace];
const M: &[Defence] = &[Masks];
const MU: &[Defence] = &[Masks, UserNamespace];

pub(crate) const MOUNTS: &[Row] = &[
    row("mount-tmpfs", &[EPERM], FC, Through),
    row("mount-proc", &[EPERM], FC, Through),
    row("mount-sysfs", &[EPERM], FC, Through),
    row("mount-cgroup", &[EPERM], FC, Through),
    row("mount-bind", &[EPERM], FC, Through),
    row("mount-overlay", &[EPERM], FC, Perhaps(&[EINVAL])),
    row(
        "mount-disk",
        &[EPERM, EACCES, ENOTBLK],
        FCU,
        Perhaps(&[EBUSY, ENXIO, ENOTBLK, ENODEV, EINVAL, EACCES]),
    ),
    row("remount-root", &[EPERM], FC, Through),
    row("remount-sys", &[EPERM], FC, Through),
    row("remount-proc-sys", &[EPERM], FC, Through),
    row("remount-device", &[EPERM, EACCES], FC, Through)
        .user(FC, Elsewhere("a user makes no such node", &[ENOENT])),
    row("mount-setattr-device", &[EPERM, ENOSYS], FC, Through)
        .user(FC, Elsewhere("a user makes no such node", &[ENOENT])),
    row("remount-link", &[EPERM], FC, Through),
    row("mount-setattr-link", &[EPERM, ENOSYS], FC, Through),
    row("write-link", &[EROFS], &[ReadOnly], Through),
    row("umount-mask", &[EPERM], FC, Through),
    row("umount-proc-sys", &[EPERM], FC, Through),
    row("umount-sys", &[EPERM], FC, Through),
    row("pivot-root", &[EPERM], FC, Through),
    row("chroot-away", &[EPERM], FC, Through),
    row("fsopen-tmpfs", &[EPERM, ENOSYS], FC, Through),
    row("fsopen-cgroup", &[EPERM, ENOSYS], FC, Through),
    row("fspick-root", &[EPERM, ENOSYS], FC, Through),
    row("open-tree-clone", &[EPERM, ENOSYS], FC, Through),
    row("move-mount-proc", &[EPERM, ENOSYS], FC, Through),
    row("mount-setattr-root", &[EPERM, ENOSYS], FC, Through),
];

pub(crate) const NAMESPACES: &[Row] = &[
    row("unshare-user", &[EPERM], F, Through),
    row("unshare-mount", &[EPERM], FC, Through),
    row("unshare-net", &[EPERM], FC, Through),
    row("unshare-pid", &[EPERM], FC, Through),
    row("unshare-ipc", &[EPERM], FC, Through),
    row("unshare-uts", &[EPERM], FC, Through),
    row("unshare-cgroup", &[EPERM], FC, Through),
    row("unshare-time", &[EPERM], FC, Perhaps(&[EINVAL])),
    row("clone-user", &[EPERM], F, Through),
    row("clone-user-net", &[EPERM], F, Through),
    row("clone-high-bits", &[EPERM], F, Through),
    row("clone-mount", &[EPERM], FC, Through),
    row("clone-pid", &[EPERM], FC, Through),
    row("clone-cgroup", &[EPERM], FC, Through),
    row("clone-sibling", &[EPERM], F, Through),
    row("clone3-plain", &[ENOSYS], F, Through),
    row("clone3-user", &[ENOSYS], F, Through),
    row("setns-self", &[EPERM], F, Through),
    row("setns-init", &[EPERM], FCU, Through).user(&[Filter, Capabilities, NotDumpable], Through),
    row("namespaces-of-init", &[EACCES], CU, Through).user(CD, Through),
];

/// Rootless the ids of init don't change, and nothing but this keeps it closed.
const CD: &[Defence] = &[Capabilities, NotDumpable];

pub(crate) const INIT: &[Row] = &[
    row("ptrace-init", &[EPERM], CU, Through).user(CD, Through),
    row("init-memory", &[EACCES], CU, Through).user(CD, Through),
    row("init-memory-write", &[EACCES], CU, Through).user(CD, Through),
    row("init-maps", &[EACCES], CU, Through).user(CD, Through),
    row("init-vm", &[EPERM], FCU, Through).user(&[Filter, Capabilities, NotDumpable], Through),
    row("init-environment", &[EACCES], CU, Through).user(CD, Through),
    row("init-arguments", &[ENODATA], &[Arguments], Through),
    row("init-program", &[EACCES], CU, Through).user(CD, Through),
    row("init-program-open", &[EACCES], CU, Through).user(CD, Through),
    row(
        "init-program-write",
        &[EACCES],
        CU,
        Elsewhere("it runs, or its disk is read-only", &[libc::ETXTBSY, EROFS]),
    )
    .user(CD, Elsewhere("it is root's, or its disk is read-only", &[EACCES, EROFS])),
    row("init-program-run", &[EACCES], CU, Through).user(CD, Through),
    row("init-root", &[EACCES], CU, Through).user(CD, Through),
    row("init-folder", &[EACCES], CU, Through).user(CD, Through),
    row("init-descriptors", &[EACCES], &[UserNamespace], Through).user(&[NotDumpable], Through),
    row("init-descriptor-taken", &[EPERM], FCU, Elsewhere("init has none", &[EBADF]))
        .user(&[Filter, Capabilities, NotDumpable], Elsewhere("init has none", &[EBADF])),
    row("init-killed", &[EPERM], &[], Elsewhere("pid 1 takes no signal from inside", &[EPERM])),
];

pub(crate) const KERNEL: &[Row] = &[
    row("kexec", &[EPERM, ENOSYS], FCU, Perhaps(&[ENOSYS, EPERM])),
    row("load-module", &[EPERM, ENOSYS], FCU, Perhaps(&[ENOSYS, ENOEXEC, EPERM, EINVAL])),
    row("bpf", &[EPERM], FCU, Through),
    row("perf", &[EPERM], F, Perhaps(&[EACCES, ENOENT])),
    row("io-uring", &[EPERM], F, Perhaps(&[ENOSYS])),
    row("userfaultfd", &[EPERM], F, Perhaps(&[ENOSYS])),
    row("open-by-handle", &[EPERM], FCU, Perhaps(&[ESTALE])),
    row("mknod-device", &[EPERM], FCU, Through),
    row("mknod-disk", &[EPERM], FCU, Through),
    row("mknodat-device", &[EPERM], FCU, Through),
    #[cfg(target_arch = "x86_64")]
    row("iopl", &[EPERM, ENOSYS], FCU, Perhaps(&[ENOSYS])),
    #[cfg(target_arch = "x86_64")]
    row("ioperm", &[EPERM, ENOSYS], FCU, Perhaps(&[ENOSYS])),
    row("reboot", &[EPERM], FC, Elsewhere("in a process namespace", &[EINVAL])),
    row("swapoff", &[EPERM], FCU, Elsewhere("there is no such file", &[ENOENT])),
    row("syslog", &[EPERM], FCU, Through),
    row("settime", &[EPERM], FCU, Through),
    row("adjust-clock", &[EPERM], CU, Through),
    row("accounting", &[EPERM, ENOSYS], FCU, Perhaps(&[ENOSYS])),
    row("quota", &[EPERM], F, Perhaps(&[ENOSYS])),
    row("hostname", &[EPERM], FC, Through),
    row("personality", &[EPERM], F, Through),
    row("move-pages", &[EPERM], F, Perhaps(&[ENOSYS])),
    row("kcmp", &[EPERM], F, Perhaps(&[ENOSYS])),
    row("fanotify", &[EPERM], FCU, Perhaps(&[ENOSYS])),
    row("lookup-dcookie", &[EPERM], F, Elsewhere("the kernel has none", &[ENOSYS, EINVAL, EPERM])),
    row("socket-alg", &[EPERM], F, Perhaps(&[EAFNOSUPPORT])),
    row("socket-vsock", &[EPERM], F, Perhaps(&[EAFNOSUPPORT])),
    row("socket-raw", &[EPERM], &[Capabilities], Through),
    row("socket-packet", &[EPERM], &[Capabilities], Perhaps(&[EAFNOSUPPORT])),
];

#[cfg(target_arch = "x86_64")]
pub(crate) const TABLES: &[Row] = &[
    row("legacy-mount", &[EPERM], FC, Through),
    row("legacy-unshare", &[EPERM], F, Through),
    row("legacy-clone", &[EPERM], F, Through),
    row("legacy-io-uring", &[EPERM], F, Through),
    row("legacy-keyctl", &[EPERM], F, Through),
    row("legacy-ptrace", &[EPERM], CU, Through).user(CD, Through),
    row("legacy-socketcall", &[ENOSYS], F, Perhaps(&[EAFNOSUPPORT])),
    row("x32-mount", &[ENOSYS], F, Elsewhere("the kernel has no such table", &[ENOSYS])),
    row("x32-unshare", &[ENOSYS], F, Elsewhere("the kernel has no such table", &[ENOSYS])),
];
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const TABLES: &[Row] = &[];

/// Where a kernel has no such file there is nothing to write.
const ABSENT: End = Perhaps(&[ENOENT]);

pub(crate) const FILES: &[Row] = &[
    row("core-pattern", &[EACCES, EROFS], MU, Through),
    row("modprobe-path", &[EACCES, EROFS, ENOENT], MU, ABSENT),
    row("sysctl-memory", &[EACCES, EROFS], MU, Through),
    row("sysctl-files", &[EACCES, EROFS], MU, Through),
    row("sysctl-port-range", &[EACCES, EROFS], &[Masks, Capabilities], Through),
    row("binfmt", &[EACCES, EROFS, ENOENT], MU, ABSENT),
    row("sysrq", &[EACCES, EROFS, ENOENT], MU, ABSENT),
    row("interrupt-affinity", &[EACCES, EROFS, ENOENT], MU, Perhaps(&[ENOENT, EINVAL, libc::EIO])),
    row("bus-config", &[EACCES, EROFS, ENOENT], MU, ABSENT),
    row("memory-ranges", &[EACCES, EPERM, ENOENT], CU, ABSENT),
    row("kernel-core", &[ENODATA, EACCES, EPERM, ENOENT], &[Capabilities, Masks, UserNamespace], ABSENT),
    row("kernel-keys", &[ENODATA, ENOENT], M, ABSENT),
    row("kernel-timers", &[ENODATA, EACCES, ENOENT], MU, ABSENT),
    row("kernel-interrupts", &[ENODATA], M, Through),
    row("kernel-messages", &[EACCES, EPERM], CU, Perhaps(&[EAGAIN])),
    row("kernel-pages", &[EACCES, ENOENT], &[UserNamespace], ABSENT),
    row("firmware", &[ENODATA, ENOENT], M, ABSENT),
    row("acpi", &[ENODATA, ENOENT], M, Perhaps(&[ENODATA, ENOENT])),
    row("power-meter", &[ENODATA, ENOENT], M, Perhaps(&[ENODATA, ENOENT])),
    row("uevent-helper", &[EACCES, EROFS, ENOENT], &[SysReadOnly, UserNamespace], ABSENT),
    row("sys-write", &[EACCES, EROFS], &[SysReadOnly, UserNamespace], Through),
    row(
        "kernel-debug",
        &[ENODATA, EACCES, ENOENT],
        &[],
        Elsewhere("it isn't mounted", &[ENODATA, EACCES, ENOENT]),
    ),
    row("cgroup-leave", &[EACCES, EROFS, ENOENT], &[CgroupReadOnly, UserNamespace], Perhaps(&[ENOENT])),
    row("cgroup-new", &[EACCES, EROFS, ENOENT], &[CgroupReadOnly, UserNamespace], Perhaps(&[ENOENT])),
    // A v2 host mounted with nsdelegate lets nobody change the limits of a namespace's own root.
    row(
        "cgroup-limit",
        &[EACCES, EROFS, ENOENT],
        &[CgroupReadOnly, UserNamespace],
        Perhaps(&[ENOENT, EPERM]),
    ),
    row("cgroup-path", &[ENODATA], &[CgroupNamespace], Through),
    // A kernel without these controllers of v1 doesn't know them, or says that they are v2's.
    row(
        "release-agent",
        &[EPERM, EACCES, ENOENT, EBUSY, EINVAL],
        FCU,
        Perhaps(&[ENOENT, EBUSY, EINVAL, EPERM]),
    ),
    row("oom-score", &[EACCES], CU, Perhaps(&[EACCES])),
    row("device-memory", &[ENOENT], &[], Elsewhere("/dev holds the minimum", &[ENOENT])),
    row("device-messages", &[ENOENT], &[], Elsewhere("/dev holds the minimum", &[ENOENT])),
    row("device-disk", &[ENOENT], &[], Elsewhere("/dev holds the minimum", &[ENOENT])),
    row("device-fuse", &[ENOENT], &[], Elsewhere("/dev holds the minimum", &[ENOENT])),
    row("device-tun", &[ENOENT], &[], Elsewhere("/dev holds the minimum", &[ENOENT])),
    row("device-new", &[EPERM], FCU, Through),
    row("device-in-image", &[EACCES, ENOENT], &[NoDevices], Through)
        .user(&[], Elsewhere("a user makes no such node", &[ENOENT])),
];

pub(crate) const RIGHTS: &[Row] = &[
    row("capabilities", &[EPERM], &[Capabilities], Through),
    row("setgroups", &[EPERM], &[Capabilities], Through),
    row("groups", &[EPERM], &[Groups], Through),
    row("groups-of-the-caller", &[EACCES], &[Groups], Elsewhere("the link's id map", &[EACCES]))
        .user(&[Groups], Through),
    row("new-privileges", &[EPERM], &[NoNewPrivs, Filter], Through),
    row("raise-files", &[EPERM], CU, Perhaps(&[EPERM])),
    row("raise-processes", &[EPERM], CU, Perhaps(&[EPERM])),
    row("core-dump", &[EPERM], &[Limits], Through),
    row("priority", &[EACCES, EPERM], CU, Through),
    row("real-time", &[EPERM], CU, Through),
    row("descriptors", &[EBADF], &[Descriptors], Through),
];

pub(crate) const SHARED: &[Row] = &[
    row("keyctl", &[EPERM], F, Perhaps(&[ENOSYS])),
    row("request-key", &[EPERM], F, Elsewhere("there is no such key", &[ENOENT, ENOKEY, ENOSYS])),
    row("key-of-the-caller={key}", &[EPERM, ENOENT, ENOKEY], &[Filter, Keyring], Through),
    row("shared-memory={memory}", &[ENOENT], &[IpcNamespace], Through),
    row("message-queue={queue}", &[ENOENT], &[IpcNamespace], Through),
    row("abstract-socket={socket}", &[ECONNREFUSED], &[NetworkNamespace], Through),
    row("host-loopback={port}", &[ECONNREFUSED], &[NetworkNamespace], Through),
    row("signal-host={pid}", &[ESRCH], &[], Elsewhere("in a process namespace", &[ESRCH])),
];

/// Standard input is a terminal for these.
pub(crate) const TERMINAL: &[Row] = &[
    row("terminal-input", &[EPERM], F, Perhaps(&[libc::EIO, EPERM])),
    row("terminal-input-high-bits", &[EPERM], F, Perhaps(&[libc::EIO, EPERM])),
    row("terminal-paste", &[EPERM], F, Elsewhere("its terminal is none of the console's", &[ENOTTY, EINVAL])),
    row(
        "terminal-console",
        &[EPERM, ENOTTY, EBUSY],
        &[],
        Elsewhere("it takes rights on the host", &[EPERM, EBUSY, ENOTTY]),
    ),
];

pub(crate) const EXHAUSTION: &[Row] = &[
    row("exhaust-processes=200", &[EAGAIN], &[Limits, CgroupLimits], Through).user(&[Limits], Through),
    row("exhaust-descriptors=524288", &[EMFILE], &[], Elsewhere("the limit of the caller", &[EMFILE])),
    row("exhaust-timers=4096", &[EAGAIN], &[Limits], Through),
    row("exhaust-signals=4096", &[EAGAIN], &[Limits], Through),
    row("exhaust-queues=262144", &[EMFILE], &[Limits], Through),
    row("exhaust-keys", &[EPERM], F, Perhaps(&[ENOSYS, libc::EDQUOT])),
    row("exhaust-inotify-instances={instances}", &[EMFILE], &[Counts], Through),
    row("exhaust-inotify-watches={watches}", &[ENOSPC], &[Counts], Through),
    row("exhaust-terminals=256", &[ENOSPC], &[Sizes], Through),
    row("exhaust-scratch={scratch}", &[ENOSPC], &[Sizes], Through),
    row("exhaust-tmp={scratch}", &[ENOSPC], &[Sizes], Through),
    row("exhaust-shm={scratch}", &[ENOSPC], &[Sizes], Through),
    row("exhaust-dev={scratch}", &[ENOSPC], &[Sizes], Through),
    row("exhaust-inodes=16384", &[ENOSPC], &[Sizes], Through),
    row("exhaust-tmp-inodes=16384", &[ENOSPC], &[Sizes], Through),
];

/// All that need no more than a box.
pub(crate) const PLAIN: &[&[Row]] =
    &[MOUNTS, NAMESPACES, INIT, KERNEL, TABLES, FILES, RIGHTS, SHARED, EXHAUSTION];

/// What has an answer only where scratch is in memory.
pub(crate) const OF_SCRATCH_IN_MEMORY: &[&str] = &["exhaust-scratch={scratch}", "exhaust-inodes=16384"];

/// Of those, what a kernel may refuse all the same, and how: Debian's count processor events for root of the host alone.
pub(crate) const OR_REFUSED: &[(&str, i32)] = &[("perf", EACCES)];

/// What gets through with every capability kept, on the box's own namespaces and no further. All others are stopped as
/// without any.
pub(crate) const WITH_EVERY_CAPABILITY: &[&str] = &[
    "mount-tmpfs",
    "mount-proc",
    "mount-sysfs",
    "mount-cgroup",
    "mount-bind",
    "mount-overlay",
    "umount-mask",
    "umount-proc-sys",
    "umount-sys",
    "chroot-away",
    "fsopen-tmpfs",
    "fsopen-cgroup",
    "fspick-root",
    "open-tree-clone",
    "move-mount-proc",
    "unshare-mount",
    "unshare-net",
    "unshare-pid",
    "unshare-ipc",
    "unshare-uts",
    "unshare-cgroup",
    "unshare-time",
    "clone-mount",
    "clone-pid",
    "clone-cgroup",
    "setns-self",
    "perf",
    "quota",
    "hostname",
    "kcmp",
    "socket-raw",
    "socket-packet",
    "legacy-mount",
    "capabilities",
    "setgroups",
];
