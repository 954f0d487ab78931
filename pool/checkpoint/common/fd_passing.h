/* File descriptors passed with a message over a unix socket. */
#ifndef POOL_FD_PASSING_H
#define POOL_FD_PASSING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define FDS_MOST 8 /* in one message */

struct fd_message { /* made ready for sendmsg or sendmmsg; may not be copied */
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(FDS_MOST * sizeof(int))];
    } control;
    struct iovec part;
    struct msghdr head;
};

void fd_message_init(struct fd_message *m, const void *data, size_t size, const int *fds, size_t count);

/* Like sendmsg, and never a signal. */
ssize_t send_with_fds(int to, const void *data, size_t size, const int *fds, size_t count, int flags);
ssize_t send_with_fd(int to, const void *data, size_t size, int fd, int flags); /* fd -1: none */

/* Like recvmsg; *fd is the descriptor that came, closed on exec and the caller's to close, or -1. */
ssize_t receive_with_fd(int from, void *data, size_t size, int *fd, int flags);

#endif
