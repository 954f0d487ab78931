/* Forks the job's processes with their own pids, each with its parent, session, group, file descriptors, directory and
 * signal handlers. They still run this code; become.c then restores the memory of each. All are forked from one process
 * that has every open file (open_files.c), in the order and by the methods that state/fork_plan.c has planned.
 * restore.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/fork_plan.h"
#include "restore/parts.h"

#define PATIENCE_US 20000000

static void set_state(struct restoring *r, uint32_t row, uint32_t state)
{
    __atomic_store_n(&r->restore_shared->state[row], state, __ATOMIC_RELEASE);
    syscall(SYS_futex, &r->restore_shared->state[row], FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

static _Noreturn void broken(struct restoring *r, uint32_t row, const char *call, const char *text)
{
    set_failure(&r->restore_shared->failure, call, text);
    set_state(r, row, BROKEN);
    for (;;)
        pause();
}

static struct process *process_at(struct restoring *r, uint32_t row)
{
    return (struct process *)r->image->processes.rows + row;
}

static bool leads_session(const struct process *p) { return p->session == p->pid; }

static _Noreturn void run_process(struct restoring *r, uint32_t row);

static void fork_child(struct restoring *r, uint32_t by, uint32_t row)
{
    pid_t pid = fork_as(process_at(r, row)->pid, -1, 0);
    if (pid == 0)
        run_process(r, row);
    if (pid < 0)
        broken(r, by, "fork", "a process under its number");
}

/* All helpers use one pid, one after the other. */
static void fork_orphan(struct restoring *r, uint32_t by, uint32_t row)
{
    int status = 0;
    while (__atomic_exchange_n(&r->restore_shared->helping, 1, __ATOMIC_ACQ_REL))
        usleep(100);
    pid_t helper = fork_as(r->helper, -1, 0);
    if (helper == 0) {
        pid_t pid = fork_as(process_at(r, row)->pid, -1, 0);
        if (pid == 0)
            run_process(r, row);
        _exit(pid < 0);
    }
    bool done = helper > 0 && waitpid(helper, &status, 0) == helper && !status;
    __atomic_store_n(&r->restore_shared->helping, 0, __ATOMIC_RELEASE);
    if (!done)
        broken(r, by, "fork", "a process under its number");
}

/* Takes the place of an exited session leader: the children of its parent are born in its session. */
static _Noreturn void be_placeholder(struct restoring *r, uint32_t by, pid_t session)
{
    bool made = setsid() >= 0;
    for (uint32_t i = 0; made && i < r->image->processes.count; i++)
        if (r->fork_plan[i].kind == BORN_OF_PLACEHOLDER && r->fork_plan[i].by == by &&
            r->fork_plan[i].session == session) {
            pid_t pid = fork_as(process_at(r, i)->pid, -1, CLONE_PARENT);
            if (pid == 0)
                run_process(r, i);
            made = pid > 0;
        }
    _exit(!made);
}

/* True for the first process of a placeholder. */
static bool needs_placeholder(const struct restoring *r, uint32_t by, uint32_t row)
{
    if (r->fork_plan[row].kind != BORN_OF_PLACEHOLDER || r->fork_plan[row].by != by)
        return false;
    for (uint32_t i = 0; i < row; i++)
        if (r->fork_plan[i].kind == BORN_OF_PLACEHOLDER && r->fork_plan[i].by == by &&
            r->fork_plan[i].session == r->fork_plan[row].session)
            return false;
    return true;
}

static void fork_placeholder(struct restoring *r, uint32_t by, pid_t session)
{
    int status = 0;
    pid_t pid = fork_as(session, -1, 0);
    if (pid == 0)
        be_placeholder(r, by, session);
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status)
        broken(r, by, "fork", "a process in the session of one that ended");
}

