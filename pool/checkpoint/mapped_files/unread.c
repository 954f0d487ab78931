/* Readers that trust a file's length: a program that was given a length of 0, reads nothing and closes the file loses
 * all that was written, without an error (tar, rsync). The job then ends with a message. The check is made when no
 * process is left that could read: until then a program may examine, close and open the file again. If no bytes have
 * come at that moment, the end is kept, so that the writer still has a reader, until bytes come or the writer has
 * closed it. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "mapped_files/parts.h"

#define GUESS (1u << 20)

/* GNU sort up to 9.1 sorts a file of length 0 in very small parts. It gets the length that it assumes for a pipe. */
static bool is_sort(pid_t pid)
{
    char name[64];
    return proc_text(pid, "comm", name, sizeof name) && strcmp(name, "sort\n") == 0;
}

/* The length that a process is given while it is unknown: 0, as for files in /proc. A program that trusts it reads
 * nothing; none takes a part for the whole. */
uint64_t unread_length(const struct notification *q, struct end *e)
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

/* True: the end is kept, and `fd` is watched. */
bool unread_stays(struct end *e, int fd)
{
    int waiting = 0;
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    if (!took_nothing(e))
        return false;
    ioctl(fd, FIONREAD, &waiting);
    if (waiting > 0) {
        misuse(NULL, e,
               "none of the %d bytes written to it was read: its length is 0 until all is written, so a program that "
               "trusts lengths (tar, rsync) takes it for empty; copy it to a file first (cat), or let the program read "
               "standard input",
               waiting);
        return false;
    }
    if (poll(&p, 1, 0) != 0) /* the writer closed it without writing */
        return false;
    if (!e->unread)
        watch_fd(fd, FROM_UNREAD, (uint32_t)(e - over->ends), EPOLLIN | EPOLLRDHUP);
    e->unread = true;
    return true;
}

/* The file is opened after all, or closed for good. */
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

/* Bytes have come, or the writer is gone. */
void unread_event(uint32_t which)
{
    struct end *e = &over->ends[which];
    if (e->unread && !unread_stays(e, e->fd))
        close_now(e);
}

/* Called after a restore, for the restored ends. */
void unread_begin(void)
{
    for (struct end *e = over->ends; e < over->ends + over->end_count; e++)
        if (e->fd >= 0 && e->told_empty && !over->pids[e->member])
            unread_stays(e, e->fd);
}

/* Called when all processes of the job have ended by themselves. */
void unread_judge_all(void)
{
    for (struct end *e = over->ends; e < over->ends + over->end_count; e++)
        if (e->fd >= 0 || e->guard >= 0)
            unread_stays(e, e->fd >= 0 ? e->fd : e->guard);
}
