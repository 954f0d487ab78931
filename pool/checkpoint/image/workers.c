/* Shares work among as many processes as there are CPUs, unit by unit. It moves the memory of large jobs.
 *
 * Background work is done by other processes, in the idle class, since no process can leave that class without a
 * privilege. If all CPUs are busy, they make no progress; so after ten times the usual time the caller takes part, at
 * its own low priority. They are processes and not threads: after waitpid their pids are free again, and a restore
 * needs all pids. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image/image.h"
#include "trace/trace.h"

#define MOST 4

struct board { /* shared by the workers */
    uint32_t next, failed;
    struct failure failure;
};

static void labour(unit_work *work, void *what, uint32_t units, struct board *board, char *buffer)
{
    struct failure f = {0};
    for (uint32_t unit; !__atomic_load_n(&board->failed, __ATOMIC_ACQUIRE) &&
                        (unit = __atomic_fetch_add(&board->next, 1, __ATOMIC_RELAXED)) < units;)
        if (work(what, unit, buffer, &f) && !__atomic_exchange_n(&board->failed, 1, __ATOMIC_ACQ_REL))
            board->failure = f;
}

int workers_most(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > MOST ? MOST : count;
}

static int hire(unit_work *work, void *what, uint32_t units, struct board *board, char *buffer, int wanted, bool behind,
                pid_t mates[MOST])
{
    struct sched_param none = {0};
    pid_t leader = getpid();
    int count = 0;
    for (; count < wanted; count++) {
        if ((mates[count] = fork()) < 0)
            break;
        if (mates[count] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (behind)
                sched_setscheduler(0, SCHED_IDLE, &none);
            if (getppid() == leader)
                labour(work, what, units, board, buffer);
            _exit(0);
        }
    }
    return count;
}

int workers_run(unit_work *work, void *what, uint32_t units, uint64_t bytes, bool behind, struct failure *f)
{
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *buffer = malloc(CHUNK);
    pid_t mates[MOST];
    int status, ends[2] = {-1, -1};
    if (board == MAP_FAILED || !buffer) {
        free(buffer);
        return set_failure(f, "malloc", "room for memory on its way");
    }
    bool gathered = bytes >= MUCH && unpin_cpu();
    behind = behind && bytes >= MUCH && pipe2(ends, O_CLOEXEC) == 0;
    int count = hire(work, what, units, board, buffer, bytes < MUCH ? 0 : workers_most() - !behind, behind, mates);
    if (behind) {
        struct pollfd all = {.fd = ends[0]};
        close(ends[1]); /* the workers hold it open until they exit */
        if (count > 0)
            poll(&all, 1, (int)(bytes / SLOWEST));
        close(ends[0]);
    }
    labour(work, what, units, board, buffer);
    int done = 0;
    for (int i = 0; i < count; i++)
        if (waitpid(mates[i], &status, 0) < 0 || status) {
            errno = EINTR;
            done = set_failure(f, "move", "memory of the job\na process that helped was killed");
        }
    if (gathered)
        pin_cpu();
    if (board->failed) {
        *f = board->failure;
        done = -1;
    }
    free(buffer);
    munmap(board, sizeof *board);
    return done;
}
