/* Saves TCP and UDP sockets, if the job's network namespace is its own: then both ends of each connection are the
 * job's, or belong to a part of it on another machine. Nothing stops the kernel's TCP while the job is frozen, so the
 * order matters: first all send queues are read, then all receive queues. A byte that moves in between is in both, and
 * the restore drops one of them; the other order could lose it. Connections that nobody has accepted are accepted here,
 * and made again by a handshake before the job continues (tcp_handshake.c). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/inet.h"

#define MPTCP 262 /* IPPROTO_MPTCP */
#define DRAIN_MS 1000
#define FILTER_MOST 4096
#define BACKLOG_MOST 65535

struct child { /* a connection that was accepted here */
    int fd;
    struct inet_waiting head;
    char *received;
    uint32_t receive_seq;
};

struct inet_socket { /* one socket of the job, while it is saved */
    uint32_t file; /* its row in image.files */
    int fd;
    bool repaired;
    struct inet_row row;
    struct inet_option *options;
    char *received, *queued;
    struct child *children;
    bool has_empty; /* a datagram without bytes, which a second image would not see */
};

static struct inet_socket *sockets; /* of the job that this process dumps */
static size_t socket_count, pair_count;
static struct inet_pair *pairs; /* of the connected ones */

/* The number of a network namespace, 0 where it cannot be read. */
static uint64_t network_of(const char *link)
{
    struct stat st;
    return stat(link, &st) < 0 ? 0 : st.st_ino;
}

bool inet_network_is_own(void) { return settings.network && network_of("/proc/self/ns/net") != settings.network; }

static bool is_in_network(pid_t pid)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/ns/net", pid);
    return inet_network_is_own() && network_of(link) == network_of("/proc/self/ns/net");
}

/* Why a socket of this kind cannot be saved anywhere; NULL: it can, in a network of the job's own. */
static const char *unsupported_kind(int domain, int type, int protocol)
{
    if (domain == AF_NETLINK)
        return "a netlink socket (close it first)";
    if (domain == AF_PACKET)
        return "a packet socket (close it first)";
    if (domain != AF_INET && domain != AF_INET6)
        return "a socket of another kind than TCP, UDP and unix (close it first)";
    if (type == SOCK_RAW)
        return "a raw socket (close it first)";
    if (type == SOCK_DGRAM && (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6))
        return "an ICMP socket, as of ping (close it first)";
    if (protocol == MPTCP)
        return "a Multipath TCP socket (open plain TCP ones; for Go: GODEBUG=multipathtcp=0)";
    if ((type != SOCK_STREAM || protocol != IPPROTO_TCP) && (type != SOCK_DGRAM || protocol != IPPROTO_UDP))
        return "a network socket of another kind than TCP and UDP (close it first)";
    return NULL;
}

static uint32_t tcp_state(int fd, struct tcp_info *info)
{
    socklen_t size = sizeof *info;
    memset(info, 0, sizeof *info);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &size) < 0 ? 0 : info->tcpi_state;
}

/* A socket that was connected once has shut down both ways; a new one has not. A refused one never got an answer. */
static uint32_t flags_of_closed(int fd, const struct tcp_info *info)
{
    struct pollfd at = {.fd = fd, .events = POLLRDHUP};
    poll(&at, 1, 0);
    if (!(at.revents & POLLRDHUP))
        return 0;
    bool refused = !info->tcpi_rtt && !(info->tcpi_options & (TCPI_OPT_WSCALE | TCPI_OPT_SACK | TCPI_OPT_TIMESTAMPS));
    return INET_ENDED | (!(at.revents & POLLERR) ? 0 : refused ? INET_REFUSED : INET_ERROR);
}

/* How far the connection is closed. */
static uint32_t flags_of_state(int fd, uint32_t state)
{
    struct pollfd at = {.fd = fd, .events = POLLRDHUP};
    uint32_t flags = 0;
    if (state == STATE_FIN_WAIT1 || state == STATE_FIN_WAIT2 || state == STATE_CLOSING || state == STATE_LAST_ACK)
        flags |= INET_FIN_SENT;
    if (state == STATE_CLOSE_WAIT || state == STATE_CLOSING || state == STATE_LAST_ACK)
        flags |= INET_FIN_READ;
    else if (poll(&at, 1, 0) > 0 && at.revents & POLLRDHUP)
        flags |= INET_NO_READ;
    return flags;
}

