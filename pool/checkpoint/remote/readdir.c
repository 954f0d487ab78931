/* Directories: a listing includes the attributes of all entries, and is fetched whole, ahead of the reader, so that a
 * stat of each entry needs no request. With a lease a listing is kept for the next reader, and for lookups: it also
 * tells which names there are not. Of a name that has changed since it tells nothing any more, and is no listing for
 * readers until it is fetched again. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "remote/parts.h"

#define KEPT_MOST 500000 /* entries of all directories, about 100 bytes each */
#define NAME_MOST 255 /* longer ones are refused, not absent */
#define MISSES 64 /* lookups in a directory for which a part of its listing is fetched: it costs as much */
#define MADE_MISSES 4 /* the same in a directory that the job has made, which is listed soon */

struct entry {
    struct attr attr;
    char *name;
    bool unknown; /* changed since, made or removed */
};

struct listing {
    struct entry *entries;
    size_t count, room, unknown;
    uint64_t first, unique; /* of the frames that brought the first and the last entries */
    uint64_t begun, arrived; /* begun: when it was asked for */
    uint64_t cookie; /* of its next part, for one that is fetched ahead */
    uint32_t *places; /* by name: numbers of entries from 1 on, 0 for none */
    size_t slots, placed; /* of `places`, and entries that are in it */
    bool coming; /* a part of it is under way */
    uint32_t rounds, parts; /* of one that is fetched ahead: how often it was worth it, and the parts to fetch yet */
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
    free(l->places);
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
    listing_drop(directory->ahead);
    directory->listing = directory->ahead = NULL;
}

static void listing_keep(struct node *directory, struct listing *l)
{
    listing_forget(directory);
    if (l->error || kept + l->count > KEPT_MOST)
        return;
    kept += l->count;
    l->uses++;
    directory->listing = l;
}

/* Not for longer than names are cached: the submit side does not see every change (leases.c). */
static bool is_valid(const struct node *directory, const struct listing *l)
{
    return lease_reports(directory, l->first) && monotonic_ns() < l->begun + LEASED_NS;
}

static bool listing_known(struct handle *h)
{
    struct listing *l = h->node->listing;
    if (!l || l->unknown || !is_valid(h->node, l))
        return false;
    l->uses++;
    h->listing = l;
    return true;
}

static struct entry *entry_find(struct listing *l, const char *name);

static void add_to_listing(struct listing *l, struct entry e)
{
    if (l->count == l->room) {
        l->room = l->room ? l->room * 2 : 64;
        l->entries = realloc(l->entries, l->room * sizeof *l->entries);
        if (!l->entries)
            need(SIZE_MAX / 2); /* exits as without memory */
    }
    l->entries[l->count++] = e;
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
        char *text = need(size + 1);
        memcpy(text, name, size);
        text[size] = 0;
        if (l->unknown && entry_find(l, text)) /* it has changed, before or after this part was made */
            free(text);
        else
            add_to_listing(l, (struct entry){a, text, false});
    }
}

static size_t slot_of(const struct listing *l, const char *name)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (const char *at = name; *at; at++)
        h = (h ^ (uint8_t)*at) * 0x100000001B3u;
    size_t slot = (size_t)(h >> 16) % l->slots;
    while (l->places[slot] && strcmp(l->entries[l->places[slot] - 1].name, name) != 0)
        slot = (slot + 1) % l->slots;
    return slot;
}

static struct entry *entry_find(struct listing *l, const char *name)
{
    if (l->placed < l->count && l->slots < l->count * 2) {
        free(l->places);
        l->slots = l->count * 4;
        l->placed = 0;
        l->places = need(l->slots * sizeof *l->places);
        memset(l->places, 0, l->slots * sizeof *l->places);
    }
    for (; l->placed < l->count; l->placed++)
        l->places[slot_of(l, l->entries[l->placed].name)] = (uint32_t)l->placed + 1;
    uint32_t number = l->slots ? l->places[slot_of(l, name)] : 0;
    return number ? &l->entries[number - 1] : NULL;
}

