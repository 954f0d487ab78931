/* File descriptors passed with a message over a unix socket. */
#ifndef POOL_FD_PASSING_H
#define POOL_FD_PASSING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define FDS_MOST 8 /* in one message */

struct fd_message { /* filled in for sendmsg or sendmmsg; must not be copied */
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(FDS_MOST * sizeof(int))];
    } control;
    struct iovec part;
    struct msghdr head;
};

void fd_message_init(struct fd_message *m, const void *data, size_t size, const int *fds, size_t count);

/* Like sendmsg, without SIGPIPE. */
ssize_t send_with_fds(int to, const void *data, size_t size, const int *fds, size_t count, int flags);
ssize_t send_with_fd(int to, const void *data, size_t size, int fd, int flags); /* fd -1: none */

/* Like recvmsg. *fd is the received file descriptor, close-on-exec, which the caller closes; or -1. */
ssize_t receive_with_fd(int from, void *data, size_t size, int *fd, int flags);

#endif
