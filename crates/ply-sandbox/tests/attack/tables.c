/* The other system call tables of the same processor: a filter for one is none for the others. */
#include "attack.h"

#if defined(__x86_64__)
/* A call of the 32-bit table, from 64-bit code. Pointers must be low: the program isn't relocated, its data is. */
static long legacy(long number, const void *a, const void *b, const void *c, long d, const void *e) {
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
                     : "memory", "r8", "r9", "r10", "r11");
    if (result < 0 && result > -4096) return stopped(-result);
    return result;
}

static char none[] = "none", folder[] = "/srv", tmpfs[] = "tmpfs", nothing[256];

ATTACK(legacy_mount, "mounts by the 32-bit table") { return legacy(21, none, folder, tmpfs, 0, nothing); }
ATTACK(legacy_unshare, "makes a user namespace by it") { return legacy(310, (void *)CLONE_NEWUSER, 0, 0, 0, 0); }
ATTACK(legacy_clone, "starts a process in one by it") {
    long pid = legacy(120, (void *)(CLONE_NEWUSER | SIGCHLD), 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    return pid;
}
ATTACK(legacy_io_uring, "makes a ring by it") { return legacy(425, (void *)1, nothing, 0, 0, 0); }
ATTACK(legacy_keyctl, "asks for a keyring by it") { return legacy(288, 0, (void *)-3, (void *)1, 0, 0); }
ATTACK(legacy_ptrace, "traces pid 1 by it") { return legacy(26, (void *)0x4206, (void *)1, 0, 0, 0); }
ATTACK(legacy_socketcall, "makes a socket to the hypervisor by it, with arguments where no filter looks") {
    static unsigned arguments[3] = {40, SOCK_STREAM, 0};
    return legacy(102, (void *)1, arguments, 0, 0, 0);
}
ATTACK(x32_mount, "mounts by the x32 table") {
    return syscall(0x40000000 + SYS_mount, none, folder, tmpfs, 0, nothing);
}
ATTACK(x32_unshare, "makes a user namespace by it") { return syscall(0x40000000 + SYS_unshare, CLONE_NEWUSER); }
#endif
