/* Maps an area and makes it larger in its place, page by page, again and again; ends with 3 when it cannot, and with 0 at a file
 * `stop`. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define MOST 512ul
#define SIZE (20ul << 20) /* so that its writes are noted at all */

static unsigned char *map(void *at, size_t size)
{
    return mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
}

int main(void)
{
    unsigned char *grows = map(NULL, MOST * PAGE);
    memset(map(NULL, SIZE), 1, SIZE);
    for (unsigned long round = 0; access("stop", F_OK) != 0; round++) {
        munmap(grows, MOST * PAGE);
        map(grows, PAGE);
        for (size_t size = 1; size < MOST; size++)
            if (mremap(grows, size * PAGE, (size + 1) * PAGE, 0) != grows)
                return 3;
        if (round % 16 == 0) {
            puts("16");
            fflush(stdout);
        }
    }
    return 0;
}
