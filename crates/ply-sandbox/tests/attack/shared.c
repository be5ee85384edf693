/* What is shared with others if nothing stands between: keys, names, memory, sockets, signals, the terminal. */
#include "attack.h"
#include <sys/ioctl.h>
#include <sys/shm.h>
#include <sys/un.h>
#include <termios.h>
#include <netinet/in.h>

ATTACK(keyctl, "asks for its session keyring") { return syscall(SYS_keyctl, 0, -3, 1); }
ATTACK(key_of_the_caller, "reads a key of whoever started the box") {
    char text[64];
    long key = syscall(SYS_keyctl, 10 /* search */, -3, "user", argument, 0);
    return key < 0 ? -1 : syscall(SYS_keyctl, 11 /* read */, key, text, sizeof text);
}
ATTACK(request_key, "has the kernel start a program for a key") {
    return syscall(SYS_request_key, "user", "ply-attack", "x", -3);
}
ATTACK(shared_memory, "reads a memory segment of the host's") {
    int id = shmget(atoi(argument), 0, 0);
    if (id < 0) return -1;
    void *at = shmat(id, 0, SHM_RDONLY);
    return at == (void *)-1 ? -1 : 0;
}
ATTACK(message_queue, "opens a message queue of the host's") {
    return syscall(SYS_mq_open, argument, O_RDONLY, 0, 0);
}
ATTACK(signal_host, "signals a process of the host's") { return kill(atoi(argument), 0); }
ATTACK(abstract_socket, "connects to a socket by name that a process of the host's has (CVE-2020-15257)") {
    struct sockaddr_un address = {AF_UNIX, ""};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strncpy(address.sun_path + 1, argument, sizeof address.sun_path - 2);
    return connect(fd, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + strlen(argument));
}
ATTACK(host_loopback, "connects to a port that the host has on its loopback") {
    struct sockaddr_in address = {AF_INET, htons(atoi(argument)), {htonl(INADDR_LOOPBACK)}, {0}};
    return connect(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), (struct sockaddr *)&address, sizeof address);
}
/* What is typed isn't shown: it would be among the results. */
static void quiet(void) {
    struct termios settings;
    if (tcgetattr(0, &settings) < 0) return;
    settings.c_lflag &= ~(tcflag_t)ECHO;
    tcsetattr(0, TCSANOW, &settings);
}

ATTACK(terminal_input, "types into the terminal (CVE-2017-5226)") {
    quiet();
    return ioctl(0, TIOCSTI, "");
}
ATTACK(terminal_input_high_bits, "the same with the upper half of the request set (CVE-2019-10063)") {
    quiet();
    return syscall(SYS_ioctl, 0, TIOCSTI | 1ul << 32, "");
}
ATTACK(terminal_paste, "pastes into the terminal (CVE-2023-28100)") { return ioctl(0, 0x541c, "\3"); }
ATTACK(terminal_console, "takes the machine's messages to its terminal") { return ioctl(0, TIOCCONS); }
