/* Finds the pages that a process has written since the last image. The kernel marks them (userfaultfd's asynchronous
 * write protection, Linux 6.7); the first write to a page costs some two microseconds.
 *
 * Once: freeze; the process opens a userfaultfd, and the keeper keeps a copy of it; let go. For each image: scan and
 * protect again while the job runs, which gives the pages written before the freeze; then freeze and scan, which gives
 * the pages that are still clean. A page written between the two scans keeps its mark; it is saved now, and once more
 * in the next image.
 *
 * Small processes are not tracked, and neither is memory that they share with other processes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fd_passing.h"
#include "dump/parts.h"
#include "trace/pagemap_scan.h"

#define WORTH_KIB (16u << 10)
#define TOP ((1ull << 47) - PAGE) /* end of the addresses that a process can use */

static bool ranges_add(struct ranges *r, uint64_t start, uint64_t end)
{
    if (r->count && r->all[r->count - 1].end == start) {
        r->all[r->count - 1].end = end;
        return true;
    }
    if (r->count == r->room) {
        struct stretch *more = realloc(r->all, (r->room = r->room ? r->room * 2 : 256) * sizeof *more);
        if (!more)
            return false;
        r->all = more;
    }
    r->all[r->count++] = (struct stretch){start, end};
    return true;
}

/* The first range that ends after an address. */
const struct stretch *ranges_from(const struct ranges *r, uint64_t at)
{
    size_t low = 0, high = r->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->all[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->count ? &r->all[low] : NULL;
}

static bool scan_pages(pid_t pid, struct scan q, struct ranges *found)
{
    static struct region regions[4096];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/pagemap", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC), n;
    q.size = sizeof q;
    q.end = TOP;
    q.vector = (uint64_t)(uintptr_t)regions;
    q.vector_size = sizeof regions / sizeof *regions;
    q.wanted = IS_WRITTEN;
    found->count = 0;
    bool whole = fd >= 0;
    do {
        n = whole ? ioctl(fd, SCAN, &q) : -1;
        whole = n >= 0;
        for (int i = 0; i < n; i++)
            whole = whole && ranges_add(found, regions[i].start, regions[i].end);
    } while (whole && scan_on(&q, n));
    if (fd >= 0)
        close(fd);
    return whole;
}

static struct watched *watched_of(struct dump *d, pid_t pid)
{
    for (size_t i = 0; i < d->tracking->watched_count; i++)
        if (d->tracking->watched[i].pid == pid)
            return &d->tracking->watched[i];
    return NULL;
}

static bool add_watched(struct dump *d, const struct tracked *t, bool fresh)
{
    struct watched *more = realloc(d->tracking->watched, (d->tracking->watched_count + 1) * sizeof *more);
    if (!more)
        return false;
    d->tracking->watched = more;
    more[d->tracking->watched_count++] = (struct watched){.pid = t->pid,
                                                          .born = t->born,
                                                          .fd = t->fd,
                                                          .fresh = fresh,
                                                          .lost = t->fd < 0,
                                                          .plain = fresh && !d->tracking->dirty->stale_marks};
    return true;
}

static int open_userfault(struct dumped_process *s)
{
    struct tracee *h = &s->threads[0];
    if (!(h->call_at = find_syscall_instruction(s->pid)) || tracee_open(h, h->call_at) < 0) {
        h->call_at = 0;
        return -1;
    }
    regs_settle(&h->saved, false);
    return userfault_open(h, UNPOPULATED | ASYNCHRONOUS);
}

static bool is_large(pid_t pid) { return proc_field(pid, "status", "VmRSS", 10) >= WORTH_KIB; }

static bool has_untracked(struct dump *d)
{
    bool found = false;
    list_processes(d);
    for (size_t i = 0; i < d->count; i++)
        found |= !watched_of(d, d->processes[i].pid) && is_large(d->processes[i].pid);
    forget_processes(d);
    return found;
}

static bool watches(int pagemap, uint64_t start)
{
    struct region found;
    struct scan q = {.size = sizeof q,
                     .start = start,
                     .end = start + PAGE,
                     .vector = (uint64_t)(uintptr_t)&found,
                     .vector_size = 1,
                     .mask = IS_WATCHED,
                     .wanted = IS_WATCHED};
    return ioctl(pagemap, SCAN, &q) == 1;
}

/* Registers an area for tracking. A page may still have a "not written" mark from an earlier registration: the kernel
 * ends the registration of an area that is merged with another after a move, or, before Linux 6.14, is moved itself,
 * and the marks stay. So all of a new area counts as written, unless its process was never tracked. False: only a part
 * is registered, and its marks mean nothing. */
static bool watch_area(const struct watched *w, uint64_t start, uint64_t end)
{
    struct uffdio_register area = {.range = {start, end - start}, .mode = UFFDIO_REGISTER_MODE_WP};
    struct uffdio_writeprotect unmark = {.range = {start, end - start}};
    if (ioctl(w->fd, UFFDIO_REGISTER, &area) < 0)
        return errno != ENOMEM; /* this kind of memory cannot be tracked */
    return w->plain || ioctl(w->fd, UFFDIO_WRITEPROTECT, &unmark) == 0;
}

/* Registers private memory that the process may write, now or after mprotect; other areas count as written. The process
 * must be frozen: an area that grows in the meantime would be registered in part, which splits it in two, and the
 * process could no longer move it as one. */
static bool watch_areas(const struct watched *w)
{
    char path[64], *text = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "/proc/%d/pagemap", w->pid);
    int pagemap = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%d/maps", w->pid);
    FILE *maps = fopen(path, "re");
    bool known = pagemap >= 0 && maps;
    while (known && getline(&text, &room, maps) > 0) {
        unsigned long start, end, inode;
        char perms[8], name[8] = "";
        if (sscanf(text, "%lx-%lx %7s %*x %*s %lu %7s", &start, &end, perms, &inode, name) < 4 || end > TOP)
            continue;
        if (perms[3] != 'p' || strncmp(name, "[v", 2) == 0 || (inode && perms[1] != 'w'))
            continue;
        known = watches(pagemap, start) || watch_area(w, start, end);
    }
    free(text);
    if (maps)
        fclose(maps);
    if (pagemap >= 0)
        close(pagemap);
    return known;
}

