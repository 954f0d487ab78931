/* Unix sockets of the job: connections with both ends in the job, with unread data; listening and bound sockets. The
 * kernel reports the peer of each (sock_diag); unread data is peeked and remains. An end that was closed is closed
 * again. A connected socket has no name after a restore. A socket with file descriptors in flight is refused. A
 * datagram socket may be connected to another by its name. An empty datagram is seen only by the first peek: a second
 * image lacks it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "state/state.h"

#ifndef SIOCUNIXFILE
#define SIOCUNIXFILE (SIOCPROTOPRIVATE + 0) /* Linux 4.12 */
#endif
#define LISTENS 10 /* TCP_LISTEN; unix sockets use it too */
#define RESET 4 /* beside the bits of shutdown(2) in traits.shut: a connection to the outside, which is reset */
#define CONNECTED 1
#define MOST (8u << 20) /* bytes of unread data in one socket */
#define PARTS 16u /* pieces of unread data in an image */
#define LAST 48832u /* bytes that the kernel puts into one buffer: 16 KiB minus its header, and 32 KiB of pages */

struct traits { /* the row's contents begin with it; the bound name follows, then the unread data */
    uint32_t type, shut, send_buffer, credentials, listens, backlog;
    int64_t patience[2][2]; /* SO_RCVTIMEO, SO_SNDTIMEO */
    int32_t low_water, peek; /* SO_RCVLOWAT, SO_PEEK_OFF */
    uint32_t receive_buffer, name; /* name: size of the name; for a datagram socket unread data follows it */
};

struct facts {
    uint8_t type, state, shut;
    uint32_t peer, waiting, backlog, bound; /* bound: inode of its name, 0: it has none, or the name was removed */
    bool has_peer;
};

static bool ask_kernel(uint32_t inode, struct facts *facts)
{
    struct {
        struct nlmsghdr head;
        struct unix_diag_req body;
    } question = {{sizeof question, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0},
                  {.sdiag_family = AF_UNIX,
                   .udiag_states = ~0u,
                   .udiag_ino = inode,
                   .udiag_cookie = {~0u, ~0u},
                   .udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN | UDIAG_SHOW_VFS}};
    union {
        struct nlmsghdr head;
        char room[4096];
    } answer;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    ssize_t n = fd < 0 || send(fd, &question, sizeof question, 0) < 0 ? -1 : recv(fd, &answer, sizeof answer, 0);
    if (fd >= 0)
        close(fd);
    memset(facts, 0, sizeof *facts);
    if (n < (ssize_t)NLMSG_LENGTH(sizeof(struct unix_diag_msg)) || answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY)
        return false;
    const struct unix_diag_msg *m = NLMSG_DATA(&answer.head);
    facts->type = m->udiag_type;
    facts->state = m->udiag_state;
    int left = (int)answer.head.nlmsg_len - (int)NLMSG_LENGTH(sizeof *m);
    for (const struct rtattr *a = (const struct rtattr *)(m + 1); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        const uint32_t *value = RTA_DATA(a);
        if (a->rta_type == UNIX_DIAG_PEER) {
            facts->peer = *value;
            facts->has_peer = true;
        } else if (a->rta_type == UNIX_DIAG_RQLEN) {
            facts->waiting = value[0];
            facts->backlog = value[1];
        } else if (a->rta_type == UNIX_DIAG_VFS) {
            facts->bound = value[0];
        } else if (a->rta_type == UNIX_DIAG_SHUTDOWN) {
            facts->shut = *(const uint8_t *)RTA_DATA(a);
        }
    }
    return true;
}

static void read_traits(int fd, struct traits *t)
{
    socklen_t size = sizeof t->send_buffer;
    getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &t->send_buffer, &size);
    getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &t->receive_buffer, &size);
    getsockopt(fd, SOL_SOCKET, SO_PASSCRED, &t->credentials, &size);
    getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &t->low_water, &size);
    getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &t->peek, &size);
    for (int i = 0; i < 2; i++) {
        size = sizeof t->patience[i];
        getsockopt(fd, SOL_SOCKET, i ? SO_SNDTIMEO : SO_RCVTIMEO, t->patience[i], &size);
    }
}

