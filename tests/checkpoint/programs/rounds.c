/* Counts on many pages that do not touch each other, round by round, and ends with 3 as soon as one of them is not what it was left as;
 * at a file `stop`, after another round. */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES 6120ul

int main(void)
{
    volatile unsigned char *memory = mmap(NULL, 2 * PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (uint64_t round = 1, last = UINT64_MAX; round <= last; round++) {
        for (uint64_t i = 0; i < PAGES; i++) {
            volatile uint64_t *count = (volatile uint64_t *)(memory + 2 * i * PAGE);
            if (*count != round - 1)
                return 3;
            *count = round;
        }
        if (round % 8 == 0) {
            puts("8");
            fflush(stdout);
        }
        if (last == UINT64_MAX && access("stop", F_OK) == 0)
            last = round + 1;
    }
    return 0;
}
