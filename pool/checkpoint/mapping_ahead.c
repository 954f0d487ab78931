/* Seeks forward in a file that is read: what is passed over is read and dropped here, and the call returns when it has come.
 *
 * Fortran's runtime passes so over the end mark of a record that lies in the next block. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mapping.h"

static struct ahead {
    struct seccomp_notif_resp answer;
    int listener, fd;
    uint64_t left;
} waiting[SLOTS];
static int count;

bool ahead_any(void) { return count > 0; }

static void drop(int which)
{
    close(waiting[which].fd);
    waiting[which] = waiting[--count];
}

/* True when there is nothing more to wait for. */
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
            drop(i); /* whoever asked is gone */
        } else if (advance(a)) {
            ioctl(a->listener, SECCOMP_IOCTL_NOTIF_SEND, &a->answer);
            drop(i);
        }
    }
}

/* Lets the call return `to` when that many bytes have passed. */
void ahead_begin(struct question *q, int fd, uint64_t by, int64_t to)
{
    if (fd < 0 || count == SLOTS)
        return answer_error(q, ENFILE);
    struct ahead *a = &waiting[count++];
    *a = (struct ahead){.answer = {.id = q->notif->id, .val = to}, .listener = q->listener, .fd = fd, .left = by};
    watch(fd, FROM_AHEAD, 0, EPOLLIN);
    q->answered = true;
    ahead_look();
}
