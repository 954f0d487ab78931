/* Holes of files on the submit side (lseek with SEEK_DATA and SEEK_HOLE), so that copying a sparse file moves only its
 * data. The submit side knows the holes once it has the dirty data of the kernel's cache. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "remote/parts.h"

static void on_sought(struct request *r, int error, struct reader *answer)
{
    struct fuse_lseek_out out = {.offset = get_number(answer, 8)};
    if (!error && answer->bad)
        error = EIO;
    reply(r->tree, r->asked, error, &out, sizeof out);
}

static void seek_now(struct ask *q)
{
    const struct fuse_lseek_in *in = q->body;
    struct handle *h = handle_of(q, in->fh);
    if (h->state == LAZY)
        handle_begin(h);
    if (h->state == LOST) {
        reply(q->tree, q->head->unique, h->error, NULL, 0);
        return;
    }
    if (unopened_waits(h)) {
        park(&h->parked, q);
        return;
    }
    struct request *r = request_new(R_SEEK, h->node, on_sought);
    r->asked = q->head->unique;
    put_number(r, h->id, 8);
    put_number(r, in->offset, 8);
    put_number(r, in->whence, 1);
    request_send(r);
}

static void on_flushed(struct node *n, void *context, int error)
{
    struct parked *p = context;
    struct ask q = {.tree = p->tree,
                    .head = (const void *)p->bytes,
                    .size = p->size,
                    .body = p->bytes + sizeof(struct fuse_in_header),
                    .node = n};
    if (error)
        reply(p->tree, q.head->unique, error, NULL, 0);
    else if (n->writing)
        node_park(n, &q);
    else
        seek_now(&q);
    free(p);
}

void ask_lseek(struct ask *q)
{
    const struct fuse_lseek_in *in = q->body;
    struct node *n = handle_of(q, in->fh)->node;
    struct parked *copy = NULL;
    if (in->whence != SEEK_DATA && in->whence != SEEK_HOLE) {
        reply(q->tree, q->head->unique, EINVAL, NULL, 0);
    } else if (n->writing && !q->tree->without_open) {
        node_park(n, q);
    } else if (n->writers) {
        park(&copy, q);
        refresh_drop(n, on_flushed, copy);
    } else {
        seek_now(q);
    }
}
