/* A token around the ring, a sum with a checksum over all ranks, and a broadcast: "rank R of N sum S check C". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BIG = 100000 };

int main(int argc, char **argv)
{
    int rank, size, loops = argc > 1 ? atoi(argv[1]) : 5;
    long token = 0, sum = 0;
    static unsigned char block[BIG];
    unsigned long check = 0, largest = 0, least = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < loops; i++) {
        if (rank)
            MPI_Recv(&token, 1, MPI_LONG, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        token++;
        MPI_Send(&token, 1, MPI_LONG, (rank + 1) % size, 0, MPI_COMM_WORLD);
        if (!rank)
            MPI_Recv(&token, 1, MPI_LONG, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    long own = rank + 1;
    MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; !rank && i < BIG; i++)
        block[i] = (unsigned char)(i * 7 + sum);
    MPI_Bcast(block, BIG, MPI_BYTE, 0, MPI_COMM_WORLD);
    for (int i = 0; i < BIG; i++)
        check = check * 31 + block[i];
    MPI_Allreduce(&check, &largest, 1, MPI_UNSIGNED_LONG, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&check, &least, 1, MPI_UNSIGNED_LONG, MPI_MIN, MPI_COMM_WORLD);
    printf("rank %d of %d sum %ld token %s check %s\n", rank, size, sum, rank || token == (long)loops * size ? "ok" : "lost",
           largest == least && check ? "ok" : "differs");
    MPI_Finalize();
    return sum == (long)size * (size + 1) / 2 && largest == least ? 0 : 3;
}
