/* Two stores of keys and values: the job's, and that of this node (PMI-2's node attributes).
 *
 * A table with open addressing that doubles. Pairs that this part's ranks put, and those that came from parts below,
 * are `own` until the next barrier sends them on.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "ranker.h"

struct entry {
    char *key, *value;
    bool own;
};

struct store {
    struct entry *rows;
    size_t count, room, bytes;
};

static struct store job, node;

static size_t hash(const char *key)
{
    uint64_t h = 14695981039346656037u;
    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 1099511628211u;
    return (size_t)h;
}

static struct entry *find(const struct store *s, const char *key)
{
    if (!s->room)
        return NULL;
    size_t at = hash(key) & (s->room - 1);
    while (s->rows[at].key && strcmp(s->rows[at].key, key) != 0)
        at = (at + 1) & (s->room - 1);
    return &s->rows[at];
}

static bool grow(struct store *s)
{
    if (s->count * 2 < s->room)
        return true;
    struct store bigger = {.room = s->room ? s->room * 2 : 256, .count = s->count, .bytes = s->bytes};
    bigger.rows = calloc(bigger.room, sizeof *bigger.rows);
    if (!bigger.rows)
        return false;
    for (size_t i = 0; i < s->room; i++)
        if (s->rows[i].key)
            *find(&bigger, s->rows[i].key) = s->rows[i];
    free(s->rows);
    *s = bigger;
    return true;
}

static int put(struct store *s, const char *key, const char *value, bool own)
{
    size_t bytes = strlen(key) + strlen(value) + sizeof(struct entry);
    if (s->bytes + bytes > STORE_MOST || !grow(s))
        return -2;
    struct entry *e = find(s, key);
    if (e->key)
        return -1;
    char *k = strdup(key), *v = strdup(value);
    if (!k || !v) {
        free(k);
        free(v);
        return -2;
    }
    *e = (struct entry){k, v, own};
    s->count++;
    s->bytes += bytes;
    return 0;
}

static const char *get(const struct store *s, const char *key)
{
    const struct entry *e = find(s, key);
    return e && e->key ? e->value : NULL;
}

const char *store_get(const char *key) { return get(&job, key); }

int store_put(const char *key, const char *value, bool own) { return put(&job, key, value, own); }

const char *node_get(const char *key) { return get(&node, key); }

int node_put(const char *key, const char *value) { return put(&node, key, value, false); }

void each_own(void (*f)(const char *key, const char *value))
{
    for (size_t i = 0; i < job.room; i++)
        if (job.rows[i].key && job.rows[i].own) {
            f(job.rows[i].key, job.rows[i].value);
            job.rows[i].own = false;
        }
}