static void read_tcp(struct inet_socket *s, struct inet_row *row)
{
    struct tcp_info info;
    row->state = tcp_state(s->fd, &info);
    row->tcp_options = info.tcpi_options;
    row->send_scale = info.tcpi_snd_wscale;
    row->receive_scale = info.tcpi_rcv_wscale;
    socklen_t size = sizeof row->congestion;
    getsockopt(s->fd, IPPROTO_TCP, TCP_CONGESTION, row->congestion, &size);
    if (row->state == STATE_LISTEN) {
        row->waiting = info.tcpi_unacked;
        row->backlog = info.tcpi_sacked;
    } else if (row->state == STATE_CLOSE) {
        row->flags |= flags_of_closed(s->fd, &info);
    }
}

static void read_row(struct inet_socket *s)
{
    struct inet_row *row = &s->row;
    row->domain = (uint32_t)inet_get(s->fd, SOL_SOCKET, SO_DOMAIN, 0);
    row->type = (uint32_t)inet_get(s->fd, SOL_SOCKET, SO_TYPE, 0);
    inet_named(s->fd, &row->local, false);
    inet_named(s->fd, &row->remote, true);
    if (inet_port(&row->local))
        row->flags |= INET_BOUND;
    row->receive_buffer = (uint32_t)inet_get(s->fd, SOL_SOCKET, SO_RCVBUF, 0);
    row->send_buffer = (uint32_t)inet_get(s->fd, SOL_SOCKET, SO_SNDBUF, 0);
    row->buffer_locks = (uint32_t)inet_get(s->fd, SOL_SOCKET, SO_BUF_LOCK, 0);
    socklen_t size = sizeof row->device;
    getsockopt(s->fd, SOL_SOCKET, SO_BINDTODEVICE, row->device, &size);
    if (row->type == SOCK_STREAM)
        read_tcp(s, row);
    if (row->remote.size && row->type == SOCK_STREAM && !inet_is_near(&row->remote))
        row->flags |= INET_REMOTE;
}

static bool is_outside(const struct inet_row *row) { return row->flags & INET_REMOTE && !inet_is_part(&row->remote); }

/* Why it cannot be saved as it is now, as far as that is seen before the job is frozen. */
static const char *unsupported_now(const struct inet_socket *s, char *text, size_t size)
{
    char name[80], layer[16] = "";
    socklen_t length = sizeof layer, count = 0;
    if (is_outside(&s->row)) {
        inet_write(&s->row.remote, name, sizeof name);
        snprintf(text, size, "a TCP connection to %s, which is outside the job", name);
        return text;
    }
    if (s->row.type == SOCK_STREAM && getsockopt(s->fd, IPPROTO_TCP, TCP_ULP, layer, &length) == 0 && *layer)
        return "a TCP connection with TLS in the kernel (use a library's TLS)";
    if (getsockopt(s->fd, SOL_SOCKET, SO_GET_FILTER, NULL, &count) < 0 && errno == EACCES)
        return "a socket with an eBPF filter (use a classic one)";
    if (inet_options_in_headers(s->fd, s->row.domain))
        return "a socket that puts options into IP headers (IP_OPTIONS, IPV6_RTHDR and such)";
    return NULL;
}

/* Adds a row for the socket. False: it was not one of these, or is refused; `told`: a reason was given. */
bool inet_save(struct dump *d, struct file *f, pid_t pid, int number, bool *told)
{
    struct sample sample = {pid, number};
    struct inet_socket s = {.fd = descriptor_borrow(&sample)};
    char text[160];
    *told = false;
    if (s.fd < 0)
        return false;
    int domain = inet_get(s.fd, SOL_SOCKET, SO_DOMAIN, 0);
    const char *why =
        unsupported_kind(domain, inet_get(s.fd, SOL_SOCKET, SO_TYPE, 0), inet_get(s.fd, SOL_SOCKET, SO_PROTOCOL, 0));
    bool own = domain != AF_UNIX && is_in_network(pid), can_reset = !why && !own;
    if (!why && own) {
        read_row(&s);
        can_reset = is_outside(&s.row);
        why = unsupported_now(&s, text, sizeof text);
    }
    struct tcp_info info;
    struct stat st;
    bool resets = can_reset && domain != AF_UNIX && inet_get(s.fd, SOL_SOCKET, SO_TYPE, 0) == SOCK_STREAM &&
                  tcp_state(s.fd, &info) != STATE_LISTEN && fstat(s.fd, &st) == 0 &&
                  socket_reset_save(d, f, s.fd, st.st_ino);
    close(s.fd);
    if (resets)
        return true;
    if (why && domain != AF_UNIX) {
        add_unsupported(d, "descriptor %d of process %d is %s", number, pid, why);
        *told = true;
    }
    f->kind = FILE_INET;
    return own && !why;
}

