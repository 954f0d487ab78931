/* The job's members: forks them together, joins them by plain pipes, and records how each ended. A pipe with file
 * descriptors at both ends (stdout, stdin, /dev/fd/N) is the kernel's own: only its writer and its reader have it, so
 * end of file and SIGPIPE come as in a shell. Ends with names belong to mapped_files/mapped_files.c. The job ends as
 * the first member that failed did, or else as the last member of the description. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/keeper.h"
#include "mapped_files/mapped_files.h"
#include "remote_notify/remote_notify.h"
#include "sandbox/sandbox.h"

/* Called before the job is forked or restored. */
int members_prepare(struct job *job, struct failure *f)
{
    static struct member_end *ends;
    if (!ends) {
        void *room = mmap(NULL, MEMBERS_MOST * sizeof *ends, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED)
            return set_failure(f, "malloc", "ends of processes");
        ends = room;
    }
    for (uint32_t i = 0; i < job->count; i++) {
        ends[i] = (struct member_end){.code = -1, .signal = -1};
        job->members[i].end = &ends[i];
    }
    return 0;
}

/* Uses high numbers, so that place_ends can move them to any lower number. */
static int make_pipe(const struct job *job, struct conduit *c, struct failure *f)
{
    int ends[2];
    if (c->head->writer < 0 || c->head->reader < 0) /* the node makes it: members_end */
        return 0;
    if (end_descriptor(c->writer_file, 1) < 0 || end_descriptor(c->reader_file, 0) < 0)
        return 0;
    if (members_make_pipe(job, ends, f))
        return -1;
    for (int i = 0; i < 2; i++) {
        c->ends[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, 256);
        close(ends[i]);
    }
    if (c->ends[0] < 0 || c->ends[1] < 0)
        return set_failure(f, "pipe", "between two processes");
    if (c->head->capacity && fcntl(c->ends[1], F_SETPIPE_SZ, (int)c->head->capacity) < 0 && errno != EPERM)
        return set_failure(f, "pipe", "of the wanted capacity");
    return 0;
}

static int fork_all(struct job *job, int group, int told, const int gate[2], struct failure *f)
{
    pid_t keeper = getpid();
    for (uint32_t i = 0; i < job->count; i++) {
        struct member *m = &job->members[i];
        m->pid = cgroup_fork(group);
        if (m->pid == 0)
            job_become(job, i, keeper, told, gate);
        if (m->pid > 0)
            continue;
        m->pid = 0;
        set_failure(f, "fork", "");
        for (uint32_t j = 0; j < i; j++) {
            kill(job->members[j].pid, SIGKILL); /* it waits at the gate */
            waitpid(job->members[j].pid, NULL, 0);
        }
        return -1;
    }
    return 0;
}

/* Forks the job. The read end of a pipe reports the result: end of file when all programs run (the other end closes on
 * exec), else a struct failure. It uses fork, not vfork: an open that hangs (a named pipe, a dead file server) must not
 * keep the keeper from checking the lease. */
int members_start(struct job *job, int group, int *pipe_end, struct failure *f)
{
    int told[2], gate[2] = {-1, -1}, done = 0;
    if (mapping_begin(job, group, f)) /* first, so that its supervisor inherits none of the following */
        return -1;
    if (pipe2(told, O_CLOEXEC) < 0) {
        mapping_end(NULL);
        return set_failure(f, "pipe", "");
    }
    if (job->count > 1 && pipe2(gate, O_CLOEXEC) < 0)
        done = set_failure(f, "pipe", "");
    for (uint32_t i = 0; i < job->pipe_count && !done; i++)
        done = make_pipe(job, &job->pipes[i], f);
    if (!done)
        done = fork_all(job, group, told[1], gate, f);
    members_close_ends(job);
    notify_forked();
    for (int end = 0; end < 2 && gate[end] >= 0; end++)
        close(gate[end]);
    close(told[1]);
    if (done) {
        close(told[0]);
        mapping_end(NULL);
    }
    *pipe_end = done ? -1 : told[0];
    return done;
}

static bool writes_to_a_pipe(const struct job *job, uint32_t member)
{
    for (uint32_t i = 0; i < job->pipe_count; i++)
        if (job->pipes[i].head->writer == (int32_t)member)
            return true;
    return false;
}

/* Whether the member failed. A writer killed by SIGPIPE did not: `yes | head`. An exit code is a failure only if the
 * description says so. */