/* Finds the file to which a socket was bound by a relative name: the process may have changed its directory since.
 * `directory` in: the process's current directory; out: the directory of the name. False: it was not found. */
static bool find_bound(struct dump *d, int fd, uint32_t inode, const char *name, char *directory, size_t size)
{
    char path[64], file[4400];
    struct stat st;
    struct facts facts;
    int at = ioctl(fd, SIOCUNIXFILE);
    if (at >= 0) { /* needs CAP_NET_ADMIN, which an ordinary user's node lacks */
        snprintf(path, sizeof path, "/proc/self/fd/%d", at);
        ssize_t n = readlink(path, file, sizeof file - 1);
        close(at);
        file[n < 0 ? 0 : n] = 0;
        if (n > 10 && strcmp(file + n - 10, " (deleted)") ==
                          0) { /* the name was removed: it is bound again in a directory where that is possible */
            const char *own = scratch_path(d->job);
            if (*own && !path_is_under(directory, own))
                copy_text(directory, size, own);
            return true;
        }
        size_t whole = strlen(file), end = strlen(name);
        if (whole > end + 1 && file[whole - end - 1] == '/' && strcmp(file + whole - end, name) == 0) {
            file[whole - end - 1] = 0;
            copy_text(directory, size, file);
            return true;
        }
    }
    if (!ask_kernel(inode, &facts) || !facts.bound)
        return true;
    for (size_t i = 0; i <= d->count; i++) {
        char other[4096];
        if (i) {
            snprintf(path, sizeof path, "/proc/%d/cwd", d->processes[i - 1].pid);
            ssize_t n = readlink(path, other, sizeof other - 1);
            other[n < 0 ? 0 : n] = 0;
        } else {
            copy_text(other, sizeof other, directory);
        }
        snprintf(file, sizeof file, "%s/%s", other, name);
        if (stat(file, &st) == 0 && (uint32_t)st.st_ino == facts.bound) {
            copy_text(directory, size, other);
            return true;
        }
    }
    const char *scratch = scratch_path(d->job);
    snprintf(file, sizeof file, "%s/%s", scratch, name);
    if (stat(file, &st) < 0 || (uint32_t)st.st_ino != facts.bound)
        return false;
    copy_text(directory, size, scratch);
    return true;
}

/* A relative name is relative to the row's path. */
static socklen_t bound_name(struct dump *d, struct file *f, int fd, uint32_t inode, pid_t pid, struct sockaddr_un *name,
                            bool *found)
{
    char path[64], cwd[4096];
    socklen_t size = sizeof *name;
    *found = true;
    memset(name, 0, sizeof *name);
    if (getsockname(fd, (struct sockaddr *)name, &size) < 0 || size <= offsetof(struct sockaddr_un, sun_path))
        return 0;
    snprintf(path, sizeof path, "/proc/%d/cwd", pid);
    ssize_t n = readlink(path, cwd, sizeof cwd - 1);
    cwd[n < 0 ? 0 : n] = 0;
    if (name->sun_path[0] && name->sun_path[0] != '/')
        *found = find_bound(d, fd, inode, name->sun_path, cwd, sizeof cwd);
    f->path = image_text(&d->image, cwd);
    return size;
}

/* Whether the name cannot be bound again: another file has it by now, or its directory is gone. */
static bool name_is_lost(const struct dump *d, const struct file *f, const struct sockaddr_un *name)
{
    char path[4400];
    struct stat st;
    const char *directory = name->sun_path[0] == '/' ? "" : image_string(&d->image, f->path);
    snprintf(path, sizeof path, "%s%s%.*s", directory, *directory ? "/" : "", (int)sizeof name->sun_path,
             name->sun_path);
    if (lstat(path, &st) == 0)
        return !S_ISSOCK(st.st_mode);
    *strrchr(path, '/') = 0;
    return *path && stat(path, &st) < 0;
}

