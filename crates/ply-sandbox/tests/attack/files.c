/* Files of the kernel: /proc, /sys, cgroups, devices. */
#include "attack.h"
#include <dirent.h>
#include <sys/file.h>
#include <sys/sysmacros.h>

/* A folder in which nothing is seen is as good as none. */
static long list(const char *path) {
    DIR *folder = opendir(path);
    if (!folder) return -1;
    int seen = 0;
    for (struct dirent *entry; (entry = readdir(folder));) seen += entry->d_name[0] != '.';
    closedir(folder);
    return seen ? seen : stopped(ENODATA);
}

/* With room for whole entries of eight bytes. */
static char text[4097];

ATTACK(core_pattern, "names a program that the kernel runs as root") { return put_back("/proc/sys/kernel/core_pattern"); }
ATTACK(modprobe_path, "names another one") { return put_back("/proc/sys/kernel/modprobe"); }
ATTACK(sysctl_memory, "changes how the machine gives memory out") { return put_back("/proc/sys/vm/overcommit_memory"); }
ATTACK(sysctl_files, "changes how many files the machine may open") { return put_back("/proc/sys/fs/file-max"); }
ATTACK(sysctl_port_range, "changes its own network's settings") {
    return put_back("/proc/sys/net/ipv4/ip_unprivileged_port_start");
}
ATTACK(binfmt, "registers an interpreter for the machine") {
    return open_only("/proc/sys/fs/binfmt_misc/register", O_WRONLY);
}
ATTACK(sysrq, "presses the magic key") { return put("/proc/sysrq-trigger", "h"); }
ATTACK(interrupt_affinity, "moves the machine's interrupts") { return put_back("/proc/irq/default_smp_affinity"); }
ATTACK(bus_config, "writes to a device's configuration") { return open_only("/proc/bus/pci/00/00.0", O_RDWR); }
ATTACK(memory_ranges, "changes how memory is cached") { return open_only("/proc/mtrr", O_WRONLY); }
ATTACK(kernel_core, "reads the kernel's memory") { return get("/proc/kcore", text, sizeof text); }
ATTACK(kernel_keys, "reads what keys there are") { return get("/proc/keys", text, sizeof text); }
ATTACK(kernel_timers, "reads the kernel's timers") { return get("/proc/timer_list", text, sizeof text); }
ATTACK(kernel_interrupts, "reads the machine's interrupts, keystroke by keystroke") {
    return get("/proc/interrupts", text, sizeof text);
}
ATTACK(kernel_messages, "reads the kernel's messages") { return get("/proc/kmsg", text, sizeof text); }
ATTACK(kernel_pages, "reads how pages are used") { return get("/proc/kpagecount", text, sizeof text); }
ATTACK(firmware, "reads the firmware's tables") { return list("/sys/firmware"); }
ATTACK(acpi, "reads the power state") { return list("/proc/acpi"); }
ATTACK(power_meter, "measures power, and by it what others compute") { return list("/sys/devices/virtual/powercap"); }
ATTACK(uevent_helper, "names a program that the kernel runs for a device") {
    return open_only("/sys/kernel/uevent_helper", O_WRONLY);
}
ATTACK(sys_write, "writes to a device") { return open_only("/sys/class/net/lo/mtu", O_WRONLY); }
ATTACK(kernel_debug, "looks into the kernel's tracing") { return list("/sys/kernel/debug"); }
ATTACK(cgroup_leave, "moves itself to another cgroup") { return put("/sys/fs/cgroup/cgroup.procs", "0"); }
ATTACK(cgroup_new, "makes a cgroup, to escape the limits of its own") {
    if (mkdir("/sys/fs/cgroup/x", 0755) < 0) return -1;
    return rmdir("/sys/fs/cgroup/x");
}
ATTACK(cgroup_limit, "raises its own limit") { return put("/sys/fs/cgroup/pids.max", "max"); }
ATTACK(release_agent, "has the kernel run a program as root (CVE-2022-0492)") {
    static const char *const kinds[] = {"rdma", "misc", "cpuset", "pids", "memory"};
    int last = ENOENT;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (mount("none", "/srv", "cgroup", 0, kinds[i]) < 0) {
            last = errno;
            continue;
        }
        if (put_back("/srv/release_agent") >= 0) return 0;
        last = errno;
        umount2("/srv", MNT_DETACH);
    }
    return stopped(last);
}
ATTACK(cgroup_path, "learns where on the host its cgroup is") {
    if (get("/proc/self/cgroup", text, sizeof text) < 0) return -1;
    for (char *line = strtok(text, "\n"); line; line = strtok(0, "\n")) {
        char *path = strrchr(line, ':');
        /* Hierarchies in which no box gets a cgroup of its own say no more than the host's root. */
        if (path && strcmp(path, ":/") && !strstr(line, ":name=") && !strstr(path, "..")) return 0;
    }
    return stopped(ENODATA);
}
ATTACK(oom_score, "has others killed first when memory is short") { return put("/proc/self/oom_score_adj", "-1000"); }
ATTACK(device_memory, "opens the machine's memory") { return open_only("/dev/mem", O_RDONLY); }
ATTACK(device_messages, "opens the kernel's messages") { return open_only("/dev/kmsg", O_RDONLY); }
ATTACK(device_disk, "opens the machine's disk") { return open_only("/dev/vda", O_RDONLY); }
ATTACK(device_fuse, "opens the door to filesystems of its own") { return open_only("/dev/fuse", O_RDWR); }
ATTACK(device_tun, "opens the door to network links of its own") { return open_only("/dev/net/tun", O_RDWR); }
ATTACK(device_new, "makes a node in /dev") { return mknod("/dev/x", S_IFCHR | 0666, makedev(1, 3)); }
ATTACK(device_in_image, "opens a device node that the image brings") { return open_only("/srv/null-device", O_RDONLY); }
ATTACK(device_locked, "sees who outside has a device open") {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return flock(fd, LOCK_EX | LOCK_NB) < 0 ? 0 : stopped(EWOULDBLOCK);
}
