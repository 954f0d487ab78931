/* File descriptors passed with a message over a unix socket (SCM_RIGHTS, unix(7)). */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "common/fd_passing.h"

void fd_message_init(struct fd_message *m, const void *data, size_t size, const int *fds, size_t count)
{
    memset(m, 0, sizeof *m);
    m->part = (struct iovec){(void *)(uintptr_t)data, size};
    m->head = (struct msghdr){.msg_iov = &m->part, .msg_iovlen = 1};
    if (!count)
        return;
    m->head.msg_control = &m->control;
    m->head.msg_controllen = CMSG_SPACE(count * sizeof *fds);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m->head);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(count * sizeof *fds), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), fds, count * sizeof *fds);
}

ssize_t send_with_fds(int to, const void *data, size_t size, const int *fds, size_t count, int flags)
{
    struct fd_message m;
    fd_message_init(&m, data, size, fds, count);
    return sendmsg(to, &m.head, MSG_NOSIGNAL | flags);
}

ssize_t send_with_fd(int to, const void *data, size_t size, int fd, int flags)
{
    return send_with_fds(to, data, size, &fd, fd >= 0, flags);
}

ssize_t receive_with_fd(int from, void *data, size_t size, int *fd, int flags)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {data, size};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    *fd = -1;
    ssize_t n = recvmsg(from, &m, MSG_CMSG_CLOEXEC | flags);
    struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len >= CMSG_LEN(sizeof *fd))
        memcpy(fd, CMSG_DATA(c), sizeof *fd);
    return n;
}