/* Whether the job's owner lets a restore reset connections to the outside (outside_connections = reset). */
static bool may_reset(const struct dump *d) { return d->job->start->flags & FLAG_RESET_CONNECTIONS; }

/* Adds a row for a TCP connection to the outside that a restore resets: a socket whose other end is closed. Unread
 * bytes are lost, as in a reset. */
bool socket_reset_save(struct dump *d, struct file *f, int fd, uint64_t inode)
{
    struct traits t = {.type = SOCK_STREAM, .peek = -1, .shut = RESET};
    if (!may_reset(d))
        return false;
    read_traits(fd, &t);
    f->kind = FILE_PAIR;
    f->number = inode;
    f->times[0] = 0;
    f->contents = image_put(&d->image, &t, sizeof t);
    return true;
}

/* The reason why the socket cannot be restored, for "is a unix socket that ..."; NULL if it can. `alone`: it has no
 * peer that is restored with it. `found`: its bound name means a file that the job's processes reach. */
static const char *unsupported_because(struct dump *d, struct file *f, const struct facts *facts, bool alone,
                                       const struct sockaddr_un *name, socklen_t size, bool found)
{
    bool datagrams = facts->type == SOCK_DGRAM;
    if (facts->state == LISTENS && facts->waiting)
        return "has connections that were not accepted yet (accept them)";
    if (alone && facts->waiting && !datagrams)
        return "has unread messages (read them)";
    if (datagrams && facts->has_peer && !facts->peer)
        return "is connected to a socket that was closed (connect it again)";
    if (!alone && facts->has_peer && !facts->peer && facts->shut != 3 && !may_reset(d))
        return "waits to be accepted (accept it)";
    if (alone && size && name->sun_path[0] && name_is_lost(d, f, name))
        return "has a name that was removed, and cannot be bound to it again (leave the name in place)";
    if (alone && !found)
        return "has a relative name that no process of the job can reach (bind it to an absolute one)";
    return NULL;
}

/* Adds a row for the socket. False: it is not a unix socket that this file knows, or it is refused; `told` says whether
 * a reason was given. */
bool socket_save(struct dump *d, struct file *f, pid_t pid, int number, uint64_t inode, bool *told)
{
    struct facts facts;
    struct sample sample = {pid, number};
    *told = false;
    if (!ask_kernel((uint32_t)inode, &facts))
        return false;
    int fd = descriptor_borrow(&sample);
    if (fd < 0)
        return false;
    struct traits t = {
        .type = facts.type, .shut = facts.shut, .listens = facts.state == LISTENS, .backlog = facts.backlog};
    struct sockaddr_un name;
    read_traits(fd, &t);
    bool found;
    socklen_t size = bound_name(d, f, fd, (uint32_t)inode, pid, &name, &found);
    close(fd);
    /* The kernel calls a datagram socket connected as soon as another socket has connected to it. */
    bool alone = facts.type == SOCK_DGRAM ? size || !facts.has_peer : facts.state != CONNECTED;
    const char *why = unsupported_because(d, f, &facts, alone, &name, size, found);
    if (why) {
        add_unsupported(d, "descriptor %d of process %d is a unix socket that %s", number, pid, why);
        *told = true;
        return false;
    }
    f->kind = alone ? FILE_NAMED : FILE_PAIR;
    f->number = inode;
    f->times[0] = facts.peer;
    if (!alone && facts.has_peer && !facts.peer && facts.shut != 3)
        t.shut = RESET;
    t.name = alone ? size : 0;
    f->contents = image_put(&d->image, &t, sizeof t);
    if (alone && size)
        f->contents.size += image_put(&d->image, &name, size).size;
    return true;
}

static bool is_datagrams(const struct image *image, const struct file *f)
{
    struct traits t;
    if ((f->kind != FILE_NAMED && f->kind != FILE_PAIR) || f->contents.size < sizeof t)
        return false;
    memcpy(&t, image_bytes(image, f->contents), sizeof t);
    return t.type == SOCK_DGRAM;
}

