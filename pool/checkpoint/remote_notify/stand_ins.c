/* Stand-ins: local copies of remote files while the job has them open. Writing to one needs no supervisor. Its
 * modification time shows a change: it is set to a mark when the contents equal the submit side's. The sums of its
 * blocks show what was changed. So processes that change different blocks of a file do not undo each other's changes,
 * and appended data goes to the current end of the file on the submit side. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "remote_notify/parts.h"

#define MARK 1 /* the modification time of an unchanged stand-in, seconds */
#define KEPT_NS 5000000000u /* time to keep it after the last process has closed it */
#define MANY 64 /* more that no process has open are not kept */

static uint8_t piece[PIECE];

static uint64_t sum_of(const uint8_t *data, size_t size)
{
    uint64_t a = 0x9E3779B97F4A7C15u ^ size, b = 0xC2B2AE3D27D4EB4Fu, w[2];
    for (; size >= 16; data += 16, size -= 16) {
        memcpy(w, data, 16);
        a = (a ^ w[0]) * 0xff51afd7ed558ccdu;
        b = (b ^ w[1]) * 0xc4ceb9fe1a85ec53u;
        a ^= a >> 32;
        b ^= b >> 29;
    }
    uint8_t rest[16] = {0};
    memcpy(rest, data, size);
    memcpy(w, rest, 16);
    a = ((a ^ w[0]) * 0xff51afd7ed558ccdu ^ (b ^ w[1])) * 0x9E3779B97F4A7C15u;
    a ^= a >> 32;
    a *= 0xc4ceb9fe1a85ec53u;
    return a ^ a >> 29 ? a ^ a >> 29 : 1;
}

struct stand_in *stand_find(uint32_t tree, uint64_t node)
{
    struct stand_in *s = notifier->stands;
    while (s && (s->node != node || s->tree != tree))
        s = s->next;
    return s;
}

static void mark_unchanged(struct stand_in *s)
{
    const struct timespec at[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = MARK}};
    futimens(s->fd, at);
}

static void has_size(struct stand_in *s, uint64_t size)
{
    size_t blocks = (size_t)((size + BLOCK - 1) / BLOCK);
    if (blocks > s->blocks) {
        s->sums = realloc(s->sums, blocks * sizeof *s->sums);
        if (!s->sums)
            _exit(1);
        memset(s->sums + s->blocks, 0, (blocks - s->blocks) * sizeof *s->sums);
    } else if (blocks < s->blocks) {
        memset(s->sums + blocks, 0, (s->blocks - blocks) * sizeof *s->sums);
    }
    s->blocks = blocks > s->blocks ? blocks : s->blocks;
    if (size < s->size && size % BLOCK)
        s->sums[blocks - 1] = 0;
    s->size = size;
}

/* NULL with errno: no room on this machine. */
struct stand_in *stand_of(uint32_t tree, uint64_t node, uint64_t size)
{
    struct stat st;
    struct stand_in *s = stand_find(tree, node);
    if (s) {
        s->used = monotonic_ns();
        return s;
    }
    const char *scratch = notifier->job->start->flags & FLAG_FIXED ? "/job" : notifier->job->scratch;
    int fd = *scratch ? open(scratch, O_TMPFILE | O_RDWR | O_CLOEXEC, 0700) : -1;
    if (fd < 0)
        fd = memfd_create("stand-in", MFD_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || ftruncate(fd, (off_t)size) < 0 || !(s = calloc(1, sizeof *s))) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    *s = (struct stand_in){.tree = tree,
                           .node = node,
                           .fd = fd,
                           .device = st.st_dev,
                           .inode = st.st_ino,
                           .next = notifier->stands,
                           .used = monotonic_ns()};
    notifier->stands = s;
    has_size(s, size);
    s->whole = size == 0;
    mark_unchanged(s);
    return s;
}

/* The stand-in at a process's file descriptor; NULL: it is not one. */
struct stand_in *stand_at(pid_t tid, int number)
{
    char path[64];
    struct stat st;
    if (!notifier->stands || number < 0)
        return NULL;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", tid, number);
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return NULL;
    struct stand_in *s = notifier->stands;
    while (s && (s->inode != st.st_ino || s->device != st.st_dev))
        s = s->next;
    return s;
}

bool stand_writable(const struct stand_in *s) { return s->writer || s->appender; }

/* Fetches blocks that are missing here. */
static int fetch_piece(struct stand_in *s, uint64_t at, uint32_t size)
{
    struct fuse_read_in in = {.fh = s->reader ? s->reader : s->writer, .offset = at, .size = size};
    ssize_t n = ask(s->tree, FUSE_READ, s->node, &in, sizeof in, piece, PIECE);
    if (n < 0)
        return (int)-n;
    memset(piece + n, 0, size - (size_t)n); /* the file was truncated in the meantime */
    if (pwrite(s->fd, piece, size, (off_t)at) != (ssize_t)size)
        return errno ? errno : ENOSPC;
    for (uint32_t done = 0; done < size; done += BLOCK)
        s->sums[(at + done) / BLOCK] = sum_of(piece + done, size - done < BLOCK ? size - done : BLOCK);
    s->filled = true;
    return 0;
}

