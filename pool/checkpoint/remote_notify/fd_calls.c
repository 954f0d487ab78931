/* Calls with file descriptors: on stand-ins and shadows they give the submit side's answers; on all other files the
 * kernel executes them. A call that closes a descriptor first sends the job's writes. A call that moves a descriptor of
 * a file that is fetched on demand first fetches the rest. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "remote_notify/parts.h"

#define AHEAD (256u << 10)
#define AHEAD_MOST (8u << 20)
#define ROOM (1u << 20)
#define FUSE_MAGIC 0x65735546 /* programs then treat the files as those of another machine */

static uint64_t argument(const struct notification *q, int which) { return q->notif->data.args[which]; }

/* Reads the descriptor's position and open flags. */
static bool descriptor_is(pid_t tid, int number, uint64_t *position, int *flags)
{
    char path[64], text[512];
    unsigned long long at;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", tid, number);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    if (n <= 0 || sscanf(text, "pos: %llu flags: %o", &at, (unsigned *)flags) != 2)
        return false;
    *position = at;
    return true;
}

/* The descriptor is closed although close fails, as with close(2): it leads to /dev/null from now on. */
static void close_with(struct notification *q, int number, int error)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        notification_add_fd(q, fd, number, 0, true);
        close(fd);
    }
    answer_error(q, error);
}

static void before_close(struct notification *q, int number, bool replaced)
{
    struct stand_in *s = stand_at(q->tid, number);
    int error = s ? stand_send(s) : 0;
    answer_pass(q);
    if (error && !replaced) {
        q->answer->flags = 0;
        close_with(q, number, error);
    }
}

static void before_copy(struct notification *q, int number)
{
    struct stand_in *s = stand_at(q->tid, number);
    int error = s && !s->whole && !stand_writable(s) ? stand_whole(s) : 0;
    if (error)
        answer_error(q, error);
    else
        answer_pass(q);
}

/* Reads and moves the position in one step, since others may share it. */
static void read_stand(struct notification *q, struct stand_in *s, int number)
{
    static uint8_t bytes[ROOM];
    uint64_t to = argument(q, 1), size = argument(q, 2), done = 0;
    know_process(q);
    int fd = take_from(q->tgid, number), error = fd < 0 ? EBADF : 0;
    while (!error && done < size) {
        off_t at = lseek(fd, 0, SEEK_CUR);
        uint64_t part = size - done < ROOM ? size - done : ROOM;
        s->ahead = (uint64_t)at != s->expected ? AHEAD : s->ahead * 2 < AHEAD_MOST ? s->ahead * 2 : AHEAD_MOST;
        error = stand_fetch(s, (uint64_t)at, (uint64_t)at + part + s->ahead);
        ssize_t n = error ? -1 : read(fd, bytes, part);
        if (n < 0)
            error = error ? error : errno;
        if (n > 0 && !bytes_to(q, to + done, bytes, (size_t)n)) {
            lseek(fd, at, SEEK_SET);
            error = EFAULT;
        }
        if (n <= 0 || error)
            break;
        done += (uint64_t)n;
        s->expected = (uint64_t)at + (uint64_t)n;
        if ((uint64_t)n < part)
            break;
    }
    if (fd >= 0)
        close(fd);
    if (error && !done)
        answer_error(q, error);
    else
        answer_value(q, (int64_t)done);
}

static void on_high(struct notification *q, int number)
{
    struct stand_in *s = stand_at(q->tid, number);
    int error = 0;
    if (!s || s->whole || stand_writable(s))
        return answer_pass(q);
    switch (q->notif->data.nr) {
    case SYS_read:
        return read_stand(q, s, number);
    case SYS_pread64:
        error = stand_fetch(s, argument(q, 3), argument(q, 3) + argument(q, 2) + AHEAD);
        break;
    case SYS_lseek:
        error = argument(q, 2) == SEEK_DATA || argument(q, 2) == SEEK_HOLE ? stand_whole(s) : 0;
        break;
    case SYS_fcntl:
        error = argument(q, 1) == F_DUPFD || argument(q, 1) == F_DUPFD_CLOEXEC ? stand_whole(s) : 0;
        break;
    default:
        error = stand_whole(s);
    }
    if (error)
        answer_error(q, error);
    else
        answer_pass(q);
}

static void map_file(struct notification *q)
{
    struct stand_in *s = stand_at(q->tid, (int)argument(q, 4));
    int error = s ? stand_whole(s) : 0;
    if (s && argument(q, 3) & MAP_SHARED)
        s->mapped = true;
    if (error)
        answer_error(q, error == EIO ? EIO : EACCES);
    else
        answer_pass(q);
}

static void synchronise(struct notification *q, struct stand_in *s)
{
    uint64_t handle = s->writer ? s->writer : s->appender ? s->appender : s->reader;
    struct fuse_fsync_in in = {.fh = handle,
                               .fsync_flags = q->notif->data.nr == SYS_fdatasync ? FUSE_FSYNC_FDATASYNC : 0};
    int error = stand_send(s);
    ssize_t n = error || !handle ? 0 : ask(s->tree, FUSE_FSYNC, s->node, &in, sizeof in, NULL, 0);
    answer_error(q, error ? error : (int)-n);
}