/* A datagram socket connected to a named one: `size` becomes 1 + the row of that one. True: it has no peer, or the peer
 * was found. */
static bool join_named(struct dump *d, struct file *f)
{
    struct file *files = d->image.files.rows;
    if (!f->times[0] || !is_datagrams(&d->image, f))
        return f->kind == FILE_NAMED;
    for (uint32_t j = 0; j < d->image.files.count; j++)
        if (files[j].kind == FILE_NAMED && files[j].number == f->times[0] &&
            files[j].contents.size > sizeof(struct traits)) {
            f->kind = FILE_NAMED;
            f->size = j + 1;
            return true;
        }
    return false;
}

/* The restore resets this connection, after its unread bytes. */
static void mark_reset(struct dump *d, struct file *f)
{
    struct traits t;
    char *at = (char *)(uintptr_t)image_bytes(&d->image, f->contents);
    memcpy(&t, at, sizeof t);
    t.shut = RESET;
    memcpy(at, &t, sizeof t);
    f->times[0] = 0;
}

/* Called when all file descriptors are known. */
void sockets_join(struct dump *d)
{
    struct file *files = d->image.files.rows;
    for (uint32_t i = 0; i < d->image.files.count; i++) {
        const struct sample *sample = (struct sample *)d->samples.rows + i;
        if ((files[i].kind == FILE_NAMED || files[i].kind == FILE_PAIR) && !join_named(d, &files[i]) &&
            files[i].kind == FILE_NAMED)
            add_unsupported(
                d, "descriptor %d of process %d is a unix socket whose other end is outside the job (close it first)",
                sample->fd, sample->pid);
    }
    for (uint32_t i = 0; i < d->image.files.count; i++) {
        if (files[i].kind != FILE_PAIR || !files[i].times[0])
            continue;
        uint32_t other = NOBODY;
        for (uint32_t j = 0; j < d->image.files.count; j++)
            if (files[j].kind == FILE_PAIR && files[j].number == files[i].times[0] &&
                files[j].times[0] == files[i].number)
                other = j;
        const struct sample *sample = (struct sample *)d->samples.rows + i;
        if (other == NOBODY && mapping_is(files[i].number))
            files[i].times[0] = 0; /* the last reader is gone, and the supervisor has not handled it yet */
        else if (other == NOBODY && may_reset(d))
            mark_reset(d, &files[i]);
        else if (other == NOBODY)
            add_unsupported(
                d, "descriptor %d of process %d is a unix socket whose other end is outside the job (close it first)",
                sample->fd, sample->pid);
        else if (other < i)
            files[i].peer = other;
    }
}

static bool carries_descriptors(struct msghdr *m)
{
    bool found = false;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        found = true;
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++)
            close(((int *)(void *)CMSG_DATA(c))[i]); /* peeking has made copies of them */
    }
    return found;
}

static int peek_contents(struct dump *d, uint32_t row, int fd, const struct traits *t)
{
    static char buffer[MOST / PARTS * 2];
    static union {
        struct cmsghdr align;
        char room[8192];
    } control;
    const struct sample *sample = (struct sample *)d->samples.rows + row;
    struct span *span = &((struct file *)d->image.files.rows)[row].contents;
    char begin[sizeof *t + sizeof(struct sockaddr_un)]; /* copied, so that the unread data follows it */
    memcpy(begin, image_bytes(&d->image, *span), sizeof *t + t->name);
    struct span all = image_put(&d->image, begin, sizeof *t + t->name);
    for (;;) {
        struct iovec part = {buffer, sizeof buffer};
        struct sockaddr_un from;
        struct msghdr m = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof control,
                           .msg_name = &from,
                           .msg_namelen = sizeof from};
        ssize_t n = recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT);
        if (n >= 0 && carries_descriptors(&m)) {
            add_unsupported(
                d, "descriptor %d of process %d is a unix socket with file descriptors in flight (receive them first)",
                sample->fd, sample->pid);
            return 0;
        }
        if (n >= 0 && t->type == SOCK_DGRAM && t->name && m.msg_namelen > offsetof(struct sockaddr_un, sun_path)) {
            add_unsupported(
                d,
                "descriptor %d of process %d is a unix socket with unread messages of named senders (read them first)",
                sample->fd, sample->pid);
            return 0;
        }
        if (n < 0 && errno != EAGAIN)
            return set_failure(&d->failure, "recv", "a socket of the job");
        if (n < 0 || (n == 0 && (t->type == SOCK_STREAM || t->shut & 1)))
            break;
        if (m.msg_flags & MSG_TRUNC || all.size > MOST) {
            errno = EMSGSIZE;
            return set_failure(&d->failure, "recv", "a socket of the job");
        }
        uint32_t length = (uint32_t)n;
        all.size += image_put(&d->image, &length, sizeof length).size;
        all.size += image_put(&d->image, buffer, length).size;
    }
    *span = all;
    return 0;
}

