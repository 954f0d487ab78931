/* Writes the memory that image/writer.c has planned: the frozen copy writes it itself (self_writer.c), or several
 * processes read it from the copy. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dump/self_writer.h"

/* Reads memory as a debugger does, also pages that the process may not read itself; beyond the end of a file there are
 * none. It does not use process_vm_readv, which pins the pages: the kernel gives a process that shares a page since a
 * fork its own copy first (Linux 5.19), so reading a frozen copy would copy the job. */
size_t pages_take(int mem, uint64_t at, void *to, size_t size)
{
    ssize_t n = pread(mem, to, size, (off_t)at);
    return n <= 0 ? 0 : (size_t)n & ~(PAGE - 1);
}

struct moving {
    struct write_job *write_job; /* shared; its units alternate between both files */
    uint32_t *chunks; /* chunk index of each unit */
    size_t size;
    int mem; /* file descriptor of the process's memory */
    const int *files;
};

static void fill_write_job(struct dump *d, struct moving *m, const uint32_t *firsts, uint32_t units, bool large)
{
    struct chunk *chunks = d->image.chunks.rows;
    const struct extent *extents = d->image.extents.rows, *end = extents + d->image.extents.count;
    uint32_t half = d->out.more >= 0 && large ? (units + 1) / 2 : units, parts = 0;
    for (uint32_t i = 0; i < units; i++)
        writer_place(&d->out, &chunks[extents[firsts[i]].chunk], i >= half);
    for (uint32_t i = 0; i < units; i++) {
        bool second = half < units && i % 2;
        const struct extent *e = extents + firsts[half == units ? i : i / 2 + (second ? half : 0)];
        const struct chunk *c = &chunks[m->chunks[i] = e->chunk];
        struct unit *u = UNITS(m->write_job) + i;
        *u = (struct unit){.place = c->place, .size = c->size, .first = parts, .file = second};
        for (; e < end && e->chunk == m->chunks[i]; e++)
            PARTS(m->write_job)[parts++] = (struct slice){e->at, e->size};
        u->count = parts - u->first;
    }
}

static int move_unit(void *what, uint32_t unit, char *buffer, struct failure *f)
{
    const struct moving *m = what;
    struct unit *u = UNITS(m->write_job) + unit;
    if (__atomic_load_n(&u->state, __ATOMIC_ACQUIRE) == UNIT_DONE)
        return 0;
    /* if a self-writer has taken it too, it writes the same bytes to the same place */
    __atomic_store_n(&u->state, UNIT_TAKEN, __ATOMIC_RELAXED);
    const struct slice *p = PARTS(m->write_job) + u->first, *last = p + u->count;
    for (char *to = buffer; p < last; p++)
        for (uint64_t got = 0; got < p->size;) {
            size_t n = pages_take(m->mem, p->at + got, to, p->size - got);
            if (!n) {
                errno = errno ? errno : EFAULT;
                return set_failure(f, "read", "memory of the job");
            }
            got += n;
            to += n;
        }
    if (write_at(m->files[u->file], buffer, u->size, u->place) < 0)
        return set_failure(f, "write", "pages");
    u->sum = checksum(buffer, u->size);
    __atomic_store_n(&u->state, UNIT_DONE, __ATOMIC_RELEASE);
    return 0;
}

static bool all_done(const struct write_job *e)
{
    for (uint32_t i = 0; i < e->units; i++)
        if (__atomic_load_n(&UNITS(e)[i].state, __ATOMIC_ACQUIRE) != UNIT_DONE)
            return false;
    return true;
}

/* The copy writes in the idle class. Units that it cannot write, or has not written after ten times the usual time, are
 * written by others. */
static int move_all(struct dump *d, struct dumped_process *s, struct moving *m, uint64_t bytes)
{
    bool by_self = s->self_writer && m->write_job == s->self_writer->write_job && self_writer_run(s);
    if (by_self)
        self_writer_await(s->self_writer, bytes / SLOWEST);
    return all_done(m->write_job)
               ? 0
               : workers_run(move_unit, m, m->write_job->units, by_self ? 0 : bytes, d->background, &d->failure);
}

/* Uses the memory shared with the self-writers if they write it. */
static struct write_job *new_write_job(const struct dumped_process *s, struct moving *m, uint32_t units, uint32_t parts,
                                       bool large)
{
    uint64_t units_at = sizeof(struct write_job), parts_at = units_at + units * sizeof(struct unit);
    m->size = parts_at + parts * sizeof(struct slice);
    struct write_job *e =
        large && s->self_writer && m->size <= s->self_writer->size ? s->self_writer->write_job : MAP_FAILED;
    if (e == MAP_FAILED)
        e = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (e != MAP_FAILED)
        *e = (struct write_job){.units = units, .units_at = units_at, .parts_at = parts_at};
    return e == MAP_FAILED ? NULL : e;
}

static int write_planned(struct dump *d, struct dumped_process *s, struct moving *m, const uint32_t *firsts,
                         uint32_t units, uint32_t parts, uint64_t bytes)
{
    char name[SOURCE_NAME];
    bool large = bytes >= MUCH;
    if (large && d->out.more < 0)
        d->out.more = openat(d->out.directory, source_name(name, MORE), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const int files[WRITERS] = {d->out.pages, d->out.more};
    m->files = files;
    m->write_job = new_write_job(s, m, units, parts, large && d->background);
    if (!m->write_job)
        return set_failure(&d->failure, "mmap", "a list of memory");
    fill_write_job(d, m, firsts, units, large);
    int done = move_all(d, s, m, bytes);
    for (uint32_t i = 0; i < units && !done; i++)
        ((struct chunk *)d->image.chunks.rows)[m->chunks[i]].sum = UNITS(m->write_job)[i].sum;
    if (s->self_writer && m->write_job == s->self_writer->write_job)
        self_writer_end(d, s);
    else
        munmap(m->write_job, m->size);
    return done;
}

int pages_write(struct dump *d, struct dumped_process *s, pid_t from)
{
    char path[64];
    uint64_t bytes = 0;
    uint32_t parts = 0;
    size_t most = d->image.chunks.count - d->out.moved + 1ul;
    snprintf(path, sizeof path, "/proc/%d/mem", from);
    uint32_t *firsts = malloc(most * sizeof *firsts);
    struct moving m = {.chunks = malloc(most * sizeof *m.chunks), .mem = open(path, O_RDONLY | O_CLOEXEC)};
    int done = firsts && m.chunks && m.mem >= 0 ? 0 : set_failure(&d->failure, "open", "memory of the job");
    uint32_t units = done ? 0 : writer_planned(&d->out, firsts, &bytes, &parts);
    if (units)
        done = write_planned(d, s, &m, firsts, units, parts, bytes);
    d->out.moved = d->image.chunks.count;
    d->out.open = false;
    free(m.chunks);
    free(firsts);
    if (m.mem >= 0)
        close(m.mem);
    return done;
}