static struct inet_socket *find_end(const struct inet_name *local, const struct inet_name *remote)
{
    uint32_t found = inet_pair_find(pairs, pair_count, local, remote);
    return found == NOBODY ? NULL : &sockets[found];
}

static bool is_connected(const struct inet_socket *s)
{
    return s->row.type == SOCK_STREAM && s->row.remote.size && s->row.state != STATE_CLOSE;
}

static int pair_all(struct dump *d)
{
    if (!(pairs = calloc(socket_count + 1, sizeof *pairs)))
        return set_failure(&d->failure, "malloc", "connections");
    for (size_t i = 0; i < socket_count; i++)
        if (is_connected(&sockets[i])) {
            pairs[pair_count].which = (uint32_t)i;
            inet_pair_set(&pairs[pair_count++], &sockets[i].row.local, &sockets[i].row.remote);
        }
    inet_pairs_sort(pairs, pair_count);
    return 0;
}

static void set_unsupported(struct dump *d, const struct inet_socket *s, const char *why)
{
    const struct sample *sample = (struct sample *)d->samples.rows + s->file;
    add_unsupported(d, "descriptor %d of process %d is %s", sample->fd, sample->pid, why);
}

static void refuse_outside(struct dump *d, struct inet_socket *s)
{
    char name[80], text[160];
    if (!(s->row.flags & INET_REMOTE) || s->row.state == STATE_CLOSE || inet_is_part(&s->row.remote))
        return;
    inet_write(&s->row.remote, name, sizeof name);
    snprintf(text, sizeof text, "a TCP connection to %s, which is outside the job", name);
    set_unsupported(d, s, text);
}

static int gather(struct dump *d)
{
    struct rlimit most;
    size_t count = 0;
    EACH(&d->image, files, file, f)
        count += f->kind == FILE_INET;
    if (!count)
        return 0;
    if (getrlimit(RLIMIT_NOFILE, &most) == 0) {
        most.rlim_cur = most.rlim_max;
        setrlimit(RLIMIT_NOFILE, &most);
    }
    if (!(sockets = calloc(count, sizeof *sockets)))
        return set_failure(&d->failure, "malloc", "sockets");
    for (uint32_t i = 0; i < d->image.files.count; i++) {
        struct inet_socket *s = &sockets[socket_count];
        if (((struct file *)d->image.files.rows)[i].kind != FILE_INET)
            continue;
        s->file = i;
        if ((s->fd = descriptor_borrow((struct sample *)d->samples.rows + i)) < 0)
            return set_failure(&d->failure, "pidfd_getfd", "a socket of the job");
        socket_count++;
        read_row(s);
        if (!(s->options = inet_options_read(s->fd, &s->row, &s->row.option_count)))
            return set_failure(&d->failure, "malloc", "options of a socket");
        refuse_outside(d, s);
    }
    return pair_all(d);
}

static void set_shutdown(void *context, uint32_t inode, uint8_t how)
{
    const struct dump *d = context;
    for (size_t i = 0; i < socket_count; i++)
        if (((const struct file *)d->image.files.rows)[sockets[i].file].inode == inode)
            sockets[i].row.flags |= (how & 1 ? INET_NO_READ : 0) | (how & 2 ? INET_FIN_SENT : 0);
}

static void read_shutdowns(struct dump *d)
{
    for (size_t i = 0; i < socket_count; i++)
        if (sockets[i].row.type == SOCK_DGRAM && sockets[i].row.remote.size) {
            inet_udp_shutdowns(set_shutdown, d);
            return;
        }
}

/* Whether every TCP socket of the network is one that the job has open: there is no closed one then. The count is read
 * first: a socket that ends meanwhile is missing among the job's, and the table is read. */
