/* Integers and floating point in steps, each told at once. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    unsigned long s = 1;
    double f = 0.1;
    for (int i = 0; i < (argc > 1 ? atoi(argv[1]) : 40); i++) {
        for (int j = 0; j < 4000000; j++) {
            s = s * 6364136223846793005ul + (unsigned long)j;
            f = f * 1.0000001;
        }
        printf("%d %lx %.17g\n", i, s, f);
        fflush(stdout);
    }
    return 3;
}
