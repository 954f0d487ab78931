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

struct progress { /* shared by the workers */
    uint32_t next, failed;
    struct failure failure;
};

static void work_off(unit_work *work, void *what, uint32_t units, struct progress *progress, char *buffer)
{
    struct failure f = {0};
    for (uint32_t unit; !__atomic_load_n(&progress->failed, __ATOMIC_ACQUIRE) &&
                        (unit = __atomic_fetch_add(&progress->next, 1, __ATOMIC_RELAXED)) < units;)
        if (work(what, unit, buffer, &f) && !__atomic_exchange_n(&progress->failed, 1, __ATOMIC_ACQ_REL))
            progress->failure = f;
}

int workers_most(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > MOST ? MOST : count;
}

static int start_workers(unit_work *work, void *what, uint32_t units, struct progress *progress, char *buffer,
                         int wanted, bool behind, pid_t pids[MOST])
{
    struct sched_param none = {0};
    pid_t leader = getpid();
    int count = 0;
    for (; count < wanted; count++) {
        if ((pids[count] = fork()) < 0)
            break;
        if (pids[count] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (behind)
                sched_setscheduler(0, SCHED_IDLE, &none);
            if (getppid() == leader)
                work_off(work, what, units, progress, buffer);
            _exit(0);
        }
    }
    return count;
}

int workers_run(unit_work *work, void *what, uint32_t units, uint64_t bytes, bool behind, struct failure *f)
{
    struct progress *progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *buffer = malloc(CHUNK);
    pid_t pids[MOST];
    int status, ends[2] = {-1, -1};
    if (progress == MAP_FAILED || !buffer) {
        free(buffer);
        return set_failure(f, "malloc", "room for memory on its way");
    }
    bool pinned = bytes >= MUCH && unpin_cpu();
    behind = behind && bytes >= MUCH && pipe2(ends, O_CLOEXEC) == 0;
    int count =
        start_workers(work, what, units, progress, buffer, bytes < MUCH ? 0 : workers_most() - !behind, behind, pids);
    if (behind) {
        struct pollfd all = {.fd = ends[0]};
        close(ends[1]); /* the workers hold it open until they exit */
        if (count > 0)
            poll(&all, 1, (int)(bytes / SLOWEST));
        close(ends[0]);
    }
    work_off(work, what, units, progress, buffer);
    int done = 0;
    for (int i = 0; i < count; i++)
        if (waitpid(pids[i], &status, 0) < 0 || status) {
            errno = EINTR;
            done = set_failure(f, "move", "memory of the job\na process that helped was killed");
        }
    if (pinned)
        pin_cpu();
    if (progress->failed) {
        *f = progress->failure;
        done = -1;
    }
    free(buffer);
    munmap(progress, sizeof *progress);
    return done;
}
