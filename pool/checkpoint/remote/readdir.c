/* Directories: a listing includes the attributes of all entries, and is fetched whole, ahead of the reader, so that a
 * stat of each entry needs no request. With a lease a listing is kept for the next reader, until the directory
 * changes. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "remote/parts.h"

#define KEPT_MOST 500000 /* entries of all directories, about 100 bytes each */

struct entry {
    struct attr attr;
    char *name;
};

struct listing {
    struct entry *entries;
    size_t count, room;
    uint64_t first, unique; /* of the frames that brought the first and the last entries */
    uint64_t arrived;
    uint32_t uses;
    bool whole;
    int error;
    uint64_t asked; /* by an open that waits */
};

static size_t kept; /* number of entries */

static void listing_drop(struct listing *l)
{
    if (!l || --l->uses)
        return;
    for (size_t i = 0; i < l->count; i++)
        free(l->entries[i].name);
    free(l->entries);
    free(l);
}

void listing_free(struct handle *h)
{
    listing_drop(h->listing);
    h->listing = NULL;
}

void listing_forget(struct node *directory)
{
    if (directory->listing)
        kept -= directory->listing->count;
    listing_drop(directory->listing);
    directory->listing = NULL;
}

static void listing_keep(struct node *directory, struct listing *l)
{
    listing_forget(directory);
    if (l->error || kept + l->count > KEPT_MOST || !lease_covers(directory, l->first))
        return;
    kept += l->count;
    l->uses++;
    directory->listing = l;
}

static bool listing_known(struct handle *h)
{
    struct listing *l = h->node->listing;
    if (!l || !lease_covers(h->node, l->first))
        return false;
    l->uses++;
    h->listing = l;
    return true;
}

static void take_entries(struct listing *l, struct reader *answer)
{
    uint32_t count = (uint32_t)get_number(answer, 4);
    for (uint32_t i = 0; i < count && !answer->bad; i++) {
        uint32_t size;
        const uint8_t *name = get_string(answer, &size);
        struct attr a = get_attr(answer);
        if (answer->bad || !size || memchr(name, 0, size) || (size <= 2 && memcmp(name, "..", size) == 0))
            continue;
        if (l->count == l->room) {
            l->room = l->room ? l->room * 2 : 64;
            l->entries = realloc(l->entries, l->room * sizeof *l->entries);
            if (!l->entries)
                need(SIZE_MAX / 2); /* exits as without memory */
        }
        char *text = need(size + 1);
        memcpy(text, name, size);
        text[size] = 0;
        l->entries[l->count++] = (struct entry){a, text};
    }
}

static void list_send(struct handle *h, uint64_t cookie);

static void reply_opened(struct tree *tree, uint64_t unique, struct handle *h)
{
    struct fuse_open_out out = {.fh = (uint64_t)(uintptr_t)h};
    reply(tree, unique, 0, &out, sizeof out);
}

static void on_listed(struct request *r, int error, struct reader *answer)
{
    struct handle *h = r->handle;
    struct listing *l = h->listing;
    uint64_t cookie = get_number(answer, 8), asked = l->asked;
    h->error--; /* frames under way */
    if (h->state == LOST) { /* closed in the meantime */
        if (!h->error)
            handle_close(h);
        return;
    }
    l->asked = 0;
    if (!error)
        take_entries(l, answer);
    l->error = error ? error : answer->bad ? EIO : 0;
    l->whole = l->error || !cookie;
    l->unique = r->unique;
    l->arrived = monotonic_ns();
    if (asked && l->error) {
        reply(r->tree, asked, l->error, NULL, 0);
        handle_close(h);
        return;
    }
    if (l->whole)
        listing_keep(h->node, l);
    else
        list_send(h, cookie);
    if (asked)
        reply_opened(r->tree, asked, h);
    unpark(&h->parked);
}

static void list_send(struct handle *h, uint64_t cookie)
{
    struct request *r = request_new(R_LIST, h->node, on_listed);
    r->handle = h;
    put_path(r, h->node, NULL);
    put_number(r, cookie, 8);
    request_send(r);
    h->listing->first = cookie ? h->listing->first : r->unique;
    h->error++;
}

