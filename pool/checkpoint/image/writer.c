/* Writes contents into an image: at once, or planned first and written later. A planned chunk holds many small pieces,
 * or a part of a large one. */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>

#include "image/image.h"

int write_at(int fd, const void *data, size_t size, uint64_t place)
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

static struct chunk *last_chunk(struct image_writer *w)
{
    return (struct chunk *)w->image->chunks.rows + w->image->chunks.count - 1;
}

/* `size` is a multiple of the page size and at most CHUNK. */
int writer_put(struct image_writer *w, uint32_t owner, uint32_t file, uint64_t at, const void *data, size_t size,
               struct failure *f)
{
    if (write_at(w->pages, data, size, w->pages_size) < 0)
        return set_failure(f, "write", "pages");
    struct chunk *c = table_add(&w->image->chunks);
    *c = (struct chunk){.place = w->pages_size, .size = size, .sum = checksum(data, size)};
    struct extent *e = table_add(&w->image->extents);
    *e = (struct extent){.owner = owner, .file = file, .chunk = w->image->chunks.count - 1, .at = at, .size = size};
    w->pages_size += size;
    w->open = false;
    return 0;
}

void writer_plan(struct image_writer *w, uint32_t owner, uint64_t start, uint64_t end)
{
    while (start < end) {
        struct chunk *c = w->open ? last_chunk(w) : NULL;
        if (!c || c->size == CHUNK) {
            c = table_add(&w->image->chunks);
            w->open = true;
        }
        uint64_t size = end - start < CHUNK - c->size ? end - start : CHUNK - c->size;
        struct extent *before =
            w->image->extents.count ? (struct extent *)w->image->extents.rows + w->image->extents.count - 1 : NULL;
        if (c->size && before && before->owner == owner && before->at + before->size == start) {
            before->size += size;
        } else {
            struct extent *e = table_add(&w->image->extents);
            *e = (struct extent){.owner = owner,
                                 .file = NOBODY,
                                 .chunk = w->image->chunks.count - 1,
                                 .offset = (uint32_t)c->size,
                                 .at = start,
                                 .size = size};
        }
        c->size += size;
        start += size;
    }
}

/* Lists the first extents of the planned chunks, in order. A planned chunk has no checksum yet. */
uint32_t writer_planned(const struct image_writer *w, uint32_t *firsts, uint64_t *bytes, uint32_t *parts)
{
    const struct chunk *chunks = w->image->chunks.rows;
    const struct extent *extents = w->image->extents.rows;
    uint32_t count = 0, at = w->image->extents.count;
    while (at > 0 && extents[at - 1].chunk >= w->moved)
        at--;
    for (uint32_t last = NOBODY; at < w->image->extents.count; at++) {
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

/* Assigns a chunk's position; with much memory the second half goes to a file of its own. */
void writer_place(struct image_writer *w, struct chunk *c, bool second)
{
    uint64_t *end = second ? &w->more_size : &w->pages_size;
    c->source = second ? MORE : 0;
    c->place = *end;
    *end += c->size;
}