static bool has_failed(const struct job *job, uint32_t member)
{
    const struct member *m = &job->members[member];
    if (m->end->signal >= 0)
        return m->end->signal != SIGPIPE || !writes_to_a_pipe(job, member);
    return m->head->fails[m->end->code / 8 & 31] >> (m->end->code & 7) & 1;
}

/* Marks a member as failed for misuse; if it exited with 0, it counts as killed. */
static uint32_t convict(struct member_end *end)
{
    if (end->code == 0) {
        end->code = -1;
        end->signal = SIGKILL;
    }
    return MEMBER_FAILED;
}

/* Records the end of a member; NULL: the process was no member. `killing`: the keeper has sent SIGKILL to all, because
 * of member `guilty`, or of no member. */
struct member *members_reaped(struct job *job, pid_t pid, int status, const struct rusage *use, bool killing,
                              uint32_t guilty)
{
    for (uint32_t i = 0; i < job->count; i++) {
        struct member *m = &job->members[i];
        if (m->pid != pid || m->end->state & MEMBER_OVER)
            continue;
        m->end->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        m->end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : -1;
        m->end->core = WIFSIGNALED(status) && WCOREDUMP(status);
        m->end->user_us += (uint64_t)use->ru_utime.tv_sec * 1000000 + (uint64_t)use->ru_utime.tv_usec;
        m->end->system_us += (uint64_t)use->ru_stime.tv_sec * 1000000 + (uint64_t)use->ru_stime.tv_usec;
        if ((uint64_t)use->ru_maxrss > m->end->max_rss_kib)
            m->end->max_rss_kib = (uint64_t)use->ru_maxrss;
        m->end->wall_us += boot_us() - job->began_us;
        uint32_t state = MEMBER_OVER;
        if (i == guilty)
            state |= convict(m->end);
        else if (killing && m->end->signal == SIGKILL)
            state |= MEMBER_WITH_JOB;
        else if (job->start->members && has_failed(job, i))
            state |= MEMBER_FAILED;
        __atomic_store_n(&m->end->state, state, __ATOMIC_RELEASE); /* last, since a dumper reads it */
        return m;
    }
    return NULL;
}

/* Marks a member that has already ended. */
void members_accuse(struct job *job, uint32_t guilty)
{
    struct member_end *end = guilty < job->count ? job->members[guilty].end : NULL;
    if (end && end->state & MEMBER_OVER)
        __atomic_store_n(&end->state, end->state | convict(end), __ATOMIC_RELEASE);
}

bool members_over(const struct job *job)
{
    for (uint32_t i = 0; i < job->count; i++)
        if (!(job->members[i].end->state & MEMBER_OVER))
            return false;
    return true;
}

bool members_failed(const struct job *job)
{
    for (uint32_t i = 0; i < job->count; i++)
        if (job->members[i].end->state & MEMBER_FAILED && job->start->on_failure == FAILURE_ENDS)
            return true;
    return false;
}

/* The member whose end is the job's end. */
const struct member *members_result(const struct job *job)
{
    const struct member *first = NULL;
    for (uint32_t i = 0; i < job->count && job->start->on_failure != FAILURE_IGNORED; i++) {
        const struct member *m = &job->members[i];
        if (m->end->state & MEMBER_FAILED && (!first || m->end->wall_us < first->end->wall_us))
            first = m;
    }
    return first ? first : &job->members[job->count - 1];
}

void members_signal(const struct job *job, int signal)
{
    for (uint32_t i = 0; i < job->count; i++)
        if (job->members[i].pid > 0 && !(job->members[i].end->state & MEMBER_OVER))
            kill(job->members[i].pid, signal);
}

uint32_t members_report(const struct job *job, void *after)
{
    struct member_end *table = after;
    if (!job->start->members)
        return 0;
    for (uint32_t i = 0; i < job->count; i++) {
        const struct member *m = &job->members[i];
        table[i] = *m->end; /* only of this run, like all use that a keeper reports: the submit side adds the runs up */
        table[i].user_us -= table[i].user_us < m->carried_user_us ? table[i].user_us : m->carried_user_us;
        table[i].system_us -= table[i].system_us < m->carried_system_us ? table[i].system_us : m->carried_system_us;
    }
    return (uint32_t)(job->count * sizeof *table);
}
