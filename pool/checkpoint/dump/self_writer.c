/* A frozen copy writes its own memory, with the code of self_writer_code.c, in two processes that share it: code into
 * its room; a socket pair; the files and the write job through it; a second process; both run; both stop.
 *
 * A copy has all of the job's limits and filters, and its cgroup. If one of them prevents the writing, other processes
 * read its memory (pages.c); they also write the rest of an unfinished one. The job itself is never made to write: that
 * would count against its limits. Everything is prepared before the keeper may suspend the job: a process in a frozen
 * cgroup executes an injected call only when the cgroup is thawed. A writer that is frozen while it writes is given up
 * after a while. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/fd_passing.h"
#include "dump/self_writer.h"

#define STACK 8192u /* for each writer, at the end of the room */
#define GIVEN (WRITERS + 1) /* file descriptors to send: the files and the write job */

struct passed_fds { /* its layout in the copy's room, after the code */
    struct msghdr head;
    struct iovec part;
    int ends[2];
    char word[8];
    char control[CMSG_SPACE(GIVEN * sizeof(int))] __attribute__((aligned(8)));
};

/* A filter that the job installed itself may forbid a call of the writer and kill it. */
static bool has_own_filter(const struct dump *d, const struct dumped_process *s)
{
    const struct process *p = (struct process *)d->image.processes.rows + s->row;
    size_t length;
    uint64_t ours = proc_field(getpid(), "status", "Seccomp_filters", 10) + (filter_code(d->job, &length) != NULL) +
                    (p->mapped != 0);
    return proc_field(s->copy.tid, "status", "Seccomp", 10) &&
           proc_field(s->copy.tid, "status", "Seccomp_filters", 10) > ours;
}

/* Page cache that the copy writes is charged to the job's cgroup, and may exceed its memory limit. */
static bool is_charged(void) { return settings.able & ABLE_MEMORY && fcntl(GROUP, F_GETFD) >= 0; }

static bool large_enough(pid_t pid, uint64_t size)
{
    struct rlimit limit;
    if (prlimit(pid, RLIMIT_FSIZE, NULL, &limit) < 0)
        return false;
    limit.rlim_cur = limit.rlim_max;
    return limit.rlim_max >= size && prlimit(pid, RLIMIT_FSIZE, &limit, NULL) == 0;
}

/* Sets the same low priority as for the workers (image/workers.c). */
static bool gives_way(pid_t tid)
{
    struct sched_param none = {0};
    cpu_set_t set;
    return sched_setscheduler(tid, SCHED_IDLE, &none) == 0 && setpriority(PRIO_PROCESS, (id_t)tid, 19) == 0 &&
           syscall(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, tid, 3 << 13 /* idle */) == 0 &&
           (sched_getaffinity(0, sizeof set, &set) < 0 || sched_setaffinity(tid, sizeof set, &set) == 0);
}

/* Passes our file descriptors to the copy; `there` gets their numbers in it. */
static bool pass_fds(struct dumped_process *s, const int given[GIVEN], int there[GIVEN])
{
    struct tracee *h = &s->copy;
    uint64_t at = s->room + PAGE;
    struct passed_fds l = {.head = {.msg_iov = (struct iovec *)(uintptr_t)(at + offsetof(struct passed_fds, part)),
                                    .msg_iovlen = 1,
                                    .msg_control = (void *)(uintptr_t)(at + offsetof(struct passed_fds, control)),
                                    .msg_controllen = sizeof l.control},
                           .part = {(void *)(uintptr_t)(at + offsetof(struct passed_fds, word)), 1}};
    if (CALL(h, SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, at + offsetof(struct passed_fds, ends)) !=
            0 ||
        tracee_read(h->tid, at + offsetof(struct passed_fds, ends), l.ends, sizeof l.ends) < 0)
        return false;
    int of = (int)syscall(SYS_pidfd_open, h->tid, 0),
        fd = of < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, of, l.ends[0], 0);
    bool sent = fd >= 0 && send_with_fds(fd, "", 1, given, GIVEN, MSG_DONTWAIT) == 1;
    if (of >= 0)
        close(of);
    if (fd >= 0)
        close(fd);
    if (!sent || tracee_write(h->tid, at, &l, sizeof l) < 0 ||
        CALL(h, SYS_recvmsg, l.ends[1], at, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1 ||
        tracee_read(h->tid, at, &l, sizeof l) < 0)
        return false;
    const struct cmsghdr *c = (struct cmsghdr *)l.control;
    if (l.head.msg_flags & MSG_CTRUNC || c->cmsg_len != CMSG_LEN(GIVEN * sizeof(int)))
        return false;
    memcpy(there, CMSG_DATA(c), GIVEN * sizeof(int));
    return true;
}

/* Reserves room for one slice for each page. */
static bool reserve(struct self_writer *self_writer, pid_t pid)
{
    uint64_t kib = proc_field(pid, "status", "VmRSS", 10) + proc_field(pid, "status", "VmSwap", 10);
    self_writer->size = ((4ul << 20) + kib / 4 * 24 + PAGE - 1) & ~(PAGE - 1);
    self_writer->memory = kib << 10 < MUCH ? -1 : (int)syscall(SYS_memfd_create, "write-job", MFD_CLOEXEC);
    if (self_writer->memory < 0 || ftruncate(self_writer->memory, (off_t)self_writer->size) < 0)
        return false;
    self_writer->write_job = mmap(NULL, self_writer->size, PROT_READ | PROT_WRITE, MAP_SHARED, self_writer->memory, 0);
    return self_writer->write_job != MAP_FAILED;
}

