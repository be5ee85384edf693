/* Mounts: making, changing and removing them, by the old calls and by the new ones. */
#include "attack.h"
#include <linux/mount.h>

ATTACK(mount_tmpfs, "mounts a filesystem of its own") { return mount("none", "/srv", "tmpfs", 0, ""); }
ATTACK(mount_proc, "mounts another /proc, without masks") { return mount("none", "/srv", "proc", 0, ""); }
ATTACK(mount_sysfs, "mounts another /sys, writable") { return mount("none", "/srv", "sysfs", 0, ""); }
ATTACK(mount_cgroup, "mounts another cgroup view, writable (CVE-2022-0492)") {
    return mount("none", "/srv", "cgroup2", 0, "");
}
ATTACK(mount_bind, "binds a folder elsewhere") { return mount("/etc", "/srv", 0, MS_BIND, 0); }
ATTACK(mount_overlay, "mounts an overlay (CVE-2021-3493, CVE-2023-0386)") {
    mkdir("/tmp/lower", 0755);
    mkdir("/tmp/upper", 0755);
    mkdir("/tmp/work", 0755);
    return mount("none", "/srv", "overlay", 0, "lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work,userxattr");
}
ATTACK(mount_disk, "mounts the machine's disk by its device number") {
    if (mknod("/tmp/to-mount", S_IFBLK | 0600, 254 << 8) < 0) return -1;
    return mount("/tmp/to-mount", "/srv", "ext4", MS_RDONLY, "noload");
}
ATTACK(remount_root, "takes nosuid and nodev from the root") { return mount(0, "/", 0, MS_REMOUNT | MS_BIND, 0); }
ATTACK(remount_sys, "makes /sys writable") { return mount(0, "/sys", 0, MS_REMOUNT | MS_BIND, 0); }
ATTACK(remount_proc_sys, "makes /proc/sys writable") { return mount(0, "/proc/sys", 0, MS_REMOUNT | MS_BIND, 0); }
/* A folder of the host's that is given read-only. */
ATTACK(write_link, "writes into a read-only folder of the host") { return open_only("/opt/link/to-read", O_WRONLY); }
ATTACK(remount_link, "makes a read-only folder of the host writable") {
    if (mount(0, "/opt/link", 0, MS_REMOUNT | MS_BIND, 0) < 0) return -1;
    return open_only("/opt/link/to-read", O_WRONLY);
}
ATTACK(mount_setattr_link, "the same by mount_setattr") {
    struct mount_attr attributes = {.attr_clr = MOUNT_ATTR_RDONLY};
    if (syscall(442, AT_FDCWD, "/opt/link", 0, &attributes, sizeof attributes) < 0) return -1;
    return open_only("/opt/link/to-read", O_WRONLY);
}
ATTACK(remount_device, "opens a device node of the image after taking nodev away") {
    if (mount(0, "/", 0, MS_REMOUNT | MS_BIND, 0) < 0) return -1;
    return open_only("/srv/null-device", O_RDONLY);
}
ATTACK(mount_setattr_device, "the same by open_tree and mount_setattr") {
    int tree = syscall(428, AT_FDCWD, "/", 1 /* OPEN_TREE_CLONE */);
    if (tree < 0) return -1;
    struct mount_attr attributes = {.attr_clr = MOUNT_ATTR_NODEV};
    if (syscall(442, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) < 0) return -1;
    return openat(tree, "srv/null-device", O_RDONLY | O_CLOEXEC);
}
ATTACK(umount_mask, "takes a mask off /proc") { return umount2("/proc/interrupts", MNT_DETACH); }
ATTACK(umount_proc_sys, "takes the lock off /proc/sys") { return umount2("/proc/sys", MNT_DETACH); }
ATTACK(umount_sys, "takes /sys away") { return umount2("/sys", MNT_DETACH); }
ATTACK(pivot_root, "changes the root") {
    if (mount("none", "/srv", "tmpfs", 0, "") < 0 && errno != EPERM) return -1;
    mkdir("/srv/old", 0755);
    return syscall(SYS_pivot_root, "/srv", "/srv/old");
}
ATTACK(chroot_away, "changes the root to climb out of it") {
    int out = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (chroot("/srv") < 0) return -1;
    return fchdir(out);
}
/* The calls of Linux 5.2 and later, which old filters didn't know (CVE-2021-41133). */
ATTACK(fsopen_tmpfs, "opens a filesystem by the new mount calls (CVE-2021-41133)") {
    return syscall(430, "tmpfs", 0);
}
ATTACK(fsopen_cgroup, "opens a view of the cgroups by the new mount calls (CVE-2022-0185)") {
    return syscall(430, "cgroup", 0);
}
ATTACK(fspick_root, "opens the root's filesystem to change its options") { return syscall(433, AT_FDCWD, "/", 0); }
ATTACK(open_tree_clone, "clones the root's mount") { return syscall(428, AT_FDCWD, "/", 1); }
ATTACK(move_mount_proc, "moves a mount away") { return syscall(429, AT_FDCWD, "/proc/sys", AT_FDCWD, "/srv", 0); }
ATTACK(mount_setattr_root, "changes the root's attributes") {
    struct mount_attr attributes = {.attr_clr = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID};
    return syscall(442, AT_FDCWD, "/", 0, &attributes, sizeof attributes);
}
