/* Packets of the job: read, and answers to them made. */
#include <string.h>

#include "way_out.h"

enum { IP4 = 0x0800, IP6 = 0x86dd, ICMP = 1, TCP = 6, UDP = 17, ICMP6 = 58 };
enum { SYN = 2, RST = 4, ACK = 16 };
#define UDP_SEGMENTS 5
#define HOPS 64

const uint8_t way_out_four[16] = {[10] = 0xff, 0xff, 10, 77, 255, 253};
const uint8_t way_out_six[16] = {0xfd, 0x70, 0x6f, 0x6f, 0x6c, [14] = 0xff, [15] = 0xfd};

static uint32_t big16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }

static void put16(uint8_t *at, size_t value) { at[0] = (uint8_t)(value >> 8), at[1] = (uint8_t)value; }

static void put_four(struct end *e, const uint8_t *address)
{
    memset(e->address, 0, 10);
    e->address[10] = e->address[11] = 0xff;
    memcpy(e->address + 12, address, 4);
}

/* The header of IP: where the next one begins; 0 for a packet that is of no kind that passes. */
static size_t read_ip(const uint8_t *ip, size_t room, uint32_t kind, struct packet *p)
{
    p->four = kind == IP4;
    if (p->four && room >= 20 && ip[0] >> 4 == 4) {
        size_t head = (size_t)(ip[0] & 15) * 4;
        p->ip_size = big16(ip + 2);
        if (head < 20 || p->ip_size < head || p->ip_size > room || big16(ip + 6) & 0x3fff)
            return 0;
        p->protocol = ip[9];
        put_four(&p->from, ip + 12);
        put_four(&p->to, ip + 16);
        return head;
    }
    if (kind != IP6 || room < 40 || ip[0] >> 4 != 6 || (p->ip_size = 40 + big16(ip + 4)) > room)
        return 0;
    p->protocol = ip[6];
    memcpy(p->from.address, ip + 8, 16);
    memcpy(p->to.address, ip + 24, 16);
    return is_four(p->to.address) || is_four(p->from.address) ? 0 : 40;
}

bool packet_read(const uint8_t *frame, size_t size, struct packet *p)
{
    *p = (struct packet){.ip = frame + VNET + ETHERNET};
    if (size < VNET + ETHERNET + 20)
        return false;
    size_t head = read_ip(p->ip, size - VNET - ETHERNET, big16(frame + VNET + 12), p);
    size_t least = p->protocol == TCP ? 20 : 8;
    if (!head || (p->protocol != TCP && p->protocol != UDP) || p->ip_size - head < least)
        return false;
    p->body = p->ip + head;
    p->body_size = p->ip_size - head;
    p->from.port = (uint16_t)big16(p->body);
    p->to.port = (uint16_t)big16(p->body + 2);
    if (p->protocol == UDP) {
        uint16_t segment;
        memcpy(&segment, frame + 4, 2); /* in the order of the machine: virtio_net.h */
        p->segment = (frame[1] & 0x7f) == UDP_SEGMENTS ? segment : 0;
        p->body += 8, p->body_size -= 8;
    }
    return true;
}

bool packet_begins(const struct packet *p) { return p->protocol == TCP && (p->body[13] & (SYN | RST | ACK)) == SYN; }

static uint32_t sum(const uint8_t *data, size_t size, uint32_t so_far)
{
    uint64_t total = so_far;
    for (; size > 1; data += 2, size -= 2)
        total += big16(data);
    if (size)
        total += (uint32_t)data[0] << 8;
    while (total >> 16)
        total = (total & 0xffff) + (total >> 16);
    return (uint32_t)total;
}

/* Writes the headers before `size` bytes of a packet's body, and its checksum at `checksum` within it. */
static size_t finish(const uint8_t *from, const uint8_t *to, uint8_t protocol, uint8_t *frame, size_t size,
                     size_t checksum)
{
    bool four = is_four(from);
    size_t head = four ? 20 : 40, bytes = four ? 4 : 16;
    uint8_t *ip = frame + VNET + ETHERNET, *body = ip + head;
    memset(frame, 0, VNET + ETHERNET + head);
    put16(frame + VNET + 12, four ? IP4 : IP6);
    if (four) {
        ip[0] = 0x45, ip[8] = HOPS, ip[9] = protocol;
        put16(ip + 2, head + size);
        put16(ip + 6, 0x4000);
        memcpy(ip + 12, from + 12, 4);
        memcpy(ip + 16, to + 12, 4);
        put16(ip + 10, ~sum(ip, 20, 0) & 0xffff);
    } else {
        ip[0] = 0x60, ip[6] = protocol, ip[7] = HOPS;
        put16(ip + 4, size);
        memcpy(ip + 8, from, 16);
        memcpy(ip + 24, to, 16);
    }
    put16(body + checksum, 0);
    uint32_t total = protocol == ICMP ? 0 : sum(from + 16 - bytes, bytes, sum(to + 16 - bytes, bytes, protocol));
    total = sum(body, size, protocol == ICMP ? 0 : total + (uint32_t)size);
    put16(body + checksum, (~total & 0xffff) || protocol != UDP ? ~total & 0xffff : 0xffff);
    return VNET + ETHERNET + head + size;
}

size_t make_reset(const struct packet *p, uint8_t *frame)
{
    uint8_t *tcp = frame + VNET + ETHERNET + (p->four ? 20 : 40);
    uint32_t number;
    memset(tcp, 0, 20);
    put16(tcp, p->to.port);
    put16(tcp + 2, p->from.port);
    memcpy(&number, p->body + 4, 4);
    number = htonl(ntohl(number) + 1);
    memcpy(tcp + 8, &number, 4);
    tcp[12] = 5 << 4;
    tcp[13] = RST | ACK;
    return finish(p->to.address, p->from.address, TCP, frame, 20, 16);
}

size_t make_refusal(const struct packet *p, enum refusal why, uint8_t *frame)
{
    uint8_t *body = frame + VNET + ETHERNET + (p->four ? 20 : 40);
    size_t quoted = p->ip_size < 500 ? p->ip_size : 500;
    memset(body, 0, 8);
    body[0] = p->four ? 3 : 1; /* unreachable */
    /* with 1 of ICMPv6 a program reads "permission denied"; of 3 it hears only if it has a connection */
    body[1] = p->four ? (why == NOT_ALLOWED ? 13 : 1) : p->protocol == UDP ? 1 : 3;
    memcpy(body + 8, p->ip, quoted);
    return finish(p->four ? way_out_four : way_out_six, p->from.address, p->four ? ICMP : ICMP6, frame, 8 + quoted, 2);
}

size_t make_datagram(const struct end *from, const struct end *to, uint8_t *frame, size_t data)
{
    uint8_t *udp = frame + DATAGRAM_HEAD(is_four(from->address)) - 8;
    put16(udp, from->port);
    put16(udp + 2, to->port);
    put16(udp + 4, 8 + data);
    return finish(from->address, to->address, UDP, frame, 8 + data, 6);
}
