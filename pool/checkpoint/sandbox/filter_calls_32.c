/* The filter's table with the numbers of 32-bit programs, which this machine's kernel may run too. */
#include "sandbox/filter.h"

#ifdef __x86_64__
#include <asm/unistd_32.h>

#include "sandbox/filter_calls.h"

const struct call *const calls_32 = calls;
const size_t calls_32_count = sizeof calls / sizeof *calls;
#else
const struct call *const calls_32 = NULL;
const size_t calls_32_count = 0;
#endif
