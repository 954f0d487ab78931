/* Restores a job, in a process of its own between the keeper and the job: it reads and checks the image, opens the
 * files, forks the processes as the keeper's children, restores each, and exits; then the job runs. Until then
 * everything that it made dies with it. The keeper calls restore_start. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mapped_files/mapped_files.h"
#include "restore/parts.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static int set_unfit(struct failure *f, const char *what, const char *why)
{
    char text[TEXT];
    snprintf(text, sizeof text, "%.200s\n%.400s", what, why);
    errno = ENOEXEC;
    return set_failure(f, "restore", text);
}

static int check_machine(const struct restoring *r, struct failure *f)
{
    const char *missing = features_missing(r->image->machine.features);
    char text[400];
    if (missing)
        snprintf(text, sizeof text, "this machine's processor lacks features of the previous one: %s", missing);
    else if ((missing = tmp_without_place(r)))
        snprintf(text, sizeof text, "the job had a /tmp of its own, and has none here (set PRIVATE_TMP): %.200s",
                 missing);
    else if (!inet_fits(r->image))
        snprintf(text, sizeof text,
                 "the job had a network of its own with connections, and has none here (set JOB_NETWORK)");
    else
        return 0;
    return set_unfit(f, "machine", text); /* the checkpoint is not at fault: another machine may restore it */
}

static int load_image(struct restoring *r, int directory, struct failure *f)
{
    const char *wrong = NULL;
    for (unsigned i = 0; i < SOURCES; i++) {
        struct stat st;
        char name[SOURCE_NAME];
        r->in.pages[i] = openat(directory, source_name(name, i), O_RDONLY | O_CLOEXEC);
        if (r->in.pages[i] >= 0 && fstat(r->in.pages[i], &st) == 0)
            r->in.sizes[i] = (uint64_t)st.st_size;
        else if (!i)
            return set_failure(f, "read", "pages of the checkpoint");
    }
    if (image_read(r->image, directory, "meta", r->in.sizes, &wrong) < 0)
        return set_unfit(f, "checkpoint", wrong);
    return check_machine(r, f) || areas_filled(r, f) ? -1 : 0;
}

static bool is_taken(const struct image *image, pid_t pid)
{
    EACH(image, processes, process, p)
        if (p->pid == pid || p->session == pid || p->group == pid)
            return true;
    EACH(image, threads, thread, t)
        if (t->tid == pid)
            return true;
    return false;
}

static pid_t unused(const struct image *image, pid_t from)
{
    while (is_taken(image, from))
        from++;
    return from;
}

/* The job's monotonic clocks continue where they stood. Without time namespaces they jump, as on a machine that was
 * suspended. */
static void set_clocks(struct restoring *r)
{
    const struct image *image = r->image;
    char text[160];
    r->clocked_ns = (int64_t)monotonic_ns();
    int64_t m = image->machine.monotonic_ns - r->clocked_ns;
    int64_t b = image->machine.boot_ns - (int64_t)clock_ns(CLOCK_BOOTTIME);
    int64_t ms = m / 1000000000 - (m % 1000000000 < 0), bs = b / 1000000000 - (b % 1000000000 < 0);
    snprintf(text, sizeof text, "monotonic %lld %lld\nboottime %lld %lld\n", (long long)ms,
             (long long)(m - ms * 1000000000), (long long)bs, (long long)(b - bs * 1000000000));
    if (unshare(CLONE_NEWTIME) < 0)
        return;
    int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, text, strlen(text)) < 0) {
        /* the job gets this machine's clocks */
    }
    if (fd >= 0)
        close(fd);
}

static int prepare_tables(struct restoring *r, struct failure *f)
{
    struct rlimit limit;
    size_t files = r->image->files.count + 1ul, processes = r->image->processes.count + 1ul;
    r->opened = malloc(files * sizeof *r->opened);
    r->spare = malloc(files * sizeof *r->spare);
    r->programs = malloc(processes * sizeof *r->programs);
    r->restore_shared =
        mmap(NULL, sizeof *r->restore_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!r->opened || !r->spare || !r->programs || r->restore_shared == MAP_FAILED ||
        processes > sizeof r->restore_shared->state / sizeof *r->restore_shared->state)
        return set_failure(f, "malloc", "tables");
    memset(r->opened, 0xff, files * sizeof *r->opened);
    memset(r->spare, 0xff, files * sizeof *r->spare);
    r->base = 64;
    EACH(r->image, descriptors, descriptor, d)
        if (d->number >= r->base)
            r->base = d->number + 1;
    EACH(r->image, watches, watch, w)
        if (w->number >= r->base)
            r->base = w->number + 1;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    for (unsigned i = 0; i < SOURCES; i++)
        r->in.pages[i] = lift(r->in.pages[i], r->base);
    r->end = lift(r->end, r->base);
    r->helper = unused(r->image, (mapping_supervisor() > 0 ? mapping_supervisor() : getpid()) + 1);
    return 0;
}

