/* TCP and UDP sockets of a network namespace that is the job's own: declarations that their files share.
 *
 * The contents of a FILE_INET row are a struct inet_row, then its options, its filter, and
 *   of a TCP connection: the bytes that were not read, then the bytes that were sent and not acknowledged, or not sent;
 *   of a listening TCP socket: its connections that were not accepted, each a struct inet_waiting and unread bytes;
 *   of a UDP socket: its unread datagrams, each a struct inet_datagram and its bytes; then the multicast groups that it
 *   has joined, each a struct inet_membership and the addresses of its sources. */
#ifndef POOL_INET_H
#define POOL_INET_H

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "state/state.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72 /* Linux 5.14 */
#endif

#define INET_MOST (64u << 20) /* bytes of one queue */

enum {
    STATE_ESTABLISHED = 1,
    STATE_SYN_SENT,
    STATE_SYN_RECV,
    STATE_FIN_WAIT1,
    STATE_FIN_WAIT2,
    STATE_TIME_WAIT,
    STATE_CLOSE,
    STATE_CLOSE_WAIT,
    STATE_LAST_ACK,
    STATE_LISTEN,
    STATE_CLOSING
}; /* the kernel's TCP states */

struct inet_name {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    };
    uint32_t size; /* 0: none */
};

enum inet_flag {
    INET_BOUND = 1,
    INET_NO_READ = 2, /* shut down for reading */
    INET_FIN_SENT = 4, /* shut down for writing: its end is sent, or will be after the queued bytes */
    INET_FIN_READ = 8, /* the other side's end has arrived */
    INET_ENDED = 16, /* its connection is over; the socket is still open */
    INET_ERROR = 32, /* of an ended one: the next call fails with ECONNRESET */
    INET_AGAIN = 64, /* nobody has accepted its connection: a handshake makes it again */
    INET_REFUSED = 128, /* of an ended one: the next call fails with ECONNREFUSED */
    INET_REMOTE = 256, /* the other side is in another part of the job */
};

struct inet_row {
    uint32_t domain, type, state, flags; /* flags: see enum */
    struct inet_name local, remote;
    uint32_t backlog, waiting; /* of a listening socket; waiting: number of connections */
    uint32_t received, queued, unsent; /* bytes of the two queues; unsent: the last part of `queued` */
    uint32_t receive_seq, send_seq; /* sequence numbers after the last byte of each queue, without an end */
    uint32_t mss, send_scale, receive_scale, tcp_options, timestamp; /* tcp_options: TCPI_OPT_* */
    uint32_t window[5]; /* struct tcp_repair_window */
    uint32_t datagrams, option_count, filter; /* numbers; filter: of instructions */
    uint32_t receive_buffer, send_buffer, buffer_locks;
    uint32_t memberships;
    char device[16], congestion[16];
};

struct inet_option { /* a value that differs from a new socket's */
    int32_t level, name;
    uint32_t size;
    unsigned char value[16];
};

struct inet_waiting {
    struct inet_name local, remote;
    uint32_t flags, received;
};

struct inet_datagram {
    struct inet_name from;
    uint32_t size;
};

struct inet_membership {
    char device[16];
    struct inet_name group;
    uint32_t mode, sources; /* mode: MCAST_INCLUDE or MCAST_EXCLUDE these sources */
};

/* inet_names.c */
bool inet_named(int fd, struct inet_name *name, bool peer);
bool inet_same(const struct inet_name *a, const struct inet_name *b); /* also 127.0.0.1 and ::ffff:127.0.0.1 */
bool inet_plain(const struct inet_name *name, struct inet_name *plain); /* IPv4 as itself, not mapped into IPv6 */
bool inet_valid(const struct inet_name *name); /* of an image */
bool inet_is_any(const struct inet_name *name);
uint16_t inet_port(const struct inet_name *name);
void inet_write(const struct inet_name *name, char *text, size_t size);
struct inet_pair { /* a connection's end, to be found by its two names */
    uint8_t key[36];
    uint32_t which;
};
void inet_pair_set(struct inet_pair *pair, const struct inet_name *local, const struct inet_name *remote);
void inet_pairs_sort(struct inet_pair *all, size_t count);
uint32_t inet_pair_find(const struct inet_pair *all, size_t count, const struct inet_name *local,
                        const struct inet_name *remote); /* NOBODY: there is none */
bool inet_is_near(const struct inet_name *name); /* an address of this network namespace */
bool inet_is_part(const struct inet_name *name); /* an address on a network that this namespace has a device in */

/* inet_options.c */
struct inet_option *inet_options_read(int fd, const struct inet_row *row, uint32_t *count); /* the caller frees it */
int inet_options_set(int fd, const struct inet_row *row, const struct inet_option *all, bool late, struct failure *f);
bool inet_options_in_headers(int fd, uint32_t domain); /* IP_OPTIONS and such */
bool inet_option_known(const struct inet_option *option);
int inet_get(int fd, int level, int name, int missing); /* an int; `missing` if the socket has no such option */
bool inet_set(int fd, int level, int name, int value);
void inet_set_buffer(int fd, int name, uint32_t bytes); /* SO_RCVBUF or SO_SNDBUF, also above the machine's limit */

/* inet_table.c: the TCP sockets of this network namespace, also those that no process has open */
struct inet_entry {
    struct inet_name local, remote;
    uint32_t state, unsent;
    uint64_t inode; /* 0: no process has it open */
};
struct inet_entry *inet_table(size_t *count); /* the caller frees it */
long inet_tcp_count(void); /* how many there are, but for SYN_RECV and TIME_WAIT; -1: the kernel does not tell */
typedef void inet_each_shutdown(void *context, uint32_t inode, uint8_t how); /* how: 1 for reading, 2 for writing */
void inet_udp_shutdowns(inet_each_shutdown *each, void *context); /* no call of a socket tells it */

/* datagrams.c: what lies in the queue of a UDP socket */
bool datagrams_save(struct dump *d, int fd, struct inet_row *row); /* whether one of them is empty */
bool datagram_send(const struct inet_row *row, const struct inet_datagram *head, const char *data);
void datagrams_renew(int fd, const struct inet_row *row); /* as if nobody had looked at them */

/* memberships.c: multicast groups */
void memberships_save(struct dump *d, int fd, struct inet_row *row);
int memberships_restore(int fd, const char *at, size_t size, uint32_t count, struct failure *f);

/* tcp_repair.c */
int tcp_repair_on(int fd);
void tcp_repair_off(int fd);
void *tcp_peek(int fd, int queue, uint32_t *size, uint32_t *seq);
int tcp_restore(int fd, const struct inet_row *row, const char *received, const char *queued, struct failure *f);

/* tcp_handshake.c */
int tcp_bind_anyhow(int fd, const struct inet_name *name); /* also where another socket is bound */
int tcp_connect_now(int fd, const struct inet_name *to);
bool tcp_send_whole(int fd, const char *data, size_t size);
int tcp_handshake(int own, const struct inet_waiting *waiting, const char *data, struct failure *f);

#endif
