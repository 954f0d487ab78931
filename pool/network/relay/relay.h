/* The relay: carries the packets of one job's private network on one machine, between the wires of its parts here and
 * links to the machines of its other parts.
 *
 *     part | eth0 = wire0 | packet socket --- relay --- stream | node ~~~ node | stream --- relay --- ...
 *
 * A job with a way out has two more sockets, of pool/network/way_out: first packets of connections, datagrams and all
 * else that is not plain TCP go to the decider, the rest of TCP to the kernel that ends such connections.
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

#define PARTS_MOST 65000
#define VNET 10 /* bytes of struct virtio_net_hdr before each frame */
#define ETHERNET 14
#define FRAME_LEAST (VNET + ETHERNET + 20)
#define FRAME_MOST (VNET + ETHERNET + 65536)
#define QUEUE (1 << 20) /* bytes that wait for a link */
#define BATCH 32 /* frames that are taken from one port before the next has its turn */
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

/* ports.c */
enum kind { CLOSED, WIRE, LINK, OUT, DECIDER };
struct port {
    enum kind kind;
    int fd;
    uint32_t part; /* of a wire */
    uint64_t dropped; /* frames that did not fit */
    uint8_t *out; /* of a link: frames to be sent */
    size_t out_start, out_end;
    uint8_t *in; /* of a link: bytes of a frame that has not arrived whole */
    size_t in_size;
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
    bool held; /* a checkpoint of all parts is being made: what one kernel acknowledges must be in its part's image */
} network;
int network_begin(uint32_t parts);
int port_add(enum kind kind, int fd); /* index, or -1 and errno */
void port_close(struct port *p);
void ports_way_out(int at); /* a port is the new one of its kind, and an earlier one ends */
bool wire_read(struct port *p); /* of any port but a link; false: nothing was there */
void link_read(struct port *p);
void link_write(struct port *p);
bool link_pending(const struct port *p);

/* Orders of the node, SOCK_SEQPACKET. `numbers`: with ADD_WIRE one part; with ADD_LINK the parts behind it; with HOLD 1
 * to drop every packet, 0 to carry them again. */
enum order_verb { BEGIN = 1, ADD_WIRE, ADD_LINK, REPORT, HOLD, ADD_OUT, ADD_DECIDER };
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
