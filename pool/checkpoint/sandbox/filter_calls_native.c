/* The filter's table with this machine's numbers. */
#include <sys/syscall.h>

#include "sandbox/filter_calls.h"

const struct call *const calls_native = calls;
const size_t calls_native_count = sizeof calls / sizeof *calls;
