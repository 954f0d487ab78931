/* Finds the job's processes and threads, and stops them.
 *
 * Every process in the keeper's /proc except the keeper and the dumper belongs to the job: the pid namespace is its
 * own. A thread that cannot be stopped is not taken for exited: an image without it would be wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dump/parts.h"
#include "mapped_files/mapped_files.h"

#define STOP_US 50000 /* for a thread to stop after it was asked to */
#define PASS_US 100000 /* for a vfork to finish */
#define STUCK_US 5000000 /* after which the freeze is given up */
#define LOOKS 50 /* one millisecond apart, when a vfork blocks the freeze */

static struct dumped_process *process_entry(struct dump *d, pid_t pid)
{
    for (size_t i = 0; i < d->count; i++)
        if (d->processes[i].pid == pid)
            return &d->processes[i];
    struct dumped_process *more = realloc(d->processes, (d->count + 1) * sizeof *more);
    if (!more)
        return NULL;
    d->processes = more;
    memset(&more[d->count], 0, sizeof *more);
    more[d->count].pid = pid;
    return &more[d->count++];
}

/* A thread's state; X if there is no such thread. */
static char state_of(pid_t pid, pid_t tid)
{
    struct stat_line line;
    return thread_stat_read(pid, tid, &line) ? line.state : 'X';
}

static bool has_ended(pid_t pid, pid_t tid)
{
    char state = state_of(pid, tid);
    return state == 'Z' || state == 'X';
}

/* The first thread may exit before the others; it is a zombie until they have exited. */
static bool is_alive(pid_t pid)
{
    struct stat_line line;
    return stat_read(pid, &line) && (line.state != 'Z' || line.threads > 1);
}

/* Seizes the process's new threads. Returns how many were new. */
static int seize_threads(struct dumped_process *s)
{
    char path[64];
    pid_t *tids;
    int fresh = 0;
    snprintf(path, sizeof path, "/proc/%d/task", s->pid);
    size_t count = numbers_in(path, &tids), before = s->count;
    s->unseized = 0;
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t j = 0; j < before && !known; j++)
            known = s->threads[j].tid == tids[i];
        if (known)
            continue;
        struct tracee *more = realloc(s->threads, (s->count + 1) * sizeof *more);
        if (!more)
            break;
        s->threads = more;
        fresh++;
        if (tracee_seize(&more[s->count], tids[i]) == 0)
            s->count++;
        else if (!has_ended(s->pid, tids[i]))
            s->unseized = tids[i];
    }
    free(tids);
    return fresh;
}

/* Processes that serve the job but do not belong to it. */
static bool is_other(pid_t pid) { return pid == 1 || pid == getpid() || is_spared(pid) || pid == mapping_supervisor(); }

/* Waits for the threads to stop. Threads that have exited are removed from the list. True: all have stopped in time. */
static bool await_stops(struct dump *d, uint64_t until)
{
    for (uint64_t pause = 20;;) {
        size_t waiting = 0;
        for (size_t i = 0; i < d->count; i++)
            for (size_t j = 0; j < d->processes[i].count;) {
                struct dumped_process *s = &d->processes[i];
                int state = s->threads[j].still ? 1 : tracee_poll(&s->threads[j]);
                if (state < 0) {
                    s->threads[j] = s->threads[--s->count];
                    continue;
                }
                s->threads[j].still = state > 0;
                waiting += state == 0;
                j++;
            }
        if (!waiting || boot_us() > until)
            return !waiting;
        usleep((useconds_t)pause);
        pause = pause < 500 ? pause * 2 : pause;
    }
}

/* All threads that have not stopped are runnable: they only wait for a CPU, which takes a while on a busy machine. */
static bool all_run(const struct dump *d)
{
    for (size_t i = 0; i < d->count; i++)
        for (size_t j = 0; j < d->processes[i].count; j++)
            if (!d->processes[i].threads[j].still &&
                state_of(d->processes[i].pid, d->processes[i].threads[j].tid) != 'R')
                return false;
    return true;
}

/* Releases the threads that have stopped. A thread that has not stopped yet cannot be released; it stays in the
 * list. */
static void release_still(struct dump *d)
{
    size_t left = 0;
    for (size_t i = 0; i < d->count; i++) {
        struct dumped_process *s = &d->processes[i];
        for (size_t j = 0; j < s->count;)
            if (s->threads[j].still) {
                tracee_release(&s->threads[j]);
                s->threads[j] = s->threads[--s->count];
            } else {
                j++;
            }
        if (s->count)
            d->processes[left++] = *s;
        else
            free(s->threads);
    }
    d->count = left;
}

/* A vfork parent cannot be stopped before its child executes a program, and the child cannot get there while it is
 * stopped. So all stopped threads run on for a moment, and so do those that stop in the meantime. Interrupted reads and
 * writes of mapped files are completed first, or the program would see short counts. */
