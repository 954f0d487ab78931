/* ends HOW RANK: that rank ends in this way behind a barrier, and the others wait for it. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, at = argc > 2 ? atoi(argv[2]) : 0;
    const char *how = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == at) {
        if (strcmp(how, "signal") == 0)
            raise(SIGSEGV);
        if (strcmp(how, "exit") == 0)
            _exit(7);
        if (strcmp(how, "unfinished") == 0)
            _exit(0);
        if (strcmp(how, "abort") == 0)
            MPI_Abort(MPI_COMM_WORLD, 42);
        if (strcmp(how, "spawn") == 0) {
            MPI_Comm more;
            MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
            int refused = MPI_Comm_spawn("/bin/true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &more,
                                         MPI_ERRCODES_IGNORE);
            printf("spawn %s\n", refused == MPI_SUCCESS ? "granted" : "refused");
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
