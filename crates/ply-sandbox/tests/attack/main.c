/* The programs of this folder in one, as a static program for an image: `attack NAME[=ARGUMENT]…`, or a link to it whose
   name is an attack's. One line for each: the name and "through", or the errno that stopped it. */
#include "attack.h"

extern const struct attack __start_attacks[], __stop_attacks[];
const char *argument = "";

/* mount_tmpfs is mount-tmpfs on the command line. */
static int is_called(const char *id, const char *name, size_t length) {
    if (strlen(id) != length) return 0;
    for (size_t i = 0; i < length; i++)
        if (name[i] != (id[i] == '_' ? '-' : id[i])) return 0;
    return 1;
}

static void list(void) {
    for (const struct attack *attack = __start_attacks; attack < __stop_attacks; attack++) {
        for (const char *c = attack->name; *c; c++) putchar(*c == '_' ? '-' : *c);
        printf("\t%s\n", attack->tries);
    }
}

static int try(const char *name) {
    size_t length = strcspn(name, "=");
    argument = name[length] ? name + length + 1 : "";
    for (const struct attack *attack = __start_attacks; attack < __stop_attacks; attack++) {
        if (!is_called(attack->name, name, length)) continue;
        fflush(stdout);
        /* A child each, so that one that gets through changes nothing for the next. */
        pid_t pid = fork();
        if (pid < 0) {
            printf("%.*s not started\n", (int)length, name);
            return 1;
        }
        if (pid == 0) {
            /* Mounts too, where there are the rights to change them. */
            unshare(CLONE_NEWNS);
            errno = 0;
            long result = attack->run();
            if (result >= 0) printf("%.*s through\n", (int)length, name);
            else printf("%.*s %d\n", (int)length, name, errno);
            fflush(stdout);
            _exit(0);
        }
        int status;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
        if (WIFSIGNALED(status)) printf("%.*s signal %d\n", (int)length, name, WTERMSIG(status));
        return 0;
    }
    fprintf(stderr, "no attack has the name %s\n", name);
    return 3;
}

int main(int count, char **names) {
    const char *self = strrchr(names[0], '/');
    self = self ? self + 1 : names[0];
    if (strcmp(self, "attack")) return try(self);
    if (count == 2 && !strcmp(names[1], "list")) {
        list();
        return 0;
    }
    for (int i = 1; i < count; i++) {
        int code = try(names[i]);
        if (code) return code;
    }
    return 0;
}
