/* The memory areas of a process, and which of their pages are saved: only those that the process has changed; the
 * others are read from their file again. The kernel reports them (PAGEMAP_SCAN, Linux 6.7; before it
 * /proc/PID/pagemap). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "dump/parts.h"
#include "trace/pagemap_scan.h"

#define ADVICE_WHOLE (1u << 31) /* only during a dump: the file is gone, the whole area is saved */

#define ADVICE_TAKEN (1u << 30) /* only during a dump: already written */

struct line { /* of /proc/PID/maps */
    uint64_t start, end, offset, device, inode;
    char perms[8];
    const char *name;
};

static bool parse(char *text, struct line *l)
{
    unsigned major, minor;
    int name = 0;
    memset(l, 0, sizeof *l);
    text[strcspn(text, "\n")] = 0;
    if (sscanf(text, "%lx-%lx %7s %lx %x:%x %lu %n", &l->start, &l->end, l->perms, &l->offset, &major, &minor,
               &l->inode, &name) < 7)
        return false;
    l->device = makedev(major, minor);
    l->name = text + name;
    return true;
}

static bool starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static bool ends(const char *text, const char *with)
{
    size_t n = strlen(text), m = strlen(with);
    return n >= m && strcmp(text + n - m, with) == 0;
}

static void refuse_area(struct dump *d, struct dumped_process *s, const struct line *l)
{
    if (starts(l->name, "/SYSV"))
        add_unsupported(
            d, "process %d uses System V shared memory of its machine (run it with an IPC namespace of its own)",
            s->pid);
    else if (starts(l->name, "anon_inode:[io_uring]"))
        add_unsupported(d, "process %d uses io_uring (switch it off in the program)", s->pid);
    else if (starts(l->name, "/[aio]"))
        add_unsupported(d, "process %d uses kernel asynchronous I/O, io_setup (switch it off in the program)", s->pid);
    else if (starts(l->name, "/anon_hugepage"))
        add_unsupported(d, "process %d uses reserved huge pages (use transparent ones)", s->pid);
    else
        add_unsupported(d, "process %d has the device %.200s mapped (unmap it first)", s->pid, l->name);
}

/* The row of `files` for shared memory. Memory without a name is identified by its inode. */
static uint32_t shared_memory(struct dump *d, struct dumped_process *s, const struct line *l)
{
    EACH(&d->image, files, file, f)
        if (f->kind == FILE_MEMORY && f->device == l->device && f->inode == l->inode)
            return (uint32_t)(f - (struct file *)d->image.files.rows);
    struct file *f = table_add(&d->image.files);
    *(struct sample *)table_add(&d->samples) = (struct sample){.pid = s->pid, .fd = -1};
    f->kind = FILE_MEMORY;
    f->peer = NOBODY;
    f->device = l->device;
    f->inode = l->inode;
    f->path = image_text(&d->image, starts(l->name, "/memfd:") ? l->name + 7 : "shared");
    return d->image.files.count - 1;
}

/* A private mapping of a removed file: saved whole, unless memory_join finds a file descriptor of that file. */
static void note_removed(struct dump *d, struct area *a, const struct line *l)
{
    a->advice |= ADVICE_WHOLE;
    *(struct removed *)table_add(&d->removed) = (struct removed){a->owner, a->start, l->device, l->inode};
}

/* Shared memory whose name was removed, and that has another one: glibc makes a named semaphore so (sem_open), and
 * other processes map it by that name. */
static uint32_t named_otherwise(struct dump *d, const struct dumped_process *s, const struct line *l)
{
    char name[4200], other[4200];
    struct stat wanted = {.st_ino = l->inode, .st_dev = l->device};
    if (l->name[0] != '/' || starts(l->name, "/memfd:") || starts(l->name, "/dev/zero"))
        return NOBODY;
    copy_text(name, sizeof name, l->name);
    name[strlen(name) - strlen(" (deleted)")] = 0;
    return file_other_name(name, &wanted, other, sizeof other) ? file_mapped(d, s->pid, other, l->device, l->inode)
                                                               : NOBODY;
}

static void note_shared(struct dump *d, struct dumped_process *s, struct area *a, const struct line *l, bool gone)
{
    a->kind = AREA_FILE;
    if (gone && (a->file = named_otherwise(d, s, l)) != NOBODY)
        return;
    a->kind = AREA_SHARED;
    a->file = shared_memory(d, s, l);
    struct file *f = (struct file *)d->image.files.rows + a->file;
    if (f->size < l->offset + (l->end - l->start))
        f->size = l->offset + (l->end - l->start);
}