/* Returns an errno. The file must not be open for writing, or must have been sent. */
int stand_fetch(struct stand_in *s, uint64_t from, uint64_t to)
{
    int error = 0;
    to = to < s->size ? to : s->size;
    for (uint64_t at = from / BLOCK * BLOCK; at < to && !error;) {
        uint64_t size = 0;
        while (at + size < to && size < PIECE && !s->sums[(at + size) / BLOCK])
            size += BLOCK;
        if (size)
            error = fetch_piece(s, at, (uint32_t)(at + size > s->size ? s->size - at : size));
        at += size ? size : BLOCK;
    }
    if (s->filled && !stand_writable(s)) {
        mark_unchanged(s);
        s->filled = false;
    }
    return error;
}

int stand_whole(struct stand_in *s)
{
    int error = s->whole ? 0 : stand_writable(s) ? stand_send(s) : 0;
    if (!error && !s->whole)
        error = stand_fetch(s, 0, s->size);
    s->whole |= !error;
    return error;
}

static int send_run(struct stand_in *s, uint64_t handle, const uint8_t *data, uint64_t at, uint32_t size)
{
    struct fuse_write_in in = {.fh = handle, .offset = at, .size = size};
    struct fuse_write_out out = {0};
    struct iovec parts[3] = {{0}, {&in, sizeof in}, {(void *)(uintptr_t)data, size}};
    ssize_t n = ask_parts(s->tree, FUSE_WRITE, s->node, parts, 3, &out, sizeof out);
    return n < 0 ? (int)-n : out.size != size ? ENOSPC : 0;
}

/* Whether a block differs; its sum is updated, except for a block whose beginning, before `from`, was never fetched. */
static bool differs(struct stand_in *s, const uint8_t *data, uint64_t at, uint32_t size, uint64_t from)
{
    uint64_t *sum = &s->sums[at / BLOCK], is = sum_of(data, size);
    if (*sum == is)
        return false;
    if (*sum || at >= from)
        *sum = is;
    return true;
}

/* Sends the changed blocks of a piece, adjoining ones together; nothing before `from`. */
static int send_piece(struct stand_in *s, uint64_t handle, uint64_t at, uint32_t size, uint64_t from, bool *sent)
{
    int error = 0;
    for (uint32_t done = 0; done < size && !error;) {
        uint32_t end = done, part;
        while (end < size &&
               (part = size - end < BLOCK ? size - end : BLOCK, differs(s, piece + end, at + end, part, from)))
            end += part;
        if (end == done) {
            done += BLOCK;
            continue;
        }
        done = at + done < from ? (uint32_t)(from - at) : done;
        if (done < end)
            error = send_run(s, handle, piece + done, at + done, end - done);
        *sent = true;
        done = end;
    }
    return error;
}

static int flush_handle(struct stand_in *s, uint64_t handle)
{
    struct fuse_flush_in in = {.fh = handle};
    ssize_t n = ask(s->tree, FUSE_FLUSH, s->node, &in, sizeof in, NULL, 0);
    return n < 0 ? (int)-n : 0;
}

static int cut_remote(struct stand_in *s, uint64_t handle, uint64_t size)
{
    struct fuse_setattr_in in = {.valid = FATTR_SIZE | (handle ? FATTR_FH : 0), .fh = handle, .size = size};
    return set_attr_of(s->tree, s->node, &in);
}

static int send_all(struct stand_in *s, uint64_t size, bool *sent)
{
    bool adds = !s->plain && !s->mapped;
    uint64_t handle = adds || !s->writer ? s->appender : s->writer, from = adds ? s->size : 0, end = s->size;
    int error = 0;
    if (size < s->size) {
        error = cut_remote(s, handle, size);
        if (!error)
            has_size(s, size);
        from = from < size ? from : size;
        end = size;
        *sent = true;
    }
    has_size(s, size);
    s->size = end;
    for (uint64_t at = from / BLOCK * BLOCK; at < size && !error;) {
        if (at >= end) { /* skips holes: the submit side makes them too */
            off_t data = lseek(s->fd, (off_t)at, SEEK_DATA);
            if (data < 0 && errno == ENXIO)
                break;
            at = data > (off_t)at ? (uint64_t)data / BLOCK * BLOCK : at;
        }
        ssize_t n = pread(s->fd, piece, PIECE, (off_t)at);
        if (n <= 0)
            break;
        uint32_t part = at + (uint64_t)n > size ? (uint32_t)(size - at) : (uint32_t)n;
        error = send_piece(s, handle, at, part, from, sent);
        at += part;
        end = at > end && !error ? at : end;
    }
    if (!error && end < size) {
        error = cut_remote(s, handle, size);
        *sent = true;
    }
    s->size = error ? end : size;
    int late = *sent ? flush_handle(s, handle) : 0;
    return error ? error : late;
}

