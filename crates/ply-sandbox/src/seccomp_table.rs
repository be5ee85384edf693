//! Which system calls a box may make, and why: data to be reviewed. Every call of the four architectures stands
//! in exactly one group (a test says so); what isn't known at all answers ENOSYS, so that a libc newer than
//! this table falls back to what is.
//!
//! The line is drawn where Docker's default profile draws it, and inside it in four places: no new user
//! namespace whatever is kept (CVE-2022-0185, CVE-2023-32233 were reached through one), no device nodes, no mount
//! that gets more than it had, and no input pushed into a terminal (CVE-2017-5226, CVE-2023-28100).

use Rule::{
    Allow, CloneFlags, Eperm, IfCapable, Ioctl, Missing, MissingUnlessCapable, Mknod, Mount, Personality,
    Socket,
};

/// What the filter does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Goes through.
    Allow,
    /// EPERM.
    Eperm,
    /// ENOSYS: callers know how to do without.
    Missing,
    /// Goes through if any of these capabilities is kept, else EPERM.
    IfCapable(&'static [u8]),
    /// The same, else ENOSYS.
    MissingUnlessCapable(&'static [u8]),
    /// No flag that makes a namespace in argument 0; other than a user namespace, `CAP_SYS_ADMIN` may.
    CloneFlags,
    /// Only the personalities that change nothing that matters in argument 0.
    Personality,
    /// Not for kernel crypto and hypervisor sockets in argument 0.
    Socket,
    /// Not `TIOCSTI` and `TIOCLINUX` in argument 1.
    Ioctl,
    /// With `CAP_SYS_ADMIN`; a change of a mount in argument 3 must say read-only, nosuid and nodev.
    Mount,
    /// No device nodes; the mode is in this argument.
    Mknod(u8),
}

/// Calls that are treated alike.
pub(crate) struct Group {
    /// Why they are: for whoever reads this.
    #[cfg_attr(not(test), allow(dead_code))]
    pub(crate) reason: &'static str,
    /// What is done.
    pub(crate) rule: Rule,
    /// The names, as the kernel's tables have them.
    pub(crate) names: &'static str,
}

const DAC_READ_SEARCH: u8 = 2;
const SYS_MODULE: u8 = 16;
const SYS_RAWIO: u8 = 17;
const SYS_CHROOT: u8 = 18;
const SYS_PTRACE: u8 = 19;
const SYS_PACCT: u8 = 20;
const SYS_ADMIN: u8 = 21;
const SYS_BOOT: u8 = 22;
const SYS_NICE: u8 = 23;
const SYS_TIME: u8 = 25;
const SYS_TTY_CONFIG: u8 = 26;
const SYSLOG: u8 = 34;
const PERFMON: u8 = 38;
const BPF: u8 = 39;

const fn group(rule: Rule, reason: &'static str, names: &'static str) -> Group {
    Group { reason, rule, names }
}

/// The groups.
pub(crate) const GROUPS: &[Group] = &[
    group(Allow, "files and folders, by path and by descriptor; the kernel checks the rights", "
        access chdir chmod chown chown32 close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2
        fadvise64 fadvise64_64 arm_fadvise64_64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat
        fcntl fcntl64 fdatasync file_getattr file_setattr flock fstat fstat64 fstatat64 fstatfs fstatfs64 fsync
        ftruncate ftruncate64 futimesat getcwd getdents getdents64 lchown lchown32 link linkat lseek _llseek lstat
        lstat64 mkdir mkdirat newfstatat oldfstat oldlstat oldstat open openat openat2 pread64 preadv preadv2
        pwrite64 pwritev pwritev2 read readahead readdir readlink readlinkat readv rename renameat renameat2 rmdir
        sendfile sendfile64 splice stat stat64 statfs statfs64 statx symlink symlinkat sync sync_file_range
        arm_sync_file_range syncfs tee truncate truncate64 umask unlink unlinkat utime utimensat utimensat_time64
        utimes vmsplice write writev cachestat"),
    group(Allow, "extended attributes; trusted and security ones are refused by the kernel", "
        fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr listxattr listxattrat llistxattr
        lremovexattr lsetxattr removexattr removexattrat setxattr setxattrat"),
    group(Allow, "waiting and notification", "
        epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd
        eventfd2 inotify_add_watch inotify_init inotify_init1 inotify_rm_watch poll ppoll ppoll_time64 pselect6
        pselect6_time64 select _newselect signalfd signalfd4 pipe pipe2 fanotify_mark"),
    group(Allow, "asynchronous I/O of the old kind", "
        io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit"),
    group(Allow, "memory of one's own", "
        brk madvise membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mmap2 mprotect mremap
        msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_mrelease remap_file_pages
        map_shadow_stack mseal"),
    group(Allow, "processes, threads, signals: the pid namespace is the limit", "
        execve execveat exit exit_group fork vfork getpgid getpgrp getpid getppid getpriority getsid gettid kill
        pause pidfd_open pidfd_send_signal prctl ptrace rseq rt_sigaction rt_sigpending rt_sigprocmask
        rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo
        set_robust_list get_robust_list set_tid_address setpgid setpriority setsid sigaction sigaltstack signal
        sigpending sigprocmask sigreturn sigsuspend ssetmask sgetmask tgkill tkill wait4 waitid waitpid nice
        restart_syscall uretprobe"),
    group(Allow, "locks between threads", "
        futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake"),
    group(Allow, "scheduling of one's own", "
        getcpu ioprio_get ioprio_set sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr
        sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity
        sched_setattr sched_setparam sched_setscheduler sched_yield"),
    group(Allow, "time: reading, sleeping, timers", "
        adjtimex alarm clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64
        clock_nanosleep clock_nanosleep_time64 getitimer gettimeofday nanosleep setitimer time timer_create
        timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create
        timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times ftime"),
    group(Allow, "who and what one is, and giving rights up", "
        capget capset getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getresgid
        getresgid32 getresuid getresuid32 getrlimit ugetrlimit getrusage getuid getuid32 prlimit64 setfsgid
        setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setregid setregid32 setresgid
        setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit setuid setuid32 sysinfo uname olduname
        oldolduname getrandom"),
    group(Allow, "more filters on oneself: they only take away", "
        seccomp landlock_add_rule landlock_create_ruleset landlock_restrict_self lsm_get_self_attr
        lsm_list_modules"),
    group(Allow, "sockets that are there; the network namespace is the limit", "
        accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg
        recvmmsg_time64 recvmsg send sendmmsg sendmsg sendto setsockopt shutdown socketpair"),
    group(Allow, "System V and POSIX IPC; the ipc namespace is the limit", "
        ipc mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend
        mq_timedsend_time64 mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop semtimedop
        semtimedop_time64 shmat shmctl shmdt shmget"),
    group(Allow, "what a thread library needs of an architecture", "
        arch_prctl get_thread_area modify_ldt set_thread_area arm_breakpoint arm_cacheflush arm_get_tls
        arm_set_tls"),
    group(Allow, "a handle says no more than a path; using one is another call", "name_to_handle_at"),
    group(CloneFlags, "new processes and threads, without new namespaces (Docker's rule)", "clone"),
    group(Missing, "its flags are in memory, where no filter can look: libc falls back to clone", "clone3"),
    group(Personality, "only what changes no layout: linux, 32-bit names, and asking", "personality"),
    group(Socket, "no kernel crypto (a long record of kernel holes) and no sockets to the hypervisor", "socket"),
    group(Missing, "its arguments are in memory, where no filter can look: sockets to the hypervisor would come through \
        it; 32-bit programs have the separate calls since Linux 4.3", "socketcall"),
    group(Ioctl, "not the two that push input into a terminal", "ioctl"),
    group(Mknod(1), "pipes, sockets and files; never a device", "mknod"),
    group(Mknod(2), "pipes, sockets and files; never a device", "mknodat"),
    group(Eperm, "io_uring: a second system call table that no filter sees, and most kernel holes of its years", "
        io_uring_enter io_uring_register io_uring_setup"),
    group(Eperm, "keys aren't namespaced: other boxes of the same user would be reached", "
        add_key keyctl request_key"),
    group(Eperm, "helps to win races inside the kernel", "userfaultfd"),
    group(Eperm, "changes the machine, whatever is kept", "
        kexec_file_load kexec_load nfsservctl swapoff swapon _sysctl lsm_set_self_attr pciconfig_iobase
        pciconfig_read pciconfig_write pivot_root"),
    group(Eperm, "moving memory between nodes: information about others, and old holes", "
        migrate_pages move_pages"),
    group(Eperm, "old, dangerous or both", "uselib ustat sysfs vm86 vm86old"),
    group(Missing, "not in any kernel that runs this", "
        afs_syscall bdflush break create_module get_kernel_syms getpmsg gtty idle lock mpx prof profil putpmsg
        query_module security stty tuxcall ulimit vserver"),
    group(IfCapable(&[SYS_ADMIN]), "administration of one's own namespaces", "
        fanotify_init lookup_dcookie quotactl quotactl_fd setdomainname sethostname setns umount umount2
        unshare"),
    group(Mount, "a change may only take away: what is mounted from outside (a read-only link, the root without device \
        nodes) would become writable or more by it, since the kernel locks only what a namespace inherits", "mount"),
    group(Missing, "the same, with its attributes in memory, where no filter can look", "
        mount_setattr open_tree_attr"),
    group(MissingUnlessCapable(&[SYS_ADMIN]), "the newer mount calls (CVE-2021-41133 came through them)", "
        fsconfig fsmount fsopen fspick listmount move_mount open_tree statmount"),
    group(IfCapable(&[DAC_READ_SEARCH]), "opens files past every folder (the 2014 escape)", "open_by_handle_at"),
    group(IfCapable(&[SYS_BOOT]), "reboots", "reboot"),
    group(IfCapable(&[SYS_CHROOT]), "another root", "chroot"),
    group(IfCapable(&[SYS_MODULE]), "kernel modules", "delete_module finit_module init_module"),
    group(IfCapable(&[SYS_PACCT]), "accounting", "acct"),
    group(IfCapable(&[SYS_PTRACE]), "other processes' memory and descriptors", "
        kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev"),
    group(IfCapable(&[SYS_RAWIO]), "ports", "ioperm iopl"),
    group(IfCapable(&[SYS_TIME]), "the clock", "clock_settime clock_settime64 settimeofday stime"),
    group(IfCapable(&[SYS_TTY_CONFIG]), "hangs terminals up", "vhangup"),
    group(IfCapable(&[SYS_NICE]), "memory policy", "
        get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    group(IfCapable(&[SYSLOG, SYS_ADMIN]), "the kernel's log", "syslog"),
    group(IfCapable(&[BPF, SYS_ADMIN]), "programs in the kernel", "bpf"),
    group(IfCapable(&[PERFMON, SYS_ADMIN]), "measuring", "perf_event_open"),
];
