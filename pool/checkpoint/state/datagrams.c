/* The datagrams that a UDP socket has not read: saved without being taken, and sent again from their senders'
 * addresses. The kernel marks an empty one when it is looked at, and does not show it a second time. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/inet.h"

#define DATAGRAMS_MOST (1 << 20)
#define RENEWED_MOST 4096

static char buffer[65536];

bool datagrams_save(struct dump *d, int fd, struct inet_row *row)
{
    int before = inet_get(fd, SOL_SOCKET, SO_PEEK_OFF, -1);
    bool empty = false;
    inet_set(fd, SOL_SOCKET, SO_PEEK_OFF, 0);
    while (row->datagrams < DATAGRAMS_MOST) {
        struct inet_datagram head = {{.size = 0}, 0};
        socklen_t size = sizeof head.from.v6;
        ssize_t n = recvfrom(fd, buffer, sizeof buffer, MSG_PEEK | MSG_DONTWAIT, &head.from.any, &size);
        if (n < 0 || (n == 0 && size == 0)) /* without a sender: shut down, and nothing is left */
            break;
        head.from.size = size;
        head.size = (uint32_t)n;
        image_put(&d->image, &head, sizeof head);
        image_put(&d->image, buffer, head.size);
        row->datagrams++;
        empty = empty || n == 0;
    }
    inet_set(fd, SOL_SOCKET, SO_PEEK_OFF, before);
    memberships_save(d, fd, row);
    return empty;
}

/* To a UDP socket that is bound to any address. */
static void set_target(const struct inet_row *row, bool four, struct inet_name *to)
{
    struct inet_name local;
    inet_plain(&row->local, &local);
    memset(to, 0, sizeof *to);
    if (!inet_is_any(&row->local) || (local.any.sa_family == AF_INET) != four) {
        *to = local;
    }
    if (inet_is_any(&row->local) && four) {
        to->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        to->size = sizeof to->v4;
    } else if (inet_is_any(&row->local)) {
        to->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        to->size = sizeof to->v6;
    }
    if (to->any.sa_family == AF_INET)
        to->v4.sin_port = htons(inet_port(&row->local));
    else
        to->v6.sin6_port = htons(inet_port(&row->local));
}

/* Sends a datagram again, from its sender's address. */
bool datagram_send(const struct inet_row *row, const struct inet_datagram *head, const char *data)
{
    struct inet_name from, to;
    inet_plain(&head->from, &from);
    bool four = from.any.sa_family == AF_INET;
    set_target(row, four, &to);
    int fd = socket(from.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    inet_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    inet_set(fd, four ? IPPROTO_IP : IPPROTO_IPV6, four ? IP_TRANSPARENT : IPV6_TRANSPARENT, 1);
    bool sent = fd >= 0 && bind(fd, &from.any, from.size) == 0 &&
                sendto(fd, data, head->size, MSG_DONTWAIT, &to.any, to.size) == (ssize_t)head->size;
    int err = errno;
    if (fd >= 0)
        close(fd);
    errno = err;
    return sent;
}

struct taken {
    struct inet_datagram head;
    char *data;
};

void datagrams_renew(int fd, const struct inet_row *row)
{
    struct taken *all = calloc(RENEWED_MOST, sizeof *all);
    size_t count = 0;
    for (; all && count < RENEWED_MOST; count++) {
        struct taken *t = &all[count];
        socklen_t size = sizeof t->head.from.v6;
        ssize_t n = recvfrom(fd, buffer, sizeof buffer, MSG_DONTWAIT, &t->head.from.any, &size);
        if (n < 0 || (n == 0 && size == 0))
            break;
        t->head.from.size = size;
        t->head.size = (uint32_t)n;
        if ((t->data = malloc((size_t)n + 1)))
            memcpy(t->data, buffer, (size_t)n);
    }
    for (size_t i = 0; i < count; i++) {
        if (all[i].data)
            datagram_send(row, &all[i].head, all[i].data);
        free(all[i].data);
    }
    free(all);
}