static bool has_all_sockets(void)
{
    struct tcp_info info;
    long count = inet_tcp_count(), own = 0;
    for (size_t i = 0; i < socket_count && count >= 0; i++) {
        uint32_t state = sockets[i].row.type == SOCK_STREAM ? tcp_state(sockets[i].fd, &info) : 0;
        own += state && state != STATE_CLOSE;
    }
    return own == count;
}

static bool is_unsettled(const struct inet_socket *s) { return s->row.waiting || s->row.state == STATE_SYN_SENT; }

/* Whether the kernel's table of connections is needed: something has no other end among the job's open sockets, or may
 * have one on another machine. To read it takes the kernel some 10 ms: it looks through those of the whole machine. */
static bool needs_table(void)
{
    bool unsettled = false;
    for (size_t i = 0; i < socket_count && !unsettled; i++)
        unsettled = is_unsettled(&sockets[i]);
    if (!unsettled && has_all_sockets())
        return false;
    for (size_t i = 0; i < socket_count; i++) {
        const struct inet_socket *s = &sockets[i];
        if (s->row.waiting || s->row.state == STATE_SYN_SENT || s->row.flags & INET_REMOTE ||
            (is_connected(s) && !(s->row.flags & INET_FIN_READ) && !find_end(&s->row.remote, &s->row.local)))
            return true;
    }
    return false;
}

/* Makes room in a socket, and lets it tell the other side. */
static void widen(const struct inet_socket *s, uint32_t bytes)
{
    char byte;
    inet_set_buffer(s->fd, SO_RCVBUF, bytes + (1u << 20));
    inet_set(s->fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, (int)(bytes + (1u << 20)));
    recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
}

/* A closed socket may have bytes to send for which its reader had no room. They are nobody's, and would be lost: the
 * reader gets room for them. */
static void drain(struct dump *d, const struct inet_entry *from)
{
    struct inet_socket *to = find_end(&from->remote, &from->local);
    char text[200], name[80];
    if (!to && (inet_is_near(&from->remote) || !inet_is_part(&from->remote)))
        return; /* nobody reads them */
    if (to) {
        struct pollfd end = {.fd = to->fd, .events = POLLRDHUP};
        int waiting = 0;
        if (ioctl(to->fd, FIONREAD, &waiting) == 0 && waiting < (int)INET_MOST && from->unsent < INET_MOST)
            widen(to, ((uint32_t)waiting + from->unsent) * 2);
        if (poll(&end, 1, DRAIN_MS) > 0)
            return;
    }
    inet_write(&from->remote, name, sizeof name);
    snprintf(text, sizeof text, "a TCP connection, closed at one end, still has %u bytes to send to %s (read them)",
             from->unsent, name);
    add_unsupported(d, "%s", text);
}

/* getpeername does not tell where a connection that is being made leads to. */
static void find_goal(struct dump *d, struct inet_socket *s, const struct inet_entry *e)
{
    if (s->row.state != STATE_SYN_SENT || e->inode != ((struct file *)d->image.files.rows)[s->file].inode)
        return;
    s->row.remote = e->remote;
    if (!inet_is_near(&e->remote))
        s->row.flags |= INET_REMOTE;
    refuse_outside(d, s);
}

static bool is_closing(uint32_t state)
{
    return state == STATE_FIN_WAIT1 || state == STATE_CLOSING || state == STATE_LAST_ACK;
}

static void use_table(struct dump *d)
{
    size_t count;
    struct inet_entry *all = inet_table(&count);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < socket_count; j++)
            find_goal(d, &sockets[j], &all[i]);
        if (!all[i].inode && is_closing(all[i].state) && all[i].unsent)
            drain(d, &all[i]);
        for (size_t j = 0; j < socket_count && !all[i].inode; j++)
            if (sockets[j].row.waiting && inet_port(&sockets[j].row.local) == inet_port(&all[i].local) &&
                (all[i].state == STATE_ESTABLISHED || all[i].state == STATE_CLOSE_WAIT) &&
                !inet_is_near(&all[i].remote))
                set_unsupported(d, &sockets[j],
                                "a TCP socket with a connection of another part that waits to be accepted (accept it)");
    }
    free(all);
}

