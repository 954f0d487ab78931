/* What the frozen copy of a process writes for itself: shared by it, its second hand, the dumper and who helps that. */
#ifndef POOL_HAND_H
#define POOL_HAND_H

#include <stddef.h>
#include <stdint.h>

#define HANDS 2u /* of a copy, and files that they write to: two writers of one file wait for each other */

enum { UNIT_FREE, UNIT_TAKEN, UNIT_DONE };
struct unit { /* a chunk: what is of it in memory, and where it comes */
    uint64_t place, size, sum;
    uint32_t first, count; /* of its parts */
    uint32_t file, state;
};
struct slice { /* struct iovec */
    uint64_t at, size;
};
struct write_job { /* before its units, and their parts */
    uint32_t next, units; /* next: to be looked at by whoever is free */
    int32_t files[HANDS]; /* as the copy knows them */
    uint64_t units_at, parts_at; /* behind the beginning of this */
};

#define UNITS(e) ((struct unit *)((char *)(e) + (e)->units_at))
#define PARTS(e) ((struct slice *)((char *)(e) + (e)->parts_at))

extern const char hand_begin[] __asm__("__start_hand"), hand_end[] __asm__("__stop_hand"); /* self_writer_code.c, as it
                                                                                              is laid elsewhere */

#endif
