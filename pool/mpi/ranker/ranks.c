/* The ranks as processes: how they are started, where they may run, and how each ended.
 *
 * A rank inherits its PMI socket, the standard files and the environment of the ranker, and nothing else. Rank 0 alone
 * has the job's standard input.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranker.h"

enum { FINALIZED_MS = 3000 };

/* Processor time is the pool's to divide; a rank is bound only where the part has processors of its own: as many as the
 * ranks need, and no more. Then each rank gets an equal share of them, in their order. */
static void bind_processors(int local)
{
    cpu_set_t all, own;
    if (!getenv("POOLNODE_MPI_CPUS") || sched_getaffinity(0, sizeof all, &all) < 0)
        return;
    int cpus = CPU_COUNT(&all), each = cpus / me.count, seen = 0;
    if (each < 1 || atoi(getenv("POOLNODE_MPI_CPUS")) != cpus)
        return;
    CPU_ZERO(&own);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all) && seen++ / each == local)
            CPU_SET(i, &own);
    if (CPU_COUNT(&own))
        sched_setaffinity(0, sizeof own, &own);
}

/* Each rank sees its share of the part's GPUs: several for one rank, or one for several. */
static void bind_gpus(const char *variable, int local)
{
    const char *all = getenv(variable);
    if (!all || !*all)
        return;
    int count = 1, at = 0;
    for (const char *c = all; *c; c++)
        count += *c == ',';
    int first = count >= me.count ? local * (count / me.count) : local * count / me.count;
    int last = count >= me.count ? first + count / me.count : first + 1;
    char *own = strdup(all), *to = own;
    if (!own)
        return;
    *own = 0;
    for (const char *from = all; *from; at++) {
        size_t length = strcspn(from, ",");
        if (at >= first && at < last) {
            if (to != own)
                *to++ = ',';
            memcpy(to, from, length);
            to += length;
            *to = 0;
        }
        from += length + (from[length] == ',');
    }
    setenv(variable, own, 1);
    free(own);
}

static void set_number(const char *variable, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(variable, text, 1);
}

/* Of the ranker's own, and of another MPI job from which this one was submitted. */
static const char *const not_inherited[] = {
    "POOLNODE_MPI_NAME", "POOLNODE_MPI_CPUS", "POOLNODE_MPI_SHARED", "PMI_PORT", "PMI_ID",
    "PMI_SPAWNED",       "PMI_CONTROL_PORT",  "HYDI_CONTROL_FD"};

/* Written by a rank whose program cannot be started, in one piece. */
struct failed_start {
    int local, why;
};

static _Noreturn void start_program(int local, int told)
{
    execvp(me.argv[0], me.argv);
    struct failed_start failed = {local, errno};
    _exit(write(told, &failed, sizeof failed) == (ssize_t)sizeof failed ? 127 : 126);
}

static _Noreturn void become_rank(const struct rank *r, pid_t ranker, int socket, int told)
{
    int local = r->number - me.first;
    sigset_t none;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives a ranker that is killed */
    if (getppid() != ranker)
        _exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 1; i < 32; i++)
        if (i != SIGKILL && i != SIGSTOP)
            signal(i, SIG_DFL);
    if (me.mpirun)
        start_program(local, told);
    setsid(); /* the kernel divides a busy machine among sessions first: a rank counts as a job of one processor does */
    if (r->number != 0) {
        int nothing = open("/dev/null", O_RDONLY);
        if (nothing > 0) {
            dup2(nothing, 0);
            close(nothing);
        }
    }
    if (socket >= 0)
        set_number("PMI_FD", socket);
    set_number("PMI_RANK", r->number);
    set_number("PMI_SIZE", me.size);
    set_number("MPI_LOCALRANKID", local);
    set_number("MPI_LOCALNRANKS", me.count);
    bind_processors(local);
    bind_gpus("CUDA_VISIBLE_DEVICES", local);
    bind_gpus("ROCR_VISIBLE_DEVICES", local);
    for (size_t i = 0; i < sizeof not_inherited / sizeof *not_inherited; i++)
        unsetenv(not_inherited[i]);
    if (socket >= 0)
        fcntl(socket, F_SETFD, 0);
    else
        pmix_variables(r);
    start_program(local, told);
}

