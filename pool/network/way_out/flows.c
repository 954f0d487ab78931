/* Connections: for each one a socket outside and one in the namespace, and bytes moved between them. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "way_out.h"

#define PIECE (256 << 10)
#define LEFT_MOST (32u << 20) /* bytes that wait in this process; beyond that, connections move small pieces */
#define SMALL_PIECE (8 << 10)
#define TURNS 8 /* pieces that one connection moves before the next one has its turn */

struct side {
    int fd; /* -1: none */
    uint8_t *left; /* bytes for it that its socket did not take */
    size_t start, end; /* of the bytes that are still to be sent; the room's size is `end` */
    bool ended, shut; /* it sends no more; nothing more is sent to it */
    uint32_t watched;
};
enum state { FREE, CONNECTING, WAITING, OPEN, CLOSED };
static struct flow {
    enum state state;
    struct end from, to;
    struct side in, out;
    uint64_t since; /* of one that waits; of an open one the last time that something moved */
    size_t listener; /* plus 1; 0: none */
    size_t first_size;
    uint8_t first[FIRST_MOST];
} flows[FLOWS_MOST];
static struct listener {
    struct end at;
    int fd;
    size_t users; /* 0: free */
} listeners[FLOWS_MOST];
static size_t open_flows, used_flows; /* all beyond the latter are free */
static size_t left_bytes; /* rooms of all `left` */
static bool some_closed;

static bool same(const struct end *one, const struct end *other)
{
    return one->port == other->port && memcmp(one->address, other->address, 16) == 0;
}

static struct flow *flow_of(const struct end *from, const struct end *to)
{
    for (struct flow *f = flows; f < flows + used_flows; f++)
        if (f->state != FREE && f->state != CLOSED && same(&f->from, from) && same(&f->to, to))
            return f;
    return NULL;
}

static void listener_drop(size_t number)
{
    if (number && --listeners[number - 1].users == 0)
        close(listeners[number - 1].fd);
}

/* The number of a listening socket, plus 1; 0: none could be made. */
static size_t listener_take(const struct end *at)
{
    size_t empty = FLOWS_MOST;
    for (size_t i = 0; i < FLOWS_MOST; i++) {
        if (listeners[i].users && same(&listeners[i].at, at)) {
            listeners[i].users++;
            return i + 1;
        }
        if (!listeners[i].users && empty == FLOWS_MOST)
            empty = i;
    }
    int fd = empty < FLOWS_MOST ? inside_listen(way_out.inside, at) : -1;
    if (fd < 0 || watch(EPOLL_CTL_ADD, fd, EPOLLIN, WATCH_LISTENER, empty) < 0) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    listeners[empty] = (struct listener){*at, fd, 1};
    return empty + 1;
}

/* Whether closing resets the connection. So it is while it is open: if this process dies, neither side takes what it
 * has got for all. */
static void end_by_reset(int fd, bool reset)
{
    const struct linger how = {reset, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &how, sizeof how);
}

static void left_drop(struct side *s)
{
    if (s->left)
        left_bytes -= s->end;
    free(s->left);
    s->left = NULL;
}

static void side_close(struct side *s, bool reset)
{
    if (s->fd < 0)
        return;
    end_by_reset(s->fd, reset);
    close(s->fd);
    left_drop(s);
    s->fd = -1;
}

static void flow_close(struct flow *f, bool reset)
{
    if (f->state == FREE || f->state == CLOSED)
        return;
    side_close(&f->in, reset);
    side_close(&f->out, reset);
    listener_drop(f->listener);
    f->state = CLOSED;
    some_closed = true;
    open_flows--;
}

void flows_end(void)
{
    for (struct flow *f = flows; some_closed && f < flows + used_flows; f++)
        if (f->state == CLOSED)
            f->state = FREE;
    while (some_closed && used_flows && flows[used_flows - 1].state == FREE)
        used_flows--;
    some_closed = false;
}

void flows_old(uint64_t now)
{
    for (struct flow *f = flows; f < flows + used_flows; f++)
        if (f->state == WAITING && f->since + WAIT_SECONDS < now)
            flow_close(f, true);
}

