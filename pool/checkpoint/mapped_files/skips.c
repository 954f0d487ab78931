/* Seeks forward in a file that is read: the supervisor reads and drops the skipped bytes, and the call returns when
 * they have come. Fortran's runtime skips the end mark of a record in the next block in this way. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mapped_files/parts.h"

static struct ahead {
    struct seccomp_notif_resp answer;
    int listener, fd;
    uint64_t left;
    struct again call;
} waiting[SLOTS];
static int count;
struct again again[SLOTS];
uint32_t again_count;

bool ahead_any(void) { return count > 0; }

static void drop_skip(int which)
{
    epoll_ctl(over->poll, EPOLL_CTL_DEL, waiting[which].fd,
              NULL); /* the program has the same open file, so epoll would still report it */
    close(waiting[which].fd);
    waiting[which] = waiting[--count];
}

/* True: nothing is left to wait for. */
static bool advance(struct ahead *a)
{
    static char dropped[65536];
    while (a->left) {
        ssize_t n = recv(a->fd, dropped, a->left < sizeof dropped ? a->left : sizeof dropped, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno != EAGAIN;
        if (n == 0)
            return true;
        a->left -= (uint64_t)n;
    }
    return true;
}

void ahead_look(void)
{
    for (int i = count - 1; i >= 0; i--) {
        struct ahead *a = &waiting[i];
        if (ioctl(a->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &a->answer.id) < 0) {
            drop_skip(i); /* the caller is gone */
        } else if (advance(a)) {
            ioctl(a->listener, SECCOMP_IOCTL_NOTIF_SEND, &a->answer);
            drop_skip(i);
        }
    }
}

/* Makes the call return `to` when that many bytes were skipped. */
void ahead_begin(struct notification *q, int fd, uint64_t by, int64_t to)
{
    if (fd < 0 || count == SLOTS)
        return answer_error(q, ENFILE);
    struct ahead *a = &waiting[count++];
    *a = (struct ahead){.answer = {.id = q->notif->id, .val = to},
                        .listener = q->listener,
                        .fd = fd,
                        .left = by,
                        .call = {q->tid, (int)q->notif->data.args[0], (int64_t)q->notif->data.args[1], to}};
    watch_fd(fd, FROM_AHEAD, 0, EPOLLIN);
    q->answered = true;
    ahead_look();
}

uint32_t ahead_list(struct again *list)
{
    for (int i = 0; i < count; i++)
        list[i] = waiting[i].call;
    return (uint32_t)count;
}

/* A thread that waits here cannot be stopped. Calls of threads that are asked to stop are returned, to be repeated
 * later; the bytes already skipped stay skipped. */
void ahead_give_back(void)
{
    for (int i = count - 1; i >= 0; i--) {
        struct ahead *a = &waiting[i];
        if (!proc_field(a->call.tid, "status", "TracerPid", 10))
            continue;
        if (again_count == SLOTS)
            memmove(again, again + 1, --again_count * sizeof *again);
        again[again_count++] = a->call;
        a->answer.val = 0;
        a->answer.error = -GIVEN_BACK;
        ioctl(a->listener, SECCOMP_IOCTL_NOTIF_SEND, &a->answer);
        drop_skip(i);
    }
}

bool ahead_again(const struct notification *q, int64_t *to)
{
    for (uint32_t i = 0; i < again_count; i++) {
        const struct again *a = &again[i];
        if (a->tid != q->tid || a->number != (int)q->notif->data.args[0])
            continue;
        bool same = a->by == (int64_t)q->notif->data.args[1];
        *to = a->to;
        again[i] = again[--again_count];
        return same;
    }
    return false;
}
