/* A stage of a pipeline that knows its files by name: HOW RECORD COUNT PAUSE_US [IN] [OUT].
 *
 * make: COUNT records to OUT. pass: what is in IN changed, by a child and in parts (readv, writev), to OUT. sum: of what is in
 * IN. turn: COUNT records to OUT, then the sum of what is in IN. A read that gives less than it was asked for before the
 * end is not what a file does: the stage then ends with 9. send and take are make and sum for pipes, which have no
 * position and whose reads may give less. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char *record;
static size_t size;
static long count, pause_us;

static void rest(void)
{
    if (pause_us)
        usleep((useconds_t)pause_us);
}

static uint32_t next(uint32_t *seed) { return *seed = *seed * 1664525u + 1013904223u; }

static int make(const char *out, int tells)
{
    uint32_t seed = 7;
    int to = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (long i = 0; i < count; i++, rest()) {
        for (size_t j = 0; j < size; j++)
            record[j] = (unsigned char)(next(&seed) >> 24);
        if (write(to, record, size) != (ssize_t)size)
            return 8;
    }
    return (!tells || lseek(to, 0, SEEK_CUR) == (off_t)size * count) && close(to) == 0 ? 0 : 7;
}

/* The next record; what is left of it at the end. */
static ssize_t fill(int from, size_t wanted)
{
    struct iovec parts[3] = {{record, 5}, {record + 5, wanted / 2}, {record + 5 + wanted / 2, wanted - wanted / 2 - 5}};
    ssize_t n = wanted % 2 ? read(from, record, wanted) : readv(from, parts, 3);
    if (n >= 0 && (size_t)n < wanted && read(from, record + n, 1) != 0)
        exit(9);
    return n;
}

static int pass(const char *in, const char *out)
{
    int status, from = open(in, O_RDONLY), to = open(out, O_WRONLY | O_CREAT, 0600);
    if (fork() == 0) {
        uint32_t seed = 11;
        for (ssize_t n; (n = fill(from, next(&seed) % size + 32)) > 0; rest()) {
            for (ssize_t j = 0; j < n; j++)
                record[j] ^= 0x5a;
            struct iovec parts[2] = {{record, (size_t)n / 3}, {record + n / 3, (size_t)(n - n / 3)}};
            if (writev(to, parts, 2) != n)
                _exit(8);
        }
        _exit(0);
    }
    close(from);
    close(to);
    return wait(&status) > 0 && status == 0 ? 0 : WEXITSTATUS(status);
}

static int sum(const char *in, int whole)
{
    uint64_t sum = 0, bytes = 0;
    int from = open(in, O_RDONLY);
    for (ssize_t n; (n = whole ? fill(from, size) : read(from, record, size)) > 0; rest()) {
        for (ssize_t j = 0; j < n; j++)
            sum = sum * 31 + record[j];
        bytes += (uint64_t)n;
    }
    printf("%lu bytes, %016lx\n", bytes, sum);
    return !whole || lseek(from, 0, SEEK_CUR) == (off_t)bytes ? 0 : 7;
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 99;
    size = strtoul(argv[2], NULL, 10);
    count = strtol(argv[3], NULL, 10);
    pause_us = strtol(argv[4], NULL, 10);
    record = malloc(size + 64);
    if (strcmp(argv[1], "make") == 0 || strcmp(argv[1], "send") == 0)
        return make(argv[5], *argv[1] == 'm');
    if (strcmp(argv[1], "sum") == 0 || strcmp(argv[1], "take") == 0)
        return sum(argv[5], *argv[1] == 's');
    if (strcmp(argv[1], "pass") == 0)
        return pass(argv[5], argv[6]);
    int bad = make(argv[6], 1);
    return bad ? bad : sum(argv[5], 1);
}
