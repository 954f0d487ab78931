/* The way out: TCP and UDP from one job's private network to addresses outside it, as far as the administrator allows.
 *
 *     relay --- decider ---> which connection may begin? --- connects outside, then lets the SYN pass
 *     relay --- wire0 = eth0 | kernel of a network namespace of its own: a socket for each connection
 *                                  both sockets of a connection --- moved by this process --- outside
 *
 * The relay sends each first packet of a connection and all datagrams to the decider, and everything else of TCP to
 * the packet socket at `wire0`. There every address is local, so the kernel ends each connection by its own TCP: this
 * program has no TCP of its own. The first packet waits until the connection outside is there, so that a program is
 * refused what the other side refuses. Datagrams have a socket for each pair of ports.
 *
 * The program has two processes, both without rights on the machine. `inside` has the namespace and makes listening
 * sockets in it on request. The other one opens only connections that a rule allows. */
#ifndef POOL_WAY_OUT_H
#define POOL_WAY_OUT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define NODE 0
#define DECIDER 3 /* given as an argument, by another number */
#define VNET 10
#define ETHERNET 14
#define FRAME_MOST (VNET + ETHERNET + 65536)
#define RULES_MOST 4096
#define FLOWS_MOST 2048 /* connections of one job at a time on one machine */
#define TALKS_MOST 512 /* pairs of ports with datagrams; the one that is quiet for the longest time gives way */
#define WAIT_SECONDS 60 /* for a program's last packet of the three, and for an answer to a datagram */
#define FIRST_MOST 160 /* a first packet without data */
/* New connections and pairs of ports: so many at once, and a second. Each is remembered for minutes by the machine's
 * kernel (ports, connection tracking), which its other users need, too. */
#define BEGIN_AT_ONCE 2000
#define BEGIN_A_SECOND 500
#define QUIET_SECONDS 2 /* after the job's end, until a connection on which nothing moves is reset */

/* An end: an IPv6 address, or an IPv4 one as ::ffff:a.b.c.d, and a port. */
struct end {
    uint8_t address[16];
    uint16_t port;
};
static inline bool is_four(const uint8_t address[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return __builtin_memcmp(address, mapped, 12) == 0;
}

/* rules.c; pool/network/way_out_process.py packs them */
enum rule_flags {
    NAMED = 1, /* one address that the administrator wrote: also one of this machine's own */
    DENIED = 2, /* not allowed by other rules than named ones */
    CHANGED = 4, /* the connection goes to `to` */
};
struct rule {
    uint8_t address[16], to[16];
    uint16_t first, last, to_port; /* ports; to_port 0: the same */
    uint8_t prefix, flags;
};
extern struct rules {
    struct rule *all;
    size_t count;
} rules;
bool rules_set(const uint8_t *data, size_t size);
bool rules_allow(const struct end *to, struct end *real); /* `real`: where it leads */
socklen_t socket_name(const struct end *e, struct sockaddr_storage *name);
void end_of(const struct sockaddr_storage *name, struct end *e);

/* packets.c */
/* This end of the job's network: addresses that no part has. */
extern const uint8_t way_out_four[16], way_out_six[16];
struct packet {
    bool four;
    uint8_t protocol;
    struct end from, to;
    const uint8_t *ip, *body; /* body: of UDP its data, of TCP its header */
    size_t ip_size, body_size;
    size_t segment; /* of UDP in segments: bytes of each; 0: one datagram */
};
bool packet_read(const uint8_t *frame, size_t size, struct packet *p);
bool packet_begins(const struct packet *p); /* a first packet of TCP */
/* Frames to the job; sizes in bytes. `frame` has room for FRAME_MOST. */
size_t make_reset(const struct packet *p, uint8_t *frame);
enum refusal { NOT_ALLOWED, NO_ROUTE };
size_t make_refusal(const struct packet *p, enum refusal why, uint8_t *frame);
#define DATAGRAM_HEAD(four) (VNET + ETHERNET + ((four) ? 20 : 40) + 8u)
size_t make_datagram(const struct end *from, const struct end *to, uint8_t *frame, size_t data); /* data is there */

/* main.c: root becomes nobody */
#define NOBODY 65534
int drop_rights(void);

/* inside.c, before rights are dropped */
int inside_start(int *wire); /* a socket for inside_listen, and the packet socket; -1 and errno */
int inside_listen(int inside, const struct end *at); /* a listening socket; -1 and errno */

/* loop.c */
extern struct way_out {
    int epoll, inside, wire;
    uint64_t opened, refused, failed, full, datagrams;
    struct end last_refused;
    size_t flows_most; /* FLOWS_MOST, or fewer where the machine allows few open files */
    bool ending; /* the job has ended: connections deliver what they have, and no new ones begin */
} way_out;
enum watched { WATCH_NODE, WATCH_DECIDER, WATCH_LISTENER, WATCH_IN, WATCH_OUT, WATCH_TALK };
int watch(int operation, int fd, uint32_t events, enum watched kind, size_t number);
void to_job(const uint8_t *frame, size_t size);
uint64_t now_seconds(void);
bool may_begin(void); /* counts one that begins; false: too many at this moment */

/* flows.c */
void flow_first(const struct packet *p, const uint8_t *frame, size_t size);
void flow_accept(size_t listener);
void flow_event(size_t flow, bool out, uint32_t events);
void flows_end(void); /* after each round: numbers of closed ones are free again */
void flows_old(uint64_t now);
void flows_finish(uint64_t now); /* after the job's end, each round */
void flows_reset(void); /* all, before this process ends */
size_t flows_open(void);

/* talks.c */
void talk_send(const struct packet *p);
void talk_receive(size_t talk);
void talks_old(uint64_t now);
size_t talks_open(void);

#endif
