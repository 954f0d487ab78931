/* Calls by name: what each does where its name leads below one of home's trees. Everything else is the kernel's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include "engine.h"
#include "notify.h"

#define X_BITS 0111

enum what { OPENS, OPENS_2, CREATES, STATS, LOOKS, READS_LINK, REMOVES, REMOVES_DIRECTORY, MAKES_DIRECTORY, MAKES_NODE, MODES, OWNERS,
            TIMES, TRUNCATES, FILE_SYSTEM, ENTERS, RUNS, EXTRA };
enum follow { NEVER, ALWAYS, UNLESS, BY_OPEN }; /* UNLESS: AT_SYMLINK_NOFOLLOW is among the flags */

static const struct named {
    long call;
    enum what what;
    int8_t directory, path, flags; /* which arguments; -1: none */
    enum follow follow;
} names[] = {
    {SYS_openat, OPENS, 0, 1, 2, BY_OPEN},
    {SYS_openat2, OPENS_2, 0, 1, 2, BY_OPEN},
    {SYS_newfstatat, STATS, 0, 1, 3, UNLESS},
    {SYS_statx, STATS, 0, 1, 2, UNLESS},
    {SYS_faccessat, LOOKS, 0, 1, -1, ALWAYS},
    {SYS_faccessat2, LOOKS, 0, 1, 3, UNLESS},
    {SYS_readlinkat, READS_LINK, 0, 1, -1, NEVER},
    {SYS_unlinkat, REMOVES, 0, 1, 2, NEVER},
    {SYS_mkdirat, MAKES_DIRECTORY, 0, 1, -1, NEVER},
    {SYS_mknodat, MAKES_NODE, 0, 1, -1, NEVER},
    {SYS_fchmodat, MODES, 0, 1, -1, ALWAYS},
#ifdef SYS_fchmodat2
    {SYS_fchmodat2, MODES, 0, 1, 3, UNLESS},
#endif
    {SYS_fchownat, OWNERS, 0, 1, 4, UNLESS},
    {SYS_utimensat, TIMES, 0, 1, 3, UNLESS},
    {SYS_truncate, TRUNCATES, -1, 0, -1, ALWAYS},
    {SYS_statfs, FILE_SYSTEM, -1, 0, -1, ALWAYS},
    {SYS_chdir, ENTERS, -1, 0, -1, ALWAYS},
    {SYS_execve, RUNS, -1, 0, -1, ALWAYS},
    {SYS_execveat, RUNS, 0, 1, 4, UNLESS},
    {SYS_getxattr, EXTRA, -1, 0, -1, ALWAYS},
    {SYS_lgetxattr, EXTRA, -1, 0, -1, NEVER},
    {SYS_listxattr, EXTRA, -1, 0, -1, ALWAYS},
    {SYS_llistxattr, EXTRA, -1, 0, -1, NEVER},
    {SYS_setxattr, EXTRA, -1, 0, -1, ALWAYS},
    {SYS_lsetxattr, EXTRA, -1, 0, -1, NEVER},
    {SYS_removexattr, EXTRA, -1, 0, -1, ALWAYS},
    {SYS_lremovexattr, EXTRA, -1, 0, -1, NEVER},
    {SYS_name_to_handle_at, EXTRA, 0, 1, -1, NEVER},
#ifdef SYS_open
    {SYS_open, OPENS, -1, 0, 1, BY_OPEN},
    {SYS_creat, CREATES, -1, 0, -1, ALWAYS},
    {SYS_stat, STATS, -1, 0, -1, ALWAYS},
    {SYS_lstat, STATS, -1, 0, -1, NEVER},
    {SYS_access, LOOKS, -1, 0, -1, ALWAYS},
    {SYS_readlink, READS_LINK, -1, 0, -1, NEVER},
    {SYS_unlink, REMOVES, -1, 0, -1, NEVER},
    {SYS_rmdir, REMOVES_DIRECTORY, -1, 0, -1, NEVER},
    {SYS_mkdir, MAKES_DIRECTORY, -1, 0, -1, NEVER},
    {SYS_mknod, MAKES_NODE, -1, 0, -1, NEVER},
    {SYS_chmod, MODES, -1, 0, -1, ALWAYS},
    {SYS_chown, OWNERS, -1, 0, -1, ALWAYS},
    {SYS_lchown, OWNERS, -1, 0, -1, NEVER},
    {SYS_utime, TIMES, -1, 0, -1, ALWAYS},
    {SYS_utimes, TIMES, -1, 0, -1, ALWAYS},
    {SYS_futimesat, TIMES, 0, 1, -1, ALWAYS},
#endif
};

