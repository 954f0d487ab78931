/* The code by which a frozen copy writes its own memory; self_writer.c puts it into the copy. No other process has to
 * read the memory first, and it goes to the page cache in one copy. The code must run at any address. It uses no
 * library, no data, no relocations, no vector registers (their constants would be data), and no call or return (a
 * shadow stack would have to know them). It writes only to its stack and to the write job. Units that it cannot write
 * are left to the dumper. */
#include <sys/syscall.h>

#ifndef __x86_64__
#error "only x86-64 so far: another processor needs its own system call here"
#endif
#pragma GCC target("general-regs-only")

#include "dump/self_writer_code.h"
#include "image/checksum.h"

#define EFAULT_ (-14)

SUM_INLINE long write_parts(int fd, const struct slice *parts, uint64_t count, uint64_t place)
{
    register uint64_t where __asm__("r10") = place, high __asm__("r8") = 0;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"((long)SYS_pwritev), "D"((long)fd), "S"(parts), "d"(count), "r"(where), "r"(high)
                     : "rcx", "r11", "memory");
    return result;
}

/* Checksums the memory in place, after it was written: pages that the kernel could read are readable. */
SUM_INLINE uint64_t sum_parts(const struct slice *parts, uint64_t count)
{
    uint64_t lane[8] = SUM_BEGUN;
    for (uint64_t i = 0; i < count; i++)
        sum_add(lane, (const unsigned char *)(uintptr_t)parts[i].at, parts[i].size);
    return sum_end(lane, (const unsigned char *)0, 0);
}

__attribute__((section("writer_code"), used, noreturn, no_sanitize_address, no_sanitize_undefined,
               no_stack_protector)) void
write_units(struct write_job *e);
void write_units(struct write_job *e)
{
    for (uint32_t i; (i = __atomic_fetch_add(&e->next, 1, __ATOMIC_RELAXED)) < e->units;) {
        struct unit *u = UNITS(e) + i;
        uint32_t is = UNIT_FREE;
        if (!__atomic_compare_exchange_n(&u->state, &is, UNIT_TAKEN, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        long n = write_parts(e->files[u->file], PARTS(e) + u->first, u->count, u->place);
        if (n == (long)u->size) {
            u->sum = sum_parts(PARTS(e) + u->first, u->count);
            __atomic_store_n(&u->state, UNIT_DONE, __ATOMIC_RELEASE);
        } else if (n < 0 && n != EFAULT_) {
            break; /* no space, or no right: the dumper finds the error itself */
        }
    }
    __builtin_trap(); /* stops the process; the dumper sees it */
}
