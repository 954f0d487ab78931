/* Requests from the node to a keeper. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fd_passing.h"
#include "keeper/keeper.h"
#include "mapped_files/mapped_files.h"
#include "remote/remote.h"
#include "remote_notify/remote_notify.h"
#include "restore/restore.h"
#include "sandbox/network.h"
#include "sandbox/sandbox.h"

static void to_members(int signal)
{
    if (!job_run.over)
        members_signal(&keeper.job, signal);
}

void suspend(bool stop)
{
    if (job_run.killing)
        return;
    job_run.suspend_again = stop && checkpoint_holds();
    if (job_run.suspended == stop || job_run.suspend_again)
        return;
    job_run.suspended = stop;
    if (cgroup_freeze(keeper.group, stop))
        return;
    if (stop && checkpoint_running())
        tree_stop_but(checkpoint_dumper());
    else
        tree_signal(stop ? SIGSTOP : SIGCONT);
}

/* The value holds the signal above the grace; signal 0: the one in the start message. */
static void vacate(uint64_t value)
{
    uint64_t grace_us = value & (((uint64_t)1 << SIGNAL_SHIFT) - 1);
    int soft = (int)(value >> SIGNAL_SHIFT);
    if (job_run.over || job_run.killing)
        return;
    if (!job_run.cause)
        job_run.cause = CAUSE_VACATED;
    job_run.grace_end = boot_us() + grace_us;
    to_members(soft ? soft : (int)keeper.job.start->soft_signal);
    suspend(false); /* a stopped job could not act on the signal */
}

/* A suspended job is resumed for the dump, and suspended again when the dumper has let it go. */
static void checkpoint(const struct control *c, int directory)
{
    if (job_run.over || job_run.killing || !job_run.started)
        return;
    if (shells_open() && c->value & CHECKPOINT_STOP)
        shells_end();
    bool again = job_run.suspended && !checkpoint_running();
    if (again)
        suspend(false);
    job_run.suspend_again |= again;
    if (c->value & CHECKPOINT_STOP && !job_run.cause)
        job_run.checkpoint_ends = true;
    checkpoint_begin(directory, c->value, c->sequence, &keeper.job, keeper.cell);
}

/* True: it takes ownership of the directory. */
static bool take_image(int directory)
{
    struct failure f;
    if (job_run.begun || job_run.image >= 0 || !(keeper.job.start->flags & FLAG_IMAGE))
        return false;
    if (directory < 0) {
        errno = EBADF;
        set_failure(&f, "restore", "no directory");
        give_up(&f);
    }
    job_run.image = directory;
    start_processes();
    return true;
}

/* Sends the node a socket of the job's network namespace; or no socket, and the reason as an errno. */
static void pass_socket(int made, int to)
{
    int32_t err = made < 0 ? errno : 0;
    send_with_fd(to, &err, sizeof err, made, MSG_DONTWAIT);
    if (made >= 0)
        close(made);
}

/* True: it takes ownership of the file descriptor. */
static bool execute_command(const struct control *c, int passed)
{
    switch (c->head.verb) {
    case ADOPT:
        if (passed >= 0 && dup3(passed, UP, O_CLOEXEC) >= 0) {
            keeper.adopted = true;
            if (job_run.started)
                send_report(STARTED, c->sequence);
        }
        break;
    case SIGNAL:
        to_members((int)c->value);
        break;
    case SUSPEND:
    case RESUME:
        suspend(c->head.verb == SUSPEND);
        break;
    case VACATE:
        vacate(c->value);
        break;
    case KILL:
        end_because(CAUSE_KILLED, NULL);
        break;
    case RENEW:
        job_run.lease_end = c->value;
        cell_lease(CELL, c->value);
        break;
    case CHECKPOINT:
        checkpoint(c, passed);
        break;
    case IMAGE:
        return take_image(passed);
    case REMOTE:
        if (passed >= 0)
            remote_stream(passed);
        break;
    case END:
        if (passed < 0 || job_run.begun)
            break;
        members_end(&keeper.job, c->value, passed);
        start_processes();
        return true;
    case WIRE:
    case CONNECT:
        if (passed >= 0 && keeper.job.start->flags & FLAG_PRIVATE_NETWORK)
            pass_socket(c->head.verb == WIRE ? network_wire() : network_connect((uint16_t)c->value, c->value >> 16),
                        passed);
        break;
    case SHELL:
        shell_begin(&keeper.job, keeper.group, passed);
        break;
    case USAGE:
        send_report(USED, c->sequence);
        break;
    }
    return false;
}

/* Reaps first: a job that has ended by now has ended by itself, not because of this request. */
static bool look_and_obey(const struct control *c, int passed)
{
    checkpoint_look(job_run.number, keeper.cell); /* before the report that it is made */
    reap();
    return execute_command(c, passed);
}

void listen_to_node(void)
{
    for (;;) {
        struct control c;
        int passed;
        ssize_t n = receive_with_fd(SOCKET, &c, sizeof c, &passed, MSG_DONTWAIT);
        if (n < 0)
            return;
        bool taken = false;
        /* a message for an earlier job of this cell may still be in the queue */
        if (n == sizeof c && c.head.magic == MAGIC && c.head.version == VERSION && c.head.number == job_run.number)
            taken = look_and_obey(&c, passed);
        if (passed >= 0 && !taken)
            close(passed);
    }
}
