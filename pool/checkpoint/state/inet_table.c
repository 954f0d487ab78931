/* The TCP sockets of the keeper's network namespace, as /proc/net/tcp lists them. It tells of sockets that no process
 * has open, and the other side of a connection that is still being made. */
#define _GNU_SOURCE
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/inet.h"

static void parse_name(const char *text, unsigned port, struct inet_name *name)
{
    uint32_t words[4] = {0};
    size_t count = strlen(text) / 8;
    memset(name, 0, sizeof *name);
    for (size_t i = 0; i < count && i < 4; i++)
        sscanf(text + i * 8, "%8x", &words[i]);
    if (count == 4) {
        name->v6.sin6_family = AF_INET6;
        name->v6.sin6_port = htons((uint16_t)port);
        memcpy(&name->v6.sin6_addr, words, 16);
        name->size = sizeof name->v6;
    } else {
        name->v4.sin_family = AF_INET;
        name->v4.sin_port = htons((uint16_t)port);
        memcpy(&name->v4.sin_addr, words, 4);
        name->size = sizeof name->v4;
    }
}

struct inet_entry *inet_table(size_t *count)
{
    static const char *const files[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
    struct inet_entry *all = NULL;
    char line[512], local[40], remote[40];
    unsigned port, remote_port, state, unsent;
    unsigned long inode;
    size_t room = 0;
    *count = 0;
    for (size_t i = 0; i < 2; i++) {
        FILE *f = fopen(files[i], "re");
        while (f && fgets(line, sizeof line, f)) {
            if (sscanf(line, " %*d: %39[0-9A-F]:%x %39[0-9A-F]:%x %x %x:%*x %*s %*s %*u %*u %lu", local, &port, remote,
                       &remote_port, &state, &unsent, &inode) != 7)
                continue;
            if (*count == room) {
                room = room ? 2 * room : 64;
                struct inet_entry *more = realloc(all, room * sizeof *all);
                if (!more)
                    break;
                all = more;
            }
            struct inet_entry *e = &all[(*count)++];
            parse_name(local, port, &e->local);
            parse_name(remote, remote_port, &e->remote);
            e->state = state;
            e->unsent = unsent;
            e->inode = inode;
        }
        if (f)
            fclose(f);
    }
    return all;
}

static long counted(const char *path, const char *begin)
{
    char line[256];
    long count = -1;
    size_t size = strlen(begin);
    FILE *f = fopen(path, "re");
    while (f && count < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, begin, size) == 0)
            count = strtol(line + size, NULL, 10);
    if (f)
        fclose(f);
    return count;
}

long inet_tcp_count(void)
{
    long near = counted("/proc/self/net/sockstat", "TCP: inuse ");
    bool has_6 = access("/proc/self/net/sockstat6", F_OK) == 0;
    long more = has_6 ? counted("/proc/self/net/sockstat6", "TCP6: inuse ") : 0;
    return near < 0 || more < 0 ? -1 : near + more;
}

static uint8_t shutdown_of(const struct nlmsghdr *head)
{
    const char *end = (const char *)head + head->nlmsg_len;
    const struct rtattr *at =
        (const void *)((const char *)NLMSG_DATA(head) + NLMSG_ALIGN(sizeof(struct inet_diag_msg)));
    for (int left = (int)(end - (const char *)at); RTA_OK(at, left); at = RTA_NEXT(at, left))
        if (at->rta_type == INET_DIAG_SHUTDOWN && RTA_PAYLOAD(at) >= 1)
            return *(const uint8_t *)RTA_DATA(at);
    return 0;
}

static void read_shutdowns(int fd, inet_each_shutdown *each, void *context)
{
    _Alignas(8) static char buffer[65536];
    for (;;) {
        ssize_t n = recv(fd, buffer, sizeof buffer, 0);
        const struct nlmsghdr *head = (void *)buffer;
        for (; n > 0 && NLMSG_OK(head, (size_t)n); head = NLMSG_NEXT(head, n)) {
            if (head->nlmsg_type == NLMSG_DONE || head->nlmsg_type == NLMSG_ERROR)
                return;
            const struct inet_diag_msg *message = NLMSG_DATA(head);
            uint8_t how = head->nlmsg_len >= NLMSG_LENGTH(sizeof *message) ? shutdown_of(head) : 0;
            if (how)
                each(context, message->idiag_inode, how);
        }
        if (n <= 0)
            return;
    }
}

void inet_udp_shutdowns(inet_each_shutdown *each, void *context)
{
    const uint8_t families[] = {AF_INET, AF_INET6};
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    for (size_t i = 0; fd >= 0 && i < sizeof families; i++) {
        struct {
            struct nlmsghdr head;
            struct inet_diag_req_v2 body;
        } request = {.head = {.nlmsg_len = sizeof request,
                              .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                              .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                     .body = {.sdiag_family = families[i],
                              .sdiag_protocol = IPPROTO_UDP,
                              .idiag_ext = 1 << (INET_DIAG_SHUTDOWN - 1),
                              .idiag_states = ~0u}};
        if (send(fd, &request, sizeof request, 0) == (ssize_t)sizeof request)
            read_shutdowns(fd, each, context);
    }
    if (fd >= 0)
        close(fd);
}
