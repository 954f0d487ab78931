/* Attributes of processes and threads that no memory shows: resource limits, nice values, CPU affinity, a thread's own
 * current directory, I/O priority, core dump filter, OOM score, membarrier registrations. A restored process has no
 * more rights than one that is started: an attribute that would need more keeps the machine's value. The CPU time that
 * getrusage and clocks report begins anew, since a process's CPU time cannot be set. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/state.h"

#define MEMBARRIER_GET_REGISTRATIONS (1 << 9) /* Linux 6.3 */
#define MEMBARRIER_REGISTER_GLOBAL (1 << 2)
#define MEMBARRIER_REGISTER_PRIVATE (1 << 4)
#define IOPRIO_OF_THREAD 1
#define NOT_LOGGED_IN UINT32_MAX

static uint64_t proc_number(pid_t pid, const char *name, int base)
{
    char text[64];
    return proc_text(pid, name, text, sizeof text) ? strtoull(text, NULL, base) : 0;
}

static uint32_t login_of(pid_t pid)
{
    char text[64];
    return proc_text(pid, "loginuid", text, sizeof text) ? (uint32_t)strtoul(text, NULL, 10) : NOT_LOGGED_IN;
}

/* Reads them in a stopped process. The process reads its limits itself, since it may belong to another user. */
void attributes_of_process(struct dumped_process *s, struct process *p)
{
    struct tracee *h = &s->threads[0];
    for (int i = 0; i < RLIM_NLIMITS && i < 16; i++) {
        struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
        if (CALL(h, SYS_prlimit64, 0, i, 0, s->room) < 0 || tracee_read(s->pid, s->room, &limit, sizeof limit) < 0)
            prlimit(s->pid, (__rlimit_resource_t)i, NULL, &limit);
        p->limits[i][0] = limit.rlim_cur;
        p->limits[i][1] = limit.rlim_max;
    }
    long registered = CALL(h, SYS_membarrier, MEMBARRIER_GET_REGISTRATIONS, 0, 0);
    p->membarrier = registered < 0 ? MEMBARRIER_REGISTER_GLOBAL | MEMBARRIER_REGISTER_PRIVATE
                                   : (uint32_t)registered; /* the kernel cannot report them */
    p->out_of_memory = (int32_t)(int64_t)proc_number(s->pid, "oom_score_adj", 10);
    p->dump_filter = (uint32_t)proc_number(s->pid, "coredump_filter", 16);
    p->login = login_of(s->pid);
}

/* Refuses a thread that has left the process's descriptor table (unshare): a restore would give it the shared one. */
void attributes_table(struct dump *d, pid_t pid, pid_t tid)
{
    if (tid != pid && syscall(SYS_kcmp, pid, tid, KCMP_FILES, 0, 0) > 0)
        add_unsupported(
            d, "thread %d of process %d has a descriptor table of its own, by unshare (let it share the process's)",
            tid, pid);
}

