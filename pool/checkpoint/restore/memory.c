/* Restores the contents of memory: reads and checks a chunk at a time, and writes it to its place. Large amounts are
 * written by several processes. become.c calls it for each process. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "restore/parts.h"

#define PIECES 256
#define WORTH (16 * PAGE) /* size of an area from which on a userfaultfd is used */

static int damaged(struct failure *f)
{
    return set_failure(f, "read", errno == EBADMSG ? "pages\nit is damaged: a checksum does not fit" : "pages");
}

/* The area of a process that contains an address. The areas of one process are sorted by address; in an image where
 * they are not, some are not found, and the job crashes. */
static uint32_t area_at(const struct image *image, uint32_t owner, uint64_t at)
{
    const struct area *areas = image->areas.rows;
    uint32_t low = 0, high = image->areas.count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (areas[middle].owner < owner || (areas[middle].owner == owner && areas[middle].end <= at))
            low = middle + 1;
        else
            high = middle;
    }
    return low < image->areas.count && areas[low].owner == owner && areas[low].start <= at ? low : NOBODY;
}

int areas_filled(struct restoring *r, struct failure *f)
{
    r->filled = calloc(r->image->areas.count + 1ul, sizeof *r->filled);
    if (!r->filled)
        return set_failure(f, "malloc", "tables");
    EACH(r->image, extents, extent, e) {
        if (e->file != NOBODY)
            continue;
        for (uint64_t at = e->at, end = e->at + e->size; at < end;) {
            uint32_t area = area_at(r->image, e->owner, at);
            uint64_t until = area == NOBODY ? end : ((struct area *)r->image->areas.rows)[area].end;
            until = until < end ? until : end;
            if (area != NOBODY)
                r->filled[area] += until - at;
            at = until;
        }
    }
    return 0;
}

struct filling {
    struct restoring *r;
    uint32_t row;
    pid_t into;
    int faults; /* userfaultfd of `into`, or -1 */
    bool *given; /* for each area: its pages are supplied by userfaultfd, not written */
    uint32_t *first; /* first extent of each unit */
};

struct piece {
    const char *contents;
    uint64_t at, size;
};

struct batch { /* pieces written with one call */
    struct iovec here[PIECES], there[PIECES];
    size_t count, size;
};

/* The image's vdso bytes are only compared, not written. */
static bool is_wanted(const struct filling *w, const struct extent *e)
{
    if (e->file != NOBODY || e->owner != w->row)
        return false;
    uint32_t area = area_at(w->r->image, e->owner, e->at);
    return area == NOBODY || ((struct area *)w->r->image->areas.rows)[area].kind != AREA_VDSO;
}

static int write_batch(const struct filling *w, struct batch *b, struct failure *f)
{
    errno = EFAULT;
    if (b->count && process_vm_writev(w->into, b->here, b->count, b->there, b->count, 0) != (ssize_t)b->size)
        return set_failure(f, "write", "memory of the job");
    b->count = b->size = 0;
    return 0;
}

/* Overwrites pages that are present already; no image made here contains a page twice. */
static int give_pages(const struct filling *w, const struct piece *p, struct failure *f)
{
    for (uint64_t done = 0;
         (done += userfault_copy(w->faults, p->at + done, p->contents + done, p->size - done)) < p->size; done += PAGE)
        if (errno != EEXIST || tracee_write(w->into, p->at + done, p->contents + done, PAGE) < 0)
            return set_failure(f, "write", "memory of the job");
    return 0;
}

static int put_piece(const struct filling *w, const struct piece *p, bool given, struct batch *b, struct failure *f)
{
    if (!p->size)
        return 0;
    if (given)
        return give_pages(w, p, f);
    b->here[b->count] = (struct iovec){(void *)(uintptr_t)p->contents, p->size};
    b->there[b->count++] = (struct iovec){(void *)(uintptr_t)p->at, p->size};
    b->size += p->size;
    return b->count == PIECES ? write_batch(w, b, f) : 0;
}

