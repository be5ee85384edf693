/* Namespaces: new ones, in which rights would be free, and other processes' (CVE-2022-0185 and CVE-2023-32233 were reached
   through a new user namespace). */
#include "attack.h"

static long clone_with(unsigned long flags) {
    long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    if (pid > 0) waitpid(pid, 0, __WALL);
    return pid;
}

static long clone3_with(unsigned long flags) {
    unsigned long long arguments[11] = {flags, [4] = SIGCHLD};
    long pid = syscall(435, arguments, sizeof arguments);
    if (pid == 0) _exit(0);
    if (pid > 0) waitpid(pid, 0, __WALL);
    return pid;
}

ATTACK(unshare_user, "makes a user namespace (CVE-2022-0185, CVE-2023-32233)") { return unshare(CLONE_NEWUSER); }
ATTACK(unshare_mount, "makes a mount namespace") { return unshare(CLONE_NEWNS); }
ATTACK(unshare_net, "makes a network namespace") { return unshare(CLONE_NEWNET); }
ATTACK(unshare_pid, "makes a process namespace") { return unshare(CLONE_NEWPID); }
ATTACK(unshare_ipc, "makes an ipc namespace") { return unshare(CLONE_NEWIPC); }
ATTACK(unshare_uts, "makes a name namespace") { return unshare(CLONE_NEWUTS); }
ATTACK(unshare_cgroup, "makes a cgroup namespace") { return unshare(0x02000000); }
ATTACK(unshare_time, "makes a time namespace") { return unshare(0x80); }
ATTACK(clone_user, "starts a process in a new user namespace") { return clone_with(CLONE_NEWUSER); }
ATTACK(clone_user_net, "the same with a network namespace, where kernel code is reached") {
    return clone_with(CLONE_NEWUSER | CLONE_NEWNET);
}
ATTACK(clone_high_bits, "the same with the upper half of the flags set (CVE-2019-10063)") {
    return clone_with(CLONE_NEWUSER | 1ul << 40);
}
ATTACK(clone_mount, "starts a process in a new mount namespace") { return clone_with(CLONE_NEWNS); }
ATTACK(clone_pid, "starts a process in a new process namespace") { return clone_with(CLONE_NEWPID); }
ATTACK(clone_cgroup, "starts a process in a new cgroup namespace") { return clone_with(0x02000000); }
ATTACK(clone_sibling, "starts a process whose parent is its own parent's, which may be outside") {
    return clone_with(CLONE_PARENT);
}
ATTACK(clone3_plain, "uses the clone whose flags no filter sees") { return clone3_with(0); }
ATTACK(clone3_user, "makes a user namespace with it") { return clone3_with(CLONE_NEWUSER); }
ATTACK(setns_init, "joins the mount namespace of pid 1") {
    int fd = syscall(SYS_pidfd_open, 1, 0);
    return fd < 0 ? -1 : setns(fd, CLONE_NEWNS);
}
ATTACK(setns_self, "joins its own namespace again, with all rights there") {
    int fd = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -1 : setns(fd, CLONE_NEWUSER) == 0 || errno == EINVAL ? 0 : -1;
}
ATTACK(namespaces_of_init, "opens the namespaces of pid 1") { return open_only("/proc/1/ns/mnt", O_RDONLY); }
