/* The few requests to the kernel's routing sockets (rtnetlink(7)) that make a job's network device. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sandbox/network.h"

/* Linux 6.3's IFLA_GSO_IPV4_MAX_SIZE, which Debian 12's headers do not have; older kernels pass over it. */
enum { LARGEST_PACKET = 63 };

struct request {
    struct nlmsghdr head;
    char room[1024];
};

static void *begin(struct request *r, uint16_t type, uint16_t flags, size_t fixed)
{
    memset(r, 0, sizeof *r);
    r->head = (struct nlmsghdr){.nlmsg_len = (uint32_t)NLMSG_LENGTH(fixed),
                                .nlmsg_type = type,
                                .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags)};
    return NLMSG_DATA(&r->head);
}

static struct rtattr *add(struct request *r, uint16_t type, const void *data, size_t size)
{
    struct rtattr *a = (struct rtattr *)(void *)((char *)r + NLMSG_ALIGN(r->head.nlmsg_len));
    *a = (struct rtattr){.rta_type = type, .rta_len = (uint16_t)RTA_LENGTH(size)};
    if (size)
        memcpy(RTA_DATA(a), data, size);
    r->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(r->head.nlmsg_len) + RTA_ALIGN(a->rta_len));
    return a;
}

static void end(struct request *r, struct rtattr *nest)
{
    nest->rta_len = (uint16_t)((char *)r + NLMSG_ALIGN(r->head.nlmsg_len) - (char *)nest);
}

/* 0, or -1 and errno as the kernel says. */
static int ask(int link, struct request *r)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[1024];
    } answer;
    if (send(link, r, r->head.nlmsg_len, 0) < 0)
        return -1;
    ssize_t n = recv(link, &answer, sizeof answer, 0);
    if (n < (ssize_t)(sizeof answer.head + sizeof(int)) || answer.head.nlmsg_type != NLMSG_ERROR) {
        errno = n < 0 ? errno : EBADMSG;
        return -1;
    }
    errno = -answer.error.error;
    return errno ? -1 : 0;
}

int netlink_open(void) { return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE); }

int netlink_pair(int link, const char *name, const char *other, const uint8_t address[6], uint32_t mtu)
{
    const uint32_t largest = NETWORK_LARGEST;
    struct request r;
    begin(&r, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg));
    add(&r, IFLA_IFNAME, name, strlen(name) + 1);
    add(&r, IFLA_ADDRESS, address, 6);
    add(&r, IFLA_MTU, &mtu, sizeof mtu);
    add(&r, LARGEST_PACKET, &largest, sizeof largest);
    struct rtattr *info = add(&r, IFLA_LINKINFO, NULL, 0);
    add(&r, IFLA_INFO_KIND, "veth", 4);
    struct rtattr *data = add(&r, IFLA_INFO_DATA, NULL, 0), *peer = add(&r, VETH_INFO_PEER, NULL, 0);
    r.head.nlmsg_len += (uint32_t)NLMSG_ALIGN(sizeof(struct ifinfomsg));
    add(&r, IFLA_IFNAME, other, strlen(other) + 1);
    add(&r, IFLA_MTU, &mtu, sizeof mtu);
    add(&r, LARGEST_PACKET, &largest, sizeof largest);
    end(&r, peer);
    end(&r, data);
    end(&r, info);
    return ask(link, &r);
}

int netlink_device_up(int link, const char *name, unsigned flags)
{
    struct request r;
    struct ifinfomsg *device = begin(&r, RTM_NEWLINK, 0, sizeof *device);
    device->ifi_index = (int)if_nametoindex(name);
    device->ifi_flags = device->ifi_change = flags | IFF_UP;
    return ask(link, &r);
}

int netlink_no_link_address(int link, const char *name)
{
    struct request r;
    const uint8_t none = IN6_ADDR_GEN_MODE_NONE;
    struct ifinfomsg *device = begin(&r, RTM_NEWLINK, 0, sizeof *device);
    device->ifi_index = (int)if_nametoindex(name);
    struct rtattr *families = add(&r, IFLA_AF_SPEC, NULL, 0), *six = add(&r, AF_INET6, NULL, 0);
    add(&r, IFLA_INET6_ADDR_GEN_MODE, &none, sizeof none);
    end(&r, six);
    end(&r, families);
    return ask(link, &r);
}

int netlink_address(int link, const char *name, int family, const void *address, unsigned prefix)
{
    struct request r;
    const uint32_t flags = IFA_F_NODAD | IFA_F_PERMANENT;
    size_t size = family == AF_INET ? 4 : 16;
    struct ifaddrmsg *a = begin(&r, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof *a);
    a->ifa_family = (uint8_t)family;
    a->ifa_prefixlen = (uint8_t)prefix;
    a->ifa_index = if_nametoindex(name);
    add(&r, IFA_LOCAL, address, size);
    add(&r, IFA_ADDRESS, address, size);
    if (family == AF_INET) {
        uint32_t all;
        memcpy(&all, address, sizeof all);
        all |= __builtin_bswap32(prefix < 32 ? ~0u >> prefix : 0);
        add(&r, IFA_BROADCAST, &all, sizeof all);
    }
    add(&r, IFA_FLAGS, &flags, sizeof flags);
    return ask(link, &r);
}

int netlink_all_local(int link, int family)
{
    struct request r;
    const uint32_t device = if_nametoindex("lo");
    struct rtmsg *route = begin(&r, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof *route);
    route->rtm_family = (uint8_t)family;
    route->rtm_table = RT_TABLE_MAIN; /* behind the routes of the devices */
    route->rtm_protocol = RTPROT_STATIC;
    route->rtm_scope = RT_SCOPE_HOST;
    route->rtm_type = RTN_LOCAL;
    add(&r, RTA_OIF, &device, sizeof device);
    return ask(link, &r);
}

int netlink_route(int link, const char *name, int family, const void *to, unsigned prefix)
{
    struct request r;
    const uint32_t device = if_nametoindex(name);
    struct rtmsg *route = begin(&r, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof *route);
    route->rtm_family = (uint8_t)family;
    route->rtm_dst_len = (uint8_t)prefix;
    route->rtm_table = RT_TABLE_MAIN;
    route->rtm_protocol = RTPROT_STATIC;
    route->rtm_scope = RT_SCOPE_LINK;
    route->rtm_type = RTN_UNICAST;
    if (prefix)
        add(&r, RTA_DST, to, family == AF_INET ? 4 : 16);
    add(&r, RTA_OIF, &device, sizeof device);
    return ask(link, &r);
}
