/* Saves and restores signal handlers, alternate stacks, pending signals and timers of processes. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "state/state.h"

#define SECOND 1000000000ull
#define MICROSECONDS 1000000ull

static void save_handlers(struct dump *d, struct dumped_process *s)
{
    uint64_t actions[65][4];
    uint64_t set = proc_field(s->pid, "status", "SigIgn", 16) | proc_field(s->pid, "status", "SigCgt", 16);
    for (unsigned n = 1; n <= 64; n++)
        if (set >> (n - 1) & 1)
            CALL(&s->threads[0], SYS_rt_sigaction, n, 0, s->room + n * 32, 8);
    if (!set || tracee_read(s->pid, s->room, actions, sizeof actions) < 0)
        return;
    for (unsigned n = 1; n <= 64; n++)
        if (set >> (n - 1) & 1) {
            struct handler *h = table_add(&d->image.handlers);
            h->owner = s->row;
            h->signal = n;
            memcpy(h->action, actions[n], sizeof h->action);
        }
}

static void save_pending(struct dump *d, struct dumped_process *s, struct tracee *h, bool shared)
{
    struct pending p = {.owner = s->row, .thread = shared ? 0 : h->tid};
    for (uint64_t i = 0; i < 4096 && tracee_pending(h, shared, i, p.info) == 1; i++)
        *(struct pending *)table_add(&d->image.pendings) = p;
}

/* Remaining times count from the moment when the job's clocks were read, and from the moment when they are set. `t`:
 * seconds and their `parts`. */
static void add_since(const struct dump *d, uint64_t t[2], uint64_t parts)
{
    uint64_t all = t[0] * parts + t[1] + since_clocks(d) * parts / SECOND;
    if (t[0] || t[1])
        t[0] = all / parts, t[1] = all % parts;
}

static void take_since(const struct restoring *r, uint64_t t[2], uint64_t parts)
{
    uint64_t left = left_now(r, t[0] * SECOND + t[1] * (SECOND / parts));
    t[0] = left / SECOND, t[1] = left % SECOND / (SECOND / parts);
}

/* Other clocks count CPU time. */
static bool counts_time(int32_t clock)
{
    return clock >= 0 && clock != CLOCK_PROCESS_CPUTIME_ID && clock != CLOCK_THREAD_CPUTIME_ID;
}

static void save_timers(const struct dump *d, struct dumped_process *s, struct process *p)
{
    for (unsigned i = 0; i < 3; i++)
        if (CALL(&s->threads[0], SYS_getitimer, i, s->room) == 0)
            tracee_read(s->pid, s->room, p->timers[i], sizeof p->timers[i]);
    /* A timer that has expired, with its signal still pending, reads 0 though it is armed: the signal's delivery rearms
     * it. It is saved with its whole interval. */
    for (unsigned i = 0; i < 3; i++)
        if ((p->timers[i][0] || p->timers[i][1]) && !p->timers[i][2] && !p->timers[i][3]) {
            p->timers[i][2] = p->timers[i][0];
            p->timers[i][3] = p->timers[i][1];
        }
    add_since(d, &p->timers[ITIMER_REAL][2], MICROSECONDS);
}

/* Parses /proc/PID/timers, which has four lines for each timer. */
static void save_alarms(struct dump *d, struct dumped_process *s)
{
    struct alarm_timer a = {0};
    char *text = proc_whole(s->pid, "timers");
    for (char *line = text ? strtok(text, "\n") : NULL; line; line = strtok(NULL, "\n")) {
        char how[16];
        if (sscanf(line, "ID: %d", &a.id) == 1 || sscanf(line, "signal: %d/%lx", &a.signal, &a.value) == 2)
            continue;
        if (sscanf(line, "notify: %15[a-z]/%*[a-z].%d", how, &a.thread) == 2) {
            a.notify = (strcmp(how, "none") == 0 ? SIGEV_NONE : SIGEV_SIGNAL) |
                       (strstr(line, "/tid") ? 4 /* SIGEV_THREAD_ID */ : 0);
        } else if (sscanf(line, "ClockID: %d", &a.clock) == 1) {
            a.owner = s->row;
            if (CALL(&s->threads[0], SYS_timer_gettime, a.id, s->room) == 0)
                tracee_read(s->pid, s->room, a.times, sizeof a.times);
            if ((a.times[0] || a.times[1]) && !a.times[2] && !a.times[3]) {
                a.times[2] = a.times[0];
                a.times[3] = a.times[1];
            }
            if (counts_time(a.clock))
                add_since(d, &a.times[2], SECOND);
            *(struct alarm_timer *)table_add(&d->image.alarms) = a;
        }
    }
}

