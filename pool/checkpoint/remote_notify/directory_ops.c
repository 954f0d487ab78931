/* Calls that create, remove, rename and link names. The shadow of a removed name is removed too. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "unotify/path_syscalls.h"
#include "remote_notify/parts.h"

static uint64_t argument(const struct notification *q, int which) { return q->notif->data.args[which]; }

static uint32_t umask_of(const struct notification *q) { return (uint32_t)proc_field(q->tid, "status", "Umask", 8); }

int remove_name(const struct found *f, bool directory)
{
    if (!*f->last)
        return directory ? EBUSY : EISDIR;
    if (f->slash && !directory && S_ISREG(f->attr.mode))
        return ENOTDIR;
    ssize_t n = ask_name(f->tree, directory ? FUSE_RMDIR : FUSE_UNLINK, f->parent, NULL, 0, f->last, NULL, 0);
    names_changed();
    if (!n)
        shadow_remove(f->tree, f->path);
    return (int)-n;
}

int make_name(const struct notification *q, const struct found *f, bool directory, int at)
{
    struct fuse_entry_out e;
    struct fuse_mkdir_in m = {.mode = (uint32_t)argument(q, at) & 07777 & ~umask_of(q)};
    struct fuse_mknod_in k = {.mode = (uint32_t)argument(q, at) & ~umask_of(q), .rdev = (uint32_t)argument(q, at + 1)};
    if (f->there)
        return EEXIST;
    if (f->slash && !directory)
        return ENOENT;
    if (!(k.mode & S_IFMT))
        k.mode |= S_IFREG;
    int error = directory ? ask_entry(f->tree, FUSE_MKDIR, f->parent, &m, sizeof m, f->last, &e)
                          : ask_entry(f->tree, FUSE_MKNOD, f->parent, &k, sizeof k, f->last, &e);
    names_changed();
    if (!error)
        shadow_remove(f->tree, f->path); /* the shadow of an earlier file that was removed on the submit side */
    return error;
}

/* The error of a call with two names, in the order in which the kernel checks. Both have to lie in one tree. `first`,
 * `second`: the name lies in one of our trees. */
static int check_two(bool links, bool first, const struct found *from, bool second, const struct found *to)
{
    int missing = first && !from->there ? ENOENT : 0;
    if (first && from->error)
        return from->error;
    if (links && missing)
        return missing;
    if (second && to->error)
        return to->error;
    if (missing)
        return missing;
    if (!first || !second || from->tree != to->tree)
        return EXDEV;
    if (*from->last && *to->last)
        return 0;
    return !links ? EBUSY : *to->last ? EPERM : EEXIST;
}

static int link_name(const struct found *from, const struct found *to)
{
    struct fuse_link_in in = {.oldnodeid = from->node};
    struct fuse_entry_out e;
    if (to->there)
        return EEXIST;
    return S_ISDIR(from->attr.mode) ? EPERM : ask_entry(to->tree, FUSE_LINK, to->parent, &in, sizeof in, to->last, &e);
}

static int rename_name(struct found *from, struct found *to, uint32_t flags)
{
    struct fuse_rename2_in in = {.newdir = to->parent, .flags = flags};
    struct iovec parts[4] = {
        {0}, {&in, sizeof in}, {from->last, strlen(from->last) + 1}, {to->last, strlen(to->last) + 1}};
    if ((from->slash || to->slash) && !S_ISDIR(from->attr.mode))
        return ENOTDIR;
    int error = (int)-ask_parts(from->tree, FUSE_RENAME2, from->parent, parts, 4, NULL, 0);
    if (!error && strcmp(from->path, to->path) != 0)
        shadow_rename(from->tree, from->path, to->path, flags);
    return error;
}

/* Calls with two names: rename and link. */
bool handle_two(struct notification *q)
{
    static struct found from, to;
    char one[NAME_MOST], two[NAME_MOST];
    const struct path_syscall *name = path_syscall_of(q->notif->data.nr);
    if (!name || (name->what != RENAMES && name->what != LINKS))
        return false;
    bool links = name->what == LINKS, plain = name->directory < 0;
    uint32_t flags = name->flags < 0 ? 0 : (uint32_t)argument(q, name->flags);
    if (links && flags & AT_EMPTY_PATH)
        return false;
    int at[2] = {plain ? AT_FDCWD : (int)argument(q, 0), plain ? AT_FDCWD : (int)argument(q, 2)};
    int path[2] = {name->path, name->path + (plain ? 1 : 2)};
    answer_pass(q);
    if (!text_of(q, argument(q, path[0]), one, sizeof one) || !text_of(q, argument(q, path[1]), two, sizeof two))
        return true;
    bool first = walk(q, at[0], one, path_syscall_follows(name, flags) ? FOLLOW : 0, &from),
         second = walk(q, at[1], two, 0, &to);
    if (!first && !second)
        return true;
    q->answer->flags = 0;
    int error = check_two(links, first, &from, second, &to);
    if (!error) {
        error = links ? link_name(&from, &to) : rename_name(&from, &to, flags);
        names_changed();
    }
    answer_error(q, error);
    return true;
}

bool handle_symlink(struct notification *q)
{
    static struct found f;
    char target[NAME_MOST], path[NAME_MOST];
    struct fuse_entry_out e;
    const struct path_syscall *name = path_syscall_of(q->notif->data.nr);
    if (!name || name->what != MAKES_LINK)
        return false;
    int directory = name->directory < 0 ? AT_FDCWD : (int)argument(q, name->directory);
    answer_pass(q);
    if (!text_of(q, argument(q, 0), target, sizeof target) || !text_of(q, argument(q, name->path), path, sizeof path) ||
        !walk(q, directory, path, 0, &f))
        return true;
    q->answer->flags = 0;
    memset(&e, 0, sizeof e);
    int error = f.error ? f.error : f.there ? EEXIST : f.slash || !*target ? ENOENT : 0;
    if (!error) {
        struct iovec parts[3] = {{0}, {f.last, strlen(f.last) + 1}, {target, strlen(target) + 1}};
        ssize_t n = ask_parts(f.tree, FUSE_SYMLINK, f.parent, parts, 3, &e, sizeof e);
        error = n < 0 ? (int)-n : 0;
        if (!error)
            node_seen(f.tree, e.nodeid);
        names_changed();
    }
    answer_error(q, error);
    return true;
}
