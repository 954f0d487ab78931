/* What the mapping of files costs: `w FILE BLOCK MIB`, `r FILE BLOCK` (says GB/s), `open FILE N` and `call N` (say us each). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    const char *what = argv[1];
    size_t block = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    if (*what == 'w' || *what == 'r') {
        char *data = malloc(block);
        int fd = strcmp(argv[2], "-") == 0 ? *what == 'w' : open(argv[2], *what == 'w' ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY, 0644);
        memset(data, 1, block);
        if (fd < 0)
            return 1;
        if (*what == 'w') {
            size_t left = strtoul(argv[4], NULL, 10) << 20;
            for (ssize_t n; left && (n = write(fd, data, block)) > 0;)
                left -= (size_t)n;
            return left != 0;
        }
        ssize_t n = read(fd, data, block);
        double begun = now();
        size_t all = 0;
        while ((n = read(fd, data, block)) > 0)
            all += (size_t)n;
        printf("%f\n", (double)all / (now() - begun) / 1e9);
        return 0;
    }
    int times = (int)strtoul(*what == 'o' ? argv[3] : argv[2], NULL, 10);
    double begun = now();
    for (int i = 0; i < times; i++) {
        if (*what == 'o')
            close(open(argv[2], O_RDONLY));
        else
            syscall(SYS_getppid);
    }
    printf("%f\n", (now() - begun) / times * 1e6);
    return 0;
}
