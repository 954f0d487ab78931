/* The keeper's end of the file server: the sockets that pass it streams and ask it whether all writes are done, and the
 * trees that are synchronised before a dump. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fd_passing.h"
#include "remote/parts.h"

#define SETTLE_MS 30000 /* the job is frozen during this time */

static struct {
    int control, settle;
    int top[REMOTE_TREES];
    uint32_t tops;
    bool asked, drained;
} remote = {.control = -1, .settle = -1};

int remote_control_open(struct remote_control *server, struct failure *f)
{
    int control[2], settle[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, settle) < 0)
        return set_failure(f, "socket", "the file server");
    remote.control = control[0];
    remote.settle = settle[0];
    *server = (struct remote_control){control[1], settle[1]};
    return 0;
}

void remote_control_close(void)
{
    close(remote.control);
    close(remote.settle);
}

int remote_control_tops(const struct job *job, struct failure *f)
{
    for (uint32_t i = 0; i < job->start->remotes; i++)
        if ((remote.top[i] = open(job->remote[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
            return set_failure(f, "open", job->remote[i]);
    remote.tops = job->start->remotes;
    return 0;
}

/* By descriptor: the job may have put another mount where the path of a tree leads. */
void remote_control_cut(void)
{
    char path[32];
    for (uint32_t i = 0; i < remote.tops; i++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", remote.top[i]);
        umount2(path, MNT_FORCE);
    }
}

int remote_fd(void) { return remote.drained ? -1 : remote.control; }

static int send_to(int fd, uint32_t what, uint64_t value, int passed)
{
    struct remote_message m = {.what = what, .value = value};
    return send_with_fd(fd, &m, sizeof m, passed, MSG_DONTWAIT) < 0 ? -1 : 0;
}

void remote_stream(int fd)
{
    if (remote.control >= 0)
        send_to(remote.control, REMOTE_STREAM, 0, fd);
}

/* True while the server lives. Its only message says that all writes are on the submit side. */
bool remote_heard(void)
{
    struct remote_message m;
    ssize_t n = recv(remote.control, &m, sizeof m, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    remote.drained = true;
    return n > 0;
}

/* Called after the job's last process has exited: whether the submit side has all that the job wrote. */
bool remote_over(void)
{
    if (remote.control < 0 || remote.drained)
        return true;
    if (!remote.asked && send_to(remote.control, REMOTE_END, 0, -1) < 0)
        return true;
    remote.asked = true;
    return false;
}

/* Called in the dumper, while the job is frozen: waits until the submit side has all that the job wrote, and has
 * recorded the moment. */
int remote_settle(const struct job *job, uint64_t mark, struct failure *f)
{
    struct remote_message m = {0};
    struct pollfd answer = {.fd = remote.settle, .events = POLLIN};
    if (remote.control < 0)
        return 0;
    while (recv(remote.settle, &m, sizeof m, MSG_DONTWAIT) > 0) { /* a late answer to an earlier request */
    }
    for (uint32_t i = 0; i < job->start->remotes; i++)
        if (syncfs(remote.top[i]) < 0)
            return set_failure(f, "sync", job->remote[i]);
    if (send_to(remote.settle, REMOTE_SETTLE, mark, -1) < 0)
        return set_failure(f, "sync", "the file server");
    if (poll(&answer, 1, SETTLE_MS) <= 0) {
        errno = ETIMEDOUT;
        return set_failure(f, "sync", "the submit machine does not answer");
    }
    if (recv(remote.settle, &m, sizeof m, 0) != sizeof m) {
        errno = EIO;
        return set_failure(f, "sync", "the file server");
    }
    errno = (int)m.value;
    return m.value ? set_failure(f, "sync", "the submit machine's note of the moment") : 0;
}
