/* application: each rank says which of the job's programs it is, MPI_APPNUM. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, known, *number;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &known);
    printf("rank %d application %d\n", rank, known ? *number : -1);
    MPI_Finalize();
    return 0;
}