static int stop_process(struct restored_process *b, pid_t pid, struct failure *f)
{
    b->threads = calloc(1, sizeof *b->threads);
    if (!b->threads)
        return set_failure(f, "malloc", "threads");
    b->count = 1;
    struct tracee *h = b->threads;
    if (tracee_seize(h, pid) < 0 || tracee_await(h) < 0)
        return set_failure(f, "ptrace", "a new process");
    uint64_t call_at = find_syscall_instruction(pid);
    return tracee_open(h, call_at) < 0 ? set_failure(f, "ptrace", "a new process") : 0;
}

/* The parent reads the signal with wait. An image may contain any value. */
static int stop_signal(const struct process *p)
{
    return p->status == SIGTSTP || p->status == SIGTTIN || p->status == SIGTTOU ? (int)p->status : SIGSTOP;
}

static int restore_processes(struct restoring *r, struct failure *f)
{
    uint32_t count = r->image->processes.count;
    struct process *rows = r->image->processes.rows;
    struct restored_process *restored = calloc(count, sizeof *restored);
    if (!restored)
        return set_failure(f, "malloc", "tables");
    pin_cpu();
    for (uint32_t i = 0; i < count; i++)
        if (!(rows[i].flags & PROCESS_ZOMBIE) &&
            (stop_process(&restored[i], rows[i].pid, f) || become_process(r, i, &restored[i], f)))
            return -1;
    if (file_settings_seal(r, f) || inotify_restore(r, f))
        return -1;
    sysv_remove(r);
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i].flags & PROCESS_ZOMBIE)
            continue;
        if (rows[i].flags & PROCESS_STOPPED)
            kill(rows[i].pid, stop_signal(&rows[i]));
    }
    for (uint32_t i = 0; i < count; i++)
        for (size_t j = 0; j < restored[i].count; j++)
            tracee_release(&restored[i].threads[j]);
    return 0;
}

static int restore_job(struct restoring *r, struct failure *f)
{
    /* The fork server is not dumpable, to protect itself from jobs of its user. No job runs here yet, and this process
     * must trace the processes that it forks. */
    prctl(PR_SET_DUMPABLE, 1);
    if (prepare_tables(r, f) || filter_enter_domain(r->job, f) || sysv_restore(r, f) || rights_as_job(r->job, true, f))
        return -1;
    int opened = tmp_restore(r, f) || files_reopen(r, f) ? -1 : 0;
    struct failure back;
    if (rights_as_job(r->job, false, opened ? &back : f) || opened)
        return -1;
    if (inet_restore(r, f) || mapping_restore(r, f))
        return -1;
    set_clocks(r);
    return timerfds_start(r, f) || fork_all_processes(r, f) || restore_processes(r, f) ? -1 : 0;
}

static void tell_keeper(int fd, const struct failure *f)
{
    for (const char *at = (const char *)f, *end = at + sizeof *f; at < end;) {
        ssize_t n = write(fd, at, (size_t)(end - at));
        if (n <= 0)
            break;
        at += n;
    }
}

/* Forks the process that restores the job. The members are found by their pids in the image. The read end of the pipe
 * reports the result as members_start's does: a struct failure, or nothing once the job runs. */
int restore_start(struct job *job, int directory, int group, int *pipe_end, pid_t *restorer, struct failure *f)
{
    static struct image image;
    struct restoring r = {.image = &image, .in.image = &image, .job = job};
    int ends[2];
    if (load_image(&r, directory, f))
        return -1;
    if (members_load(job, &image))
        return set_unfit(f, "checkpoint", "it belongs to a job with other processes");
    if (pipe2(ends, O_CLOEXEC) < 0)
        return set_failure(f, "pipe", "");
    pid_t wanted = unused(&image, 300);
    if (mapping_await(job, unused(&image, wanted + 1), f))
        return -1;
    pid_t pid = fork_as(wanted, group, 0);
    if (pid == 0) {
        r.end = ends[1];
        int done = restore_job(&r, f);
        if (done)
            tell_keeper(r.end, f);
        _exit(done ? 1 : 0);
    }
    if (pid < 0)
        set_failure(f, "fork", "a process that restores");
    mapping_awaited();
    members_close_ends(job);
    close(ends[1]);
    if (pid < 0)
        close(ends[0]);
    for (unsigned i = 0; i < SOURCES; i++)
        if (r.in.pages[i] >= 0)
            close(r.in.pages[i]);
    free(r.filled);
    image_free(&image);
    *restorer = pid;
    *pipe_end = ends[0];
    return pid < 0 ? -1 : 0;
}
