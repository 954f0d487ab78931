/* Options of TCP and UDP sockets: those whose values differ from a new socket's. A job may set each of them by itself,
 * so an image with any value gives it no more power. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/inet.h"

#ifndef IP_RECVERR_RFC4884
#define IP_RECVERR_RFC4884 26
#endif
#ifndef IPV6_RECVERR_RFC4884
#define IPV6_RECVERR_RFC4884 31
#endif
#define IP_LOCAL_PORTS 51 /* IP_LOCAL_PORT_RANGE, Linux 6.3 */
#define PRIORITY_MOST 6 /* of SO_PRIORITY, without privileges */

enum when { EARLY, LATE, UNCONNECTED, DATAGRAMS };
static const struct known {
    int level, name;
    uint32_t size;
    enum when when; /* LATE: when the queues are restored; UNCONNECTED: LATE, and never of a connection;
                        DATAGRAMS: EARLY, and only of UDP */
} known[] = {
    {SOL_SOCKET, SO_DONTROUTE, 4, EARLY},
    {SOL_SOCKET, SO_BROADCAST, 4, EARLY},
    {SOL_SOCKET, SO_KEEPALIVE, 4, EARLY},
    {SOL_SOCKET, SO_OOBINLINE, 4, EARLY},
    {SOL_SOCKET, SO_NO_CHECK, 4, EARLY},
    {SOL_SOCKET, SO_LINGER, 8, EARLY},
    {SOL_SOCKET, SO_REUSEADDR, 4, LATE},
    {SOL_SOCKET, SO_REUSEPORT, 4, EARLY},
    {SOL_SOCKET, SO_RCVLOWAT, 4, LATE},
    {SOL_SOCKET, SO_RCVTIMEO, 16, EARLY},
    {SOL_SOCKET, SO_SNDTIMEO, 16, LATE},
    {SOL_SOCKET, SO_TIMESTAMP, 4, EARLY},
    {SOL_SOCKET, SO_TIMESTAMPNS, 4, EARLY},
    {SOL_SOCKET, SO_TIMESTAMPING, 4, EARLY},
    {SOL_SOCKET, SO_RXQ_OVFL, 4, EARLY},
    {SOL_SOCKET, SO_PEEK_OFF, 4, LATE},
    {SOL_SOCKET, SO_SELECT_ERR_QUEUE, 4, EARLY},
    {SOL_SOCKET, SO_MAX_PACING_RATE, 8, LATE},
    {SOL_SOCKET, SO_ZEROCOPY, 4, EARLY},
    {IPPROTO_TCP, TCP_NODELAY, 4, LATE},
    {IPPROTO_TCP, TCP_CORK, 4, LATE},
    {IPPROTO_TCP, TCP_KEEPIDLE, 4, EARLY},
    {IPPROTO_TCP, TCP_KEEPINTVL, 4, EARLY},
    {IPPROTO_TCP, TCP_KEEPCNT, 4, EARLY},
    {IPPROTO_TCP, TCP_SYNCNT, 4, EARLY},
    {IPPROTO_TCP, TCP_LINGER2, 4, EARLY},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT, 4, LATE},
    {IPPROTO_TCP, TCP_WINDOW_CLAMP, 4, LATE},
    {IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 4, EARLY},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, 4, EARLY},
    {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 4, LATE},
    {IPPROTO_TCP, TCP_SAVE_SYN, 4, EARLY},
    {IPPROTO_TCP, TCP_INQ, 4, EARLY},
    {IPPROTO_TCP, TCP_FASTOPEN, 4, UNCONNECTED},
    {IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 4, UNCONNECTED},
    {IPPROTO_TCP, TCP_MAXSEG, 4, UNCONNECTED},
    {IPPROTO_UDP, 1 /* UDP_CORK */, 4, LATE},
    {IPPROTO_UDP, 101 /* UDP_NO_CHECK6_TX */, 4, EARLY},
    {IPPROTO_UDP, 102 /* UDP_NO_CHECK6_RX */, 4, EARLY},
    {IPPROTO_UDP, 103 /* UDP_SEGMENT */, 4, LATE},
    {IPPROTO_UDP, 104 /* UDP_GRO */, 4, LATE},
    {IPPROTO_IP, IP_TOS, 4, EARLY},
    {IPPROTO_IP, IP_TTL, 4, EARLY},
    {IPPROTO_IP, IP_RECVOPTS, 4, EARLY},
    {IPPROTO_IP, IP_RETOPTS, 4, EARLY},
    {IPPROTO_IP, IP_PKTINFO, 4, EARLY},
    {IPPROTO_IP, IP_MTU_DISCOVER, 4, EARLY},
    {IPPROTO_IP, IP_RECVERR, 4, EARLY},
    {IPPROTO_IP, IP_RECVERR_RFC4884, 4, EARLY},
    {IPPROTO_IP, IP_RECVTTL, 4, EARLY},
    {IPPROTO_IP, IP_RECVTOS, 4, EARLY},
    {IPPROTO_IP, IP_FREEBIND, 4, EARLY},
    {IPPROTO_IP, IP_RECVORIGDSTADDR, 4, EARLY},
    {IPPROTO_IP, IP_MINTTL, 4, EARLY},
    {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 4, LATE},
    {IPPROTO_IP, IP_RECVFRAGSIZE, 4, EARLY},
    {IPPROTO_IP, IP_MULTICAST_IF, 4, DATAGRAMS},
    {IPPROTO_IP, IP_MULTICAST_TTL, 4, DATAGRAMS},
    {IPPROTO_IP, IP_MULTICAST_LOOP, 4, DATAGRAMS},
    {IPPROTO_IP, IP_MULTICAST_ALL, 4, DATAGRAMS},
    {IPPROTO_IP, IP_LOCAL_PORTS, 4, LATE},
    {IPPROTO_IPV6, IPV6_V6ONLY, 4, EARLY},
    {IPPROTO_IPV6, IPV6_UNICAST_HOPS, 4, EARLY},
    {IPPROTO_IPV6, IPV6_MULTICAST_IF, 4, DATAGRAMS},
    {IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 4, DATAGRAMS},
    {IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 4, DATAGRAMS},
    {IPPROTO_IPV6, IPV6_MULTICAST_ALL, 4, DATAGRAMS},
    {IPPROTO_IPV6, IPV6_MTU_DISCOVER, 4, EARLY},
    {IPPROTO_IPV6, IPV6_RECVERR, 4, EARLY},
    {IPPROTO_IPV6, IPV6_RECVERR_RFC4884, 4, EARLY},
    {IPPROTO_IPV6, IPV6_RECVPKTINFO, 4, EARLY},
    {IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 4, EARLY},
    {IPPROTO_IPV6, IPV6_RECVRTHDR, 4, EARLY},
    {IPPROTO_IPV6, IPV6_RECVHOPOPTS, 4, EARLY},
    {IPPROTO_IPV6, IPV6_RECVDSTOPTS, 4, EARLY},
    {IPPROTO_IPV6, IPV6_RECVTCLASS, 4, EARLY},
    {IPPROTO_IPV6, IPV6_TCLASS, 4, EARLY},
    {IPPROTO_IPV6, IPV6_DONTFRAG, 4, EARLY},
    {IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 4, EARLY},
    {IPPROTO_IPV6, IPV6_ADDR_PREFERENCES, 4, EARLY},
    {IPPROTO_IPV6, IPV6_MINHOPCOUNT, 4, EARLY},
    {IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 4, EARLY},
    {IPPROTO_IPV6, IPV6_RECVFRAGSIZE, 4, EARLY},
    {IPPROTO_IPV6, IPV6_FREEBIND, 4, EARLY},
    {SOL_SOCKET, SO_LOCK_FILTER, 4, LATE},
    {SOL_SOCKET, SO_PRIORITY, 4, LATE}, /* after IP_TOS, which sets it, too */
};
#define KNOWN (sizeof known / sizeof *known)

