/* Locks: taken on the submit side, where the jobs of all machines and its own programs meet.
 *
 * A server there that was killed has released them. So held locks are kept here too, in the order in which they were
 * taken, and taken again on the next stream before anything else is asked. Where another process was quicker, the
 * file's next write, fsync or close fails. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/parts.h"

enum { WAIT = 1, FLOCK = 2, UNLOCK = 0, READ = 1, WRITE = 2, TEST = 4 };

struct box { /* the fcntl locks of one process on one file */
    uint64_t owner;
    struct handle *handle;
    bool own; /* opened for them */
    struct box *next;
};

static struct box *boxes;

struct held_lock { /* a lock or unlock of a handle that no later one covers */
    struct handle *handle;
    uint64_t owner, start, end;
    uint32_t type, flock;
    struct held_lock *next;
};

static struct held_lock *held;

static struct request *lock_request(struct handle *h, uint64_t owner, uint32_t type, uint32_t how, uint64_t start,
                                    uint64_t end, uint64_t asked, void (*done)(struct request *, int, struct reader *))
{
    struct request *r = request_new(R_LOCK, h->node, done);
    r->handle = h;
    r->asked = asked;
    r->a = type;
    r->b = owner;
    put_number(r, h->id, 8);
    put_number(r, owner, 8);
    put_number(r, type, 1);
    put_number(r, how, 1);
    put_number(r, start, 8);
    put_number(r, end >= INT64_MAX ? 0 : end - start + 1, 8);
    return r;
}

static void lock_send(struct handle *h, uint64_t owner, uint32_t type, uint32_t how, uint64_t start, uint64_t end,
                      uint64_t asked, void (*done)(struct request *, int, struct reader *))
{
    request_send(lock_request(h, owner, type, how, start, end, asked, done));
}

static void note_lock(const struct request *r)
{
    struct reader sent = {r->frame + FRAME_HEAD + 18, r->frame + r->size, false};
    uint64_t start = get_number(&sent, 8), length = get_number(&sent, 8), end = length ? start + length - 1 : INT64_MAX;
    uint32_t flock = r->frame[FRAME_HEAD + 17] & FLOCK;
    struct handle *h = r->handle->lender ? r->handle->lender : r->handle;
    struct held_lock **at = &held;
    bool matters = r->a != UNLOCK;
    while (*at) {
        struct held_lock *one = *at;
        bool same = one->handle == h && one->flock == flock;
        if (same && (flock || (start <= one->start && one->end <= end))) {
            *at = one->next;
            free(one);
            continue;
        }
        matters |= same && one->start <= end && start <= one->end;
        at = &one->next;
    }
    if (!matters)
        return;
    *at = need(sizeof **at);
    **at = (struct held_lock){
        .handle = h, .owner = r->b, .start = start, .end = end, .type = (uint32_t)r->a, .flock = flock};
}

void locks_forget(struct handle *h)
{
    for (struct held_lock **at = &held; *at;) {
        struct held_lock *one = *at;
        if (one->handle == h) {
            *at = one->next;
            free(one);
        } else {
            at = &one->next;
        }
    }
}

static void on_retaken(struct request *r, int error, struct reader *answer)
{
    (void)answer;
    if (error)
        r->node->error = EIO;
}

void locks_retake(struct handle *h)
{
    for (struct held_lock *one = held; one; one = one->next) {
        if (one->handle != h)
            continue;
        struct request *r = lock_request(h, one->owner, one->type, one->flock, one->start, one->end, 0, on_retaken);
        r->urgent = true;
        request_send(r);
    }
}

struct grant { /* a lock that the submit side has granted; the job gets it when it sees the previous holder's writes */
    struct tree *tree;
    uint64_t asked;
};

static void grant_lock(struct node *n, void *context, int error)
{
    struct grant *g = context;
    (void)n, (void)error;
    reply(g->tree, g->asked, 0, NULL, 0);
    free(g);
}

/* As with NFS: the new holder of a lock sees all writes made under it. */
static void on_locked(struct request *r, int error, struct reader *answer)
{
    struct attr a = get_attr(answer);
    if (!error)
        note_lock(r);
    if (error || answer->bad || !r->a || !r->asked || serving.notified || !node_differs(r->node, &a)) {
        reply(r->tree, r->asked, error, NULL, 0);
        return;
    }
    struct grant *g = need(sizeof *g);
    *g = (struct grant){.tree = r->tree, .asked = r->asked};
    refresh_to(r->node, &a, r->unique, grant_lock, g);
}

static void on_tested(struct request *r, int error, struct reader *answer)
{
    struct fuse_lk_out out = {.lk.type = F_UNLCK};
    uint32_t type = (uint32_t)get_number(answer, 1);
    uint64_t start = get_number(answer, 8), length = get_number(answer, 8);
    uint32_t pid = (uint32_t)get_number(answer, 4);
    if (!error && !answer->bad && type)
        out.lk = (struct fuse_file_lock){start, length ? start + length - 1 : INT64_MAX,
                                         type == READ ? F_RDLCK : F_WRLCK, pid};
    reply(r->tree, r->asked, 0, &out, sizeof out);
}

