/* The relay: carries the packets of one job's private network on one machine, between the wires of its parts here and
 * links to the machines of its other parts.
 *
 *     part | eth0 = wire0 | packet socket --- relay --- stream | node ~~~ node | stream --- relay --- ...
 *
 * A job with a way out has two more sockets, of pool/network/way_out: first packets of connections, datagrams and all
 * else that is not plain TCP go to the decider, the rest of TCP to the kernel that ends such connections.
 *
 * A link is a stream from the node, which seals what goes over it; or, where the relay has the library for that, the
 * connection to the other machine itself (seal.c). Between two machines that do not reach each other a third one
 * carries the sealed bytes, and has a relay without a network for that (splice.c).
 *
 * The node starts one relay for each job network, hands it sockets by messages on file descriptor 0 (struct order), and
 * it exits when the node closes that. The relay trusts neither the jobs nor the other machines: a packet passes only
 * from the address of its part to an address of the same network (judge.c). It has no rights, opens nothing, and holds
 * at most `QUEUE` bytes for a link; more is dropped, as on a wire, and TCP sends it again more slowly. */
#ifndef POOL_RELAY_H
#define POOL_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* `relay check` says it; pool/network/relay_process.py wants the same. Count on when orders or records change. */
#define VERSION 3
#define PARTS_MOST 65000
#define VNET 10 /* bytes of struct virtio_net_hdr before each frame */
#define ETHERNET 14
#define FRAME_LEAST (VNET + ETHERNET + 20)
#define FRAME_MOST (VNET + ETHERNET + (256 << 10)) /* NETWORK_LARGEST of pool/checkpoint/sandbox */
#define QUEUE (1 << 20) /* bytes that wait for a link */
#define BATCH \
    (2 << 20) /* bytes that are taken from one port before the next has its turn, with FRAME_COST for each frame */
#define FRAME_COST (64 << 10)
#define OUTSIDE (PARTS_MOST + 1) /* stands for all addresses outside, where pairs are counted */
#define PAIRS_MOST 1024 /* pairs of parts whose bytes are counted */

/* judge.c: pure */
enum verdict { DROP_MALFORMED, DROP_FORGED, DROP_OUTSIDE, TO_PART, TO_ALL };
struct judged {
    enum verdict verdict;
    uint32_t from, to; /* numbers of parts; `to` with TO_PART, `from` unless the packet is from outside */
};
/* `frame` begins with the vnet header. `parts`: how many parts the network has. */
struct judged judge(const uint8_t *frame, size_t size, uint32_t parts);
struct judged judge_outside(const uint8_t *frame, size_t size, uint32_t parts); /* of a packet from outside */
bool needs_decision(const uint8_t *frame, size_t size); /* one that leaves, and is not of a TCP connection under way */
bool offload_fits(const uint8_t *frame, size_t size); /* the vnet header of a frame from another machine */
void set_ethernet(uint8_t *frame); /* the header that every part's device expects */

/* large.c: pure */
bool is_large(const uint8_t *frame, size_t size); /* of a frame that `judge` has not found malformed */
struct pieces { /* of a large one */
    uint8_t head[VNET + ETHERNET + 60 + 60]; /* of the piece: all before its bytes */
    size_t head_size, ip_head, left;
    const uint8_t *body;
    size_t size; /* of the piece: its bytes */
    uint16_t segment;
    uint8_t last_flags;
};
bool pieces_begin(struct pieces *s, const uint8_t *frame, size_t size); /* false: its headers contradict each other */
bool pieces_next(struct pieces *s); /* the first, and each next piece; false: there is none */

/* seal.c */
#define SEAL_KEY 16
#define SEAL_LENGTH 4
#define SEAL_TAG 16
#define RECORD (256 << 10) /* bytes in a record at most */
#define RECORD_MOST (SEAL_LENGTH + RECORD + SEAL_TAG)
#ifndef SEALED_MOST
#define SEALED_MOST (1ull << 37) /* bytes for one key */
#endif
struct seal;
bool seal_ready(void); /* whether this relay can seal */
struct seal *seal_new(const uint8_t *keys); /* two keys: to send with, and to receive with */
void seal_free(struct seal *s);
bool seal_record(struct seal *s, uint8_t *record, const uint8_t *plain, size_t size);
bool open_record(struct seal *s, uint8_t *plain, const uint8_t *record, size_t size);

/* ports.c */
enum kind { CLOSED, WIRE, LINK, OUT, DECIDER, SPLICE, LEASH };
struct port {
    enum kind kind;
    int fd;
    uint32_t part; /* of a wire */
    bool takes_large; /* of a link: the kernel behind it takes large packets */
    uint64_t dropped; /* frames that did not fit */
    uint8_t *out; /* of a link: frames to be sent; of a splice: bytes of the other connection that wait */
    size_t out_start, out_end;
    uint8_t *in; /* of a link: bytes of a frame that has not arrived whole */
    size_t in_size;
    struct sealed_link *sealed; /* of a link to another machine's relay itself; none: the node seals it */
    uint16_t tied[2]; /* ports that end with this one: index, plus 1; of a splice the other connection and a leash */
};
struct pair { /* one direction */
    uint32_t from, to;
    uint64_t frames, bytes;
};
extern struct network {
    uint32_t parts;
    struct port *ports; /* an entry keeps its index */
    size_t count;
    uint16_t *route; /* by part: index of the port, plus 1; 0: none */
    uint16_t out, decider; /* in the same way */
    struct pair pairs[PAIRS_MOST];
    size_t pair_count;
    uint64_t forged, malformed, outside, unreachable;
    /* A checkpoint of all parts is being made: what one kernel acknowledges must be in its part's image. So nothing is
     * read from wires and links: packets wait in their sockets until all parts are saved. */
    bool held;
} network;
int network_begin(uint32_t parts);
int port_add(enum kind kind, int fd); /* index, or -1 and errno */
bool port_seal(struct port *p, const uint8_t *keys, int leash); /* `leash` is closed with the port */
void port_close(struct port *p);
void ports_way_out(int at); /* a port is the new one of its kind, and an earlier one ends */
ssize_t wire_read(struct port *p); /* of any port but a link: bytes of the frame; 0: none was there */
void link_read(struct port *p);
void link_write(struct port *p);
bool link_pending(const struct port *p);

/* splice.c */
#define PIECE (256 << 10) /* bytes that are taken from one connection before the next has its turn */
bool splice_add(int one, int other, int leash); /* it takes them over */
short splice_events(const struct port *p);
void splice_serve(struct port *p, short events);

/* Orders of the node, SOCK_SEQPACKET. `numbers`: with ADD_WIRE one part; with ADD_LINK whether large packets
 * may go over it, and the parts behind it; with ADD_SEALED, which comes with the connection and a leash, before them
 * the two keys in `KEY_NUMBERS`; with HOLD 1 to let every packet wait, 0 to carry them; with ADD_SPLICE, which comes
 * with two connections and a leash, none. */
enum order_verb { BEGIN = 1, ADD_WIRE, ADD_LINK, REPORT, HOLD, ADD_OUT, ADD_DECIDER, ADD_SEALED, ADD_SPLICE };
#define KEY_NUMBERS (2 * SEAL_KEY / sizeof(uint32_t))
struct order {
    uint32_t verb;
    uint32_t count;
    uint32_t numbers[];
};
/* The answer to REPORT: this head, and `pairs` times struct pair. */
struct told {
    uint64_t forged, malformed, outside, unreachable, dropped;
    uint64_t pairs;
};

#endif
