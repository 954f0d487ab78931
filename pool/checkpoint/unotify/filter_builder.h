/* Seccomp filters that ask a supervisor about system calls. */
#ifndef POOL_FILTER_BUILDER_H
#define POOL_FILTER_BUILDER_H

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCH AUDIT_ARCH_AARCH64
#elif defined(__riscv)
#define OWN_ARCH AUDIT_ARCH_RISCV64
#else
#define OWN_ARCH 0
#endif

#define TRAPPED_NUMBERS 64 /* size of the range of high file descriptor numbers that mark trapped files */

#define TRAPS_FLAGS (SECCOMP_FILTER_FLAG_NEW_LISTENER | 1ul << 5 /* SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV */)

void traps_begin(uint32_t foreign); /* foreign: the verdict for calls of another instruction set */
void trap_always(long call);
void trap_number(long call, int argument, int first); /* if that argument is one of the high numbers */
/* calls by name, or with AT_EMPTY_PATH in `flags` by a high number */
void trap_either(long call, int flags, int first);
void trap_value(long call, int argument, uint32_t value, uint32_t what);
void trap_map(int first);
const void *traps_code(size_t *instructions); /* ends the filter; NULL: this machine has none */
int traps_install(void); /* for this process and its descendants: the listener's file descriptor, or -1 */

#endif
