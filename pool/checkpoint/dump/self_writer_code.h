/* The write job of a frozen copy, shared by the copy, its second process, the dumper and the dumper's workers. */
#ifndef POOL_SELF_WRITER_CODE_H
#define POOL_SELF_WRITER_CODE_H

#include <stddef.h>
#include <stdint.h>

#define WRITERS 2u /* writers of a copy, and files: two writers of one file would wait for each other */

enum { UNIT_FREE, UNIT_TAKEN, UNIT_DONE };
struct unit { /* a chunk: its parts in memory, and its place in the file */
    uint64_t place, size, sum;
    uint32_t first, count; /* indices of its parts */
    uint32_t file, state;
};
struct slice { /* struct iovec */
    uint64_t at, size;
};
struct write_job { /* followed by its units and their parts */
    uint32_t next, units; /* next: the next unit for a free writer */
    int32_t files[WRITERS]; /* numbers in the copy */
    uint64_t units_at, parts_at; /* offsets from the beginning of this struct */
};

#define UNITS(e) ((struct unit *)((char *)(e) + (e)->units_at))
#define PARTS(e) ((struct slice *)((char *)(e) + (e)->parts_at))

/* the bounds of self_writer_code.c, which is copied elsewhere */
extern const char writer_code_begin[] __asm__("__start_writer_code"), writer_code_end[] __asm__("__stop_writer_code");

#endif
