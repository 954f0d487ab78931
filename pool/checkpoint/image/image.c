/* The metadata of a checkpoint: adds rows, writes them, reads them, and checks them. An image may be damaged or
 * malicious. After image_read no row points outside its tables, every text is terminated, and sizes are sane. Each user
 * of a value checks whether it makes sense: the kernel refuses most bad values, and a restored job has no more rights
 * than a job that is started. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/image.h"
#include "image/checksum.h"

#define TABLE_COUNT 21
#define META_MOST (1u << 30)

struct header {
    char magic[8];
    uint32_t version, arch;
    uint64_t size, sum; /* of everything after the header */
    struct {
        uint32_t count, size;
    } tables[TABLE_COUNT];
    struct machine machine;
};

#if defined(__x86_64__)
#define ARCH 62u /* EM_X86_64 */
#else
#define ARCH 183u
#endif

uint64_t checksum(const void *data, size_t size)
{
    uint64_t lane[8] = SUM_BEGUN;
    size_t left = size % SUM_STEP;
    sum_add(lane, data, size);
    return sum_end(lane, (const unsigned char *)data + (size - left), left);
}

const char *source_name(char name[SOURCE_NAME], unsigned source)
{
    if (source == CARRIED)
        return strcpy(name, "carried");
    const char *stem = source < MORE ? "pages" : "pages_2";
    unsigned before = source < MORE ? source : source - MORE;
    if (before)
        snprintf(name, SOURCE_NAME, "%s.%u", stem, before);
    else
        strcpy(name, stem);
    return name;
}

static void tables_of(const struct image *image, struct table *all[TABLE_COUNT])
{
    struct image *i = (struct image *)(uintptr_t)image;
    int n = 0;
#define X(name, row) all[n++] = &i->name;
    TABLES(X)
#undef X
    all[n] = &i->bytes;
}

void image_init(struct image *image)
{
    memset(image, 0, sizeof *image);
#define X(name, row) image->name.size = sizeof(struct row);
    TABLES(X)
#undef X
    image->bytes.size = 1;
}

void image_free(struct image *image)
{
    struct table *all[TABLE_COUNT];
    tables_of(image, all);
    for (int i = 0; i < TABLE_COUNT && !image->raw; i++)
        free(all[i]->rows);
    free(image->raw);
    image_init(image);
}

static void grow_table(struct table *table, size_t more)
{
    size_t wanted = (size_t)table->count + more;
    if (wanted <= table->room)
        return;
    size_t room = table->room ? table->room * 2ul : 64;
    room = room < wanted ? wanted : room;
    void *rows = room > UINT32_MAX ? NULL : realloc(table->rows, room * table->size);
    if (!rows)
        _exit(ENOMEM);
    table->rows = rows;
    table->room = (uint32_t)room;
}

void *table_add(struct table *table)
{
    grow_table(table, 1);
    void *row = (char *)table->rows + (size_t)table->count++ * table->size;
    return memset(row, 0, table->size);
}

struct span image_put(struct image *image, const void *data, size_t size)
{
    struct span span = {image->bytes.count, (uint32_t)size};
    grow_table(&image->bytes, size);
    if (size)
        memcpy((char *)image->bytes.rows + image->bytes.count, data, size);
    image->bytes.count += (uint32_t)size;
    return span;
}

struct span image_text(struct image *image, const char *text) { return image_put(image, text, strlen(text) + 1); }

const void *image_bytes(const struct image *image, struct span span)
{
    return (const char *)image->bytes.rows + span.at;
}

const char *image_string(const struct image *image, struct span span)
{
    return span.size ? (const char *)image->bytes.rows + span.at : "";
}

