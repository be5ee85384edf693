/* A page over HTTP from one static program. It needs nothing: no base, no C library, no shell. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char PAGE[] =
    "<!doctype html>\n<title>Hello from a ply box</title>\n"
    "<h1>Hello from a ply box</h1>\n<p>One static program serves this page, and there is nothing else in here.</p>\n";

static volatile sig_atomic_t stopping;

static void stop(int signal) {
    (void)signal;
    stopping = 1;
}

static void answer(int client) {
    char request[4096], head[160];
    if (read(client, request, sizeof request) <= 0)
        return;
    int length = snprintf(head, sizeof head,
                          "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"
                          "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                          sizeof PAGE - 1);
    if (write(client, head, (size_t)length) == length && write(client, PAGE, sizeof PAGE - 1) < 0)
        perror("write");
}

int main(void) {
    const char *text = getenv("PORT");
    int port = text ? atoi(text) : 8080;

    /* Signals come only while ppoll() waits, so that none is missed between a look at `stopping` and the wait. */
    sigset_t blocked, waiting;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    sigprocmask(SIG_BLOCK, &blocked, &waiting);
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);

    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(server, (struct sockaddr *)&address, sizeof address) || listen(server, 64)) {
        perror("listen");
        return 1;
    }
    printf("listening on port %d\n", port);
    fflush(stdout);

    /* A client that says nothing must not hold up the others for long. */
    struct timeval patience = {.tv_sec = 2};
    struct pollfd wait = {.fd = server, .events = POLLIN};
    while (!stopping) {
        if (ppoll(&wait, 1, NULL, &waiting) < 1)
            continue;
        int client = accept(server, NULL, NULL);
        if (client < 0)
            continue;
        setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        answer(client);
        close(client);
    }
    return 0;
}
