/* Cells: files that hold the state of a keeper on disk (see struct cell). A file stays in place from job to job, so a
 * start costs one write and an end another: no file is created, renamed or removed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "keeper/keeper.h"

static uint32_t crc32(const void *data, size_t size)
{
    uint32_t crc = ~0u;
    for (const unsigned char *p = data; size--; p++) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
    }
    return ~crc;
}

static void cell_name(char name[32], uint32_t cell, const char *suffix)
{
    snprintf(name, 32, "cell.%u%s", cell, suffix);
}

/* Cells of another version are not read: their numbers mean nothing here. */
static bool is_ours(const struct cell *c) { return c->magic == MAGIC && c->version == VERSION; }

/* Whether this run may use the cell. A start is sent again if a fork server dies while it handles it. It may arrive
 * when the run has begun, ended, been forgotten, or been followed by another run in the same cell: numbers only grow.
 * 0: it may; 1: the run was started before. */
static int its_turn(const struct cell *c, uint64_t number, bool locked, const char *name, struct failure *f)
{
    if (is_ours(c) && (c->number > number || (c->number == number && (locked || c->state != CELL_RUNNING))))
        return 1;
    if (is_ours(c) && c->number == number && !c->pid)
        return 0; /* the fork server died before its fork */
    if (is_ours(c) && c->number == number) {
        errno = ECHILD;
        return set_failure(f, "fork", "its keeper died at once");
    }
    if (locked || (is_ours(c) && c->state != CELL_FREE)) {
        errno = EBUSY;
        return set_failure(f, "lock", name);
    }
    return 0;
}

static int fill_cell(int fd, const void *spec, size_t size, uint64_t born_us, int32_t pid, const char *name,
                     struct failure *f)
{
    static char page[CELL_SPEC];
    struct cell *c = (struct cell *)(void *)page;
    const struct start *start = spec;
    *c = (struct cell){.magic = MAGIC,
                       .version = VERSION,
                       .state = CELL_RUNNING,
                       .pid = pid,
                       .born_us = born_us,
                       .number = start->head.number,
                       .started_us = wall_us(),
                       .lease_end_us = start->lease_us ? start->lease_end_us : 0};
    struct iovec parts[2] = {{page, sizeof page}, {(void *)(uintptr_t)spec, size}};
    ssize_t written = pwritev(fd, parts, 2, 0);
    if (written == (ssize_t)(sizeof page + size))
        return 0;
    if (written >= 0)
        errno = ENOSPC;
    set_failure(f, "write", name);
    if (ftruncate(fd, 0) < 0)
        return -1;
    return -1;
}

/* Locks the cell and writes the start message to it. The fork server does it before it forks, and the keeper inherits
 * the lock: when a fork server is gone, every keeper that it started is found by its lock. Returns the file descriptor,
 * -1, or -2 if this run was taken before. */
int cell_take(uint32_t cell, const void *spec, size_t size, struct failure *f)
{
    char name[32];
    struct cell c = {0};
    cell_name(name, cell, "");
    int fd = openat(DIRECTORY, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600), taken = 0;
    if (fd < 0)
        return set_failure(f, "open", name);
    bool locked = flock(fd, LOCK_EX | LOCK_NB) < 0;
    if (pread(fd, &c, sizeof c, 0) != (ssize_t)sizeof c || c.version != VERSION)
        c.magic = 0; /* a node cannot read the number in a cell of another version, and starts again below it */
    taken = its_turn(&c, ((const struct head *)spec)->number, locked, name, f);
    if (taken == 0)
        taken = fill_cell(fd, spec, size, boot_us(), 0, name, f);
    if (taken == 0)
        return fd;
    close(fd);
    return taken > 0 ? -2 : -1;
}

/* The same for a keeper that has waited in the cell. Its node may be gone, and another keeper may use the cell by
 * now. */
