/* Splices: two connections, of two machines that do not reach each other. The bytes of each go on to the other one.
 * They are sealed by the machines' relays for each other, so nothing here can read them, and nothing looks at them.
 *
 * While a connection does not take its bytes, nothing more is read from the other one: at most one PIECE waits, and the
 * kernels slow the sender down. When one connection ends both do, and the machines make the link again. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "relay.h"

static struct port *other_of(const struct port *p) { return &network.ports[p->tied[0] - 1]; }

/* The node ends a splice by closing its end of the leash, and hears of an end by it. */
bool splice_add(int one, int other, int leash)
{
    int at[3];
    at[0] = port_add(SPLICE, one);
    at[1] = at[0] < 0 ? -1 : port_add(SPLICE, other);
    at[2] = at[1] < 0 ? -1 : port_add(LEASH, leash);
    if (at[2] < 0) {
        for (int i = 0; i < 2 && at[i] >= 0; i++)
            network.ports[at[i]].kind = CLOSED;
        return false;
    }
    for (int i = 0; i < 3; i++) {
        network.ports[at[i]].tied[0] = (uint16_t)(at[i == 0] + 1);
        network.ports[at[i]].tied[1] = (uint16_t)(at[i == 2 ? 1 : 2] + 1);
    }
    return true;
}

short splice_events(const struct port *p)
{
    return p->kind == LEASH ? POLLIN : (other_of(p)->out ? 0 : POLLIN) | (p->out ? POLLOUT : 0);
}

/* Sends what it can of these bytes. Less than `size`: the rest has to wait; -1: the connection is over. */
static ssize_t give(struct port *p, const uint8_t *bytes, size_t size)
{
    ssize_t n = send(p->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n >= 0 ? n : errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? 0 : -1;
}

static void write_waiting(struct port *p)
{
    ssize_t n = give(p, p->out + p->out_start, p->out_end - p->out_start);
    if (n < 0) {
        port_close(p);
        return;
    }
    p->out_start += (size_t)n;
    if (p->out_start < p->out_end)
        return;
    free(p->out);
    p->out = NULL;
}

static void pass_piece(struct port *p)
{
    static uint8_t piece[PIECE];
    struct port *to = other_of(p);
    ssize_t n = recv(p->fd, piece, sizeof piece, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    ssize_t gone = n > 0 ? give(to, piece, (size_t)n) : -1;
    if (gone >= 0 && gone < n && (to->out = malloc((size_t)(n - gone)))) {
        to->out_start = 0;
        to->out_end = (size_t)(n - gone);
        memcpy(to->out, piece + gone, to->out_end);
    } else if (gone != n) {
        port_close(p);
    }
}

void splice_serve(struct port *p, short events)
{
    if (p->out && events & POLLOUT)
        write_waiting(p);
    char byte;
    if (p->kind == LEASH && recv(p->fd, &byte, 1, MSG_DONTWAIT) == 0)
        port_close(p);
    if (p->kind != SPLICE)
        return;
    if (!other_of(p)->out)
        pass_piece(p);
    else if (events & (POLLERR | POLLHUP))
        port_close(p);
}
