/* Three kernels whose printed sums depend on every byte that was exchanged: a ring that passes blocks on, a loop of
 * allreduces, and a stencil on a line with borders from both neighbours. Arguments: turns, numbers of each rank. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t mix(uint64_t a, uint64_t b) { return (a ^ b) * 0x9e3779b97f4a7c15u + (a >> 7); }

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int turns = argc > 1 ? atoi(argv[1]) : 10, count = argc > 2 ? atoi(argv[2]) : 1000;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    uint64_t *block = malloc((size_t)count * sizeof *block), *got = malloc((size_t)count * sizeof *got), ring = 1;
    uint64_t sum = 0, all;
    for (int i = 0; i < count; i++)
        block[i] = mix((uint64_t)rank + 1, (uint64_t)i);
    for (int turn = 0; turn < turns; turn++) {
        MPI_Sendrecv(block, count, MPI_UINT64_T, next, 1, got, count, MPI_UINT64_T, before, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++)
            ring = mix(ring, block[i] = mix(block[i], got[i]));
        MPI_Allreduce(&ring, &all, 1, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
        sum = mix(sum, all);
    }
    double *line = calloc((size_t)count + 2, sizeof *line), *new = calloc((size_t)count + 2, sizeof *new), heat = 0,
           total;
    if (rank == 0)
        line[1] = 1e6;
    for (int turn = 0; turn < turns * 20; turn++) {
        int up = rank + 1 < size ? rank + 1 : MPI_PROC_NULL, down = rank ? rank - 1 : MPI_PROC_NULL;
        MPI_Sendrecv(line + count, 1, MPI_DOUBLE, up, 2, line, 1, MPI_DOUBLE, down, 2, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(line + 1, 1, MPI_DOUBLE, down, 3, line + count + 1, 1, MPI_DOUBLE, up, 3, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int i = 1; i <= count; i++)
            new[i] = line[i] + (line[i - 1] - 2 * line[i] + line[i + 1]) / 4;
        double *swap = line;
        line = new, new = swap;
    }
    for (int i = 1; i <= count; i++)
        heat += line[i] * i;
    MPI_Reduce(&heat, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    printf("rank %d ring %016llx allreduce %016llx\n", rank, (unsigned long long)ring, (unsigned long long)sum);
    if (rank == 0)
        printf("stencil %.17g\n", total);
    MPI_Finalize();
    return 0;
}
