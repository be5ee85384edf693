/* What a hostile program tries. Each argument names an attempt; for each, one line: the name and the errno, or
   "through" where the attempt succeeded. Built static by the tests and put into the image. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static long file(const char *path, int flags) {
    int fd = open(path, flags);
    if (fd >= 0) close(fd);
    return fd;
}

static long put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0) return -1;
    long written = write(fd, text, strlen(text));
    int saved = errno;
    close(fd);
    errno = saved;
    return written;
}

static long look(const char *path) {
    char target[4096];
    return readlink(path, target, sizeof target);
}

static long clone_with(unsigned long flags) {
    long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    if (pid > 0) waitpid(pid, 0, __WALL);
    return pid;
}

#if defined(__x86_64__)
/* A call of the 32-bit table, from 64-bit code. */
static long legacy(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
    if (result < 0 && result > -4096) { errno = -result; return -1; }
    return result;
}
#endif

static long attempt(const char *name) {
    char buffer[64];
    if (!strcmp(name, "mount-tmpfs")) return mount("none", "/srv", "tmpfs", 0, "");
    if (!strcmp(name, "mount-proc")) return mount("none", "/srv", "proc", 0, "");
    if (!strcmp(name, "mount-bind")) return mount("/etc", "/srv", 0, MS_BIND, 0);
    if (!strcmp(name, "remount-root")) return mount(0, "/", 0, MS_REMOUNT | MS_BIND, 0);
    if (!strcmp(name, "remount-sys")) return mount(0, "/sys", 0, MS_REMOUNT | MS_BIND, 0);
    if (!strcmp(name, "umount-mask")) return umount2("/proc/keys", MNT_DETACH);
    if (!strcmp(name, "umount-sys")) return umount2("/proc/sys", MNT_DETACH);
    if (!strcmp(name, "fsopen")) return syscall(SYS_fsopen, "tmpfs", 0);
    if (!strcmp(name, "open-tree")) return syscall(SYS_open_tree, AT_FDCWD, "/", 1);
    if (!strcmp(name, "pivot-root")) return syscall(SYS_pivot_root, "/", "/srv");
    if (!strcmp(name, "chroot")) return chroot("/srv");
    if (!strcmp(name, "unshare-user")) return unshare(CLONE_NEWUSER);
    if (!strcmp(name, "unshare-mount")) return unshare(CLONE_NEWNS);
    if (!strcmp(name, "unshare-net")) return unshare(CLONE_NEWNET);
    if (!strcmp(name, "clone-user")) return clone_with(CLONE_NEWUSER);
    if (!strcmp(name, "clone-pid")) return clone_with(CLONE_NEWPID);
    if (!strcmp(name, "clone-sibling")) return clone_with(CLONE_PARENT);
    if (!strcmp(name, "clone3")) {
        unsigned long args[11] = {0};
        args[4] = SIGCHLD;
        long pid = syscall(435, args, 88);
        if (pid == 0) _exit(0);
        return pid;
    }
    if (!strcmp(name, "setns-init")) {
        int fd = syscall(SYS_pidfd_open, 1, 0);
        return fd < 0 ? -1 : setns(fd, CLONE_NEWNS);
    }
    if (!strcmp(name, "ns-of-init")) return file("/proc/1/ns/mnt", O_RDONLY);
    if (!strcmp(name, "ptrace-init")) return ptrace(PTRACE_SEIZE, 1, 0, 0);
    if (!strcmp(name, "kill-init-by-pidfd-getfd")) {
        int fd = syscall(SYS_pidfd_open, 1, 0);
        return fd < 0 ? -1 : syscall(SYS_pidfd_getfd, fd, 0, 0);
    }
    if (!strcmp(name, "init-memory")) return file("/proc/1/mem", O_RDONLY);
    if (!strcmp(name, "init-memory-write")) return file("/proc/1/mem", O_RDWR);
    if (!strcmp(name, "init-maps")) return file("/proc/1/maps", O_RDONLY);
    if (!strcmp(name, "init-environment")) return file("/proc/1/environ", O_RDONLY);
    if (!strcmp(name, "init-program")) return look("/proc/1/exe");
    if (!strcmp(name, "init-program-open")) return file("/proc/1/exe", O_RDONLY);
    if (!strcmp(name, "init-program-run")) {
        execl("/proc/1/exe", "x", "--version", (char *)0);
        return -1;
    }
    if (!strcmp(name, "init-root")) return file("/proc/1/root/etc", O_RDONLY);
    if (!strcmp(name, "init-cwd")) return file("/proc/1/cwd", O_RDONLY);
    if (!strcmp(name, "init-fds")) return file("/proc/1/fd", O_RDONLY | O_DIRECTORY);
    if (!strcmp(name, "init-vm")) {
        struct iovec here = {buffer, 8}, there = {(void *)0x400000, 8};
        return process_vm_readv(1, &here, 1, &there, 1, 0);
    }
    if (!strcmp(name, "kexec")) return syscall(SYS_kexec_load, 0, 0, 0, 0);
    if (!strcmp(name, "bpf")) return syscall(SYS_bpf, 0, 0, 0);
    if (!strcmp(name, "perf")) return syscall(SYS_perf_event_open, 0, 0, -1, -1, 0);
    if (!strcmp(name, "keyctl")) return syscall(SYS_keyctl, 0, -3, 0);
    if (!strcmp(name, "add-key")) return syscall(SYS_add_key, "user", "x", "y", 1, -4);
    if (!strcmp(name, "io-uring")) return syscall(425, 1, buffer);
    if (!strcmp(name, "userfaultfd")) return syscall(SYS_userfaultfd, 1);
    if (!strcmp(name, "open-by-handle")) {
        union { struct file_handle head; char room[64]; } handle;
        memset(&handle, 0, sizeof handle);
        handle.head.handle_bytes = 8;
        handle.head.handle_type = 1;
        return open_by_handle_at(AT_FDCWD, &handle.head, O_RDONLY);
    }
    if (!strcmp(name, "mknod")) return mknod("/tmp/node", S_IFCHR | 0666, makedev(1, 3));
    if (!strcmp(name, "mknod-block")) return mknod("/tmp/disk", S_IFBLK | 0666, makedev(254, 0));
#if defined(__x86_64__)
    if (!strcmp(name, "iopl")) return syscall(SYS_iopl, 3);
    if (!strcmp(name, "legacy-mount")) return legacy(21, 0, 0, 0);
    if (!strcmp(name, "legacy-unshare")) return legacy(310, CLONE_NEWUSER, 0, 0);
    if (!strcmp(name, "legacy-io-uring")) return legacy(425, 1, 0, 0);
    if (!strcmp(name, "x32-mount")) return syscall(0x40000000 + 165, 0, 0, 0, 0, 0);
#endif
    if (!strcmp(name, "reboot")) return syscall(SYS_reboot, 0xfee1dead, 672274793, 0x89abcdef, 0);
    if (!strcmp(name, "swapoff")) return syscall(SYS_swapoff, "/none");
    if (!strcmp(name, "syslog")) return syscall(SYS_syslog, 3, buffer, sizeof buffer);
    if (!strcmp(name, "settime")) return syscall(SYS_settimeofday, 0, 0);
    if (!strcmp(name, "sethostname")) return sethostname("other", 5);
    if (!strcmp(name, "personality")) return syscall(SYS_personality, 0x0040000);
    if (!strcmp(name, "socket-alg")) return socket(38, SOCK_SEQPACKET, 0);
    if (!strcmp(name, "socket-vsock")) return socket(40, SOCK_STREAM, 0);
    if (!strcmp(name, "socket-raw")) return socket(AF_INET, SOCK_RAW, 1);
    if (!strcmp(name, "socket-packet")) return socket(AF_PACKET, SOCK_RAW, 0);
    if (!strcmp(name, "terminal-input")) return ioctl(0, TIOCSTI, "x");
    if (!strcmp(name, "terminal-linux")) return ioctl(0, 0x541c, "\3");
    if (!strcmp(name, "setuid-0")) return setuid(0);
    if (!strcmp(name, "setgroups")) return syscall(SYS_setgroups, 0, 0);
    if (!strcmp(name, "core-pattern")) return put("/proc/sys/kernel/core_pattern", "|/tmp/x");
    if (!strcmp(name, "sysrq")) return put("/proc/sysrq-trigger", "h");
    if (!strcmp(name, "uevent")) return put("/sys/kernel/uevent_helper", "/tmp/x");
    if (!strcmp(name, "cgroup")) return put("/sys/fs/cgroup/cgroup.procs", "0");
    if (!strcmp(name, "cgroup-new")) return mkdir("/sys/fs/cgroup/x", 0755);
    if (!strcmp(name, "oom-score")) return put("/proc/self/oom_score_adj", "-1000");
    if (!strcmp(name, "port-range")) return put("/proc/sys/net/ipv4/ip_unprivileged_port_start", "1024");
    if (!strcmp(name, "irq")) return put("/proc/irq/default_smp_affinity", "1");
    if (!strcmp(name, "kernel-memory")) return file("/dev/mem", O_RDONLY);
    if (!strcmp(name, "kernel-core")) {
        int fd = open("/proc/kcore", O_RDONLY);
        return fd < 0 ? -1 : read(fd, buffer, 4) == 4 ? 4 : (errno = ENODATA, -1);
    }
    if (!strcmp(name, "device-in-image")) return file("/srv/null-device", O_RDONLY);
    if (!strcmp(name, "raise-files")) {
        unsigned long limit[2] = {1 << 24, 1 << 24};
        return syscall(SYS_prlimit64, 0, 7, limit, 0);
    }
    if (!strcmp(name, "raise-processes")) {
        unsigned long limit[2] = {1 << 20, 1 << 20};
        return syscall(SYS_prlimit64, 0, 6, limit, 0);
    }
    errno = ENOTSUP;
    fprintf(stderr, "no attempt of the name %s\n", name);
    exit(3);
}

int main(int count, char **names) {
    if (count > 2 && !strcmp(names[1], "forks")) {
        int made = 0;
        for (int i = 0; i < atoi(names[2]); i++) {
            pid_t pid = fork();
            if (pid == 0) { pause(); _exit(0); }
            if (pid < 0) break;
            made++;
        }
        printf("%d\n", made);
        return 0;
    }
    if (count > 2 && !strcmp(names[1], "lock")) {
        puts(flock(open(names[2], O_RDONLY), LOCK_EX | LOCK_NB) ? "taken" : "free");
        return 0;
    }
    if (count > 1 && !strcmp(names[1], "watches")) {
        int made = 0;
        while (made < 60000 && inotify_init1(IN_CLOEXEC) >= 0) made++;
        printf("%d\n", made);
        return 0;
    }
    for (int i = 1; i < count; i++) {
        /* A child each, so that one that gets through changes nothing for the next. */
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            errno = 0;
            long result = attempt(names[i]);
            if (result >= 0) printf("%s through\n", names[i]);
            else printf("%s %d\n", names[i], errno);
            fflush(stdout);
            _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        if (WIFSIGNALED(status)) printf("%s signal %d\n", names[i], WTERMSIG(status));
    }
    return 0;
}