static void classify(struct dump *d, struct dumped_process *s, struct area *a, const struct line *l)
{
    bool shared = l->perms[3] == 's', gone = ends(l->name, " (deleted)");
    a->kind = AREA_ANON;
    a->file = NOBODY;
    if (strcmp(l->name, "[vdso]") == 0) {
        a->kind = AREA_VDSO;
    } else if (starts(l->name, "[vvar")) {
        a->kind = AREA_VVAR;
    } else if (starts(l->name, "/SYSV") && settings.able & ABLE_IPC) {
        a->kind = AREA_SYSV;
        a->sysv = l->inode;
    } else if (starts(l->name, "/SYSV") || starts(l->name, "anon_inode:") || starts(l->name, "/[aio]") ||
               starts(l->name, "/anon_hugepage") ||
               (starts(l->name, "/dev/") && !starts(l->name, "/dev/zero") && !starts(l->name, "/dev/shm/"))) {
        refuse_area(d, s, l);
    } else if (shared && (gone || l->name[0] == '[')) {
        note_shared(d, s, a, l, gone);
    } else if (l->name[0] == '/' && !starts(l->name, "/dev/zero")) {
        a->file = gone ? NOBODY : file_mapped(d, s->pid, l->name, l->device, l->inode);
        a->kind = a->file == NOBODY ? AREA_ANON : AREA_FILE;
        if (a->file == NOBODY && shared)
            add_unsupported(d, "process %d has a shared mapping of %.200s, which was replaced (map the new file)",
                            s->pid, l->name);
        else if (a->file == NOBODY)
            note_removed(d, a, l);
    }
    if (strcmp(l->name, "[stack]") == 0)
        a->flags |= MAP_GROWSDOWN;
}

static void read_advice(struct dump *d, const struct dumped_process *s, pid_t from);

int memory_areas(struct dump *d, struct dumped_process *s)
{
    char path[64], *text = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", s->pid);
    FILE *maps = fopen(path, "re");
    if (!maps)
        return set_failure(&d->failure, "open", path);
    while (getline(&text, &room, maps) > 0) {
        struct line l;
        if (!parse(text, &l) || l.start >= 1ull << 47)
            continue;
        if (s->room && l.start < s->room + ROOM && s->room < l.end && *l.name == 0) {
            /* The kernel has merged our page for arguments with an area of the job's. */
            if (s->room > l.start) {
                struct line before = l;
                before.end = s->room;
                struct area *a = table_add(&d->image.areas);
                a->owner = s->row, a->start = before.start, a->end = before.end, a->file = NOBODY;
                a->prot = PROT_READ | PROT_WRITE, a->flags = MAP_PRIVATE | MAP_ANONYMOUS;
            }
            if (s->room + ROOM >= l.end)
                continue;
            l.start = s->room + ROOM;
        }
        struct area *a = table_add(&d->image.areas);
        a->owner = s->row;
        a->start = l.start, a->end = l.end, a->offset = l.offset;
        a->prot = (l.perms[0] == 'r' ? PROT_READ : 0) | (l.perms[1] == 'w' ? PROT_WRITE : 0) |
                  (l.perms[2] == 'x' ? PROT_EXEC : 0);
        a->flags = l.perms[3] == 's' ? MAP_SHARED : MAP_PRIVATE;
        uint32_t row = (uint32_t)(a - (struct area *)d->image.areas.rows);
        struct area classified = *a;
        classify(d, s, &classified, &l);
        if (classified.kind == AREA_ANON)
            classified.flags |= MAP_ANONYMOUS;
        ((struct area *)d->image.areas.rows)[row] = classified;
    }
    free(text);
    fclose(maps);
    if (s->room && proc_field(s->pid, "status", "VmLck", 10)) /* the copy does not inherit it */
        read_advice(d, s, s->pid);
    return 0;
}

static struct area *area_at(struct dump *d, uint32_t owner, uint64_t start)
{
    EACH(&d->image, areas, area, a)
        if (a->owner == owner && a->start == start)
            return a;
    return NULL;
}

/* Called when all file descriptors are known. A private mapping of a removed file that is saved through a file
 * descriptor becomes a file mapping again, so that its unchanged pages show later writes to the file. */
