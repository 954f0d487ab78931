/* Contents on their way out: what was read of the job already, at once; the rest is planned first, in chunks of many small
 * pieces or of part of a large one, and moved by a crew. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.h"

static int write_at(int fd, const void *data, size_t size, uint64_t place)
{
    for (const char *at = data; size;) {
        ssize_t n = pwrite(fd, at, size, (off_t)place);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? ENOSPC : errno;
            return -1;
        }
        at += n;
        place += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

static struct chunk *last_chunk(struct dump *d) { return (struct chunk *)d->image.chunks.rows + d->image.chunks.count - 1; }

/* `size` is a multiple of the page and at most CHUNK. */
int pages_put(struct dump *d, uint32_t owner, uint32_t file, uint64_t at, const void *data, size_t size)
{
    if (write_at(d->pages, data, size, d->pages_size) < 0)
        return fail(&d->failure, "write", "pages");
    struct chunk *c = table_add(&d->image.chunks);
    *c = (struct chunk){.place = d->pages_size, .size = size, .sum = checksum(data, size)};
    struct extent *e = table_add(&d->image.extents);
    *e = (struct extent){.owner = owner, .file = file, .chunk = d->image.chunks.count - 1, .at = at, .size = size};
    d->pages_size += size;
    d->open = false;
    return 0;
}

void pages_plan(struct dump *d, uint32_t owner, uint64_t start, uint64_t end)
{
    while (start < end) {
        struct chunk *c = d->open ? last_chunk(d) : NULL;
        if (!c || c->size == CHUNK) {
            c = table_add(&d->image.chunks);
            c->place = d->pages_size;
            d->open = true;
        }
        uint64_t size = end - start < CHUNK - c->size ? end - start : CHUNK - c->size;
        struct extent *before = d->image.extents.count ? (struct extent *)d->image.extents.rows + d->image.extents.count - 1 : NULL;
        if (c->size && before && before->owner == owner && before->at + before->size == start) {
            before->size += size;
        } else {
            struct extent *e = table_add(&d->image.extents);
            *e = (struct extent){.owner = owner, .file = NOBODY, .chunk = d->image.chunks.count - 1, .offset = (uint32_t)c->size,
                                 .at = start, .size = size};
        }
        c->size += size;
        d->pages_size += size;
        start += size;
    }
}

/* As a debugger reads, also what the process may not read itself; beyond the end of a file there is nothing. Not by
 * process_vm_readv: it pins what it reads, and the kernel gives a process that shares a page since a fork one of its own first (Linux
 * 5.19), so that to read a frozen copy is to copy the job. */
size_t pages_take(int mem, uint64_t at, void *to, size_t size)
{
    ssize_t n = pread(mem, to, size, (off_t)at);
    return n <= 0 ? 0 : (size_t)n & ~(PAGE - 1);
}

struct moving {
    struct dump *d;
    int mem;
    uint32_t *firsts; /* extent of each unit; its chunk is not shared with another process */
    uint64_t *sums;   /* shared */
};

static int move(void *what, uint32_t unit, char *buffer, struct failure *f)
{
    const struct moving *m = what;
    const struct extent *e = (struct extent *)m->d->image.extents.rows + m->firsts[unit];
    const struct extent *end = (struct extent *)m->d->image.extents.rows + m->d->image.extents.count, *of = e;
    const struct chunk *c = (struct chunk *)m->d->image.chunks.rows + e->chunk;
    for (; e < end && e->chunk == of->chunk; e++)
        for (uint64_t got = 0; got < e->size;) {
            size_t n = pages_take(m->mem, e->at + got, buffer + e->offset + got, e->size - got);
            if (!n) {
                errno = errno ? errno : EFAULT;
                return fail(f, "read", "memory of the job");
            }
            got += n;
        }
    m->sums[unit] = checksum(buffer, c->size);
    return write_at(m->d->pages, buffer, c->size, c->place) < 0 ? fail(f, "write", "pages") : 0;
}

/* The first extents of the chunks that are planned, in their order: they have no sum yet. */
static uint32_t planned(struct dump *d, uint32_t *firsts, uint64_t *bytes)
{
    const struct chunk *chunks = d->image.chunks.rows;
    const struct extent *extents = d->image.extents.rows;
    uint32_t count = 0, at = d->image.extents.count;
    while (at > 0 && extents[at - 1].chunk >= d->moved)
        at--;
    for (uint32_t last = NOBODY; at < d->image.extents.count; at++) {
        if (extents[at].chunk == last || chunks[extents[at].chunk].sum)
            continue;
        last = extents[at].chunk;
        firsts[count++] = at;
        *bytes += chunks[last].size;
    }
    return count;
}

int pages_write(struct dump *d, pid_t from)
{
    char path[64];
    uint64_t bytes = 0;
    size_t most = d->image.chunks.count - d->moved, size = (most + 1) * sizeof(uint64_t);
    snprintf(path, sizeof path, "/proc/%d/mem", from);
    struct moving m = {.d = d, .firsts = malloc((most + 1) * sizeof *m.firsts), .mem = open(path, O_RDONLY | O_CLOEXEC),
                       .sums = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    int done = m.firsts && m.sums != MAP_FAILED && m.mem >= 0 ? 0 : fail(&d->failure, "open", "memory of the job");
    uint32_t units = done ? 0 : planned(d, m.firsts, &bytes);
    if (units)
        done = crew_run(move, &m, units, bytes, d->behind, &d->failure);
    for (uint32_t i = 0; i < units && !done; i++)
        ((struct chunk *)d->image.chunks.rows)[((struct extent *)d->image.extents.rows)[m.firsts[i]].chunk].sum = m.sums[i];
    d->moved = d->image.chunks.count;
    d->open = false;
    if (m.sums != MAP_FAILED)
        munmap(m.sums, size);
    free(m.firsts);
    if (m.mem >= 0)
        close(m.mem);
    return done;
}
