/* Attacks links of the relay from the wire and from the other machine, for so many rounds or seconds.
 *
 *     relay_fuzz SEED ROUNDS SECONDS
 *
 * Each round has links with two parts' wires, and a peer who knows the keys. It sends frames in records, cut into
 * pieces of any size, and harms the stream at one place or nowhere: bits, bytes that are missing or doubled, records
 * replayed, swapped, sent back (reflected), or sealed with garbage in them. Frames that come out at a wire must be
 * those that went in before the harm, in order. A splice passes bytes beside it, which must be the same. Built with
 * sanitizers. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "relay.h"

#define FRAMES 64
#define STREAM (4 << 20)

static uint64_t state;
static uint64_t drawn(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}
static size_t below(size_t most) { return most ? drawn() % most : 0; }

#define must(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
            abort(); \
        } \
    } while (0)

static void pair(int kind, int fds[2], int room)
{
    must(socketpair(AF_UNIX, kind | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    for (int i = 0; i < 2; i++)
        setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
}

/* An UDP packet of part 1 to part 0, or of another part, with a number in it. */
static size_t make_frame(uint8_t *frame, uint32_t number, size_t body, unsigned from)
{
    uint8_t *ip = frame + VNET + ETHERNET;
    size_t size = 20 + body;
    memset(frame, 0, VNET + ETHERNET + size);
    frame[VNET + 12] = 8;
    ip[0] = 0x45, ip[2] = (uint8_t)(size >> 8), ip[3] = (uint8_t)size, ip[9] = 17;
    ip[12] = ip[16] = 10, ip[13] = ip[17] = 77, ip[15] = (uint8_t)(from + 1), ip[19] = 1;
    memcpy(ip + 20, &number, sizeof number);
    for (size_t i = sizeof number; i < body; i++)
        ip[20 + i] = (uint8_t)(number * 31 + i);
    return VNET + ETHERNET + size;
}

/* A large packet of part 0, of TCP; returns its size. Its headers may contradict each other. */
static size_t make_large(uint8_t *frame, unsigned to)
{
    uint16_t of[4] = {66, (uint16_t)(drawn() % 4 ? 1 + below(65483) : below(65536) * below(2)), 34, 16};
    uint8_t *ip = frame + VNET + ETHERNET;
    size_t size = VNET + ETHERNET + 65536 + below(FRAME_MOST - VNET - ETHERNET - 65536);
    make_frame(frame, 0, 4, 0);
    ip[2] = ip[3] = 0, ip[9] = 6, ip[19] = (uint8_t)(to + 1), ip[32] = (uint8_t)(drawn() % 8 ? 0x80 : drawn());
    if (drawn() % 16 == 0) /* options of IP */
        ip[0] = (uint8_t)(0x45 + below(11)), of[2] = (uint16_t)(14 + (ip[0] & 15) * 4);
    frame[0] = 1, frame[1] = 1;
    memcpy(frame + 2, of, sizeof of);
    return size;
}

static void turn(void)
{
    for (size_t i = 0; i < network.count; i++) {
        struct port *p = &network.ports[i];
        if (p->kind == CLOSED)
            continue;
        short wants = p->tied[0] ? splice_events(p) : POLLIN;
        struct pollfd one = {.fd = p->fd, .events = wants};
        if (poll(&one, 1, 0) <= 0)
            continue;
        if (p->tied[0])
            splice_serve(p, one.revents);
        else if (p->kind == LINK)
            link_read(p);
        else
            wire_read(p);
    }
    for (size_t i = 0; i < network.count; i++)
        if (link_pending(&network.ports[i]))
            link_write(&network.ports[i]);
}

static uint8_t stream[STREAM], record[RECORD_MOST], plain[RECORD + 4 + FRAME_MOST], frame[FRAME_MOST + 1];

enum harm { NOTHING, BITS, MISSING, DOUBLED, REPLAYED, SWAPPED, REFLECTED, GARBAGE, LENGTH, END, HARMS };

struct sent {
    size_t size;
    uint32_t frames; /* that are whole when the first byte of harm has come */
};

