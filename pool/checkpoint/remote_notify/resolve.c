/* Resolves a name as the kernel would, component by component: in this machine's tree by looking at it, in remote trees
 * by asking the file server. A name that leads only through the system's own directories is left to the kernel at
 * once. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote_notify/parts.h"

#define LINKS_MOST 40
#define DEEPEST 1024

struct walk {
    struct found *f;
    char rest[2 * NAME_MOST];
    const char *at;
    uint64_t above[DEEPEST]; /* the directories from the tree's root on */
    int depth; /* -1: not in a remote tree */
    int links;
    uint32_t how;
};

int tree_of(const char *path)
{
    for (uint32_t i = 0; i < notifier->trees; i++)
        if (path_is_under(path, notifier->job->remote[i]))
            return (int)i;
    return -1;
}

static bool leads_to_tree(const char *path)
{
    for (uint32_t i = 0; i < notifier->trees; i++)
        if (path_is_under(notifier->job->remote[i], path))
            return true;
    return false;
}

/* Directories in which no symbolic link leads into a remote tree, except those of a process in /proc. */
static bool of_system(const char *path)
{
    static const char *const system[] = {"/usr",  "/lib", "/lib32", "/lib64", "/libx32", "/bin",
                                         "/sbin", "/etc", "/opt",   "/dev",   "/sys",    "/proc"};
    for (size_t i = 0; i < sizeof system / sizeof *system; i++)
        if (path_is_under(path, system[i]))
            return true;
    return false;
}

/* Reopening a descriptor by its name in /proc or /dev gives it a low number, which is not trapped. */
static bool by_descriptor(const char *path)
{
    return (path_is_under(path, "/proc") && strstr(path, "/fd/")) || strncmp(path, "/dev/fd/", 8) == 0 ||
           strncmp(path, "/dev/std", 8) == 0;
}

/* Makes the name absolute, as given. False: the kernel reports its error. */
static bool make_absolute(struct walk *w, const struct notification *q, int directory, const char *path)
{
    char place[64], base[NAME_MOST] = "";
    static const char gone[] = " (deleted)";
    if (*path != '/') {
        if (directory == AT_FDCWD)
            snprintf(place, sizeof place, "/proc/%d/cwd", q->tid);
        else
            snprintf(place, sizeof place, "/proc/%d/fd/%d", q->tid, directory);
        ssize_t n = readlink(place, base, sizeof base - 1);
        if (n <= 0 || *base != '/')
            return false;
        base[n] = 0;
        if ((size_t)n > sizeof gone && strcmp(base + n - (sizeof gone - 1), gone) == 0) {
            base[n - (ssize_t)(sizeof gone - 1)] = 0;
            w->f->remote = tree_of(base) >= 0;
            w->f->error = ENOENT;
            return w->f->remote;
        }
    }
    return snprintf(w->rest, sizeof w->rest, "%s/%s", base, path) < (int)sizeof w->rest;
}

/* Replaces a name by the target of its symbolic link. */
static int splice_in(struct walk *w, const char *target)
{
    char rest[2 * NAME_MOST];
    struct found *f = w->f;
    if (++w->links > LINKS_MOST)
        return ELOOP;
    if (snprintf(rest, sizeof rest, "%s/%s", target, w->at) >= (int)sizeof rest)
        return ENAMETOOLONG;
    if (!*w->at && strlen(target) && target[strlen(target) - 1] != '/')
        rest[strlen(rest) - 1] = 0;
    strcpy(w->rest, rest);
    w->at = w->rest;
    if (*target == '/') {
        *f->path = 0;
        w->depth = -1;
    }
    return 0;
}

static void up(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = 0;
}

static const char *top_of(const struct walk *w) { return notifier->job->remote[w->f->tree]; }

static void enter_tree(struct walk *w, uint32_t tree)
{
    w->f->tree = tree;
    w->f->remote = true;
    w->f->there = true;
    w->depth = 0;
    w->above[0] = w->f->node = FUSE_ROOT_ID;
    w->f->attr = (struct fuse_attr){.mode = S_IFDIR | 0755};
    *w->f->last = 0;
}

/* Resolves one component in this machine's own tree. False: the kernel resolves the rest. */
static bool step_here(struct walk *w, const char *name)
{
    char target[NAME_MOST];
    struct found *f = w->f;
    size_t used = strlen(f->path);
    if (strcmp(name, "..") == 0) {
        up(f->path);
        return true;
    }
    if (used + strlen(name) + 2 > sizeof f->path)
        return false;
    f->path[used] = '/';
    strcpy(f->path + used + 1, name);
    int tree = tree_of(f->path);
    if (tree >= 0) {
        enter_tree(w, (uint32_t)tree);
        return true;
    }
    if (leads_to_tree(f->path))
        return true;
    if (path_is_under(f->path, "/proc"))
        return false;
    ssize_t n = readlink(f->path, target, sizeof target - 1);
    if (n < 0)
        return errno == EINVAL;
    if (!*w->at && !(w->how & FOLLOW))
        return false;
    target[n] = 0;
    up(f->path);
    return splice_in(w, target) == 0;
}

