/* Readers that go by a file's length: one that is told 0, reads nothing and goes has lost all that was written,
 * and says nothing of it (tar, rsync). The job ends by name then.
 *
 * It is judged when nobody is left who could still read: until then a program may look, close and open again. If
 * nothing has been written at that moment the end is kept, so that the writer is not told that nobody reads, until
 * something comes or the writer has closed it. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "mapped_files/parts.h"

#define GUESS (1u << 20)

/* GNU sort up to 9.1 sorts a file of length 0 by a few lines at a time. It is told what it takes the length of a pipe
 * to be. */
static bool is_sort(pid_t pid)
{
    char name[64];
    return proc_text(pid, "comm", name, sizeof name) && strcmp(name, "sort\n") == 0;
}

/* What a process is told of a length that is not known yet: 0, as of files in /proc, so that programs which go by it
 * read nothing, and none reads a part for the whole. */
uint64_t unread_length(const struct question *q, struct end *e)
{
    if (e->way == READS && is_sort(q->tgid))
        return GUESS;
    e->told_empty |= e->way == READS;
    return 0;
}

static bool took_nothing(const struct end *e)
{
    uint64_t so_far;
    return e->way == READS && e->mapped && e->told_empty && position(e, &so_far) && so_far == 0;
}

/* True: the end stays, and `fd` of it is watched. */
bool unread_stays(struct end *e, int fd)
{
    int waiting = 0;
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    if (!took_nothing(e))
        return false;
    ioctl(fd, FIONREAD, &waiting);
    if (waiting > 0) {
        misuse(NULL, e,
               "nothing was read of the %d bytes that were written to it by then: until it is all written its length "
               "is 0, and a program that goes by lengths (tar, rsync) takes it for empty; let another program copy it "
               "to a "
               "file first (cat), or let this one read standard input",
               waiting);
        return false;
    }
    if (poll(&p, 1, 0) != 0) /* it was empty */
        return false;
    if (!e->unread)
        watch(fd, FROM_UNREAD, (uint32_t)(e - over->ends), EPOLLIN | EPOLLRDHUP);
    e->unread = true;
    return true;
}

/* It is opened after all, or closed for good. */
void unread_forget(struct end *e)
{
    if (e->unread)
        epoll_ctl(over->poll, EPOLL_CTL_DEL, e->fd, NULL);
    e->unread = false;
}

static void close_now(struct end *e)
{
    unread_forget(e);
    if (e->peer) {
        readers_gone(e);
    } else if (e->fd >= 0) {
        close(e->fd);
        e->fd = -1;
    }
}

/* Something has come, or the writer has gone. */
void unread_event(uint32_t which)
{
    struct end *e = &over->ends[which];
    if (e->unread && !unread_stays(e, e->fd))
        close_now(e);
}

/* Those that were put back with the job. */
void unread_begin(void)
{
    for (struct end *e = over->ends; e < over->ends + over->end_count; e++)
        if (e->fd >= 0 && e->told_empty && !over->pids[e->member])
            unread_stays(e, e->fd);
}

/* All processes of the job have ended by themselves. */
void unread_judge_all(void)
{
    for (struct end *e = over->ends; e < over->ends + over->end_count; e++)
        if (e->fd >= 0 || e->guard >= 0)
            unread_stays(e, e->fd >= 0 ? e->fd : e->guard);
}
