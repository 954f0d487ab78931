/* The relay's loop and the orders of its node; relay.h has the whole picture. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "relay.h"

#define NODE 0
#define LAST_WAIT 1000 /* milliseconds for the end of a way out, when the node has ended */
#define FDS 3 /* descriptors that come with an order at most */

/* Root gives its rights up for nobody's; others have none to give. */
static int drop_rights(void)
{
    struct rlimit none = {0, 0};
    if (geteuid() == 0 &&
        (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0))
        return -1;
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_NPROC, &none);
    return prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -1 : 0;
}

/* Descriptors that it takes over become -1. */
static void add_port(const struct order *o, int fds[FDS])
{
    static const enum kind kinds[] = {
        [ADD_WIRE] = WIRE, [ADD_LINK] = LINK, [ADD_OUT] = OUT, [ADD_DECIDER] = DECIDER, [ADD_SEALED] = LINK};
    uint32_t keys = o->verb == ADD_SEALED ? KEY_NUMBERS : 0, first = keys + (kinds[o->verb] == LINK);
    if (o->count < first || (keys && fds[1] < 0))
        return;
    int at = port_add(kinds[o->verb], fds[0]);
    if (at < 0)
        return;
    fds[0] = -1;
    if (keys && !port_seal(&network.ports[at], (const uint8_t *)o->numbers, fds[1])) {
        port_close(&network.ports[at]);
        return;
    }
    if (keys)
        fds[1] = -1;
    if (o->verb == ADD_OUT || o->verb == ADD_DECIDER) {
        ports_way_out(at);
        return;
    }
    network.ports[at].takes_large = kinds[o->verb] == LINK && o->numbers[keys];
    for (uint32_t i = first; i < o->count; i++) {
        uint32_t part = o->numbers[i];
        if (part >= network.parts)
            continue;
        if (network.route[part] && network.route[part] != at + 1 &&
            network.ports[network.route[part] - 1].kind == network.ports[at].kind)
            port_close(&network.ports[network.route[part] - 1]); /* an earlier wire or link of the part */
        network.route[part] = (uint16_t)(at + 1);
        network.ports[at].part = part;
    }
}

static void report(void)
{
    static struct {
        struct told head;
        struct pair pairs[PAIRS_MOST];
    } answer;
    answer.head = (struct told){.forged = network.forged,
                                .malformed = network.malformed,
                                .outside = network.outside,
                                .unreachable = network.unreachable,
                                .pairs = network.pair_count};
    for (size_t i = 0; i < network.count; i++)
        answer.head.dropped += network.ports[i].dropped;
    memcpy(answer.pairs, network.pairs, network.pair_count * sizeof *network.pairs);
    send(NODE, &answer, sizeof answer.head + network.pair_count * sizeof *network.pairs, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool adds(uint32_t verb)
{
    return verb == ADD_WIRE || verb == ADD_LINK || verb == ADD_OUT || verb == ADD_DECIDER || verb == ADD_SEALED;
}

/* One order. False: there is none; `gone`: nor will there be. */
static bool obey(bool *gone)
{
    static union {
        struct order order;
        char room[sizeof(struct order) + PARTS_MOST * sizeof(uint32_t)];
    } message;
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(FDS * sizeof(int))];
    } control;
    struct iovec part = {&message, sizeof message};
    /* CMSG_SPACE has room for one more: of descriptors that do not fit, the kernel hands over none */
    struct msghdr m = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_LEN(FDS * sizeof(int))};
    ssize_t n = recvmsg(NODE, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n <= 0) {
        *gone = n == 0 || (errno != EAGAIN && errno != EINTR);
        return false;
    }
    const struct order *o = &message.order;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    int fds[FDS] = {-1, -1, -1};
    if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len <= CMSG_LEN(sizeof fds))
        memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
    bool whole = !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && (size_t)n >= sizeof *o && o->count <= PARTS_MOST &&
                 (size_t)n == sizeof *o + o->count * sizeof(uint32_t);
    if (whole && o->verb == BEGIN && o->count == 1)
        network_begin(o->numbers[0]);
    else if (whole && o->verb == HOLD && o->count == 1)
        network.held = o->numbers[0];
    else if (whole && o->verb == REPORT)
        report();
    else if (whole && fds[0] >= 0 && adds(o->verb))
        add_port(o, fds);
    else if (whole && fds[2] >= 0 && o->verb == ADD_SPLICE && splice_add(fds[0], fds[1], fds[2]))
        fds[0] = fds[1] = fds[2] = -1;
    for (int i = 0; i < FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (whole && o->verb == ADD_SEALED)
        explicit_bzero(&message, (size_t)n); /* keys live in their ciphers alone, which clear them */
    return true;
}

/* The events that a port is asked for. While packets are held only those that have been taken in go on, to links. */
static short events_of(const struct port *p)
{
    if (p->tied[0])
        return splice_events(p);
    return (short)((link_pending(p) ? POLLOUT : 0) | (network.held ? 0 : POLLIN));
}

static void serve(size_t i, short events)
{
    if (network.ports[i].kind == SPLICE || network.ports[i].kind == LEASH) {
        splice_serve(&network.ports[i], events);
        return;
    }
    if (network.held)
        return;
    if (network.ports[i].kind == LINK && events & (POLLIN | POLLHUP | POLLERR))
        link_read(&network.ports[i]);
    ssize_t size;
    for (ssize_t left = BATCH; network.ports[i].kind != LINK && network.ports[i].kind != CLOSED && events && left > 0;
         left -= size + FRAME_COST)
        if (!(size = wire_read(&network.ports[i])))
            break;
}

static void flush_links(void)
{
    for (size_t i = 0; i < network.count; i++)
        if (link_pending(&network.ports[i]))
            link_write(&network.ports[i]);
}

/* The node is gone: what is left to do. The way out resets its connections before it ends, and the jobs, which run on,
 * are to see that. */
static bool has_work_left(void)
{
    if (network.decider)
        return true;
    while (network.out && wire_read(&network.ports[network.out - 1])) {
    }
    return false;
}

/* With an argument it only says its version, and whether it can seal links itself. */
int main(int argc, char **argv)
{
    (void)argv;
    struct pollfd *fds = NULL;
    size_t room = 0;
    bool gone = false;
    if (argc > 1)
        return printf("%d\n", VERSION) > 0 && fflush(stdout) == 0 && seal_ready() ? 0 : 2;
    if (drop_rights() < 0) {
        fprintf(stderr, "relay: cannot give up its rights: %s\n", strerror(errno));
        return 1;
    }
    for (;;) {
        if (room < network.count + 1) {
            room = network.count + 16;
            if (!(fds = realloc(fds, room * sizeof *fds)))
                return 1;
        }
        size_t count = network.count;
        fds[count] = (struct pollfd){.fd = gone ? -1 : NODE, .events = POLLIN};
        for (size_t i = 0; i < count; i++) {
            const struct port *p = &network.ports[i];
            short events = p->kind == CLOSED ? 0 : events_of(p);
            bool asked = events || (p->kind != CLOSED && p->tied[0]);
            fds[i] = (struct pollfd){.fd = asked ? p->fd : -1, .events = events};
        }
        int ready = poll(fds, count + 1, gone ? LAST_WAIT : -1);
        if (ready < 0 && errno != EINTR)
            return 1;
        while (fds[count].revents && obey(&gone)) {
        }
        if (gone)
            network.held = false; /* nobody makes that checkpoint any more */
        for (size_t i = 0; i < count; i++)
            if (fds[i].revents)
                serve(i, fds[i].revents);
        flush_links();
        if (gone && (!ready || !has_work_left()))
            return 0;
    }
}
