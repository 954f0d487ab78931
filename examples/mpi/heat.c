/* heat CELLS STEPS: heat in a square plate, one edge hot, the others cold (the heat equation, explicit scheme).
 *
 * Each rank has a band of rows. Before each step it exchanges its first and last row with its neighbours (the halo).
 * Rank 0 writes the plate to heat.txt, and prints the mean temperature, which does not depend on the number of ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

/* The first row of a rank's band: bands differ by one row at most. */
static int first_row(int cells, int of) { return (int)((long)cells * of / size); }

static void exchange(double *plate, int rows, int cells)
{
    int above = rank ? rank - 1 : MPI_PROC_NULL, below = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(plate + cells, cells, MPI_DOUBLE, above, 0, plate + (rows + 1) * cells, cells, MPI_DOUBLE, below, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(plate + rows * cells, cells, MPI_DOUBLE, below, 1, plate, cells, MPI_DOUBLE, above, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void step(const double *from, double *to, int rows, int cells)
{
    for (int y = 1; y <= rows; y++)
        for (int x = 0; x < cells; x++) {
            const double *at = from + y * cells + x;
            double left = x ? at[-1] : 0, right = x < cells - 1 ? at[1] : 0;
            to[y * cells + x] = *at + 0.2 * (left + right + at[-cells] + at[cells] - 4 * *at);
        }
}

static void write_plate(const double *own, int rows, int cells)
{
    FILE *file = rank ? NULL : fopen("heat.txt", "w");
    double *row = malloc((size_t)cells * sizeof *row);
    for (int of = 0; of < size; of++)
        for (int y = first_row(cells, of); y < first_row(cells, of + 1); y++) {
            if (rank == of)
                memcpy(row, own + (y - first_row(cells, rank) + 1) * cells, (size_t)cells * sizeof *row);
            if (of && rank == of)
                MPI_Send(row, cells, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD);
            if (of && !rank)
                MPI_Recv(row, cells, MPI_DOUBLE, of, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int x = 0; x < cells && file; x++)
                fprintf(file, "%.3f%c", row[x], x < cells - 1 ? ' ' : '\n');
        }
    (void)rows;
    free(row);
    if (file)
        fclose(file);
}

int main(int argc, char **argv)
{
    int cells = argc > 1 ? atoi(argv[1]) : 200, steps = argc > 2 ? atoi(argv[2]) : 1000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rows = first_row(cells, rank + 1) - first_row(cells, rank);
    size_t room = (size_t)(rows + 2) * (size_t)cells;
    double *now = calloc(room, sizeof *now), *next = calloc(room, sizeof *next), sum = 0, whole = 0;
    for (int i = 0; i < steps; i++) {
        exchange(now, rows, cells);
        for (int x = 0; x < cells && !rank; x++)
            now[x] = 100; /* the hot edge */
        step(now, next, rows, cells);
        double *other = now;
        now = next;
        next = other;
    }
    for (int i = cells; i < (rows + 1) * cells; i++)
        sum += now[i];
    MPI_Reduce(&sum, &whole, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    write_plate(now, rows, cells);
    if (!rank)
        printf("%d ranks, %d steps: mean temperature %.6f\n", size, steps, whole / cells / cells);
    MPI_Finalize();
    return 0;
}
