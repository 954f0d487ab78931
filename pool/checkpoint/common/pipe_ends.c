/* The ends of a job's pipes: their file descriptor numbers, and the ends that lead to other machines. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/common.h"

int end_descriptor(const char *file, int standard)
{
    static const char directory[] = "/dev/fd/";
    char *rest;
    if (!*file)
        return standard;
    if (strncmp(file, directory, sizeof directory - 1) != 0)
        return -1;
    long number = strtol(file + sizeof directory - 1, &rest, 10);
    return *rest || rest == file + sizeof directory - 1 || number < 0 || number > 255 ? -1 : (int)number;
}

/* Creates a pipe that belongs to the job's user, who may reopen its ends by /dev/stdin and /dev/fd/N. The kernel
 * creates it with the keeper's user. */
int members_make_pipe(const struct job *job, int ends[2], struct failure *f)
{
    const struct start *s = job->start;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return set_failure(f, "pipe", "between two processes");
    if ((s->uid == geteuid() && s->gid == getegid()) || fchown(ends[0], s->uid, s->gid) == 0)
        return 0;
    set_failure(f, "chown", "a pipe between two processes");
    close(ends[0]);
    close(ends[1]);
    return -1;
}

/* The index of the end on this machine, if the pipe's other end is on another machine; -1 for other pipes. */
int own_end(const struct conduit *c)
{
    if ((c->head->writer < 0) == (c->head->reader < 0))
        return -1;
    return c->head->writer < 0 ? 0 : 1;
}

bool members_whole(const struct job *job)
{
    for (uint32_t i = 0; i < job->pipe_count; i++) {
        int end = own_end(&job->pipes[i]);
        if (end >= 0 && job->pipes[i].ends[end] < 0)
            return false;
    }
    return true;
}

void members_end(struct job *job, uint64_t pipe, int fd)
{
    struct stat st;
    int end = pipe < job->pipe_count ? own_end(&job->pipes[pipe]) : -1;
    if (end >= 0 && job->pipes[pipe].ends[end] < 0) {
        job->pipes[pipe].ends[end] = fcntl(fd, F_DUPFD_CLOEXEC, 256);
        job->pipes[pipe].inode = fstat(fd, &st) == 0 ? st.st_ino : 0;
    }
    close(fd);
}

int members_own_end(const struct job *job, uint64_t pipe)
{
    int end = pipe < job->pipe_count ? own_end(&job->pipes[pipe]) : -1;
    return end < 0 ? -1 : job->pipes[pipe].ends[end];
}

void members_close_ends(const struct job *job)
{
    for (uint32_t i = 0; i < job->pipe_count; i++)
        for (int end = 0; end < 2; end++) {
            if (job->pipes[i].ends[end] >= 0)
                close(job->pipes[i].ends[end]);
            job->pipes[i].ends[end] = -1;
        }
}

bool has_mapped_files(const struct job *job)
{
    for (uint32_t i = 0; i < job->pipe_count; i++)
        if (end_descriptor(job->pipes[i].writer_file, 1) < 0 || end_descriptor(job->pipes[i].reader_file, 0) < 0)
            return true;
    return false;
}
