/* Time of MPI_Allreduce: of 8 bytes and of a large block. Arguments: turns, turns of the large one, its bytes. Rank 0
 * prints the median of each in microseconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int order(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

static double median(size_t bytes, int turns)
{
    int count = (int)(bytes / sizeof(double));
    double *in = calloc((size_t)count, sizeof *in), *out = calloc((size_t)count, sizeof *out);
    double *took = calloc((size_t)turns, sizeof *took);
    for (int i = 0; i < count; i++)
        in[i] = i;
    for (int turn = -turns / 10 - 1; turn < turns; turn++) { /* the first ones do not count */
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (turn >= 0)
            took[turn] = MPI_Wtime() - began;
    }
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < count; i++)
        if (out[i] != in[i] * size)
            MPI_Abort(MPI_COMM_WORLD, 3);
    qsort(took, (size_t)turns, sizeof *took, order);
    double middle = took[turns / 2] * 1e6;
    free(in), free(out), free(took);
    return middle;
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    double small = median(8, atoi(argv[1])), large = median((size_t)atoll(argv[3]), atoi(argv[2]));
    if (rank == 0)
        printf("%.3f %.3f\n", small, large);
    MPI_Finalize();
    return 0;
}