static int follow_link(struct walk *w, uint64_t node, const char *name)
{
    char target[NAME_MOST], path[NAME_MOST];
    struct found *f = w->f;
    ssize_t n = ask(f->tree, FUSE_READLINK, node, NULL, 0, target, sizeof target - 1);
    if (n < 0)
        return (int)-n;
    target[n] = 0;
    if (w->how & MAKE && snprintf(path, sizeof path, "%s/%s", f->path, name) < (int)sizeof path &&
        shadow_link(f->tree, path, target))
        return errno;
    return n ? splice_in(w, target) : ENOENT;
}

/* Resolves one component in a remote tree. */
static int step_there(struct walk *w, const char *name, bool last)
{
    struct found *f = w->f;
    uint64_t node;
    struct fuse_attr a;
    size_t used = strlen(f->path), length = strlen(name);
    if (!S_ISDIR(f->attr.mode))
        return ENOTDIR;
    if (strcmp(name, "..") == 0) {
        up(f->path);
        if (!w->depth--)
            f->remote = false;
        else
            f->node = w->above[w->depth];
        f->attr.mode = S_IFDIR;
        *f->last = 0;
        return 0;
    }
    if (length >= sizeof f->last || used + length + 2 > sizeof f->path || w->depth + 1 == DEEPEST)
        return ENAMETOOLONG;
    int error = look_up(f->tree, f->node, name, &node, &a);
    if (error && (error != ENOENT || !last))
        return error;
    if (!error && S_ISLNK(a.mode) && (!last || f->slash || w->how & FOLLOW))
        return follow_link(w, node, name);
    f->parent = f->node;
    strcpy(f->last, name);
    f->path[used] = '/';
    strcpy(f->path + used + 1, name);
    f->there = !error;
    if (error)
        return 0;
    f->node = w->above[++w->depth] = node;
    f->attr = a;
    if (!S_ISDIR(a.mode) && (!last || f->slash))
        return ENOTDIR;
    if (w->how & MAKE && S_ISDIR(a.mode) && shadow_directory(f->tree, f->path))
        return errno;
    return 0;
}

static int next_name(struct walk *w, char *name, size_t size, bool *last)
{
    w->at += strspn(w->at, "/");
    size_t n = strcspn(w->at, "/");
    if (n >= size)
        return ENAMETOOLONG;
    memcpy(name, w->at, n);
    name[n] = 0;
    w->at += n;
    w->f->slash = *w->at == '/';
    *last = !w->at[strspn(w->at, "/")];
    if (*last)
        w->at += strlen(w->at);
    return 0;
}

static bool walk_once(const struct notification *q, int directory, const char *path, uint32_t how, struct found *f)
{
    static struct walk w;
    char name[NAME_MOST];
    bool last = false, up_again = strstr(path, "..") != NULL;
    memset(f, 0, offsetof(struct found, path));
    *f->path = 0;
    w.f = f;
    w.how = how;
    w.links = 0;
    w.depth = -1;
    if (!*path || !make_absolute(&w, q, directory, path) || f->error)
        return f->remote;
    w.at = w.rest;
    const char *absolute = w.rest + (w.rest[1] == '/');
    if (tree_of(absolute) < 0 && of_system(absolute) && !up_again) {
        if (by_descriptor(absolute))
            stands_whole();
        return false;
    }
    while (*w.at) {
        if ((f->error = next_name(&w, name, sizeof name, &last)))
            return f->remote;
        if (!*name || strcmp(name, ".") == 0) {
            if (*name)
                *f->last = 0;
            continue;
        }
        if (!f->remote) {
            if (!step_here(&w, name))
                return f->remote = false;
        } else if ((f->error = step_there(&w, name, last))) {
            return true;
        }
    }
    if (f->remote && f->there && !*f->last) {
        f->error = get_attr_of(f->tree, f->node, &f->attr);
        if (!f->error && how & MAKE && strcmp(f->path, top_of(&w)) != 0 && shadow_directory(f->tree, f->path))
            f->error = errno;
    }
    return f->remote;
}

/* A symbolic link may have been replaced by a file between its lookup and its reading, so ESTALE is tried again. */
bool walk(const struct notification *q, int directory, const char *path, uint32_t how, struct found *f)
{
    bool remote = walk_once(q, directory, path, how, f);
    for (int i = 1; i < TRIES && remote && f->error == ESTALE; i++) {
        names_changed();
        remote = walk_once(q, directory, path, how, f);
    }
    return remote;
}