static void fork_children(struct restoring *r, uint32_t row, bool early)
{
    for (uint32_t i = 0; i < r->image->processes.count; i++) {
        const struct planned_fork *b = &r->fork_plan[i];
        if (b->by != row || i == row || (b->kind == BORN_EARLY) != early)
            continue;
        if (b->kind == BORN_ORPHAN)
            fork_orphan(r, row, i);
        else if (b->kind != BORN_OF_PLACEHOLDER)
            fork_child(r, row, i);
        else if (needs_placeholder(r, row, i))
            fork_placeholder(r, row, b->session);
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
    if (epoll_restore(r, row, false) < 0)
        broken(r, row, "epoll_ctl", "");
    EACH(r->image, descriptors, descriptor, d)
        if (d->owner == row && r->opened[d->file] >= 0 &&
            dup3(r->opened[d->file], d->number, d->close_on_exec ? O_CLOEXEC : 0) < 0)
            broken(r, row, "dup", image_string(r->image, ((struct file *)r->image->files.rows)[d->file].path));
    if (pidfd_place(r, row) < 0)
        broken(r, row, "pidfd_open", "");
    if (epoll_restore(r, row, true) < 0)
        broken(r, row, "epoll_ctl", "");
}

/* Closes the keeper's file descriptors below the base. Those above the base are closed last (become.c). */
static void close_others(struct restoring *r, uint32_t row)
{
    /* a table, since thousands of processes may have thousands of descriptors each */
    bool *wanted = calloc((size_t)r->base + 1, sizeof *wanted);
    if (!wanted)
        broken(r, row, "malloc", "tables");
    EACH(r->image, descriptors, descriptor, d)
        if (d->owner == row && d->number >= 0 && d->number < r->base)
            wanted[d->number] = true;
    for (int fd = 0; fd < r->base; fd++)
        if (!wanted[fd])
            close(fd);
    free(wanted);
}

static void own_handlers(struct restoring *r, uint32_t row)
{
    static const uint64_t plain[4];
    for (int n = 1; n <= 64; n++)
        syscall(SYS_rt_sigaction, n, plain, NULL, 8);
    EACH(r->image, handlers, handler, h)
        if (h->owner == row && h->signal != SIGKILL && h->signal != SIGSTOP &&
            syscall(SYS_rt_sigaction, h->signal, h->action, NULL, 8) < 0)
            broken(r, row, "sigaction", "");
}

/* Waits until exited children are zombies: their SIGCHLD comes now, without a handler, and not again later. */
static void await_zombies(struct restoring *r, uint32_t row)
{
    siginfo_t info;
    for (uint32_t i = 0; i < r->image->processes.count; i++)
        if (process_at(r, i)->parent == process_at(r, row)->pid && process_at(r, i)->flags & PROCESS_ZOMBIE)
            waitid(P_PID, (id_t)process_at(r, i)->pid, &info, WEXITED | WNOWAIT);
}

static void await_all(struct restoring *r)
{
    while (!__atomic_load_n(&r->restore_shared->all_there, __ATOMIC_ACQUIRE))
        syscall(SYS_futex, &r->restore_shared->all_there, FUTEX_WAIT, 0, NULL, NULL, 0);
}

/* Retries, since the group leader may not have made the group yet. */
static bool enter_group(pid_t group)
{
    for (int tries = 0; getpgid(0) != group && setpgid(0, group) < 0; tries++) {
        if (tries == 5000)
            return false;
        usleep(200);
    }
    return true;
}

/* A group whose leader has exited is made by a temporary process with the leader's pid, which exits when all are in
 * it. */
static bool join_group(struct restoring *r, uint32_t row)
{
    pid_t group = process_at(r, row)->group, leader = 0;
    uint32_t maker = group_maker(r->image, group), members = 0;
    if (maker == NOBODY)
        return enter_group(group);
    if (maker == row && (leader = fork_as(group, -1, 0)) == 0) {
        setpgid(0, 0);
        for (;;)
            pause();
    }
    bool in = leader >= 0 && enter_group(group);
    __atomic_add_fetch(&r->restore_shared->joined[maker], 1, __ATOMIC_ACQ_REL);
    if (maker != row || leader <= 0)
        return in;
    EACH(r->image, processes, process, p)
        members += p->group == group;
    for (int tries = 0; __atomic_load_n(&r->restore_shared->joined[row], __ATOMIC_ACQUIRE) < members && tries < 20000;
         tries++)
        usleep(100);
    kill(leader, SIGKILL);
    return waitpid(leader, NULL, 0) == leader && in;
}

static _Noreturn void run_process(struct restoring *r, uint32_t row)
{
    struct process *p = process_at(r, row);
    char cwd[4200];
    sigset_t child;
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_UNBLOCK, &child, NULL);
    if (r->fork_plan[row].adopts)
        prctl(PR_SET_CHILD_SUBREAPER, 1);
    fork_children(r, row, true);
    if (leads_session(p) && getsid(0) != p->pid && setsid() < 0)
        broken(r, row, "setsid", "");
    if (pty_control(r, p) < 0)
        broken(r, row, "ioctl", "TIOCSCTTY");
    fork_children(r, row, false);
    set_state(r, row, READY);
    await_all(r);
    prctl(PR_SET_CHILD_SUBREAPER, 0); /* until become.c sets the saved value */
    if (!join_group(r, row))
        broken(r, row, "setpgid", "a group whose leader has ended");
    if (p->flags & PROCESS_ZOMBIE)
        end_as(p->status);
    if (pty_foreground(r, p) < 0)
        broken(r, row, "ioctl", "TIOCSPGRP");
    personality(p->personality);
    place_descriptors(r, row);
    close_others(r, row);
    moved_path(r->image, r->job, image_string(r->image, p->cwd), cwd, sizeof cwd);
    if (p->directory ? fchdir(r->opened[p->directory - 1]) : chdir(cwd))
        broken(r, row, "chdir", cwd);
    umask((mode_t)p->umask);
    setpriority(PRIO_PROCESS, 0, attributes_nice(r, row));
    await_zombies(r, row);
    own_handlers(r, row);
    set_state(r, row, READY + 2);
    for (;;)
        pause();
}

