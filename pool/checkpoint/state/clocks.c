/* Time on the job's clocks: how long ago they were read for an image, and the remaining part of a timeout since they
 * were set at a restore. */
#define _GNU_SOURCE
#include "state/state.h"

uint64_t since_clocks(const struct dump *d) { return d->clocked_ns ? monotonic_ns() - (uint64_t)d->clocked_ns : 0; }

uint64_t left_now(const struct restoring *r, uint64_t left_ns)
{
    uint64_t gone = monotonic_ns() - (uint64_t)r->clocked_ns;
    return left_ns > gone + 1000 ? left_ns - gone : 1000; /* no timer accepts less than a microsecond */
}
