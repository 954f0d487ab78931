/* Reading: from the data that came with the open, from chunks read ahead, or from the submit side. A file that is read
 * sequentially is fetched ahead of its reader in aligned chunks, twice as far each time that a chunk is used up: so a
 * slow link costs its delay once, not for each read. The first window is as large as the link can hold. Random reads
 * are fetched as requested. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "remote/parts.h"

#define AHEAD_ALL (256u << 20) /* of all readers together */
#define FIRST_MOST (4u << 20)
#define PIECES 8

static uint64_t ahead;

static void chunk_free(struct chunk *c)
{
    ahead -= c->size;
    free(c->room);
    free(c);
}

/* A chunk under way is freed when it arrives. */
static void chunk_drop(struct chunk **at)
{
    struct chunk *c = *at;
    *at = c->next;
    if (c->there)
        chunk_free(c);
    else
        c->unwanted = true;
}

void chunks_drop(struct handle *h)
{
    while (h->chunks)
        chunk_drop(&h->chunks);
}

static void on_fetched(struct request *r, int error, struct reader *answer)
{
    struct chunk *c = r->chunk;
    uint32_t size;
    const uint8_t *data = get_string(answer, &size);
    c->there = true;
    if (c->unwanted) {
        chunk_free(c);
        return;
    }
    c->error = error ? error : answer->bad || size > c->size ? EIO : 0;
    if (!c->error) {
        c->room = link_take();
        c->data = data;
        c->got = size;
        if (!c->room) {
            c->room = need(size);
            c->data = memcpy(c->room, data, size);
        }
    }
    unpark(&r->handle->parked);
}

static struct request *read_request(struct handle *h, uint64_t at, uint32_t size,
                                    void (*done)(struct request *, int, struct reader *))
{
    struct request *r = request_new(R_READ, h->node, done);
    r->handle = h;
    put_number(r, h->id, 8);
    put_number(r, at, 8);
    put_number(r, size, 4);
    return r;
}

static struct chunk *chunk_at(struct handle *h, uint64_t at)
{
    struct chunk *c = h->chunks;
    while (c && c->at != at)
        c = c->next;
    return c;
}

static struct chunk *chunk_fetch(struct handle *h, uint64_t at)
{
    uint64_t left = h->node->size - at;
    struct chunk *c = need(sizeof *c), **end = &h->chunks;
    *c = (struct chunk){.at = at, .size = left < CHUNK ? (uint32_t)left : CHUNK};
    while (*end)
        end = &(*end)->next;
    *end = c;
    ahead += c->size;
    struct request *r = read_request(h, at, c->size, on_fetched);
    r->chunk = c;
    request_send(r);
    return c;
}

static void drop_behind(struct handle *h, uint64_t before)
{
    for (struct chunk **at = &h->chunks; *at;) {
        if ((*at)->there && (*at)->at + CHUNK <= before) {
            chunk_drop(at);
            h->window = h->window * 2 < AHEAD_MOST ? h->window * 2 : AHEAD_MOST;
        } else {
            at = &(*at)->next;
        }
    }
}

/* One chunk on a fast link. On a slow link, where each doubling would cost a round trip, the bytes that arrive during
 * one at 40 MB/s. */
static uint32_t first_window(void)
{
    uint64_t bytes = link_way() / 25;
    return bytes < CHUNK ? CHUNK : bytes > FIRST_MOST ? FIRST_MOST : (uint32_t)bytes;
}

static void fetch_ahead(struct handle *h, uint64_t from)
{
    uint64_t end = from + h->window;
    for (uint64_t at = from / CHUNK * CHUNK; at < end && at < h->node->size && ahead < AHEAD_ALL; at += CHUNK)
        if (!chunk_at(h, at))
            chunk_fetch(h, at);
}

/* False: a chunk is not there yet. */
static bool from_chunks(struct ask *q, struct handle *h, uint64_t at, uint64_t end)
{
    struct iovec parts[PIECES + 1];
    int count = 1;
    for (uint64_t grid = at / CHUNK * CHUNK; grid < end; grid += CHUNK) {
        struct chunk *c = chunk_at(h, grid);
        if (!c)
            c = chunk_fetch(h, grid);
        if (!c->there)
            return false;
        if (c->error) {
            reply(q->tree, q->head->unique, c->error, NULL, 0);
            return true;
        }
        uint64_t from = at > grid ? at - grid : 0, to = end - grid < c->got ? end - grid : c->got;
        if (from < to)
            parts[count++] = (struct iovec){(void *)(uintptr_t)(c->data + from), to - from};
        if (c->got < CHUNK)
            break;
    }
    reply_parts(q->tree, q->head->unique, parts, count);
    return true;
}

static void read_exactly(struct request *r, int error, struct reader *answer)
{
    uint32_t size;
    const uint8_t *data = get_string(answer, &size);
    if (!error && (answer->bad || size > r->a))
        error = EIO;
    reply(r->tree, r->asked, error, data, size);
}

static void read_here_and_there(struct ask *q, struct handle *h, const struct fuse_read_in *in)
{
    struct request *r = read_request(h, in->offset, in->size, read_exactly);
    r->asked = q->head->unique;
    r->a = in->size;
    request_send(r);
}

static void from_small(struct ask *q, const struct handle *h, const struct fuse_read_in *in)
{
    uint64_t left = in->offset < h->data_size ? h->data_size - in->offset : 0;
    reply(q->tree, q->head->unique, 0, h->data + (left ? in->offset : 0), left < in->size ? left : in->size);
}

void ask_read(struct ask *q)
{
    const struct fuse_read_in *in = q->body;
    struct handle *h = handle_of(q, in->fh);
    struct node *n = h->node;
    if (h->state == LAZY && !n->writing)
        handle_begin(h);
    if (h->state == LOST) {
        reply(q->tree, q->head->unique, h->error, NULL, 0);
        return;
    }
    if (h->state == OPENING && h->comes) {
        park(&h->parked, q);
        return;
    }
    if (n->writing && h->state != OPENING) { /* a read waits for writes under way */
        node_park(n, q);
        return;
    }
    if (h->whole) {
        from_small(q, h, in);
        return;
    }
    uint64_t end = in->offset + in->size < n->size ? in->offset + in->size : n->size;
    bool in_order = in->offset == h->expected || chunk_at(h, in->offset / CHUNK * CHUNK);
    if (h->direct || h->append || !in_order || in->offset >= end) {
        if (unopened_waits(h)) {
            park(&h->parked, q);
            return;
        }
        h->expected = in->offset + in->size;
        read_here_and_there(q, h, in);
        return;
    }
    h->expected = end > h->expected || end == n->size ? end : h->expected;
    h->window = h->window ? h->window : first_window();
    drop_behind(h, in->offset);
    fetch_ahead(h, in->offset);
    if (unopened_waits(h) || !from_chunks(q, h, in->offset, end))
        park(&h->parked, q);
}