static int watch_new(struct dump *d)
{
    if (freeze_job(d))
        return -1;
    for (size_t i = 0; i < d->count; i++) {
        struct dumped_process *s = &d->processes[i];
        struct stat_line line;
        if (!s->count || watched_of(d, s->pid) || !is_large(s->pid) || !stat_read(s->pid, &line))
            continue;
        struct tracked t = {s->pid, line.born, open_userfault(s)};
        if (t.fd >= 0 && add_watched(d, &t, true)) {
            struct watched *w = &d->tracking->watched[d->tracking->watched_count - 1];
            w->lost = !watch_areas(w);
        }
    }
    let_job_go(d);
    forget_processes(d);
    return 0;
}

/* First scan, while the job runs. */
int track_before(struct dump *d, bool stop, struct outcome *o)
{
    struct stat_line line;
    for (size_t i = 0; i < d->tracking->dirty->count; i++)
        if (stat_read(d->tracking->dirty->all[i].pid, &line) && line.born == d->tracking->dirty->all[i].born)
            add_watched(d, &d->tracking->dirty->all[i], false);
    if (!stop && has_untracked(d)) {
        uint64_t begun = boot_us();
        if (watch_new(d))
            return -1;
        o->standstill_us = boot_us() - begun;
    }
    for (size_t i = 0; i < d->tracking->watched_count; i++) {
        struct watched *w = &d->tracking->watched[i];
        w->sound = !w->lost && scan_pages(w->pid,
                                          (struct scan){.flags = stop ? 0 : SCAN_PROTECT,
                                                        .mask = IS_WRITTEN | IS_WATCHED,
                                                        .any = IS_PRESENT | IS_SWAPPED},
                                          &w->written);
    }
    return 0;
}

/* Second scan, while the job is frozen. New areas are tracked from now on. */
void track_held(struct dump *d, bool stop)
{
    for (size_t i = 0; i < d->tracking->watched_count; i++) {
        struct watched *w = &d->tracking->watched[i];
        w->sound =
            w->sound && !w->fresh &&
            scan_pages(w->pid, (struct scan){.inverted = IS_WRITTEN, .mask = IS_WRITTEN | IS_WATCHED}, &w->clean);
        w->lost = w->lost || (!stop && !watch_areas(w));
    }
}

/* The end of the range from `at` on that is clean and was not written; `at` if it is not clean. `next`: where the
 * answer may change. */
uint64_t track_clean(const struct watched *w, uint64_t at, uint64_t end, uint64_t *next)
{
    const struct stretch *clean = ranges_from(&w->clean, at), *written = ranges_from(&w->written, at);
    *next = end;
    if (!clean || clean->start >= end)
        return at;
    if (clean->start > at) {
        *next = clean->start;
        return at;
    }
    if (written && written->start <= at) {
        *next = written->end < end ? written->end : end;
        return at;
    }
    uint64_t until = clean->end < end ? clean->end : end;
    return written && written->start < until ? written->start : until;
}

const struct watched *track_of(struct dump *d, pid_t pid)
{
    const struct watched *w = watched_of(d, pid);
    return w && w->sound ? w : NULL;
}

/* Hands the list of tracked processes to the keeper, which keeps it until the next checkpoint. */
void track_hand_over(struct dump *d)
{
    for (size_t i = 0; i < d->tracking->watched_count; i++) {
        /* -1: not to be tracked again */
        struct tracked t = {d->tracking->watched[i].pid, d->tracking->watched[i].born,
                            d->tracking->watched[i].lost ? -1 : d->tracking->watched[i].fd};
        bool comes = d->tracking->watched[i].fresh && t.fd >= 0;
        send_with_fd(d->tracking->dirty->handover, &t, sizeof t, comes ? t.fd : -1, MSG_DONTWAIT);
    }
}

/* In the keeper: takes the list that a dumper has handed over. Processes that it does not name are no longer
 * tracked. */
void dirty_state_take(struct dirty_state *dirty, int from, uint64_t id)
{
    struct dirty_state old = *dirty;
    *dirty = (struct dirty_state){.id = id, .handover = -1};
    for (;;) {
        struct tracked t;
        int came;
        if (from < 0 || receive_with_fd(from, &t, sizeof t, &came, MSG_DONTWAIT) != sizeof t)
            break;
        if (came >= 0)
            t.fd = came;
        for (size_t i = 0; i < old.count && came < 0; i++)
            if (old.all[i].fd == t.fd)
                old.all[i].fd = -1; /* still tracked */
        struct tracked *more = realloc(dirty->all, (dirty->count + 1) * sizeof *more);
        if (!more) {
            close(t.fd);
            continue;
        }
        dirty->all = more;
        more[dirty->count++] = t;
    }
    for (size_t i = 0; i < old.count; i++)
        if (old.all[i].fd >= 0)
            close(old.all[i].fd);
    free(old.all);
    dirty->stale_marks = from >= 0 && (old.stale_marks || !dirty->count);
}
