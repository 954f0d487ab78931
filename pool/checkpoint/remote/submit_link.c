/* The stream to the submit side: requests in the order of their numbers, answers in any order.
 *
 * A request is kept until it is answered. When the stream is lost everything waits. On the next one the handles are
 * opened again first; then each unanswered request is sent again under its old number, since the submit side remembers
 * its answers. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote/parts.h"

#define TABLE 4096
#define ROOM (64u << 10)
#define TURNS 32 /* receptions before others get their turn */
struct held_answer { /* until the kernel was told of a change that the submit side has reported before it */
    struct held_answer *next;
    uint8_t *frame;
    size_t size;
};

#define HELLO_VERSION 2 /* the same as frames.VERSION in pool/remoteio */

struct list {
    struct request *first, *last, *unsent;
};

static struct {
    int fd;
    bool ready; /* the submit side knows us and our handles */
    uint8_t *in, *large; /* large: an answer that is received into its own buffer */
    size_t got, large_got, large_size, sent; /* sent: bytes of the request at `unsent` */
    struct list requests, urgent;
    struct request *table[TABLE];
    uint64_t last, gathered, way;
    size_t unanswered;
    struct held_answer *held;
} line = {.fd = -1};

int link_fd(void) { return line.fd; }

bool link_ready(void) { return line.ready; }

size_t link_unanswered(void) { return line.unanswered; }

uint64_t link_gathered(void) { return line.gathered; }

uint64_t link_last(void) { return line.last; }

void link_skip(uint64_t count) { line.last += count; }

uint64_t link_way(void) { return line.way; }

struct request *request_new(uint16_t op, struct node *node, void (*done)(struct request *, int, struct reader *))
{
    struct request *r = need(sizeof *r);
    memset(r, 0, sizeof *r);
    r->op = op;
    r->done = done;
    r->capacity = 256;
    r->room = r->frame = need(r->capacity);
    r->size = FRAME_HEAD;
    if (node) {
        r->node = node_hold(node);
        r->tree = node->tree;
    }
    return r;
}

void request_free(struct request *r)
{
    if (r->node)
        node_drop(r->node);
    if (r->other)
        node_drop(r->other);
    free(r->name);
    free(r->name2);
    free(r->room);
    free(r);
}

static uint8_t *put_room(struct request *r, size_t size)
{
    if (r->size + size > r->capacity) {
        size_t capacity = (r->size + size) * 2;
        uint8_t *room = need(capacity);
        memcpy(room, r->frame, r->size);
        free(r->room);
        r->room = r->frame = room;
        r->capacity = capacity;
    }
    r->size += size;
    return r->frame + r->size - size;
}

void put_number(struct request *r, uint64_t value, size_t bytes) { frame_number(put_room(r, bytes), value, bytes); }

void put_bytes(struct request *r, const void *data, size_t size)
{
    put_number(r, size, 4);
    memcpy(put_room(r, size), data, size);
}

/* Writes the path of a file. A file without a name has an empty path, which the submit side does not find, nor one that
 * is too long. */
void put_path(struct request *r, const struct node *node, const char *name)
{
    char path[PATH_ROOM];
    if (!node_path(node, name, path, sizeof path))
        *path = 0;
    put_bytes(r, path, strlen(path));
}

static void append_request(struct list *l, struct request *r)
{
    r->previous = l->last;
    r->next = NULL;
    *(l->last ? &l->last->next : &l->first) = r;
    l->last = r;
    if (!l->unsent)
        l->unsent = r;
}

static void take_out(struct list *l, struct request *r)
{
    *(r->previous ? &r->previous->next : &l->first) = r->next;
    *(r->next ? &r->next->previous : &l->last) = r->previous;
    if (l->unsent == r)
        l->unsent = r->next;
    struct request **at = &line.table[r->unique % TABLE];
    while (*at && *at != r)
        at = &(*at)->chain;
    if (*at)
        *at = r->chain;
}