/* Once the job's last byte and its end are with the machine's kernel, that sends them as after a program's close. No
 * byte comes of a connection on which nothing moves: the job was killed after a checkpoint, or has sent nothing. */
void flows_finish(uint64_t now)
{
    for (struct flow *f = flows; f < flows + used_flows; f++) {
        bool delivered = f->state == OPEN && f->in.ended && !f->out.left;
        bool quiet = f->since + QUIET_SECONDS <= now && !f->out.left;
        if (delivered || f->state == CONNECTING || quiet)
            flow_close(f, !delivered);
    }
}

void flows_reset(void)
{
    for (struct flow *f = flows; f < flows + used_flows; f++)
        flow_close(f, true);
}

size_t flows_open(void) { return open_flows; }

/* The packet of the job that waits, as it came. */
static void answer_first(const struct flow *f, int error)
{
    uint8_t frame[1024];
    struct packet p;
    if (!packet_read(f->first, f->first_size, &p))
        return;
    if (error == ECONNREFUSED || error == ECONNRESET)
        to_job(frame, make_reset(&p, frame));
    else if (error != ETIMEDOUT) /* nothing comes from there: nor does an answer */
        to_job(frame, make_refusal(&p, NO_ROUTE, frame));
}

static void flow_fail(struct flow *f, int error)
{
    way_out.failed++;
    answer_first(f, error);
    flow_close(f, true);
}

static void begin_inside(struct flow *f)
{
    f->listener = listener_take(&f->to);
    if (!f->listener) {
        flow_fail(f, ENETUNREACH);
        return;
    }
    f->state = WAITING;
    f->since = now_seconds();
    (void)send(way_out.wire, f->first, f->first_size, MSG_DONTWAIT);
}

static void connected(struct flow *f)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(f->out.fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error) {
        flow_fail(f, error);
        return;
    }
    f->out.watched = 0;
    watch(EPOLL_CTL_DEL, f->out.fd, 0, WATCH_OUT, 0);
    begin_inside(f);
}

static void steady(int fd)
{
    const int one = 1, minute = 60, times = 4;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &minute, sizeof minute);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &minute, sizeof minute);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
    end_by_reset(fd, true);
}

static void flow_begin(struct flow *f, const struct end *real)
{
    struct sockaddr_storage name;
    socklen_t size = socket_name(real, &name);
    f->out.fd = socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (f->out.fd < 0) {
        flow_fail(f, errno);
        return;
    }
    steady(f->out.fd);
    if (connect(f->out.fd, (struct sockaddr *)&name, size) < 0 && errno != EINPROGRESS) {
        flow_fail(f, errno);
        return;
    }
    f->out.watched = EPOLLOUT;
    if (watch(EPOLL_CTL_ADD, f->out.fd, EPOLLOUT, WATCH_OUT, (size_t)(f - flows)) < 0)
        flow_fail(f, ENOMEM);
}

void flow_first(const struct packet *p, const uint8_t *frame, size_t size)
{
    uint8_t answer[1024];
    struct end real;
    struct flow *f = flow_of(&p->from, &p->to);
    if (f) { /* sent again, or the kernel inside has to say what it thinks of it */
        if (f->state != CONNECTING)
            (void)send(way_out.wire, frame, size, MSG_DONTWAIT);
        return;
    }
    if (!rules_allow(&p->to, &real)) {
        way_out.refused++;
        way_out.last_refused = p->to;
        to_job(answer, make_refusal(p, NOT_ALLOWED, answer));
        return;
    }
    for (f = flows; f < flows + used_flows && f->state != FREE; f++) {
    }
    if (f == flows + way_out.flows_most || size > FIRST_MOST || !may_begin()) {
        way_out.full += f == flows + way_out.flows_most; /* one with data is sent again without */
        return;
    }
    used_flows += f == flows + used_flows;
    *f = (struct flow){.state = CONNECTING, .from = p->from, .to = p->to, .in.fd = -1, .out.fd = -1};
    memcpy(f->first, frame, f->first_size = size);
    open_flows++;
    flow_begin(f, &real);
}

