/* PAGEMAP_SCAN of Linux 6.7 and the userfaultfd features that it needs; older headers lack both. */
#ifndef POOL_PAGEMAP_SCAN_H
#define POOL_PAGEMAP_SCAN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define UNPOPULATED (1u << 13) /* UFFD_FEATURE_WP_UNPOPULATED: required for anonymous memory */
#define ASYNCHRONOUS (1u << 15) /* UFFD_FEATURE_WP_ASYNC */

enum { IS_WATCHED = 1, IS_WRITTEN = 2, IS_FILE = 4, IS_PRESENT = 8, IS_SWAPPED = 16, IS_ZERO = 32, IS_GUARD = 256 };
enum { SCAN_PROTECT = 1 }; /* write-protects the pages that it reports, in the same step */
struct region {
    uint64_t start, end, categories;
};
struct scan { /* struct pm_scan_arg */
    uint64_t size, flags, start, end, walk_end, vector, vector_size, max_pages, inverted, mask, any, wanted;
};
#define SCAN _IOWR('f', 16, struct scan)

/* Continues after the regions of the last call; false at the end. At the end of a walk the kernel may report a position
 * before the end: the place where its own buffer was last full (512 regions; seen in Linux 6.18). A scan from there
 * would report pages twice, and out of order pages written in the meantime. */
static inline bool scan_on(struct scan *q, int found)
{
    const struct region *all = (const struct region *)(uintptr_t)q->vector;
    if (found <= 0 || (uint64_t)found < q->vector_size)
        return false;
    q->start = all[found - 1].end;
    return q->start < q->end;
}

#endif
