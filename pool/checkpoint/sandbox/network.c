/* A network of the job's own, in its network namespace: a pair of devices (veth(4)). The job has `eth0` with its
 * addresses. At the other one, `wire0`, a packet socket (packet(7)) reads what the job sends and writes what it gets;
 * pool/network/relay carries that to the job's other parts. Needs neither root nor /dev/net/tun.
 *
 * The device asks for no hardware addresses (IFF_NOARP): every part's device has the same one, so there is no ARP and
 * no neighbour discovery to lie in, and the relay judges packets by their IP addresses alone. A job has no power over
 * its namespace, so it can change neither address nor routes, and can open no packet or raw socket. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/mount.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox/network.h"
#include "sandbox/sandbox.h"

#define DEVICE "eth0"
#define WIRE "wire0"
#define MTU 65000
/* of the packet socket, bytes: some hundred milliseconds of a busy relay */
#define ROOM (8 << 20)

static const uint8_t hardware[6] = {2, 'p', 'o', 'o', 'l', 1};

/* The strings of a start message about a job's network: see KeeperSpec.network_setup. */
enum setup { HOST_NAME, ADDRESS_4, ADDRESS_6, HOSTS, RESOLVER, SETUP_COUNT };

/* Of a machine that has no IPv6, or has it switched off, the jobs have none either. */
static bool lacks_six(void) { return errno == EAFNOSUPPORT || errno == EACCES || errno == EOPNOTSUPP; }

static int refuse_setup(const char *text, struct failure *f)
{
    errno = EINVAL;
    return set_failure(f, "network", text);
}

static int set_address(int link, int family, const char *text, struct failure *f)
{
    char address[64];
    uint8_t bytes[16];
    copy_text(address, sizeof address, text);
    char *slash = strchr(address, '/');
    if (!slash)
        return refuse_setup(text, f);
    *slash = 0;
    if (inet_pton(family, address, bytes) != 1)
        return refuse_setup(text, f);
    if (netlink_address(link, DEVICE, family, bytes, (unsigned)atoi(slash + 1)) == 0 ||
        (family == AF_INET6 && lacks_six()))
        return 0;
    return set_failure(f, "network", text);
}

/* Multicast among the parts leaves by the device, too. Nothing else outside their addresses has a route, unless the job
 * has a way out: then all leaves by the device, and pool/network/way_out decides. */
static int set_routes(int link, bool way_out, struct failure *f)
{
    static const uint8_t groups[4] = {224}, any[4] = {0};
    if (netlink_route(link, DEVICE, AF_INET, groups, 4) < 0)
        return set_failure(f, "network", "the route of multicast");
    if (!way_out)
        return 0;
    if (netlink_route(link, DEVICE, AF_INET, any, 0) < 0 ||
        (netlink_route(link, DEVICE, AF_INET6, any, 0) < 0 && !lacks_six() && errno != ENODEV))
        return set_failure(f, "network", "the route to the outside");
    return 0;
}

static int device_up(int link, const char *name)
{
    if (netlink_no_link_address(link, name) < 0 && !lacks_six())
        return -1;
    return netlink_device_up(link, name, IFF_NOARP);
}

static int make_devices(int link)
{
    if (netlink_device_up(link, "lo", 0) < 0 || netlink_pair(link, DEVICE, WIRE, hardware, MTU) < 0)
        return -1;
    return device_up(link, WIRE) < 0 ? -1 : device_up(link, DEVICE);
}

int network_try(void)
{
    int link = unshare(CLONE_NEWNET | CLONE_NEWUTS) < 0 ? -1 : netlink_open();
    return link < 0 || make_devices(link) < 0 || network_wire() < 0 ? -1 : 0;
}

int network_up(const struct job *job, struct failure *f)
{
    char **setup = job->network;
    if (job->start->network != SETUP_COUNT)
        return refuse_setup("a start without the job's addresses", f);
    int link = netlink_open();
    if (link < 0 || make_devices(link) < 0)
        return set_failure(f, "network", "a device of the job's own");
    if (set_address(link, AF_INET, setup[ADDRESS_4], f) || set_address(link, AF_INET6, setup[ADDRESS_6], f) ||
        set_routes(link, *setup[RESOLVER], f))
        return -1;
    close(link);
    return sethostname(setup[HOST_NAME], strlen(setup[HOST_NAME])) < 0 ? set_failure(f, "sethostname", "") : 0;
}

