/* Restores TCP and UDP sockets, in the network namespace of the job, before its processes run: listening sockets first,
 * then both ends of each connection in repair mode, so that nothing answers a segment of the other with a reset; then
 * the bytes on the way, handshakes, ends, and what only a real exchange can make. The image may be malicious: each
 * field is checked, and no socket gets what a job could not give it by itself. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/inet.h"

#define FILTER_MOST 4096
#define BACKLOG_MOST 65535
#define SCALE_MOST 14

struct inet_end { /* one socket */
    int fd;
    uint32_t file;
    struct inet_row row;
    struct inet_option *options;
    const char *filter, *received, *queued, *rest; /* in the image, at any address; rest: connections or datagrams */
    size_t rest_size;
    struct inet_end *peer; /* the other end of its connection, if that is in the image */
};

struct inet_all {
    struct inet_end *ends;
    struct inet_pair *pairs;
    size_t count, pair_count;
};

bool inet_fits(const struct image *image)
{
    EACH(image, files, file, f)
        if (f->kind == FILE_INET && !inet_network_is_own())
            return false;
    return true;
}

static const char *take(struct inet_end *e, size_t size)
{
    const char *at = e->rest;
    if (size > e->rest_size)
        return NULL;
    e->rest += size;
    e->rest_size -= size;
    return at;
}

static bool name_fits(const struct inet_row *row, const struct inet_name *name)
{
    return inet_valid(name) && (!name->size || name->any.sa_family == row->domain);
}

static bool row_fits(const struct inet_row *row)
{
    return (row->domain == AF_INET || row->domain == AF_INET6) &&
           (row->type == SOCK_STREAM || row->type == SOCK_DGRAM) && name_fits(row, &row->local) &&
           name_fits(row, &row->remote) &&
           (row->type == SOCK_DGRAM || (row->state >= 1 && row->state <= STATE_CLOSING)) &&
           row->received <= INET_MOST && row->queued <= INET_MOST && row->unsent <= row->queued &&
           row->send_scale <= SCALE_MOST && row->receive_scale <= SCALE_MOST && row->mss <= UINT16_MAX &&
           row->backlog <= INT32_MAX && row->filter <= FILTER_MOST && row->option_count <= 256 &&
           memchr(row->device, 0, sizeof row->device) && memchr(row->congestion, 0, sizeof row->congestion);
}

/* Sets `e` to the parts of a row's contents. */
static bool parse(const struct image *image, const struct file *f, struct inet_end *e)
{
    e->rest = image_bytes(image, f->contents);
    e->rest_size = f->contents.size;
    const char *row = take(e, sizeof e->row);
    if (!row)
        return false;
    memcpy(&e->row, row, sizeof e->row);
    if (!row_fits(&e->row))
        return false;
    size_t size = e->row.option_count * sizeof *e->options;
    const char *options = take(e, size);
    if (!options || !(e->options = malloc(size + 1)))
        return false;
    memcpy(e->options, options, size);
    for (uint32_t i = 0; i < e->row.option_count; i++)
        if (!inet_option_known(&e->options[i]))
            return false;
    return (e->filter = take(e, e->row.filter * sizeof(struct sock_filter))) &&
           (e->received = take(e, e->row.received)) && (e->queued = take(e, e->row.queued));
}

static int set_bad(struct failure *f)
{
    errno = EBADMSG;
    return set_failure(f, "read", "a socket of the network");
}

/* The options that must be set before a socket has a name. */
static int set_early(int fd, const struct inet_end *e, struct failure *f)
{
    const struct inet_row *row = &e->row;
    if (*row->device && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, row->device, (socklen_t)strlen(row->device)) < 0)
        return set_failure(f, "setsockopt", row->device);
    if (row->type == SOCK_STREAM && *row->congestion)
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, row->congestion,
                   (socklen_t)strlen(row->congestion)); /* without it, another algorithm moves the same bytes */
    return inet_options_set(fd, row, e->options, false, f);
}