static uint64_t argument(const struct question *q, int which) { return q->notif->data.args[which]; }

static uint32_t umask_of(const struct question *q) { return (uint32_t)proc_field(q->tid, "status", "Umask", 8); }

static void fill_stat(struct stat *st, const struct fuse_attr *a)
{
    *st = (struct stat){.st_dev = notifier->device, .st_ino = a->ino, .st_mode = a->mode, .st_nlink = a->nlink, .st_uid = a->uid,
                        .st_gid = a->gid, .st_rdev = a->rdev, .st_size = (off_t)a->size, .st_blksize = a->blksize,
                        .st_blocks = (blkcnt_t)a->blocks};
    st->st_atim = (struct timespec){(time_t)a->atime, (long)a->atimensec};
    st->st_mtim = (struct timespec){(time_t)a->mtime, (long)a->mtimensec};
    st->st_ctim = (struct timespec){(time_t)a->ctime, (long)a->ctimensec};
}

static void fill_statx(struct statx *x, const struct fuse_attr *a)
{
    *x = (struct statx){.stx_mask = STATX_BASIC_STATS, .stx_blksize = a->blksize, .stx_nlink = a->nlink, .stx_uid = a->uid, .stx_gid = a->gid,
                        .stx_mode = (uint16_t)a->mode, .stx_ino = a->ino, .stx_size = a->size, .stx_blocks = a->blocks,
                        .stx_dev_major = major(notifier->device), .stx_dev_minor = minor(notifier->device)};
    x->stx_atime = (struct statx_timestamp){.tv_sec = (int64_t)a->atime, .tv_nsec = a->atimensec};
    x->stx_mtime = (struct statx_timestamp){.tv_sec = (int64_t)a->mtime, .tv_nsec = a->mtimensec};
    x->stx_ctime = (struct statx_timestamp){.tv_sec = (int64_t)a->ctime, .tv_nsec = a->ctimensec};
}

/* Into the caller's memory, wherever this call of the family has it. */
void answer_stat(struct question *q, const struct fuse_attr *a)
{
    struct stat st;
    struct statx x;
    long call = q->notif->data.nr;
    fill_stat(&st, a);
    fill_statx(&x, a);
    bool done = call == SYS_statx ? bytes_to(q, argument(q, 4), &x, sizeof x) : bytes_to(q, argument(q, call == SYS_newfstatat ? 2 : 1), &st, sizeof st);
    if (!done)
        answer_error(q, EFAULT);
}

static void put_time(struct fuse_setattr_in *in, int which, int64_t seconds, int64_t ns)
{
    if (ns == UTIME_OMIT)
        return;
    in->valid |= which ? FATTR_MTIME : FATTR_ATIME;
    if (ns == UTIME_NOW) {
        in->valid |= which ? FATTR_MTIME_NOW : FATTR_ATIME_NOW;
    } else if (which) {
        in->mtime = (uint64_t)seconds;
        in->mtimensec = (uint32_t)ns;
    } else {
        in->atime = (uint64_t)seconds;
        in->atimensec = (uint32_t)ns;
    }
}

