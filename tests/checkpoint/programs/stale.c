/* Changes memory in ways in which the kernel's notes of what was written get lost, each time that a word comes by the pipe it is
 * named, and says what is in it then. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (20ul << 20) /* so that its writes are noted at all */
#define PART (64ul << 10)

static unsigned char *map(void *at, size_t size, int fd)
{
    int flags = MAP_PRIVATE | (at ? MAP_FIXED : 0) | (fd < 0 ? MAP_ANONYMOUS : 0);
    return mmap(at, size, PROT_READ | PROT_WRITE, flags, fd, 0);
}

static void say(const char *what, const unsigned char *at)
{
    unsigned long sum = 0;
    for (size_t i = 0; i < PART; i++)
        sum = sum * 31 + at[i];
    printf("%s %lx\n", what, sum);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char word;
    int go = open(argc > 1 ? argv[1] : "go", O_RDONLY), file = open(argv[0], O_RDONLY);
    unsigned char *filler = map(NULL, SIZE, -1), *room = mmap(NULL, 8 * PART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (go < 0 || file < 0)
        return 2;
    memset(filler, 1, SIZE);

    /* Written, then forbidden, as a loader does with a library's tables; not watched while it may not be written. */
    unsigned char *guarded = map(NULL, PART, file);
    memset(guarded, 1, PART);
    mprotect(guarded, PART, PROT_READ);

    /* Watched, beside a place to which something that was never touched will be moved: they become one area. */
    unsigned char *joined = map(room + PART, PART, -1), *untouched = map(room + 6 * PART, PART, -1);
    memset(joined, 1, PART);
    puts("ready");
    fflush(stdout);

    while (read(go, &word, 1) == 1) {
        mprotect(guarded, PART, PROT_READ | PROT_WRITE);
        memset(guarded, word, PART);
        if (untouched != joined + PART)
            untouched = mremap(untouched, PART, PART, MREMAP_MAYMOVE | MREMAP_FIXED, joined + PART);
        memset(joined, word, PART);
        say("guarded", guarded);
        say("joined", joined);
    }
    say("guarded", guarded);
    say("joined", joined);
    return 0;
}
