/* Which connections may begin: pure, but for one question to the kernel, whether an address is this machine's own. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "way_out.h"

struct rules rules;

/* Never by a rule for many addresses: loopback, addresses of a link, of many receivers or of nobody. */
static const struct {
    uint8_t address[16];
    uint8_t prefix;
} guarded[] = {
    {{[10] = 0xff, 0xff, 0}, 104},
    {{[10] = 0xff, 0xff, 127}, 104},
    {{[10] = 0xff, 0xff, 169, 254}, 112},
    {{[10] = 0xff, 0xff, 224}, 99},
    {{0}, 96},
    {{0xfe, 0x80}, 10},
    {{0xff}, 8},
    /* the same as 169.254.169.254 on machines of Amazon, Google, Azure and Alibaba: a machine's own passwords */
    {{0xfd, 0x00, 0x0e, 0xc2}, 32},
    {{0xfd, 0x20, 0x00, 0xce}, 32},
    {{[10] = 0xff, 0xff, 168, 63, 129, 16}, 128},
    {{[10] = 0xff, 0xff, 100, 100, 100, 200}, 128},
};
/* IPv6 addresses that a translator turns into IPv4 ones, and the byte where those are: RFC 6052, 2765, 3056. */
static const struct {
    uint8_t address[16];
    uint8_t prefix, at;
} translated[] = {
    {{0x00, 0x64, 0xff, 0x9b}, 96, 12},
    {{[8] = 0xff, 0xff}, 96, 12},
    {{0x20, 0x02}, 16, 2},
};
/* The job's own network, and the addresses that only a rule with `to` gives a meaning: pool/jobs/network.py and
 * destinations.py. */
static const struct {
    uint8_t address[16];
    uint8_t prefix;
} own[] = {{{[10] = 0xff, 0xff, 10, 77}, 112},
           {{[10] = 0xff, 0xff, 192, 0, 2, 252}, 126},
           {{0xfd, 0x70, 0x6f, 0x6f, 0x6c}, 64}};

static bool within(const uint8_t *address, const uint8_t *range, unsigned prefix)
{
    unsigned whole = prefix / 8, rest = prefix % 8;
    if (memcmp(address, range, whole) != 0)
        return false;
    return !rest || !((address[whole] ^ range[whole]) >> (8 - rest));
}

bool rules_set(const uint8_t *data, size_t size)
{
    if (size % sizeof(struct rule) || size / sizeof(struct rule) > RULES_MOST)
        return false;
    struct rule *all = malloc(size + 1);
    if (!all)
        return false;
    memcpy(all, data, size);
    free(rules.all);
    rules = (struct rules){all, size / sizeof *all};
    for (size_t i = 0; i < rules.count; i++)
        if (all[i].prefix > 128)
            return false;
    return true;
}

socklen_t socket_name(const struct end *e, struct sockaddr_storage *name)
{
    memset(name, 0, sizeof *name);
    if (is_four(e->address)) {
        struct sockaddr_in *four = (struct sockaddr_in *)(void *)name;
        four->sin_family = AF_INET, four->sin_port = htons(e->port);
        memcpy(&four->sin_addr, e->address + 12, 4);
        return sizeof *four;
    }
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)name;
    six->sin6_family = AF_INET6, six->sin6_port = htons(e->port);
    memcpy(&six->sin6_addr, e->address, 16);
    return sizeof *six;
}

void end_of(const struct sockaddr_storage *name, struct end *e)
{
    memset(e, 0, sizeof *e);
    if (name->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)name;
        e->address[10] = e->address[11] = 0xff;
        memcpy(e->address + 12, &four->sin_addr, 4);
        e->port = ntohs(four->sin_port);
    } else if (name->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)name;
        memcpy(e->address, &six->sin6_addr, 16);
        e->port = ntohs(six->sin6_port);
    }
}

/* A socket can be bound to an address of this machine, and to no other. If the kernel cannot tell, it is one. */
static bool is_this_machine(const struct end *to)
{
    struct sockaddr_storage name;
    struct end any_port = *to;
    any_port.port = 0;
    socklen_t size = socket_name(&any_port, &name);
    int fd = socket(name.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return name.ss_family == AF_INET;
    bool bound = bind(fd, (struct sockaddr *)&name, size) == 0;
    close(fd);
    return bound;
}

static bool is_guarded(const struct end *to)
{
    for (size_t i = 0; i < sizeof guarded / sizeof *guarded; i++)
        if (within(to->address, guarded[i].address, guarded[i].prefix))
            return true;
    return is_this_machine(to);
}

static bool is_own(const struct end *to)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (within(to->address, own[i].address, own[i].prefix))
            return true;
    return false;
}

static bool fits(const struct rule *r, const struct end *to)
{
    return to->port >= r->first && to->port <= r->last && within(to->address, r->address, r->prefix);
}

static bool is_denied(const struct end *to)
{
    for (size_t i = 0; i < rules.count; i++)
        if (rules.all[i].flags & DENIED && fits(&rules.all[i], to))
            return true;
    return false;
}

/* Whether a rule for many addresses does not open this one. */
static bool is_closed(const struct end *to)
{
    struct end four = {.address = {[10] = 0xff, 0xff}, .port = to->port};
    if (is_own(to) || is_denied(to) || is_guarded(to))
        return true;
    for (size_t i = 0; i < sizeof translated / sizeof *translated; i++)
        if (within(to->address, translated[i].address, translated[i].prefix)) {
            memcpy(four.address + 12, to->address + translated[i].at, 4);
            return is_denied(&four) || is_guarded(&four);
        }
    return false;
}

bool rules_allow(const struct end *to, struct end *real)
{
    bool allowed = false;
    *real = *to;
    for (size_t i = 0; i < rules.count; i++) {
        const struct rule *r = &rules.all[i];
        if (r->flags & DENIED || !fits(r, to))
            continue;
        if (r->flags & CHANGED) {
            memcpy(real->address, r->to, 16);
            real->port = r->to_port ? r->to_port : to->port;
            return r->first == r->last || !is_denied(to); /* a range of ports does not open the node's */
        }
        if (r->flags & NAMED && !is_own(to))
            return true;
        allowed = true;
    }
    return allowed && !is_closed(to);
}
