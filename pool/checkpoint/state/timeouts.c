/* Timeouts of system calls that are given as a duration: the remaining duration continues after the restore. For a
 * sleep that has room for the rest, the kernel reports it. For other waits it reports since when a thread has not run
 * (/proc/PID/sched, on the clock of its CPU). That is the start of the wait, unless the thread was woken for nothing in
 * between; its wait is then longer by that time, and never shorter. It is read before the freeze, which wakes threads.
 *
 * After the restore poll and epoll are called again with less time. The other calls read their time from the program's
 * memory. Such a call is begun with a time of ours and interrupted at once, so that the kernel has recorded its end; it
 * continues from there when the program is let go (restart_syscall). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "state/state.h"

#define SECOND 1000000000ull
#define RESTART_BLOCK (-516) /* ERESTART_RESTARTBLOCK, internal to the kernel */
#define PWAIT2 441
#define AGAIN_US 500

struct wait { /* of a thread, as it was before the freeze */
    pid_t tid;
    long number;
    uint64_t since, switches; /* since: CLOCK_MONOTONIC in ns; switches: voluntary context switches until then */
};

/* Reads when the thread last ran, on its CPU's clock, and how often it has slept. */
static bool last_ran(const char *path, uint64_t *at, uint64_t *switches)
{
    char text[4096];
    unsigned long ms, ns;
    const char *exec, *given;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = 0;
    exec = strstr(text, "se.exec_start");
    given = strstr(text, "nr_voluntary_switches");
    if (!exec || !given || sscanf(exec, "se.exec_start : %lu.%6lu", &ms, &ns) != 2 ||
        sscanf(given, "nr_voluntary_switches : %lu", switches) != 1)
        return false;
    *at = ms * 1000000 + ns;
    return true;
}

/* Whether the kernel reports it: 0, or -1 and errno. */
int timeouts_try(void)
{
    uint64_t at, switches;
    errno = 0;
    if (last_ran("/proc/self/sched", &at, &switches))
        return 0;
    errno = errno ? errno : ENODATA;
    return -1;
}

/* The difference between CLOCK_MONOTONIC and a CPU's clock. Measured on that CPU, right after a sleep, when
 * /proc/self/sched has the CPU's time. */
static bool ahead_of(int processor, int64_t *ahead)
{
    static struct {
        bool asked, known;
        int64_t ahead;
    } all[CPU_SETSIZE];
    cpu_set_t before, one;
    if (processor < 0 || processor >= CPU_SETSIZE)
        return false;
    if (!all[processor].asked && sched_getaffinity(0, sizeof before, &before) == 0) {
        CPU_ZERO(&one);
        CPU_SET(processor, &one);
        if (sched_setaffinity(0, sizeof one, &one) == 0) {
            for (int tries = 0; tries < 3; tries++) {
                uint64_t at, switches;
                usleep(1);
                int64_t now = (int64_t)monotonic_ns();
                if (!last_ran("/proc/self/sched", &at, &switches))
                    break;
                if (!all[processor].known || now - (int64_t)at < all[processor].ahead)
                    all[processor].ahead = now - (int64_t)at;
                all[processor].known = true;
            }
            sched_setaffinity(0, sizeof before, &before);
        }
    }
    all[processor].asked = true;
    *ahead = all[processor].ahead;
    return all[processor].known;
}

/* The system call that a restarted one was at first (restart_syscall hides the number), derived from the kernel
 * function in which it waits. Only four calls restart in this way; a sleep is recognised as the remaining case. */
static long begun_as(pid_t pid, pid_t tid, unsigned long first)
{
    char name[64], text[128];
    snprintf(name, sizeof name, "task/%d/wchan", tid);
    if (!proc_text(pid, name, text, sizeof text) || text[0] == '0')
        return SYS_restart_syscall; /* not readable */
    if (strstr(text, "futex"))
        return SYS_futex;
    return strstr(text, "poll") ? SYS_poll : first < PAGE || (long)first < 0 ? SYS_clock_nanosleep : SYS_nanosleep;
}

static bool has_timeout(long number)
{
    return number == SYS_poll || number == SYS_epoll_wait || number == SYS_epoll_pwait || number == PWAIT2 ||
           number == SYS_nanosleep || number == SYS_clock_nanosleep || number == SYS_futex;
}

/* False: the thread runs, so it cannot be read. */
static bool note_wait(struct dump *d, pid_t pid, pid_t tid)
{
    char name[64], path[96], text[2048];
    unsigned long first;
    struct wait w = {.tid = tid};
    snprintf(name, sizeof name, "task/%d/syscall", tid);
    if (!proc_text(pid, name, text, sizeof text) || sscanf(text, "%ld 0x%lx", &w.number, &first) != 2)
        return strncmp(text, "running", 7) != 0;
    bool again = w.number == SYS_restart_syscall;
    if (again)
        w.number = begun_as(pid, tid, first);
    if (!has_timeout(w.number))
        return w.number != SYS_restart_syscall;
    int64_t ahead;
    struct stat_line line;
    uint64_t at;
    int processor = thread_stat_read(pid, tid, &line) ? line.processor : -1;
    snprintf(path, sizeof path, "/proc/%d/task/%d/sched", pid, tid);
    /* the time that was left when it was restarted is unknown */
    if (!again && last_ran(path, &at, &w.switches) && ahead_of(processor, &ahead))
        w.since = at + (uint64_t)ahead;
    *(struct wait *)table_add(&d->waits) = w;
    return true;
}