int inet_socket(const struct restoring *r, const struct file *row, struct failure *f)
{
    struct inet_end e = {0};
    bool fits = parse(r->image, row, &e);
    int fd = fits ? socket((int)e.row.domain, (int)e.row.type | SOCK_CLOEXEC, 0) : -1,
        done = !fits    ? set_bad(f)
               : fd < 0 ? set_failure(f, "socket", "")
                        : set_early(fd, &e, f);
    free(e.options);
    if (done && fd >= 0)
        close(fd);
    return done ? -1 : fd;
}

/* The lowest port that a job may use. */
static uint16_t lowest_port(const struct job *job)
{
    char text[16] = "";
    int fd = open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    return rights_kept(job) & 1 << CAP_NET_BIND_SERVICE ? 0 : n > 0 ? (uint16_t)atoi(text) : 1024;
}

static int set_low_port(struct failure *f)
{
    errno = EACCES;
    return set_failure(f, "bind", "a port that the job may not use");
}

/* A connection's end may have such a port without its job having bound it: its listening socket was bound by another
 * rule. So only ports to which sockets are bound by themselves count. */
static bool is_bound_itself(const struct inet_row *row)
{
    return row->type == SOCK_DGRAM || row->state == STATE_LISTEN || row->state == STATE_CLOSE;
}

static int collect(const struct restoring *r, struct inet_all *all, struct failure *f)
{
    uint16_t lowest = lowest_port(r->job);
    all->ends = calloc(r->image->files.count + 1ul, sizeof *all->ends);
    all->pairs = calloc(r->image->files.count + 1ul, sizeof *all->pairs);
    if (!all->ends || !all->pairs)
        return set_failure(f, "malloc", "sockets");
    for (uint32_t i = 0; i < r->image->files.count; i++) {
        const struct file *row = (struct file *)r->image->files.rows + i;
        struct inet_end *e = &all->ends[all->count];
        if (row->kind != FILE_INET || r->opened[i] < 0)
            continue;
        e->file = i;
        e->fd = r->opened[i];
        if (!parse(r->image, row, e))
            return set_bad(f);
        uint16_t port = inet_port(&e->row.local);
        if (e->row.local.size && port && port < lowest && is_bound_itself(&e->row))
            return set_low_port(f);
        all->count++;
    }
    return 0;
}

static bool is_connection(const struct inet_row *row)
{
    return row->type == SOCK_STREAM && row->remote.size && row->local.size && row->state != STATE_CLOSE &&
           row->state != STATE_LISTEN && row->state != STATE_SYN_SENT && !(row->flags & INET_ENDED);
}

static void join_ends(struct inet_all *all)
{
    for (size_t i = 0; i < all->count; i++)
        if (is_connection(&all->ends[i].row)) {
            all->pairs[all->pair_count].which = (uint32_t)i;
            inet_pair_set(&all->pairs[all->pair_count++], &all->ends[i].row.local, &all->ends[i].row.remote);
        }
    inet_pairs_sort(all->pairs, all->pair_count);
    for (size_t i = 0; i < all->pair_count; i++) {
        struct inet_end *e = &all->ends[all->pairs[i].which];
        uint32_t peer = inet_pair_find(all->pairs, all->pair_count, &e->row.remote, &e->row.local);
        e->peer = peer == NOBODY || &all->ends[peer] == e ? NULL : &all->ends[peer];
    }
}