int signals_save(struct dump *d, struct dumped_process *s)
{
    save_handlers(d, s);
    save_timers(d, s, (struct process *)d->image.processes.rows + s->row);
    save_alarms(d, s);
    save_pending(d, s, &s->threads[0], true);
    for (size_t i = 0; i < s->count; i++)
        save_pending(d, s, &s->threads[i], false);
    return 0;
}

int signals_thread(struct dump *d, struct dumped_process *s, struct tracee *h, struct thread *t)
{
    struct {
        uint64_t at;
        int32_t flags;
        uint64_t size;
    } stack;
    (void)d;
    if (CALL(h, SYS_sigaltstack, 0, s->room) == 0 && tracee_read(s->pid, s->room, &stack, sizeof stack) == 0) {
        t->alt_at = stack.at;
        t->alt_size = stack.size;
        t->alt_flags = (uint32_t)stack.flags & ~(uint32_t)SS_ONSTACK;
    }
    return 0;
}

static void put_alarms(const struct restoring *r, uint32_t row, struct tracee *h, uint64_t room)
{
    EACH(r->image, alarms, alarm_timer, a) {
        if (a->owner != row)
            continue;
        /* struct sigevent: value, signal, notify, thread */
        struct {
            uint64_t value;
            int32_t signal, notify, thread, pad[11];
        } event = {.value = a->value, .signal = a->signal, .notify = a->notify, .thread = a->thread};
        int32_t wanted = a->id;
        struct {
            char event[64];
            int32_t id;
        } place;
        memcpy(place.event, &event, sizeof place.event);
        place.id = wanted;
        tracee_write(h->tid, room, &place, sizeof place);
        /* PR_TIMER_CREATE_RESTORE_IDS, Linux 6.15. On older kernels timers are created until one has the wanted id. */
        bool exact = CALL(h, SYS_prctl, 77, 1) == 0;
        for (int tries = 0; tries < 100000; tries++) {
            int32_t id = -1;
            if (CALL(h, SYS_timer_create, a->clock, room, room + 64) < 0 ||
                tracee_read(h->tid, room + 64, &id, sizeof id) < 0 || id == wanted)
                break;
            CALL(h, SYS_timer_delete, id);
            if (id > wanted)
                break;
        }
        if (exact)
            CALL(h, SYS_prctl, 77, 0);
        uint64_t times[4];
        memcpy(times, a->times, sizeof times);
        if ((times[2] || times[3]) && counts_time(a->clock))
            take_since(r, &times[2], SECOND);
        tracee_write(h->tid, room, times, sizeof times);
        CALL(h, SYS_timer_settime, wanted, 0, room, 0);
    }
}

/* The process sends them to itself, since the kernel allows a signal that claims to come from the kernel only then. */
static void put_pending(const struct image *image, uint32_t row, struct tracee *threads, size_t count, uint64_t room)
{
    EACH(image, pendings, pending, p) {
        int32_t signal;
        if (p->owner != row)
            continue;
        memcpy(&signal, p->info, sizeof signal);
        struct tracee *h = &threads[0];
        for (size_t i = 0; i < count; i++)
            if (threads[i].tid == p->thread)
                h = &threads[i];
        tracee_write(h->tid, room, p->info, sizeof p->info);
        if (p->thread)
            CALL(h, SYS_rt_tgsigqueueinfo, threads[0].tid, h->tid, signal, room);
        else
            CALL(h, SYS_rt_sigqueueinfo, threads[0].tid, signal, room);
    }
}

int signals_restore(const struct restoring *r, uint32_t row, struct tracee *threads, size_t count, uint64_t room,
                    struct failure *f)
{
    const struct image *image = r->image;
    const struct process *p = (struct process *)image->processes.rows + row;
    put_alarms(r, row, &threads[0], room);
    for (unsigned i = 0; i < 3; i++) {
        if (!p->timers[i][2] && !p->timers[i][3])
            continue;
        uint64_t times[4];
        memcpy(times, p->timers[i], sizeof times);
        if (i == ITIMER_REAL)
            take_since(r, &times[2], MICROSECONDS);
        tracee_write(threads[0].tid, room, times, sizeof times);
        if (CALL(&threads[0], SYS_setitimer, i, room, 0) < 0)
            return set_failure(f, "setitimer", "");
    }
    put_pending(image, row, threads, count, room);
    return 0;
}
