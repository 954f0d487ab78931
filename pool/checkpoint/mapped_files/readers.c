/* Finds out which processes can still read, so that a writer is notified when its last reader is gone, as with a pipe.
 *
 * A socket with unread bytes tells its writer that the connection was reset, and not that there is no reader. So the
 * supervisor keeps a copy of each reader's end where two programs are joined directly (it reads a log itself), and
 * shuts it down (broken_pipe.c) when no process has another copy. It knows one place of the end: a process and a file
 * descriptor. The kernel notifies it when the process exits or the descriptor is closed, and it looks for another
 * place. Other changes (a low number that is closed or reused) it finds by a look every 50 ms while bytes lie in the
 * socket. While none do, no process can wait to write, and it does not look.
 *
 * The end is gone when several looks over all processes have not found it: a descriptor may move from one number to
 * another during a look. One that is on its way through a socket of the job's all the while counts as gone. */
#define _GNU_SOURCE
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mapped_files/parts.h"

#define PAUSE_US 50000
#define SURE 5 /* checks that find no process */
#define AGAIN_US 1000 /* between them, and until a close that was trapped is done */
#define LOOKS 3 /* after such a close, whether the socket holds bytes or not */

static struct spot { /* the known place of each end */
    pid_t pid;
    int number, exit; /* exit: a pidfd of the process, or -1 */
    bool waits; /* waits for the first bytes */
    int looks, misses;
    uint64_t next_us; /* 0: only on an event */
} spots[ENDS_MOST];
static uint32_t kept; /* number of ends with a copy */

static uint32_t index_of(const struct end *e) { return (uint32_t)(e - over->ends); }

static void leave_place(struct spot *p)
{
    if (p->exit >= 0)
        close(p->exit);
    p->exit = -1;
}

static void set_place(struct end *e, pid_t pid, int number)
{
    struct spot *p = &spots[index_of(e)];
    leave_place(p);
    p->pid = pid;
    p->number = number;
    p->exit = (int)syscall(SYS_pidfd_open, pid, 0);
    if (p->exit >= 0)
        watch_fd(p->exit, FROM_HOLDER, index_of(e), EPOLLIN);
}

/* Whether the end is a socket, opened by name, and joined directly with another program. */
bool reads_directly(const struct end *e) { return e->way == READS && e->mapped && !e->pipe && e->peer; }

bool shows_pipe(const struct end *e) { return e->way == READS && e->mapped && e->pipe; }

static void begin_watching(struct end *e)
{
    spots[index_of(e)] = (struct spot){.exit = -1, .next_us = 1};
    kept++;
}

/* The end that was kept for the next open was given to that process, with that number. */
void readers_keep(struct end *e, pid_t pid, int number)
{
    if (!reads_directly(e) || e->guard >= 0) {
        close(e->fd);
    } else {
        e->guard = e->fd;
        begin_watching(e);
        set_place(e, pid, number);
    }
    e->fd = -1;
}

/* Called after a restore, for the restored ends. */
void readers_begin(void)
{
    for (struct end *e = over->ends; e < over->ends + over->end_count; e++)
        if (e->guard >= 0)
            begin_watching(e);
}

static void forget_reader(struct end *e)
{
    struct spot *p = &spots[index_of(e)];
    leave_place(p);
    if (p->waits) /* the program has the same open file, so epoll would still report it */
        epoll_ctl(over->poll, EPOLL_CTL_DEL, e->guard, NULL);
    p->waits = false;
    e->guard = -1;
    kept--;
}

/* The end is closed for good, unless nothing was read from it. */
void readers_gone(struct end *e)
{
    int last = e->guard >= 0 ? e->guard : e->fd;
    if (e->guard >= 0) {
        forget_reader(e);
        if (e->fd >= 0)
            close(e->fd);
    }
    e->fd = last;
    if (last >= 0 && unread_stays(e, last))
        return;
    e->fd = -1;
    e->inode = 0;
    if (last >= 0)
        shut_reading_end(e->peer, last);
}

/* The end was closed at some number, or is about to be. */
void readers_stir(struct end *e)
{
    struct spot *p = &spots[index_of(e)];
    if (e->guard < 0)
        return;
    p->looks = LOOKS;
    p->next_us = boot_us() + AGAIN_US;
}

/* The process that had it has exited, or bytes have come. */
void readers_event(uint32_t which, bool ended)
{
    struct end *e = &over->ends[which];
    struct spot *p = &spots[which];
    if (ended) {
        leave_place(p);
        p->looks = LOOKS;
        p->next_us = 1;
    } else if (e->guard >= 0) {
        epoll_ctl(over->poll, EPOLL_CTL_DEL, e->guard, NULL);
        p->waits = false;
        p->next_us = boot_us() + PAUSE_US;
    }
}

static bool has_it(struct end *e)
{
    struct spot *p = &spots[index_of(e)];
    pid_t pid;
    if (e->fd >= 0 || displaced_kept(e) >= 0 || (p->exit >= 0 && inode_at(p->pid, p->number) == e->inode))
        return true;
    leave_place(p);
    int number = holder_of(e, 0, -1, &pid);
    if (number >= 0)
        set_place(e, pid, number);
    return number != NOT_HELD;
}

static bool has_writer(const struct end *e)
{
    struct pollfd p = {.fd = e->guard, .events = POLLRDHUP};
    return poll(&p, 1, 0) == 0;
}

static void check_reader(struct end *e)
{
    struct spot *p = &spots[index_of(e)];
    int waiting = 0;
    if (!has_writer(e)) { /* the writer is gone; the remaining bytes belong to the readers */
        int fd = e->guard;
        forget_reader(e);
        close(fd);
        return;
    }
    bool held = has_it(e);
    p->misses = held ? 0 : p->misses + 1;
    if (p->misses == SURE)
        return readers_gone(e);
    ioctl(e->guard, FIONREAD, &waiting);
    if (p->looks)
        p->looks--;
    if (!held || p->looks) {
        p->next_us = boot_us() + (held ? PAUSE_US : AGAIN_US);
    } else if (waiting) {
        p->next_us = boot_us() + PAUSE_US;
    } else {
        p->next_us = 0;
        if (!p->waits)
            watch_fd(e->guard, FROM_READER, index_of(e), EPOLLIN);
        p->waits = true;
    }
}

int readers_look(void)
{
    uint64_t now, next = UINT64_MAX;
    if (!kept)
        return -1;
    now = boot_us();
    for (struct end *e = over->ends; e < over->ends + over->end_count; e++) {
        const struct spot *p = &spots[index_of(e)];
        if (e->guard >= 0 && p->next_us && p->next_us <= now)
            check_reader(e);
        if (e->guard >= 0 && p->next_us && p->next_us < next)
            next = p->next_us;
    }
    return next == UINT64_MAX ? -1 : next <= now ? 0 : (int)((next - now + 999) / 1000);
}
