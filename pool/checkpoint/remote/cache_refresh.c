/* Updates the kernel's cache of a file to the state on the submit side, in a thread of the file server that may wait
 * for the kernel. With a writeback cache the kernel trusts its own pages and its own size. FUSE_NOTIFY_INVAL_INODE
 * makes it write dirty pages back and drop all; it changes the size only by truncate(2) on its own mount. Both wait for
 * answers of this server, so the thread makes these calls. Requests that they cause are answered from local state: none
 * goes to the submit side. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "remote/parts.h"

struct order {
    struct node *node;
    int device, error;
    bool resize, attributes;
    uint64_t id, size;
    void (*done)(struct node *, void *, int error);
    void *context;
    char path[PATH_ROOM];
};

static int orders[2] = {-1, -1}, results[2] = {-1, -1};
static volatile pid_t thread;

static bool pass_order(int fd, bool out, struct order **o)
{
    ssize_t n;
    do
        n = out ? write(fd, o, sizeof *o) : read(fd, o, sizeof *o);
    while (n < 0 && errno == EINTR);
    return n == sizeof *o;
}

static int drop_pages(const struct order *o)
{
    struct fuse_notify_inval_inode_out what = {.ino = o->id, .off = o->attributes ? -1 : 0};
    struct fuse_out_header head = {.len = sizeof head + sizeof what, .error = FUSE_NOTIFY_INVAL_INODE};
    struct iovec parts[2] = {{&head, sizeof head}, {&what, sizeof what}};
    return writev(o->device, parts, 2) < 0 && errno != ENOENT ? errno : 0; /* ENOENT: the kernel has no such inode */
}

static void *serve_orders(void *unused)
{
    struct order *o;
    thread = (pid_t)syscall(SYS_gettid);
    keep_files(orders[0], results[1]);
    while (pass_order(orders[0], false, &o)) {
        o->error = o->resize ? (truncate(o->path, (off_t)o->size) < 0 ? errno : 0) : drop_pages(o);
        pass_order(results[1], true, &o);
    }
    return unused;
}

static bool begin_thread(void)
{
    pthread_t made;
    if (orders[0] >= 0)
        return true;
    return pipe2(orders, O_CLOEXEC) == 0 && pipe2(results, O_CLOEXEC) == 0 &&
           pthread_create(&made, NULL, serve_orders, NULL) == 0;
}

static void give_order(struct node *node, struct order wanted, void (*done)(struct node *, void *, int error),
                       void *context)
{
    struct order *o = need(sizeof *o);
    *o = wanted;
    o->node = node_hold(node);
    o->device = node->tree->teller;
    o->id = node_id(node);
    o->done = done;
    o->context = context;
    if (!begin_thread() || (o->resize && !node_path(node, NULL, o->path, sizeof o->path)) ||
        !pass_order(orders[1], true, &o)) {
        free(o);
        done(node, context, EIO);
        node_drop(node);
    }
}

static void nothing_more(struct node *node, void *context, int error) { (void)node, (void)context, (void)error; }

void refresh_attributes(struct node *node) { give_order(node, (struct order){.attributes = true}, nothing_more, NULL); }

struct aim {
    struct attr attr;
    uint64_t unique;
    void (*done)(struct node *, void *, int error);
    void *context;
};

static void on_resized(struct node *node, void *context, int error)
{
    struct aim *a = context;
    a->done(node, a->context, error);
    free(a);
}

/* The submit side has the data written back in the meantime: its answer counts. */
static void on_dropped(struct node *node, void *context, int error)
{
    struct aim *a = context;
    uint64_t size = node->size;
    handles_changed(node);
    if (error || node->touched > a->unique) {
        on_resized(node, a, error);
        return;
    }
    node_adopt(node, &a->attr);
    if (size == node->size)
        on_resized(node, a, 0);
    else
        give_order(node, (struct order){.resize = true, .size = node->size}, on_resized, a);
}

void refresh_to(struct node *node, const struct attr *attr, uint64_t unique,
                void (*done)(struct node *, void *, int error), void *context)
{
    struct aim *a = need(sizeof *a);
    *a = (struct aim){.attr = *attr, .unique = unique, .done = done, .context = context};
    refresh_drop(node, on_dropped, a);
}

void refresh_drop(struct node *node, void (*done)(struct node *, void *, int error), void *context)
{
    give_order(node, (struct order){.resize = false}, done, context);
}

int refresh_fd(void) { return results[0]; }

void refresh_done(void)
{
    struct order *o;
    if (!pass_order(results[0], false, &o))
        return;
    o->done(o->node, o->context, o->error);
    node_drop(o->node);
    free(o);
}

/* Answers requests that the thread itself causes: lookups of the path, and the size. */
bool refresh_asks(struct ask *q)
{
    if (!thread || q->head->pid != (uint32_t)thread)
        return false;
    struct node *n = q->node;
    switch (q->head->opcode) {
    case FUSE_LOOKUP:
        n = name_find(n, q->body);
        if (!n || n->stale) {
            reply(q->tree, q->head->unique, ENOENT, NULL, 0);
            return true;
        }
        n->lookups++;
        reply_entry(q->tree, q->head->unique, n);
        return true;
    case FUSE_GETATTR:
    case FUSE_SETATTR:
        reply_attr(q->tree, q->head->unique, n);
        return true;
    }
    return false;
}
