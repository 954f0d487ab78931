/* Files of the submit side as the kernel knows them, and their names. With a writeback cache the kernel trusts its own
 * size and times of a file, not the submit side's. So a file that another process has changed on the submit side
 * appears as a new file: the name leads to a new inode from the next lookup on, and processes that have the old one
 * open keep it, as with a file that was replaced by a rename. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "remote/parts.h"

#define NAMES 32768
#define INODES 16384

static struct name *names[NAMES];
static struct node *inodes[INODES];

static uint32_t hash_name(const struct node *parent, const char *name)
{
    uint64_t h = (uint64_t)(uintptr_t)parent * 0x9E3779B97F4A7C15u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001B3u;
    return (uint32_t)(h >> 20) ^ (uint32_t)h;
}

static struct node **inode_place(const struct node *n) { return &inodes[(n->attr.ino * 31 + n->attr.dev) % INODES]; }

uint64_t node_id(const struct node *node)
{
    return node == node->tree->root ? FUSE_ROOT_ID : (uint64_t)(uintptr_t)node;
}

struct node *node_of(struct tree *tree, uint64_t id)
{
    return id == FUSE_ROOT_ID ? node_root(tree) : (struct node *)(uintptr_t)id;
}

struct node *node_hold(struct node *node)
{
    node->held++;
    return node;
}

static struct node *node_new(struct tree *tree, const struct attr *a)
{
    struct node *node = need(sizeof *node);
    memset(node, 0, sizeof *node);
    node->tree = tree;
    node->attr = *a;
    node->size = a->size;
    node->seen_changes = a->changes;
    node->seen_mtime = a->mtime;
    if (!S_ISDIR(a->mode)) {
        node->next = *inode_place(node);
        *inode_place(node) = node;
    }
    return node;
}

struct node *node_root(struct tree *tree)
{
    static const struct attr unknown = {.mode = S_IFDIR | 0755, .nlink = 2};
    if (!tree->root)
        tree->root = node_hold(node_new(tree, &unknown));
    return tree->root;
}

static struct name **name_place(const struct node *parent, const char *name)
{
    uint32_t hash = hash_name(parent, name);
    struct name **at = &names[hash % NAMES];
    while (*at && ((*at)->hash != hash || (*at)->parent != parent || strcmp((*at)->text, name) != 0))
        at = &(*at)->next;
    return at;
}

struct node *name_find(const struct node *parent, const char *name)
{
    struct name *n = *name_place(parent, name);
    return n ? n->node : NULL;
}

static void name_unlink(struct name **at)
{
    struct name *n = *at, **other = &n->node->names;
    *at = n->next;
    *(n->before ? &n->before->after : &n->parent->entries) = n->after;
    if (n->after)
        n->after->before = n->before;
    while (*other != n)
        other = &(*other)->other;
    *other = n->other;
    node_drop(n->parent);
    free(n);
}

void name_drop(struct node *parent, const char *name)
{
    struct name **at = name_place(parent, name);
    if (*at)
        name_unlink(at);
}

void name_put(struct node *parent, const char *name, struct node *node)
{
    size_t size = strlen(name) + 1;
    node_hold(parent);
    name_drop(parent, name);
    struct name *n = need(sizeof *n + size);
    uint32_t hash = hash_name(parent, name);
    *n = (struct name){.parent = parent,
                       .node = node,
                       .next = names[hash % NAMES],
                       .other = node->names,
                       .after = parent->entries,
                       .hash = hash};
    memcpy(n->text, name, size);
    if (n->after)
        n->after->before = n;
    names[hash % NAMES] = node->names = parent->entries = n;
}

static void table_drop(struct node *node)
{
    struct node **at = inode_place(node);
    while (*at && *at != node)
        at = &(*at)->next;
    if (*at)
        *at = node->next;
}

static void free_when_unused(struct node *node)
{
    if (node->lookups || node->held)
        return;
    while (node->names)
        name_unlink(name_place(node->names->parent, node->names->text));
    if (!S_ISDIR(node->attr.mode))
        table_drop(node);
    lease_drop(node);
    free(node);
}

void node_drop(struct node *node)
{
    node->held--;
    free_when_unused(node);
}

void node_forget(struct node *node, uint64_t count)
{
    node_hold(node);
    node->lookups -= count < node->lookups ? count : node->lookups;
    if (!node->lookups)
        reader_close(node);
    node_drop(node);
}

static bool prepend(char *to, size_t *at, const char *text)
{
    size_t n = strlen(text);
    if (*at < n + 1)
        return false;
    *at -= n;
    memcpy(to + *at, text, n);
    to[--*at] = '/';
    return true;
}

/* The path by its latest name. False: it has none, or it is too long. */
bool node_path(const struct node *node, const char *name, char *to, size_t size)
{
    size_t at = size - 1;
    to[at] = 0;
    if (name && !prepend(to, &at, name))
        return false;
    for (; node != node->tree->root; node = node->names->parent)
        if (!node->names || !prepend(to, &at, node->names->text))
            return false;
    const char *top = node->tree->path[1] ? node->tree->path : "";
    size_t n = strlen(top);
    if (at < n)
        return false;
    memmove(to + n, to + at, size - at);
    memcpy(to, top, n);
    if (!*to)
        copy_text(to, size, "/");
    return true;
}

