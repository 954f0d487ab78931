/* Messages to and from the ranker, over the socket that we were started with. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server.h"

enum { RANKER_SOCKET = 3 };

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void send_all(const void *data, size_t size)
{
    const char *at = data;
    while (size) {
        ssize_t n = send(RANKER_SOCKET, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* the ranker is gone: hear() sees it, too */
        at += n;
        size -= (size_t)n;
    }
}

static void tell_two(enum kind kind, const void *body, size_t size, const void *more, size_t more_size)
{
    uint32_t length = (uint32_t)(size + more_size) + 1;
    unsigned char head[HEAD] = {length & 255, length >> 8 & 255, length >> 16 & 255, length >> 24, (unsigned char)kind};
    pthread_mutex_lock(&one_at_a_time);
    send_all(head, sizeof head);
    send_all(body, size);
    send_all(more, more_size);
    pthread_mutex_unlock(&one_at_a_time);
}

void tell(enum kind kind, const void *body, size_t size) { tell_two(kind, body, size, NULL, 0); }

void tell_rank(enum kind kind, int local, const void *more, size_t size)
{
    unsigned char rank[4] = {local & 255, local >> 8 & 255, local >> 16 & 255, 0};
    tell_two(kind, rank, sizeof rank, more, size);
}

void cannot(const char *format, ...)
{
    char text[300];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    tell(CANNOT, text, strlen(text) + 1);
    _exit(1);
}

static bool read_all(void *data, size_t size)
{
    char *at = data;
    while (size) {
        ssize_t n = read(RANKER_SOCKET, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

char hear(char **body, size_t *size)
{
    static char room[CHUNK_MOST];
    unsigned char head[HEAD];
    if (!read_all(head, sizeof head))
        return 0;
    uint32_t length = head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 24;
    if (length < 1 || length - 1 > sizeof room || !read_all(room, length - 1))
        return 0;
    *body = room;
    *size = length - 1;
    return (char)head[4];
}
