/* The wires of a network's parts here, and the links to its other machines: frames in and out. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "relay.h"

struct network network;

/* On a link, 4 bytes of length stand before each frame, in the order of the machine. */
#define LENGTH 4
/* A link's bytes that are not carried yet: a frame that has not arrived whole, and behind it what comes at once. */
#define IN_MOST (LENGTH + FRAME_MOST + RECORD)

/* A link that the relay seals itself. */
struct sealed_link {
    struct seal *seal;
    int leash; /* the node's other end hears of the link's end */
    uint8_t *out, *in; /* a record that is being sent, and one that has not arrived whole */
    size_t out_start, out_end, in_size;
};

int network_begin(uint32_t parts)
{
    if (network.parts || !parts || parts > PARTS_MOST) {
        errno = EINVAL;
        return -1;
    }
    network.route = calloc(parts, sizeof *network.route);
    network.parts = network.route ? parts : 0;
    return network.route ? 0 : -1;
}

int port_add(enum kind kind, int fd)
{
    size_t at = 0;
    while (at < network.count && network.ports[at].kind != CLOSED)
        at++;
    if (at == network.count) {
        struct port *more = at < UINT16_MAX - 1 ? realloc(network.ports, (at + 1) * sizeof *more) : NULL;
        if (!more)
            return -1;
        network.ports = more;
        network.count++;
    }
    struct port *p = &network.ports[at];
    *p = (struct port){.kind = kind, .fd = fd};
    if (kind == LINK && (!(p->out = malloc(QUEUE)) || !(p->in = malloc(IN_MOST)))) {
        free(p->out);
        p->kind = CLOSED;
        return -1;
    }
    return (int)at;
}

static void free_sealed(struct sealed_link *l)
{
    if (!l)
        return;
    seal_free(l->seal);
    free(l->out);
    free(l->in);
    free(l);
}

bool port_seal(struct port *p, const uint8_t *keys, int leash)
{
    struct sealed_link *l = calloc(1, sizeof *l);
    if (!l || !(l->seal = seal_new(keys)) || !(l->out = malloc(RECORD_MOST)) || !(l->in = malloc(RECORD_MOST))) {
        free_sealed(l);
        return false;
    }
    l->leash = leash;
    p->sealed = l;
    return true;
}

void port_close(struct port *p)
{
    uint16_t at = (uint16_t)(p - network.ports + 1);
    for (uint32_t i = 0; i < network.parts; i++)
        if (network.route[i] == at)
            network.route[i] = 0;
    bool gone = at == network.out;
    network.out = gone ? 0 : network.out;
    network.decider = at == network.decider ? 0 : network.decider;
    close(p->fd);
    if (p->sealed)
        close(p->sealed->leash);
    free_sealed(p->sealed);
    free(p->out);
    free(p->in);
    p->kind = CLOSED;
    p->out = p->in = NULL;
    p->sealed = NULL;
    for (int i = 0; i < 2; i++)
        if (p->tied[i] && network.ports[p->tied[i] - 1].kind != CLOSED)
            port_close(&network.ports[p->tied[i] - 1]);
    if (gone && network.decider) /* it is of no use alone */
        port_close(&network.ports[network.decider - 1]);
}

void ports_way_out(int at)
{
    uint16_t *number = network.ports[at].kind == OUT ? &network.out : &network.decider;
    uint16_t before = *number;
    *number = (uint16_t)(at + 1);
    if (before)
        port_close(&network.ports[before - 1]);
}

static struct port *port_of(uint32_t part)
{
    uint16_t at = network.route[part];
    return at ? &network.ports[at - 1] : NULL;
}

static void count(uint32_t from, uint32_t to, size_t size)
{
    static size_t last;
    if (last >= network.pair_count || network.pairs[last].from != from || network.pairs[last].to != to)
        for (last = 0; last < network.pair_count; last++)
            if (network.pairs[last].from == from && network.pairs[last].to == to)
                break;
    if (last == PAIRS_MOST)
        return;
    if (last == network.pair_count)
        network.pairs[network.pair_count++] = (struct pair){.from = from, .to = to};
    network.pairs[last].frames++;
    network.pairs[last].bytes += size - VNET - ETHERNET;
}