/* 0; or the errno of the fork. */
static int fork_rank(struct rank *r, int told)
{
    int pair[2] = {-1, -1};
    if (!me.pmix && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return errno;
    pid_t ranker = getpid(), pid = fork();
    if (pid == 0)
        become_rank(r, ranker, pair[1], told);
    int why = pid < 0 ? errno : 0;
    if (pair[1] >= 0)
        close(pair[1]);
    if (why) {
        if (pair[0] >= 0)
            close(pair[0]);
        return why;
    }
    r->pid = pid;
    r->fd = pair[0];
    return 0;
}

/* Reads until each rank has started its program or failed to. The first rank that failed, over `failed`. */
static struct failed_start read_failed_starts(int told, struct failed_start failed)
{
    struct failed_start next;
    while (read(told, &next, sizeof next) == (ssize_t)sizeof next) {
        struct rank *r = &me.ranks[next.local];
        waitpid(r->pid, NULL, 0);
        if (r->fd >= 0)
            close(r->fd);
        r->pid = 0;
        r->fd = -1;
        if (!failed.why || next.local < failed.local)
            failed = next;
    }
    return failed;
}

/* All ranks are forked before the first is waited for: those that run already may use every processor. */
int start_ranks(void)
{
    int told[2];
    struct failed_start failed = {0, 0};
    for (int i = 0; i < me.count && me.mpirun; i++)
        me.ranks[i].stage = FINALIZED; /* its MPI is not ours to see */
    if (pipe2(told, O_CLOEXEC) < 0) {
        failed.why = errno;
    } else {
        for (int i = 0; i < me.count && !failed.why; i++)
            failed = (struct failed_start){i, fork_rank(&me.ranks[i], told[1])};
        close(told[1]);
        failed = read_failed_starts(told[0], failed);
        close(told[0]);
    }
    me.changed = true;
    if (!failed.why)
        return 0;
    end_job(ENDS_WITH_CODE, failed.why == ENOENT ? 127 : 126, "cannot start rank %d: %.200s: %s",
            me.first + failed.local, me.argv[0], strerror(failed.why));
    return -1;
}

bool ranks_left(void)
{
    if (me.mpirun)
        return launcher_left();
    if (me.pmix && !me.server_ready && !me.over)
        return true;
    for (int i = 0; i < me.count; i++)
        if (me.ranks[i].pid || (me.ranks[i].judged_at && !me.over))
            return true;
    return false;
}

void signal_ranks(int signal)
{
    for (int i = 0; i < me.count; i++)
        if (me.ranks[i].pid && (signal != SIGKILL || !writes_core(me.ranks[i].pid)))
            kill(me.ranks[i].pid, signal);
}

/* mpirun has said in the job's error file what happened to which rank. Its daemons end as it does. */
static void launcher_ended(int status)
{
    me.ranks[0].ended_well = status == 0;
    if (me.part)
        return;
    if (WIFSIGNALED(status))
        end_job(ENDS_BY_SIGNAL, WTERMSIG(status), "mpirun ended by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status))
        end_job(ENDS_WITH_CODE, WEXITSTATUS(status), "mpirun exited with code %d", WEXITSTATUS(status));
}

static void ended(struct rank *r, int status)
{
    /* Its last requests may still be unread: an abort says more than the exit code that follows it. */
    while (!me.over && rank_is_heard(r)) {
        size_t before = r->used;
        enum stage stage = r->stage;
        rank_readable(r);
        if (r->fd >= 0 && r->used == before && r->stage == stage)
            break;
    }
    while (me.server.in >= 0 && !me.over && link_readable(&me.server)) {
        /* what the server says of the rank was sent before the rank's end */
    }
    pid_t pid = r->pid;
    r->pid = 0;
    me.changed = true;
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
    if (me.mpirun) {
        launcher_ended(status);
        return;
    }
    bool waited = r->in_barrier;
    r->ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0 && r->stage != SPOKE;
    if (WIFSIGNALED(status) && WCOREDUMP(status))
        name_core(r, pid);
    if (me.over && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return; /* by us */
    if (WIFSIGNALED(status))
        end_by_rank(r, ENDS_BY_SIGNAL, WTERMSIG(status), "rank %d ended by signal %d (%s)%s", r->number,
                    WTERMSIG(status), strsignal(WTERMSIG(status)), WCOREDUMP(status) ? ", core file" : "");
    else if (WEXITSTATUS(status))
        end_by_rank(r, ENDS_WITH_CODE, WEXITSTATUS(status), "rank %d exited with code %d", r->number,
                    WEXITSTATUS(status));
    else if (r->stage == SPOKE && me.pmix && !waited)
        r->judged_at = now_ms() + FINALIZED_MS;
    else if (r->stage == SPOKE)
        end_by_rank(r, ENDS_WITH_CODE, 1, "rank %d exited with code 0 %s", r->number,
                    waited ? "in the middle of an MPI call" : "without MPI_Finalize");
    else
        look_for_silent();
}

/* The library of PMIx waits two seconds for its server in MPI_Finalize, and then exits: on a busy machine the rank's
 * end comes before the server's word. */
long judge_ranks(void)
{
    long left = -1, now = now_ms();
    for (int i = 0; i < me.count; i++) {
        struct rank *r = &me.ranks[i];
        if (!r->judged_at)
            continue;
        if (r->stage == FINALIZED) {
            r->judged_at = 0;
            r->ended_well = me.changed = true;
        } else if (now >= r->judged_at) {
            r->judged_at = 0;
            end_job(ENDS_WITH_CODE, 1, "rank %d exited with code 0 without MPI_Finalize", r->number);
        } else if (left < 0 || r->judged_at - now < left) {
            left = r->judged_at - now;
        }
    }
    return left;
}

void reap_ranks(void)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == me.server_pid)
            me.server_pid = 0;
        for (int i = 0; i < me.count; i++)
            if (me.ranks[i].pid == pid)
                ended(&me.ranks[i], status);
    }
}
