/* Opening: opens the file on the submit side with the job's flags, for the result; then gives the process a file
 * descriptor of the stand-in. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "remote_notify/parts.h"

static uint32_t without_umask(const struct notification *q, uint64_t mode)
{
    return (uint32_t)mode & 07777 & ~(uint32_t)proc_field(q->tid, "status", "Umask", 8);
}

static void keep_handle(struct stand_in *s, uint32_t flags, uint64_t handle)
{
    struct fuse_release_in in = {.fh = handle};
    uint64_t *place = (flags & O_ACCMODE) == O_RDONLY ? &s->reader : flags & O_APPEND ? &s->appender : &s->writer;
    if (*place)
        ask(s->tree, FUSE_RELEASE, s->node, &in, sizeof in, NULL, 0);
    else
        *place = handle;
    s->plain |= place == &s->writer;
}

/* Returns an errno. Fetches into the stand-in the data that this way of opening needs. */
static int stand_ready(struct stand_in *s, uint32_t flags, bool fresh)
{
    uint32_t how = flags & O_ACCMODE;
    if (flags & O_TRUNC || fresh) {
        stand_emptied(s, flags & O_TRUNC ? 0 : s->size);
        return 0;
    }
    if (how == O_WRONLY && flags & O_APPEND && !s->plain)
        return 0; /* appending does not need the existing data */
    if (how == O_RDONLY && !stand_writable(s) && s->size > WHOLE_MOST)
        return 0;
    int error = stand_whole(s);
    return error == EBADF ? EACCES : error;
}

int open_stand(const struct found *found, uint32_t flags, struct stand_in **made)
{
    struct fuse_open_in in = {.flags = flags & (O_ACCMODE | O_TRUNC | O_APPEND)};
    struct fuse_open_out out = {0};
    struct fuse_attr a = found->attr;
    ssize_t n = ask(found->tree, FUSE_OPEN, found->node, &in, sizeof in, &out, sizeof out);
    if (n < 0)
        return (int)-n;
    if (flags & O_TRUNC)
        names_changed();
    struct stand_in *s = stand_find(found->tree, found->node);
    if (!s && get_attr_of(found->tree, found->node, &a))
        a = found->attr;
    s = s ? s : stand_of(found->tree, found->node, a.size);
    if (!s)
        return errno ? errno : ENFILE;
    keep_handle(s, flags, out.fh);
    *made = s;
    return stand_ready(s, flags, false);
}

static int create_stand(struct found *found, uint32_t flags, uint32_t mode, struct stand_in **made)
{
    struct fuse_create_in in = {.flags = flags & (O_ACCMODE | O_TRUNC | O_APPEND | O_EXCL | O_CREAT),
                                .mode = S_IFREG | mode};
    struct {
        struct fuse_entry_out entry;
        struct fuse_open_out open;
    } out;
    memset(&out, 0, sizeof out);
    ssize_t n = ask_name(found->tree, FUSE_CREATE, found->parent, &in, sizeof in, found->last, &out, sizeof out);
    names_changed();
    if (n < 0)
        return (int)-n;
    node_seen(found->tree, out.entry.nodeid);
    shadow_remove(found->tree, found->path);
    struct stand_in *s = stand_of(found->tree, out.entry.nodeid, out.entry.attr.size);
    if (!s)
        return errno ? errno : ENFILE;
    keep_handle(s, flags, out.open.fh);
    *made = s;
    return stand_ready(s, flags & ~(uint32_t)O_TRUNC, s->size == 0);
}

/* Gives the process the lowest free number, or one of the high ones, which the filter traps. */
bool hand_out(struct notification *q, int fd, bool high, bool on_exec_closed)
{
    char path[64], text[8];
    int number = -1;
    for (int i = notifier->first; high && i < notifier->first + TRAPPED_NUMBERS && number < 0; i++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", q->tid, i);
        if (readlink(path, text, sizeof text) < 0)
            number = i;
    }
    if (high && number < 0)
        return false;
    int got = notification_add_fd(q, fd, number, SECCOMP_ADDFD_FLAG_SEND, on_exec_closed);
    if (got >= 0)
        q->answered = true;
    else if (!high)
        answer_error(q, errno == ENOENT ? EINTR : errno);
    return got >= 0;
}