/* A running thread may be about to wait again, if the job was just let go: it is examined a second time. */
void timeouts_note(struct dump *d)
{
    d->waits.size = sizeof(struct wait);
    d->waits.count = 0;
    for (size_t i = 0; i < d->count; i++) {
        pid_t *tids;
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/task", d->processes[i].pid);
        size_t count = numbers_in(path, &tids);
        size_t running = 0;
        for (size_t j = 0; j < count; j++)
            if (!note_wait(d, d->processes[i].pid, tids[j]))
                tids[running++] = tids[j];
        if (running)
            usleep(AGAIN_US);
        for (size_t j = 0; j < running; j++)
            note_wait(d, d->processes[i].pid, tids[j]);
        free(tids);
    }
}

static uint64_t time_at(pid_t pid, unsigned long at)
{
    int64_t t[2];
    return at && tracee_read(pid, at, t, sizeof t) == 0 && t[0] >= 0 && t[0] < INT_MAX
               ? (uint64_t)t[0] * SECOND + (uint64_t)t[1]
               : 0;
}

/* The duration that a call was given; 0: none, or an absolute time. */
static uint64_t given(pid_t pid, long number, const unsigned long a[6])
{
    switch (number) {
    case SYS_poll:
        return (int)a[2] > 0 ? (uint64_t)(int)a[2] * 1000000 : 0;
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
        return (int)a[3] > 0 ? (uint64_t)(int)a[3] * 1000000 : 0;
    case SYS_nanosleep:
        return time_at(pid, a[0]);
    case SYS_clock_nanosleep:
        return a[1] & TIMER_ABSTIME ? 0 : time_at(pid, a[2]);
    case SYS_futex:
        return (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT ? time_at(pid, a[3]) : 0;
    case PWAIT2:
        return time_at(pid, a[3]);
    }
    return 0;
}

void timeouts_save(struct dump *d, pid_t pid, pid_t tid, struct user_regs_struct *r, struct thread *t)
{
    unsigned long a[6];
    long number = regs_asked(r, a);
    if (regs_result(r) != RESTART_BLOCK && regs_result(r) != -EINTR && number != SYS_restart_syscall)
        return;
    const struct wait *w = NULL;
    for (size_t i = 0; i < d->waits.count && !w; i++)
        if (((struct wait *)d->waits.rows)[i].tid == tid)
            w = (struct wait *)d->waits.rows + i;
    if (number == SYS_restart_syscall && w)
        regs_ask(r, number = w->number);
    /* the kernel has written the remaining time there */
    unsigned long told = number == SYS_nanosleep ? a[1] : number == SYS_clock_nanosleep ? a[3] : 0;
    uint64_t whole = given(pid, number, a), switches, at, now = monotonic_ns();
    if (!whole || (t->left = time_at(pid, told)))
        return;
    t->left = whole;
    char path[96];
    snprintf(path, sizeof path, "/proc/%d/task/%d/sched", pid, tid);
    /* one more switch: the freeze */
    if (w && w->number == number && w->since && now > w->since && last_ran(path, &at, &switches) &&
        switches == w->switches + 1)
        t->left = now - w->since < whole ? whole - (now - w->since) : 1;
}

/* Begins the call with our time; if it returns at once, its result becomes the answer. */
static void begin_call(struct tracee *h, uint64_t room, uint64_t left, struct user_regs_struct *r)
{
    const int64_t while_[2] = {(int64_t)(left / SECOND), (int64_t)(left % SECOND)};
    unsigned long a[6];
    long number = regs_asked(r, a);
    if (tracee_write(h->tid, room, while_, sizeof while_) < 0)
        return;
    a[number == SYS_nanosleep ? 0 : number == SYS_clock_nanosleep ? 2 : 3] = room;
    long done = tracee_begin(h, number, a);
    if (done == RESTART_BLOCK)
        regs_ask(r, SYS_restart_syscall);
    else if (!h->lost)
        regs_answer(r, done);
}

void timeouts_restore(const struct thread *t, struct tracee *h, uint64_t room, struct user_regs_struct *r)
{
    unsigned long a[6];
    uint64_t ms = (t->left + 999999) / 1000000;
    if (!t->left)
        return;
    switch (regs_asked(r, a)) {
    case SYS_poll:
        a[2] = ms;
        break;
    case PWAIT2:
        regs_ask(r, SYS_epoll_pwait);
        /* fall through */
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
        a[3] = ms < INT_MAX ? ms : INT_MAX;
        break;
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_futex:
        begin_call(h, room, t->left, r);
        return;
    default:
        return;
    }
    regs_give(r, a);
}
