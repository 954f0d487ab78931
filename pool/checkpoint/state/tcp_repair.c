/* One TCP connection in the kernel's repair mode (TCP_REPAIR, Linux 3.5): both queues and sequence numbers are read
 * from it without a segment being sent, and a new socket becomes the same end of it without a handshake. Needs
 * CAP_NET_ADMIN in the user namespace of the job's network namespace, which the keeper has. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "state/inet.h"

#define TRIES 20
#define MSS_MOST 32767 /* of TCP_MAXSEG */
#define SLACK 65536u /* bytes that may arrive between two looks at a queue */

int tcp_repair_on(int fd) { return inet_set(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_ON) ? 0 : -1; }

/* Without a window probe if the kernel can (Linux 4.19). It resets SO_REUSEADDR. */
void tcp_repair_off(int fd)
{
    if (!inet_set(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP))
        inet_set(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF);
}

/* Whether bytes follow those that were peeked: peeking ends before an out-of-band byte. Linux 6.9 can tell. */
static bool more_follows(int fd, uint32_t peeked)
{
    char byte;
    bool more = inet_set(fd, SOL_SOCKET, SO_PEEK_OFF, (int)peeked) && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    inet_set(fd, SOL_SOCKET, SO_PEEK_OFF, -1);
    return more;
}

/* Reads one queue of a socket in repair mode: its bytes, and the sequence number after them (with an end, if there is
 * one). The caller frees the bytes; NULL and errno EILSEQ: an out-of-band byte is in the queue. */
void *tcp_peek(int fd, int queue, uint32_t *size, uint32_t *seq)
{
    int offset = inet_get(fd, SOL_SOCKET, SO_PEEK_OFF, -1);
    bool receives = queue == TCP_RECV_QUEUE, moved = false;
    char *buffer = NULL;
    int waiting = 0, err = EAGAIN, done = -1;
    if (receives && offset >= 0)
        moved = inet_set(fd, SOL_SOCKET, SO_PEEK_OFF, -1);
    inet_set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, queue);
    for (int i = 0; i < TRIES && done < 0 && err == EAGAIN; i++) {
        *seq = (uint32_t)inet_get(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, 0);
        if (ioctl(fd, receives ? SIOCINQ : SIOCOUTQ, &waiting) < 0 || waiting < 0 || (uint32_t)waiting > INET_MOST) {
            err = waiting > 0 ? EFBIG : errno;
            break;
        }
        free(buffer);
        if (!(buffer = malloc((size_t)waiting + SLACK))) {
            err = ENOMEM;
            break;
        }
        ssize_t n = waiting ? recv(fd, buffer, (size_t)waiting + SLACK, MSG_PEEK | MSG_DONTWAIT) : 0;
        *size = n > 0 ? (uint32_t)n : 0;
        bool more = receives && more_follows(fd, *size);
        if ((uint32_t)inet_get(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, 0) != *seq || *size == (uint32_t)waiting + SLACK)
            continue; /* bytes have arrived meanwhile */
        if (more)
            err = EILSEQ;
        else
            done = 0;
    }
    inet_set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_NO_QUEUE);
    if (moved)
        inet_set(fd, SOL_SOCKET, SO_PEEK_OFF, offset);
    if (done == 0)
        return buffer;
    free(buffer);
    errno = err;
    return NULL;
}

static bool set_seq(int fd, int queue, uint32_t seq)
{
    return inet_set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, queue) && inet_set(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, (int)seq);
}

/* The options that the handshake agreed on. The lowest bit of a time stamp is a flag (Linux 6.7). */
static bool set_agreed(int fd, const struct inet_row *row)
{
    struct tcp_repair_opt all[4];
    size_t count = 0;
    if (row->mss)
        all[count++] = (struct tcp_repair_opt){2 /* TCPOPT_MAXSEG */, row->mss};
    if (row->tcp_options & TCPI_OPT_WSCALE)
        all[count++] = (struct tcp_repair_opt){3 /* TCPOPT_WINDOW */, row->send_scale | row->receive_scale << 16};
    if (row->tcp_options & TCPI_OPT_SACK)
        all[count++] = (struct tcp_repair_opt){4 /* TCPOPT_SACK_PERMITTED */, 0};
    if (row->tcp_options & TCPI_OPT_TIMESTAMPS)
        all[count++] = (struct tcp_repair_opt){8 /* TCPOPT_TIMESTAMP */, 0};
    if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, all, (socklen_t)(count * sizeof *all)) < 0)
        return false;
    return !(row->tcp_options & TCPI_OPT_TIMESTAMPS) ||
           inet_set(fd, IPPROTO_TCP, TCP_TIMESTAMP, (int)((row->timestamp + 1) & ~1u));
}

static bool fill_queue(int fd, int queue, const char *data, size_t size)
{
    if (size && !inet_set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, queue))
        return false;
    while (size) {
        ssize_t n = send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

/* A window that fits the sequence numbers: the kernel refuses others. */
static bool set_window(int fd, const struct inet_row *row)
{
    struct tcp_repair_window w = {.snd_wl1 = row->window[0],
                                  .snd_wnd = row->window[1],
                                  .max_window = row->window[2],
                                  .rcv_wnd = row->window[3],
                                  .rcv_wup = row->window[4]};
    if ((int32_t)(w.rcv_wup - row->receive_seq) > 0)
        w.rcv_wup = row->receive_seq;
    if ((int32_t)(w.snd_wl1 - (row->receive_seq + w.rcv_wnd)) > 0)
        w.snd_wl1 = row->receive_seq;
    if (w.max_window < w.snd_wnd)
        w.max_window = w.snd_wnd;
    return setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &w, sizeof w) == 0 || errno == ENOPROTOOPT; /* Linux 4.8 */
}

/* Makes a new socket that end. `queued`: the bytes that count as sent; the caller sends the rest. It stays in repair
 * mode. */
int tcp_restore(int fd, const struct inet_row *row, const char *received, const char *queued, struct failure *f)
{
    if (tcp_repair_on(fd) < 0)
        return set_failure(f, "setsockopt", "TCP_REPAIR");
    if (bind(fd, &row->local.any, row->local.size) < 0)
        return set_failure(f, "bind", "the end of a TCP connection");
    if (!set_seq(fd, TCP_RECV_QUEUE, row->receive_seq - row->received) ||
        !set_seq(fd, TCP_SEND_QUEUE, row->send_seq - row->queued))
        return set_failure(f, "setsockopt", "TCP_QUEUE_SEQ");
    /* the size of segments is known to the connection only if it is known before */
    inet_set(fd, IPPROTO_TCP, TCP_MAXSEG, (int)(row->mss < MSS_MOST ? row->mss : MSS_MOST));
    if (connect(fd, &row->remote.any, row->remote.size) < 0)
        return set_failure(f, "connect", "the end of a TCP connection");
    inet_set(fd, IPPROTO_TCP, TCP_MAXSEG, 0);
    if (!set_agreed(fd, row))
        return set_failure(f, "setsockopt", "TCP_REPAIR_OPTIONS");
    if (!fill_queue(fd, TCP_RECV_QUEUE, received, row->received) ||
        !fill_queue(fd, TCP_SEND_QUEUE, queued, row->queued - row->unsent))
        return set_failure(f, "send", "the queues of a TCP connection");
    inet_set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_NO_QUEUE);
    if (!set_window(fd, row))
        return set_failure(f, "setsockopt", "TCP_REPAIR_WINDOW");
    setsockopt(fd, IPPROTO_IP, IP_OPTIONS, NULL, 0); /* the kernel computes the size of segments again */
    return 0;
}
