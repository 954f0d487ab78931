/* The loop, and the node's orders; way_out.h has the whole picture. `way_out --try` says whether it can work here. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "way_out.h"

struct way_out way_out;

#define TICK 10000 /* milliseconds between looks for what has become old */
#define ROUND 64
#define OTHER_FILES 64 /* each connection has up to three: a listening socket, and two of its own */
#define FLOWS_LEAST 16

/* The orders: one byte, then the rules. */
enum { SET_RULES = 'r', REPORT = '?', FINISH = 'e' };
struct report {
    uint64_t open, opened, refused, failed, full, datagrams;
    struct end last_refused;
};

int drop_rights(void)
{
    struct rlimit none = {0, 0}, files;
    if (geteuid() == 0 &&
        (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
        return -1;
    setrlimit(RLIMIT_CORE, &none);
    way_out.flows_most = FLOWS_MOST;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
        rlim_t other = TALKS_MOST + OTHER_FILES, each = files.rlim_max > other ? (files.rlim_max - other) / 3 : 0;
        if (each < FLOWS_MOST)
            way_out.flows_most = each > FLOWS_LEAST ? each : FLOWS_LEAST;
    }
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

uint64_t now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec;
}

int watch(int operation, int fd, uint32_t events, enum watched kind, size_t number)
{
    struct epoll_event e = {.events = events, .data.u64 = (uint64_t)kind << 32 | number};
    return epoll_ctl(way_out.epoll, operation, fd, &e);
}

bool may_begin(void)
{
    static uint64_t room = BEGIN_AT_ONCE * 1000, looked; /* thousandths of one, milliseconds */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
    room += (now - looked) * BEGIN_A_SECOND;
    room = room < BEGIN_AT_ONCE * 1000 ? room : BEGIN_AT_ONCE * 1000;
    looked = now;
    if (way_out.ending || room < 1000) {
        way_out.full++;
        return false;
    }
    room -= 1000;
    return true;
}

void to_job(const uint8_t *frame, size_t size) { (void)send(DECIDER, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL); }

/* False: the node is gone. */
static bool obey(void)
{
    static uint8_t order[1 + RULES_MOST * sizeof(struct rule)];
    ssize_t n = recv(NODE, order, sizeof order, MSG_DONTWAIT);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    if (order[0] == SET_RULES)
        return rules_set(order + 1, (size_t)n - 1);
    struct report r = {.open = flows_open() + talks_open(),
                       .opened = way_out.opened,
                       .refused = way_out.refused,
                       .failed = way_out.failed,
                       .full = way_out.full,
                       .datagrams = way_out.datagrams,
                       .last_refused = way_out.last_refused};
    way_out.ending |= order[0] == FINISH;
    if (order[0] == REPORT)
        (void)send(NODE, &r, sizeof r, MSG_DONTWAIT | MSG_NOSIGNAL);
    return true;
}

/* False: the relay is gone. */
static bool decide(void)
{
    static uint8_t frame[FRAME_MOST + 1];
    struct packet p;
    for (int left = ROUND; left > 0; left--) {
        ssize_t n = recv(DECIDER, frame, sizeof frame, MSG_DONTWAIT);
        if (n <= 0)
            return n < 0 && (errno == EAGAIN || errno == EINTR);
        if (!packet_read(frame, (size_t)n, &p))
            continue; /* of a kind that does not leave the network */
        if (packet_begins(&p))
            flow_first(&p, frame, (size_t)n);
        else if (p.protocol == IPPROTO_UDP)
            talk_send(&p);
    }
    return true;
}

static bool serve(const struct epoll_event *e)
{
    size_t number = (uint32_t)e->data.u64;
    switch ((enum watched)(e->data.u64 >> 32)) {
    case WATCH_NODE:
        return obey();
    case WATCH_DECIDER:
        return decide();
    case WATCH_LISTENER:
        flow_accept(number);
        break;
    case WATCH_IN:
    case WATCH_OUT:
        flow_event(number, e->data.u64 >> 32 == WATCH_OUT, e->events);
        break;
    case WATCH_TALK:
        talk_receive(number);
        break;
    }
    return true;
}

static int tell_node(void)
{
    int err = 0;
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {&err, sizeof err};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &way_out.wire, sizeof(int));
    return sendmsg(NODE, &m, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static int fail(const char *text)
{
    fprintf(stderr, "way_out: %s: %s\n", text, strerror(errno));
    return 1;
}

/* False: the node or the relay is gone. */
static bool round_of_events(int wait)
{
    struct epoll_event events[ROUND];
    int count = epoll_wait(way_out.epoll, events, ROUND, wait);
    if (count < 0 && errno != EINTR)
        return false;
    for (int i = 0; i < count; i++)
        if (!serve(&events[i]))
            return false;
    return true;
}

static void run(void)
{
    uint64_t looked = now_seconds();
    int wait = -1;
    while (round_of_events(wait)) {
        uint64_t now = now_seconds();
        if (way_out.ending)
            flows_finish(now);
        flows_end();
        if (way_out.ending && !flows_open())
            break;
        wait = way_out.ending ? 1000 * QUIET_SECONDS : flows_open() || talks_open() ? TICK : -1;
        if (now >= looked + TICK / 1000) {
            flows_old(now);
            talks_old(now);
            looked = now;
        }
    }
}

int main(int argc, char **argv)
{
    struct rlimit none = {0, 0};
    bool only_try = argc == 2 && strcmp(argv[1], "--try") == 0;
    if (argc != 2 || (!only_try && dup2(atoi(argv[1]), DECIDER) < 0))
        return fail("the relay's socket");
    signal(SIGPIPE, SIG_IGN);
    if ((way_out.inside = inside_start(&way_out.wire)) < 0)
        return fail("no network namespace with devices of its own");
    if (drop_rights() < 0)
        return fail("cannot give up its rights");
    setrlimit(RLIMIT_NPROC, &none);
    if (only_try) {
        struct end at = {.address = {[10] = 0xff, 0xff, 192, 0, 2, 1}, .port = 80};
        return inside_listen(way_out.inside, &at) < 0 ? fail("no socket for an address of another machine") : 0;
    }
    prctl(PR_SET_DUMPABLE, 0);
    if ((way_out.epoll = epoll_create1(EPOLL_CLOEXEC)) < 0 || watch(EPOLL_CTL_ADD, NODE, EPOLLIN, WATCH_NODE, 0) < 0 ||
        watch(EPOLL_CTL_ADD, DECIDER, EPOLLIN, WATCH_DECIDER, 0) < 0 || tell_node() < 0)
        return fail("the node and the relay");
    run();
    flows_reset(); /* before the relay sees that this process has ended, so that it brings the job these resets */
    return 0;
}
