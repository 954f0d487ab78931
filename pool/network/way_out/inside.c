/* The namespace in which the kernel ends the job's connections: a pair of devices as the job has, every address local.
 * A process of its own has it, since the other one stays where the machine's network is. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "sandbox/network.h"
#include "way_out.h"

#define DEVICE "eth0"
#define WIRE "wire0"
#define MTU 65000
#define ROOM (8 << 20) /* of the packet socket, bytes */
#define BACKLOG 512

#ifndef IPV6_TRANSPARENT
#define IPV6_TRANSPARENT 75
#endif

static const uint8_t hardware[6] = {2, 'p', 'o', 'o', 'l', 1};
/* A machine without IPv6 has the way out for IPv4 alone. */
static int make_six(int link)
{
    return netlink_address(link, DEVICE, AF_INET6, way_out_six, 64) < 0 ? -1 : netlink_all_local(link, AF_INET6);
}

static int make_network(void)
{
    int link = netlink_open();
    if (link < 0 || netlink_device_up(link, "lo", 0) < 0 || netlink_pair(link, DEVICE, WIRE, hardware, MTU) < 0)
        return -1;
    (void)netlink_no_link_address(link, WIRE);
    (void)netlink_no_link_address(link, DEVICE);
    if (netlink_device_up(link, WIRE, IFF_NOARP) < 0 || netlink_device_up(link, DEVICE, IFF_NOARP) < 0 ||
        netlink_address(link, DEVICE, AF_INET, way_out_four + 12, 16) < 0 || netlink_all_local(link, AF_INET) < 0)
        return -1;
    (void)make_six(link);
    return close(link);
}

static int packet_socket(void)
{
    const int one = 1, room = ROOM;
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    at.sll_ifindex = (int)if_nametoindex(WIRE);
    if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) < 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) < 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof at) < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    return fd;
}

static int listening(const struct end *at)
{
    const int one = 1;
    struct sockaddr_storage name;
    socklen_t size = socket_name(at, &name);
    bool is_six = name.ss_family == AF_INET6;
    int fd = socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if ((is_six ? setsockopt(fd, IPPROTO_IPV6, IPV6_TRANSPARENT, &one, sizeof one)
                : setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &one, sizeof one)) < 0 ||
        (is_six && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) < 0) ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(fd, (struct sockaddr *)&name, size) < 0 || listen(fd, BACKLOG) < 0) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

/* One int, 0 or an errno, and with 0 a descriptor. */
static int answer(int to, int fd)
{
    int err = fd < 0 ? errno : 0;
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {&err, sizeof err};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = &control, m.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    ssize_t n = sendmsg(to, &m, MSG_NOSIGNAL);
    if (fd >= 0)
        close(fd);
    return n < 0 ? -1 : 0;
}

static int answered(int from)
{
    int err = 0, fd = -1;
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {&err, sizeof err};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(from, &m, MSG_CMSG_CLOEXEC) != sizeof err) {
        errno = EPIPE;
        return -1;
    }
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (!err && c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    errno = err ? err : EPROTO;
    return fd;
}

static int write_to(pid_t pid, const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n < 0 ? -1 : 0;
}

/* Makes the child root of its user namespace, so that it owns its network's lists. It cannot do so itself: it has no
 * rights, and where root has started it, its entries in /proc are root's. */
static void make_root(pid_t child)
{
    char map[64];
    bool is_root = geteuid() == 0;
    (void)write_to(child, "setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", is_root ? NOBODY : geteuid());
    (void)write_to(child, "uid_map", map);
    snprintf(map, sizeof map, "0 %u 1", is_root ? NOBODY : getegid());
    (void)write_to(child, "gid_map", map);
}

static void live_inside(int to)
{
    struct end at;
    close(NODE);
    close(DECIDER);
    int err = drop_rights() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || unshare(CLONE_NEWUSER) < 0 ? errno : 0;
    if (send(to, &err, sizeof err, MSG_NOSIGNAL) < 0 || err || recv(to, &err, sizeof err, 0) != sizeof err)
        return;
    int wire = unshare(CLONE_NEWNET) < 0 || make_network() < 0 ? -1 : packet_socket();
    err = errno;
    (void)network_hide(0, 0); /* where the kernel does not let it, the lists are as those of every process */
    errno = err;
    if (answer(to, wire) < 0 || wire < 0)
        return;
    while (recv(to, &at, sizeof at, 0) == sizeof at)
        if (answer(to, listening(&at)) < 0)
            return;
}

int inside_start(int *wire)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    pid_t child = fork();
    if (child < 0)
        return -1;
    if (child == 0) {
        close(ends[0]);
        live_inside(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    int err = 0;
    if (recv(ends[0], &err, sizeof err, 0) != sizeof err)
        err = EPIPE;
    if (!err) {
        make_root(child);
        err = send(ends[0], &err, sizeof err, MSG_NOSIGNAL) < 0 ? errno : 0;
    }
    *wire = err ? -1 : answered(ends[0]);
    if (err)
        errno = err;
    return *wire < 0 ? -1 : ends[0];
}

int inside_listen(int inside, const struct end *at)
{
    if (send(inside, at, sizeof *at, MSG_NOSIGNAL) < 0)
        return -1;
    return answered(inside);
}