/* False: it cannot be noted. A reader goes through a listing by the numbers of its entries. */
static bool forget_name(struct listing *l, const char *name, bool is_kept)
{
    struct entry *e = entry_find(l, name);
    if (e && e->unknown)
        return true;
    if (l->uses > 1 || kept + l->count >= KEPT_MOST)
        return false;
    if (!e) {
        add_to_listing(l, (struct entry){.name = strdup(name)});
        kept += is_kept;
        e = &l->entries[l->count - 1];
    }
    e->unknown = true;
    l->unknown++;
    return true;
}

void listing_changed(struct node *directory, const char *name)
{
    struct listing *l = directory->listing, *ahead = directory->ahead;
    if ((l && !forget_name(l, name, true)) || (ahead && !forget_name(ahead, name, false)))
        listing_forget(directory);
}

/* For a name that leads to no file that is known here: what is known of one may be newer than the listing. */
bool listing_answers(struct ask *q, const char *name)
{
    struct node *directory = q->node;
    struct listing *l = directory->listing ? directory->listing : directory->ahead;
    if (!l || !is_valid(directory, l) || strlen(name) > NAME_MOST)
        return false;
    const struct entry *e = entry_find(l, name);
    if (e && (e->unknown || (!S_ISDIR(e->attr.mode) && e->attr.nlink > 1)))
        return false;
    if (e) {
        struct node *n = node_see(directory, name, &e->attr, l->first);
        lease_believe(n, link_last() + 1); /* as if it had just been asked for: no change was reported since */
        reply_entry(q->tree, q->head->unique, n);
    } else if (l == directory->listing) {
        struct fuse_entry_out none = {.entry_valid = BELIEVED_NS / 1000000000};
        reply(q->tree, q->head->unique, 0, &none, sizeof none);
    }
    return e || l == directory->listing;
}

static void fetch_part(struct node *directory, struct listing *l);

static void on_listed_ahead(struct request *r, int error, struct reader *answer)
{
    struct node *directory = r->node;
    struct listing *l = directory->ahead;
    uint64_t cookie = get_number(answer, 8);
    if (!l || l->unique != r->unique) /* forgotten in the meantime */
        return;
    l->coming = false;
    if (!error)
        take_entries(l, answer);
    if (error || answer->bad || !lease_reports(directory, l->first)) {
        listing_forget(directory);
        return;
    }
    l->cookie = cookie;
    if (!cookie) {
        l->whole = true;
        l->uses++;
        listing_keep(directory, l);
        listing_drop(l);
    } else {
        fetch_part(directory, l);
    }
}

static void fetch_part(struct node *directory, struct listing *l)
{
    if (l->coming || !l->parts || kept + l->count > KEPT_MOST)
        return;
    struct request *r = request_new(R_LIST, directory, on_listed_ahead);
    put_path(r, directory, NULL);
    put_number(r, l->cookie, 8);
    request_send(r);
    if (!l->first) {
        l->first = r->unique;
        l->begun = monotonic_ns();
    }
    l->unique = r->unique;
    l->coming = true;
    l->parts--;
}

/* One part of the listing costs the submit side as much as some thirty of its names, one by one. The first is fetched
 * once twice as many were asked for, then each time one part more than the last time: a job that wants no more of them
 * pays for few. A directory that the job has made has few entries: its listing costs as much as some four names. */
static bool is_worth_listing(struct node *directory)
{
    uint32_t misses = ++directory->misses;
    return misses % MISSES == 0 || (directory->made && misses == MADE_MISSES);
}

void listing_ahead(struct node *directory)
{
    if (!is_worth_listing(directory) || !directory->lease || serving.notified)
        return;
    if (directory->listing && (directory->listing->unknown >= MISSES || !is_valid(directory, directory->listing)))
        listing_forget(directory);
    if (directory->listing)
        return;
    if (!directory->ahead) {
        directory->ahead = need(sizeof *directory->ahead);
        *directory->ahead = (struct listing){.uses = 1};
    }
    struct listing *l = directory->ahead;
    l->parts += ++l->rounds;
    fetch_part(directory, l);
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
    if (l->whole && lease_covers(h->node, l->first))
        listing_keep(h->node, l);
    else if (l->whole)
        listing_forget(h->node);
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
    *h->listing = (struct listing){.asked = asked, .uses = 1, .begun = monotonic_ns()};
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
