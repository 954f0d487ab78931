/* Fills memory in huge pages, says how many KiB of it are in such pages, and says it again when the file "go" is there;
 * and "right" if the memory is as it was. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (16ul << 20)

static long in_huge_pages(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long found = -1;
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "AnonHugePages: %ld", &found);
    if (file)
        fclose(file);
    return found;
}

int main(void)
{
    uint64_t *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, SIZE, MADV_HUGEPAGE);
    for (uint64_t i = 0; i < SIZE / 8; i++)
        memory[i] = i * 6364136223846793005ul + 1;
    printf("%ld\n", in_huge_pages());
    fflush(stdout);
    while (access("go", F_OK) != 0)
        usleep(1000);
    printf("%ld\n", in_huge_pages());
    uint64_t i = 0;
    while (i < SIZE / 8 && memory[i] == i * 6364136223846793005ul + 1)
        i++;
    puts(i == SIZE / 8 ? "right" : "wrong");
    return 0;
}
