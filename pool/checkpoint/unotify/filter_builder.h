/* Filters by which the kernel asks a supervisor about calls. */
#ifndef POOL_TRAPS_H
#define POOL_TRAPS_H

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

#define TRAPPED_NUMBERS 64 /* high descriptors, from a first one on, by which calls are told apart */

#define TRAPS_FLAGS (SECCOMP_FILTER_FLAG_NEW_LISTENER | 1ul << 5 /* SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV */)

void traps_begin(uint32_t foreign); /* what becomes of calls of another instruction set */
void trap_always(long call);
void trap_number(long call, int argument, int first); /* when that argument is one of the high numbers */
void trap_either(long call, int flags, int first); /* by a name, or with AT_EMPTY_PATH in `flags` by a high number */
void trap_value(long call, int argument, uint32_t value, uint32_t what);
void trap_map(int first);
const void *traps_code(size_t *instructions); /* it ends there; NULL: there is none for this machine */
int traps_install(void); /* of this process and all that it becomes: the descriptor at which it is asked about, or -1 */

#endif
