/* Memory of every kind in which contents are put back: says "ready", waits for `go`, then writes what it may write and says what
 * all of it adds up to. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define SIZE (48 * PAGE)

static uint64_t chance = 1;

static void fill(unsigned char *at, size_t size, size_t step)
{
    for (size_t i = 0; i < size; i += i % PAGE == PAGE - 8 ? step - PAGE + 8 : 8)
        *(uint64_t *)(void *)(at + i) = chance = chance * 6364136223846793005ul + 1;
}

static uint64_t sum(const unsigned char *at, size_t size)
{
    uint64_t all = 0;
    for (size_t i = 0; i < size; i += 8)
        all = all * 31 + *(const uint64_t *)(const void *)(at + i);
    return all;
}

int main(int argc, char **argv)
{
    const int private = MAP_PRIVATE | MAP_ANONYMOUS;
    const struct {
        int kind, first, last, advice; /* protection while it is filled, and then */
        size_t step;                   /* from one filled page to the next */
    } kinds[] = {
        {private, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, MADV_NORMAL, PAGE},
        {private, PROT_READ | PROT_WRITE, PROT_READ, MADV_NORMAL, PAGE},
        {private, PROT_READ | PROT_WRITE, PROT_NONE, MADV_NORMAL, PAGE},
        {private, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC, MADV_NORMAL, 3 * PAGE},
        {private, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, MADV_NORMAL, 2 * PAGE},
        {private, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, MADV_DONTFORK, PAGE},
        {private, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, MADV_DONTDUMP, PAGE},
        {private, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, MADV_HUGEPAGE, PAGE},
        {private, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, MADV_NOHUGEPAGE, PAGE},
        {private | MAP_GROWSDOWN, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, MADV_NORMAL, PAGE},
        {private, PROT_READ, PROT_READ | PROT_WRITE, MADV_NORMAL, 0},
        {MAP_SHARED | MAP_ANONYMOUS, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, MADV_NORMAL, PAGE},
        {MAP_PRIVATE, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, MADV_NORMAL, 2 * PAGE}, /* of this program's file */
    };
    const size_t count = sizeof kinds / sizeof *kinds;
    /* One beside the other, and the same once more with a hole between: what may become one, and what not. */
    unsigned char *place = mmap(NULL, count * SIZE * 4, PROT_NONE, private | MAP_NORESERVE, -1, 0), *at = place;
    int file = open(argv[argc - 1], O_RDONLY);
    munmap(place, count * SIZE * 4);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < count; i++, at += SIZE * (round ? 2 : 1)) {
            int kind = kinds[i].kind | MAP_FIXED;
            if (mmap(at, SIZE, kinds[i].first, kind, kind & MAP_ANONYMOUS ? -1 : file, 0) != at)
                return 1;
            madvise(at, SIZE, kinds[i].advice);
            if (kinds[i].step)
                fill(at, SIZE, kinds[i].step);
            if (mprotect(at, SIZE, kinds[i].last) < 0)
                return 2;
        }
    close(file);
    puts("ready");
    fflush(stdout);
    while (argc > 2 && access("go", F_OK) != 0)
        usleep(5000);
    at = place;
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < count; i++, at += SIZE * (round ? 2 : 1)) {
            if (kinds[i].last == PROT_NONE && mprotect(at, SIZE, PROT_READ) < 0)
                return 3;
            size_t most = kinds[i].kind & (MAP_ANONYMOUS) ? SIZE : 4 * PAGE;
            if (kinds[i].last & PROT_WRITE)
                fill(at + PAGE / 2, most / 2, PAGE);
            printf("%zu %lx\n", i, sum(at, most));
        }
    return 0;
}
