/* Under a lease the kernel believes names and attributes as long as the file server does. When the submit side reports
 * a change, or the lease ends, the kernel is told to ask again: FUSE_NOTIFY_INVAL_ENTRY, which only ends the belief and
 * keeps the name, and FUSE_NOTIFY_INVAL_INODE for the attributes. Both may wait for a process that waits for an answer
 * of this server, so a thread of their own tells the kernel. It also waits for nothing else.
 *
 * In a tree without OPEN nothing is asked when a file is opened, so the kernel has to be told first: the submit side's
 * answers wait (submit_link.c) until it was. A second thread tells it of these trees, since it must not wait for
 * requests of other trees, whose answers wait for it. It waits for a lookup or a listing of the same directory at most,
 * and these are answered meanwhile. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "remote/parts.h"

#define EXPIRE_ONLY 1 /* FUSE_EXPIRE_ONLY of newer kernels' headers */

struct expire_entry { /* struct fuse_notify_inval_entry_out, whose last field older headers call padding */
    uint64_t parent;
    uint32_t size, flags;
};

struct expiry {
    struct expiry *next;
    int device;
    uint64_t parent, child;
    struct node *directory; /* answers wait for it; NULL: they do not */
    char name[]; /* empty: only the attributes */
};

struct teller { /* a thread that tells the kernel */
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct expiry *first, *last, *told; /* told: of those that answers wait for */
    bool begun;
};

static struct teller plain = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER},
                     awaited = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};
static int told_fd = -1;
static size_t waiting; /* expiries that answers wait for */

static void notify_kernel(int device, int code, const void *what, size_t size, const char *name)
{
    struct fuse_out_header head = {.error = code};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)(uintptr_t)what, size}, {(void *)(uintptr_t)name, 0}};
    parts[2].iov_len = name ? strlen(name) + 1 : 0;
    head.len = (uint32_t)(sizeof head + size + parts[2].iov_len);
    while (writev(device, parts, name ? 3 : 2) < 0 && errno == EINTR) { /* ENOENT: the kernel does not know it */
    }
}

static void tell_of(const struct expiry *e)
{
    struct expire_entry entry = {e->parent, (uint32_t)strlen(e->name), EXPIRE_ONLY};
    struct fuse_notify_inval_inode_out inode = {.ino = e->child, .off = -1};
    if (*e->name)
        notify_kernel(e->device, FUSE_NOTIFY_INVAL_ENTRY, &entry, sizeof entry, e->name);
    notify_kernel(e->device, FUSE_NOTIFY_INVAL_INODE, &inode, sizeof inode, NULL);
}

static void report_told(struct teller *t, struct expiry *e)
{
    uint64_t one = 1;
    pthread_mutex_lock(&t->lock);
    e->next = t->told;
    t->told = e;
    pthread_mutex_unlock(&t->lock);
    while (write(told_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

static void *tell_kernel(void *given)
{
    struct teller *t = given;
    keep_files(t == &awaited ? told_fd : -1, -1);
    for (;;) {
        pthread_mutex_lock(&t->lock);
        while (!t->first)
            pthread_cond_wait(&t->more, &t->lock);
        struct expiry *each = t->first;
        t->first = t->last = NULL;
        pthread_mutex_unlock(&t->lock);
        for (struct expiry *next; each; each = next) {
            next = each->next;
            tell_of(each);
            if (each->directory)
                report_told(t, each);
            else
                free(each);
        }
    }
    return given;
}

static void add_expiry(struct node *directory, const char *name, const struct node *child)
{
    pthread_t made;
    bool waits = directory->tree->without_open;
    struct teller *t = waits ? &awaited : &plain;
    size_t size = strlen(name) + 1;
    struct expiry *e = need(sizeof *e + size);
    *e = (struct expiry){.device = directory->tree->teller, .parent = node_id(directory), .child = node_id(child)};
    memcpy(e->name, name, size);
    if (waits && told_fd < 0)
        told_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (waits && told_fd >= 0) {
        e->directory = node_hold(directory);
        directory->expiring++;
        waiting++;
    }
    pthread_mutex_lock(&t->lock);
    *(t->last ? &t->last->next : &t->first) = e;
    t->last = e;
    if (!t->begun && pthread_create(&made, NULL, tell_kernel, t) == 0)
        t->begun = true;
    pthread_cond_signal(&t->more);
    pthread_mutex_unlock(&t->lock);
}

bool expiry_awaited(void) { return waiting; }

int expiry_fd(void) { return told_fd; }

void expiry_done(void)
{
    uint64_t count;
    if (read(told_fd, &count, sizeof count) < 0)
        return;
    pthread_mutex_lock(&awaited.lock);
    struct expiry *each = awaited.told;
    awaited.told = NULL;
    pthread_mutex_unlock(&awaited.lock);
    for (struct expiry *next; each; each = next) {
        next = each->next;
        each->directory->expiring--;
        node_drop(each->directory);
        waiting--;
        free(each);
    }
    if (!waiting)
        link_release();
}

void expire_name(struct node *directory, const char *name, struct node *child)
{
    if (child->trusted)
        add_expiry(directory, name, child);
    child->trusted = false;
}

void expire_attributes(struct node *node) { expire_name(node, "", node); }

void expire_entries(struct node *directory)
{
    for (const struct name *n = directory->entries; n; n = n->after)
        expire_name(directory, n->text, n->node);
    expire_attributes(directory);
}
