/* File descriptors of processes (pidfd). A pidfd of a running process of the job is opened by each process that has it,
 * as soon as all processes exist; processes that shared one have one each. A pidfd of an exited process is made from
 * another process that exits. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/state.h"

#define PIDFD_OF_THREAD O_EXCL /* PIDFD_THREAD, Linux 6.9 */

/* Parses fdinfo. 0: the process has exited. */
uint64_t pidfd_process(const char *text)
{
    const char *at = strstr(text, "\nPid:");
    long pid = at ? strtol(at + 5, NULL, 10) : -1;
    return pid > 0 ? (uint64_t)pid : pid < 0 ? 0 : NOBODY; /* NOBODY: a process outside the pid namespace */
}

/* Called when all processes are known. */
void pidfd_join(struct dump *d)
{
    for (uint32_t i = 0; i < d->image.files.count; i++) {
        const struct file *f = (struct file *)d->image.files.rows + i;
        const struct sample *sample = (struct sample *)d->samples.rows + i;
        bool own = !f->number;
        if (f->kind != FILE_PIDFD)
            continue;
        for (size_t j = 0; j < d->count; j++)
            own |= (uint64_t)d->processes[j].pid == f->number;
        if (own)
            continue;
        if (f->flags & PIDFD_OF_THREAD)
            add_unsupported(d, "descriptor %d of process %d is a pidfd of a thread (use one of the process)",
                            sample->fd, sample->pid);
        else
            add_unsupported(d, "descriptor %d of process %d is a pidfd of a process outside the job (close it first)",
                            sample->fd, sample->pid);
    }
}

/* -1 without a failure: the process is running, its pidfd comes later. */
int pidfd_restore(struct restoring *r, const struct file *row, struct failure *f)
{
    if (row->peer != NOBODY)
        return fcntl(r->opened[row->peer], F_DUPFD_CLOEXEC, 0);
    pid_t pid = fork();
    if (pid == 0) {
        for (;;)
            pause();
    }
    int fd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, row->flags & (O_NONBLOCK | PIDFD_OF_THREAD));
    int err = errno;
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    errno = err;
    return fd < 0 ? set_failure(f, "pidfd_open", "a process that has ended") : fd;
}

bool pidfd_lives(const struct file *row) { return row->kind == FILE_PIDFD && row->number; }

static int other_number(const struct restoring *r, const struct descriptor *wanted)
{
    EACH(r->image, descriptors, descriptor, d)
        if (d < wanted && d->owner == wanted->owner && d->file == wanted->file)
            return d->number;
    return -1;
}

/* Called by each process for itself, when all processes exist. */
int pidfd_place(const struct restoring *r, uint32_t row)
{
    EACH(r->image, descriptors, descriptor, d) {
        const struct file *f = (struct file *)r->image->files.rows + d->file;
        if (d->owner != row || !pidfd_lives(f))
            continue;
        int from = other_number(r, d), flags = d->close_on_exec ? O_CLOEXEC : 0;
        int fd = from >= 0 ? from
                           : (int)syscall(SYS_pidfd_open, (pid_t)f->number, f->flags & (O_NONBLOCK | PIDFD_OF_THREAD));
        if (fd < 0)
            return -1;
        if (fd == d->number ? fcntl(fd, F_SETFD, flags ? FD_CLOEXEC : 0) < 0 : dup3(fd, d->number, flags) < 0)
            return -1;
        if (from < 0 && fd != d->number)
            close(fd);
    }
    return 0;
}