static int write_whole(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0)
        return -1;
    size_t size = strlen(text);
    ssize_t n = write(fd, text, size);
    return close(fd) < 0 || n != (ssize_t)size ? -1 : 0;
}

/* The file lies in a memory file system that no name leads to any more when the file is mounted. */
static int mount_file(const char *text, const char *path, struct failure *f)
{
    struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};
    char options[64];
    snprintf(options, sizeof options, "mode=0755,nr_inodes=4,size=%zu", (strlen(text) | 4095) + 4097);
    if (mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
        return set_failure(f, "mount tmpfs", path);
    int done = write_whole("/tmp/file", text);
    if (done == 0)
        done = mount("/tmp/file", path, NULL, MS_BIND, NULL);
    int err = errno;
    umount2("/tmp", MNT_DETACH);
    errno = err;
    if (done < 0 || syscall(SYS_mount_setattr, AT_FDCWD, path, 0, &a, sizeof a) < 0)
        return set_failure(f, "mount", path);
    return 0;
}

int network_names(const struct job *job, struct failure *f)
{
    if (!(settings.able & ABLE_MOUNT))
        return 0; /* the addresses are all that it has */
    if (mount_file(job->network[HOSTS], "/etc/hosts", f) < 0)
        return -1;
    if (!*job->network[RESOLVER] || access("/etc/resolv.conf", F_OK) < 0)
        return 0; /* a machine without resolver asks nobody */
    return mount_file(job->network[RESOLVER], "/etc/resolv.conf", f);
}

/* A sysfs shows the devices of the network in which it was mounted, so two of its directories take the place of the
 * machine's: the links in the first lead to the second. An ordinary user may mount it only where the machine hides
 * nothing of its own; without it a program that looks there sees the machine's devices. */
void network_show_devices(void)
{
    static const char *const places[] = {"class/net", "devices/virtual/net"};
    const unsigned long flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    char from[64], to[64];
    if (!(settings.able & ABLE_MOUNT) || mount("sysfs", "/tmp", "sysfs", flags, NULL) < 0)
        return;
    for (size_t i = sizeof places / sizeof *places; i--;) {
        snprintf(from, sizeof from, "/tmp/%s", places[i]);
        snprintf(to, sizeof to, "/sys/%s", places[i]);
        if (mount(from, to, NULL, MS_BIND, NULL) < 0)
            break; /* links that lead nowhere would be worse than the machine's */
    }
    umount2("/tmp", MNT_DETACH);
}

static void set_kernel(const char *name, const char *text)
{
    int fd = open(name, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = write(fd, text, strlen(text)); /* without it a program is refused what it is refused outside, too */
    (void)n;
    close(fd);
}

/* Nobody else is in this network, so each port is free for the job, and each of its users may ask for echoes. */
void network_settings(void)
{
    char groups[32];
    set_kernel("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
    snprintf(groups, sizeof groups, "%u %u", getegid(), getegid());
    set_kernel("/proc/sys/net/ipv4/ping_group_range", settings.able & ABLE_SETUID ? "0 2147483647" : groups);
}

int network_wire(void)
{
    const int one = 1, room = ROOM;
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    int wire = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    at.sll_ifindex = (int)if_nametoindex(WIRE);
    if (wire < 0)
        return -1;
    if (setsockopt(wire, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) < 0 ||
        setsockopt(wire, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) < 0 ||
        bind(wire, (struct sockaddr *)&at, sizeof at) < 0) {
        int err = errno;
        close(wire);
        errno = err;
        return -1;
    }
    if (setsockopt(wire, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) < 0) /* only the machine's root may force it */
        setsockopt(wire, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (setsockopt(wire, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) < 0)
        setsockopt(wire, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    return wire;
}

int network_connect(uint16_t port, bool by_six)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const struct sockaddr *to = by_six ? (const void *)&six : (const void *)&four;
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, to, by_six ? sizeof six : sizeof four) == 0 || errno == EINPROGRESS)
        return fd;
    int err = errno;
    close(fd);
    errno = err;
    return -1;
}
