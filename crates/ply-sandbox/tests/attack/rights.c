/* Rights: getting more, and what was left over. */
#include "attack.h"
#include <dirent.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

ATTACK(setuid_root, "becomes root") { return setuid(0); }
ATTACK(setgroups, "joins no groups at all") { return syscall(SYS_setgroups, 0, 0); }
/* The image has a copy of this program, setuid and root's. */
ATTACK(setuid_file, "runs a setuid file of the image") {
    if (strcmp(argument, "now")) {
        execl("/srv/setuid", "attack", "setuid-file=now", (char *)0);
        return -1;
    }
    return geteuid() == 0 ? 0 : stopped(EPERM);
}
ATTACK(capabilities, "has a capability, or could get one") {
    char text[4096];
    if (get("/proc/self/status", text, sizeof text) < 0) return -1;
    for (char *line = strtok(text, "\n"); line; line = strtok(0, "\n"))
        if (!strncmp(line, "Cap", 3) && strtoull(line + 8, 0, 16)) return 0;
    return stopped(EPERM);
}
ATTACK(inheritable, "has inheritable capabilities, which a file may turn into rights (CVE-2022-27649, CVE-2025-27612)") {
    char text[4096];
    if (get("/proc/self/status", text, sizeof text) < 0) return -1;
    char *line = strstr(text, "CapInh:");
    return line && strtoull(line + 8, 0, 16) ? 0 : stopped(EPERM);
}
/* The file lets a group of its caller's in, and nobody else. */
ATTACK(groups_of_the_caller, "uses a group that its caller has (CVE-2022-2989, CVE-2023-25173)") {
    return open_only("/opt/link/for-a-group", O_RDONLY);
}
ATTACK(groups, "has supplementary groups that nobody gave it (CVE-2022-36109)") {
    gid_t list[64];
    int count = getgroups(64, list);
    for (int i = 0; i < count; i++)
        if (list[i] != getgid()) return 0;
    return stopped(EPERM);
}
ATTACK(new_privileges, "could gain rights by an exec") { return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) ? stopped(EPERM) : 0; }
ATTACK(raise_files, "raises the limit of open files") {
    struct rlimit limit = {1 << 30, 1 << 30};
    return setrlimit(RLIMIT_NOFILE, &limit);
}
ATTACK(raise_processes, "raises the limit of processes") {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit now;
    getrlimit(RLIMIT_NPROC, &now);
    if (now.rlim_max == RLIM_INFINITY) return 0;
    return setrlimit(RLIMIT_NPROC, &limit);
}
ATTACK(core_dump, "has the kernel write a dump somewhere") {
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit);
    return limit.rlim_max ? 0 : stopped(EPERM);
}
ATTACK(priority, "runs before everybody else") { return setpriority(PRIO_PROCESS, 0, -20); }
ATTACK(real_time, "takes the processor for good") {
    struct sched_param parameters = {50};
    return sched_setscheduler(0, SCHED_FIFO, &parameters);
}
/* 0, 1 and 2, and the folder that is read. */
ATTACK(descriptors, "finds a descriptor that was left open (CVE-2024-21626)") {
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) return -1;
    for (struct dirent *entry; (entry = readdir(folder));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd > 2 && fd != dirfd(folder)) return 0;
    }
    return stopped(EBADF);
}
