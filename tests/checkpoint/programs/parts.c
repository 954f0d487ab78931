/* Two processes share memory of which the first keeps one page mapped, and the second all: says at a file `go` what is in it. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES 16ul

int main(void)
{
    char *shared = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) {
        for (unsigned long i = 0; i < PAGES; i++)
            snprintf(shared + i * PAGE, PAGE, "page %lu", i);
        puts("ready");
        fflush(stdout);
        while (access("go", F_OK) < 0)
            usleep(1000);
        for (unsigned long i = 0; i < PAGES; i++)
            puts(shared + i * PAGE);
        return 0;
    }
    munmap(shared + PAGE, (PAGES - 1) * PAGE);
    waitpid(child, NULL, 0);
    puts(shared);
    return 0;
}
