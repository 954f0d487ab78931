/* Changes some of much memory in every way that there is, step by step, and says what all of it adds up to; so many
 * steps, or until a file is there; then no more of them than the file "allowed" is long, where there is one. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE (24ul << 20)
#define PAGE 4096ul

static uint64_t chance = 1;
static uint64_t next(void)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    return chance ^= chance << 17;
}

static uint64_t sum(const unsigned char *at, size_t size)
{
    uint64_t all = 0;
    for (size_t i = 0; i < size; i += 8)
        all = all * 31 + *(const uint64_t *)(const void *)(at + i);
    return all;
}

static void fill(unsigned char *at, size_t size)
{
    for (size_t i = 0; i < size; i += 8)
        *(uint64_t *)(void *)(at + i) = next();
}

static unsigned char *map(size_t size)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static int waits(int steps, const char *stop)
{
    struct stat allowed;
    return stat("allowed", &allowed) == 0 && allowed.st_size <= steps && access(stop, F_OK) != 0;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 12;
    unsigned char *memory = map(SIZE), *heap = malloc(200000), *moving = map(1 << 20);
    size_t moving_size = 1 << 20;
    if (argc > 3)
        madvise(memory, SIZE, MADV_HUGEPAGE);
    fill(memory, SIZE);
    fill(moving, moving_size);
    fill(heap, 200000);
    for (int step = 0; step < steps && (argc < 3 || access(argv[2], F_OK) != 0); step++) {
        for (int i = 0; i < 200; i++) /* single pages */
            fill(memory + next() % (SIZE / PAGE) * PAGE, 8);
        fill(memory + next() % (SIZE / PAGE / 2) * PAGE, 50 * PAGE); /* a stretch */
        unsigned char *hole = memory + next() % (SIZE / PAGE / 2) * PAGE;
        madvise(hole, 20 * PAGE, MADV_DONTNEED); /* zeros from now on */
        fill(hole + 5 * PAGE, PAGE);
        unsigned char *again = memory + SIZE / 2 + next() % 512 * PAGE;
        munmap(again, 30 * PAGE); /* other memory in its place, some of it not touched */
        mmap(again, 30 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        fill(again + 3 * PAGE, 2 * PAGE);
        moving = mremap(moving, moving_size, moving_size + 64 * PAGE, MREMAP_MAYMOVE); /* moved, with what is in it */
        fill(moving + moving_size, 64 * PAGE);
        moving_size += 64 * PAGE;
        if (moving_size > 4 << 20) {
            munmap(moving + (1 << 20), moving_size - (1 << 20));
            moving_size = 1 << 20;
        }
        unsigned char *place = memory + SIZE / 4 + step % 16 * 64 * PAGE, *new = map(16 * PAGE);
        fill(new, 16 * PAGE);
        if (mremap(new, 16 * PAGE, 16 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) != place) /* over what was there */
            return 2;
        mprotect(memory + step % 500 * 3 * PAGE, PAGE, PROT_READ);
        heap = realloc(heap, 200000 + (size_t)step % 50 * 5000);
        printf("%d %lx %lx %lx\n", step, sum(memory, SIZE), sum(moving, moving_size), sum(heap, 200000));
        fflush(stdout);
        mprotect(memory + step % 500 * 3 * PAGE, PAGE, PROT_READ | PROT_WRITE);
        if (argc > 2)
            do
                usleep(10000);
            while (waits(step + 1, argv[2]));
    }
    return 0;
}
