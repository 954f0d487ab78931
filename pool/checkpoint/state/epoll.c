/* Entries of epolls. The kernel identifies an entry by its open file and the descriptor number under which it was
 * added. By the time of a dump that number may belong to another file, or to none, while the open file still exists
 * under other numbers. dump.c calls epoll_join after all file descriptors are known; fork_tree.c calls
 * epoll_restore. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/state.h"

void epoll_save(struct dump *d, uint32_t row, const char *text)
{
    const char *at = text;
    while ((at = strstr(at, "tfd:"))) {
        int number;
        unsigned events;
        unsigned long data;
        if (sscanf(at, "tfd: %d events: %x data: %lx", &number, &events, &data) == 3) {
            struct watch *w = table_add(&d->image.watches);
            *w = (struct watch){.file = row, .target = NOBODY, .number = number, .events = events, .data = data};
        }
        at += 4;
    }
}

/* The file that has the number now. Used if the kernel does not report the open file. */
static uint32_t by_number(const struct dump *d, const struct watch *w)
{
    EACH(&d->image, descriptors, descriptor, epoll)
        EACH(&d->image, descriptors, descriptor, e)
            if (epoll->file == w->file && e->owner == epoll->owner && e->number == w->number)
                return e->file;
    return NOBODY;
}

/* Called when all file descriptors are known. Entries with the same number are in the kernel's order. */
void epoll_join(struct dump *d)
{
    const struct watch *all = d->image.watches.rows;
    EACH(&d->image, watches, watch, w) {
        const struct sample *sample = (struct sample *)d->samples.rows + w->file;
        struct kcmp_epoll_slot slot = {.efd = (uint32_t)sample->fd, .tfd = (uint32_t)w->number};
        uint32_t place;
        for (const struct watch *before = all; before < w; before++)
            slot.toff += before->file == w->file && before->number == w->number;
        if (syscall(SYS_kcmp, sample->pid, sample->pid, KCMP_EPOLL_TFD, sample->fd, &slot) < 0)
            w->target = by_number(d, w);
        else if (file_place(d, sample->pid, KCMP_EPOLL_TFD, (uintptr_t)&slot, &place))
            w->target = ((uint32_t *)d->order.rows)[place];
        if (w->target == NOBODY)
            add_unsupported(
                d, "process %d has an epoll entry for descriptor %d, which it has closed (remove the entry first)",
                sample->pid, w->number);
    }
}

static bool add_entry(const struct restoring *r, const struct watch *w)
{
    struct epoll_event event = {.events = w->events, .data.u64 = w->data};
    return epoll_ctl(r->opened[w->file], EPOLL_CTL_ADD, w->number, &event) == 0 || errno == EEXIST;
}

/* The first process that has the file under that number, else the first that has the epoll; NOBODY: none has. */
static uint32_t maker(const struct restoring *r, const struct watch *w, bool *lost)
{
    uint32_t first = NOBODY;
    *lost = true;
    EACH(r->image, descriptors, descriptor, d) {
        if (d->file == w->target && d->number == w->number) {
            *lost = false;
            return d->owner;
        }
        if (d->file == w->file && first == NOBODY)
            first = d->owner;
    }
    return first;
}

/* Called by a process of the job: with `placed` when it has its file descriptors, without it before that, for entries
 * whose number belongs to another file. */
int epoll_restore(const struct restoring *r, uint32_t row, bool placed)
{
    EACH(r->image, watches, watch, w) {
        bool lost;
        if (maker(r, w, &lost) != row || lost == placed)
            continue;
        if (lost && dup3(r->opened[w->target], w->number, O_CLOEXEC) < 0)
            return -1;
        if (!add_entry(r, w))
            return -1;
        if (lost)
            close(w->number);
    }
    return 0;
}
