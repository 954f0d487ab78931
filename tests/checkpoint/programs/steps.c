/* Integers and floating point in steps, each told at once: as many as the argument says, or 40, and half-way it waits for
 * the file .enough. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    unsigned long s = 1;
    double f = 0.1;
    for (int i = 0; i < (argc > 1 ? atoi(argv[1]) : 40); i++) {
        while (argc == 1 && i == 20 && access(".enough", F_OK) < 0)
            usleep(1000);
        for (int j = 0; j < 4000000; j++) {
            s = s * 6364136223846793005ul + (unsigned long)j;
            f = f * 1.0000001;
        }
        printf("%d %lx %.17g\n", i, s, f);
        fflush(stdout);
    }
    return 3;
}
