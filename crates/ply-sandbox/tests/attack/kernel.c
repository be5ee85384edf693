/* Calls that reach the kernel of the machine, and those that have a long record of holes in it. */
#include "attack.h"
#include <linux/perf_event.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>

ATTACK(kexec, "loads another kernel") { return syscall(SYS_kexec_load, 0, 0, 0, 0); }
ATTACK(load_module, "loads a kernel module") { return syscall(SYS_init_module, "", 0, ""); }
ATTACK(bpf, "puts a map for programs into the kernel") {
    unsigned array_of_one[32] = {2, 4, 4, 1};
    return syscall(SYS_bpf, 0, array_of_one, 16);
}
ATTACK(perf, "measures by hardware counters") {
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr, .exclude_kernel = 1};
    return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}
ATTACK(io_uring, "makes a ring: calls that no filter sees") {
    char parameters[256] = {0};
    return syscall(425, 1, parameters);
}
ATTACK(userfaultfd, "stops the kernel at a page, to win races") { return syscall(SYS_userfaultfd, 1 /* user mode only */); }
ATTACK(open_by_handle, "opens a file by its handle, past every folder") {
    union {
        struct file_handle head;
        char room[sizeof(struct file_handle) + 128];
    } handle = {.head.handle_bytes = 128};
    int mount_id, fd = open("/tmp/handle", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    close(fd);
    if (name_to_handle_at(AT_FDCWD, "/tmp/handle", &handle.head, &mount_id, 0) < 0) handle.head.handle_bytes = 8;
    int folder = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return open_by_handle_at(folder, &handle.head, O_RDONLY);
}
ATTACK(mknod_device, "makes a device node") { return mknod("/tmp/null", S_IFCHR | 0666, makedev(1, 3)); }
ATTACK(mknod_disk, "makes a node of the machine's disk") { return mknod("/tmp/disk", S_IFBLK | 0666, makedev(254, 0)); }
ATTACK(mknodat_device, "the same by the newer call") {
    return mknodat(AT_FDCWD, "/tmp/node", S_IFCHR | 0666, makedev(1, 3));
}
#if defined(__x86_64__)
ATTACK(iopl, "uses the machine's ports") { return syscall(SYS_iopl, 3); }
ATTACK(ioperm, "uses one of them") { return syscall(SYS_ioperm, 0x80, 1, 1); }
#endif
/* Turns Ctrl-Alt-Del off; in a process namespace the kernel refuses that one, and restarts nothing. */
ATTACK(reboot, "restarts the machine") { return syscall(SYS_reboot, 0xfee1dead, 672274793, 0, 0); }
ATTACK(swapoff, "turns swap off") { return syscall(SYS_swapoff, "/none"); }
ATTACK(syslog, "reads the kernel's log") {
    char text[64];
    return syscall(SYS_syslog, 3, text, sizeof text);
}
ATTACK(settime, "sets the clock") { return syscall(SYS_settimeofday, 0, 0); }
ATTACK(adjust_clock, "makes the clock go faster") {
    struct timex now = {0};
    if (adjtimex(&now) < 0) return -1;
    now.modes = ADJ_FREQUENCY;
    return adjtimex(&now);
}
ATTACK(accounting, "has the kernel write a file of accounts") { return syscall(SYS_acct, 0); }
ATTACK(quota, "changes disk quotas") { return syscall(SYS_quotactl, 0x80000100, 0, 0, 0); }
ATTACK(hostname, "changes the name of the host") { return sethostname("other", 5); }
ATTACK(personality, "turns address randomization off") { return syscall(SYS_personality, 0x0040000); }
ATTACK(move_pages, "learns where pages are") { return syscall(SYS_move_pages, 0, 0, 0, 0, 0, 0); }
ATTACK(kcmp, "compares kernel objects of two processes") { return syscall(SYS_kcmp, getpid(), getpid(), 1, 0, 0); }
ATTACK(fanotify, "watches the whole mount") { return syscall(SYS_fanotify_init, 0, 0); }
ATTACK(lookup_dcookie, "asks for a path by its cookie") { return syscall(SYS_lookup_dcookie, 0, 0, 0); }
ATTACK(socket_alg, "uses the kernel's cryptography") { return socket(38, SOCK_SEQPACKET, 0); }
ATTACK(socket_vsock, "talks to the hypervisor") { return socket(40, SOCK_STREAM, 0); }
ATTACK(socket_raw, "sends packets of its own making") { return socket(AF_INET, SOCK_RAW, 1); }
ATTACK(socket_packet, "reads every packet") { return socket(AF_PACKET, SOCK_RAW, 0); }
