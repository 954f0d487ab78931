/* Addresses of TCP and UDP sockets. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/inet.h"

bool inet_named(int fd, struct inet_name *name, bool peer)
{
    socklen_t size = sizeof name->v6;
    memset(name, 0, sizeof *name);
    if ((peer ? getpeername : getsockname)(fd, &name->any, &size) < 0 || size > sizeof name->v6) {
        memset(name, 0, sizeof *name);
        return false;
    }
    name->size = size;
    return true;
}

uint16_t inet_port(const struct inet_name *name)
{
    return ntohs(name->any.sa_family == AF_INET6 ? name->v6.sin6_port : name->v4.sin_port);
}

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

static void address_of(const struct inet_name *name, uint8_t address[16])
{
    if (name->any.sa_family == AF_INET6) {
        memcpy(address, &name->v6.sin6_addr, 16);
        return;
    }
    memcpy(address, mapped, sizeof mapped);
    memcpy(address + sizeof mapped, &name->v4.sin_addr, 4);
}

bool inet_same(const struct inet_name *a, const struct inet_name *b)
{
    uint8_t first[16], second[16];
    address_of(a, first);
    address_of(b, second);
    return a->size && b->size && inet_port(a) == inet_port(b) && memcmp(first, second, sizeof first) == 0;
}

bool inet_plain(const struct inet_name *name, struct inet_name *plain)
{
    *plain = *name;
    if (name->any.sa_family != AF_INET6 || memcmp(&name->v6.sin6_addr, mapped, sizeof mapped) != 0)
        return false;
    memset(plain, 0, sizeof *plain);
    plain->v4.sin_family = AF_INET;
    plain->v4.sin_port = name->v6.sin6_port;
    memcpy(&plain->v4.sin_addr, (const char *)&name->v6.sin6_addr + sizeof mapped, 4);
    plain->size = sizeof plain->v4;
    return true;
}

bool inet_valid(const struct inet_name *name)
{
    return !name->size || (name->any.sa_family == AF_INET && name->size == sizeof name->v4) ||
           (name->any.sa_family == AF_INET6 && name->size == sizeof name->v6);
}

bool inet_is_any(const struct inet_name *name)
{
    static const uint8_t none[16];
    uint8_t address[16];
    address_of(name, address);
    return memcmp(address, none, sizeof none) == 0 ||
           (memcmp(address, mapped, sizeof mapped) == 0 && memcmp(address + sizeof mapped, none, 4) == 0);
}

void inet_write(const struct inet_name *name, char *text, size_t size)
{
    char address[INET6_ADDRSTRLEN] = "?";
    struct inet_name plain;
    inet_plain(name, &plain);
    bool six = plain.any.sa_family == AF_INET6;
    inet_ntop(plain.any.sa_family, six ? (void *)&plain.v6.sin6_addr : (void *)&plain.v4.sin_addr, address,
              sizeof address);
    snprintf(text, size, "%s:%u", address, inet_port(name));
}

/* Whether the two addresses are the same in the bits of the mask, or in all bits without one. */
static bool agrees(const struct inet_name *name, const struct sockaddr *own, const struct sockaddr *mask)
{
    bool six = own->sa_family == AF_INET6;
    size_t size = six ? 16 : 4;
    uint8_t a[16], b[16], m[16];
    memset(m, 0xff, sizeof m);
    memcpy(a, six ? (const void *)&name->v6.sin6_addr : (const void *)&name->v4.sin_addr, size);
    memcpy(b,
           six ? (const void *)&((const struct sockaddr_in6 *)(const void *)own)->sin6_addr
               : (const void *)&((const struct sockaddr_in *)(const void *)own)->sin_addr,
           size);
    if (mask)
        memcpy(m,
               six ? (const void *)&((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr
                   : (const void *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr,
               size);
    for (size_t i = 0; i < size; i++)
        if ((a[i] ^ b[i]) & m[i])
            return false;
    return true;
}

/* The devices do not change while a job is saved or restored. */
static bool is_of_device(const struct inet_name *name, bool whole)
{
    static struct ifaddrs *all;
    struct inet_name plain;
    bool found = false;
    inet_plain(name, &plain);
    if (!all && getifaddrs(&all) < 0)
        return false;
    for (const struct ifaddrs *at = all; at && !found; at = at->ifa_next)
        found = at->ifa_addr && at->ifa_addr->sa_family == plain.any.sa_family &&
                agrees(&plain, at->ifa_addr, whole && !(at->ifa_flags & IFF_LOOPBACK) ? NULL : at->ifa_netmask);
    return found;
}

/* All of 127.0.0.0/8 is an address of the machine. */
bool inet_is_near(const struct inet_name *name) { return is_of_device(name, true); }
bool inet_is_part(const struct inet_name *name) { return is_of_device(name, false); }

void inet_pair_set(struct inet_pair *pair, const struct inet_name *local, const struct inet_name *remote)
{
    uint16_t ports[2] = {inet_port(local), inet_port(remote)};
    address_of(local, pair->key);
    address_of(remote, pair->key + 16);
    memcpy(pair->key + 32, ports, sizeof ports);
}

static int compare(const void *a, const void *b)
{
    return memcmp(((const struct inet_pair *)a)->key, ((const struct inet_pair *)b)->key,
                  sizeof((struct inet_pair *)0)->key);
}

void inet_pairs_sort(struct inet_pair *all, size_t count)
{
    if (count)
        qsort(all, count, sizeof *all, compare);
}

uint32_t inet_pair_find(const struct inet_pair *all, size_t count, const struct inet_name *local,
                        const struct inet_name *remote)
{
    struct inet_pair wanted;
    inet_pair_set(&wanted, local, remote);
    const struct inet_pair *found = count ? bsearch(&wanted, all, count, sizeof *all, compare) : NULL;
    return found ? found->which : NOBODY;
}
