/* TCP connections that a handshake makes again: those that nobody has accepted yet. The kernel has no way to put a
 * connection into the queue of a listening socket, so the client's end connects once more, from the same address, and
 * sends again the bytes that waited there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "state/inet.h"

#define PATIENCE_MS 5000

int tcp_bind_anyhow(int fd, const struct inet_name *name)
{
    if (tcp_repair_on(fd) < 0)
        return -1;
    int done = bind(fd, &name->any, name->size), err = errno;
    tcp_repair_off(fd);
    errno = err;
    return done;
}

int tcp_connect_now(int fd, const struct inet_name *to)
{
    int flags = fcntl(fd, F_GETFL), err = 0;
    struct pollfd made = {.fd = fd, .events = POLLOUT};
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    if (connect(fd, &to->any, to->size) < 0 && errno != EINPROGRESS)
        err = errno;
    else if (poll(&made, 1, PATIENCE_MS) != 1)
        err = ETIMEDOUT;
    else if ((err = inet_get(fd, SOL_SOCKET, SO_ERROR, EBADF)) == 0)
        connect(fd, &to->any, to->size); /* the socket counts as connected only now */
    fcntl(fd, F_SETFL, flags);
    errno = err;
    return err ? -1 : 0;
}

/* The kernel takes all of it: the buffer is as large as needed until then. */
bool tcp_send_whole(int fd, const char *data, size_t size)
{
    if (!size)
        return true;
    inet_set_buffer(fd, SO_SNDBUF, (uint32_t)(size * 2 + (1 << 20)));
    while (size) {
        ssize_t n = send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

static int temporary_client(const struct inet_name *from)
{
    int fd = socket(from->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && tcp_bind_anyhow(fd, from) < 0) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

/* Makes a connection that waits to be accepted, with the bytes in it. `own`: the client's socket, bound and not
 * connected; -1: the client has closed it. */
int tcp_handshake(int own, const struct inet_waiting *waiting, const char *data, struct failure *f)
{
    struct inet_name from, to;
    struct linger at_once = {1, 0};
    inet_plain(&waiting->remote, &from);
    inet_plain(&waiting->local, &to);
    int fd = own >= 0 ? own : temporary_client(&from);
    if (fd < 0)
        return set_failure(f, "bind", "the client of a connection that waits to be accepted");
    int done = tcp_connect_now(fd, own >= 0 ? &waiting->local : &to) < 0
                   ? set_failure(f, "connect", "the client of a connection that waits to be accepted")
                   : 0;
    if (!done && !tcp_send_whole(fd, data, waiting->received))
        done = set_failure(f, "send", "to a connection that waits to be accepted");
    if (own >= 0)
        return done;
    if (waiting->flags & INET_ERROR)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd); /* what it still has to send, it sends */
    return done;
}
