/* Changes length, mode, owner and times of a file: one frame for each change, one after the other. The kernel keeps the
 * times of its writes and sends them when it is done with a file. No process waits for that: they are set after the
 * last write. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "remote/parts.h"

#define OMIT UINT64_MAX
#define NOW (UINT64_MAX - 1)
#define SIDE (FATTR_FH | FATTR_CTIME | FATTR_LOCKOWNER | FATTR_KILL_SUIDGID)

static void change_next(struct node *n, struct tree *tree, uint64_t asked, struct fuse_setattr_in *in);

static void on_times_set(struct request *r, int error, struct reader *answer)
{
    struct attr a = get_attr(answer);
    if (!error && !answer->bad)
        node_wrote(r->node, &a, r->unique);
    node_settled(r->node);
}

void times_send(struct node *node)
{
    node->times_wait = false;
    if (!node->names)
        return;
    struct request *r = request_new(R_UTIMES, node, on_times_set);
    put_path(r, node, NULL);
    put_number(r, (uint64_t)node->times[0], 8);
    put_number(r, (uint64_t)node->times[1], 8);
    request_send(r);
    node->touched = r->unique;
    node->writing++;
}

static void on_changed(struct request *r, int error, struct reader *answer)
{
    struct fuse_setattr_in *in = (void *)r->name;
    struct attr a = get_attr(answer);
    if (!error && answer->bad)
        error = EIO;
    if (error) {
        reply(r->tree, r->asked, error, NULL, 0);
        node_settled(r->node);
        return;
    }
    if (r->op == R_TRUNCATE) {
        r->node->size = in->size;
        handles_changed(r->node);
    }
    node_wrote(r->node, &a, r->unique);
    in->valid &= ~(uint32_t)r->a;
    r->name = NULL;
    struct node *n = r->node;
    change_next(n, r->tree, r->asked, in);
    node_settled(n);
}

static uint64_t time_of(uint32_t valid, uint32_t given, uint32_t now, uint64_t seconds, uint32_t rest)
{
    return valid & now ? NOW : valid & given ? (uint64_t)((int64_t)seconds * 1000000000 + rest) : OMIT;
}

static struct request *truncation(struct node *n, const struct fuse_setattr_in *in)
{
    struct request *r = request_new(R_TRUNCATE, n, on_changed);
    struct handle *h = in->valid & FATTR_FH ? (struct handle *)(uintptr_t)in->fh : NULL;
    if (!h || h->state != OPEN || !h->writable)
        h = n->names ? NULL : handle_writable(n);
    r->a = FATTR_SIZE;
    if (h)
        put_bytes(r, "", 0);
    else
        put_path(r, n, NULL);
    put_number(r, h ? h->id : 0, 8);
    put_number(r, in->size, 8);
    return r;
}

uint32_t submit_id(bool given, uint32_t id, uint32_t job, uint32_t submit)
{
    return !given ? UINT32_MAX : id == job ? submit : id;
}

static struct request *next_change(struct node *n, const struct fuse_setattr_in *in)
{
    const uint32_t times = FATTR_ATIME | FATTR_MTIME | FATTR_ATIME_NOW | FATTR_MTIME_NOW, ids = FATTR_UID | FATTR_GID;
    struct request *r;
    if (in->valid & FATTR_SIZE)
        return truncation(n, in);
    if (!n->names && n != n->tree->root)
        return NULL;
    if (in->valid & ids) {
        r = request_new(R_CHOWN, n, on_changed);
        r->a = ids;
        put_path(r, n, NULL);
        put_number(r, submit_id(in->valid & FATTR_UID, in->uid, serving.uid, serving.submit_uid), 4);
        put_number(r, submit_id(in->valid & FATTR_GID, in->gid, serving.gid, serving.submit_gid), 4);
        return r;
    }
    if (in->valid & FATTR_MODE) {
        r = request_new(R_CHMOD, n, on_changed);
        r->a = FATTR_MODE;
        put_path(r, n, NULL);
        put_number(r, in->mode & 07777, 4);
        return r;
    }
    if (in->valid & times) {
        r = request_new(R_UTIMES, n, on_changed);
        r->a = times;
        put_path(r, n, NULL);
        put_number(r, time_of(in->valid, FATTR_ATIME, FATTR_ATIME_NOW, in->atime, in->atimensec), 8);
        put_number(r, time_of(in->valid, FATTR_MTIME, FATTR_MTIME_NOW, in->mtime, in->mtimensec), 8);
        return r;
    }
    return NULL;
}

/* A file without a name is changed only here: nobody else can see it. */
static void apply_here(struct node *n, const struct fuse_setattr_in *in)
{
    if (in->valid & FATTR_MODE)
        n->attr.mode = (n->attr.mode & S_IFMT) | (in->mode & 07777);
    if (in->valid & FATTR_MTIME)
        n->attr.mtime = (int64_t)in->mtime * 1000000000 + in->mtimensec;
    if (in->valid & FATTR_ATIME)
        n->attr.atime = (int64_t)in->atime * 1000000000 + in->atimensec;
}

static void change_next(struct node *n, struct tree *tree, uint64_t asked, struct fuse_setattr_in *in)
{
    struct request *r = next_change(n, in);
    if (!r) {
        if (!n->names && n != tree->root)
            apply_here(n, in);
        reply_attr(tree, asked, n);
        free(in);
        return;
    }
    r->asked = asked;
    r->name = (void *)in;
    request_send(r);
    n->touched = r->unique;
    n->writing++;
}

/* Only the modification time of a file that is written here: the kernel's own report when it is done. */
static bool kernels_own(const struct node *n, uint32_t valid)
{
    return (valid & ~(uint32_t)SIDE) == FATTR_MTIME && n->touched && S_ISREG(n->attr.mode);
}

void ask_setattr(struct ask *q)
{
    const struct fuse_setattr_in *in = q->body;
    struct node *n = q->node;
    if (late_accepts(q))
        return;
    if (kernels_own(n, in->valid)) {
        n->times[0] = -1;
        n->times[1] = n->attr.mtime = (int64_t)in->mtime * 1000000000 + in->mtimensec;
        n->times_wait = true;
        reply_attr(q->tree, q->head->unique, n);
        if (!n->writing)
            times_send(n);
        return;
    }
    if (n->writing) {
        node_park(n, q);
        return;
    }
    struct fuse_setattr_in *mine = need(sizeof *mine);
    *mine = *in;
    change_next(n, q->tree, q->head->unique, mine);
}