/* Until all are bound. */
static int share_names(struct inet_end *e, struct failure *f)
{
    (void)f;
    if (e->row.type == SOCK_DGRAM || e->row.state != STATE_CLOSE)
        inet_set(e->fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (e->row.type == SOCK_STREAM && e->row.state == STATE_LISTEN)
        inet_set(e->fd, SOL_SOCKET, SO_REUSEPORT, 1);
    inet_set(e->fd, IPPROTO_IP, IP_FREEBIND, 1); /* an option may have been set for the bind only */
    return 0;
}

static int saved_value(const struct inet_end *e, int level, int name)
{
    int value = 0;
    for (uint32_t i = 0; i < e->row.option_count; i++)
        if (e->options[i].level == level && e->options[i].name == name)
            memcpy(&value, e->options[i].value, sizeof value);
    return value;
}

static int listen_again(struct inet_end *e, struct failure *f)
{
    const struct inet_row *row = &e->row;
    uint32_t most = row->backlog < BACKLOG_MOST ? BACKLOG_MOST : row->backlog;
    if (!row->local.size || bind(e->fd, &row->local.any, row->local.size) < 0 || listen(e->fd, (int)most) < 0)
        return set_failure(f, "listen", "a TCP socket");
    return 0;
}

/* Binds what has no connection, or gets its connection by a handshake. */
static int bind_again(struct inet_end *e, struct failure *f)
{
    const struct inet_row *row = &e->row;
    if (!(row->flags & INET_BOUND) || !row->local.size || row->flags & INET_ENDED)
        return 0;
    int done =
        row->type == SOCK_STREAM ? tcp_bind_anyhow(e->fd, &row->local) : bind(e->fd, &row->local.any, row->local.size);
    return done < 0 ? set_failure(f, "bind", row->type == SOCK_STREAM ? "a TCP socket" : "a UDP socket") : 0;
}

static uint32_t window_of(const struct inet_row *row) { return row->window[4] + row->window[3] - row->receive_seq; }

/* Puts the end of a connection in place, in repair mode. Bytes that the other end has already are dropped. */
static int connect_again(struct inet_end *e, struct failure *f)
{
    struct inet_row row = e->row;
    if (e->peer) {
        uint32_t left = row.send_seq - e->peer->row.receive_seq, open = window_of(&e->peer->row);
        if (left > row.queued)
            return set_bad(f);
        e->queued += row.queued - left;
        e->row.queued = e->row.unsent = row.queued = row.unsent = left;
        row.window[1] = open <= INET_MOST ? open : 0;
    }
    inet_set_buffer(e->fd, SO_RCVBUF, row.received * 2 + (1 << 20));
    inet_set_buffer(e->fd, SO_SNDBUF, row.queued * 2 + (1 << 20));
    return tcp_restore(e->fd, &row, e->received, e->queued, f);
}

static int send_rest(struct inet_end *e, struct failure *f)
{
    const char *unsent = e->queued + (e->row.queued - e->row.unsent);
    inet_set(e->fd, IPPROTO_TCP, TCP_NODELAY, 1);
    return tcp_send_whole(e->fd, unsent, e->row.unsent) ? 0 : set_failure(f, "send", "the rest of a TCP connection");
}

static void shut(struct inet_end *e)
{
    if (e->row.flags & INET_FIN_SENT)
        shutdown(e->fd, SHUT_WR);
    if (e->row.flags & INET_NO_READ)
        shutdown(e->fd, SHUT_RD);
}

/* The other side has closed its end, and no socket of it is left: a temporary one sends its end again. */
static int end_for_other(struct inet_end *e, struct failure *f)
{
    struct inet_row row = e->row;
    inet_plain(&e->row.remote, &row.local);
    inet_plain(&e->row.local, &row.remote);
    row.receive_seq = e->row.send_seq - e->row.queued;
    row.send_seq = e->row.receive_seq;
    row.received = row.queued = row.unsent = 0;
    row.send_scale = e->row.receive_scale;
    row.receive_scale = e->row.send_scale;
    uint32_t window[5] = {row.receive_seq, 65535, 65535, 65535, row.receive_seq};
    memcpy(row.window, window, sizeof window);
    int fd = socket(row.local.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return set_failure(f, "socket", "");
    inet_set(fd, row.local.any.sa_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6,
             row.local.any.sa_family == AF_INET ? IP_TRANSPARENT : IPV6_TRANSPARENT, 1);
    int done = tcp_restore(fd, &row, NULL, NULL, f);
    if (!done) {
        tcp_repair_off(fd);
        shutdown(fd, SHUT_WR);
        if (e->row.flags & INET_REMOTE) /* the other part's socket takes the answer */
            tcp_repair_on(fd);
    }
    close(fd);
    return done;
}

/* The connections of a listening socket that nobody has accepted, in their order. */
static int wait_again(struct inet_all *all, struct inet_end *e, struct failure *f)
{
    for (uint32_t i = 0; i < e->row.waiting; i++) {
        struct inet_waiting head;
        const char *at = take(e, sizeof head), *data;
        if (!at)
            return set_bad(f);
        memcpy(&head, at, sizeof head);
        if (!inet_valid(&head.local) || !inet_valid(&head.remote) || !head.local.size || !head.remote.size ||
            !(data = take(e, head.received)))
            return set_bad(f);
        uint32_t own = inet_pair_find(all->pairs, all->pair_count, &head.remote, &head.local);
        struct inet_end *client = own == NOBODY ? NULL : &all->ends[own];
        if (client && !(client->row.flags & INET_AGAIN))
            return set_bad(f);
        if (client) {
            client->row.flags &= ~(uint32_t)INET_AGAIN;
            head.local = client->row.remote;
        }
        if (tcp_handshake(client ? client->fd : -1, &head, data, f))
            return -1;
        if (client && !tcp_send_whole(client->fd, client->queued, client->row.queued))
            return set_failure(f, "send", "the rest of a TCP connection");
        if (client)
            shut(client);
    }
    return 0;
}

/* A client that nobody has accepted, and whose bytes are all in its own queue. */
static int half_open_again(struct inet_end *e, struct failure *f)
{
    if (tcp_connect_now(e->fd, &e->row.remote) < 0)
        return set_failure(f, "connect", "a TCP connection that waits to be accepted");
    if (!tcp_send_whole(e->fd, e->queued, e->row.queued))
        return set_failure(f, "send", "the rest of a TCP connection");
    shut(e);
    return 0;
}

static int begin_again(struct inet_end *e, struct failure *f)
{
    int flags = fcntl(e->fd, F_GETFL);
    fcntl(e->fd, F_SETFL, flags | O_NONBLOCK);
    int done = connect(e->fd, &e->row.remote.any, e->row.remote.size), err = errno;
    fcntl(e->fd, F_SETFL, flags);
    errno = err;
    return done < 0 && err != EINPROGRESS ? set_failure(f, "connect", "a TCP connection that was being made") : 0;
}

/* A socket of the keeper's own on the loopback, and the name by which another socket reaches it. */
static int own_socket(int type, const struct inet_end *e, struct inet_name *name)
{
    const struct inet_row *row = &e->row;
    int only = saved_value(e, IPPROTO_IPV6, IPV6_V6ONLY);
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(only ? AF_INET6 : AF_INET, type | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, only ? (void *)&six : (void *)&four, only ? sizeof six : sizeof four) < 0 ||
        !inet_named(fd, name, false))
        return -1;
    if (row->domain == AF_INET6 && !only) {
        struct inet_name plain = *name;
        memset(name, 0, sizeof *name);
        name->v6.sin6_family = AF_INET6;
        name->v6.sin6_port = plain.v4.sin_port;
        name->v6.sin6_addr.s6_addr[10] = name->v6.sin6_addr.s6_addr[11] = 0xff;
        memcpy(name->v6.sin6_addr.s6_addr + 12, &plain.v4.sin_addr, 4);
        name->size = sizeof name->v6;
    }
    return fd;
}

/* A connection that is over: it is made with a socket of the keeper's own, gets the bytes that the job has not read,
 * and ends in the same way. It loses its own name. */
static int end_again(struct inet_end *e, struct failure *f)
{
    struct inet_name name;
    struct linger at_once = {1, 0};
    int own = own_socket(SOCK_STREAM, e, &name), other = -1, done = own < 0 ? -1 : 0;
    bool refused = e->row.flags & INET_REFUSED;
    if (!done && refused) { /* nobody listens there */
        e->row.remote = name;
        done = begin_again(e, f);
    } else if (!done) {
        inet_set_buffer(e->fd, SO_RCVBUF, e->row.received * 2 + (1 << 20));
        if (listen(own, 1) < 0 || tcp_connect_now(e->fd, &name) < 0 || (other = accept(own, NULL, NULL)) < 0 ||
            !tcp_send_whole(other, e->received, e->row.received))
            done = -1;
        if (e->row.flags & INET_ERROR)
            setsockopt(other, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        if (other >= 0)
            close(other);
        if (!(e->row.flags & INET_ERROR))
            shutdown(e->fd, SHUT_RDWR);
    }
    int err = errno;
    if (own >= 0)
        close(own);
    errno = err;
    return done < 0 ? set_failure(f, "connect", "a TCP connection that is over") : 0;
}

static int fill_datagrams(struct inet_end *e, struct failure *f)
{
    if (e->row.datagrams)
        inet_set_buffer(e->fd, SO_RCVBUF, INET_MOST / 4);
    for (uint32_t i = 0; i < e->row.datagrams; i++) {
        struct inet_datagram head;
        const char *at = take(e, sizeof head), *data;
        if (!at)
            return set_bad(f);
        memcpy(&head, at, sizeof head);
        if (!inet_valid(&head.from) || !head.from.size || head.size > UINT16_MAX || !(data = take(e, head.size)))
            return set_bad(f);
        if (!datagram_send(&e->row, &head, data))
            return set_failure(f, "send", "an unread datagram");
    }
    if (memberships_restore(e->fd, e->rest, e->rest_size, e->row.memberships, f))
        return -1;
    if (e->row.remote.size && connect(e->fd, &e->row.remote.any, e->row.remote.size) < 0)
        return set_failure(f, "connect", "a UDP socket");
    shut(e);
    return 0;
}

static void set_buffers(const struct inet_end *e)
{
    const struct inet_row *row = &e->row;
    const struct {
        int name;
        uint32_t wanted;
    } both[] = {{SO_RCVBUF, row->receive_buffer}, {SO_SNDBUF, row->send_buffer}};
    for (size_t i = 0; i < 2; i++)
        if ((uint32_t)inet_get(e->fd, SOL_SOCKET, both[i].name, 0) != both[i].wanted)
            inet_set_buffer(e->fd, both[i].name, (both[i].wanted <= INET_MOST ? both[i].wanted : INET_MOST) / 2);
    inet_set(e->fd, SOL_SOCKET, SO_BUF_LOCK, (int)(row->buffer_locks & 3));
}

static int finish(struct inet_end *e, struct failure *f)
{
    const struct inet_row *row = &e->row;
    struct sock_filter *code = calloc(row->filter + 1ul, sizeof *code);
    struct sock_fprog program = {(unsigned short)row->filter, code};
    if (!code)
        return set_failure(f, "malloc", "a filter");
    memcpy(code, e->filter, row->filter * sizeof *code);
    int done = row->filter ? setsockopt(e->fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) : 0;
    free(code);
    if (done < 0)
        return set_failure(f, "setsockopt", "the filter of a socket");
    set_buffers(e);
    inet_set(e->fd, SOL_SOCKET, SO_REUSEADDR, 0);
    inet_set(e->fd, SOL_SOCKET, SO_REUSEPORT, saved_value(e, SOL_SOCKET, SO_REUSEPORT));
    inet_set(e->fd, IPPROTO_IP, IP_FREEBIND,
             saved_value(e, IPPROTO_IP, IP_FREEBIND) | saved_value(e, IPPROTO_IPV6, IPV6_FREEBIND));
    if (row->type == SOCK_STREAM)
        inet_set(e->fd, IPPROTO_TCP, TCP_NODELAY, 0);
    if (inet_options_set(e->fd, row, e->options, true, f))
        return -1;
    if (row->type == SOCK_STREAM && row->state == STATE_LISTEN && listen(e->fd, (int)row->backlog) < 0)
        return set_failure(f, "listen", "a TCP socket");
    return 0;
}

typedef int each_end(struct inet_end *e, struct failure *f);

enum { KIND_LISTENS, KIND_CONNECTED, KIND_BEGUN, KIND_ENDED, KIND_DATAGRAMS, KIND_REST };
static int kind_of(const struct inet_end *e)
{
    const struct inet_row *row = &e->row;
    if (row->type == SOCK_DGRAM)
        return KIND_DATAGRAMS;
    if (row->flags & INET_ENDED)
        return KIND_ENDED;
    if (row->state == STATE_LISTEN)
        return KIND_LISTENS;
    if (row->state == STATE_SYN_SENT && row->remote.size)
        return KIND_BEGUN;
    return is_connection(row) && !(row->flags & INET_AGAIN) ? KIND_CONNECTED : KIND_REST;
}

static int for_kind(struct inet_all *all, int kind, each_end *step, struct failure *f)
{
    for (size_t i = 0; i < all->count; i++)
        if ((kind < 0 || kind_of(&all->ends[i]) == kind) && step(&all->ends[i], f))
            return -1;
    return 0;
}

static int end_repair(struct inet_end *e, struct failure *f)
{
    (void)f;
    tcp_repair_off(e->fd);
    return 0;
}

static int shut_again(struct inet_end *e, struct failure *f)
{
    shut(e);
    return e->row.flags & INET_FIN_READ && !e->peer ? end_for_other(e, f) : 0;
}

static int bind_all(struct inet_all *all, struct failure *f)
{
    return for_kind(all, -1, share_names, f) || for_kind(all, KIND_LISTENS, listen_again, f) ||
                   for_kind(all, KIND_REST, bind_again, f) || for_kind(all, KIND_BEGUN, bind_again, f) ||
                   for_kind(all, KIND_DATAGRAMS, bind_again, f)
               ? -1
               : 0;
}

static int connect_all(struct inet_all *all, struct failure *f)
{
    if (for_kind(all, KIND_CONNECTED, connect_again, f) || for_kind(all, KIND_CONNECTED, end_repair, f) ||
        for_kind(all, KIND_CONNECTED, send_rest, f) || for_kind(all, KIND_CONNECTED, shut_again, f))
        return -1;
    for (size_t i = 0; i < all->count; i++)
        if (kind_of(&all->ends[i]) == KIND_LISTENS && wait_again(all, &all->ends[i], f))
            return -1;
    for (size_t i = 0; i < all->count; i++)
        if (is_connection(&all->ends[i].row) && all->ends[i].row.flags & INET_AGAIN &&
            half_open_again(&all->ends[i], f))
            return -1;
    return for_kind(all, KIND_BEGUN, begin_again, f);
}

/* Called when all files are open. */
int inet_restore(struct restoring *r, struct failure *f)
{
    struct inet_all all = {0};
    int done = collect(r, &all, f);
    join_ends(&all);
    if (!done)
        done = bind_all(&all, f) || connect_all(&all, f) || for_kind(&all, KIND_ENDED, end_again, f) ||
                       for_kind(&all, KIND_DATAGRAMS, fill_datagrams, f) || for_kind(&all, -1, finish, f)
                   ? -1
                   : 0;
    for (size_t i = 0; all.ends && i <= all.count && i < r->image->files.count; i++)
        free(all.ends[i].options);
    free(all.ends);
    free(all.pairs);
    return done;
}
