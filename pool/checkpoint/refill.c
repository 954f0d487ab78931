/* Contents on their way in: read a chunk at a time, checked, and written to where they were; large amounts by a crew. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "restoring.h"

#define PIECES 256

const char *chunk_read(struct restoring *r, uint32_t chunk, char *buffer)
{
    const struct chunk *c = (struct chunk *)r->image->chunks.rows + chunk;
    for (uint64_t got = 0; got < c->size;) {
        ssize_t n = pread(r->pages[c->source], buffer + got, c->size - got, (off_t)(c->place + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? EBADMSG : errno;
            return NULL;
        }
        got += (uint64_t)n;
    }
    if (checksum(buffer, c->size) == c->sum)
        return buffer;
    errno = EBADMSG;
    return NULL;
}

const char *extent_read(struct restoring *r, const struct extent *e)
{
    static char buffer[CHUNK];
    static uint32_t last = NOBODY;
    if (last != e->chunk)
        last = chunk_read(r, e->chunk, buffer) ? e->chunk : NOBODY;
    return last == NOBODY ? NULL : buffer + e->offset;
}

static int damaged(struct failure *f) { return fail(f, "read", errno == EBADMSG ? "pages\nit is damaged: a checksum does not fit" : "pages"); }

/* The area of a process that an address lies in. Those of one process follow each other in the order of their addresses; of an
 * image that says otherwise some are not found, and the job dies of it. */
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
        return fail(f, "malloc", "tables");
    for EACH(r->image, extents, extent, e) {
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
    uint32_t *first; /* extent of each unit */
};

/* The bytes of the vdso are kept to be compared only. */
static bool wanted(const struct filling *w, const struct extent *e)
{
    if (e->file != NOBODY || e->owner != w->row)
        return false;
    uint32_t area = area_at(w->r->image, e->owner, e->at);
    return area == NOBODY || ((struct area *)w->r->image->areas.rows)[area].kind != AREA_VDSO;
}

static int fill_unit(void *what, uint32_t unit, char *buffer, struct failure *f)
{
    const struct filling *w = what;
    const struct table *extents = &w->r->image->extents;
    const struct extent *e = (struct extent *)extents->rows + w->first[unit], *end = (struct extent *)extents->rows + extents->count;
    uint32_t chunk = e->chunk;
    struct iovec here[PIECES], there[PIECES];
    if (!chunk_read(w->r, chunk, buffer))
        return damaged(f);
    while (e < end && e->chunk == chunk) {
        size_t count = 0, size = 0;
        for (; e < end && e->chunk == chunk && count < PIECES; e++) {
            if (!wanted(w, e))
                continue;
            here[count] = (struct iovec){buffer + e->offset, e->size};
            there[count++] = (struct iovec){(void *)(uintptr_t)e->at, e->size};
            size += e->size;
        }
        errno = EFAULT;
        if (size && process_vm_writev(w->into, here, count, there, count, 0) != (ssize_t)size)
            return fail(f, "write", "memory of the job");
    }
    return 0;
}

int refill(struct restoring *r, uint32_t row, pid_t into, struct failure *f)
{
    struct filling w = {.r = r, .row = row, .into = into, .first = malloc((r->image->chunks.count + 1ul) * sizeof *w.first)};
    uint32_t units = 0, last = NOBODY;
    uint64_t bytes = 0;
    if (!w.first)
        return fail(f, "malloc", "tables");
    for EACH(r->image, extents, extent, e) {
        if (!wanted(&w, e))
            continue;
        bytes += e->size;
        if (e->chunk != last)
            w.first[units++] = (uint32_t)(e - (struct extent *)r->image->extents.rows);
        last = e->chunk;
    }
    int done = crew_run(fill_unit, &w, units, bytes, false, f);
    free(w.first);
    return done;
}