int cell_retake(int fd, const void *spec, size_t size, uint64_t born_us, struct failure *f)
{
    struct cell c;
    char name[32];
    cell_name(name, ((const struct head *)spec)->cell, "");
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return set_failure(f, "lock", name);
    if (pread(fd, &c, sizeof c, 0) != (ssize_t)sizeof c || c.number >= ((const struct head *)spec)->number) {
        errno = EBUSY;
        return set_failure(f, "lock", name);
    }
    return fill_cell(fd, spec, size, born_us, settings.keeper, name, f);
}

void cell_leave(int fd) { flock(fd, LOCK_UN); }

int cell_pid(int fd, int32_t pid)
{
    return pwrite(fd, &pid, sizeof pid, offsetof(struct cell, pid)) == sizeof pid ? 0 : -1;
}

/* Overwrites the head of the cell with one call, within the page that was allocated at the start. */
int cell_note(int fd, const struct report *r, uint32_t state)
{
    static char buffer[CELL_SPEC]; /* the members' ends follow the report */
    struct cell *c = (struct cell *)(void *)buffer;
    if (pread(fd, c, sizeof *c, 0) != (ssize_t)sizeof *c)
        return -1;
    c->state = state;
    size_t size = sizeof *c;
    if (r) {
        memcpy(buffer + CELL_REPORT, r, r->head.size);
        c->checksum = crc32(r, r->head.size);
        size = CELL_REPORT + r->head.size;
    }
    return pwrite(fd, buffer, size, 0) == (ssize_t)size ? 0 : -1;
}

void cell_lease(int fd, uint64_t end_us)
{
    uint64_t known;
    if (pread(fd, &known, sizeof known, offsetof(struct cell, lease_end_us)) == sizeof known && known < end_us &&
        pwrite(fd, &end_us, sizeof end_us, offsetof(struct cell, lease_end_us)) < 0)
        return; /* the page is already allocated, so a full disk cannot refuse it */
}

uint64_t cell_lease_end(int fd)
{
    uint64_t known;
    return pread(fd, &known, sizeof known, offsetof(struct cell, lease_end_us)) == sizeof known ? known : 0;
}

bool cell_look(uint32_t cell, struct cell *c, bool held)
{
    char name[32];
    cell_name(name, cell, "");
    int fd = openat(DIRECTORY, name, O_RDONLY | O_CLOEXEC);
    bool ours = fd >= 0 && pread(fd, c, sizeof *c, 0) == (ssize_t)sizeof *c && is_ours(c);
    if (ours && held && (ours = flock(fd, LOCK_EX | LOCK_NB) < 0) == false)
        flock(fd, LOCK_UN);
    if (fd >= 0)
        close(fd);
    return ours;
}

int cell_end_for(uint32_t cell, struct report *r)
{
    char name[32];
    cell_name(name, cell, "");
    int fd = openat(DIRECTORY, name, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -1;
    struct cell c;
    int done = -1;
    if (pread(fd, &c, sizeof c, 0) == (ssize_t)sizeof c) {
        r->head.number = c.number;
        r->started_us = c.started_us;
        r->wall_us = r->ended_us > r->started_us ? r->ended_us - r->started_us : 0;
        if (c.state == CELL_RUNNING)
            done = cell_note(fd, r, CELL_ENDED);
        else
            r->head.verb = GONE;
    }
    close(fd);
    return done;
}

/* The datagram socket of a cell, reached by its name in the directory. The fork server makes it once, and keeper after
 * keeper inherits it, so that no job pays for it. Its name goes through /proc/self/fd because a socket's name has at
 * most 107 bytes. */
int cell_socket(uint32_t cell, struct failure *f)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char file[32];
    cell_name(file, cell, ".socket");
    snprintf(name.sun_path, sizeof name.sun_path, "/proc/self/fd/%d/%s", DIRECTORY, file);
    if (unlinkat(DIRECTORY, file, 0) < 0 && errno != ENOENT)
        return set_failure(f, "unlink", file);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return set_failure(f, "socket", file);
    if (bind(fd, (struct sockaddr *)&name, sizeof name) < 0) {
        set_failure(f, "bind", file);
        close(fd);
        return -1;
    }
    return fd;
}
