/* A log: stores the bytes between a writer and its readers if the kernel's buffer may be too small, or there are
 * several readers. Each reader has its own position and gets everything. The newest bytes are in a ring in memory.
 * Older bytes that a reader still needs go to a file without a name in the job's scratch directory, at the offset of
 * their position; the disk space is freed when all have read them. The limit of a log grows when a process would
 * otherwise wait for ever (deadlock.c), as Parks bounds process networks (1995), up to the bound of the job
 * description. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mapped_files/parts.h"
#include "sandbox/sandbox.h"

#define PIECE 65536u
#define ROUNDS 64 /* then other logs get their turn */

static uint64_t slowest(const struct log *l)
{
    uint64_t at = l->end;
    for (uint32_t i = 0; i < l->count; i++)
        if (l->outlets[i].fd >= 0 && l->outlets[i].sent < at)
            at = l->outlets[i].sent;
    return at;
}

uint64_t log_held(const struct log *l) { return l->end - slowest(l); }

bool log_full(const struct log *l) { return l->fd >= 0 && (l->full_disk || log_held(l) >= l->limit); }

int log_spool(const struct job *job)
{
    char name[4096];
    const char *directory = scratch_path(job);
    if (!*directory)
        directory = "/tmp";
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || errno == ENOENT)
        return fd;
    snprintf(name, sizeof name, "%.4000s/.pipe.XXXXXX", directory);
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    return fd;
}

/* Makes room in a full ring: drops bytes that all have read, else moves the oldest to disk. */
static bool make_room(struct log *l)
{
    uint64_t read_by_all = slowest(l), from = l->kept;
    if (read_by_all > l->kept) {
        l->kept = read_by_all;
        return true;
    }
    if (l->spool < 0 && (l->spool = log_spool(over->job)) < 0)
        return false;
    for (size_t done = 0; done < PIECE;) { /* the ring's length is a multiple of PIECE */
        ssize_t n =
            pwrite(l->spool, l->ring + (from + done) % RING, PIECE - (from + done) % PIECE, (off_t)(from + done));
        if (n <= 0)
            return done > 0 && (l->kept += done, true);
        done += (size_t)n;
        if ((from + done) % PIECE == 0)
            break;
    }
    l->kept = from + (PIECE - from % PIECE);
    return true;
}

/* Frees disk space of bytes that all have read. */
static void trim(struct log *l)
{
    uint64_t at = slowest(l);
    if (l->spool < 0)
        return;
    if (at >= l->kept)
        at = l->kept;
    if (at - l->punched < 4u << 20 && !(at == l->kept && at > l->punched))
        return;
    uint64_t from = l->punched & ~(uint64_t)4095;
    if (fallocate(l->spool, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(at - from)) < 0) {
        /* a file system without holes: the file is truncated when none of its bytes is needed */
        if (at == l->kept && ftruncate(l->spool, 0) < 0)
            return;
    }
    l->punched = at;
    l->full_disk = false;
}

static bool take_in(struct log *l)
{
    if (l->fd < 0 || log_held(l) >= l->limit)
        return false;
    if (l->end - l->kept == RING && !make_room(l)) {
        l->full_disk = true;
        return false;
    }
    size_t at = l->end % RING, room = RING - (size_t)(l->end - l->kept), part = RING - at < room ? RING - at : room;
    ssize_t n = read(l->fd, l->ring + at, part);
    if (n < 0)
        return errno == EINTR;
    if (n == 0) {
        close(l->fd);
        l->fd = -1;
        return true;
    }
    l->end += (uint64_t)n;
    return true;
}

static void stop_outlet(struct outlet *o)
{
    close(o->fd);
    o->fd = -1;
}

static bool give_out(struct log *l, struct outlet *o)
{
    static char piece[PIECE];
    if (o->fd < 0)
        return false;
    if (o->sent == l->end) {
        if (l->fd < 0)
            stop_outlet(o);
        return false;
    }
    const char *from = l->ring + o->sent % RING;
    uint64_t part = l->end - o->sent;
    if (o->sent < l->kept) {
        part = l->kept - o->sent < PIECE ? l->kept - o->sent : PIECE;
        ssize_t n = pread(l->spool, piece, part, (off_t)o->sent);
        if (n <= 0) {
            accuse(NO_MEMBER, "the data of a mapped pipe cannot be read back from the disk");
            return false;
        }
        from = piece;
        part = (uint64_t)n;
    } else if (part > RING - o->sent % RING) {
        part = RING - o->sent % RING;
    }
    ssize_t n = write(o->fd, from, part < 4 * PIECE ? part : 4 * PIECE);
    if (n > 0) {
        o->sent += (uint64_t)n;
        return true;
    }
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        stop_outlet(o); /* its reader is gone; the others continue */
    return n < 0 && errno == EINTR;
}

static bool read_by_somebody(const struct log *l)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->outlets[i].fd >= 0)
            return true;
    return false;
}

/* No reader is left: notifies the writer as a pipe does. */
static void drop_log(struct log *l)
{
    if (l->fd >= 0)
        shut_reading_end(l->writer, l->fd);
    l->fd = -1;
    if (l->spool >= 0)
        close(l->spool);
    l->spool = -1;
}

void log_pump(struct log *l)
{
    bool moved = true;
    for (int round = 0; moved && round < ROUNDS; round++) {
        moved = take_in(l);
        for (uint32_t i = 0; i < l->count; i++)
            moved |= give_out(l, &l->outlets[i]);
    }
    trim(l);
    if (!read_by_somebody(l))
        drop_log(l);
}

void log_gone(struct log *l, uint32_t outlet)
{
    if (l->outlets[outlet].fd >= 0)
        stop_outlet(&l->outlets[outlet]);
}
