/* The TCP sockets of the keeper's network namespace, as /proc/net/tcp lists them. It tells of sockets that no process
 * has open, and the other side of a connection that is still being made. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/inet.h"

static void parse_name(const char *text, unsigned port, struct inet_name *name)
{
    uint32_t words[4] = {0};
    size_t count = strlen(text) / 8;
    memset(name, 0, sizeof *name);
    for (size_t i = 0; i < count && i < 4; i++)
        sscanf(text + i * 8, "%8x", &words[i]);
    if (count == 4) {
        name->v6.sin6_family = AF_INET6;
        name->v6.sin6_port = htons((uint16_t)port);
        memcpy(&name->v6.sin6_addr, words, 16);
        name->size = sizeof name->v6;
    } else {
        name->v4.sin_family = AF_INET;
        name->v4.sin_port = htons((uint16_t)port);
        memcpy(&name->v4.sin_addr, words, 4);
        name->size = sizeof name->v4;
    }
}

struct inet_entry *inet_table(size_t *count)
{
    static const char *const files[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
    struct inet_entry *all = NULL;
    char line[512], local[40], remote[40];
    unsigned port, remote_port, state, unsent;
    unsigned long inode;
    size_t room = 0;
    *count = 0;
    for (size_t i = 0; i < 2; i++) {
        FILE *f = fopen(files[i], "re");
        while (f && fgets(line, sizeof line, f)) {
            if (sscanf(line, " %*d: %39[0-9A-F]:%x %39[0-9A-F]:%x %x %x:%*x %*s %*s %*u %*u %lu", local, &port, remote,
                       &remote_port, &state, &unsent, &inode) != 7)
                continue;
            if (*count == room) {
                room = room ? 2 * room : 64;
                struct inet_entry *more = realloc(all, room * sizeof *all);
                if (!more)
                    break;
                all = more;
            }
            struct inet_entry *e = &all[(*count)++];
            parse_name(local, port, &e->local);
            parse_name(remote, remote_port, &e->remote);
            e->state = state;
            e->unsent = unsent;
            e->inode = inode;
        }
        if (f)
            fclose(f);
    }
    return all;
}
