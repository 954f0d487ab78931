/* The job's processes forked again under their own numbers, each with parent, session, group, descriptors, directory and
 * handlers, and still running this code: transplant.c then gives each its memory.
 *
 * All are forked from one process that holds every open file (reopen.c). A session is inherited, so a process is forked by
 * whoever is in the right one at that moment: before or after its parent has become a leader; an orphan by way of its
 * leader and a helper that ends at once. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "restoring.h"

#define PATIENCE_US 20000000

pid_t fork_as(pid_t pid, int group, uint64_t flags)
{
    struct clone_args a = {.flags = flags, .exit_signal = flags & CLONE_PARENT ? 0 : SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&pid,
                           .set_tid_size = 1};
    if (group >= 0) {
        a.flags |= CLONE_INTO_CGROUP;
        a.cgroup = (uint64_t)group;
    }
    return (pid_t)syscall(SYS_clone3, &a, sizeof a);
}

static void tell(struct restoring *r, uint32_t row, uint32_t state)
{
    __atomic_store_n(&r->cradle->state[row], state, __ATOMIC_RELEASE);
    syscall(SYS_futex, &r->cradle->state[row], FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

static _Noreturn void broken(struct restoring *r, uint32_t row, const char *call, const char *text)
{
    fail(&r->cradle->failure, call, text);
    tell(r, row, BROKEN);
    for (;;)
        pause();
}

static struct process *process_at(struct restoring *r, uint32_t row) { return (struct process *)r->image->processes.rows + row; }

static bool leads(const struct process *p) { return p->session == p->pid; }

static _Noreturn void be(struct restoring *r, uint32_t row);

static void have(struct restoring *r, uint32_t by, uint32_t row)
{
    pid_t pid = fork_as(process_at(r, row)->pid, -1, 0);
    if (pid == 0)
        be(r, row);
    if (pid < 0)
        broken(r, by, "fork", "a process under its number");
}

/* Its parent was another process and has ended: it belongs to the keeper, in the session of somebody else. */
static void have_orphan(struct restoring *r, uint32_t by, uint32_t row)
{
    pid_t helper = fork_as(r->helper, -1, 0);
    if (helper == 0) {
        pid_t pid = fork_as(process_at(r, row)->pid, -1, 0);
        if (pid == 0)
            be(r, row);
        _exit(pid < 0);
    }
    int status = 0;
    if (helper < 0 || waitpid(helper, &status, 0) < 0 || status)
        broken(r, by, "fork", "a process under its number");
}

static void have_children(struct restoring *r, uint32_t row, bool early)
{
    const struct process *p = process_at(r, row);
    for (uint32_t i = 0; i < r->image->processes.count; i++) {
        const struct process *child = process_at(r, i);
        bool before = leads(p) && !leads(child) && child->session != p->pid;
        if (child->parent == p->pid && before == early && i != row)
            have(r, row, i);
        else if (!early && child->parent == 1 && i != row && leads(p) && child->session == p->pid)
            have_orphan(r, row, i);
    }
}

static void end_as(uint32_t status)
{
    if (status & 0x7f) {
        struct rlimit none = {0, 0};
        sigset_t all;
        setrlimit(RLIMIT_CORE, &none);
        signal((int)(status & 0x7f), SIG_DFL);
        sigemptyset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        kill(getpid(), (int)(status & 0x7f));
    }
    _exit((int)(status >> 8));
}

static void place_descriptors(struct restoring *r, uint32_t row)
{
    for EACH(r->image, descriptors, descriptor, d)
        if (d->owner == row && r->opened[d->file] >= 0 && dup3(r->opened[d->file], d->number, d->close_on_exec ? O_CLOEXEC : 0) < 0)
            broken(r, row, "dup", image_string(r->image, ((struct file *)r->image->files.rows)[d->file].path));
    for EACH(r->image, watches, watch, w) {
        /* An entry of epoll is of a number in a process: made by the first process that has both. */
        uint32_t first = NOBODY;
        for EACH(r->image, descriptors, descriptor, d)
            if (d->file == w->target && d->number == w->number && first == NOBODY)
                first = d->owner;
        if (first != row)
            continue;
        struct epoll_event event = {.events = w->events, .data.u64 = w->data};
        if (epoll_ctl(r->opened[w->file], EPOLL_CTL_ADD, w->number, &event) < 0 && errno != EEXIST)
            broken(r, row, "epoll_ctl", "");
    }
}

/* What the keeper has open is not the job's. What lies above the base is closed last (transplant.c). */
static void close_others(struct restoring *r, uint32_t row)
{
    for (int fd = 0; fd < r->base; fd++) {
        bool wanted = false;
        for EACH(r->image, descriptors, descriptor, d)
            wanted |= d->owner == row && d->number == fd;
        if (!wanted)
            close(fd);
    }
}

