/* Pid 1 of the box: a process with the host's program in its memory (CVE-2016-9962, CVE-2019-5736, CVE-2022-29162). */
#include "attack.h"
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <time.h>

static long look(const char *path) {
    char target[4096];
    return readlink(path, target, sizeof target);
}

ATTACK(ptrace_init, "traces pid 1") { return ptrace(PTRACE_SEIZE, 1, 0, 0); }
ATTACK(init_memory, "reads the memory of pid 1 (CVE-2016-9962)") { return open_only("/proc/1/mem", O_RDONLY); }
ATTACK(init_memory_write, "writes it") { return open_only("/proc/1/mem", O_RDWR); }
ATTACK(init_maps, "reads where what is in it") {
    char text[64];
    return get("/proc/1/maps", text, sizeof text);
}
ATTACK(init_vm, "reads it by process_vm_readv") {
    char text[128] = "400000", byte;
    if (get("/proc/1/maps", text, sizeof text) < 0) strcpy(text, "400000");
    struct iovec here = {&byte, 1}, there = {(void *)strtoul(text, 0, 16), 1};
    return syscall(SYS_process_vm_readv, 1, &here, 1, &there, 1, 0);
}
ATTACK(init_environment, "reads its environment, which is its caller's") { return open_only("/proc/1/environ", O_RDONLY); }
ATTACK(init_arguments, "reads its command line, which is its caller's") {
    char text[4096];
    return get("/proc/1/cmdline", text, sizeof text);
}
ATTACK(init_program, "finds out which program it is") { return look("/proc/1/exe"); }
ATTACK(init_program_open, "opens that program (CVE-2019-5736)") { return open_only("/proc/1/exe", O_RDONLY); }
ATTACK(init_program_write, "opens it for writing (CVE-2019-5736)") { return open_only("/proc/1/exe", O_WRONLY); }
ATTACK(init_program_run, "runs it") {
    int ends[2], failed = 0;
    if (pipe2(ends, O_CLOEXEC) < 0) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(open("/dev/null", O_RDWR), 1);
        execl("/proc/1/exe", "x", "--version", (char *)0);
        failed = errno;
        _exit(write(ends[1], &failed, sizeof failed) < 0);
    }
    close(ends[1]);
    /* The end of the pipe without a word is an exec. */
    return read(ends[0], &failed, sizeof failed) > 0 ? stopped(failed) : 0;
}
ATTACK(init_root, "goes through its root") { return open_only("/proc/1/root/etc", O_RDONLY); }
ATTACK(init_folder, "goes through its working directory") { return open_only("/proc/1/cwd", O_RDONLY); }
ATTACK(init_descriptors, "lists its descriptors") { return open_only("/proc/1/fd", O_RDONLY | O_DIRECTORY); }
ATTACK(init_descriptor_taken, "takes one of them") {
    int fd = syscall(SYS_pidfd_open, 1, 0);
    return fd < 0 ? -1 : syscall(SYS_pidfd_getfd, fd, 0, 0);
}
ATTACK(init_killed, "kills pid 1 from inside") {
    if (kill(1, SIGKILL) < 0) return -1;
    /* The kernel takes the signal and drops it: pid 1 is still there. */
    usleep(2000);
    return kill(1, 0) == 0 || errno == EPERM ? stopped(EPERM) : 0;
}
/* Looks at every process that appears, until `argument` seconds are over: one on its way in (`exec`) has the host's
   program for a moment, which is none of busybox, the sealed program of the start, and this one. Numbers are given in
   order, so the next few are looked at, over and over. */
ATTACK(exec_watched, "catches a process on its way in with the host's program (CVE-2019-5736, CVE-2016-9962)") {
    int latest = getpid();
    time_t end = time(0) + atoi(argument);
    while (time(0) < end) {
        for (int pid = latest; pid < latest + 8; pid++) {
            char path[64], target[4096];
            snprintf(path, sizeof path, "/proc/%d/exe", pid);
            long length = readlink(path, target, sizeof target - 1);
            if (length < 0 && errno == ENOENT) continue;
            latest = pid;
            if (length < 0) continue;
            target[length] = 0;
            if (strcmp(target, "/bin/busybox") && strcmp(target, "/bin/attack") && !strstr(target, "memfd:")) return 0;
        }
    }
    return stopped(EACCES);
}