/* An error number. utime has seconds, utimes and futimesat microseconds, utimensat nanoseconds; no address means now. */
int change_times(const struct question *q, uint32_t tree, uint64_t node)
{
    struct fuse_setattr_in in = {0};
    struct timespec fine[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    long call = q->notif->data.nr;
    bool at_directory = call == SYS_utimensat;
#ifdef SYS_open
    struct timeval coarse[2];
    struct utimbuf old;
    at_directory |= call == SYS_futimesat;
#endif
    uint64_t address = argument(q, at_directory ? 2 : 1);
    if (address && call == SYS_utimensat && !bytes_of(q, address, fine, sizeof fine))
        return EFAULT;
#ifdef SYS_open
    if (address && call == SYS_utime) {
        if (!bytes_of(q, address, &old, sizeof old))
            return EFAULT;
        fine[0] = (struct timespec){.tv_sec = old.actime};
        fine[1] = (struct timespec){.tv_sec = old.modtime};
    } else if (address && call != SYS_utimensat) {
        if (!bytes_of(q, address, coarse, sizeof coarse))
            return EFAULT;
        for (int i = 0; i < 2; i++)
            fine[i] = (struct timespec){.tv_sec = coarse[i].tv_sec, .tv_nsec = coarse[i].tv_usec * 1000};
    }
#endif
    for (int i = 0; i < 2; i++)
        put_time(&in, i, fine[i].tv_sec, fine[i].tv_nsec);
    return in.valid ? set_attr_of(tree, node, &in) : 0;
}

/* An error number; the user is the argument at `at`, the group the next. */
int change_owner(const struct question *q, uint32_t tree, uint64_t node, int at)
{
    struct fuse_setattr_in in = {.uid = (uint32_t)argument(q, at), .gid = (uint32_t)argument(q, at + 1)};
    in.valid = (in.uid == UINT32_MAX ? 0 : FATTR_UID) | (in.gid == UINT32_MAX ? 0 : FATTR_GID);
    return in.valid ? set_attr_of(tree, node, &in) : 0;
}

static int may(const struct found *f, uint32_t mask)
{
    struct fuse_access_in in = {.mask = mask};
    ssize_t n = mask ? ask(f->tree, FUSE_ACCESS, f->node, &in, sizeof in, NULL, 0) : 0;
    return n < 0 ? (int)-n : 0;
}

static int remove_name(const struct found *f, bool directory)
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

static int make_name(const struct question *q, const struct found *f, bool directory, int at)
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
        shadow_remove(f->tree, f->path); /* of what was there before and went without us */
    return error;
}

static int truncate_name(const struct question *q, const struct found *f)
{
    uint64_t size = argument(q, 1);
    struct stand *s = stand_find(f->tree, f->node);
    if ((int64_t)size < 0)
        return EINVAL;
    if (S_ISDIR(f->attr.mode))
        return EISDIR;
    int error = s ? stand_home(s) : 0;
    if (!error && s && size)
        error = stand_whole(s);
    struct fuse_setattr_in in = {.valid = FATTR_SIZE, .size = size};
    error = error ? error : set_attr_of(f->tree, f->node, &in);
    if (!error && s)
        stand_emptied(s, size);
    return error;
}

static void read_link(struct question *q, const struct found *f, int at)
{
    char target[NAME_MOST];
    if (!S_ISLNK(f->attr.mode))
        return answer_error(q, EINVAL);
    ssize_t n = ask(f->tree, FUSE_READLINK, f->node, NULL, 0, target, sizeof target);
    if (n < 0)
        return answer_error(q, (int)-n);
    size_t size = (size_t)argument(q, at + 1) < (size_t)n ? (size_t)argument(q, at + 1) : (size_t)n;
    if (!bytes_to(q, argument(q, at), target, size))
        return answer_error(q, EFAULT);
    answer_value(q, (int64_t)size);
}

/* The program, and the one that a script begins with: a copy under its name, for the kernel. */
static int prepare_program(const struct question *q, struct found *f, int depth)
{
    static struct found next;
    struct stand *s;
    char head[256], *from;
    if (!S_ISREG(f->attr.mode) || !(f->attr.mode & X_BITS))
        return EACCES;
    int error = may(f, X_OK);
    error = error ? error : open_stand(f, O_RDONLY, &s);
    error = error ? error : stand_whole(s);
    if (error)
        return error;
    if (shadow_program(f->tree, f->path, s))
        return errno;
    ssize_t n = pread(s->fd, head, sizeof head - 1, 0);
    head[n > 0 ? n : 0] = 0;
    if (depth > 4 || strncmp(head, "#!", 2) != 0)
        return 0;
    from = head + 2 + strspn(head + 2, " \t");
    from[strcspn(from, " \t\r\n")] = 0;
    if (!walk(q, AT_FDCWD, from, FOLLOW | MAKE, &next))
        return 0;
    return next.error ? next.error : !next.there ? ENOENT : prepare_program(q, &next, depth + 1);
}

static bool follows(const struct named *name, uint64_t flags)
{
    return name->follow == ALWAYS || (name->follow == UNLESS && !(flags & AT_SYMLINK_NOFOLLOW));
}

