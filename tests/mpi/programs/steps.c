/* steps COUNT FILE: counts together, a tenth of a second each; rank 0 appends each step to the file. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, size, steps = argc > 1 ? atoi(argv[1]) : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < steps; i++) {
        int sum = 0, one = 1;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (sum != size)
            return 9;
        if (!rank) {
            FILE *file = fopen(argv[2], "a");
            fprintf(file, "%d\n", i);
            fclose(file);
        }
        usleep(100000);
    }
    MPI_Finalize();
    return 0;
}
