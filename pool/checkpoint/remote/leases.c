/* Leases: directories in which home tells of every change, so that what it said of them is believed without asking
 * again.
 *
 * A lease is asked for by a number of our choice when a directory is listed, or what is in it is asked again and again.
 * What home says in answer to a question that went out behind the lease holds until home tells of the name, or that the
 * lease is over; what was on its way when it told does not count. Without a lease all is believed for a second. A lease
 * is over with its connection. Home tells of files under the name that it watches: one with several names is believed
 * for a second. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "remote/parts.h"

#define TABLE 1024
#define PATIENCE 4 /* questions about what is in a directory before a lease on it is asked for */
#define REFUSED_NS 60000000000u /* one that was refused is asked for again after that */

struct lease {
    struct lease *next;
    struct node *node;
    uint64_t id, asked, told; /* asked: the request for it; told: the newest request when home told of a change */
    bool granted;
};

static struct lease *leases[TABLE];
static uint64_t last_id;
static bool unknown; /* home does not know what it is */

static struct lease **place_of(uint64_t id)
{
    struct lease **at = &leases[id % TABLE];
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static void end(struct lease **at)
{
    struct lease *l = *at;
    *at = l->next;
    l->node->lease = NULL;
    l->node->believed = 0;
    listing_forget(l->node);
    free(l);
}

static void answered(struct request *r, int error, struct reader *answer)
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
    end(at);
}

static uint64_t send(uint64_t id, const struct node *directory)
{
    struct request *r = request_new(R_LEASE, NULL, answered);
    r->a = id;
    put_number(r, id, 8);
    if (directory)
        put_path(r, directory, NULL);
    else
        put_bytes(r, "", 0);
    request_send(r);
    return r->unique;
}

/* And on all that it lies in: home watches them for it anyhow. */
void lease_wish(struct node *directory)
{
    if (directory->lease || unknown || !link_ready() || monotonic_ns() < directory->refused)
        return;
    if (directory->names)
        lease_wish(directory->names->parent);
    struct lease *l = need(sizeof *l), **at = place_of(++last_id);
    *l = (struct lease){.next = *at, .node = directory, .id = last_id};
    *at = directory->lease = l;
    l->asked = send(l->id, directory);
}

void lease_wish_again(struct node *directory)
{
    if (++directory->questions >= PATIENCE)
        lease_wish(directory);
}

void lease_drop(struct node *directory)
{
    if (!directory->lease)
        return;
    uint64_t id = directory->lease->id;
    end(place_of(id));
    send(id, NULL);
}

bool lease_covers(const struct node *directory, uint64_t unique)
{
    const struct lease *l = directory->lease;
    return l && l->granted && unique > l->asked && unique > l->told;
}

/* A directory's own times and size are told of by its own lease, its name and rights by that of the one it lies in. */
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

/* What is on its way from home now may not show it. */
void lease_changed(struct node *directory)
{
    directory->believed = 0;
    listing_forget(directory);
    if (directory->lease)
        directory->lease->told = link_last();
}

static void told(struct lease *l, const uint8_t *name, uint32_t size)
{
    char text[256];
    if (size >= sizeof text)
        return;
    memcpy(text, name, size);
    text[size] = 0;
    lease_changed(l->node);
    struct node *child = name_find(l->node, text);
    if (child)
        child->believed = 0;
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
            end(at);
    }
}

void leases_lost(void)
{
    for (size_t i = 0; i < TABLE; i++)
        while (leases[i])
            end(&leases[i]);
}