int inet_get(int fd, int level, int name, int missing)
{
    int value = 0;
    socklen_t size = sizeof value;
    return getsockopt(fd, level, name, &value, &size) < 0 ? missing : value;
}

bool inet_set(int fd, int level, int name, int value) { return setsockopt(fd, level, name, &value, sizeof value) == 0; }

/* The limit of a receive buffer is one of the network, which is the job's own. */
static void raise_receive_limit(uint32_t bytes)
{
    unsigned least, first, most;
    FILE *f = fopen("/proc/sys/net/ipv4/tcp_rmem", "r+e");
    if (f && fscanf(f, "%u %u %u", &least, &first, &most) == 3 && most / 4 < bytes) {
        rewind(f);
        fprintf(f, "%u %u %u\n", least, first, bytes <= INT32_MAX / 4 ? bytes * 4 : INT32_MAX);
    }
    if (f)
        fclose(f);
}

/* Only the machine's root may force a buffer. But a TCP socket that is to wait for so many bytes (SO_RCVLOWAT) gets
 * room for them, whosoever it is. */
void inet_set_buffer(int fd, int name, uint32_t bytes)
{
    bool receives = name == SO_RCVBUF;
    if (inet_set(fd, SOL_SOCKET, receives ? SO_RCVBUFFORCE : SO_SNDBUFFORCE, (int)bytes))
        return;
    inet_set(fd, SOL_SOCKET, name, (int)bytes);
    int low_water = inet_get(fd, SOL_SOCKET, SO_RCVLOWAT, 1), locks = inet_get(fd, SOL_SOCKET, SO_BUF_LOCK, 0);
    if (!receives || inet_get(fd, SOL_SOCKET, SO_RCVBUF, 0) / 2 >= (int)bytes ||
        inet_get(fd, SOL_SOCKET, SO_PROTOCOL, 0) != IPPROTO_TCP)
        return;
    raise_receive_limit(bytes);
    inet_set(fd, SOL_SOCKET, SO_BUF_LOCK, locks & 1 /* SOCK_SNDBUF_LOCK */);
    inet_set(fd, SOL_SOCKET, SO_RCVLOWAT, (int)bytes);
    inet_set(fd, SOL_SOCKET, SO_RCVLOWAT, low_water);
}