static int set_queue_failure(struct dump *d, const struct inet_socket *s)
{
    if (errno == EILSEQ)
        set_unsupported(d, s, "a TCP connection with an out-of-band byte among the unread ones (read it)");
    else if (errno == EFBIG)
        set_unsupported(d, s, "a TCP connection with more than 64 MB in a queue (read it)");
    else if (errno != EPERM)
        return set_failure(&d->failure, "recv", "a queue of a TCP connection");
    else
        set_unsupported(d, s, "a TCP connection, which this kernel does not let be saved (TCP_REPAIR)");
    return 1;
}

/* State that changes while the job is frozen is read with the receive queue. */
static int read_send_queue(struct dump *d, struct inet_socket *s)
{
    struct inet_row *row = &s->row;
    int unsent = 0;
    if (tcp_repair_on(s->fd) < 0)
        return set_queue_failure(d, s);
    s->repaired = true;
    if (!(s->queued = tcp_peek(s->fd, TCP_SEND_QUEUE, &row->queued, &row->send_seq)))
        return set_queue_failure(d, s);
    ioctl(s->fd, 0x894B /* SIOCOUTQNSD */, &unsent);
    row->unsent = unsent < 0 ? 0 : (uint32_t)unsent < row->queued ? (uint32_t)unsent : row->queued;
    row->mss = (uint32_t)inet_get(s->fd, IPPROTO_TCP, TCP_MAXSEG, 0);
    row->timestamp = (uint32_t)inet_get(s->fd, IPPROTO_TCP, TCP_TIMESTAMP, 0);
    return 0;
}

static int read_receive_queue(struct dump *d, struct inet_socket *s)
{
    struct inet_row *row = &s->row;
    struct tcp_repair_window window;
    struct tcp_info info;
    socklen_t size = sizeof window;
    if (!(s->received = tcp_peek(s->fd, TCP_RECV_QUEUE, &row->received, &row->receive_seq)))
        return set_queue_failure(d, s);
    if (getsockopt(s->fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &window, &size) == 0)
        memcpy(row->window, &window, sizeof row->window);
    if ((row->state = tcp_state(s->fd, &info)) == STATE_CLOSE)
        row->flags |= flags_of_closed(s->fd, &info);
    row->flags |= flags_of_state(s->fd, row->state);
    row->receive_seq -= row->flags & INET_FIN_READ ? 1 : 0;
    row->send_seq -= row->flags & INET_FIN_SENT ? 1 : 0;
    return 0;
}

/* The rest of an ended connection can be read, without repair mode: there is nothing to disturb. */
static int read_rest(struct dump *d, int fd, uint32_t *size, char **received)
{
    int waiting = 0;
    *size = 0;
    if (ioctl(fd, FIONREAD, &waiting) < 0 || waiting <= 0)
        return 0; /* an error that nobody has seen yet stays */
    if (waiting > (int)INET_MOST || !(*received = malloc((size_t)waiting)))
        return set_failure(&d->failure, "recv", "the rest of a TCP connection");
    ssize_t n = recv(fd, *received, (size_t)waiting, MSG_PEEK | MSG_DONTWAIT);
    *size = n > 0 ? (uint32_t)n : 0;
    return 0;
}

static int read_child(struct dump *d, const struct inet_socket *listener, struct child *c)
{
    struct tcp_info info;
    if (tcp_state(c->fd, &info) == STATE_CLOSE) {
        c->head.flags = INET_ERROR;
        return read_rest(d, c->fd, &c->head.received, &c->received);
    }
    if (tcp_repair_on(c->fd) < 0 ||
        !(c->received = tcp_peek(c->fd, TCP_RECV_QUEUE, &c->head.received, &c->receive_seq)))
        return set_queue_failure(d, listener);
    c->head.flags = flags_of_state(c->fd, tcp_state(c->fd, &info)) & INET_FIN_READ;
    c->receive_seq -= c->head.flags & INET_FIN_READ ? 1 : 0;
    return 0;
}

static int accept_waiting(struct dump *d, struct inet_socket *s)
{
    struct pollfd more = {.fd = s->fd, .events = POLLIN};
    s->row.waiting = 0;
    while (poll(&more, 1, 0) > 0 && more.revents & POLLIN) {
        struct child *all = realloc(s->children, (s->row.waiting + 1) * sizeof *all), *c;
        if (!all)
            return set_failure(&d->failure, "malloc", "connections");
        s->children = all;
        c = &all[s->row.waiting];
        memset(c, 0, sizeof *c);
        socklen_t size = sizeof c->head.remote.v6;
        if ((c->fd = accept4(s->fd, &c->head.remote.any, &size, SOCK_CLOEXEC)) < 0)
            break;
        c->head.remote.size = size;
        inet_named(c->fd, &c->head.local, false);
        s->row.waiting++;
        if (read_child(d, s, c))
            return -1;
    }
    return 0;
}

