/* Requests to the file server, as the kernel would send them: one at a time. Looked-up names are cached as long as the
 * answer allows. An inode that was looked up stays with the server until it is forgotten, as with the kernel. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "remote_notify/parts.h"

#define NAMES 4096
#define NODES_MOST 8192

struct remembered {
    uint32_t tree;
    uint64_t parent, node, until;
    struct fuse_attr attr;
    char name[64];
};

struct known {
    struct known *next;
    uint32_t tree;
    uint64_t node, lookups;
};

static struct remembered names[NAMES];
static struct known *nodes[NAMES];
static size_t node_count;
static uint64_t last_unique;

/* Exits without the server, since nothing can be answered: the job ends with it. */
static void send_request(uint32_t tree, struct iovec *parts, int count, struct fuse_in_header *head)
{
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    parts[0] = (struct iovec){head, sizeof *head};
    for (int i = 0; i < count; i++)
        head->len += (uint32_t)parts[i].iov_len;
    while (sendmsg(notifier->server[tree], &m, MSG_NOSIGNAL) < 0)
        if (errno != EINTR)
            _exit(1);
}

ssize_t ask_parts(uint32_t tree, uint32_t op, uint64_t node, struct iovec *parts, int count, void *out, size_t room)
{
    struct fuse_in_header head = {.opcode = op, .unique = ++last_unique * 2, .nodeid = node};
    struct fuse_out_header answer;
    struct iovec into[2] = {{&answer, sizeof answer}, {out, room}};
    send_request(tree, parts, count, &head);
    ssize_t n = readv(notifier->server[tree], into, room ? 2 : 1);
    while (n < 0 && errno == EINTR)
        n = readv(notifier->server[tree], into, room ? 2 : 1);
    if (n < (ssize_t)sizeof answer || answer.unique != head.unique)
        _exit(1);
    return answer.error ? answer.error : n - (ssize_t)sizeof answer;
}

ssize_t ask(uint32_t tree, uint32_t op, uint64_t node, const void *in, size_t size, void *out, size_t room)
{
    struct iovec parts[2] = {{0}, {(void *)(uintptr_t)in, size}};
    return ask_parts(tree, op, node, parts, 2, out, room);
}

ssize_t ask_name(uint32_t tree, uint32_t op, uint64_t node, const void *in, size_t size, const char *name, void *out,
                 size_t room)
{
    struct iovec parts[3] = {{0}, {(void *)(uintptr_t)in, size}, {(void *)(uintptr_t)name, strlen(name) + 1}};
    return ask_parts(tree, op, node, parts, 3, out, room);
}

void node_seen(uint32_t tree, uint64_t node)
{
    struct known **at = &nodes[(node >> 4) % NAMES];
    while (*at && ((*at)->node != node || (*at)->tree != tree))
        at = &(*at)->next;
    if (!*at && node != FUSE_ROOT_ID) {
        struct known *k = calloc(1, sizeof *k);
        if (!k)
            _exit(1);
        *k = (struct known){.tree = tree, .node = node};
        *at = k;
        node_count++;
    }
    if (*at)
        (*at)->lookups++;
}

static struct remembered *place_of(uint32_t tree, uint64_t parent, const char *name)
{
    uint64_t h = parent * 0x9E3779B97F4A7C15u + tree;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001B3u;
    return &names[(h ^ h >> 32) % NAMES];
}

void names_changed(void) { memset(names, 0, sizeof names); }

/* Forgets all inodes except those of stand-ins. */
void names_forget(void)
{
    if (node_count < NODES_MOST)
        return;
    names_changed();
    for (size_t i = 0; i < NAMES; i++)
        for (struct known **at = &nodes[i]; *at;) {
            struct known *k = *at;
            if (stand_find(k->tree, k->node)) {
                at = &k->next;
                continue;
            }
            struct fuse_in_header head = {.opcode = FUSE_FORGET, .unique = ++last_unique * 2, .nodeid = k->node};
            struct fuse_forget_in in = {.nlookup = k->lookups};
            struct iovec parts[2] = {{0}, {&in, sizeof in}};
            send_request(k->tree, parts, 2, &head);
            *at = k->next;
            free(k);
            node_count--;
        }
}

int ask_entry(uint32_t tree, uint32_t op, uint64_t node, const void *in, size_t size, const char *name,
              struct fuse_entry_out *e)
{
    memset(e, 0, sizeof *e);
    ssize_t n = ask_name(tree, op, node, in, size, name, e, sizeof *e);
    if (n < 0)
        return (int)-n;
    if (e->nodeid)
        node_seen(tree, e->nodeid);
    return 0;
}

int look_up(uint32_t tree, uint64_t parent, const char *name, uint64_t *node, struct fuse_attr *a)
{
    struct remembered *r = place_of(tree, parent, name);
    if (r->until && r->tree == tree && r->parent == parent && strcmp(r->name, name) == 0 && r->until > monotonic_ns()) {
        *node = r->node;
        *a = r->attr;
        return r->node ? 0 : ENOENT;
    }
    struct fuse_entry_out e;
    int error = ask_entry(tree, FUSE_LOOKUP, parent, NULL, 0, name, &e);
    if (error)
        return error;
    *node = e.nodeid;
    *a = e.attr;
    if (strlen(name) < sizeof r->name) {
        *r = (struct remembered){.tree = tree,
                                 .parent = parent,
                                 .node = e.nodeid,
                                 .attr = e.attr,
                                 .until = monotonic_ns() + e.entry_valid * 1000000000 + e.entry_valid_nsec};
        strcpy(r->name, name);
    }
    return e.nodeid ? 0 : ENOENT;
}

int get_attr_of(uint32_t tree, uint64_t node, struct fuse_attr *a)
{
    struct fuse_getattr_in in = {0};
    struct fuse_attr_out out;
    ssize_t n = ask(tree, FUSE_GETATTR, node, &in, sizeof in, &out, sizeof out);
    *a = out.attr;
    return n < 0 ? (int)-n : 0;
}

int set_attr_of(uint32_t tree, uint64_t node, struct fuse_setattr_in *in)
{
    struct fuse_attr_out out;
    ssize_t n = ask(tree, FUSE_SETATTR, node, in, sizeof *in, &out, sizeof out);
    names_changed();
    return n < 0 ? (int)-n : 0;
}