static int write_all(int fd, const void *data, size_t size)
{
    for (const char *at = data; size;) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

/* Rows begin at multiples of 8, so that they can be used in place. */
static size_t padded(size_t size) { return (size + 7) & ~(size_t)7; }

int image_write(const struct image *image, int directory, bool sync)
{
    struct table *all[TABLE_COUNT];
    struct header h = {.magic = IMAGE_MAGIC, .version = IMAGE_VERSION, .arch = ARCH, .machine = image->machine};
    tables_of(image, all);
    for (int i = 0; i < TABLE_COUNT; i++) {
        h.tables[i].count = all[i]->count;
        h.tables[i].size = all[i]->size;
        h.size += padded((size_t)all[i]->count * all[i]->size);
    }
    char *body = calloc(1, h.size + 1), *at = body;
    if (!body)
        return -1;
    for (int i = 0; i < TABLE_COUNT; i++) {
        size_t size = (size_t)all[i]->count * all[i]->size;
        if (size)
            memcpy(at, all[i]->rows, size);
        at += padded(size);
    }
    h.sum = checksum(body, h.size) ^ checksum(&h.machine, sizeof h.machine);
    int fd = openat(directory, "meta", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int done = fd < 0 || write_all(fd, &h, sizeof h) || write_all(fd, body, h.size) || (sync && fsync(fd) < 0) ? -1 : 0;
    int err = errno;
    free(body);
    if (fd >= 0)
        close(fd);
    errno = err;
    return done;
}

static bool span_fits(const struct image *image, struct span s)
{
    return s.at <= image->bytes.count && s.size <= image->bytes.count - s.at;
}

static bool text_fits(const struct image *image, struct span s)
{
    return span_fits(image, s) && (!s.size || memchr((char *)image->bytes.rows + s.at, 0, s.size) != NULL);
}

static bool row_of(const struct table *table, uint32_t index) { return index < table->count; }
static bool row_or_none(const struct table *table, uint32_t index) { return index == NOBODY || index < table->count; }

static bool range_fits(uint64_t start, uint64_t end)
{
    return start < end && start >= PAGE && end <= 1ull << 47 && !((start | end) & (PAGE - 1));
}

/* One table: the rule of each kind of row. */
static const char *check_memory(const struct image *image, const uint64_t pages[SOURCES])
{
    EACH(image, areas, area, a)
        if (!row_of(&image->processes, a->owner) || !range_fits(a->start, a->end) ||
            !row_or_none(&image->files, a->file) || a->kind > AREA_SYSV ||
            ((a->kind == AREA_FILE || a->kind == AREA_SHARED || a->kind == AREA_SYSV) && a->file == NOBODY))
            return "a memory area";
    EACH(image, chunks, chunk, c)
        if (!c->size || c->size > CHUNK || c->source >= SOURCES || c->size > pages[c->source] ||
            c->place > pages[c->source] - c->size)
            return "a piece of memory";
    EACH(image, guards, guard, g)
        if (!row_of(&image->processes, g->owner) || !range_fits(g->start, g->end))
            return "a guard page";
    const struct chunk *chunks = image->chunks.rows;
    uint32_t last = 0;
    EACH(image, extents, extent, e) {
        if (!row_or_none(&image->files, e->file) || (e->file == NOBODY && !row_of(&image->processes, e->owner)) ||
            e->chunk < last || !row_of(&image->chunks, e->chunk) || !e->size || e->offset > chunks[e->chunk].size ||
            e->size > chunks[e->chunk].size - e->offset || e->at > UINT64_MAX - e->size)
            return "an extent";
        last = e->chunk;
        if (e->file == NOBODY && !range_fits(e->at, e->at + e->size))
            return "an extent";
    }
    return NULL;
}

/* One table: the rule of each kind of row. */
static const char *check_rest(const struct image *image)
{
    EACH(image, files, file, f)
        if (f->kind >= FILE_KINDS || !row_or_none(&image->files, f->peer) ||
            (f->peer != NOBODY && ((struct file *)image->files.rows)[f->peer].peer != NOBODY) ||
            !text_fits(image, f->path) || !span_fits(image, f->contents))
            return "an open file";
    EACH(image, descriptors, descriptor, d)
        if (!row_of(&image->processes, d->owner) || !row_of(&image->files, d->file) || d->number < 0 ||
            d->number > 1 << 20)
            return "a descriptor";
    EACH(image, locks, file_lock, l)
        if (!row_of(&image->processes, l->owner) || !row_of(&image->files, l->file))
            return "a lock";
    EACH(image, watches, watch, w)
        if (!row_of(&image->files, w->file) || !row_of(&image->files, w->target) || w->number < 0 ||
            w->number > 1 << 20)
            return "an epoll entry";
    EACH(image, inotify, inotify_watch, w)
        if (!row_of(&image->files, w->file) || ((struct file *)image->files.rows)[w->file].kind != FILE_INOTIFY ||
            !row_or_none(&image->files, w->target) || !text_fits(image, w->path) || w->number < 1 ||
            w->number > INOTIFY_MOST)
            return "a watch";
    EACH(image, handlers, handler, h)
        if (!row_of(&image->processes, h->owner) || h->signal < 1 || h->signal > 64)
            return "a signal handler";
    EACH(image, pendings, pending, p)
        if (!row_of(&image->processes, p->owner))
            return "a pending signal";
    EACH(image, alarms, alarm_timer, a)
        if (!row_of(&image->processes, a->owner))
            return "a timer";
    return NULL;
}

static const char *check_mapped(const struct image *image)
{
    const struct table *files = &image->files;
    EACH(image, ends, mapped_end, e)
        if (!row_or_none(files, e->file) || !row_or_none(files, e->held))
            return "an end of a pipe";
    EACH(image, logs, mapped_log, l)
        if (!row_or_none(files, l->file) || !row_or_none(files, l->spool) || !span_fits(image, l->ring) ||
            l->kept > l->end || l->end - l->kept != l->ring.size)
            return "what a pipe held";
    EACH(image, outlets, mapped_outlet, o)
        if (!row_of(&image->logs, o->log) || !row_or_none(files, o->file) ||
            o->sent > ((struct mapped_log *)image->logs.rows)[o->log].end)
            return "what a pipe held";
    EACH(image, strays, mapped_stray, s)
        if (!row_of(&image->ends, s->end) || !row_of(files, s->file) || !row_of(files, s->kept) ||
            !row_of(files, s->other) || !memchr(s->call, 0, sizeof s->call))
            return "a mapped file";
    EACH(image, processes, process, p)
        if (p->mapped > image->members.count)
            return "a process with mapped files";
    return NULL;
}

static bool is_removed(const struct image *image, uint32_t row)
{
    return row_of(&image->files, row) && ((struct file *)image->files.rows)[row].kind == FILE_REMOVED;
}

static bool is_terminal(const struct file *f) { return f->kind == FILE_TERMINAL && f->contents.size; }

static const char *check_processes(const struct image *image)
{
    if (!image->processes.count || image->processes.count > 1u << 22)
        return "the processes";
    EACH(image, processes, process, p)
        if (p->pid < 2 || !text_fits(image, p->cwd) || !text_fits(image, p->exe) || !span_fits(image, p->auxv) ||
            p->auxv.size > PAGE || (p->directory && !is_removed(image, p->directory - 1)) ||
            (p->terminal && (!row_of(&image->files, p->terminal - 1) ||
                             !is_terminal((struct file *)image->files.rows + p->terminal - 1))))
            return "a process";
    EACH(image, threads, thread, t)
        if (!row_of(&image->processes, t->owner) || t->tid < 2 || !span_fits(image, t->registers) ||
            !span_fits(image, t->xstate) || !text_fits(image, t->cwd) || !span_fits(image, t->processors) ||
            !memchr(t->name, 0, sizeof t->name))
            return "a thread";
    EACH(image, members, member_row, m)
        if (m->pid && (m->pid < 2 || m->end.state & MEMBER_OVER))
            return "a process of the description";
    return NULL;
}

static const char *check_all(const struct image *image, const uint64_t pages[SOURCES])
{
    if (!text_fits(image, image->machine.scratch))
        return "the scratch directory";
    const char *wrong = check_processes(image);
    if (!wrong)
        wrong = check_memory(image, pages);
    if (!wrong)
        wrong = check_rest(image);
    return wrong ? wrong : check_mapped(image);
}

static const char *header_wrong(const struct header *h, uint64_t size, struct table *all[TABLE_COUNT])
{
    uint64_t sum = 0;
    if (memcmp(h->magic, IMAGE_MAGIC, sizeof h->magic) != 0)
        return "it is not a checkpoint";
    if (h->version != IMAGE_VERSION)
        return "it was made by another version";
    if (h->arch != ARCH)
        return "it was made on another kind of processor";
    for (int i = 0; i < TABLE_COUNT; i++) {
        if (h->tables[i].size != all[i]->size)
            return "it was made by another version";
        sum += padded((size_t)h->tables[i].count * all[i]->size);
    }
    return h->size != sum || h->size != size - sizeof *h ? "it is cut off" : NULL;
}

static int set_wrong(const char **wrong, const char *what)
{
    *wrong = what;
    errno = EBADMSG;
    return -1;
}

static char *read_all(int directory, const char *name, uint64_t *size)
{
    struct stat st;
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    char *raw = NULL;
    *size = 0;
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size < META_MOST && (raw = malloc((size_t)st.st_size + 1))) {
        for (ssize_t n; *size < (uint64_t)st.st_size; *size += (uint64_t)n)
            if ((n = read(fd, raw + *size, (size_t)st.st_size - *size)) <= 0)
                break;
    }
    if (fd >= 0)
        close(fd);
    return raw;
}

int image_read(struct image *image, int directory, const char *name, const uint64_t pages[SOURCES], const char **wrong)
{
    struct table *all[TABLE_COUNT];
    uint64_t size;
    image_init(image);
    tables_of(image, all);
    char *raw = image->raw = read_all(directory, name, &size);
    struct header h;
    if (!raw || size < sizeof h)
        return set_wrong(wrong, raw ? "it is cut off" : "it is not there");
    memcpy(&h, raw, sizeof h);
    const char *what = header_wrong(&h, size, all);
    if (what)
        return set_wrong(wrong, what);
    if ((checksum(raw + sizeof h, h.size) ^ checksum(&h.machine, sizeof h.machine)) != h.sum)
        return set_wrong(wrong, "it is damaged");
    char *at = raw + sizeof h;
    for (int i = 0; i < TABLE_COUNT; i++) {
        all[i]->rows = at;
        all[i]->count = all[i]->room = h.tables[i].count;
        at += padded((size_t)h.tables[i].count * all[i]->size);
    }
    image->machine = h.machine;
    return (what = check_all(image, pages)) ? set_wrong(wrong, what) : 0;
}

_Static_assert(sizeof(struct header) % 8 == 0, "rows after the header are aligned");