/* The bytes that are still on the way to a connection that nobody has accepted. */
static void join_child(const struct child *c)
{
    struct inet_socket *client = find_end(&c->head.remote, &c->head.local);
    if (!client)
        return;
    uint32_t left = client->row.send_seq - c->receive_seq; /* bytes that have not arrived */
    client->row.flags |= INET_AGAIN;
    if (left < client->row.queued) {
        memmove(client->queued, client->queued + (client->row.queued - left), left);
        client->row.queued = left;
    }
}

static bool listens_at(const struct inet_name *name)
{
    for (size_t i = 0; i < socket_count; i++)
        if (sockets[i].row.state == STATE_LISTEN && inet_port(&sockets[i].row.local) == inet_port(name) &&
            (inet_is_any(&sockets[i].row.local) || inet_same(&sockets[i].row.local, name)))
            return true;
    return false;
}

/* The client of a handshake whose last segment the server had no room for, or which came after the others were
 * accepted: nothing that it sent has arrived. */
static bool is_half_open(const struct inet_socket *s)
{
    struct tcp_info info;
    tcp_state(s->fd, &info);
    return !(s->row.flags & (INET_REMOTE | INET_AGAIN | INET_FIN_READ)) && info.tcpi_bytes_acked <= 1 &&
           !info.tcpi_bytes_received && !find_end(&s->row.remote, &s->row.local) && listens_at(&s->row.remote);
}

static int read_queues(struct dump *d)
{
    for (size_t i = 0; i < socket_count; i++)
        if (is_connected(&sockets[i]) && sockets[i].row.state != STATE_SYN_SENT && read_send_queue(d, &sockets[i]))
            return -1;
    for (size_t i = 0; i < socket_count; i++)
        if (sockets[i].row.state == STATE_LISTEN && accept_waiting(d, &sockets[i]))
            return -1;
    for (size_t i = 0; i < socket_count; i++) {
        struct inet_socket *s = &sockets[i];
        if (s->repaired && read_receive_queue(d, s))
            return -1;
        if (s->row.type == SOCK_STREAM && s->row.flags & INET_ENDED && !s->received &&
            read_rest(d, s->fd, &s->row.received, &s->received))
            return -1;
    }
    for (size_t i = 0; i < socket_count; i++)
        for (uint32_t j = 0; j < sockets[i].row.waiting; j++)
            join_child(&sockets[i].children[j]);
    for (size_t i = 0; i < socket_count; i++)
        if (sockets[i].repaired && is_half_open(&sockets[i]))
            sockets[i].row.flags |= INET_AGAIN;
    return 0;
}

static void put_children(struct dump *d, const struct inet_socket *s)
{
    for (uint32_t i = 0; i < s->row.waiting; i++) {
        image_put(&d->image, &s->children[i].head, sizeof s->children[i].head);
        image_put(&d->image, s->children[i].received, s->children[i].head.received);
    }
}

static void put_socket(struct dump *d, struct inet_socket *s)
{
    static struct sock_filter filter[FILTER_MOST];
    socklen_t count = FILTER_MOST;
    struct span all = image_put(&d->image, &s->row, sizeof s->row);
    image_put(&d->image, s->options, s->row.option_count * sizeof *s->options);
    if (getsockopt(s->fd, SOL_SOCKET, SO_GET_FILTER, filter, &count) == 0 && count <= FILTER_MOST) {
        s->row.filter = count;
        image_put(&d->image, filter, count * sizeof *filter);
    }
    image_put(&d->image, s->received, s->row.received);
    image_put(&d->image, s->queued, s->row.queued);
    put_children(d, s);
    if (s->row.type == SOCK_DGRAM)
        s->has_empty = datagrams_save(d, s->fd, &s->row);
    memcpy((char *)d->image.bytes.rows + all.at, &s->row, sizeof s->row);
    all.size = d->image.bytes.count - all.at;
    ((struct file *)d->image.files.rows)[s->file].contents = all;
}

