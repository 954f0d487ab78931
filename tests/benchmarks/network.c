/* Two ends of one TCP connection: `network serve PORT` or `network measure HOST PORT BYTES TURNS`. The latter prints
 * bytes a second of a stream, and the microseconds of a round trip of one byte (the median of many).
 * `network answer PORT`, with `network connect HOST PORT COUNT` or `network trips HOST PORT TURNS`: see there. */
#define _GNU_SOURCE
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BLOCK (1 << 20)

static char block[BLOCK];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int serve(int port)
{
    const int one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int server = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(server, (struct sockaddr *)&at, sizeof at) < 0 || listen(server, 1) < 0)
        return 1;
    int peer = accept(server, NULL, NULL);
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    uint64_t turns, bytes;
    if (recv(peer, &turns, sizeof turns, MSG_WAITALL) != sizeof turns ||
        recv(peer, &bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes)
        return 1;
    for (; turns; turns--)
        if (recv(peer, block, 1, 0) != 1 || send(peer, block, 1, 0) != 1)
            return 1;
    for (ssize_t n; bytes; bytes -= (uint64_t)n)
        if ((n = recv(peer, block, bytes < BLOCK ? bytes : BLOCK, 0)) <= 0)
            return 1;
    return send(peer, block, 1, 0) != 1;
}

static int connect_to(const char *host, const char *port)
{
    struct addrinfo *found, wanted = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    for (int tries = 0; tries < 1000; tries++, usleep(20000)) {
        if (getaddrinfo(host, port, &wanted, &found))
            continue;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, found->ai_addr, found->ai_addrlen) == 0)
            return fd;
        close(fd);
        freeaddrinfo(found);
    }
    return -1;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(const char *host, const char *port, uint64_t bytes, uint64_t turns)
{
    const int one = 1;
    int peer = connect_to(host, port);
    double *took = calloc(turns, sizeof *took);
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (peer < 0 || !took || send(peer, &turns, 8, 0) != 8 || send(peer, &bytes, 8, 0) != 8)
        return 1;
    for (uint64_t i = 0; i < turns; i++) {
        double began = now();
        if (send(peer, block, 1, 0) != 1 || recv(peer, block, 1, 0) != 1)
            return 1;
        took[i] = now() - began;
    }
    double began = now();
    for (uint64_t left = bytes; left;) {
        ssize_t n = send(peer, block, left < BLOCK ? left : BLOCK, 0);
        if (n <= 0)
            return 1;
        left -= (uint64_t)n;
    }
    if (recv(peer, block, 1, 0) != 1)
        return 1;
    double seconds = now() - began;
    qsort(took, turns, sizeof *took, by_size);
    printf("%.0f %.1f\n", (double)bytes / seconds, took[turns / 2] * 1e6);
    free(took);
    return 0;
}

/* Sends back each byte of any number of connections. */
static int answer(int port)
{
    const int one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct epoll_event e = {.events = EPOLLIN}, events[64];
    int server = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    e.data.fd = server;
    if (bind(server, (struct sockaddr *)&at, sizeof at) < 0 || listen(server, 4000) < 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, server, &e) < 0)
        return 1;
    for (;;) {
        int count = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == server) {
                e.data.fd = accept(server, NULL, NULL);
                setsockopt(e.data.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                epoll_ctl(epoll, EPOLL_CTL_ADD, e.data.fd, &e);
            } else if (recv(fd, block, 1, 0) != 1 || send(fd, block, 1, MSG_NOSIGNAL) != 1) {
                close(fd);
            }
        }
    }
}

/* Connections one after the other, each with one byte there and back: so many a second. */
static int connect_often(const char *host, const char *port, int count)
{
    double began = 0;
    for (int i = -1; i < count; i++) {
        int fd = connect_to(host, port);
        if (fd < 0 || send(fd, block, 1, 0) != 1 || recv(fd, block, 1, 0) != 1)
            return 1;
        close(fd);
        began = i < 0 ? now() : began;
    }
    printf("%.0f\n", count / (now() - began));
    return 0;
}

/* The median microseconds of a round trip of one byte. */
static int trips(const char *host, const char *port, size_t turns)
{
    const int one = 1;
    int peer = connect_to(host, port);
    double *took = calloc(turns, sizeof *took);
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (size_t i = 0; i < turns; i++) {
        double began = now();
        if (!took || send(peer, block, 1, 0) != 1 || recv(peer, block, 1, 0) != 1)
            return 1;
        took[i] = now() - began;
    }
    qsort(took, turns, sizeof *took, by_size);
    printf("%.1f\n", took[turns / 2] * 1e6);
    free(took);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "answer") == 0)
        return answer(atoi(argv[2]));
    if (argc == 5 && strcmp(argv[1], "connect") == 0)
        return connect_often(argv[2], argv[3], atoi(argv[4]));
    if (argc == 5 && strcmp(argv[1], "trips") == 0)
        return trips(argv[2], argv[3], strtoull(argv[4], NULL, 10));
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return serve(atoi(argv[2]));
    if (argc == 6 && strcmp(argv[1], "measure") == 0)
        return measure(argv[2], argv[3], strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
    return 2;
}
