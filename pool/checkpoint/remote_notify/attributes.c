/* The attributes of a remote file in the forms of the stat family; its times and owner from the arguments of their
 * calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <time.h>
#include <utime.h>

#include "remote_notify/parts.h"

static uint64_t argument(const struct notification *q, int which) { return q->notif->data.args[which]; }

static void fill_stat(struct stat *st, const struct fuse_attr *a)
{
    *st = (struct stat){.st_dev = notifier->device,
                        .st_ino = a->ino,
                        .st_mode = a->mode,
                        .st_nlink = a->nlink,
                        .st_uid = a->uid,
                        .st_gid = a->gid,
                        .st_rdev = a->rdev,
                        .st_size = (off_t)a->size,
                        .st_blksize = a->blksize,
                        .st_blocks = (blkcnt_t)a->blocks};
    st->st_atim = (struct timespec){(time_t)a->atime, (long)a->atimensec};
    st->st_mtim = (struct timespec){(time_t)a->mtime, (long)a->mtimensec};
    st->st_ctim = (struct timespec){(time_t)a->ctime, (long)a->ctimensec};
}

static void fill_statx(struct statx *x, const struct fuse_attr *a)
{
    *x = (struct statx){.stx_mask = STATX_BASIC_STATS,
                        .stx_blksize = a->blksize,
                        .stx_nlink = a->nlink,
                        .stx_uid = a->uid,
                        .stx_gid = a->gid,
                        .stx_mode = (uint16_t)a->mode,
                        .stx_ino = a->ino,
                        .stx_size = a->size,
                        .stx_blocks = a->blocks,
                        .stx_dev_major = major(notifier->device),
                        .stx_dev_minor = minor(notifier->device)};
    x->stx_atime = (struct statx_timestamp){.tv_sec = (int64_t)a->atime, .tv_nsec = a->atimensec};
    x->stx_mtime = (struct statx_timestamp){.tv_sec = (int64_t)a->mtime, .tv_nsec = a->mtimensec};
    x->stx_ctime = (struct statx_timestamp){.tv_sec = (int64_t)a->ctime, .tv_nsec = a->ctimensec};
}

/* Writes them to the caller's memory, at the place that this call uses. */
void answer_stat(struct notification *q, const struct fuse_attr *a)
{
    struct stat st;
    struct statx x;
    long call = q->notif->data.nr;
    fill_stat(&st, a);
    fill_statx(&x, a);
    bool done = call == SYS_statx ? bytes_to(q, argument(q, 4), &x, sizeof x)
                                  : bytes_to(q, argument(q, call == SYS_newfstatat ? 2 : 1), &st, sizeof st);
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

/* Returns an errno. utime has seconds, utimes and futimesat microseconds, utimensat nanoseconds; a NULL address means
 * now. */
int change_times(const struct notification *q, uint32_t tree, uint64_t node)
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

/* Returns an errno. The argument at `at` is the user, the next one the group. */
int change_owner(const struct notification *q, uint32_t tree, uint64_t node, int at)
{
    struct fuse_setattr_in in = {.uid = (uint32_t)argument(q, at), .gid = (uint32_t)argument(q, at + 1)};
    in.valid = (in.uid == UINT32_MAX ? 0 : FATTR_UID) | (in.gid == UINT32_MAX ? 0 : FATTR_GID);
    return in.valid ? set_attr_of(tree, node, &in) : 0;
}