static void own_directory(struct dump *d, struct dumped_process *s, struct tracee *h, struct thread *t)
{
    char name[64], path[4096];
    if (h->tid == s->pid || syscall(SYS_kcmp, s->pid, h->tid, KCMP_FS, 0, 0) <= 0)
        return;
    snprintf(name, sizeof name, "/proc/%d/task/%d/cwd", s->pid, h->tid);
    ssize_t n = readlink(name, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    if (n > 10 && strcmp(path + n - 10, " (deleted)") == 0)
        add_unsupported(d, "the current directory of thread %d of process %d was removed: %.200s (change to another)",
                        h->tid, s->pid, path);
    t->cwd = image_text(&d->image, path);
    snprintf(name, sizeof name, "task/%d/status", h->tid);
    t->umask = (uint32_t)proc_field(s->pid, name, "Umask", 8);
}

void attributes_of_thread(struct dump *d, struct dumped_process *s, struct tracee *h, struct thread *t)
{
    cpu_set_t processors = h->processors;
    errno = 0;
    t->nice = getpriority(PRIO_PROCESS, (id_t)h->tid);
    long io = syscall(SYS_ioprio_get, IOPRIO_OF_THREAD, h->tid);
    t->io_priority = io < 0 ? 0 : (uint32_t)io;
    if (h->pinned || sched_getaffinity(h->tid, sizeof processors, &processors) == 0)
        if (CPU_COUNT(&processors) < sysconf(_SC_NPROCESSORS_ONLN))
            t->processors = image_put(&d->image, &processors, sizeof processors);
    own_directory(d, s, h, t);
    attributes_table(d, s->pid, h->tid);
}

/* The lowest nice value of its threads. The process begins with it, since no thread can lower its own. */
int attributes_nice(const struct restoring *r, uint32_t row)
{
    int lowest = 19;
    EACH(r->image, threads, thread, t)
        if (t->owner == row && t->nice < lowest)
            lowest = t->nice;
    return lowest > r->job->start->nice ? lowest : r->job->start->nice;
}

/* Sets the CPU affinity, if this machine allows some of its CPUs: on another machine the numbers may mean other
 * CPUs. */
static void put_processors(const struct restoring *r, const struct thread *t, struct tracee *h)
{
    cpu_set_t wanted, here;
    if (t->processors.size != sizeof wanted ||
        (!h->pinned && sched_getaffinity(h->tid, sizeof h->processors, &h->processors) < 0))
        return;
    memcpy(&wanted, image_bytes(r->image, t->processors), sizeof wanted);
    CPU_AND(&here, &wanted, &h->processors);
    if (!CPU_COUNT(&here))
        return;
    h->processors = here; /* tracee_release applies them */
    h->pinned = true;
}

int attributes_restore_thread(const struct restoring *r, const struct thread *t, struct tracee *h, uint64_t room,
                              struct failure *f)
{
    char path[4200];
    put_processors(r, t, h);
    CALL(h, SYS_setpriority, PRIO_PROCESS, 0, t->nice);
    if (t->io_priority)
        CALL(h, SYS_ioprio_set, IOPRIO_OF_THREAD, 0, t->io_priority);
    if (!t->cwd.size)
        return 0;
    moved_path(r->image, r->job, image_string(r->image, t->cwd), path, sizeof path);
    if (tracee_write(h->tid, room, path, sizeof path) < 0)
        return set_failure(f, "write", "room in a new process");
    long done = CALL(h, SYS_unshare, CLONE_FS);
    if (done >= 0)
        done = CALL(h, SYS_chdir, room);
    CALL(h, SYS_umask, t->umask);
    errno = (int)-done;
    return done < 0 ? set_failure(f, "chdir", path) : 0;
}

static void put_number(pid_t pid, const char *name, const char *format, long value)
{
    char path[64], text[32];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC), size = snprintf(text, sizeof text, format, value);
    ssize_t n = fd < 0 ? -1 : write(fd, text, (size_t)size); /* on an error the machine's value remains */
    (void)n;
    if (fd >= 0)
        close(fd);
}

/* Sets the login uid, by the process itself, since it can be set once. Only if the node's processes have none. */
static void put_login(const struct process *p, struct tracee *h, uint64_t room)
{
    static const char name[] = "/proc/self/loginuid";
    char text[32];
    size_t size = (size_t)snprintf(text, sizeof text, "%u", p->login);
    if (p->login == NOT_LOGGED_IN || login_of(h->tid) != NOT_LOGGED_IN ||
        tracee_write(h->tid, room, name, sizeof name) < 0 || tracee_write(h->tid, room + 64, text, size) < 0)
        return;
    long fd = CALL(h, SYS_openat, AT_FDCWD, room, O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    CALL(h, SYS_write, fd, room + 64, size);
    CALL(h, SYS_close, fd);
}

void attributes_restore_process(const struct process *p, struct tracee *h, uint64_t room)
{
    put_login(p, h, room);
    for (uint32_t bit = 1; bit < MEMBARRIER_GET_REGISTRATIONS; bit <<= 1)
        if (p->membarrier & bit)
            CALL(h, SYS_membarrier, bit, 0, 0);
    int32_t now = (int32_t)(int64_t)proc_number(h->tid, "oom_score_adj", 10);
    if (p->out_of_memory > now) /* a job can only raise it */
        put_number(h->tid, "oom_score_adj", "%ld", p->out_of_memory);
    put_number(h->tid, "coredump_filter", "0x%lx", (long)p->dump_filter);
}
