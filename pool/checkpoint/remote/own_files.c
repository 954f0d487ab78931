/* The file descriptors of a thread that may wait for the kernel: it has only those that it needs itself. What the
 * kernel is told may have to wait for a process that waits for an answer of this server. If the server is killed just
 * then, the kernel ends the waits for the answers of a device when that is closed; and it is closed with the main
 * thread only if no other thread has it. Otherwise thread and process would wait for each other for ever, and neither
 * could be killed. So these threads write to a device of their own for each mount, a clone of the one from which
 * requests are read. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "remote/parts.h"

static int by_number(const void *one, const void *other) { return *(const int *)one - *(const int *)other; }

static void close_from_to(int from, int to)
{
    if (from <= to && syscall(SYS_close_range, from, to, 0) < 0)
        for (int fd = from; fd <= to && fd < 4096; fd++)
            close(fd);
}

void keep_files(int one, int other)
{
    int kept[REMOTE_TREES + 2], next = 0;
    size_t count = 0;
    if (unshare(CLONE_FILES) < 0)
        return;
    kept[count++] = one;
    kept[count++] = other;
    for (size_t i = 0; i < serving.count; i++)
        kept[count++] = serving.trees[i].teller;
    qsort(kept, count, sizeof *kept, by_number);
    for (size_t i = 0; i < count; i++) {
        close_from_to(next, kept[i] - 1);
        if (kept[i] >= next)
            next = kept[i] + 1;
    }
    close_from_to(next, 0x7fffffff);
}
