/* Multicast groups. The kernel lists those of a device, and of a socket it says whether it has joined one. */
#define _GNU_SOURCE
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/inet.h"

#define SOURCES_MOST 64

struct group {
    char device[16];
    struct inet_name name;
};

static bool is_every_hosts(const struct in6_addr *a)
{
    return a->s6_addr[1] <= 2 && (a->s6_addr[11] == 1 || !memcmp(a->s6_addr + 2, (char[13]){0}, 13));
}

/* The next of IPv4: a line for each device, then one for each of its groups. */
static bool next_four(FILE *f, struct group *g)
{
    char line[256], name[16];
    unsigned address;
    while (fgets(line, sizeof line, f)) {
        if (line[0] != '\t') {
            if (sscanf(line, "%*d %15s", name) == 1)
                memcpy(g->device, name, sizeof name);
            continue;
        }
        if (sscanf(line, " %8x", &address) != 1 || address == htonl(INADDR_ALLHOSTS_GROUP))
            continue;
        memset(&g->name, 0, sizeof g->name);
        g->name.v4.sin_family = AF_INET;
        g->name.v4.sin_addr.s_addr = address;
        g->name.size = sizeof g->name.v4;
        return true;
    }
    return false;
}

static bool next_six(FILE *f, struct group *g)
{
    char line[256], text[33];
    while (fgets(line, sizeof line, f)) {
        struct in6_addr a;
        if (sscanf(line, "%*d %15s %32[0-9a-f]", g->device, text) != 2 || strlen(text) != 32)
            continue;
        for (size_t i = 0; i < 16; i++) {
            unsigned byte = 0;
            sscanf(text + 2 * i, "%2x", &byte);
            a.s6_addr[i] = (uint8_t)byte;
        }
        if (is_every_hosts(&a))
            continue;
        memset(&g->name, 0, sizeof g->name);
        g->name.v6.sin6_family = AF_INET6;
        g->name.v6.sin6_addr = a;
        g->name.size = sizeof g->name.v6;
        return true;
    }
    return false;
}

static size_t filter_size(size_t sources) { return GROUP_FILTER_SIZE(sources); }

static struct group_filter *new_filter(const struct group *g, uint32_t sources)
{
    struct group_filter *filter = calloc(1, filter_size(sources));
    if (!filter)
        return NULL;
    filter->gf_interface = if_nametoindex(g->device);
    memcpy(&filter->gf_group, &g->name.any, g->name.size);
    filter->gf_numsrc = sources;
    return filter;
}

static int level_of(const struct group *g) { return g->name.any.sa_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6; }

static void save_group(struct dump *d, int fd, struct inet_row *row, const struct group *g)
{
    struct group_filter *filter = new_filter(g, SOURCES_MOST);
    socklen_t size = (socklen_t)filter_size(SOURCES_MOST);
    if (filter && getsockopt(fd, level_of(g), MCAST_MSFILTER, filter, &size) == 0) {
        struct inet_membership m = {.group = g->name, .mode = filter->gf_fmode, .sources = filter->gf_numsrc};
        memcpy(m.device, g->device, sizeof m.device);
        if (m.sources > SOURCES_MOST)
            m.sources = SOURCES_MOST;
        image_put(&d->image, &m, sizeof m);
        for (uint32_t i = 0; i < m.sources; i++) {
            struct inet_name source = {.size = g->name.size};
            memcpy(&source.any, &filter->gf_slist[i], source.size);
            image_put(&d->image, &source, sizeof source);
        }
        row->memberships++;
    }
    free(filter);
}

void memberships_save(struct dump *d, int fd, struct inet_row *row)
{
    static const struct {
        const char *path;
        bool (*next)(FILE *f, struct group *g);
    } lists[] = {{"/proc/self/net/igmp", next_four}, {"/proc/self/net/igmp6", next_six}};
    for (size_t i = 0; i < (row->domain == AF_INET6 ? 2 : 1); i++) {
        struct group g;
        memset(&g, 0, sizeof g);
        FILE *f = fopen(lists[i].path, "re");
        while (f && lists[i].next(f, &g))
            save_group(d, fd, row, &g);
        if (f)
            fclose(f);
    }
}

static int join_again(int fd, const struct inet_membership *m, const char *sources, struct failure *f)
{
    struct group g = {.name = m->group};
    struct group_req join = {0};
    memcpy(g.device, m->device, sizeof g.device);
    struct group_filter *filter = new_filter(&g, m->sources);
    if (!filter)
        return set_failure(f, "malloc", "a multicast group");
    join.gr_interface = filter->gf_interface;
    join.gr_group = filter->gf_group;
    filter->gf_fmode = m->mode;
    for (uint32_t i = 0; i < m->sources; i++) {
        struct inet_name source;
        memcpy(&source, sources + i * sizeof source, sizeof source);
        memcpy(&filter->gf_slist[i], &source.any, sizeof source.v6);
    }
    bool plain = m->mode == MCAST_EXCLUDE && !m->sources;
    int done = setsockopt(fd, level_of(&g), MCAST_JOIN_GROUP, &join, sizeof join);
    if (!done && !plain)
        done = setsockopt(fd, level_of(&g), MCAST_MSFILTER, filter, (socklen_t)filter_size(m->sources));
    free(filter);
    return done < 0 ? set_failure(f, "setsockopt", "a multicast group of a socket") : 0;
}

int memberships_restore(int fd, const char *at, size_t size, uint32_t count, struct failure *f)
{
    for (uint32_t i = 0; i < count; i++) {
        struct inet_membership m;
        if (size >= sizeof m)
            memcpy(&m, at, sizeof m);
        if (size < sizeof m || !memchr(m.device, 0, sizeof m.device) || !inet_valid(&m.group) || !m.group.size ||
            m.sources > SOURCES_MOST || size - sizeof m < m.sources * sizeof(struct inet_name)) {
            errno = EBADMSG;
            return set_failure(f, "read", "a multicast group of a socket");
        }
        at += sizeof m, size -= sizeof m;
        if (join_again(fd, &m, at, f))
            return -1;
        at += m.sources * sizeof(struct inet_name), size -= m.sources * sizeof(struct inet_name);
    }
    return 0;
}
