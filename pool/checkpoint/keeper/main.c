/* keeper: looks after jobs. `keeper nursery DIR` starts keepers for one startd; each keeper is a fork of it.
 *
 * Policy never lives here: what may run, for how long and when it must go is said by the node (pool/starter). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/common.h"

struct settings settings;

static uint64_t clock_us(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Time since the machine started, time asleep included: what leases are measured by. */
uint64_t boot_us(void) { return clock_us(CLOCK_BOOTTIME); }

uint64_t wall_us(void) { return clock_us(CLOCK_REALTIME); }

bool is_spared(pid_t pid) { return pid && (pid == settings.spared[0] || pid == settings.spared[1]); }

void copy_text(char *to, size_t size, const char *from)
{
    size_t n = strnlen(from, size - 1);
    memcpy(to, from, n);
    to[n] = 0;
}

int fail(struct failure *f, const char *call, const char *text)
{
    f->err = errno;
    copy_text(f->call, sizeof f->call, call);
    copy_text(f->text, sizeof f->text, text);
    return -1;
}

static int usage(void)
{
    fputs("usage: keeper nursery DIRECTORY [--show DIR]... [--without ABILITIES]\n"
          "(started by a startd, with a socket to it as descriptor 3)\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc < 3 || strcmp(argv[1], "nursery") != 0)
        return usage();
    char **show = calloc((size_t)argc, sizeof *show);
    if (!show)
        return 1;
    for (int i = 3; i < argc; i += 2) {
        if (i + 1 == argc)
            return usage();
        if (strcmp(argv[i], "--show") == 0)
            show[settings.shows++] = argv[i + 1];
        else if (strcmp(argv[i], "--without") == 0)
            settings.without = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else
            return usage();
    }
    settings.show = show;
    return nursery(argv[2]);
}