static void by_name(struct question *q, const struct named *name, struct found *f, uint64_t flags)
{
    int after = name->path + 1, error = f->error;
    struct stand *s;
    if (!error && !f->there && name->what != MAKES_DIRECTORY && name->what != MAKES_NODE)
        error = ENOENT;
    if (error)
        return answer_error(q, error);
    struct fuse_setattr_in in = {.valid = FATTR_MODE, .mode = (uint32_t)argument(q, after)};
    switch (name->what) {
    case STATS:
        if ((s = stand_find(f->tree, f->node)))
            stand_shown(s, &f->attr);
        return answer_stat(q, &f->attr);
    case LOOKS:
        return answer_error(q, may(f, (uint32_t)argument(q, after)));
    case READS_LINK:
        return read_link(q, f, after);
    case REMOVES:
    case REMOVES_DIRECTORY:
        return answer_error(q, remove_name(f, name->what == REMOVES_DIRECTORY || flags & AT_REMOVEDIR));
    case MAKES_DIRECTORY:
    case MAKES_NODE:
        return answer_error(q, make_name(q, f, name->what == MAKES_DIRECTORY, after));
    case MODES:
        return answer_error(q, set_attr_of(f->tree, f->node, &in));
    case OWNERS:
        return answer_error(q, change_owner(q, f->tree, f->node, after));
    case TIMES:
        error = (s = stand_find(f->tree, f->node)) ? stand_home(s) : 0;
        return answer_error(q, error ? error : change_times(q, f->tree, f->node));
    case TRUNCATES:
        return answer_error(q, truncate_name(q, f));
    case ENTERS:
        error = S_ISDIR(f->attr.mode) ? may(f, X_OK) : ENOTDIR;
        return error ? answer_error(q, error) : answer_pass(q);
    case RUNS:
        stands_home();
        error = prepare_program(q, f, 0);
        return error ? answer_error(q, error) : answer_pass(q);
    case FILE_SYSTEM:
        return answer_statfs(q, f->tree, f->node);
    default:
        return answer_error(q, EOPNOTSUPP);
    }
}

static void handle_name(struct question *q, const struct named *name)
{
    static struct found f;
    char path[NAME_MOST];
    struct open_how how = {0};
    uint64_t flags = name->flags < 0 ? 0 : argument(q, name->flags), mode = argument(q, name->path + 2);
    int directory = name->directory < 0 ? AT_FDCWD : (int)argument(q, name->directory);
    if (name->what == OPENS_2) {
        if (!bytes_of(q, flags, &how, sizeof how))
            return answer_pass(q);
        flags = how.flags;
        mode = how.mode;
    }
    if (name->what == CREATES) {
        flags = O_WRONLY | O_CREAT | O_TRUNC;
        mode = argument(q, 1);
    }
    if (!text_of(q, argument(q, name->path), path, sizeof path) || !still_asked(q))
        return answer_pass(q);
    if (name->what == OPENS || name->what == OPENS_2 || name->what == CREATES)
        return open_file(q, directory, path, flags, (uint32_t)mode);
    uint32_t make = name->what == ENTERS || name->what == RUNS ? MAKE : 0;
    if (name->what == RUNS)
        stands_home();
    if (!walk(q, directory, path, (follows(name, flags) ? FOLLOW : 0) | make, &f))
        return answer_pass(q);
    by_name(q, name, &f, flags);
}

