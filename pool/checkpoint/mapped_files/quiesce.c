/* The supervisor during a dump (VS 5.3: synchronise): it answers no calls and moves no bytes, and has sent its whole
 * state. The steps: it hears of a dumper; it sends its state; at SAY_GIVE_BACK it returns waiting calls to the threads
 * that are asked to stop; at SAY_HELD all are stopped, and each process is made to show its member; at SAY_GO, or when
 * the dumper is gone, it continues.
 *
 * The state is sent in a memory file, with file descriptors and inodes as they are here; state/mapped_files_save.c
 * turns it into rows of an image. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "image/image.h"
#include "mapped_files/parts.h"

static bool write_all(int fd, const void *data, size_t size)
{
    for (const char *at = data; size;) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

static uint32_t place_of(int fd) { return fd < 0 ? NOBODY : (uint32_t)fd; }

static bool put_log(int fd, const struct log *l)
{
    struct mapped_log row = {l->end,
                             l->kept,
                             l->punched,
                             l->limit,
                             place_of(l->fd),
                             place_of(l->spool),
                             l->full_disk,
                             0,
                             {0, (uint32_t)(l->end - l->kept)}};
    return write_all(fd, &row, sizeof row);
}

static bool put_ring(int fd, const struct log *l)
{
    size_t size = (size_t)(l->end - l->kept), from = l->kept % RING, part = RING - from < size ? RING - from : size;
    return write_all(fd, l->ring + from, part) && write_all(fd, l->ring, size - part);
}

static bool put_seeks(int fd, const struct again *list, uint32_t count)
{
    bool done = true;
    for (uint32_t i = 0; i < count; i++) {
        struct mapped_seek row = {list[i].tid, list[i].number, list[i].by, list[i].to};
        done = done && write_all(fd, &row, sizeof row);
    }
    return done;
}

static bool put_rows(int fd)
{
    struct again waiting[SLOTS];
    uint32_t waits = ahead_list(waiting);
    struct settled head = {.ends = over->end_count,
                           .logs = over->log_count,
                           .strays = displaced_count,
                           .seeks = again_count + waits,
                           .first = (uint32_t)over->first,
                           .roots = over->roots,
                           .since = over->started};
    for (uint32_t i = 0; i < over->log_count; i++)
        head.outlets += over->logs[i].count;
    bool done = write_all(fd, &head, sizeof head);
    for (const struct end *e = over->ends; e < over->ends + over->end_count; e++) {
        struct mapped_end row = {e->inode, e->shown, NOBODY, place_of(e->fd), e->opened, e->told_empty};
        done = done && write_all(fd, &row, sizeof row);
    }
    for (uint32_t i = 0; i < over->log_count; i++)
        done = done && put_log(fd, &over->logs[i]);
    for (uint32_t i = 0; i < over->log_count; i++)
        for (const struct outlet *o = over->logs[i].outlets; o < over->logs[i].outlets + over->logs[i].count; o++) {
            struct mapped_outlet row = {o->sent, i, place_of(o->fd)};
            done = done && write_all(fd, &row, sizeof row);
        }
    for (const struct displaced *s = displaced; s < displaced + displaced_count; s++) {
        struct mapped_stray row = {
            s->inode,  s->at, (uint32_t)(s->end - over->ends), NOBODY, place_of(s->kept), place_of(s->other), s->pid,
            s->number, ""};
        copy_text(row.call, sizeof row.call, s->call);
        done = done && write_all(fd, &row, sizeof row);
    }
    done = done && put_seeks(fd, again, again_count) && put_seeks(fd, waiting, waits);
    for (uint32_t i = 0; i < over->log_count; i++)
        done = done && put_ring(fd, &over->logs[i]);
    return done;
}

static bool send_state(int talk)
{
    int fd = memfd_create("mapped", MFD_CLOEXEC);
    bool told = fd >= 0 && put_rows(fd) && hello_send(talk, &(struct hello){.what = HELLO_DUMPER}, fd) == 0;
    if (fd >= 0)
        close(fd);
    return told;
}

/* Answers a stopped process. Other processes get their call returned, and repeat it when they continue. */
static void show_member(const struct listener *l)
{
    struct notification q;
    if (!notification_receive(&q, l->fd, l->member))
        return;
    if ((int)q.notif->data.args[1] == ASK_MEMBER)
        answer_value(&q, (int64_t)l->member + 1);
    else
        answer_error(&q, GIVEN_BACK);
    notification_answer(&q);
}

/* False: the dump is over. */
static bool hear_dumper(int talk, bool *held)
{
    uint32_t what;
    if (recv(talk, &what, sizeof what, 0) != sizeof what || what == SAY_GO)
        return false;
    *held |= what == SAY_HELD;
    if (what == SAY_GIVE_BACK)
        ahead_give_back();
    return send(talk, &what, sizeof what, MSG_NOSIGNAL) == sizeof what;
}

void settle(int talk)
{
    struct pollfd *fds = calloc(over->listener_count + 1ul, sizeof *fds);
    bool held = false, going = fds && !over->misused && send_state(talk);
    for (uint32_t i = 0; going && i < over->listener_count; i++)
        fds[i + 1] = (struct pollfd){.fd = over->listeners[i].fd, .events = POLLIN};
    while (going) {
        fds[0] = (struct pollfd){.fd = talk, .events = POLLIN};
        if (poll(fds, held ? over->listener_count + 1 : 1, -1) < 0 && errno != EINTR)
            break;
        for (uint32_t i = 0; held && i < over->listener_count; i++)
            if (fds[i + 1].revents & POLLIN)
                show_member(&over->listeners[i]);
            else if (fds[i + 1].revents)
                fds[i + 1].fd = -1; /* all its processes are gone: handled later */
        if (fds[0].revents)
            going = hear_dumper(talk, &held);
    }
    free(fds);
    close(talk);
}