void memory_join(struct dump *d)
{
    EACH(d, removed, removed, m) {
        struct area *a = area_at(d, m->owner, m->start);
        EACH(&d->image, files, file, f) {
            uint32_t row = (uint32_t)(f - (struct file *)d->image.files.rows);
            if (!a || f->kind != FILE_MEMORY || f->device != m->device || f->inode != m->inode ||
                (f->flags & O_ACCMODE) == O_WRONLY || ((struct sample *)d->samples.rows)[row].fd < 0)
                continue;
            a->kind = AREA_FILE;
            a->file = row;
            a->flags &= ~(uint32_t)MAP_ANONYMOUS;
            a->advice &= ~ADVICE_WHOLE;
            break;
        }
    }
}

struct source {
    int mem, pagemap;
    char *buffer;
};

/* Writes all pages of the area that are present. */
static int put_whole(struct dump *d, const struct dumped_process *s, const struct source *from, const struct area *a)
{
    for (uint64_t at = a->start; at < a->end;) {
        size_t got = pages_take(from->mem, at, from->buffer, a->end - at < CHUNK ? a->end - at : CHUNK);
        if (got && writer_put(&d->out, s->row, NOBODY, at, from->buffer, got, &d->failure))
            return -1;
        at += got ? got : PAGE;
    }
    return 0;
}

static bool is_saved(const struct area *a, uint64_t categories)
{
    if (categories & IS_GUARD)
        return false;
    return categories & IS_SWAPPED ||
           (categories & IS_PRESENT && !(categories & IS_ZERO) && !(a->kind == AREA_FILE && categories & IS_FILE));
}

/* Guard pages (MADV_GUARD_INSTALL, as in thread stacks) have no contents. */
static void note_guard(struct dump *d, uint32_t owner, const struct region *found)
{
    *(struct guard *)table_add(&d->image.guards) =
        (struct guard){.owner = owner, .start = found->start, .end = found->end};
}

static int scan_area(struct dump *d, const struct dumped_process *s, const struct source *from, const struct area *a)
{
    static struct region found[1024];
    static uint64_t guard = IS_GUARD; /* since Linux 6.15 */
    struct scan q = {.size = sizeof q,
                     .start = a->start,
                     .end = a->end,
                     .vector = (uint64_t)(uintptr_t)found,
                     .vector_size = sizeof found / sizeof *found,
                     .any = IS_PRESENT | IS_SWAPPED,
                     .wanted = IS_FILE | IS_PRESENT | IS_SWAPPED | IS_ZERO | guard};
    int n;
    do {
        if ((n = ioctl(from->pagemap, SCAN, &q)) < 0 && guard && errno == EINVAL) {
            q.wanted &= ~guard;
            guard = 0;
            n = ioctl(from->pagemap, SCAN, &q);
        }
        if (n < 0)
            return q.start == a->start ? 1 : set_failure(&d->failure, "scan", "memory of the job");
        for (int i = 0; i < n; i++)
            if (found[i].categories & IS_GUARD)
                note_guard(d, s->row, &found[i]);
            else if (is_saved(a, found[i].categories))
                parent_plan(d, s->row, found[i].start, found[i].end);
    } while (scan_on(&q, n));
    return 0;
}

static int walk_area(struct dump *d, const struct dumped_process *s, const struct source *from, const struct area *a)
{
    static uint64_t entries[4096];
    uint64_t begun = 0, at = a->start;
    while (at < a->end) {
        size_t count = (a->end - at) / PAGE < 4096 ? (a->end - at) / PAGE : 4096;
        ssize_t n = pread(from->pagemap, entries, count * 8, (off_t)(at / PAGE * 8));
        if (n < 8)
            return set_failure(&d->failure, "read", "pagemap of the job");
        for (size_t i = 0; i < (size_t)n / 8; i++, at += PAGE) {
            uint64_t e = entries[i],
                     categories = (e >> 63 & 1) * IS_PRESENT | (e >> 62 & 1) * IS_SWAPPED | (e >> 61 & 1) * IS_FILE;
            if (is_saved(a, categories) && !begun)
                begun = at;
            if (!is_saved(a, categories) && begun) {
                parent_plan(d, s->row, begun, at);
                begun = 0;
            }
        }
    }
    if (begun)
        parent_plan(d, s->row, begun, at);
    return 0;
}