/* A frame in two parts: what stands before its bytes, and these. */
static void queue(struct port *p, const uint8_t *head, size_t head_size, const uint8_t *body, size_t body_size)
{
    size_t size = head_size + body_size;
    uint32_t length = (uint32_t)size;
    if (p->out_end + LENGTH + size > QUEUE && p->out_start) {
        memmove(p->out, p->out + p->out_start, p->out_end - p->out_start);
        p->out_end -= p->out_start;
        p->out_start = 0;
    }
    if (p->out_end + LENGTH + size > QUEUE) {
        p->dropped++;
        return;
    }
    memcpy(p->out + p->out_end, &length, LENGTH);
    memcpy(p->out + p->out_end + LENGTH, head, head_size);
    memcpy(p->out + p->out_end + LENGTH + head_size, body, body_size);
    p->out_end += LENGTH + size;
}

static void queue_in_pieces(struct port *p, const uint8_t *frame, size_t size)
{
    struct pieces s;
    if (!pieces_begin(&s, frame, size)) {
        network.malformed++;
        return;
    }
    while (pieces_next(&s))
        queue(p, s.head, s.head_size, s.body, s.size);
}

static void put(struct port *p, const uint8_t *frame, size_t size)
{
    if (p->kind == LINK && !p->takes_large && is_large(frame, size))
        queue_in_pieces(p, frame, size);
    else if (p->kind == LINK)
        queue(p, frame, VNET, frame + VNET, size - VNET);
    else if (send(p->fd, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        p->dropped++;
}

static void put_to_all(struct port *from, const uint8_t *frame, size_t size)
{
    for (size_t i = 0; i < network.count; i++) {
        struct port *p = &network.ports[i];
        if (p != from && (p->kind == WIRE || (p->kind == LINK && from->kind == WIRE)))
            put(p, frame, size);
    }
}

/* A packet that leaves the network. False: there is no way out. When the decider has ended, nothing new begins, and the
 * kernel that its connections ended at resets them: its socket here keeps that alive until there is another one. */
static bool leave(uint32_t part, uint8_t *frame, size_t size)
{
    uint16_t at = needs_decision(frame, size) ? network.decider : network.out;
    if (!at)
        return false;
    set_ethernet(frame);
    count(part, OUTSIDE, size);
    put(&network.ports[at - 1], frame, size);
    return true;
}

/* A packet from outside goes to a wire. */
static void enter(uint8_t *frame, size_t size)
{
    struct judged j = judge_outside(frame, size, network.parts);
    struct port *to = j.verdict == TO_PART ? port_of(j.to) : NULL;
    if (!to || to->kind != WIRE) {
        network.unreachable++;
        return;
    }
    set_ethernet(frame);
    count(OUTSIDE, j.to, size);
    put(to, frame, size);
}

/* A frame goes from a wire to any other port, and from a link to wires only. */
static void carry(struct port *from, uint8_t *frame, size_t size)
{
    struct judged j = judge(frame, size, network.parts);
    if (j.verdict == DROP_MALFORMED) {
        network.malformed++;
        return;
    }
    if (j.verdict == DROP_FORGED || port_of(j.from) != from) {
        network.forged++;
        return;
    }
    if (j.verdict == DROP_OUTSIDE) {
        network.outside += from->kind != WIRE || !leave(j.from, frame, size);
        return;
    }
    set_ethernet(frame);
    if (from->kind == WIRE)
        count(j.from, j.verdict == TO_ALL ? PARTS_MOST : j.to, size);
    if (j.verdict == TO_ALL) {
        put_to_all(from, frame, size);
        return;
    }
    struct port *to = port_of(j.to);
    if (!to || to == from || (from->kind == LINK && to->kind == LINK)) {
        network.unreachable++;
        return;
    }
    put(to, frame, size);
}

ssize_t wire_read(struct port *p)
{
    static uint8_t frame[FRAME_MOST + 1];
    ssize_t n = recv(p->fd, frame, sizeof frame, MSG_DONTWAIT);
    if ((n < 0 && errno != EAGAIN && errno != EINTR && errno != ENETDOWN) || (n == 0 && p->kind == DECIDER))
        port_close(p);
    if (n <= 0)
        return 0;
    if (p->kind == WIRE)
        carry(p, frame, (size_t)n);
    else
        enter(frame, (size_t)n);
    return n;
}

/* Carries the whole frames among the bytes that have come over a link. */
static void carry_frames(struct port *p)
{
    size_t at = 0;
    uint32_t length;
    while (p->in_size - at >= LENGTH) {
        memcpy(&length, p->in + at, LENGTH);
        if (length < FRAME_LEAST || length > FRAME_MOST) {
            port_close(p); /* the other machine sends something else */
            return;
        }
        if (p->in_size - at - LENGTH < length)
            break;
        uint8_t *frame = p->in + at + LENGTH;
        if (offload_fits(frame, length))
            carry(p, frame, length);
        else
            network.malformed++;
        at += LENGTH + length;
    }
    if (at) /* else a frame that comes in many records would be moved with each of them */
        memmove(p->in, p->in + at, p->in_size - at);
    p->in_size -= at;
}

/* Receives into a buffer. False: nothing came; the port may be closed then. */
static bool receive(struct port *p, uint8_t *into, size_t most, size_t *size)
{
    ssize_t n = recv(p->fd, into, most, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        port_close(p);
    if (n <= 0)
        return false;
    *size += (size_t)n;
    return true;
}

/* Opens the records that have arrived whole. A record that is not the next of the other machine's ends the link. */
static void sealed_read(struct port *p)
{
    struct sealed_link *l = p->sealed;
    if (!receive(p, l->in + l->in_size, RECORD_MOST - l->in_size, &l->in_size))
        return;
    size_t at = 0;
    while (l->in_size - at >= SEAL_LENGTH) {
        const uint8_t *record = l->in + at;
        uint32_t length =
            (uint32_t)record[0] << 24 | (uint32_t)record[1] << 16 | (uint32_t)record[2] << 8 | (uint32_t)record[3];
        if (length <= SEAL_TAG || length > RECORD + SEAL_TAG) {
            port_close(p);
            return;
        }
        if (l->in_size - at - SEAL_LENGTH < length)
            break;
        size_t size = length - SEAL_TAG;
        if (!open_record(l->seal, p->in + p->in_size, record, size)) {
            port_close(p);
            return;
        }
        p->in_size += size;
        carry_frames(p);
        if (p->kind == CLOSED)
            return;
        at += SEAL_LENGTH + length;
    }
    if (at)
        memmove(l->in, l->in + at, l->in_size - at);
    l->in_size -= at;
}

void link_read(struct port *p)
{
    if (p->sealed)
        sealed_read(p);
    else if (receive(p, p->in + p->in_size, IN_MOST - p->in_size, &p->in_size))
        carry_frames(p);
}

bool link_pending(const struct port *p)
{
    return p->kind == LINK && (p->out_end > p->out_start || (p->sealed && p->sealed->out_end > p->sealed->out_start));
}

/* Sends what waits in a buffer. False: not all of it has gone, or the port is closed. */
static bool send_waiting(struct port *p, const uint8_t *out, size_t *start, size_t *end)
{
    ssize_t n = send(p->fd, out + *start, *end - *start, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
            port_close(p);
        return false;
    }
    *start += (size_t)n;
    if (*start < *end)
        return false;
    *start = *end = 0;
    return true;
}

/* Seals and sends one record after the other, until the connection takes no more. */
static void sealed_write(struct port *p)
{
    struct sealed_link *l = p->sealed;
    for (;;) {
        if (l->out_end > l->out_start && !send_waiting(p, l->out, &l->out_start, &l->out_end))
            return;
        size_t size = p->out_end - p->out_start < RECORD ? p->out_end - p->out_start : RECORD;
        if (!size)
            break;
        if (!seal_record(l->seal, l->out, p->out + p->out_start, size)) {
            port_close(p);
            return;
        }
        l->out_end = SEAL_LENGTH + size + SEAL_TAG;
        p->out_start += size;
    }
    p->out_start = p->out_end = 0;
}

void link_write(struct port *p)
{
    if (p->sealed)
        sealed_write(p);
    else
        send_waiting(p, p->out, &p->out_start, &p->out_end);
}
