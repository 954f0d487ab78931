/* Large packets: bytes of one TCP connection of IPv4, more than the length in an IP header can say, so that there is 0.
 * Since Linux 6.3 a kernel gives them to a device that takes them, and takes them from it ("BIG TCP"): each costs the
 * relay as much as a small one does, but for copying its bytes. To a machine that may have an older kernel they go in
 * pieces, as the job's kernel would have cut them for its device. */
#include <string.h>

#include "relay.h"

enum { IP4 = 0x0800, TCP = 6, NEEDS_CSUM = 1, TCP4 = 1, IP_MOST = 65535, CHECKSUM = 16 };
enum { FIN = 1, PSH = 8, CWR = 128 };

static uint32_t big16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }

static void put16(uint8_t *at, uint32_t value) { at[0] = (uint8_t)(value >> 8), at[1] = (uint8_t)value; }

static void add32(uint8_t *at, uint32_t more)
{
    uint32_t value = (big16(at) << 16 | big16(at + 2)) + more;
    put16(at, value >> 16);
    put16(at + 2, value);
}

static uint32_t sum(const uint8_t *data, size_t size, uint32_t total)
{
    for (; size; data += 2, size -= 2)
        total += big16(data);
    while (total >> 16)
        total = (total & 0xffff) + (total >> 16);
    return total;
}

bool is_large(const uint8_t *frame, size_t size)
{
    const uint8_t *ip = frame + VNET + ETHERNET;
    return size > VNET + ETHERNET + IP_MOST && big16(frame + VNET + 12) == IP4 && ip[9] == TCP && !big16(ip + 2) &&
           frame[0] & NEEDS_CSUM && (frame[1] & 0x7f) == TCP4;
}

bool pieces_begin(struct pieces *s, const uint8_t *frame, size_t size)
{
    uint16_t start, offset, segment;
    const uint8_t *ip = frame + VNET + ETHERNET;
    size_t ip_head = (ip[0] & 15u) * 4, tcp_head = (ip[ip_head + 12] >> 4) * 4u;
    memcpy(&segment, frame + 4, 2); /* in the order of the machine: linux/virtio_net.h */
    memcpy(&start, frame + 6, 2);
    memcpy(&offset, frame + 8, 2);
    if (ip_head < 20 || tcp_head < 20 || start != ETHERNET + ip_head || offset != CHECKSUM)
        return false;
    *s = (struct pieces){.head_size = VNET + ETHERNET + ip_head + tcp_head, .ip_head = ip_head, .segment = segment};
    if (!segment || segment > IP_MOST - ip_head - tcp_head)
        return false;
    memcpy(s->head, frame, s->head_size);
    s->body = frame + s->head_size;
    s->left = size - s->head_size;
    s->last_flags = ip[ip_head + 13];
    return true;
}

bool pieces_next(struct pieces *s)
{
    static const uint16_t none = 0;
    uint8_t *ip = s->head + VNET + ETHERNET, *tcp = ip + s->ip_head;
    size_t heads = s->head_size - VNET - ETHERNET, tcp_head = heads - s->ip_head;
    size_t most = (IP_MOST - heads) / s->segment * s->segment;
    s->body += s->size;
    s->left -= s->size;
    if (s->size) {
        put16(ip + 4, big16(ip + 4) + (uint32_t)((s->size + s->segment - 1) / s->segment));
        add32(tcp + 4, (uint32_t)s->size);
        s->last_flags &= (uint8_t)~CWR;
    }
    s->size = s->left < most ? s->left : most;
    bool last = s->size == s->left;
    tcp[13] = last ? s->last_flags : s->last_flags & (uint8_t)~(FIN | PSH);
    if (s->size <= s->segment) {
        s->head[1] = 0;
        memcpy(s->head + 4, &none, sizeof none);
    }
    put16(ip + 2, (uint32_t)(heads + s->size));
    put16(ip + 10, 0);
    put16(ip + 10, ~sum(ip, s->ip_head, 0));
    /* the rest of this sum is left to the receiving kernel */
    put16(tcp + CHECKSUM, sum(ip + 12, 8, TCP + (uint32_t)(tcp_head + s->size)));
    return s->size > 0;
}