static void let_pass(struct dump *d)
{
    complete_partial_io(d);
    release_still(d);
    mapping_run(); /* a file that the child opens may need the supervisor */
    await_stops(d, boot_us() + PASS_US);
    complete_partial_io(d);
    mapping_go();
    release_still(d);
}

static pid_t tracer_of(pid_t pid, pid_t tid)
{
    char name[64];
    snprintf(name, sizeof name, "task/%d/status", tid);
    pid_t tracer = (pid_t)proc_field(pid, name, "TracerPid", 10);
    return is_other(tracer) ? 0 : tracer;
}

bool refuse_traced(struct dump *d, struct dumped_process *s)
{
    pid_t tid = s->unseized ? s->unseized : s->pid, tracer = tracer_of(s->pid, tid);
    if (tracer)
        add_unsupported(d, "process %d is traced by process %d (detach the debugger or strace)", s->pid, tracer);
    return tracer != 0;
}

/* True if all threads are traced by us, except those that another process traces, which are refused. */
static bool all_asked(const struct dump *d)
{
    for (size_t i = 0; i < d->count; i++)
        if (d->processes[i].unseized && !tracer_of(d->processes[i].pid, d->processes[i].unseized))
            return false;
    return true;
}

static void bind_all(struct dump *d)
{
    pin_cpu();
    for (size_t i = 0; i < d->count; i++)
        for (size_t j = 0; j < d->processes[i].count; j++)
            tracee_bind(&d->processes[i].threads[j]);
}

/* Stops all threads. Repeats until a round finds no new process: a thread that is not stopped yet may fork another. All
 * are asked before any is waited for. Returns 0, 1 if a thread does not stop, or -1. */
static int stop_all(struct dump *d, uint64_t end)
{
    if (mapping_settle(d))
        return -1;
    for (int round = 0; round < 1000; round++) {
        pid_t *pids;
        size_t count = numbers_in("/proc", &pids), known = d->count;
        for (size_t i = 0; i < count; i++)
            if (!is_other(pids[i]))
                process_entry(d, pids[i]);
        free(pids);
        bool fresh = !round || d->count > known;
        for (size_t i = 0; i < d->count; i++) {
            size_t before = d->processes[i].count;
            if (is_alive(d->processes[i].pid))
                fresh |= seize_threads(&d->processes[i]) > 0 && d->processes[i].count > before;
        }
        if (mapping_give_back(d))
            return -1;
        while (!await_stops(d, boot_us() + STOP_US))
            if (boot_us() > end || !all_run(d))
                return 1;
        if (fresh)
            continue;
        if (!all_asked(d))
            return 1;
        bind_all(d);
        return mapping_held(d) || complete_partial_io(d) ? -1 : 0;
    }
    return 1;
}

/* Whether this process blocks a vfork: it shares the memory of its parent, which waits for it, and it sleeps instead of
 * executing a program. */
static bool blocks_vfork(pid_t pid, struct stat_line *line)
{
    return !is_other(pid) && stat_read(pid, line) && line->state == 'S' && line->parent > 1 &&
           state_of(line->parent, line->parent) == 'D' && syscall(SYS_kcmp, pid, line->parent, KCMP_VM, 0, 0) == 0;
}

/* It may wake up now and then, so it is checked several times. */
static bool refuse_vfork(struct dump *d)
{
    for (int look = 0; look < LOOKS && !d->reason_count; look++) {
        pid_t *pids;
        size_t count = numbers_in("/proc", &pids);
        for (size_t i = 0; i < count; i++) {
            struct stat_line line;
            if (blocks_vfork(pids[i], &line))
                add_unsupported(d,
                                "process %d waits for process %d to execute a program (vfork), for more than %u s (use "
                                "fork or posix_spawn)",
                                line.parent, pids[i], STUCK_US / 1000000);
        }
        free(pids);
        usleep(1000);
    }
    return d->reason_count;
}

int freeze_job(struct dump *d)
{
    int done;
    for (uint64_t end = boot_us() + STUCK_US; (done = stop_all(d, end)) != 0;) {
        if (done < 0)
            return -1;
        let_pass(d);
        if (boot_us() > end && refuse_vfork(d))
            return -1;
        if (boot_us() > end) {
            errno = EAGAIN;
            return set_failure(&d->failure, "hold", "a process of the job does not stop");
        }
        usleep(1000);
    }
    return 0;
}

int list_processes(struct dump *d)
{
    pid_t *pids;
    size_t count = numbers_in("/proc", &pids);
    for (size_t i = 0; i < count; i++)
        if (!is_other(pids[i]) && is_alive(pids[i]))
            process_entry(d, pids[i]);
    free(pids);
    return 0;
}

void forget_processes(struct dump *d)
{
    for (size_t i = 0; i < d->count; i++)
        free(d->processes[i].threads);
    d->count = 0;
}