/* False: this socket has no such option. */
static bool read_value(int fd, const struct known *k, unsigned char value[16])
{
    socklen_t size = k->size;
    memset(value, 0, 16);
    return getsockopt(fd, k->level, k->name, value, &size) == 0;
}

struct values {
    bool valid, has[KNOWN];
    unsigned char value[KNOWN][16];
};

/* The values of a new socket of this kind. */
static const struct values *values_of_new(const struct inet_row *row)
{
    static struct values all[4];
    struct values *these = &all[(row->domain == AF_INET6) * 2 + (row->type == SOCK_DGRAM)];
    int fd = these->valid ? -1 : socket((int)row->domain, (int)row->type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return these;
    for (size_t i = 0; i < KNOWN; i++)
        these->has[i] = read_value(fd, &known[i], these->value[i]);
    these->valid = true;
    close(fd);
    return these;
}

static bool is_connected(const struct inet_row *row) { return row->type == SOCK_STREAM && row->remote.size; }

static bool has_option(const struct inet_row *row, const struct known *k)
{
    return (k->when != UNCONNECTED || (!is_connected(row) && !(row->flags & INET_ENDED))) &&
           (k->when != DATAGRAMS || row->type == SOCK_DGRAM);
}

struct inet_option *inet_options_read(int fd, const struct inet_row *row, uint32_t *count)
{
    const struct values *new = values_of_new(row);
    struct inet_option *all = calloc(KNOWN, sizeof *all);
    *count = 0;
    for (size_t i = 0; all && i < KNOWN; i++) {
        struct inet_option option = {.level = known[i].level, .name = known[i].name, .size = known[i].size};
        if (!new->has[i] || !has_option(row, &known[i]) || !read_value(fd, &known[i], option.value) ||
            memcmp(new->value[i], option.value, option.size) == 0)
            continue;
        all[(*count)++] = option;
    }
    return all;
}

bool inet_options_in_headers(int fd, uint32_t domain)
{
    static const int sixes[] = {IPV6_HOPOPTS, IPV6_RTHDRDSTOPTS, IPV6_RTHDR, IPV6_DSTOPTS};
    char options[40];
    socklen_t size = sizeof options;
    if (getsockopt(fd, IPPROTO_IP, IP_OPTIONS, options, &size) == 0 && size)
        return true;
    for (size_t i = 0; domain == AF_INET6 && i < sizeof sixes / sizeof *sixes; i++) {
        char header[256];
        size = sizeof header;
        if (getsockopt(fd, IPPROTO_IPV6, sixes[i], header, &size) == 0 && size)
            return true;
    }
    return false;
}

static const struct known *find_known(const struct inet_option *option)
{
    for (size_t i = 0; i < KNOWN; i++)
        if (known[i].level == option->level && known[i].name == option->name)
            return &known[i];
    return NULL;
}

static bool is_beyond_rights(const struct inet_option *option)
{
    uint32_t value;
    memcpy(&value, option->value, sizeof value);
    return option->level == SOL_SOCKET && option->name == SO_PRIORITY && value > PRIORITY_MOST;
}

bool inet_option_known(const struct inet_option *option)
{
    const struct known *k = find_known(option);
    return k && k->size == option->size && !is_beyond_rights(option);
}

int inet_options_set(int fd, const struct inet_row *row, const struct inet_option *all, bool late, struct failure *f)
{
    unsigned char now[16];
    for (uint32_t i = 0; i < row->option_count; i++) {
        const struct known *k = find_known(&all[i]);
        if ((k->when == LATE || k->when == UNCONNECTED) != late || !has_option(row, k) ||
            (read_value(fd, k, now) && memcmp(now, all[i].value, k->size) == 0))
            continue;
        if (setsockopt(fd, k->level, k->name, all[i].value, k->size) < 0) {
            char text[96];
            snprintf(text, sizeof text, "option %d of level %d of a socket", k->name, k->level);
            return set_failure(f, "setsockopt", text);
        }
    }
    return 0;
}