/* Writes a peer's stream; `sound`: how many frames may arrive. */
static struct sent make_stream(struct seal *peer, struct seal *mirror, enum harm harm)
{
    struct sent s = {0};
    uint32_t number = 0;
    size_t records = (harm == GARBAGE ? 10 : 1) + below(30), harmed = below(records) / (harm == GARBAGE ? 4 : 1),
           before = 0, before_size = 0, fill = 0;
    for (size_t at = 0; at < records; at++) {
        size_t frames = harm == GARBAGE ? 5 : below(6);
        for (size_t i = 0; i < frames && (number < FRAMES || harm == GARBAGE); i++) {
            size_t body = 4 + below(harm == GARBAGE ? 60000 : drawn() % 4 ? 1500 : 20000);
            uint32_t length = (uint32_t)make_frame(frame, number, body, 1);
            if (fill + 4 + length > RECORD)
                break;
            memcpy(plain + fill, &length, 4);
            memcpy(plain + fill + 4, frame, length);
            fill += 4 + length, number++;
        }
        /* A record may end within a frame. */
        size_t size = at + 1 < records && drawn() % 2 ? below(fill) : fill;
        if (!size)
            continue;
        bool here = at >= harmed && harm != NOTHING;
        if (here && harm == GARBAGE)
            for (size_t i = below(size), huge = drawn() % 2; i < size; i++)
                plain[i] = (uint8_t)(huge ? 1 : drawn()); /* or lengths of 16 MiB, wherever one begins */
        if (here && harm == REFLECTED)
            must(seal_record(mirror, record, plain, size));
        else
            must(seal_record(peer, record, plain, size));
        size_t whole = SEAL_LENGTH + size + SEAL_TAG;
        if (s.size + 2 * whole > STREAM)
            break;
        memcpy(stream + s.size, record, whole);
        memmove(plain, plain + size, fill - size);
        fill -= size;
        size_t begin = s.size;
        s.size += whole;
        if (here) {
            size_t where = begin + below(whole), count = 1 + below(40);
            if (count > s.size - where)
                count = s.size - where;
            if (harm == BITS)
                stream[where] ^= (uint8_t)(1 << below(8));
            else if (harm == MISSING) {
                memmove(stream + where, stream + where + count, s.size - where - count);
                s.size -= count;
            } else if (harm == DOUBLED) {
                memmove(stream + where + count, stream + where, s.size - where);
                s.size += count;
            } else if (harm == REPLAYED) {
                memcpy(stream + s.size, record, whole);
                s.size += whole;
            } else if (harm == SWAPPED && before_size) {
                memmove(stream + before + whole, stream + before, before_size);
                memcpy(stream + before, record, whole);
            } else if (harm == LENGTH)
                for (int i = 0; i < SEAL_LENGTH; i++)
                    stream[begin + (size_t)i] = (uint8_t)(drawn() % 3 ? 0 : drawn());
            else if (harm == END)
                s.size = where;
            if (harm != GARBAGE)
                break;
        }
        before = begin, before_size = whole;
    }
    s.frames = number;
    return s;
}

static uint32_t take(int wire, uint32_t next, enum harm harm)
{
    ssize_t n;
    static uint8_t want[FRAME_MOST];
    while ((n = recv(wire, frame, sizeof frame, 0)) > 0) {
        uint32_t number;
        must(n >= VNET + ETHERNET + 24);
        memcpy(&number, frame + VNET + ETHERNET + 20, 4);
        if (harm == GARBAGE)
            continue; /* the other machine may write what it likes into its frames */
        must(number == next);
        must(make_frame(want, number, (size_t)n - VNET - ETHERNET - 20, 1) == (size_t)n);
        must(memcmp(want + VNET + ETHERNET, frame + VNET + ETHERNET, (size_t)n - VNET - ETHERNET) == 0);
        next++;
    }
    return next;
}

