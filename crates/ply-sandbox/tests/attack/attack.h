/* What every attack uses. An attack is a function that tries one thing and gives what a system call gives: -1 and errno if
   it was stopped, anything else if it got through. ATTACK() names it; main.c runs it under that name. An attack that got
   through must not hurt: where it writes to the kernel, it writes what was there. */
#ifndef ATTACK_H
#define ATTACK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct attack {
    const char *name;
    const char *tries;
    long (*run)(void);
};

/* ATTACK(mount_tmpfs, "what it tries") { … }, run as `attack mount-tmpfs`. */
#define ATTACK(id, what) \
    static long try_##id(void); \
    static const struct attack attack_##id __attribute__((used, section("attacks"), aligned(8))) = {#id, what, try_##id}; \
    static long try_##id(void)

/* What stands behind `=` in `attack name=argument`. */
extern const char *argument;

/* Stopped, by this errno. */
static inline long stopped(int number) {
    errno = number;
    return -1;
}

/* Opens and closes. */
static inline long open_only(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC);
    if (fd >= 0) close(fd);
    return fd;
}

/* Writes a text into a file that is there. */
static inline long put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    long written = write(fd, text, strlen(text));
    int saved = errno;
    close(fd);
    errno = saved;
    return written;
}

/* Reads some of a file; nothing to read counts as stopped. */
static inline long get(const char *path, char *room, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    long length = read(fd, room, size - 1);
    int saved = errno;
    close(fd);
    errno = saved;
    if (length < 0) return -1;
    room[length] = 0;
    return length > 0 ? length : stopped(ENODATA);
}

/* Writes into a file what is in it: being let is what counts. */
static inline long put_back(const char *path) {
    char text[4096];
    long length = get(path, text, sizeof text);
    if (length < 0) return -1;
    return put(path, text);
}

#endif