int socket_contents(struct dump *d, uint32_t row)
{
    struct file f = ((struct file *)d->image.files.rows)[row];
    struct traits t;
    memcpy(&t, image_bytes(&d->image, f.contents), sizeof t);
    if (f.kind == FILE_NAMED && t.type != SOCK_DGRAM)
        return 0;
    int fd = descriptor_borrow((struct sample *)d->samples.rows + row), before = -1, at = 0;
    socklen_t size = sizeof before;
    if (fd < 0)
        return set_failure(&d->failure, "open", "a socket of the job");
    int domain = AF_UNIX;
    socklen_t domain_size = sizeof domain;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_size);
    if (domain != AF_UNIX) { /* socket_reset_save */
        close(fd);
        return 0;
    }
    int done = getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &before, &size) < 0 ||
                       setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof at) < 0
                   ? set_failure(&d->failure, "setsockopt", "a socket of the job")
                   : peek_contents(d, row, fd, &t);
    setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &before, sizeof before);
    close(fd);
    return done;
}

static int put_traits(int fd, const struct traits *t)
{
    uint32_t half = t->send_buffer / 2, received = t->receive_buffer / 2; /* the kernel doubles the value */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &half, sizeof half);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &received, sizeof received);
    setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &t->credentials, sizeof t->credentials);
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &t->low_water, sizeof t->low_water);
    setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &t->peek, sizeof t->peek);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, t->patience[0], sizeof t->patience[0]);
    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, t->patience[1], sizeof t->patience[1]);
}

static int traits_of(const struct restoring *r, const struct file *row, struct traits *t, struct failure *f)
{
    errno = EBADMSG;
    if (row->contents.size < sizeof *t)
        return set_failure(f, "read", "a socket");
    memcpy(t, image_bytes(r->image, row->contents), sizeof *t);
    return t->name > sizeof(struct sockaddr_un) || t->name > row->contents.size - sizeof *t
               ? set_failure(f, "read", "a socket")
               : 0;
}

/* Sends a whole stream in buffers as large as the kernel makes them. The buffer was full when the last one was let in,
 * so that is sent by itself. */
