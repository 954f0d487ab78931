/* Calls with names: the effect of each call if its name leads below a remote tree. The kernel executes all others. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "unotify/path_syscalls.h"
#include "remote_notify/parts.h"

#define X_BITS 0111
#define MESSAGES_MOST 1024 /* of one sendmmsg */

static uint64_t argument(const struct notification *q, int which) { return q->notif->data.args[which]; }

static int may(const struct found *f, uint32_t mask)
{
    struct fuse_access_in in = {.mask = mask};
    ssize_t n = mask ? ask(f->tree, FUSE_ACCESS, f->node, &in, sizeof in, NULL, 0) : 0;
    return n < 0 ? (int)-n : 0;
}

static int truncate_name(const struct notification *q, const struct found *f)
{
    uint64_t size = argument(q, 1);
    struct stand_in *s = stand_find(f->tree, f->node);
    if ((int64_t)size < 0)
        return EINVAL;
    if (S_ISDIR(f->attr.mode))
        return EISDIR;
    int error = s ? stand_send(s) : 0;
    if (!error && s && size)
        error = stand_whole(s);
    struct fuse_setattr_in in = {.valid = FATTR_SIZE, .size = size};
    error = error ? error : set_attr_of(f->tree, f->node, &in);
    if (!error && s)
        stand_emptied(s, size);
    return error;
}

static void read_link(struct notification *q, const struct found *f, int at)
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

/* Puts a copy of the program under its name, for the kernel; for a script, of its interpreter too. */
static int prepare_program(const struct notification *q, struct found *f, int depth)
{
    static struct found next;
    struct stand_in *s;
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

/* One switch: each kind of call. */
static void by_name(struct notification *q, const struct path_syscall *name, struct found *f, uint64_t flags)
{
    int after = name->path + 1, error = f->error;
    struct stand_in *s;
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
        error = (s = stand_find(f->tree, f->node)) ? stand_send(s) : 0;
        return answer_error(q, error ? error : change_times(q, f->tree, f->node));
    case TRUNCATES:
        return answer_error(q, truncate_name(q, f));
    case ENTERS:
        error = S_ISDIR(f->attr.mode) ? may(f, X_OK) : ENOTDIR;
        return error ? answer_error(q, error) : answer_pass(q);
    case RUNS:
        stands_send();
        error = prepare_program(q, f, 0);
        return error ? answer_error(q, error) : answer_pass(q);
    case FILE_SYSTEM:
        return answer_statfs(q, f->tree, f->node);
    case GETS_EXTRA:
    case LISTS_EXTRA:
    case SETS_EXTRA:
    case REMOVES_EXTRA:
        return answer_extra(q, f->tree, f->node);
    default:
        return answer_error(q, EOPNOTSUPP);
    }
}

static void handle_name(struct notification *q, const struct path_syscall *name)
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
    if (!text_of(q, argument(q, name->path), path, sizeof path) || !notification_valid(q))
        return answer_pass(q);
    if (name->what == OPENS || name->what == OPENS_2 || name->what == CREATES)
        return open_file(q, directory, path, flags, (uint32_t)mode);
    uint32_t make = name->what == ENTERS || name->what == RUNS ? MAKE : 0;
    if (name->what == RUNS)
        stands_send();
    if (!walk(q, directory, path, (path_syscall_follows(name, flags) ? FOLLOW : 0) | make, &f))
        return answer_pass(q);
    by_name(q, name, &f, flags);
}

static bool names_descriptor(const struct notification *q)
{
    char first;
    long call = q->notif->data.nr;
    uint64_t flags = call == SYS_newfstatat ? argument(q, 3)
                     : call == SYS_statx    ? argument(q, 2)
                     : call == SYS_fchownat ? argument(q, 4)
                                            : 0;
    if (call == SYS_utimensat && !argument(q, 1))
        return true;
    return flags & AT_EMPTY_PATH && (!argument(q, 1) || (bytes_of(q, argument(q, 1), &first, 1) && !first)) &&
           (int)argument(q, 0) != AT_FDCWD;
}

/* Calls after which all processes' writes must be on the submit side; the kernel executes them then. */
static bool settles(struct notification *q)
{
    long call = q->notif->data.nr;
    if (call != SYS_exit_group && call != SYS_close_range && call != SYS_sync && call != SYS_syncfs &&
        call != SYS_msync)
        return false;
    int error = stands_send();
    if (error && call == SYS_msync)
        answer_error(q, error);
    else
        answer_pass(q);
    return true;
}

/* Whether one of these messages may carry file descriptors. */
static bool with_descriptors(const struct notification *q, uint64_t count, size_t apart)
{
    struct msghdr m;
    for (uint64_t i = 0; i < count && i < MESSAGES_MOST; i++)
        if (!bytes_of(q, argument(q, 1) + i * apart, &m, sizeof m) || m.msg_controllen)
            return true;
    return false;
}

/* Calls that pass file descriptors to other processes. */
static bool hands_over(struct notification *q)
{
    bool over;
    switch (q->notif->data.nr) {
    case SYS_sendmsg:
        over = with_descriptors(q, 1, 0);
        break;
    case SYS_sendmmsg:
        over = with_descriptors(q, (uint32_t)argument(q, 2), sizeof(struct mmsghdr));
        break;
    case SYS_pidfd_getfd:
        over = true;
        break;
    default:
        return false;
    }
    int error = over ? stands_whole() : 0;
    if (error)
        answer_error(q, error);
    else
        answer_pass(q);
    return true;
}

void handle_call(struct notification *q)
{
    if (settles(q) || hands_over(q) || handle_two(q) || handle_symlink(q))
        return;
    const struct path_syscall *name = names_descriptor(q) ? NULL : path_syscall_of(q->notif->data.nr);
    if (name)
        return handle_name(q, name);
    int at = q->notif->data.nr == SYS_mmap ? 4 : q->notif->data.nr == SYS_sendfile ? 1 : 0;
    handle_descriptor(q, (int)argument(q, at));
}
