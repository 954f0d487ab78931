/* Saves the parts of programs and libraries that the job has mapped, in a file of their own, `carried`: the next
 * machine may have other versions, or none. The file goes unread from one image of a job to the next, as long as it
 * holds everything that is mapped and no file has changed. dump.c calls it if the checkpoint is to carry them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dump/parts.h"

#define LARGEST (1ul << 29) /* of a file that is carried, in bytes */

/* Files that are only read: programs, libraries, tables. A larger file is taken for data. Files in a scratch directory
 * that moves with the job are saved with it. */
static bool is_wanted(const struct dump *d, uint32_t row)
{
    EACH(&d->image, areas, area, a)
        if (a->file == row && a->kind == AREA_FILE && a->flags & MAP_SHARED && a->prot & PROT_WRITE)
            return false;
    const struct file *f = (struct file *)d->image.files.rows + row;
    return f->kind == FILE_MAPPED && S_ISREG(f->mode) && f->size <= LARGEST &&
           !(d->job->start->flags & FLAG_FIXED && path_is_under(image_string(&d->image, f->path), "/job"));
}

/* Index of the first carried extent of an image; all later extents are carried, too. */
static uint32_t first_of(const struct image *image)
{
    const struct extent *extents = image->extents.rows;
    const struct chunk *chunks = image->chunks.rows;
    uint32_t at = image->extents.count;
    while (at > 0 && chunks[extents[at - 1].chunk].source == CARRIED)
        at--;
    return at;
}

/* The end of the carried range of a file that holds `at`; `at` if none does. */
static uint64_t carried_until(const struct image *image, uint32_t first, uint32_t row, uint64_t at)
{
    const struct extent *extents = image->extents.rows;
    for (uint32_t i = first; i < image->extents.count; i++)
        if (extents[i].file == row && extents[i].at <= at && at - extents[i].at < extents[i].size)
            return extents[i].at + extents[i].size;
    return at;
}

static uint32_t same_file(const struct image *before, const struct file *f)
{
    EACH(before, files, file, b)
        if (b->kind == FILE_MAPPED && b->number && b->device == f->device && b->inode == f->inode &&
            b->size == f->size && memcmp(b->times, f->times, sizeof b->times) == 0)
            return (uint32_t)(b - (struct file *)before->files.rows);
    return NOBODY;
}

/* Takes over all carried extents of the parent image, or none: `rows` has the parent's row for each wanted file. */
static bool take_over(struct dump *d, const struct image *before, const uint32_t *rows)
{
    uint32_t first = first_of(before);
    EACH(&d->image, areas, area, a) {
        if (a->kind != AREA_FILE || !((struct file *)d->image.files.rows)[a->file].number)
            continue;
        uint64_t end = a->offset + (a->end - a->start), size = ((struct file *)d->image.files.rows)[a->file].size;
        for (uint64_t at = a->offset, next; at < end && at < size; at = next)
            if (rows[a->file] == NOBODY || (next = carried_until(before, first, rows[a->file], at)) == at)
                return false;
    }
    for (uint32_t i = first; i < before->extents.count; i++) {
        const struct extent *e = (struct extent *)before->extents.rows + i;
        for (uint32_t row = 0; row < d->image.files.count; row++) {
            if (!((struct file *)d->image.files.rows)[row].number || rows[row] != e->file)
                continue;
            *(struct chunk *)table_add(&d->image.chunks) = ((struct chunk *)before->chunks.rows)[e->chunk];
            struct extent *taken = table_add(&d->image.extents);
            *taken = *e;
            taken->file = row;
            taken->chunk = d->image.chunks.count - 1;
            d->carried += e->size;
        }
    }
    return true;
}

static int write_carried(struct dump *d, int to, uint32_t row, uint64_t at, const char *data, size_t size)
{
    if (pwrite(to, data, size, (off_t)d->carried) != (ssize_t)size) {
        errno = errno ? errno : ENOSPC;
        return set_failure(&d->failure, "write", "carried");
    }
    *(struct chunk *)table_add(&d->image.chunks) =
        (struct chunk){.place = d->carried, .size = size, .sum = checksum(data, size), .source = CARRIED};
    *(struct extent *)table_add(&d->image.extents) =
        (struct extent){.file = row, .chunk = d->image.chunks.count - 1, .at = at, .size = size};
    d->carried += size;
    return 0;
}

static int carry_range(struct dump *d, int to, uint32_t first, uint32_t row, int fd, uint64_t at, uint64_t end)
{
    static char buffer[CHUNK];
    while (at < end) {
        ssize_t n = pread(fd, buffer, end - at < CHUNK ? end - at : CHUNK, (off_t)at);
        if (n < 0)
            return set_failure(&d->failure, "read",
                               image_string(&d->image, ((struct file *)d->image.files.rows)[row].path));
        if (n == 0)
            return 0;
        size_t whole = ((size_t)n + PAGE - 1) & ~(PAGE - 1);
        memset(buffer + n, 0, whole - (size_t)n);
        if (carried_until(&d->image, first, row, at) == at && write_carried(d, to, row, at, buffer, whole))
            return -1;
        at += whole;
    }
    return 0;
}

static int carry_file(struct dump *d, int to, uint32_t first, uint32_t row)
{
    int fd = open(image_string(&d->image, ((struct file *)d->image.files.rows)[row].path), O_RDONLY | O_CLOEXEC),
        done = 0;
    if (fd < 0)
        return set_failure(&d->failure, "open",
                           image_string(&d->image, ((struct file *)d->image.files.rows)[row].path));
    for (uint32_t i = 0; i < d->image.areas.count && !done; i++) {
        struct area a = ((struct area *)d->image.areas.rows)[i];
        if (a.file == row && a.kind == AREA_FILE)
            done = carry_range(d, to, first, row, fd, a.offset, a.offset + (a.end - a.start));
    }
    close(fd);
    return done;
}

int carried_files_save(struct dump *d, int directory)
{
    const struct image *before = parent_image();
    uint32_t *rows = malloc((d->image.files.count + 1ul) * sizeof *rows), first = d->image.extents.count;
    if (!rows)
        return set_failure(&d->failure, "malloc", "tables");
    for (uint32_t row = 0; row < d->image.files.count; row++) {
        struct file *f = (struct file *)d->image.files.rows + row;
        bool carries = is_wanted(d, row) && access(image_string(&d->image, f->path), R_OK) == 0;
        if (f->kind == FILE_MAPPED)
            f->number = carries;
        rows[row] = before && carries ? same_file(before, f) : NOBODY;
    }
    bool there = before && take_over(d, before, rows);
    free(rows);
    if (there)
        return 0;
    unlinkat(directory, "carried", 0);
    int to = openat(directory, "carried", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), done = 0;
    if (to < 0)
        return set_failure(&d->failure, "create", "carried");
    for (uint32_t row = 0; row < d->image.files.count && !done; row++) {
        const struct file *f = (struct file *)d->image.files.rows + row;
        if (f->kind == FILE_MAPPED && f->number)
            done = carry_file(d, to, first, row);
    }
    if (!done && !d->no_sync && fdatasync(to) < 0)
        done = set_failure(&d->failure, "sync", "carried");
    close(to);
    return done;
}
