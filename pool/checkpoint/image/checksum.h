/* The checksum of image contents, computed in parts. Eight lanes let the processor multiply while it loads. It finds
 * damage, not malice. It is a header because dump/self_writer_code.c may not call functions. */
#ifndef POOL_CHECKSUM_H
#define POOL_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define SUM_ODD 0x9e3779b97f4a7c15ull
#define SUM_STEP 64u /* bytes: all parts except the last are multiples of it */
#define SUM_BEGUN {1, 2, 3, 4, 5, 6, 7, 8}
#define SUM_INLINE static inline __attribute__((always_inline, no_sanitize_address, no_sanitize_undefined))

typedef uint64_t __attribute__((may_alias, aligned(1))) sum_word;

SUM_INLINE void sum_add(uint64_t lane[8], const unsigned char *at, size_t size)
{
    for (; size >= SUM_STEP; at += SUM_STEP, size -= SUM_STEP) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            lane[i] = (lane[i] ^ ((const sum_word *)at)[i]) * SUM_ODD;
            lane[i] ^= lane[i] >> 29;
        }
    }
}

/* `rest`: the remaining bytes of the last part, `left` of them. */
SUM_INLINE uint64_t sum_end(const uint64_t lane[8], const unsigned char *rest, size_t left)
{
    uint64_t all = left;
    for (; left; left--)
        all = (all ^ *rest++) * SUM_ODD;
    for (int i = 0; i < 8; i++)
        all = ((all << 17 | all >> 47) ^ lane[i]) * SUM_ODD;
    return all ^ all >> 32;
}

#endif
