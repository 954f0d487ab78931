/* Under a lease the kernel believes names and attributes as long as the file server does. When the submit side reports
 * a change, or the lease ends, the kernel is told to ask again: FUSE_NOTIFY_INVAL_ENTRY, which only ends the belief and
 * keeps the name, and FUSE_NOTIFY_INVAL_INODE for the attributes. Both may wait for a process that waits for an answer
 * of this server, so a thread of their own tells the kernel. It also waits for nothing else. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
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
    char name[]; /* empty: only the attributes */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct expiry *first, **last;
    bool begun;
} expiries = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &expiries.first, false};

static void notify_kernel(int device, int code, const void *what, size_t size, const char *name)
{
    struct fuse_out_header head = {.error = code};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)(uintptr_t)what, size}, {(void *)(uintptr_t)name, 0}};
    parts[2].iov_len = name ? strlen(name) + 1 : 0;
    head.len = (uint32_t)(sizeof head + size + parts[2].iov_len);
    while (writev(device, parts, name ? 3 : 2) < 0 && errno == EINTR) { /* ENOENT: the kernel does not know it */
    }
}

static void *tell_kernel(void *unused)
{
    keep_files(-1, -1);
    for (;;) {
        pthread_mutex_lock(&expiries.lock);
        while (!expiries.first)
            pthread_cond_wait(&expiries.more, &expiries.lock);
        struct expiry *each = expiries.first;
        expiries.first = NULL;
        expiries.last = &expiries.first;
        pthread_mutex_unlock(&expiries.lock);
        for (struct expiry *next; each; each = next) {
            struct expire_entry entry = {each->parent, (uint32_t)strlen(each->name), EXPIRE_ONLY};
            struct fuse_notify_inval_inode_out inode = {.ino = each->child, .off = -1};
            next = each->next;
            if (*each->name)
                notify_kernel(each->device, FUSE_NOTIFY_INVAL_ENTRY, &entry, sizeof entry, each->name);
            notify_kernel(each->device, FUSE_NOTIFY_INVAL_INODE, &inode, sizeof inode, NULL);
            free(each);
        }
    }
    return unused;
}

static void add_expiry(const struct node *directory, const char *name, const struct node *child)
{
    pthread_t made;
    size_t size = strlen(name) + 1;
    struct expiry *e = need(sizeof *e + size);
    *e = (struct expiry){.device = directory->tree->teller, .parent = node_id(directory), .child = node_id(child)};
    memcpy(e->name, name, size);
    pthread_mutex_lock(&expiries.lock);
    *expiries.last = e;
    expiries.last = &e->next;
    if (!expiries.begun && pthread_create(&made, NULL, tell_kernel, NULL) == 0)
        expiries.begun = true;
    pthread_cond_signal(&expiries.more);
    pthread_mutex_unlock(&expiries.lock);
}

void expire_name(const struct node *directory, const char *name, struct node *child)
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