void request_send(struct request *r)
{
    if (!r->urgent)
        removals_send();
    r->unique = ++line.last;
    r->sent = monotonic_ns();
    frame_number(r->frame, r->size, 4);
    frame_number(r->frame + 4, r->op, 2);
    frame_number(r->frame + 6, 0, 2);
    frame_number(r->frame + 8, r->unique, 8);
    r->chain = line.table[r->unique % TABLE];
    line.table[r->unique % TABLE] = r;
    append_request(r->urgent ? &line.urgent : &line.requests, r);
    if (!r->urgent)
        line.unanswered++;
    if (r->op == R_WRITE)
        line.gathered += r->size;
}

struct request *link_find(uint64_t asked, const struct tree *tree)
{
    struct request *r = line.requests.first;
    while (r && (r->asked != asked || r->tree != tree))
        r = r->next;
    return r;
}

/* Takes the buffer of the current large answer; NULL if it is not large. */
uint8_t *link_take(void)
{
    uint8_t *taken = line.large;
    line.large = NULL;
    return taken;
}

/* Their requests are sent again. */
static void drop_held(void)
{
    for (struct held_answer *next; line.held; line.held = next) {
        next = line.held->next;
        free(line.held->frame);
        free(line.held);
    }
}

static void link_lost(void)
{
    if (line.fd >= 0)
        close(line.fd);
    line.fd = -1;
    line.ready = false;
    line.got = line.sent = 0;
    free(link_take());
    drop_held();
    leases_lost();
    while (line.urgent.first) {
        struct request *r = line.urgent.first;
        take_out(&line.urgent, r);
        request_free(r);
    }
    line.requests.unsent = line.requests.first;
}

static void on_welcome(struct request *r, int error, struct reader *a)
{
    (void)r;
    bool same = get_number(a, 4) == HELLO_VERSION;
    get_number(a, 8);
    uint32_t trees = (uint32_t)get_number(a, 4), size;
    for (uint32_t i = 0; i < trees && !a->bad; i++)
        get_string(a, &size);
    for (uint32_t i = 0; i < trees && !a->bad; i++)
        get_number(a, 1);
    uint32_t uid = (uint32_t)get_number(a, 4), gid = (uint32_t)get_number(a, 4);
    if (error || a->bad || !same) {
        link_lost();
        return;
    }
    serving.submit_uid = uid;
    serving.submit_gid = gid;
    handles_reopen();
}

void link_open(int fd)
{
    link_lost();
    line.fd = fd;
    int room = 4 << 20; /* more than the default, if allowed */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    struct request *r = request_new(R_HELLO, NULL, on_welcome);
    r->urgent = true;
    put_number(r, HELLO_VERSION, 4);
    put_bytes(r, serving.job, strlen(serving.job));
    put_bytes(r, "", 0);
    request_send(r);
}

/* The job learns from an answer that others have gone on, so the kernel is told of their changes first. Telling it may
 * wait for a lookup in the same directory or for a listing of it. */
static bool must_be_held(const struct request *r)
{
    bool may_be_waited_for = (r->op == R_STAT || r->op == R_LIST) && r->node && r->node->expiring;
    return expiry_awaited() && !r->urgent && !may_be_waited_for;
}

static void hold_answer(const uint8_t *frame, size_t size)
{
    struct held_answer *a = need(sizeof *a), **end = &line.held;
    *a = (struct held_answer){.frame = memcpy(need(size), frame, size), .size = size};
    while (*end)
        end = &(*end)->next;
    *end = a;
}