static void attack(void)
{
    uint8_t keys[2 * SEAL_KEY], swapped[2 * SEAL_KEY];
    int wire[2], link[2], leash[2], splice[2][2], splice_leash[2];
    enum harm harm = (enum harm)below(HARMS);
    for (size_t i = 0; i < sizeof keys; i++)
        keys[i] = (uint8_t)drawn();
    memcpy(swapped, keys + SEAL_KEY, SEAL_KEY);
    memcpy(swapped + SEAL_KEY, keys, SEAL_KEY);
    struct seal *peer = seal_new(swapped), *mirror = seal_new(keys);
    must(peer && mirror);
    pair(SOCK_DGRAM, wire, 1 << 20), pair(SOCK_STREAM, link, 1 << 20), pair(SOCK_STREAM, leash, 1 << 12);
    int at = port_add(WIRE, wire[0]);
    network.route[0] = (uint16_t)(at + 1);
    at = port_add(LINK, link[0]);
    must(at >= 0 && port_seal(&network.ports[at], keys, leash[0]));
    network.ports[at].takes_large = drawn() % 2;
    network.route[1] = (uint16_t)(at + 1);
    for (int i = 0; i < 2; i++)
        pair(SOCK_STREAM, splice[i], 1 << 14);
    pair(SOCK_STREAM, splice_leash, 1 << 12);
    must(splice_add(splice[0][0], splice[1][0], splice_leash[0]));

    struct sent s = make_stream(peer, mirror, harm);
    uint32_t next = 0;
    size_t gone = 0, passed = 0, arrived = 0, most = 1 + below(drawn() % 2 ? 64 : 1 << 17);
    bool closed = false;
    for (int idle = 0; idle < 20; idle++) {
        size_t piece = 1 + below(most);
        if (piece > s.size - gone)
            piece = s.size - gone;
        ssize_t n = piece && !closed ? send(link[1], stream + gone, piece, MSG_NOSIGNAL) : 0;
        if (n > 0)
            gone += (size_t)n, idle = 0;
        closed |= n < 0 && errno != EAGAIN;
        if (!closed && gone == s.size && harm == END && shutdown(link[1], SHUT_WR) < 0)
            closed = true;
        if (passed < STREAM && (n = send(splice[0][1], stream + passed, below(STREAM - passed) % 50000, 0)) > 0)
            passed += (size_t)n;
        turn();
        next = take(wire[1], next, harm);
        if (drawn() % 4 == 0 && (n = recv(splice[1][1], plain, below(sizeof plain), 0)) > 0) {
            must(memcmp(plain, stream + arrived, (size_t)n) == 0);
            arrived += (size_t)n;
        }
        /* The part here answers, if the link still is there, and the peer never reads. */
        size_t answer = make_frame(frame, 7, 4 + below(drawn() % 4 ? 3000 : 60000), 0);
        frame[VNET + ETHERNET + 19] = 2;
        if (drawn() % 8 == 0)
            answer = make_large(frame, 1);
        send(wire[1], frame, answer, 0);
    }
    for (int idle = 0; idle < 3; idle++) {
        turn();
        ssize_t n = recv(splice[1][1], plain, sizeof plain, 0);
        if (n <= 0)
            continue;
        must(memcmp(plain, stream + arrived, (size_t)n) == 0);
        arrived += (size_t)n, idle = 0;
    }
    must(arrived == passed);
    must(next <= s.frames);
    must(harm != NOTHING || next == s.frames);
    /* All is let go again: what ends, ends alone. */
    close(splice_leash[1]);
    close(link[1]);
    close(wire[1]);
    for (int i = 0; i < 4; i++)
        turn();
    for (size_t i = 0; i < network.count; i++)
        if (network.ports[i].kind == WIRE)
            port_close(&network.ports[i]);
    for (size_t i = 0; i < network.count; i++)
        must(network.ports[i].kind == CLOSED);
    uint8_t byte;
    must(recv(leash[1], &byte, 1, 0) == 0);
    close(leash[1]);
    for (int i = 0; i < 2; i++)
        close(splice[i][1]);
    seal_free(peer);
    seal_free(mirror);
}

/* The same by IPv6. */
static void make_six(uint8_t *frame, size_t room, unsigned from)
{
    static const uint8_t range[5] = {0xfd, 0x70, 0x6f, 0x6f, 0x6c};
    uint8_t *ip = frame + VNET + ETHERNET;
    size_t body = room < 40 ? 0 : room - 40;
    memset(frame, 0, VNET + ETHERNET + 40);
    frame[VNET + 12] = 0x86, frame[VNET + 13] = 0xdd;
    ip[0] = 0x60, ip[4] = (uint8_t)(body >> 8), ip[5] = (uint8_t)body, ip[6] = drawn() % 2 ? 6 : 17;
    memcpy(ip + 8, range, sizeof range), memcpy(ip + 24, range, sizeof range);
    ip[23] = (uint8_t)(from + 1), ip[39] = 1;
}

