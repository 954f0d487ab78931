/* Notifies writers that their last reader is gone, as a pipe does: SIGPIPE for a process that writes, and for one that
 * waits to write. A socket does less: a process that waits for room gets ECONNRESET if unread bytes were left, and
 * EPIPE without the signal if none were. So the waiting process is stopped (ptrace) while the reading end is shut down.
 * That interrupts its call; it repeats the call when it continues, and finds no reader. A process that had written a
 * part is sent the signal. No other process is touched. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mapped_files/parts.h"
#include "trace/trace.h"

#define ROUNDS 20 /* of a millisecond each, while a process runs that may be about to wait */

struct writers { /* the stopped writers */
    struct writer {
        struct tracee held;
        pid_t pid;
    } *all;
    size_t count;
};

static bool is_held(const struct writers *w, pid_t tid)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->all[i].held.tid == tid)
            return true;
    return false;
}

/* The file descriptor to which a waiting thread writes; -1: it waits for something else. */
static int writes_at(const char *call)
{
    long number;
    unsigned long a[3];
    if (sscanf(call, "%ld %lx %lx %lx", &number, &a[0], &a[1], &a[2]) != 4)
        return -1;
    switch (number) {
    case SYS_write:
    case SYS_writev:
    case SYS_sendfile:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
        return (int)a[0];
    case SYS_splice:
        return (int)a[2];
    default:
        return -1;
    }
}

static bool stop_writer(struct writers *w, pid_t pid, pid_t tid)
{
    struct writer *more = realloc(w->all, (w->count + 1) * sizeof *more);
    if (!more)
        return false;
    w->all = more;
    more[w->count].pid = pid;
    if (tracee_seize(&more[w->count].held, tid) < 0 || tracee_await(&more[w->count].held) < 0)
        return false;
    w->count++;
    return true;
}

/* Stops the threads of a process that wait to write to that socket. True: another round is useful, because a thread was
 * stopped, one runs, or one could not be stopped just now. */
static bool hold_of(struct writers *w, pid_t pid, ino_t socket)
{
    char path[64], call[256];
    pid_t *tids;
    bool again = false;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    size_t count = numbers_in(path, &tids);
    for (size_t i = 0; i < count; i++) {
        if (is_held(w, tids[i]))
            continue;
        snprintf(path, sizeof path, "task/%d/syscall", tids[i]);
        if (!proc_text(pid, path, call, sizeof call))
            continue;
        int number = writes_at(call);
        if (number >= 0 && inode_at(pid, number) == socket)
            again |= stop_writer(w, pid, tids[i]) || errno == EPERM;
        else
            again |= *call == 'r'; /* running */
    }
    free(tids);
    return again;
}

static void hold_all(struct writers *w, const struct end *writer)
{
    bool again = true;
    for (int round = 0; again && round < ROUNDS; round++) {
        pid_t *pids;
        size_t held = w->count, count = numbers_in("/proc", &pids);
        again = false;
        for (size_t i = 0; i < count; i++)
            if (pids[i] > 1 && pids[i] != getpid() && number_in(pids[i], writer, -1) >= 0)
                again |= hold_of(w, pids[i], writer->inode);
        free(pids);
        if (again && w->count == held)
            usleep(1000);
    }
}

static void let_go(struct writers *w)
{
    static unsigned char ignored[65536];
    for (struct writer *one = w->all; one < w->all + w->count; one++) {
        struct user_regs_struct regs;
        size_t size = sizeof ignored;
        uint64_t arguments[3], moved;
        long number;
        if (tracee_state(&one->held, &regs, ignored, &size) == 0 && regs_partial(&regs, &number, arguments, &moved))
            syscall(SYS_tgkill, one->pid, one->held.tid, SIGPIPE);
        tracee_release(&one->held);
    }
    free(w->all);
}

/* `fd` is the last copy of the other end of `writer`. */
void shut_reading_end(const struct end *writer, int fd)
{
    static char unread[65536];
    struct writers w = {NULL, 0};
    if (!writer->pipe && writer->inode)
        hold_all(&w, writer);
    if (!writer->pipe && shutdown(fd, SHUT_RD) == 0) /* from now on no bytes are added */
        while (recv(fd, unread, sizeof unread, MSG_DONTWAIT) > 0) {
        }
    close(fd);
    let_go(&w);
}