static int open_of(pid_t pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Reads the advice flags of the areas. It reads them of the source, since this walks all page tables. */
static void read_advice(struct dump *d, const struct dumped_process *s, pid_t from)
{
    static const struct {
        const char *flag;
        uint32_t bit;
    } bits[] = {{" hg", ADVICE_HUGE},      {" nh", ADVICE_NO_HUGE}, {" dc", ADVICE_NO_FORK}, {" dd", ADVICE_NO_DUMP},
                {" wf", ADVICE_WIPE},      {" dp", ADVICE_DROP},    {" rr", ADVICE_RANDOM},  {" sr", ADVICE_SEQUENTIAL},
                {" mg", ADVICE_MERGEABLE}, {" lo", ADVICE_LOCKED},  {" lf", ADVICE_ON_FAULT}};
    char path[64], *text = NULL;
    size_t room = 0;
    struct area *at = NULL, *areas = d->image.areas.rows;
    snprintf(path, sizeof path, "/proc/%d/smaps", from);
    FILE *maps = fopen(path, "re");
    while (maps && getline(&text, &room, maps) > 0) {
        struct line l;
        if (starts(text, "VmFlags:")) {
            for (size_t i = 0; at && i < sizeof bits / sizeof *bits; i++)
                if (strstr(text, bits[i].flag))
                    at->advice |= bits[i].bit;
            if (at && strstr(text, " gd"))
                at->flags |= MAP_GROWSDOWN;
            if (at && strstr(text, " nr"))
                at->flags |= MAP_NORESERVE;
            continue;
        }
        if (!(text[0] >= '0' && text[0] <= '9') && !(text[0] >= 'a' && text[0] <= 'f'))
            continue;
        if (!parse(text, &l))
            continue;
        at = NULL;
        for (uint32_t i = 0; i < d->image.areas.count && !at; i++)
            if (areas[i].owner == s->row && areas[i].end == l.end)
                at = &areas[i];
    }
    free(text);
    if (maps)
        fclose(maps);
}

static bool is_private(const struct area *a)
{
    return a->kind != AREA_SHARED && a->kind != AREA_SYSV && a->kind != AREA_VVAR &&
           !(a->kind == AREA_FILE && a->flags & MAP_SHARED);
}

static bool is_covered(const struct line *lines, size_t count, const struct area *a)
{
    for (size_t i = 0; i < count; i++)
        if (lines[i].start <= a->start && a->end <= lines[i].end)
            return true;
    return false;
}

static size_t areas_of(pid_t pid, struct line **all)
{
    char path[64], *text = NULL;
    size_t room = 0, count = 0;
    struct line l;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    *all = NULL;
    while (maps && getline(&text, &room, maps) > 0) {
        struct line *more = parse(text, &l) ? realloc(*all, (count + 1) * sizeof *more) : NULL;
        if (!more)
            continue;
        *all = more;
        more[count++] = l;
    }
    free(text);
    if (maps)
        fclose(maps);
    return count;
}

/* Whether the area has any page with contents. False if the kernel has no PAGEMAP_SCAN. */
static bool populated(int pagemap, const struct area *a)
{
    struct region first;
    struct scan q = {.size = sizeof q,
                     .start = a->start,
                     .end = a->end,
                     .vector = (uint64_t)(uintptr_t)&first,
                     .vector_size = 1,
                     .max_pages = 1,
                     .inverted = IS_ZERO,
                     .mask = IS_ZERO,
                     .any = IS_PRESENT | IS_SWAPPED,
                     .wanted = IS_PRESENT};
    return ioctl(pagemap, SCAN, &q) > 0;
}

/* Writes memory that the copies lack, from the frozen process itself: areas with MADV_DONTFORK (JIT compilers set it on
 * all memory), and areas that are empty in the copy because of MADV_WIPEONFORK (random number generators set it): a
 * move is no fork. */
int memory_left_out(struct dump *d, struct dumped_process *s)
{
    struct line *lines;
    size_t count = areas_of(s->copy.tid, &lines);
    struct source source = {
        .mem = open_of(s->pid, "mem"), .pagemap = open_of(s->pid, "pagemap"), .buffer = malloc(CHUNK)};
    int copied = open_of(s->copy.tid, "pagemap");
    parent_begin(d, s);
    int done = count && source.buffer && source.mem >= 0 && source.pagemap >= 0 && copied >= 0
                   ? 0
                   : set_failure(&d->failure, "open", "memory of the job");
    for (uint32_t i = 0; i < d->image.areas.count && !done; i++) {
        struct area a = ((struct area *)d->image.areas.rows)[i];
        if (a.owner != s->row || !is_private(&a))
            continue;
        bool there = is_covered(lines, count, &a);
        if (there && !(a.kind == AREA_ANON && !(a.advice & ADVICE_WHOLE) && populated(source.pagemap, &a) &&
                       !populated(copied, &a)))
            continue;
        done = a.advice & ADVICE_WHOLE ? put_whole(d, s, &source, &a) : scan_area(d, s, &source, &a);
        if (done > 0)
            done = walk_area(d, s, &source, &a);
        ((struct area *)d->image.areas.rows)[i].advice |= ADVICE_TAKEN | (there ? 0 : ADVICE_NO_FORK);
    }
    if (!done)
        done = pages_write(d, s, s->pid);
    parent_finish(d, s->row);
    free(lines);
    close(source.mem);
    close(source.pagemap);
    close(copied);
    free(source.buffer);
    return done;
}

int memory_write(struct dump *d, struct dumped_process *s, pid_t from)
{
    struct source source = {.mem = open_of(from, "mem"), .pagemap = open_of(from, "pagemap"), .buffer = malloc(CHUNK)};
    int done = 0;
    if (!source.buffer || source.mem < 0 || source.pagemap < 0)
        done = set_failure(&d->failure, "open", "memory of the job");
    read_advice(d, s, from);
    parent_begin(d, s);
    for (uint32_t i = 0; i < d->image.areas.count && !done; i++) {
        struct area a = ((struct area *)d->image.areas.rows)[i];
        if (a.owner != s->row || !is_private(&a) || a.advice & ADVICE_TAKEN)
            continue;
        if (a.kind == AREA_VDSO || a.advice & ADVICE_WHOLE) {
            done = put_whole(d, s, &source, &a);
            continue;
        }
        done = scan_area(d, s, &source, &a);
        if (done > 0)
            done = walk_area(d, s, &source, &a);
    }
    if (!done)
        done = pages_write(d, s, from);
    parent_finish(d, s->row);
    EACH(&d->image, areas, area, a)
        a->advice &= ~(a->owner == s->row ? ADVICE_WHOLE | ADVICE_TAKEN : 0);
    close(source.mem);
    close(source.pagemap);
    free(source.buffer);
    return done;
}

/* The end of the part that was already taken from `at` on; `at` if none was, and then `next` is where the next taken
 * part begins. */
static uint64_t taken_to(const struct dump *d, uint32_t file, uint64_t at, uint64_t *next)
{
    EACH(d, taken, part, p) {
        if (p->file == file && p->start <= at && at < p->end)
            return p->end;
        if (p->file == file && p->start > at && p->start < *next)
            *next = p->start;
    }
    return at;
}

static int take_part(struct dump *d, const struct source *from, const struct area *a, uint64_t at, uint64_t end)
{
    for (uint64_t place = a->start + (at - a->offset); at < end;) {
        size_t got = pages_take(from->mem, place, from->buffer, end - at < CHUNK ? end - at : CHUNK);
        if (got && writer_put(&d->out, 0, a->file, at, from->buffer, got, &d->failure))
            return -1;
        at += got ? got : PAGE;
        place += got ? got : PAGE;
    }
    return 0;
}

/* A copy does not freeze memory that processes share, so it is saved while everything is frozen, each part of it
 * through one process's mapping. */
int memory_shared(struct dump *d, struct dumped_process *s)
{
    struct source source = {.mem = open_of(s->pid, "mem"), .pagemap = -1, .buffer = malloc(CHUNK)};
    int done = source.buffer && source.mem >= 0 ? 0 : set_failure(&d->failure, "open", "memory of the job");
    for (uint32_t i = 0; i < d->image.areas.count && !done; i++) {
        struct area a = ((struct area *)d->image.areas.rows)[i];
        if (a.owner != s->row || a.kind != AREA_SHARED)
            continue;
        if (((struct file *)d->image.files.rows)[a.file].peer != NOBODY)
            continue; /* saved whole through its file descriptor */
        uint64_t end = a.offset + (a.end - a.start);
        for (uint64_t at = a.offset, next; at < end && !done; at = next) {
            uint64_t until = end;
            if ((next = taken_to(d, a.file, at, &until)) != at)
                continue;
            done = take_part(d, &source, &a, at, next = until);
            *(struct part *)table_add(&d->taken) = (struct part){at, until, a.file};
        }
    }
    close(source.mem);
    free(source.buffer);
    return done;
}
