/* Contents on their way out: what was read of the job already, at once; the rest is planned first, in chunks of many small
 * pieces or of part of a large one, and moved by a crew. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dump/self_writer.h"

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

/* The first extents of the chunks that are planned, in their order: they have no sum yet. */
static uint32_t planned(struct dump *d, uint32_t *firsts, uint64_t *bytes, uint32_t *parts)
{
    const struct chunk *chunks = d->image.chunks.rows;
    const struct extent *extents = d->image.extents.rows;
    uint32_t count = 0, at = d->image.extents.count;
    while (at > 0 && extents[at - 1].chunk >= d->moved)
        at--;
    for (uint32_t last = NOBODY; at < d->image.extents.count; at++) {
        if (chunks[extents[at].chunk].sum)
            continue;
        ++*parts;
        if (extents[at].chunk == last)
            continue;
        last = extents[at].chunk;
        firsts[count++] = at;
        *bytes += chunks[last].size;
    }
    return count;
}

/* Where a chunk comes; the second half of many into a file of its own. */
static void place(struct dump *d, struct chunk *c, bool second)
{
    uint64_t *end = second ? &d->more_size : &d->pages_size;
    c->source = second ? MORE : 0;
    c->place = *end;
    *end += c->size;
}

struct moving {
    struct errand *errand; /* shared; its units are in both files by turns */
    uint32_t *chunks;      /* of the units */
    size_t size;
    int mem;               /* descriptor of the process's memory */
    const int *files;
};

static void fill(struct dump *d, struct moving *m, const uint32_t *firsts, uint32_t units, bool large)
{
    struct chunk *chunks = d->image.chunks.rows;
    const struct extent *extents = d->image.extents.rows, *end = extents + d->image.extents.count;
    uint32_t half = d->more >= 0 && large ? (units + 1) / 2 : units, parts = 0;
    for (uint32_t i = 0; i < units; i++)
        place(d, &chunks[extents[firsts[i]].chunk], i >= half);
    for (uint32_t i = 0; i < units; i++) {
        bool second = half < units && i % 2;
        const struct extent *e = extents + firsts[half == units ? i : i / 2 + (second ? half : 0)];
        const struct chunk *c = &chunks[m->chunks[i] = e->chunk];
        struct unit *u = UNITS(m->errand) + i;
        *u = (struct unit){.place = c->place, .size = c->size, .first = parts, .file = second};
        for (; e < end && e->chunk == m->chunks[i]; e++)
            PARTS(m->errand)[parts++] = (struct slice){e->at, e->size};
        u->count = parts - u->first;
    }
}

static int move(void *what, uint32_t unit, char *buffer, struct failure *f)
{
    const struct moving *m = what;
    struct unit *u = UNITS(m->errand) + unit;
    if (__atomic_load_n(&u->state, __ATOMIC_ACQUIRE) == UNIT_DONE)
        return 0;
    __atomic_store_n(&u->state, UNIT_TAKEN, __ATOMIC_RELAXED); /* whose hands have it write the same there */
    const struct slice *p = PARTS(m->errand) + u->first, *last = p + u->count;
    for (char *to = buffer; p < last; p++)
        for (uint64_t got = 0; got < p->size;) {
            size_t n = pages_take(m->mem, p->at + got, to, p->size - got);
            if (!n) {
                errno = errno ? errno : EFAULT;
                return fail(f, "read", "memory of the job");
            }
            got += n;
            to += n;
        }
    if (write_at(m->files[u->file], buffer, u->size, u->place) < 0)
        return fail(f, "write", "pages");
    u->sum = checksum(buffer, u->size);
    __atomic_store_n(&u->state, UNIT_DONE, __ATOMIC_RELEASE);
    return 0;
}

static bool all_done(const struct errand *e)
{
    for (uint32_t i = 0; i < e->units; i++)
        if (__atomic_load_n(&UNITS(e)[i].state, __ATOMIC_ACQUIRE) != UNIT_DONE)
            return false;
    return true;
}

/* By the copy itself, in the idle class; what it cannot, or has not after ten times as long as it takes, by others. */
static int move_all(struct dump *d, struct subject *s, struct moving *m, uint64_t bytes)
{
    bool by_hand = s->hands && m->errand == s->hands->errand && hands_run(s);
    if (by_hand)
        hands_await(s->hands, bytes / SLOWEST);
    return all_done(m->errand) ? 0 : crew_run(move, m, m->errand->units, by_hand ? 0 : bytes, d->behind, &d->failure);
}

/* In the memory that the hands share where it is to be written by them. */
static struct errand *new_errand(const struct subject *s, struct moving *m, uint32_t units, uint32_t parts, bool large)
{
    uint64_t units_at = sizeof(struct errand), parts_at = units_at + units * sizeof(struct unit);
    m->size = parts_at + parts * sizeof(struct slice);
    struct errand *e = large && s->hands && m->size <= s->hands->size ? s->hands->errand : MAP_FAILED;
    if (e == MAP_FAILED)
        e = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (e != MAP_FAILED)
        *e = (struct errand){.units = units, .units_at = units_at, .parts_at = parts_at};
    return e == MAP_FAILED ? NULL : e;
}

static int write_planned(struct dump *d, struct subject *s, struct moving *m, const uint32_t *firsts, uint32_t units, uint32_t parts,
                         uint64_t bytes)
{
    char name[SOURCE_NAME];
    bool large = bytes >= MUCH;
    if (large && d->more < 0)
        d->more = openat(d->directory, source_name(name, MORE), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const int files[HANDS] = {d->pages, d->more};
    m->files = files;
    m->errand = new_errand(s, m, units, parts, large && d->behind);
    if (!m->errand)
        return fail(&d->failure, "mmap", "a list of memory");
    fill(d, m, firsts, units, large);
    int done = move_all(d, s, m, bytes);
    for (uint32_t i = 0; i < units && !done; i++)
        ((struct chunk *)d->image.chunks.rows)[m->chunks[i]].sum = UNITS(m->errand)[i].sum;
    if (s->hands && m->errand == s->hands->errand)
        hands_end(d, s);
    else
        munmap(m->errand, m->size);
    return done;
}

int pages_write(struct dump *d, struct subject *s, pid_t from)
{
    char path[64];
    uint64_t bytes = 0;
    uint32_t parts = 0;
    size_t most = d->image.chunks.count - d->moved + 1ul;
    snprintf(path, sizeof path, "/proc/%d/mem", from);
    uint32_t *firsts = malloc(most * sizeof *firsts);
    struct moving m = {.chunks = malloc(most * sizeof *m.chunks), .mem = open(path, O_RDONLY | O_CLOEXEC)};
    int done = firsts && m.chunks && m.mem >= 0 ? 0 : fail(&d->failure, "open", "memory of the job");
    uint32_t units = done ? 0 : planned(d, firsts, &bytes, &parts);
    if (units)
        done = write_planned(d, s, &m, firsts, units, parts, bytes);
    d->moved = d->image.chunks.count;
    d->open = false;
    free(m.chunks);
    free(firsts);
    if (m.mem >= 0)
        close(m.mem);
    return done;
}