bool is_same_file(const struct node *node, const struct attr *a)
{
    return node->attr.ino == a->ino && node->attr.dev == a->dev && (node->attr.mode & S_IFMT) == (a->mode & S_IFMT);
}

/* By another process: false while we change it ourselves. In a tree without OPEN we change nothing, and the kernel
 * keeps the text of a link as long as its inode. */
bool node_changed(const struct node *node, const struct attr *a, uint64_t unique)
{
    if (node->stale)
        return true;
    if (node->tree->without_open)
        return (S_ISREG(a->mode) || S_ISLNK(a->mode)) && node_differs(node, a);
    if (!S_ISREG(a->mode) || node->writers || node->writing || node->times_wait || unique <= node->touched)
        return false;
    return node_differs(node, a);
}

bool node_differs(const struct node *node, const struct attr *a)
{
    return a->size != node->size || a->mtime != node->seen_mtime || a->changes != node->seen_changes;
}

/* Others may have written beside us, with locks on other parts: then the change counter has grown by more than one
 * between two of our writes. */
void node_wrote(struct node *node, const struct attr *a, uint64_t unique)
{
    if (a->changes == node->seen_changes + 1)
        node->seen_changes = a->changes;
    if (unique >= node->touched)
        node->seen_mtime = a->mtime;
    node_learn(node, a, unique);
    if (node->names)
        listing_changed(node->names->parent, node->names->text);
}

void node_adopt(struct node *node, const struct attr *a)
{
    table_drop(node);
    node->attr = *a;
    node->size = a->size;
    node->seen_changes = a->changes;
    node->seen_mtime = a->mtime;
    node->next = *inode_place(node);
    *inode_place(node) = node;
    node->stale = false;
    node->believed = monotonic_ns() + BELIEVED_NS;
    node->leased = 0;
}

void node_learn(struct node *node, const struct attr *a, uint64_t unique)
{
    if (unique < node->touched)
        return;
    if (!is_same_file(node, a) && !S_ISDIR(a->mode))
        return;
    node->attr = *a;
    node->believed = monotonic_ns() + BELIEVED_NS;
    node->leased = 0;
}

bool node_believed(const struct node *node)
{
    return node->believed > monotonic_ns() && (!node->leased || lease_stands(node->leased));
}

static struct node *inode_find(struct tree *tree, const struct attr *a, uint64_t unique)
{
    struct node wanted = {.attr = *a};
    for (struct node *n = *inode_place(&wanted); n; n = n->next)
        if (n->tree == tree && is_same_file(n, a) && !node_changed(n, a, unique))
            return n;
    return NULL;
}

/* The inode to which a name leads; counts as a lookup of the kernel. */
struct node *node_see(struct node *parent, const char *name, const struct attr *a, uint64_t unique)
{
    struct node *before = name_find(parent, name), *node = before;
    if (node && (!is_same_file(node, a) || node_changed(node, a, unique)))
        node = NULL;
    if (!node && a->nlink > 1 && !S_ISDIR(a->mode))
        node = inode_find(parent->tree, a, unique);
    if (!node)
        node = node_new(parent->tree, a);
    node->lookups++;
    node_learn(node, a, unique);
    if (node != before)
        name_put(parent, name, node);
    return node;
}

void node_park(struct node *node, struct ask *q) { park(&node->parked, q); }

void node_settled(struct node *node)
{
    node->writing--;
    if (node->writing)
        return;
    if (node->times_wait)
        times_send(node);
    node_hold(node);
    unpark(&node->parked);
    node_drop(node);
}

/* Whether the file's owner certainly has this access. `mask` as in access(2). */
bool owner_may(const struct node *node, uint32_t mask)
{
    if (!serving.submit_uid)
        return !(mask & 1);
    return node->attr.uid == serving.submit_uid && ((node->attr.mode >> 6) & mask) == mask;
}
