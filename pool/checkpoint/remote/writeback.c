/* Writing: answered as soon as it is under way, failures reported later, durable when flush or fsync returns.
 *
 * The kernel gathers small writes in its cache and sends pages. It is told that a write is done when the write is on
 * its way; the answer of the submit side is the answer to the next flush, fsync or write of that file. A close waits
 * until all writes of the file are answered. When too much is under way, writers wait for answers. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

#include "remote/parts.h"

#define WRITE_HEAD (FRAME_HEAD + 20)
#define APPEND UINT64_MAX
#define FULL_NS 30000000000u

void tree_is_full(struct tree *tree) { tree->full = monotonic_ns() + FULL_NS; }

static int errors_of(struct node *node)
{
    int error = node->error;
    node->error = 0;
    return error;
}

/* Records a failed write. The kernel's next getattr of the file, which comes before its next write, gets the error
 * (ask_getattr). Other writers of that tree bypass the cache for a while, so that each write has the submit side's own
 * answer. */
void not_kept(struct node *n, int error)
{
    n->error = error;
    n->believed = 0;
    if (error == ENOSPC || error == EDQUOT)
        tree_is_full(n->tree);
    if (!serving.notified)
        refresh_attributes(n);
}

static void on_written(struct request *r, int error, struct reader *answer)
{
    uint32_t size = (uint32_t)get_number(answer, 4);
    struct attr a = get_attr(answer);
    struct fuse_write_out out = {.size = (uint32_t)r->a};
    if (!error && (answer->bad || size != r->a))
        error = answer->bad ? EIO : ENOSPC;
    if (error)
        not_kept(r->node, error);
    else
        node_wrote(r->node, &a, r->unique);
    reply(r->tree, r->asked, error, &out, sizeof out);
    node_settled(r->node);
}

void ask_write(struct ask *q)
{
    const struct fuse_write_in *in = q->body;
    struct handle *h = (struct handle *)(uintptr_t)in->fh;
    struct node *n = h->node;
    struct fuse_write_out out = {.size = in->size};
    /* The submit side knows the end of the file, unless the kernel holds dirty data before it. */
    bool append = h->append && !(in->write_flags & FUSE_WRITE_CACHE) && in->offset <= n->size;
    uint64_t unique = q->head->unique, at = append ? APPEND : in->offset;
    uint32_t size = in->size;
    size_t place = sizeof(struct fuse_in_header) + sizeof *in;
    int error = h->state == LOST ? h->error : n->error;
    if (error || size > q->size - place) {
        reply(q->tree, unique, error ? error : EIO, NULL, 0);
        return;
    }
    if (n->writing && n->writer != h) { /* the submit side keeps the order of writes only within one handle */
        if (!n->writer) {
            node_park(n, q);
            return;
        }
        h = n->writer;
    }
    n->writer = h;
    uint64_t end = (at == APPEND ? n->size : at) + size;
    struct request *r = request_new(R_WRITE, n, on_written);
    free(r->room);
    r->room = take_buffer(q);
    r->frame = r->room + place - WRITE_HEAD; /* the data is sent in place */
    r->size = WRITE_HEAD + size;
    r->handle = h;
    r->a = size;
    frame_number(r->frame + FRAME_HEAD, h->id, 8);
    frame_number(r->frame + FRAME_HEAD + 8, at, 8);
    frame_number(r->frame + FRAME_HEAD + 16, size, 4);
    bool at_once = link_gathered() < GATHER_MOST && monotonic_ns() >= n->tree->full;
    r->asked = at_once ? 0 : unique;
    request_send(r);
    n->size = end > n->size ? end : n->size;
    n->touched = r->unique;
    n->writing++;
    handles_changed(n);
    if (at_once)
        reply(q->tree, unique, 0, &out, sizeof out);
}

void ask_flush(struct ask *q)
{
    const struct fuse_flush_in *in = q->body;
    struct handle *h = (struct handle *)(uintptr_t)in->fh;
    /* a process that gets the lock next sees what was written */
    if ((h->writable || h->node->locked) && h->node->writing) {
        node_park(h->node, q);
        return;
    }
    if (h->node->locked)
        locks_close(h->node, in->lock_owner);
    reply(q->tree, q->head->unique, h->writable ? errors_of(h->node) : 0, NULL, 0);
}

static void on_synced(struct request *r, int error, struct reader *answer)
{
    (void)answer;
    reply(r->tree, r->asked, error, NULL, 0);
}

void ask_fsync(struct ask *q)
{
    const struct fuse_fsync_in *in = q->body;
    struct handle *h = (struct handle *)(uintptr_t)in->fh;
    if (h->node->writing) {
        node_park(h->node, q);
        return;
    }
    int error = h->state == LOST ? h->error : errors_of(h->node);
    if (error || h->state == LAZY) {
        reply(q->tree, q->head->unique, error, NULL, 0);
        return;
    }
    struct request *r = request_new(R_SYNC, h->node, on_synced);
    r->asked = q->head->unique;
    put_number(r, h->id, 8);
    put_number(r, in->fsync_flags & FUSE_FSYNC_FDATASYNC, 1);
    request_send(r);
}

static void on_allocated(struct request *r, int error, struct reader *answer)
{
    struct attr a = get_attr(answer);
    struct node *n = r->node;
    if (!error && answer->bad)
        error = EIO;
    if (!error) {
        n->size = r->a > n->size ? r->a : n->size;
        node_wrote(n, &a, r->unique);
        handles_changed(n);
    }
    reply(r->tree, r->asked, error, NULL, 0);
    node_settled(n);
}

/* The kernel has sent its dirty data of the range before. */
void ask_fallocate(struct ask *q)
{
    const struct fuse_fallocate_in *in = q->body;
    struct handle *h = (struct handle *)(uintptr_t)in->fh;
    struct node *n = h->node;
    if (n->writing) {
        node_park(n, q);
        return;
    }
    int error = h->state == LOST ? h->error : n->error;
    if (error) {
        reply(q->tree, q->head->unique, error, NULL, 0);
        return;
    }
    struct request *r = request_new(R_FALLOCATE, n, on_allocated);
    r->asked = q->head->unique;
    r->a = in->mode & FALLOC_FL_KEEP_SIZE ? 0 : in->offset + in->length;
    put_number(r, h->id, 8);
    put_number(r, in->mode, 4);
    put_number(r, in->offset, 8);
    put_number(r, in->length, 8);
    request_send(r);
    n->touched = r->unique;
    n->writing++;
}
