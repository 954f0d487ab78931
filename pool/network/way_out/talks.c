/* Datagrams: a socket outside for each pair of ends, until it is quiet for a minute. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "way_out.h"

static struct talk {
    struct end from, to;
    int fd; /* 0: none */
    uint64_t last;
} talks[TALKS_MOST];
static size_t open_talks;

static void talk_close(struct talk *t)
{
    if (t->fd) {
        close(t->fd);
        open_talks--;
    }
    t->fd = 0;
}

static int talk_open(struct talk *t, const struct packet *p, const struct end *real)
{
    struct sockaddr_storage name;
    socklen_t size = socket_name(real, &name);
    int fd = socket(name.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&name, size) < 0 ||
        watch(EPOLL_CTL_ADD, fd, EPOLLIN, WATCH_TALK, (size_t)(t - talks)) < 0) {
        close(fd);
        return -1;
    }
    *t = (struct talk){p->from, p->to, fd, 0};
    open_talks++;
    return 0;
}

static struct talk *talk_of(const struct packet *p)
{
    struct talk *oldest = talks;
    for (struct talk *t = talks; t < talks + TALKS_MOST; t++) {
        if (t->fd && memcmp(&t->from, &p->from, sizeof t->from) == 0 && memcmp(&t->to, &p->to, sizeof t->to) == 0)
            return t;
        if (oldest->fd && (!t->fd || t->last < oldest->last))
            oldest = t;
    }
    return oldest;
}

void talk_send(const struct packet *p)
{
    static uint8_t frame[FRAME_MOST];
    struct end real;
    if (!rules_allow(&p->to, &real)) {
        way_out.refused++;
        way_out.last_refused = p->to;
        to_job(frame, make_refusal(p, NOT_ALLOWED, frame));
        return;
    }
    struct talk *t = talk_of(p);
    bool is_new = !t->fd || memcmp(&t->from, &p->from, sizeof t->from) || memcmp(&t->to, &p->to, sizeof t->to);
    if (is_new && !may_begin())
        return;
    if (is_new)
        talk_close(t);
    if (is_new && talk_open(t, p, &real) < 0) {
        way_out.failed++;
        to_job(frame, make_refusal(p, NO_ROUTE, frame));
        return;
    }
    t->last = now_seconds();
    size_t each = p->segment ? p->segment : p->body_size, at = 0;
    do {
        size_t size = p->body_size - at < each ? p->body_size - at : each;
        ssize_t n = send(t->fd, p->body + at, size, MSG_NOSIGNAL); /* one that does not fit is lost, as on a wire */
        way_out.datagrams += n >= 0;
        at += size;
    } while (at < p->body_size);
}

void talk_receive(size_t number)
{
    static uint8_t frame[FRAME_MOST];
    struct talk *t = &talks[number];
    size_t head = DATAGRAM_HEAD(is_four(t->to.address));
    for (int left = 32; t->fd && left > 0; left--) {
        ssize_t n = recv(t->fd, frame + head, FRAME_MOST - head, MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            continue; /* what came back of an earlier one; a pending error is told once */
        if (n < 0)
            return;
        if ((size_t)n > 65000 - 48) /* more than the device of the job takes */
            continue;
        t->last = now_seconds();
        to_job(frame, make_datagram(&t->to, &t->from, frame, (size_t)n));
    }
}

void talks_old(uint64_t now)
{
    for (struct talk *t = talks; t < talks + TALKS_MOST; t++)
        if (t->fd && t->last + WAIT_SECONDS < now)
            talk_close(t);
}

size_t talks_open(void) { return open_talks; }