/* In pieces it has all its bytes, each once and in order. */
static void cut_large(void)
{
    static uint8_t whole[FRAME_MOST];
    size_t size = make_large(whole, 1);
    struct pieces s;
    for (size_t at = 500; at < size; at += 1 + below(1000))
        whole[at] = (uint8_t)drawn();
    uint8_t *copy = malloc(size);
    must(copy);
    memcpy(copy, whole, size);
    must(is_large(copy, size));
    must(judge(copy, size, 3).verdict == TO_PART);
    if (pieces_begin(&s, copy, size)) {
        size_t at = s.head_size;
        for (int most = 70000; most && pieces_next(&s); most--) {
            must(s.body == copy + at && at + s.size <= size);
            must(s.head_size + s.size <= VNET + ETHERNET + 65535);
            must(s.size == s.left || s.size % s.segment == 0);
            must(judge(s.head, s.head_size + s.size, 3).verdict == TO_PART && !is_large(s.head, s.head_size + s.size));
            at += s.size;
        }
        must(at == size);
    }
    free(copy);
}

/* A checksum that is left to the kernel, and segments, within the frame or beyond it. */
static void make_offload(uint8_t *frame, size_t size)
{
    uint16_t of[4] = {(uint16_t)below(2 * size), (uint16_t)below(2000), (uint16_t)below(2 * size), (uint16_t)below(40)};
    if (drawn() % 2) /* about at the end */
        of[0] = 0, of[2] = (uint16_t)(size - VNET - 4 + below(6) - of[3]);
    frame[0] = (uint8_t)(drawn() % 4), frame[1] = (uint8_t)(drawn() % 6);
    memcpy(frame + 2, of, sizeof of);
}

static void judge_offload(const uint8_t *frame, size_t size)
{
    uint16_t of[4];
    memcpy(of, frame + 2, sizeof of);
    must(of[0] <= size - VNET);
    must(!(frame[0] & 1) || (size_t)of[2] + of[3] + 2 <= size - VNET);
    must(!(frame[1] & 0x7f) || of[1]);
}

/* Frames of every kind into the functions that judge them, each in memory of just its size. */
static void judge_random(void)
{
    size_t size = FRAME_LEAST + below(200);
    uint8_t *copy = malloc(size);
    must(copy);
    make_frame(frame, (uint32_t)drawn(), 4 + below(300), below(4));
    if (drawn() % 2)
        make_six(frame, size - VNET - ETHERNET, below(4));
    if (drawn() % 2)
        make_offload(frame, size);
    memcpy(copy, frame, size);
    for (size_t i = below(30); i > 0; i--)
        copy[below(size)] = (uint8_t)drawn();
    struct judged j = judge(copy, size, 3);
    if (j.verdict == TO_PART)
        must(j.from < 3 && j.to < 3);
    if (j.verdict != DROP_MALFORMED)
        needs_decision(copy, size);
    if (offload_fits(copy, size)) {
        judge_offload(copy, size);
        set_ethernet(copy);
    }
    j = judge_outside(copy, size, 3);
    must(j.verdict != TO_PART || j.to < 3);
    free(copy);
}

/* A key serves for SEALED_MOST bytes: then the link ends, and is made again with another one. */
static void use_up_a_key(void)
{
    uint8_t keys[2 * SEAL_KEY] = {1};
    struct seal *s = seal_new(keys);
    uint64_t sealed = 0;
    must(s);
    while (seal_record(s, record, plain, RECORD))
        must((sealed += RECORD) <= SEALED_MOST);
    must(sealed + RECORD > SEALED_MOST);
    must(!seal_record(s, record, plain, 1));
    must(!seal_record(s, record, plain, RECORD + 1));
    seal_free(s);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    long rounds = argc > 2 ? atol(argv[2]) : 100, seconds = argc > 3 ? atol(argv[3]) : 0, done = 0;
    time_t until = time(NULL) + seconds;
    must(network_begin(3) == 0);
    if (!seal_ready())
        return 2;
    use_up_a_key();
    for (; done < rounds || time(NULL) < until; done++) {
        state = (seed + (uint64_t)done) * 0x9e3779b97f4a7c15u | 1;
        drawn(), drawn();
        attack();
        for (int i = 0; i < 200; i++)
            judge_random();
        for (int i = 0; i < 20; i++)
            cut_large();
    }
    printf("%ld\n", done);
    return 0;
}