/* A side from which nothing is wanted now is not watched at all: epoll reports a hang-up whether asked or not. */
static void watch_side(struct flow *f, struct side *s, const struct side *other)
{
    uint32_t events = (!s->ended && !other->left ? EPOLLIN : 0u) | (s->left ? EPOLLOUT : 0u);
    if (s->fd < 0 || events == s->watched)
        return;
    watch(!events      ? EPOLL_CTL_DEL
          : s->watched ? EPOLL_CTL_MOD
                       : EPOLL_CTL_ADD,
          s->fd, events, s == &f->in ? WATCH_IN : WATCH_OUT, (size_t)(f - flows));
    s->watched = events;
}

/* Sends the bytes that were left. False: the connection is broken. */
static bool flush(struct side *to)
{
    while (to->left && to->start < to->end) {
        ssize_t n = send(to->fd, to->left + to->start, to->end - to->start, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        to->start += (size_t)n;
    }
    left_drop(to);
    return true;
}

static bool keep_left(struct side *to, const uint8_t *data, size_t size)
{
    if (!(to->left = malloc(size)))
        return false;
    memcpy(to->left, data, size);
    to->start = 0, to->end = size;
    left_bytes += size;
    return true;
}

/* Moves what is there from one to the other. False: the connection is broken. */
static bool move(struct side *from, struct side *to, bool *moved)
{
    static uint8_t buffer[PIECE];
    if (!flush(to))
        return false;
    for (int left = TURNS; left > 0 && !to->left && !from->ended; left--) {
        ssize_t n = recv(from->fd, buffer, left_bytes < LEFT_MOST ? PIECE : SMALL_PIECE, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (n < 0)
            return false;
        from->ended = n == 0;
        *moved = true;
        ssize_t sent = n ? send(to->fd, buffer, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        sent = sent < 0 ? 0 : sent;
        if (sent < n && !keep_left(to, buffer + sent, (size_t)(n - sent)))
            return false;
    }
    if (from->ended && !to->left && !to->shut) {
        shutdown(to->fd, SHUT_WR);
        to->shut = true;
    }
    return true;
}

void flow_event(size_t number, bool out, uint32_t events)
{
    struct flow *f = &flows[number];
    if (f->state == CONNECTING && out) {
        connected(f);
        return;
    }
    if (f->state != OPEN)
        return;
    bool moved = false;
    if (!move(&f->in, &f->out, &moved) || !move(&f->out, &f->in, &moved) || (events & EPOLLERR)) {
        flow_close(f, true);
        return;
    }
    f->since = moved ? now_seconds() : f->since;
    if (f->in.ended && f->in.shut && f->out.ended && f->out.shut) {
        flow_close(f, false);
        return;
    }
    watch_side(f, &f->in, &f->out);
    watch_side(f, &f->out, &f->in);
}

void flow_accept(size_t number)
{
    struct sockaddr_storage name;
    struct end from;
    for (;;) {
        socklen_t size = sizeof name;
        struct listener *l = &listeners[number];
        int fd = l->users ? accept4(l->fd, (struct sockaddr *)&name, &size, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
        if (fd < 0)
            return;
        end_of(&name, &from);
        struct flow *f = flow_of(&from, &l->at);
        if (!f || f->state != WAITING) {
            struct side stranger = {.fd = fd};
            side_close(&stranger, true);
            continue;
        }
        steady(fd);
        f->state = OPEN;
        f->since = now_seconds();
        f->in.fd = fd;
        f->in.watched = f->out.watched = EPOLLIN;
        way_out.opened++;
        if (watch(EPOLL_CTL_ADD, fd, EPOLLIN, WATCH_IN, (size_t)(f - flows)) < 0 ||
            watch(EPOLL_CTL_ADD, f->out.fd, EPOLLIN, WATCH_OUT, (size_t)(f - flows)) < 0)
            flow_close(f, true);
    }
}