static void on_answer(const uint8_t *frame, size_t size)
{
    struct reader a = {frame, frame + size, false};
    get_number(&a, 4);
    if (get_number(&a, 2) == R_NOTICE) {
        get_number(&a, 2);
        get_number(&a, 8);
        leases_told(&a);
        return;
    }
    int error = (int)get_number(&a, 2);
    uint64_t unique = get_number(&a, 8);
    struct request *r = line.table[unique % TABLE];
    while (r && r->unique != unique)
        r = r->chain;
    if (!r)
        return;
    if (must_be_held(r)) {
        hold_answer(frame, size);
        return;
    }
    take_out(r->urgent ? &line.urgent : &line.requests, r);
    if (!r->urgent)
        line.unanswered--;
    if (r->op == R_WRITE)
        line.gathered -= r->size;
    /* STAT is the quickest request. A longer time counts only by an eighth, so that one slow answer changes little. */
    if (r->op == R_STAT) {
        uint64_t took = monotonic_ns() - r->sent;
        line.way = !line.way || took < line.way ? took : line.way + (took - line.way) / 8;
    }
    r->done(r, error, &a);
    request_free(r);
    line.ready |= line.fd >= 0 && !line.urgent.first;
}

/* A function that takes the buffer of a large answer takes that of the held one. */
void link_release(void)
{
    struct held_answer *a = line.held;
    uint8_t *arriving = line.large;
    line.held = NULL;
    for (struct held_answer *next; a; a = next) {
        next = a->next;
        line.large = a->frame;
        on_answer(a->frame, a->size);
        free(link_take());
        free(a);
    }
    line.large = arriving;
}

static bool take_frames(void)
{
    size_t at = 0;
    while (line.got - at >= FRAME_HEAD) {
        struct reader head = {line.in + at, line.in + line.got, false};
        size_t size = get_number(&head, 4);
        if (size < FRAME_HEAD || size > FRAME_MOST)
            return false;
        if (line.got - at < size) {
            if (size > ROOM / 2) { /* a large answer is received into its own buffer */
                line.large = need(size);
                line.large_size = size;
                line.large_got = line.got - at;
                memcpy(line.large, line.in + at, line.large_got);
                at = line.got;
            }
            break;
        }
        on_answer(line.in + at, size);
        if (line.fd < 0)
            return true;
        at += size;
    }
    memmove(line.in, line.in + at, line.got - at);
    line.got -= at;
    return true;
}

static bool take_large(void)
{
    if (line.large_got == line.large_size) {
        on_answer(line.large, line.large_size);
        free(link_take());
    }
    return true;
}

void link_readable(void)
{
    if (!line.in)
        line.in = need(ROOM);
    for (int turn = 0; turn < TURNS && line.fd >= 0; turn++) {
        bool large = line.large;
        uint8_t *to = large ? line.large + line.large_got : line.in + line.got;
        ssize_t n = recv(line.fd, to, large ? line.large_size - line.large_got : ROOM - line.got, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        *(large ? &line.large_got : &line.got) += n > 0 ? (size_t)n : 0;
        if (n <= 0 || !(large ? take_large() : take_frames()))
            link_lost();
    }
}

static struct list *next_out(void) { return line.urgent.unsent ? &line.urgent : line.ready ? &line.requests : NULL; }

bool link_wants_out(void)
{
    struct list *l = next_out();
    return line.fd >= 0 && l && l->unsent;
}

/* True: there may be more room. */
static bool send_some(struct list *l)
{
    struct iovec parts[32];
    size_t count = 0, skip = line.sent;
    for (struct request *r = l->unsent; r && count < 32; r = r->next, skip = 0)
        parts[count++] = (struct iovec){r->frame + skip, r->size - skip};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = count};
    ssize_t n = sendmsg(line.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            link_lost();
        return false;
    }
    for (size_t left = (size_t)n; left && l->unsent;) {
        size_t rest = l->unsent->size - line.sent;
        line.sent = left < rest ? line.sent + left : 0;
        if (left < rest)
            return true;
        left -= rest;
        l->unsent = l->unsent->next;
    }
    return true;
}

void link_flush(void)
{
    while (link_wants_out() && send_some(next_out())) {
    }
}
