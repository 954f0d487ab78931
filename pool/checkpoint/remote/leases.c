/* Leases: directories whose changes the submit side reports, so that its answers about them are cached without asking
 * again. A lease is requested, with a number of our choice, when a directory is listed, or when its entries are asked
 * about repeatedly. An answer to a request sent after the lease holds until the submit side reports the name, or the
 * end of the lease; answers under way at the time of a report do not count. Without a lease answers are cached for one
 * second. A lease ends with its connection. The submit side reports a file under the name that it watches: a file with
 * several names is cached for one second. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "remote/parts.h"

#define TABLE 1024
#define PATIENCE 4 /* requests about a directory's entries before a lease is requested */
#define REFUSED_NS 60000000000u /* time until a refused lease is requested again */

struct lease {
    struct lease *next;
    struct node *node;
    uint64_t id, asked, told; /* asked: the request for it; told: the newest request at the last report of a change */
    bool granted;
};

static struct lease *leases[TABLE];
static uint64_t last_id;
static bool unknown; /* the submit side does not support leases */

static struct lease **place_of(uint64_t id)
{
    struct lease **at = &leases[id % TABLE];
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static void end_lease(struct lease **at)
{
    struct lease *l = *at;
    *at = l->next;
    l->node->lease = NULL;
    l->node->believed = 0;
    listing_forget(l->node);
    expire_entries(l->node);
    free(l);
}

static void on_answered(struct request *r, int error, struct reader *answer)
{
    (void)answer;
    struct lease **at = place_of(r->a);
    unknown |= error == ENOSYS;
    if (!*at)
        return;
    (*at)->granted = !error;
    if (!error)
        return;
    (*at)->node->refused = monotonic_ns() + REFUSED_NS;
    end_lease(at);
}

static uint64_t send_lease(uint64_t id, const struct node *directory)
{
    struct request *r = request_new(R_LEASE, NULL, on_answered);
    r->a = id;
    put_number(r, id, 8);
    if (directory)
        put_path(r, directory, NULL);
    else
        put_bytes(r, "", 0);
    request_send(r);
    return r->unique;
}

/* Also requests leases on its parents, which the submit side watches for it anyway. */
void lease_wish(struct node *directory)
{
    if (directory->lease || unknown || !link_ready() || monotonic_ns() < directory->refused)
        return;
    if (directory->names)
        lease_wish(directory->names->parent);
    struct lease *l = need(sizeof *l), **at = place_of(++last_id);
    *l = (struct lease){.next = *at, .node = directory, .id = last_id};
    *at = directory->lease = l;
    l->asked = send_lease(l->id, directory);
}

void lease_wish_again(struct node *directory)
{
    if (++directory->questions >= PATIENCE || directory->tree->without_open)
        lease_wish(directory);
}

void lease_drop(struct node *directory)
{
    if (!directory->lease)
        return;
    uint64_t id = directory->lease->id;
    end_lease(place_of(id));
    send_lease(id, NULL);
}

bool lease_covers(const struct node *directory, uint64_t unique)
{
    const struct lease *l = directory->lease;
    return l && l->granted && unique > l->asked && unique > l->told;
}

bool lease_reports(const struct node *directory, uint64_t unique)
{
    const struct lease *l = directory->lease;
    return l && l->granted && unique > l->asked;
}

/* A directory's own lease covers its times and size; its parent's lease covers its name and mode. */
void lease_believe(struct node *node, uint64_t unique)
{
    bool top = node == node->tree->root, directory = S_ISDIR(node->attr.mode);
    const struct node *in = top ? node : node->names && !node->names->other ? node->names->parent : NULL;
    if (unique < node->touched || !in || !lease_covers(in, unique) ||
        !(directory ? lease_covers(node, unique) : node->attr.nlink <= 1))
        return;
    node->leased = in->lease->id;
    node->believed = monotonic_ns() + LEASED_NS;
}

bool lease_stands(uint64_t id) { return *place_of(id); }

uint64_t lease_number(const struct node *directory)
{
    return directory->lease && directory->lease->granted ? directory->lease->id : 0;
}

/* Answers under way may not show the change. */
void lease_changed(struct node *directory, const char *name)
{
    directory->believed = 0;
    listing_changed(directory, name);
    if (directory->lease)
        directory->lease->told = link_last();
}

/* The kernel forgets a name by itself that it removes. */
static void told(struct lease *l, const uint8_t *name, uint32_t size)
{
    char text[256];
    if (size >= sizeof text)
        return;
    memcpy(text, name, size);
    text[size] = 0;
    lease_changed(l->node, text);
    struct node *child = name_find(l->node, text);
    expire_attributes(l->node);
    if (!child)
        return;
    child->believed = 0;
    if (child->removing)
        child->changed = true;
    else
        expire_name(l->node, text, child);
}

void leases_told(struct reader *a)
{
    uint32_t count = (uint32_t)get_number(a, 4), size;
    for (uint32_t i = 0; i < count && !a->bad; i++) {
        struct lease **at = place_of(get_number(a, 8));
        const uint8_t *name = get_string(a, &size);
        if (a->bad || !*at)
            continue;
        if (size)
            told(*at, name, size);
        else
            end_lease(at);
    }
}

void leases_lost(void)
{
    for (size_t i = 0; i < TABLE; i++)
        while (leases[i])
            end_lease(&leases[i]);
}