static bool send_stream(int through, struct iovec *parts, size_t count, size_t total)
{
    for (size_t left = total; left;) {
        size_t wanted = left > LAST ? left - LAST : left, used = 0, sum = 0, cut = 0;
        while (used < count && sum < wanted)
            sum += parts[used++].iov_len;
        cut = sum - wanted;
        parts[used - 1].iov_len -= cut;
        struct msghdr m = {.msg_iov = parts, .msg_iovlen = used};
        ssize_t n = sendmsg(through, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        parts[used - 1].iov_len += cut;
        left -= (size_t)n;
        for (size_t gone = (size_t)n; gone;) {
            size_t part = gone < parts->iov_len ? gone : parts->iov_len;
            parts->iov_base = (char *)parts->iov_base + part;
            parts->iov_len -= part;
            gone -= part;
            if (!parts->iov_len && count > 1) {
                parts++;
                count--;
            }
        }
    }
    return true;
}

/* Sends unread data through the other end, whose buffer is as large as the machine allows in the meantime. */
static int send_all(const struct restoring *r, const struct file *row, const struct traits *t, int through,
                    struct failure *f)
{
    const char *at = (const char *)image_bytes(r->image, row->contents) + sizeof *t + t->name;
    const char *end = (const char *)image_bytes(r->image, row->contents) + row->contents.size;
    uint32_t before = 0, most = 1 << 30;
    struct iovec parts[2 * PARTS];
    size_t count = 0, total = 0;
    socklen_t size = sizeof before;
    getsockopt(through, SOL_SOCKET, SO_SNDBUF, &before, &size);
    setsockopt(through, SOL_SOCKET, SO_SNDBUF, &most, sizeof most);
    bool sent = true;
    while (sent && end - at >= (ptrdiff_t)sizeof(uint32_t)) {
        uint32_t length;
        memcpy(&length, at, sizeof length);
        at += sizeof length;
        sent = length <= end - at && (t->type != SOCK_STREAM || count < sizeof parts / sizeof *parts);
        if (sent && t->type == SOCK_STREAM)
            parts[count++] = (struct iovec){(char *)(uintptr_t)at, length};
        else if (sent)
            sent = send(through, at, length, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)length;
        total += length;
        at += length;
    }
    if (!sent || (count && !send_stream(through, parts, count, total)))
        return set_failure(f, "send", "what waited in a socket");
    before /= 2; /* the kernel doubles the value */
    setsockopt(through, SOL_SOCKET, SO_SNDBUF, &before, sizeof before);
    return 0;
}

/* The first end's row also makes the other end, which the second row finds in `spare`. */
int socket_pair(struct restoring *r, uint32_t at, const struct file *row, struct failure *f)
{
    int ends[2];
    struct traits t;
    if (traits_of(r, row, &t, f))
        return -1;
    if (row->peer != NOBODY) {
        if ((ends[0] = fcntl(r->spare[row->peer], F_DUPFD_CLOEXEC, 0)) < 0)
            return set_failure(f, "dup", "a socket");
        return put_traits(ends[0], &t) < 0 || send_all(r, row, &t, r->opened[row->peer], f) ? -1 : ends[0];
    }
    if (socketpair(AF_UNIX, (int)t.type | SOCK_CLOEXEC, 0, ends) < 0)
        return set_failure(f, "socketpair", "");
    r->spare[at] = ends[1];
    return put_traits(ends[0], &t) < 0 || send_all(r, row, &t, ends[1], f) ? -1 : ends[0];
}

/* The kernel resets a socket whose other end is closed with unread data. */
static void reset_end(int end) { send(end, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); }

/* Shuts ends down, when all unread data was sent. */
void sockets_shut(struct restoring *r)
{
    for (uint32_t i = 0; i < r->image->files.count; i++) {
        const struct file *row = (struct file *)r->image->files.rows + i;
        struct traits t;
        struct failure ignored;
        bool shut = (row->kind == FILE_PAIR && row->times[0]) || is_datagrams(r->image, row);
        if (row->kind == FILE_PAIR && row->peer == NOBODY && traits_of(r, row, &t, &ignored) == 0 && t.shut == RESET)
            reset_end(r->opened[i]);
        else if (shut && traits_of(r, row, &t, &ignored) == 0 && t.shut)
            shutdown(r->opened[i], t.shut == 3 ? SHUT_RDWR : t.shut == 1 ? SHUT_RD : SHUT_WR);
    }
}

/* Binds to the same name as before, except that the scratch directory's path may be another one here. */
static int bind_again(const struct restoring *r, const struct file *row, int fd, struct sockaddr_un *name,
                      socklen_t size)
{
    char path[4200];
    struct stat st;
    if (!name->sun_path[0])
        return bind(fd, (struct sockaddr *)name, size);
    moved_path(r->image, r->job, image_string(r->image, row->path), path, sizeof path);
    int before = open(".", O_PATH | O_CLOEXEC);
    if (before < 0 || chdir(path) < 0)
        return -1;
    moved_path(r->image, r->job, name->sun_path, path, sizeof path);
    copy_text(name->sun_path, sizeof name->sun_path, path);
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
        unlink(path); /* its socket is restored here */
    int done = bind(fd, (struct sockaddr *)name, sizeof *name);
    if (fchdir(before) < 0)
        done = -1;
    close(before);
    return done;
}

int socket_named(struct restoring *r, const struct file *row, struct failure *f)
{
    struct sockaddr_un name = {0};
    struct traits t;
    if (traits_of(r, row, &t, f))
        return -1;
    size_t size = t.name;
    int fd = socket(AF_UNIX, (int)t.type | SOCK_CLOEXEC, 0);
    if (fd < 0 || put_traits(fd, &t) < 0)
        return set_failure(f, "socket", "");
    memcpy(&name, (const char *)image_bytes(r->image, row->contents) + sizeof t, size);
    name.sun_path[sizeof name.sun_path - 1] = 0;
    if (size && bind_again(r, row, fd, &name, (socklen_t)size) < 0)
        return set_failure(f, "bind", name.sun_path);
    if (t.listens && listen(fd, (int)t.backlog) < 0)
        return set_failure(f, "listen", name.sun_path);
    return fd;
}

/* Connects to a bound name, from the directory to which that is relative. */
static int connect_to(const struct restoring *r, const struct file *row, int fd, struct failure *f)
{
    struct sockaddr_un name = {0};
    struct traits t;
    char path[4200];
    if (traits_of(r, row, &t, f))
        return -1;
    memcpy(&name, (const char *)image_bytes(r->image, row->contents) + sizeof t, t.name);
    name.sun_path[sizeof name.sun_path - 1] = 0;
    int before = open(".", O_PATH | O_CLOEXEC), done = -1;
    moved_path(r->image, r->job, image_string(r->image, row->path), path, sizeof path);
    if (before >= 0 && (!name.sun_path[0] || chdir(path) == 0)) {
        moved_path(r->image, r->job, name.sun_path, path, sizeof path);
        if (name.sun_path[0])
            copy_text(name.sun_path, sizeof name.sun_path, path);
        done = connect(fd, (struct sockaddr *)&name, name.sun_path[0] ? sizeof name : t.name);
        if (fchdir(before) < 0)
            done = -1;
    }
    if (before >= 0)
        close(before);
    return done < 0 ? set_failure(f, "connect", name.sun_path) : 0;
}

/* Sends the unread datagrams of a named socket. They come from a socket without a name, whatever the sender was. */
static int send_datagrams(const struct restoring *r, const struct file *row, struct failure *f)
{
    struct traits t;
    if (traits_of(r, row, &t, f))
        return -1;
    if (!t.name || row->contents.size == sizeof t + t.name)
        return 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int done = fd < 0                                                     ? set_failure(f, "socket", "")
               : connect_to(r, row, fd, f) || send_all(r, row, &t, fd, f) ? -1
                                                                          : 0;
    if (fd >= 0)
        close(fd);
    return done;
}

/* For datagram sockets with names, when all exist: first the unread data, then the connections. */
int sockets_connect(struct restoring *r, struct failure *f)
{
    const struct file *files = r->image->files.rows;
    for (int connects = 0; connects < 2; connects++)
        for (uint32_t i = 0; i < r->image->files.count; i++) {
            const struct file *row = &files[i];
            if (row->kind != FILE_NAMED || !is_datagrams(r->image, row) || (connects && !row->size))
                continue;
            if (connects && (row->size > r->image->files.count || files[row->size - 1].kind != FILE_NAMED)) {
                errno = EBADMSG;
                return set_failure(f, "read", "a socket");
            }
            if (connects ? connect_to(r, &files[row->size - 1], r->opened[i], f) : send_datagrams(r, row, f))
                return -1;
        }
    return 0;
}