static void own_handlers(struct restoring *r, uint32_t row)
{
    static const uint64_t plain[4];
    for (int n = 1; n <= 64; n++)
        syscall(SYS_rt_sigaction, n, plain, NULL, 8);
    for EACH(r->image, handlers, handler, h)
        if (h->owner == row && h->signal != SIGKILL && h->signal != SIGSTOP && syscall(SYS_rt_sigaction, h->signal, h->action, NULL, 8) < 0)
            broken(r, row, "sigaction", "");
}

/* A child that has ended already tells so now, when nobody listens, and not again. */
static void await_zombies(struct restoring *r, uint32_t row)
{
    siginfo_t info;
    for (uint32_t i = 0; i < r->image->processes.count; i++)
        if (process_at(r, i)->parent == process_at(r, row)->pid && process_at(r, i)->flags & PROCESS_ZOMBIE)
            waitid(P_PID, (id_t)process_at(r, i)->pid, &info, WEXITED | WNOWAIT);
}

static void await_all(struct restoring *r)
{
    while (!__atomic_load_n(&r->cradle->all_there, __ATOMIC_ACQUIRE))
        syscall(SYS_futex, &r->cradle->all_there, FUTEX_WAIT, 0, NULL, NULL, 0);
}

/* Its leader may not have come to it yet. */
static bool join_group(pid_t group)
{
    for (int tries = 0; getpgid(0) != group && setpgid(0, group) < 0; tries++) {
        if (tries == 5000)
            return false;
        usleep(200);
    }
    return true;
}

static _Noreturn void be(struct restoring *r, uint32_t row)
{
    struct process *p = process_at(r, row);
    char cwd[4200];
    sigset_t child;
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_UNBLOCK, &child, NULL);
    have_children(r, row, true);
    if (leads(p) && getsid(0) != p->pid && setsid() < 0)
        broken(r, row, "setsid", "");
    if (pty_control(r, p) < 0)
        broken(r, row, "ioctl", "TIOCSCTTY");
    have_children(r, row, false);
    tell(r, row, READY);
    await_all(r);
    if (!join_group(p->group))
        broken(r, row, "setpgid", "a group whose leader has ended");
    if (p->flags & PROCESS_ZOMBIE)
        end_as(p->status);
    if (pty_foreground(r, p) < 0)
        broken(r, row, "ioctl", "TIOCSPGRP");
    personality(p->personality);
    place_descriptors(r, row);
    close_others(r, row);
    moved_path(r->image, r->job, image_string(r->image, p->cwd), cwd, sizeof cwd);
    if (chdir(cwd) < 0)
        broken(r, row, "chdir", cwd);
    umask((mode_t)p->umask);
    setpriority(PRIO_PROCESS, 0, p->nice > r->job->start->nice ? p->nice : r->job->start->nice); /* a job can only raise it */
    await_zombies(r, row);
    own_handlers(r, row);
    tell(r, row, READY + 2);
    for (;;)
        pause();
}

static int await_state(struct restoring *r, uint32_t wanted, struct failure *f)
{
    uint64_t end = boot_us() + PATIENCE_US;
    struct timespec moment = {0, 20000000};
    for (uint32_t i = 0; i < r->image->processes.count; i++) {
        if (wanted > READY && process_at(r, i)->flags & PROCESS_ZOMBIE)
            continue;
        for (uint32_t state; (state = __atomic_load_n(&r->cradle->state[i], __ATOMIC_ACQUIRE)) != wanted;) {
            for (uint32_t j = 0; j < r->image->processes.count; j++)
                if (r->cradle->state[j] == BROKEN) {
                    *f = r->cradle->failure;
                    return -1;
                }
            if (boot_us() > end) {
                errno = ETIMEDOUT;
                return fail(f, "fork", "a process of the job");
            }
            syscall(SYS_futex, &r->cradle->state[i], FUTEX_WAIT, state, &moment, NULL, 0);
        }
    }
    return 0;
}

/* Who is to belong to the keeper is forked as its child (CLONE_PARENT). A session whose leader is gone gets one that leaves
 * at once. */
int revive_all(struct restoring *r, struct failure *f)
{
    for (uint32_t i = 0; i < r->image->processes.count; i++) {
        const struct process *p = process_at(r, i);
        if (p->parent != 1)
            continue;
        bool led = leads(p), leader_lives = false;
        for (uint32_t j = 0; j < r->image->processes.count && !led; j++)
            leader_lives |= leads(process_at(r, j)) && process_at(r, j)->pid == p->session;
        if (!led && leader_lives)
            continue; /* its leader has it */
        pid_t pid = fork_as(led || p->session < 2 ? p->pid : p->session, -1, CLONE_PARENT);
        if (pid == 0 && (led || p->session < 2))
            be(r, i);
        if (pid == 0) {
            setsid();
            have(r, i, i);
            _exit(0);
        }
        if (pid < 0)
            return fail(f, "fork", "a process under its number");
    }
    if (await_state(r, READY, f))
        return -1;
    __atomic_store_n(&r->cradle->all_there, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &r->cradle->all_there, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
    return await_state(r, READY + 2, f);
}
