/* Which packets pass, and to whom: by their IP addresses alone. Every device of the network has the same hardware
 * address and asks for none, so nothing but IP is ever needed. pool/jobs/network.py has the same addresses. */
#include <string.h>

#include "relay.h"

enum { IP4 = 0x0800, IP6 = 0x86dd };
enum { NEEDS_CSUM = 1, DATA_VALID = 2 };
enum { TCP = 6, SYN = 2, ACK = 16 };

static const uint8_t hardware[6] = {2, 'p', 'o', 'o', 'l', 1};
static const uint8_t range6[14] = {0xfd, 0x70, 0x6f, 0x6f, 0x6c};

static uint32_t big16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }

/* The number of the part with an address; PARTS_MOST if it is none's. */
static uint32_t part4(const uint8_t *address)
{
    uint32_t host = big16(address + 2);
    return address[0] == 10 && address[1] == 77 && host ? host - 1 : PARTS_MOST;
}

static uint32_t part6(const uint8_t *address)
{
    uint32_t host = big16(address + 14);
    return memcmp(address, range6, sizeof range6) == 0 && host ? host - 1 : PARTS_MOST;
}

static bool to_all4(const uint8_t *to)
{
    static const uint8_t all[4] = {255, 255, 255, 255}, range[4] = {10, 77, 255, 255};
    return (to[0] & 0xf0) == 0xe0 || memcmp(to, all, 4) == 0 || memcmp(to, range, 4) == 0;
}

/* Addresses of no part may be those of the machine that a job has the way out to: pool/jobs/network.py. */
static bool is_outside(uint32_t number) { return number >= PARTS_MOST; }

static enum verdict towards(uint32_t from, uint32_t to, bool all, uint32_t parts)
{
    if (from >= parts)
        return DROP_FORGED;
    return all ? TO_ALL : to < parts ? TO_PART : DROP_OUTSIDE;
}

struct judged judge(const uint8_t *frame, size_t size, uint32_t parts)
{
    struct judged j = {.verdict = DROP_MALFORMED};
    const uint8_t *ip = frame + VNET + ETHERNET;
    if (size < FRAME_LEAST || size > FRAME_MOST)
        return j;
    size_t room = size - VNET - ETHERNET;
    uint32_t protocol = big16(frame + VNET + 12);
    size_t length = is_large(frame, size) ? room : big16(ip + 2);
    if (protocol == IP4 && ip[0] >> 4 == 4 && (ip[0] & 15) >= 5 && length >= 20 && length <= room) {
        j.from = part4(ip + 12), j.to = part4(ip + 16);
        j.verdict = towards(j.from, j.to, to_all4(ip + 16), parts);
    } else if (protocol == IP6 && ip[0] >> 4 == 6 && room >= 40 && big16(ip + 4) <= room - 40) {
        j.from = part6(ip + 8), j.to = part6(ip + 24);
        j.verdict = towards(j.from, j.to, ip[24] == 0xff, parts);
    }
    return j;
}

struct judged judge_outside(const uint8_t *frame, size_t size, uint32_t parts)
{
    struct judged j = judge(frame, size, PARTS_MOST + UINT16_MAX);
    if (j.verdict != DROP_MALFORMED)
        j.verdict = is_outside(j.from) && j.verdict == TO_PART && j.to < parts ? TO_PART : DROP_FORGED;
    return j;
}

bool needs_decision(const uint8_t *frame, size_t size)
{
    const uint8_t *ip = frame + VNET + ETHERNET;
    size_t head = ip[0] >> 4 == 4 ? (ip[0] & 15u) * 4 : 40;
    bool plain = ip[0] >> 4 == 4 ? ip[9] == TCP && !(big16(ip + 6) & 0x3fff) : ip[6] == TCP;
    if (!plain || size < VNET + ETHERNET + head + 20)
        return true;
    return (ip[head + 13] & (SYN | ACK)) == SYN;
}

/* Checksum and segmentation that are left to the receiving kernel must lie within the frame. The kernel checks them,
 * too. */
bool offload_fits(const uint8_t *frame, size_t size)
{
    static const uint8_t kinds[] = {0, 1, 4, 5}; /* none, TCP of either kind, UDP in segments: linux/virtio_net.h */
    uint16_t header, segment, start, offset;
    size_t body = size - VNET;
    memcpy(&header, frame + 2, 2);
    memcpy(&segment, frame + 4, 2);
    memcpy(&start, frame + 6, 2);
    memcpy(&offset, frame + 8, 2);
    if (frame[0] & ~(NEEDS_CSUM | DATA_VALID) || !memchr(kinds, frame[1] & 0x7f, sizeof kinds))
        return false;
    if (frame[1] & 0x7f && (!segment || !(frame[0] & NEEDS_CSUM)))
        return false;
    return header <= body && (!(frame[0] & NEEDS_CSUM) || (size_t)start + offset + 2 <= body);
}

void set_ethernet(uint8_t *frame)
{
    memcpy(frame + VNET, hardware, 6);
    memcpy(frame + VNET + 6, hardware, 6);
}