static void truncate_stand(struct notification *q, struct stand_in *s, int number)
{
    uint64_t at, size = argument(q, 1);
    int flags = 0;
    if (!descriptor_is(q->tid, number, &at, &flags) || (flags & O_ACCMODE) == O_RDONLY || (int64_t)size < 0)
        return answer_error(q, EINVAL);
    answer_error(q, stand_cut(s, size));
}

void answer_statfs(struct notification *q, uint32_t tree, uint64_t node)
{
    struct fuse_statfs_out out;
    ssize_t n = ask(tree, FUSE_STATFS, node, NULL, 0, &out, sizeof out);
    if (n < 0)
        return answer_error(q, (int)-n);
    struct statfs st = {.f_type = FUSE_MAGIC,
                        .f_bsize = out.st.bsize,
                        .f_blocks = out.st.blocks,
                        .f_bfree = out.st.bfree,
                        .f_bavail = out.st.bavail,
                        .f_files = out.st.files,
                        .f_ffree = out.st.ffree,
                        .f_namelen = out.st.namelen,
                        .f_frsize = out.st.frsize};
    if (!bytes_to(q, argument(q, 1), &st, sizeof st))
        answer_error(q, EFAULT);
}

/* For files and directories. */
static void on_node(struct notification *q, uint32_t tree, uint64_t node, struct stand_in *s)
{
    struct fuse_attr a;
    struct fuse_setattr_in in = {0};
    int error;
    switch (q->notif->data.nr) {
    case SYS_fchmod:
        in = (struct fuse_setattr_in){.valid = FATTR_MODE, .mode = (uint32_t)argument(q, 1)};
        return answer_error(q, set_attr_of(tree, node, &in));
    case SYS_fchown:
    case SYS_fchownat:
        return answer_error(q, change_owner(q, tree, node, q->notif->data.nr == SYS_fchown ? 1 : 2));
    case SYS_utimensat:
        error = s ? stand_send(s) : 0;
        return answer_error(q, error ? error : change_times(q, tree, node));
    case SYS_fstatfs:
        return answer_statfs(q, tree, node);
    case SYS_fgetxattr:
    case SYS_flistxattr:
    case SYS_fsetxattr:
    case SYS_fremovexattr:
        return answer_extra(q, tree, node);
    default: /* the stat family */
        if ((error = get_attr_of(tree, node, &a)))
            return answer_error(q, error);
        if (s)
            stand_shown(s, &a);
        answer_stat(q, &a);
    }
}

static bool on_directory(struct notification *q, int number)
{
    static struct found f;
    char place[64], path[NAME_MOST];
    struct stat st;
    snprintf(place, sizeof place, "/proc/%d/fd/%d", q->tid, number);
    if (stat(place, &st) < 0 || st.st_dev != notifier->device || !S_ISDIR(st.st_mode))
        return false;
    ssize_t n = readlink(place, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    if (!walk(q, AT_FDCWD, path, 0, &f) || f.error || !f.there)
        return false; /* it was removed: the kernel answers with its shadow */
    on_node(q, f.tree, f.node, NULL);
    return true;
}

static bool of_attributes(long call)
{
    switch (call) {
    case SYS_fstat:
    case SYS_newfstatat:
    case SYS_statx:
    case SYS_fchmod:
    case SYS_fchown:
    case SYS_fchownat:
    case SYS_utimensat:
    case SYS_fstatfs:
        return true;
    default:
        return of_extras(call);
    }
}

void handle_descriptor(struct notification *q, int number)
{
    long call = q->notif->data.nr;
    struct stand_in *s;
    switch (call) {
    case SYS_close:
        return before_close(q, number, false);
    case SYS_dup3:
#ifdef SYS_dup2
    case SYS_dup2:
#endif
        before_copy(q, number);
        if (q->answer->error || argument(q, 0) == argument(q, 1))
            return;
        return before_close(q, (int)argument(q, 1), true);
    case SYS_mmap:
        return map_file(q);
    case SYS_getdents64:
        if (!list_directory(q, number, false))
            answer_pass(q);
        return;
#ifdef SYS_getdents
    case SYS_getdents:
        if (!list_directory(q, number, true))
            answer_pass(q);
        return;
#endif
    default:
        break;
    }
    bool attributes = of_attributes(call);
    if (attributes && on_directory(q, number))
        return;
    s = stand_at(q->tid, number);
    if (!s)
        return answer_pass(q);
    switch (call) {
    case SYS_ftruncate:
        return truncate_stand(q, s, number);
    case SYS_fsync:
    case SYS_fdatasync:
        return synchronise(q, s);
    default:
        if (attributes)
            on_node(q, s->tree, s->node, s);
        else
            on_high(q, number);
    }
}