static void send_time(struct stand_in *s)
{
    struct fuse_setattr_in in = {
        .valid = FATTR_MTIME, .mtime = (uint64_t)s->changed.tv_sec, .mtimensec = (uint32_t)s->changed.tv_nsec};
    set_attr_of(s->tree, s->node, &in);
}

/* Returns an errno, once; data that could not be sent is sent again the next time. */
int stand_send(struct stand_in *s)
{
    struct stat st;
    bool sent = false;
    int before = s->error;
    s->error = 0;
    if (!stand_writable(s) || fstat(s->fd, &st) < 0)
        return before;
    bool touched = st.st_mtim.tv_sec != MARK || st.st_mtim.tv_nsec;
    if (!touched && !s->mapped)
        return before;
    s->changed = st.st_mtim;
    if (!touched)
        clock_gettime(CLOCK_REALTIME, &s->changed);
    mark_unchanged(s); /* before reading: later writes change the time again */
    fstat(s->fd, &st);
    int error = send_all(s, (uint64_t)st.st_size, &sent);
    if (error) {
        size_t kept = s->whole ? 0 : (size_t)(s->size / BLOCK);
        memset(s->sums + kept, 0, (s->blocks - kept) * sizeof *s->sums);
        const struct timespec again[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
        futimens(s->fd, again);
    } else if (sent) {
        send_time(s);
    }
    if (sent)
        names_changed();
    s->filled = false;
    return error ? error : before;
}

/* The next close of a stand-in reports its error. */
int stands_send(void)
{
    int error = 0;
    for (struct stand_in *s = notifier->stands; s; s = s->next) {
        s->error = stand_send(s);
        error = error ? error : s->error;
    }
    return error;
}

/* Called before a file descriptor gets an unknown number: then no file may remain that is fetched on demand. */
int stands_whole(void)
{
    int error = 0;
    for (struct stand_in *s = notifier->stands; s && !error; s = s->next)
        error = s->whole || !s->reader || stand_writable(s) ? 0 : stand_whole(s);
    return error;
}

/* Truncates or extends the file, on the submit side and here. */
int stand_cut(struct stand_in *s, uint64_t size)
{
    int error = size ? stand_whole(s) : 0;
    if (!error && size)
        error = stand_send(s);
    if (!error)
        error = cut_remote(s, s->writer ? s->writer : s->appender, size);
    if (!error)
        stand_emptied(s, size);
    return error;
}

void stand_emptied(struct stand_in *s, uint64_t size)
{
    if (ftruncate(s->fd, (off_t)size) < 0)
        s->error = errno;
    has_size(s, size);
    s->whole |= !size;
    mark_unchanged(s);
}

/* The attributes as the job should see them, with writes that were not sent yet. */
void stand_shown(struct stand_in *s, struct fuse_attr *a)
{
    struct stat st;
    if (!stand_writable(s) || fstat(s->fd, &st) < 0)
        return;
    a->size = (uint64_t)st.st_size;
    if (st.st_mtim.tv_sec == MARK && !st.st_mtim.tv_nsec)
        return;
    a->mtime = (uint64_t)st.st_mtim.tv_sec;
    a->mtimensec = (uint32_t)st.st_mtim.tv_nsec;
    a->blocks = (uint64_t)st.st_blocks;
}

static void let_go(struct stand_in *s, uint64_t handle)
{
    struct fuse_release_in in = {.fh = handle};
    if (handle)
        ask(s->tree, FUSE_RELEASE, s->node, &in, sizeof in, NULL, 0);
}

/* A write lease is granted only if no other process has the file open (fcntl(2), F_SETLEASE). */
static bool open_elsewhere(const struct stand_in *s)
{
    if (fcntl(s->fd, F_SETLEASE, F_WRLCK) < 0)
        return true;
    fcntl(s->fd, F_SETLEASE, F_UNLCK);
    return false;
}

void stands_sweep(bool all)
{
    size_t count = 0;
    for (struct stand_in **at = &notifier->stands; *at;) {
        struct stand_in *s = *at;
        if (!all && ((s->used + KEPT_NS > monotonic_ns() && ++count < MANY) || open_elsewhere(s) || stand_send(s))) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        let_go(s, s->reader);
        let_go(s, s->writer);
        let_go(s, s->appender);
        close(s->fd);
        free(s->sums);
        free(s);
    }
}
