/* Locks: taken at home, where all jobs of all machines and its own programs meet. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "remote.h"

enum { WAIT = 1, FLOCK = 2, UNLOCK = 0, READ = 1, WRITE = 2, TEST = 4 };

static void lock_send(struct handle *h, uint64_t owner, uint32_t type, uint32_t how, uint64_t start, uint64_t end, uint64_t asked,
                      void (*done)(struct request *, int, struct reader *))
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
    request_send(r);
}

static void done_with(struct request *r, int error, struct reader *answer)
{
    (void)answer;
    reply(r->tree, r->asked, error, NULL, 0);
}

static void tested(struct request *r, int error, struct reader *answer)
{
    struct fuse_lk_out out = {.lk.type = F_UNLCK};
    uint32_t type = (uint32_t)get_number(answer, 1);
    uint64_t start = get_number(answer, 8), length = get_number(answer, 8);
    uint32_t pid = (uint32_t)get_number(answer, 4);
    if (!error && !answer->bad && type)
        out.lk = (struct fuse_file_lock){start, length ? start + length - 1 : INT64_MAX, type == READ ? F_RDLCK : F_WRLCK, pid};
    reply(r->tree, r->asked, 0, &out, sizeof out);
}

void ask_lock(struct ask *q)
{
    const struct fuse_lk_in *in = q->body;
    struct handle *h = (struct handle *)(uintptr_t)in->fh;
    if (h->state == LAZY)
        handle_begin(h);
    if (h->state == LOST) {
        reply(q->tree, q->head->unique, h->error, NULL, 0);
        return;
    }
    if (h->state == OPENING) {
        park(&h->parked, q);
        return;
    }
    bool flock = in->lk_flags & FUSE_LK_FLOCK, test = q->head->opcode == FUSE_GETLK;
    uint32_t type = in->lk.type == F_UNLCK ? UNLOCK : in->lk.type == F_RDLCK ? READ : WRITE;
    uint32_t how = (q->head->opcode == FUSE_SETLKW && type ? WAIT : 0) | (flock ? FLOCK : 0) | (test ? TEST : 0);
    h->node->locked |= type != UNLOCK;
    lock_send(h, in->owner, type, how, in->lk.start, in->lk.end, q->head->unique, test ? tested : done_with);
}

/* Whatever that owner holds through this handle. */
void locks_close(struct handle *h, uint64_t owner, bool flock)
{
    if (h->state == OPEN)
        lock_send(h, owner, UNLOCK, flock ? FLOCK : 0, 0, INT64_MAX, 0, done_with);
}

/* Only who waits for a lock is let go by a signal; everything else is as on a disk. Home ends the wait. */
void ask_interrupt(struct ask *q)
{
    const struct fuse_interrupt_in *in = q->body;
    struct request *r = link_find(in->unique, q->tree);
    if (r && r->op == R_LOCK && r->a && !r->interrupted) {
        struct reader old = {r->frame + FRAME_HEAD + 18, r->frame + r->size, false};
        uint64_t start = get_number(&old, 8), length = get_number(&old, 8);
        uint32_t flock = r->frame[FRAME_HEAD + 17] & FLOCK;
        r->interrupted = true;
        lock_send(r->handle, r->b, UNLOCK, flock, start, length ? start + length - 1 : INT64_MAX, 0, done_with);
    }
}
