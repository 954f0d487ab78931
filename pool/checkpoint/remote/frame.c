/* The contents of frames: numbers, strings and attributes, little-endian, as in pool/remoteio. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/parts.h"

/* Exits if there is no memory; the job ends with the server. */
void *need(size_t size)
{
    void *room = malloc(size ? size : 1);
    if (!room)
        _exit(3);
    return room;
}

void frame_number(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

uint64_t get_number(struct reader *a, size_t bytes)
{
    uint64_t value = 0;
    if ((size_t)(a->end - a->at) < bytes) {
        a->bad = true;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)a->at[i] << 8 * i;
    a->at += bytes;
    return value;
}

/* Points into the answer; not terminated by a NUL. */
const uint8_t *get_string(struct reader *a, uint32_t *size)
{
    const uint8_t *found;
    *size = (uint32_t)get_number(a, 4);
    if (a->bad || (size_t)(a->end - a->at) < *size) {
        a->bad = true;
        *size = 0;
        return a->at;
    }
    found = a->at;
    a->at += *size;
    return found;
}

struct attr get_attr(struct reader *a)
{
    struct attr t;
    t.dev = get_number(a, 8);
    t.ino = get_number(a, 8);
    t.size = get_number(a, 8);
    t.blocks = get_number(a, 8);
    t.atime = (int64_t)get_number(a, 8);
    t.mtime = (int64_t)get_number(a, 8);
    t.ctime = (int64_t)get_number(a, 8);
    t.mode = (uint32_t)get_number(a, 4);
    t.nlink = (uint32_t)get_number(a, 4);
    t.uid = (uint32_t)get_number(a, 4);
    t.gid = (uint32_t)get_number(a, 4);
    t.rdev = get_number(a, 8);
    t.changes = get_number(a, 8);
    return t;
}