/* Called while the job is frozen. 0 also if something cannot be saved: then a reason was added. */
int inet_contents(struct dump *d)
{
    if (gather(d))
        return -1;
    read_shutdowns(d);
    if (needs_table())
        use_table(d);
    if (d->reason_count || read_queues(d))
        return d->reason_count ? 0 : -1;
    for (size_t i = 0; i < socket_count; i++)
        put_socket(d, &sockets[i]);
    connecting_settle(d);
    return 0;
}

static void end_reuse(const struct inet_socket *s)
{
    int reuse = 0;
    for (uint32_t i = 0; i < s->row.option_count; i++)
        if (s->options[i].level == SOL_SOCKET && s->options[i].name == SO_REUSEADDR)
            memcpy(&reuse, s->options[i].value, sizeof reuse);
    inet_set(s->fd, SOL_SOCKET, SO_REUSEADDR, reuse);
}

static void end_repair(struct inet_socket *s)
{
    tcp_repair_off(s->fd);
    end_reuse(s);
    s->repaired = false;
}

/* Datagrams are sent again from addresses at which sockets of the job are bound. */
static void renew_datagrams(void)
{
    bool wanted = false;
    for (size_t i = 0; i < socket_count; i++)
        wanted = wanted || sockets[i].has_empty;
    if (!wanted)
        return;
    for (size_t i = 0; i < socket_count; i++)
        if (sockets[i].row.type == SOCK_DGRAM)
            inet_set(sockets[i].fd, SOL_SOCKET, SO_REUSEADDR, 1);
    for (size_t i = 0; i < socket_count; i++)
        if (sockets[i].has_empty)
            datagrams_renew(sockets[i].fd, &sockets[i].row);
    for (size_t i = 0; i < socket_count; i++)
        if (sockets[i].row.type == SOCK_DGRAM)
            end_reuse(&sockets[i]);
}

/* The client's end stays the same socket: it disconnects without a segment, and connects again. */
static int disconnect(struct inet_socket *s)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    if (connect(s->fd, &none, sizeof none) < 0)
        return -1;
    if (bind(s->fd, &s->row.local.any, s->row.local.size) < 0 && errno != EINVAL) /* EINVAL: the job has bound it */
        return -1;
    inet_get(s->fd, SOL_SOCKET, SO_ERROR, 0);
    end_repair(s);
    return 0;
}

static void make_again(struct child *c)
{
    struct inet_socket *client = find_end(&c->head.remote, &c->head.local);
    struct linger at_once = {1, 0};
    struct failure ignored;
    if (!client) { /* takes down the rest of the client, too */
        tcp_repair_off(c->fd);
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    close(c->fd);
    struct inet_waiting head = c->head;
    if (client)
        head.local = client->row.remote;
    if (client && disconnect(client) < 0)
        return;
    if (tcp_handshake(client ? client->fd : -1, &head, c->received, &ignored) || !client)
        return;
    tcp_send_whole(client->fd, client->queued, client->row.queued);
    if (client->row.flags & INET_FIN_SENT)
        shutdown(client->fd, SHUT_WR);
    inet_set_buffer(client->fd, SO_SNDBUF, client->row.send_buffer / 2);
    inet_set(client->fd, SOL_SOCKET, SO_BUF_LOCK, (int)client->row.buffer_locks);
}

/* Leaves the sockets as the job knows them. Does nothing the second time. */
void inet_let_go(void)
{
    renew_datagrams();
    for (size_t i = 0; i < socket_count; i++) {
        struct inet_socket *s = &sockets[i];
        if (!s->children)
            continue;
        listen(s->fd, BACKLOG_MOST); /* more may wait than clients may come */
        for (uint32_t j = 0; j < s->row.waiting; j++)
            make_again(&s->children[j]);
        listen(s->fd, (int)s->row.backlog);
    }
    for (size_t i = 0; i < socket_count; i++) {
        struct inet_socket *s = &sockets[i];
        if (s->repaired)
            end_repair(s);
        if ((uint32_t)inet_get(s->fd, SOL_SOCKET, SO_RCVBUF, 0) != s->row.receive_buffer &&
            s->row.type == SOCK_STREAM) {
            inet_set_buffer(s->fd, SO_RCVBUF, s->row.receive_buffer / 2);
            inet_set(s->fd, SOL_SOCKET, SO_BUF_LOCK, (int)s->row.buffer_locks);
        }
        close(s->fd);
    }
    socket_count = 0;
}
