/* Work shared out among as many processes as there are processors, unit by unit; large jobs' memory is moved so.
 *
 * Processes and not threads: their numbers are free again when they were waited for, and a restore needs all numbers. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine.h"

#define MOST 4
#define WORTH (16ul << 20) /* bytes for which more than one are begun */

struct board { /* shared by the crew */
    uint32_t next, failed;
    struct failure failure;
};

static void labour(unit_work *work, void *what, uint32_t units, struct board *board, char *buffer)
{
    struct failure f = {0};
    for (uint32_t unit; !__atomic_load_n(&board->failed, __ATOMIC_ACQUIRE) && (unit = __atomic_fetch_add(&board->next, 1, __ATOMIC_RELAXED)) < units;)
        if (work(what, unit, buffer, &f) && !__atomic_exchange_n(&board->failed, 1, __ATOMIC_ACQ_REL))
            board->failure = f;
}

static int processors(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > MOST ? MOST : count;
}

int crew_run(unit_work *work, void *what, uint32_t units, uint64_t bytes, struct failure *f)
{
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *buffer = malloc(CHUNK);
    pid_t mates[MOST], leader = getpid();
    int count = 0, status;
    if (board == MAP_FAILED || !buffer) {
        free(buffer);
        return fail(f, "malloc", "room for memory on its way");
    }
    for (int wanted = bytes < WORTH ? 0 : processors() - 1; count < wanted; count++) {
        if ((mates[count] = fork()) < 0)
            break;
        if (mates[count] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() == leader)
                labour(work, what, units, board, buffer);
            _exit(0);
        }
    }
    labour(work, what, units, board, buffer);
    int done = 0;
    for (int i = 0; i < count; i++)
        if (waitpid(mates[i], &status, 0) < 0 || status) {
            errno = EINTR;
            done = fail(f, "move", "memory of the job\na process that helped was killed");
        }
    if (board->failed) {
        *f = board->failure;
        done = -1;
    }
    free(buffer);
    munmap(board, sizeof *board);
    return done;
}
