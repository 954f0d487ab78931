/* Lists directories. A process that reads a shadow gets the entries of the submit side's directory. Its position is the
 * shadow's own position, so that seeking and sharing work. A listing is kept between two calls of a reader. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "remote_notify/parts.h"

#define LISTINGS 16
#define MOST_BYTES 65536u

static struct listing {
    pid_t pid;
    int number;
    uint32_t tree;
    uint64_t node, handle, used;
} listings[LISTINGS];
static uint64_t turn;

struct entry_old { /* of getdents, which has the type after the name */
    unsigned long ino, off;
    unsigned short size;
    char name[];
};

static void end_listing(struct listing *l)
{
    struct fuse_release_in in = {.fh = l->handle};
    if (l->handle)
        ask(l->tree, FUSE_RELEASEDIR, l->node, &in, sizeof in, NULL, 0);
    l->handle = 0;
}

static struct listing *listing_of(const struct notification *q, int number, const struct found *f, bool afresh,
                                  int *error)
{
    struct listing *l = &listings[0];
    for (size_t i = 0; i < LISTINGS; i++)
        if (listings[i].handle && listings[i].pid == q->tid && listings[i].number == number &&
            listings[i].node == f->node && listings[i].tree == f->tree) {
            l = &listings[i];
            if (!afresh)
                return l;
            break;
        } else if (listings[i].used < l->used) {
            l = &listings[i];
        }
    struct fuse_open_in in = {.flags = O_RDONLY | O_DIRECTORY};
    struct fuse_open_out out;
    end_listing(l);
    ssize_t n = ask(f->tree, FUSE_OPENDIR, f->node, &in, sizeof in, &out, sizeof out);
    *error = n < 0 ? (int)-n : 0;
    if (n < 0)
        return NULL;
    *l = (struct listing){.pid = q->tid, .number = number, .tree = f->tree, .node = f->node, .handle = out.fh};
    return l;
}

/* Converts one entry into the caller's form. 0: no more room. */
static size_t convert(uint8_t *to, size_t room, const struct fuse_dirent *d, bool old)
{
    size_t head = old ? offsetof(struct entry_old, name) : offsetof(struct dirent64, d_name);
    size_t size = (head + d->namelen + (old ? 2 : 1) + 7) / 8 * 8;
    if (size > room)
        return 0;
    memset(to, 0, size);
    if (old) {
        struct entry_old e = {.ino = d->ino, .off = d->off, .size = (unsigned short)size};
        memcpy(to, &e, head);
        to[size - 1] = (uint8_t)d->type;
    } else {
        struct dirent64 *e = (void *)to;
        e->d_ino = d->ino;
        e->d_off = (off64_t)d->off;
        e->d_reclen = (unsigned short)size;
        e->d_type = (unsigned char)d->type;
    }
    memcpy(to + head, d->name, d->namelen);
    return size;
}

/* Converts the entries of an answer into the caller's form, as many as fit. `at` becomes the position after the last.
 * Returns the number of bytes; EINVAL in `error` if not even the first entry fits. */
static size_t convert_all(uint8_t *to, size_t room, const uint8_t *entries, size_t size, bool old, off_t *at,
                          int *error)
{
    size_t used = 0, from = 0, got;
    while (from + FUSE_NAME_OFFSET <= size) {
        const struct fuse_dirent *d = (const void *)(entries + from);
        if (!(got = convert(to + used, room - used, d, old)))
            break;
        used += got;
        *at = (off_t)d->off;
        from += FUSE_DIRENT_SIZE(d);
    }
    if (!used && FUSE_NAME_OFFSET <= size)
        *error = EINVAL;
    return used;
}

/* False: the kernel executes the call. */
bool list_directory(struct notification *q, int number, bool old)
{
    static struct found f;
    static uint8_t in_bytes[MOST_BYTES], out_bytes[MOST_BYTES];
    char place[64], path[NAME_MOST];
    int error = 0;
    snprintf(place, sizeof place, "/proc/%d/fd/%d", q->tid, number);
    ssize_t n = readlink(place, path, sizeof path - 1);
    if (n <= 0)
        return false;
    path[n] = 0;
    if (tree_of(path) < 0 || !walk(q, AT_FDCWD, path, 0, &f))
        return false;
    if (f.error || !f.there || !S_ISDIR(f.attr.mode)) {
        answer_error(q, ENOENT); /* it was removed */
        return true;
    }
    know_process(q);
    int fd = take_from(q->tgid, number);
    off_t at = fd < 0 ? -1 : lseek(fd, 0, SEEK_CUR);
    struct listing *l = at < 0 ? NULL : listing_of(q, number, &f, at == 0, &error);
    size_t room = (size_t)q->notif->data.args[2], used = 0;
    room = room < MOST_BYTES ? room : MOST_BYTES;
    struct fuse_read_in in = {.offset = (uint64_t)at, .size = MOST_BYTES};
    if (l) {
        l->used = ++turn;
        in.fh = l->handle;
        n = ask(f.tree, FUSE_READDIR, f.node, &in, sizeof in, in_bytes, sizeof in_bytes);
        error = n < 0 ? (int)-n : 0;
    }
    if (!l && !error)
        error = EBADF;
    if (!error)
        used = convert_all(out_bytes, room, in_bytes, (size_t)n, old, &at, &error);
    if (!error && used && !bytes_to(q, q->notif->data.args[1], out_bytes, used))
        error = EFAULT;
    if (!error)
        lseek(fd, at, SEEK_SET);
    if (fd >= 0)
        close(fd);
    if (error)
        answer_error(q, error);
    else
        answer_value(q, (int64_t)used);
    return true;
}