static bool make_writer(struct dump *d, struct dumped_process *s)
{
    struct tracee *h = &s->copy;
    struct self_writer *self_writer = s->self_writer;
    char name[SOURCE_NAME];
    if (!reserve(self_writer, h->tid) || is_charged() || has_own_filter(d, s) ||
        !large_enough(h->tid, self_writer->size * (PAGE / 24)))
        return false;
    if (d->out.more < 0)
        d->out.more = openat(d->out.directory, source_name(name, MORE), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int given[GIVEN] = {d->out.pages, d->out.more, self_writer->memory}, there[GIVEN];
    size_t code = (size_t)(writer_code_end - writer_code_begin);
    if (d->out.more < 0 || code > PAGE || tracee_write(h->tid, s->room, writer_code_begin, code) < 0 ||
        !pass_fds(s, given, there) || CALL(h, SYS_mprotect, s->room, PAGE, PROT_READ | PROT_EXEC) != 0)
        return false;
    long at = CALL(h, SYS_mmap, 0, self_writer->size, PROT_READ | PROT_WRITE, MAP_SHARED, there[WRITERS], 0);
    if (at < 0 && at > -4096)
        return false;
    self_writer->there = (uint64_t)at;
    memcpy(self_writer->files, there, sizeof self_writer->files);
    if (workers_most() > 1 && tracee_clone(h, &self_writer->second, CLONE_VM | CLONE_FILES | CLONE_PARENT) < 0)
        self_writer->second.tid = 0;
    /* Last, since an injected call may take long in the idle class. */
    return gives_way(h->tid) && (!self_writer->second.tid || gives_way(self_writer->second.tid));
}

static void reap_writer(struct dump *d, struct tracee *h)
{
    struct rusage use = {0};
    int status;
    if (!h->tid)
        return;
    if (!h->lost)
        kill(h->tid, SIGKILL);
    while (!h->lost && wait4(h->tid, &status, __WALL, &use) > 0 && WIFSTOPPED(status))
        ;
    d->spent_us[0] += (uint64_t)use.ru_utime.tv_sec * 1000000 + (uint64_t)use.ru_utime.tv_usec;
    d->spent_us[1] += (uint64_t)use.ru_stime.tv_sec * 1000000 + (uint64_t)use.ru_stime.tv_usec;
    h->tid = 0;
}

static void free_writer(struct dump *d, struct dumped_process *s)
{
    struct self_writer *self_writer = s->self_writer;
    reap_writer(d, &self_writer->second);
    if (self_writer->write_job && self_writer->write_job != MAP_FAILED)
        munmap(self_writer->write_job, self_writer->size);
    if (self_writer->memory >= 0)
        close(self_writer->memory);
    free(self_writer);
    s->self_writer = NULL;
}

/* Closes the copy's files, so that it keeps none open that the job closes: ends of pipes, files with locks. It does not
 * if there are remote files: the submit side is notified of each close. */
static void let_files_go(const struct dump *d, struct dumped_process *s)
{
    if (s->copy.tid && !d->job->start->remotes && !has_own_filter(d, s))
        CALL(&s->copy, SYS_close_range, 0, ~0u, 0);
}

void self_writer_prepare(struct dump *d, struct dumped_process *s)
{
    let_files_go(d, s);
    s->self_writer = s->copy.tid ? calloc(1, sizeof *s->self_writer) : NULL;
    if (!s->self_writer)
        return;
    s->self_writer->memory = -1;
    if (!make_writer(d, s))
        free_writer(d, s);
}

static struct tracee *run_writer(struct dumped_process *s, struct tracee *h, uint32_t which)
{
    struct user_regs_struct r = h->now;
    if (!h->tid)
        return NULL;
    regs_enter(&r, s->room, s->room + ROOM - which * STACK, s->self_writer->there);
    return tracee_run(h, &r) == 0 ? h : NULL;
}

bool self_writer_run(struct dumped_process *s)
{
    struct self_writer *self_writer = s->self_writer;
    memcpy(self_writer->write_job->files, self_writer->files, sizeof self_writer->files);
    signal(SIGCHLD, SIG_DFL); /* the keeper's handler is not called for children that stop */
    self_writer->running[0] = run_writer(s, &s->copy, 0);
    self_writer->running[1] = run_writer(s, &self_writer->second, 1);
    return self_writer->running[0] || self_writer->running[1];
}

/* Signals that stop a writer for other reasons are not delivered. */
static bool runs(struct tracee *h)
{
    int status;
    while (waitpid(h->tid, &status, __WALL | WNOHANG) > 0) {
        if (!WIFSTOPPED(status)) {
            h->lost = true;
            return false;
        }
        int why = status >> 16 ? 0 : WSTOPSIG(status);
        if (why == SIGILL || why == SIGSEGV || why == SIGBUS || tracee_on(h) < 0)
            return false;
    }
    return true;
}

void self_writer_await(struct self_writer *self_writer, uint64_t ms)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    for (uint64_t until = boot_us() + ms * 1000, now;;) {
        uint32_t left = 0;
        for (uint32_t i = 0; i < WRITERS; i++) {
            if (self_writer->running[i] && !runs(self_writer->running[i]))
                self_writer->running[i] = NULL;
            left += self_writer->running[i] != NULL;
        }
        if (!left || (now = boot_us()) >= until)
            return;
        struct timespec rest = {(time_t)((until - now) / 1000000), (long)((until - now) % 1000000 * 1000)};
        sigtimedwait(&child, NULL, &rest);
    }
}

void self_writer_end(struct dump *d, struct dumped_process *s)
{
    reap_writer(d, &s->copy);
    free_writer(d, s);
}