static void begin_listing(struct handle *h, uint64_t asked)
{
    h->listing = need(sizeof *h->listing);
    *h->listing = (struct listing){.asked = asked, .uses = 1};
    lease_wish(h->node);
    list_send(h, 0);
}

/* The root of a tree can be opened before the submit side is connected, for operations on the mount itself. */
void ask_opendir(struct ask *q)
{
    struct handle *h = handle_new(q->node, 0);
    if (q->node == q->tree->root || listing_known(h))
        reply_opened(q->tree, q->head->unique, h);
    else
        begin_listing(h, q->head->unique);
}

void ask_releasedir(struct ask *q)
{
    const struct fuse_release_in *in = q->body;
    struct handle *h = (struct handle *)(uintptr_t)in->fh;
    reply(q->tree, q->head->unique, 0, NULL, 0);
    if (h->error)
        h->state = LOST;
    else
        handle_close(h);
}

static size_t add_entry(uint8_t *to, size_t room, bool plus, const struct fuse_entry_out *e, const struct attr *a,
                        uint64_t next, const char *name)
{
    size_t head = plus ? sizeof(struct fuse_direntplus) : sizeof(struct fuse_dirent), length = strlen(name);
    size_t size = FUSE_DIRENT_ALIGN(head + length);
    if (size > room)
        return 0;
    memset(to, 0, size);
    struct fuse_dirent d = {.ino = e->attr.ino ? e->attr.ino : a->ino,
                            .off = next,
                            .namelen = (uint32_t)length,
                            .type = (a->mode & S_IFMT) >> 12};
    if (plus)
        memcpy(to, e, sizeof *e);
    memcpy(to + (plus ? sizeof *e : 0), &d, offsetof(struct fuse_dirent, name));
    memcpy(to + head, name, length);
    return size;
}

static size_t room_for(bool plus, const char *name)
{
    return FUSE_DIRENT_ALIGN((plus ? sizeof(struct fuse_direntplus) : sizeof(struct fuse_dirent)) + strlen(name));
}

static size_t fill_entries(struct ask *q, struct handle *h, uint64_t from, uint8_t *to, size_t room)
{
    static const struct fuse_entry_out nothing;
    bool plus = q->head->opcode == FUSE_READDIRPLUS;
    struct attr own = h->node->attr;
    struct listing *l = h->listing;
    size_t used = 0;
    own.ino = own.ino ? own.ino : 1;
    for (uint64_t i = from; i < l->count + 2; i++) {
        struct fuse_entry_out e = nothing;
        const char *name = i == 0 ? "." : i == 1 ? ".." : l->entries[i - 2].name;
        const struct attr *a = i < 2 ? &own : &l->entries[i - 2].attr;
        if (room_for(plus, name) > room - used)
            break;
        bool covered = lease_covers(h->node, l->first);
        if (i >= 2 && plus && (covered || monotonic_ns() < l->arrived + BELIEVED_NS)) {
            struct node *n = node_see(h->node, name, a, l->unique);
            n->believed = l->arrived + BELIEVED_NS;
            if (covered)
                lease_believe(n, l->first);
            fill_entry(&e, n);
        }
        used += add_entry(to + used, room - used, plus, &e, a, i + 1, name);
    }
    return used;
}

void ask_readdir(struct ask *q)
{
    const struct fuse_read_in *in = q->body;
    struct handle *h = (struct handle *)(uintptr_t)in->fh;
    if (h->listing && h->listing->whole && in->offset == 0 && h->listed) /* from the beginning again */
        listing_free(h);
    if (!h->listing && !listing_known(h))
        begin_listing(h, 0);
    struct listing *l = h->listing;
    if (l->asked || (!l->whole && in->offset >= l->count + 2) || (!l->whole && !l->count)) {
        park(&h->parked, q);
        return;
    }
    if (l->error) {
        reply(q->tree, q->head->unique, l->error, NULL, 0);
        return;
    }
    h->listed = true;
    size_t room = in->size < MOST ? in->size : MOST;
    uint8_t *out = need(room);
    reply(q->tree, q->head->unique, 0, out, fill_entries(q, h, in->offset, out, room));
    free(out);
}