static int await_state(struct restoring *r, uint32_t wanted, struct failure *f)
{
    uint64_t end = boot_us() + PATIENCE_US, before = 0, now;
    struct timespec moment = {0, 20000000};
    for (uint32_t i = 0; i < r->image->processes.count; i++) {
        if (wanted > READY && process_at(r, i)->flags & PROCESS_ZOMBIE)
            continue;
        for (uint32_t state; (state = __atomic_load_n(&r->restore_shared->state[i], __ATOMIC_ACQUIRE)) != wanted;) {
            now = 0;
            for (uint32_t j = 0; j < r->image->processes.count; now += r->restore_shared->state[j++])
                if (r->restore_shared->state[j] == BROKEN) {
                    *f = r->restore_shared->failure;
                    return -1;
                }
            if (now != before) /* others have made progress */
                end = boot_us() + PATIENCE_US;
            before = now;
            if (boot_us() > end) {
                errno = ETIMEDOUT;
                return set_failure(f, "fork", "a process of the job");
            }
            syscall(SYS_futex, &r->restore_shared->state[i], FUTEX_WAIT, state, &moment, NULL, 0);
        }
    }
    return 0;
}

/* The keeper's own children are forked with CLONE_PARENT. */
int fork_all_processes(struct restoring *r, struct failure *f)
{
    pid_t wrong;
    r->fork_plan = fork_plan_make(r->image, &wrong);
    if (!r->fork_plan) {
        errno = wrong ? ENOEXEC : ENOMEM;
        return set_failure(f, "fork", wrong ? "a process in its session" : "tables");
    }
    for (uint32_t i = 0; i < r->image->processes.count; i++) {
        const struct planned_fork *b = &r->fork_plan[i];
        bool placeholder = needs_placeholder(r, NOBODY, i);
        if (b->by != NOBODY || (b->kind == BORN_OF_PLACEHOLDER && !placeholder))
            continue;
        pid_t pid = fork_as(placeholder ? b->session : process_at(r, i)->pid, -1, CLONE_PARENT);
        if (pid == 0 && placeholder)
            be_placeholder(r, NOBODY, b->session);
        if (pid == 0)
            run_process(r, i);
        if (pid < 0)
            return set_failure(f, "fork", "a process under its number");
    }
    if (await_state(r, READY, f))
        return -1;
    __atomic_store_n(&r->restore_shared->all_there, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &r->restore_shared->all_there, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
    return await_state(r, READY + 2, f);
}
