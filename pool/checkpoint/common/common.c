/* Helpers that every folder uses: the settings of this program, failures, clocks, texts, paths. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <time.h>

#include "common/common.h"

struct settings settings;

uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t monotonic_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

uint64_t boot_us(void) { return clock_ns(CLOCK_BOOTTIME) / 1000; }

uint64_t wall_us(void) { return clock_ns(CLOCK_REALTIME) / 1000; }

bool is_spared(pid_t pid) { return pid && (pid == settings.spared[0] || pid == settings.spared[1]); }

void copy_text(char *to, size_t size, const char *from)
{
    size_t n = strnlen(from, size - 1);
    memcpy(to, from, n);
    to[n] = 0;
}

int set_failure(struct failure *f, const char *call, const char *text)
{
    f->err = errno;
    copy_text(f->call, sizeof f->call, call);
    copy_text(f->text, sizeof f->text, text);
    return -1;
}

bool path_is_under(const char *path, const char *directory)
{
    size_t n = strlen(directory);
    while (n && directory[n - 1] == '/')
        n--;
    return strncmp(path, directory, n) == 0 && (path[n] == '/' || path[n] == 0);
}