/* Writes all extents of the process in a chunk; adjoining ones are written as one. */
static int fill_from(const struct filling *w, uint32_t first, const char *contents, struct failure *f)
{
    const struct image *image = w->r->image;
    const struct area *areas = image->areas.rows;
    const struct extent *e = (struct extent *)image->extents.rows + first,
                        *end = (struct extent *)image->extents.rows + image->extents.count;
    uint32_t chunk = e->chunk;
    struct batch b = {.count = 0};
    struct piece p = {.size = 0};
    uint32_t in = NOBODY; /* the area of `p` if it uses userfaultfd: one call serves one area */
    for (; e < end && e->chunk == chunk; e++) {
        if (!is_wanted(w, e))
            continue;
        for (uint64_t at = e->at, until, stop = e->at + e->size; at < stop; at = until) {
            uint32_t area = area_at(image, e->owner, at);
            uint32_t given = area != NOBODY && w->given[area] ? area : NOBODY;
            const char *from = contents + e->offset + (at - e->at);
            until = area == NOBODY || areas[area].end > stop ? stop : areas[area].end;
            if (given == in && p.at + p.size == at && p.contents + p.size == from) {
                p.size += until - at;
                continue;
            }
            if (put_piece(w, &p, in != NOBODY, &b, f))
                return -1;
            p = (struct piece){from, at, until - at};
            in = given;
        }
    }
    return put_piece(w, &p, in != NOBODY, &b, f) || write_batch(w, &b, f) ? -1 : 0;
}

static int fill_unit(void *what, uint32_t unit, char *buffer, struct failure *f)
{
    const struct filling *w = what;
    uint32_t chunk = ((struct extent *)w->r->image->extents.rows)[w->first[unit]].chunk;
    const char *contents = chunk_look(&w->r->in, chunk, buffer);
    if (!contents)
        return damaged(f);
    int done = fill_from(w, w->first[unit], contents, f);
    /* the file was truncated in the meantime */
    if (done && contents != buffer && !chunk_read(&w->r->in, chunk, buffer))
        return damaged(f);
    return done;
}

/* Registers fresh private memory with userfaultfd. Not where huge pages are wanted: the kernel makes those when the
 * memory is written. */
static void take_areas(struct filling *w, struct tracee *h)
{
    const struct area *areas = w->r->image->areas.rows;
    w->faults = userfault_open(h, 0);
    for (uint32_t i = 0; i < w->r->image->areas.count && w->faults >= 0; i++) {
        const struct area *a = &areas[i];
        if (a->owner == w->row && a->kind == AREA_ANON && a->file == NOBODY && !(a->flags & MAP_SHARED) &&
            !(a->advice & ADVICE_HUGE) && w->r->filled[i] >= WORTH)
            w->given[i] = userfault_register(w->faults, a->start, a->end);
    }
}

/* Unregisters the areas, so that they are ordinary and merge with those beside them. */
static void leave_areas(struct filling *w)
{
    const struct area *areas = w->r->image->areas.rows;
    for (uint32_t i = 0; i < w->r->image->areas.count && w->faults >= 0; i++)
        if (w->given[i])
            userfault_unregister(w->faults, areas[i].start, areas[i].end);
    if (w->faults >= 0)
        close(w->faults);
}

int fill_memory(struct restoring *r, uint32_t row, struct tracee *h, struct failure *f)
{
    struct filling w = {.r = r,
                        .row = row,
                        .into = h->tid,
                        .first = malloc((r->image->chunks.count + 1ul) * sizeof *w.first),
                        .given = calloc(r->image->areas.count + 1ul, sizeof *w.given)};
    uint32_t units = 0, last = NOBODY;
    uint64_t bytes = 0;
    if (!w.first || !w.given) {
        free(w.first);
        free(w.given);
        return set_failure(f, "malloc", "tables");
    }
    EACH(r->image, extents, extent, e) {
        if (!is_wanted(&w, e))
            continue;
        bytes += e->size;
        if (e->chunk != last)
            w.first[units++] = (uint32_t)(e - (struct extent *)r->image->extents.rows);
        last = e->chunk;
    }
    chunks_map(&r->in);
    take_areas(&w, h);
    int done = workers_run(fill_unit, &w, units, bytes, false, f);
    leave_areas(&w);
    free(w.first);
    free(w.given);
    return done;
}