static void give_descriptor(struct notification *q, struct stand_in *s, uint64_t flags)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", s->fd);
    int keep = O_ACCMODE | O_APPEND | O_NONBLOCK | O_SYNC | O_NOATIME | O_PATH;
    int fd = open(path, ((int)flags & keep) | O_CLOEXEC);
    if (fd < 0)
        return answer_error(q, errno);
    bool high = !s->whole && (flags & O_ACCMODE) == O_RDONLY && !(flags & O_PATH);
    int error = 0;
    if (high && !hand_out(q, fd, true, flags & O_CLOEXEC)) {
        high = false;
        error = stand_whole(s);
    }
    if (error)
        answer_error(q, error);
    else if (!high)
        hand_out(q, fd, false, flags & O_CLOEXEC);
    close(fd);
}

static void open_directory(struct notification *q, const struct found *f, uint64_t flags)
{
    struct fuse_open_in in = {.flags = O_RDONLY | O_DIRECTORY};
    struct fuse_open_out out;
    ssize_t n = flags & O_PATH ? 0 : ask(f->tree, FUSE_OPENDIR, f->node, &in, sizeof in, &out, sizeof out);
    if (n < 0)
        return answer_error(q, (int)-n);
    if (!(flags & O_PATH)) {
        struct fuse_release_in over = {.fh = out.fh};
        ask(f->tree, FUSE_RELEASEDIR, f->node, &over, sizeof over, NULL, 0);
    }
    if (shadow_path(f->tree, f->path))
        return answer_error(q, errno);
    int fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | ((int)flags & (O_PATH | O_NONBLOCK)));
    if (fd < 0)
        return answer_error(q, errno);
    hand_out(q, fd, false, flags & O_CLOEXEC);
    close(fd);
}

static int open_once(struct notification *q, struct found *f, uint64_t flags, uint32_t mode, struct stand_in **s)
{
    bool makes = flags & O_CREAT && !(flags & O_PATH);
    if (f->error)
        return f->error;
    if (!f->there)
        return !makes ? ENOENT : f->slash ? EISDIR : create_stand(f, (uint32_t)flags, without_umask(q, mode), s);
    if (makes && flags & O_EXCL)
        return EEXIST;
    if (S_ISLNK(f->attr.mode))
        return ELOOP;
    if (S_ISDIR(f->attr.mode))
        return !(flags & O_PATH) && (makes || (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC) ? EISDIR : 0;
    if (flags & O_DIRECTORY)
        return ENOTDIR;
    if (!S_ISREG(f->attr.mode))
        return EACCES;
    if (!(flags & O_PATH))
        return open_stand(f, (uint32_t)flags, s);
    *s = stand_of(f->tree, f->node, f->attr.size);
    return *s ? 0 : errno;
}

void open_file(struct notification *q, int directory, const char *path, uint64_t flags, uint32_t mode)
{
    static struct found f;
    struct stand_in *s = NULL;
    bool follow = !(flags & O_NOFOLLOW) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);
    int error = ESTALE;
    for (int i = 0; i < TRIES && error == ESTALE; i++) {
        if (!walk(q, directory, path, follow ? FOLLOW : 0, &f))
            return answer_pass(q);
        error = (flags & O_TMPFILE) == O_TMPFILE ? EOPNOTSUPP : open_once(q, &f, flags, mode, &s);
        if (error == ESTALE)
            names_changed();
    }
    if (error)
        answer_error(q, error);
    else if (s)
        give_descriptor(q, s, flags);
    else
        open_directory(q, &f, flags);
}
