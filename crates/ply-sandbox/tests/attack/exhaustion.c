/* Exhaustion: each takes what it can get of one thing. More than the box's share is through; being stopped at or below it
   is the errno that stopped it. The share is the argument where the box sets it. */
#include "attack.h"
#include <mqueue.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <time.h>

ATTACK(exhaust_processes, "starts processes without end") {
    int share = atoi(argument), made = 0, saved = 0;
    pid_t *pids = calloc(share, sizeof *pids);
    while (made < share && !saved) {
        pids[made] = fork();
        if (pids[made] == 0) {
            pause();
            _exit(0);
        }
        if (pids[made] < 0) saved = errno;
        else made++;
    }
    while (made-- > 0) {
        kill(pids[made], SIGKILL);
        waitpid(pids[made], 0, 0);
    }
    return saved ? stopped(saved) : 0;
}
ATTACK(exhaust_descriptors, "opens files without end") {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i <= atoi(argument); i++)
        if (dup(0) < 0) return -1;
    return 0;
}
ATTACK(exhaust_timers, "makes timers without end") {
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    timer_t timer;
    for (int i = 0; i <= atoi(argument); i++)
        if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &none, &timer) < 0) return -1;
    return 0;
}
ATTACK(exhaust_signals, "queues signals without end") {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0);
    union sigval value = {0};
    for (int i = 0; i <= atoi(argument); i++)
        if (sigqueue(getpid(), SIGRTMIN, value) < 0) return -1;
    return 0;
}
ATTACK(exhaust_queues, "makes message queues without end") {
    struct mq_attr attributes = {.mq_maxmsg = 10, .mq_msgsize = 8192};
    char name[32];
    int made = 0, saved = 0;
    while (made <= atoi(argument) / (10 * 8192) && !saved) {
        snprintf(name, sizeof name, "queue-%d", made);
        if (syscall(SYS_mq_open, name, O_CREAT | O_RDWR, 0600, &attributes) < 0) saved = errno;
        else made++;
    }
    while (made-- > 0) {
        snprintf(name, sizeof name, "queue-%d", made);
        syscall(SYS_mq_unlink, name);
    }
    return saved ? stopped(saved) : 0;
}
ATTACK(exhaust_keys, "makes keys without end") {
    char name[32];
    for (int i = 0; i < 32; i++) {
        snprintf(name, sizeof name, "key-%d", i);
        if (syscall(SYS_add_key, "user", name, "x", 1, -1 /* this thread's */) < 0) return -1;
    }
    return 0;
}
ATTACK(exhaust_inotify_instances, "makes inotify instances without end") {
    for (int i = 0; i <= atoi(argument); i++)
        if (inotify_init() < 0) return -1;
    return 0;
}
ATTACK(exhaust_inotify_watches, "makes inotify watches without end") {
    /* A watch is of one instance on one file: few of each make many. */
    enum { INSTANCES = 12 };
    int fds[INSTANCES], share = atoi(argument), files = share / INSTANCES + 1, made = 0, saved = 0;
    char name[32];
    for (int i = 0; i < INSTANCES; i++)
        if ((fds[i] = inotify_init()) < 0) return -1;
    while (made < files && !saved) {
        snprintf(name, sizeof name, "/dev/shm/watched-%d", made++);
        if (mknod(name, S_IFREG | 0600, 0) < 0) saved = errno;
        for (int i = 0; i < INSTANCES && !saved; i++)
            if (inotify_add_watch(fds[i], name, IN_OPEN) < 0) saved = errno;
    }
    while (made-- > 0) {
        snprintf(name, sizeof name, "/dev/shm/watched-%d", made);
        unlink(name);
    }
    return saved ? stopped(saved) : 0;
}
ATTACK(exhaust_terminals, "makes terminals without end") {
    for (int i = 0; i <= atoi(argument); i++)
        if (open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) < 0) return -1;
    return 0;
}
/* Writes until `room` bytes more than the share are there; what it wrote goes again. */
static long fill(const char *path) {
    static char block[1 << 16];
    long share = atol(argument), written = 0, result = 0;
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    while (written <= share && result >= 0) {
        result = write(fd, block, sizeof block);
        if (result > 0) written += result;
    }
    int saved = errno;
    close(fd);
    unlink(path);
    errno = saved;
    return result;
}
ATTACK(exhaust_scratch, "fills the root") { return fill("/big"); }
ATTACK(exhaust_tmp, "fills /tmp") { return fill("/tmp/big"); }
ATTACK(exhaust_shm, "fills /dev/shm") { return fill("/dev/shm/big"); }
ATTACK(exhaust_dev, "fills /dev") { return fill("/dev/big"); }
/* Empty files cost the kernel memory that no size counts. */
static long flood(const char *folder) {
    char name[64];
    int share = atoi(argument), made = 0, saved = 0;
    while (made <= share && !saved) {
        snprintf(name, sizeof name, "%s/file-%d", folder, made);
        if (mknod(name, S_IFREG | 0600, 0) < 0) saved = errno;
        else made++;
    }
    while (made-- > 0) {
        snprintf(name, sizeof name, "%s/file-%d", folder, made);
        unlink(name);
    }
    return saved ? stopped(saved) : 0;
}
ATTACK(exhaust_inodes, "makes empty files without end in the root") { return flood(""); }
ATTACK(exhaust_tmp_inodes, "makes empty files without end in /tmp") { return flood("/tmp"); }