/* Calls with two names. Both have to lie in one tree. */
static bool handle_two(struct question *q)
{
    static struct found from, to;
    char one[NAME_MOST], two[NAME_MOST];
    int at[2] = {AT_FDCWD, AT_FDCWD}, path[2] = {0, 1};
    uint32_t flags = 0;
    bool links = false, follow = false;
    switch (q->notif->data.nr) {
    case SYS_linkat:
        links = true;
        follow = argument(q, 4) & AT_SYMLINK_FOLLOW;
        if (argument(q, 4) & AT_EMPTY_PATH)
            return false;
        break;
    case SYS_renameat2:
        flags = (uint32_t)argument(q, 4);
        break;
#ifdef SYS_renameat
    case SYS_renameat:
        break;
#endif
#ifdef SYS_open
    case SYS_link:
        links = true;
        break;
    case SYS_rename:
        break;
#endif
    default:
        return false;
    }
#ifdef SYS_open
    bool plain = q->notif->data.nr == SYS_link || q->notif->data.nr == SYS_rename;
#else
    bool plain = false;
#endif
    if (!plain) {
        at[0] = (int)argument(q, 0);
        at[1] = (int)argument(q, 2);
        path[0] = 1;
        path[1] = 3;
    }
    answer_pass(q);
    if (!text_of(q, argument(q, path[0]), one, sizeof one) || !text_of(q, argument(q, path[1]), two, sizeof two))
        return true;
    bool first = walk(q, at[0], one, follow ? FOLLOW : 0, &from), second = walk(q, at[1], two, 0, &to);
    if (!first && !second)
        return true;
    q->answer->flags = 0;
    int missing = first && !from.there ? ENOENT : 0, error = first && from.error ? from.error : links ? missing : 0;
    error = error ? error : second && to.error ? to.error : missing; /* in the kernel's order */
    if (!error && (!first || !second || from.tree != to.tree))
        error = EXDEV;
    if (!error && (!*from.last || !*to.last))
        error = links && *to.last ? EPERM : links ? EEXIST : EBUSY;
    if (error) {
        answer_error(q, error);
        return true;
    }
    if (links) {
        struct fuse_link_in in = {.oldnodeid = from.node};
        struct fuse_entry_out e;
        error = to.there ? EEXIST : S_ISDIR(from.attr.mode) ? EPERM : ask_entry(to.tree, FUSE_LINK, to.parent, &in, sizeof in, to.last, &e);
    } else {
        struct fuse_rename2_in in = {.newdir = to.parent, .flags = flags};
        struct iovec parts[4] = {{0}, {&in, sizeof in}, {from.last, strlen(from.last) + 1}, {to.last, strlen(to.last) + 1}};
        ssize_t n = (from.slash || to.slash) && !S_ISDIR(from.attr.mode) ? -ENOTDIR
                                                                         : ask_parts(from.tree, FUSE_RENAME2, from.parent, parts, 4, NULL, 0);
        error = (int)-n;
        if (!error && strcmp(from.path, to.path) != 0)
            shadow_rename(from.tree, from.path, to.path, flags);
    }
    names_changed();
    answer_error(q, error);
    return true;
}

static bool handle_symlink(struct question *q)
{
    static struct found f;
    char target[NAME_MOST], path[NAME_MOST];
    struct fuse_entry_out e;
    bool at = q->notif->data.nr == SYS_symlinkat;
#ifdef SYS_open
    if (!at && q->notif->data.nr != SYS_symlink)
        return false;
#endif
    if (!at && q->notif->data.nr == SYS_symlinkat)
        return false;
    answer_pass(q);
    if (!text_of(q, argument(q, 0), target, sizeof target) || !text_of(q, argument(q, at ? 2 : 1), path, sizeof path) ||
        !walk(q, at ? (int)argument(q, 1) : AT_FDCWD, path, 0, &f))
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

static bool names_descriptor(const struct question *q)
{
    char first;
    long call = q->notif->data.nr;
    uint64_t flags = call == SYS_newfstatat ? argument(q, 3) : call == SYS_statx ? argument(q, 2) : call == SYS_fchownat ? argument(q, 4) : 0;
    if (call == SYS_utimensat && !argument(q, 1))
        return true;
    return flags & AT_EMPTY_PATH && (!argument(q, 1) || (bytes_of(q, argument(q, 1), &first, 1) && !first)) && (int)argument(q, 0) != AT_FDCWD;
}

/* What brings home what all processes wrote, and is the kernel's then. */
static bool settles(struct question *q)
{
    long call = q->notif->data.nr;
    if (call != SYS_exit_group && call != SYS_close_range && call != SYS_sync && call != SYS_syncfs && call != SYS_msync)
        return false;
    int error = stands_home();
    if (error && call == SYS_msync)
        answer_error(q, error);
    else
        answer_pass(q);
    return true;
}

void handle_call(struct question *q)
{
    if (settles(q) || handle_two(q) || handle_symlink(q))
        return;
    if (!names_descriptor(q))
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (names[i].call == q->notif->data.nr)
                return handle_name(q, &names[i]);
    int at = q->notif->data.nr == SYS_mmap ? 4 : q->notif->data.nr == SYS_sendfile ? 1 : 0;
    handle_descriptor(q, (int)argument(q, at));
}
