/* The parent image: the new image takes over its unchanged chunks by reference, without copying their contents. The
 * node puts the `meta` of the last image beside the new one as `parent`, its pages as pages.1 and so on (pages that it
 * took over itself follow its own), and its `carried`. Chunks are taken over only if the pages written since are known
 * (dirty_tracking.c). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "dump/parts.h"

struct piece { /* of an extent of the parent image */
    const struct extent *of;
    uint64_t at, size;
};

static struct {
    struct image image;
    bool read, there; /* there: its memory may be used */
    const struct watched *watched; /* the current process, or NULL */
    const struct extent **extents; /* the extents of the current process, sorted by address */
    size_t extent_count;
    struct piece *pieces;
    size_t piece_count, piece_room;
} before;

/* Limits the length of a chain, and its size: unused chunks may not make it larger than three images. */
static bool fits(const struct dump *d, const struct machine *m)
{
    uint64_t live = 0;
    EACH(&before.image, chunks, chunk, c)
        live += c->source == CARRIED ? 0 : c->size;
    return m->id && m->id == d->tracking->dirty->id && m->sources < CARRIED && m->stored <= 2 * live + PAGE;
}

void parent_open(struct dump *d, int directory)
{
    uint64_t sizes[SOURCES];
    const char *wrong;
    for (unsigned i = 0; i < SOURCES; i++)
        sizes[i] = UINT64_MAX;
    before.read = image_read(&before.image, directory, "parent", sizes, &wrong) == 0;
    before.there = before.read && d->tracking->dirty->id && fits(d, &before.image.machine);
    struct machine *m = &d->image.machine;
    if (getrandom(&m->id, sizeof m->id, 0) != sizeof m->id)
        m->id = 0;
    m->sources = before.there ? before.image.machine.sources + 1 : 1;
}

/* The parent image, or NULL. It belongs to this job, whether its memory may be used or not. */
const struct image *parent_image(void) { return before.read ? &before.image : NULL; }

static int by_address(const void *a, const void *b)
{
    const struct extent *left = *(const struct extent *const *)a, *right = *(const struct extent *const *)b;
    return left->at < right->at ? -1 : left->at > right->at;
}

static int by_chunk(const void *a, const void *b)
{
    const struct piece *left = a, *right = b;
    if (left->of->chunk != right->of->chunk)
        return left->of->chunk < right->of->chunk ? -1 : 1;
    return left->at < right->at ? -1 : left->at > right->at;
}

void parent_begin(struct dump *d, const struct dumped_process *s)
{
    before.watched = before.there ? track_of(d, s->pid) : NULL;
    before.extent_count = before.piece_count = 0;
    if (!before.watched)
        return;
    uint32_t row = NOBODY;
    EACH(&before.image, processes, process, p)
        if (p->pid == s->pid && p->born == before.watched->born)
            row = (uint32_t)(p - (struct process *)before.image.processes.rows);
    free(before.extents);
    before.extents = malloc((before.image.extents.count + 1ul) * sizeof *before.extents);
    for (const struct extent *e = before.image.extents.rows;
         before.extents && e < (struct extent *)before.image.extents.rows + before.image.extents.count; e++)
        if (e->file == NOBODY && e->owner == row)
            before.extents[before.extent_count++] = e;
    if (before.extents)
        qsort(before.extents, before.extent_count, sizeof *before.extents, by_address);
}

static const struct extent *extent_from(uint64_t at)
{
    size_t low = 0, high = before.extent_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (before.extents[middle]->at + before.extents[middle]->size <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < before.extent_count ? before.extents[low] : NULL;
}

static bool take_over(const struct extent *e, uint64_t at, uint64_t size)
{
    if (before.piece_count == before.piece_room) {
        size_t room = before.piece_room ? before.piece_room * 2 : 256;
        struct piece *more = realloc(before.pieces, room * sizeof *more);
        if (!more)
            return false;
        before.pieces = more;
        before.piece_room = room;
    }
    before.pieces[before.piece_count++] = (struct piece){e, at, size};
    return true;
}

/* Plans a range of the current process: to be written, or taken over. */
void parent_plan(struct dump *d, uint32_t owner, uint64_t start, uint64_t end)
{
    for (uint64_t at = start, next; at < end; at = next) {
        uint64_t until = before.watched ? track_clean(before.watched, at, end, &next) : at;
        const struct extent *e = until > at ? extent_from(at) : NULL;
        if (!before.watched || (until > at && (!e || e->at >= until)))
            next = until > at ? until : end;
        else if (until > at && e->at > at)
            next = e->at;
        else if (until > at) {
            next = e->at + e->size < until ? e->at + e->size : until;
            if (take_over(e, at, next - at))
                continue;
        }
        writer_plan(&d->out, owner, at, next);
    }
}

/* Called when the process's own pages are written. Adds each chunk that it takes over once, followed by its pieces. */
void parent_finish(struct dump *d, uint32_t owner)
{
    uint32_t last = NOBODY;
    if (before.piece_count)
        qsort(before.pieces, before.piece_count, sizeof *before.pieces, by_chunk);
    for (size_t i = 0; i < before.piece_count; i++) {
        const struct piece *p = &before.pieces[i];
        if (p->of->chunk != last) {
            last = p->of->chunk;
            struct chunk c = ((struct chunk *)before.image.chunks.rows)[last];
            c.source++;
            *(struct chunk *)table_add(&d->image.chunks) = c;
        }
        struct extent *e = table_add(&d->image.extents);
        *e = (struct extent){.owner = owner,
                             .file = NOBODY,
                             .chunk = d->image.chunks.count - 1,
                             .offset = p->of->offset + (uint32_t)(p->at - p->of->at),
                             .at = p->at,
                             .size = p->size};
        d->tracking->taken_over += p->size;
    }
    d->out.moved = d->image.chunks.count;
    before.piece_count = 0;
}

/* Removes the files beside the image that it does not need. */
void parent_close(struct dump *d, int directory)
{
    char name[SOURCE_NAME];
    struct machine *m = &d->image.machine;
    if (!d->tracking->taken_over)
        m->sources = 1;
    m->stored = d->out.pages_size + d->out.more_size + (d->tracking->taken_over ? before.image.machine.stored : 0);
    unlinkat(directory, "parent", 0);
    if (!d->out.more_size)
        unlinkat(directory, source_name(name, MORE), 0);
    if (!d->carried)
        unlinkat(directory, source_name(name, CARRIED), 0);
    for (uint32_t i = m->sources; i < CARRIED; i++) {
        unlinkat(directory, source_name(name, i), 0);
        unlinkat(directory, source_name(name, MORE + i), 0);
    }
}