static struct box *box_find(const struct node *node, uint64_t owner)
{
    struct box *b = boxes;
    while (b && (b->handle->node != node || b->owner != owner))
        b = b->next;
    return b;
}

static bool may_lock(const struct handle *h, uint32_t type)
{
    return !type || (h->flags & O_ACCMODE) != (type == READ ? O_WRONLY : O_RDONLY);
}

/* A process holds fcntl locks by itself, through any descriptor; on the submit side locks belong to a handle. So each
 * process has a handle of its own for each file that it locks. For a file without a name it is one that the job has
 * open. */
static struct handle *box_of(struct handle *h, uint64_t owner, uint32_t type)
{
    struct box *b = box_find(h->node, owner);
    if (b && !b->own &&
        !may_lock(b->handle, type)) { /* this handle's mode allows the lock, the previous one's does not */
        lock_send(b->handle, owner, UNLOCK, 0, 0, INT64_MAX, 0, on_locked);
        b->handle = h;
    }
    if (b)
        return b->handle;
    b = need(sizeof *b);
    bool writes = h->writable || owner_may(h->node, R_OK | W_OK);
    *b = (struct box){.owner = owner, .own = h->node->names, .next = boxes};
    boxes = b;
    h->node->locked = true;
    if (b->own) {
        b->handle = handle_new(h->node, writes ? O_RDWR : O_RDONLY);
        handle_begin(b->handle); /* the submit side handles the requests of one handle in order */
    } else {
        struct handle *best = handle_writable(h->node);
        b->handle = best && may_lock(best, READ) ? best : h;
    }
    return b->handle;
}

static void lock_now(struct ask *q)
{
    const struct fuse_lk_in *in = q->body;
    struct handle *h = (struct handle *)(uintptr_t)in->fh;
    bool flock = in->lk_flags & FUSE_LK_FLOCK, test = q->head->opcode == FUSE_GETLK;
    uint32_t type = in->lk.type == F_UNLCK ? UNLOCK : in->lk.type == F_RDLCK ? READ : WRITE;
    uint32_t how = (q->head->opcode == FUSE_SETLKW && type ? WAIT : 0) | (flock ? FLOCK : 0) | (test ? TEST : 0);
    if (flock && h->state == LAZY)
        handle_begin(h);
    if (h->state == LOST) {
        reply(q->tree, q->head->unique, h->error, NULL, 0);
        return;
    }
    lock_send(flock ? h : box_of(h, in->owner, type), in->owner, type, how, in->lk.start, in->lk.end, q->head->unique,
              test ? on_tested : on_locked);
}

/* Others get the lock when the submit side has all writes made under it. */
static void on_flushed(struct node *n, void *context, int error)
{
    struct parked *p = context;
    struct ask q = {.tree = p->tree,
                    .head = (const void *)p->bytes,
                    .size = p->size,
                    .body = p->bytes + sizeof(struct fuse_in_header),
                    .node = n};
    (void)error;
    if (n->writing)
        node_park(n, &q);
    else
        lock_now(&q);
    free(p);
}

void ask_lock(struct ask *q)
{
    const struct fuse_lk_in *in = q->body;
    struct node *n = ((struct handle *)(uintptr_t)in->fh)->node;
    n->locked = true;
    if (in->lk.type != F_UNLCK || !n->writers || serving.notified) {
        lock_now(q);
        return;
    }
    struct parked *copy = NULL;
    park(&copy, q);
    refresh_drop(n, on_flushed, copy);
}

/* When a process closes any descriptor of a file, it loses all its locks on it (fcntl(2)). */
void locks_close(struct node *node, uint64_t owner)
{
    for (struct box **at = &boxes; *at; at = &(*at)->next) {
        struct box *b = *at;
        if (b->handle->node != node || b->owner != owner)
            continue;
        *at = b->next;
        if (b->own)
            handle_close(b->handle);
        else
            lock_send(b->handle, owner, UNLOCK, 0, 0, INT64_MAX, 0, on_locked);
        free(b);
        return;
    }
}

/* A signal interrupts only waits for locks; all other requests behave as on a disk. The submit side ends the wait. */
void ask_interrupt(struct ask *q)
{
    const struct fuse_interrupt_in *in = q->body;
    struct request *r = link_find(in->unique, q->tree);
    if (r && r->op == R_LOCK && r->a && !r->interrupted) {
        struct reader old = {r->frame + FRAME_HEAD + 18, r->frame + r->size, false};
        uint64_t start = get_number(&old, 8), length = get_number(&old, 8);
        uint32_t flock = r->frame[FRAME_HEAD + 17] & FLOCK;
        r->interrupted = true;
        lock_send(r->handle, r->b, UNLOCK, flock, start, length ? start + length - 1 : INT64_MAX, 0, on_locked);
    }
}
