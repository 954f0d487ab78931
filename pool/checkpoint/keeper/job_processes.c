/* The job's own processes: forked together, joined by plain pipes, and how each ended.
 *
 * A pipe whose both ends are descriptors (stdout, stdin, /dev/fd/N) is the kernel's own and nobody between: only its writer
 * and its reader hold it, so that end of file and SIGPIPE come as in a shell. Ends with names are mapped_files/mapped_files.c's.
 *
 * The job's end is that of the first process that failed, or without one that of the last process of the description. */
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

#include "state/state.h"

/* Before the job is forked or put back. */
int members_prepare(struct job *job, struct failure *f)
{
    static struct member_end *ends;
    if (!ends) {
        void *room = mmap(NULL, MEMBERS_MOST * sizeof *ends, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED)
            return fail(f, "malloc", "ends of processes");
        ends = room;
    }
    for (uint32_t i = 0; i < job->count; i++) {
        ends[i] = (struct member_end){.code = -1, .signal = -1};
        job->members[i].end = &ends[i];
    }
    return 0;
}

int end_descriptor(const char *file, int standard)
{
    static const char directory[] = "/dev/fd/";
    char *rest;
    if (!*file)
        return standard;
    if (strncmp(file, directory, sizeof directory - 1) != 0)
        return -1;
    long number = strtol(file + sizeof directory - 1, &rest, 10);
    return *rest || rest == file + sizeof directory - 1 || number < 0 || number > 255 ? -1 : (int)number;
}

/* A pipe of the job's user, who may open his own ends anew by /dev/stdin and /dev/fd/N; the kernel gave it to the keeper's. */
int members_make_pipe(const struct job *job, int ends[2], struct failure *f)
{
    const struct start *s = job->start;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return fail(f, "pipe", "between two processes");
    if ((s->uid == geteuid() && s->gid == getegid()) || fchown(ends[0], s->uid, s->gid) == 0)
        return 0;
    fail(f, "chown", "a pipe between two processes");
    close(ends[0]);
    close(ends[1]);
    return -1;
}

/* High numbers: place_ends puts them where they belong without meeting another one there. */
static int make_pipe(const struct job *job, struct conduit *c, struct failure *f)
{
    int ends[2];
    if (c->head->writer < 0 || c->head->reader < 0) /* the node has made it: members_end */
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
        return fail(f, "pipe", "between two processes");
    if (c->head->capacity && fcntl(c->ends[1], F_SETPIPE_SZ, (int)c->head->capacity) < 0 && errno != EPERM)
        return fail(f, "pipe", "of the wanted capacity");
    return 0;
}

/* The number of the one end that is the job's, of a pipe whose other end is on another machine; -1 for others. */
static int own_end(const struct conduit *c)
{
    if ((c->head->writer < 0) == (c->head->reader < 0))
        return -1;
    return c->head->writer < 0 ? 0 : 1;
}

bool members_whole(const struct job *job)
{
    for (uint32_t i = 0; i < job->pipe_count; i++) {
        int end = own_end(&job->pipes[i]);
        if (end >= 0 && job->pipes[i].ends[end] < 0)
            return false;
    }
    return true;
}

void members_end(struct job *job, uint64_t pipe, int fd)
{
    struct stat st;
    int end = pipe < job->pipe_count ? own_end(&job->pipes[pipe]) : -1;
    if (end >= 0 && job->pipes[pipe].ends[end] < 0) {
        job->pipes[pipe].ends[end] = fcntl(fd, F_DUPFD_CLOEXEC, 256);
        job->pipes[pipe].inode = fstat(fd, &st) == 0 ? st.st_ino : 0;
    }
    close(fd);
}

int members_own_end(const struct job *job, uint64_t pipe)
{
    int end = pipe < job->pipe_count ? own_end(&job->pipes[pipe]) : -1;
    return end < 0 ? -1 : job->pipes[pipe].ends[end];
}

void members_close_ends(const struct job *job)
{
    for (uint32_t i = 0; i < job->pipe_count; i++)
        for (int end = 0; end < 2; end++) {
            if (job->pipes[i].ends[end] >= 0)
                close(job->pipes[i].ends[end]);
            job->pipes[i].ends[end] = -1;
        }
}

static int fork_all(struct job *job, int group, int told, const int gate[2], struct failure *f)
{
    pid_t keeper = getpid();
    for (uint32_t i = 0; i < job->count; i++) {
        struct member *m = &job->members[i];
        m->pid = group_fork(group);
        if (m->pid == 0)
            job_become(job, i, keeper, told, gate);
        if (m->pid > 0)
            continue;
        m->pid = 0;
        fail(f, "fork", "");
        for (uint32_t j = 0; j < i; j++) {
            kill(job->members[j].pid, SIGKILL); /* it waits at the gate */
            waitpid(job->members[j].pid, NULL, 0);
        }
        return -1;
    }
    return 0;
}

/* Forks the job. The read end of a pipe tells how it went: end of file when all programs run (the other end closes on
 * exec), else a struct failure. A fork and not a vfork: an open that hangs (a fifo, a dead file server) must not stop the
 * keeper from watching the lease. */
int members_start(struct job *job, int group, int *pipe_end, struct failure *f)
{
    int told[2], gate[2] = {-1, -1}, done = 0;
    if (mapping_begin(job, group, f)) /* first of all: its supervisor is to hold nothing of what follows */
        return -1;
    if (pipe2(told, O_CLOEXEC) < 0) {
        mapping_end(NULL);
        return fail(f, "pipe", "");
    }
    if (job->count > 1 && pipe2(gate, O_CLOEXEC) < 0)
        done = fail(f, "pipe", "");
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

/* A writer whose reader has had enough is no failure: `yes | head`. Exit codes are the program's business unless the
 * description says otherwise. */
static bool failed(const struct job *job, uint32_t member)
{
    const struct member *m = &job->members[member];
    if (m->end->signal >= 0)
        return m->end->signal != SIGPIPE || !writes_to_a_pipe(job, member);
    return m->head->fails[m->end->code / 8 & 31] >> (m->end->code & 7) & 1;
}

/* For what it did: one that ended well counts as killed like one that was still there. */
static uint32_t convict(struct member_end *end)
{
    if (end->code == 0) {
        end->code = -1;
        end->signal = SIGKILL;
    }
    return MEMBER_FAILED;
}

/* The member that this process was, its end noted; NULL when it was none. `killing`: the keeper has sent SIGKILL to all; for what
 * `guilty` did, or nobody. */
struct member *members_reaped(struct job *job, pid_t pid, int status, const struct rusage *use, bool killing, uint32_t guilty)
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
        else if (job->start->members && failed(job, i))
            state |= MEMBER_FAILED;
        __atomic_store_n(&m->end->state, state, __ATOMIC_RELEASE); /* after the rest: a dumper reads it */
        return m;
    }
    return NULL;
}

/* One that has ended already. */
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

/* Whose end is the job's. */
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
        table[i] = *m->end; /* of this run, as all else that a keeper says of use: runs are added up at home */
        table[i].user_us -= table[i].user_us < m->carried_user_us ? table[i].user_us : m->carried_user_us;
        table[i].system_us -= table[i].system_us < m->carried_system_us ? table[i].system_us : m->carried_system_us;
    }
    return (uint32_t)(job->count * sizeof *table);
}

/* Clock ticks of user and system time of a living process and of those that it waited for, added. */
static void add_times(pid_t pid, struct member_end *end)
{
    char text[1024];
    unsigned long long user = 0, system = 0;
    long long waited_user = 0, waited_system = 0;
    const char *at = proc_text(pid, "stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    uint64_t tick = (uint64_t)sysconf(_SC_CLK_TCK);
    if (!at || sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %lld %lld", &user, &system, &waited_user, &waited_system) != 4)
        return;
    end->user_us += (user + (uint64_t)waited_user) * 1000000 / tick;
    end->system_us += (system + (uint64_t)waited_system) * 1000000 / tick;
}

static bool is_held(const struct dump *d, pid_t pid)
{
    for (size_t i = 0; i < d->count; i++)
        if (d->subjects[i].pid == pid)
            return true;
    return false;
}

/* Which of the dumped processes are the job's own, and how those that are over have ended. One may have ended before the
 * others were held: the keeper notes its end meanwhile. */
int members_save(struct dump *d)
{
    for (uint32_t i = 0; i < d->job->count; i++) {
        const struct member *m = &d->job->members[i];
        bool held = is_held(d, m->pid);
        for (int tries = 0; !held && !(__atomic_load_n(&m->end->state, __ATOMIC_ACQUIRE) & MEMBER_OVER); tries++) {
            if (tries == 1000) {
                errno = ESRCH;
                return fail(&d->failure, "dump", m->name);
            }
            usleep(1000);
        }
        struct member_row *row = table_add(&d->image.members);
        row->end = *m->end;
        if (!held)
            continue;
        row->pid = m->pid;
        row->end.state = 0;
        row->end.wall_us += boot_us() - d->job->began_us;
        add_times(m->pid, &row->end);
    }
    return 0;
}

/* Which pipes of the image lead to other machines: its end there is made anew by the node. One that no process holds any more
 * has no row, and is closed again where the job goes on. */
void members_crossings(struct dump *d, struct outcome *o)
{
    memset(o->held, '0', d->job->pipe_count);
    o->held[d->job->pipe_count] = 0;
    for EACH(&d->image, files, file, f)
        for (uint32_t i = 0; f->kind == FILE_PIPE && i < d->job->pipe_count; i++)
            if (own_end(&d->job->pipes[i]) >= 0 && d->job->pipes[i].inode == f->inode) {
                f->times[0] = i + 1;
                o->held[i] = '1';
            }
}

/* Before they are put back: who is who, and the ends of those that are over. */
int members_load(struct job *job, const struct image *image)
{
    const struct member_row *rows = image->members.rows;
    if (image->members.count != job->count)
        return -1;
    for (uint32_t i = 0; i < job->count; i++) {
        bool there = !rows[i].pid;
        for EACH(image, processes, process, p)
            there |= p->pid == rows[i].pid;
        if (!there)
            return -1;
        job->members[i].pid = rows[i].pid;
        *job->members[i].end = rows[i].end;
        job->members[i].carried_user_us = rows[i].end.user_us;
        job->members[i].carried_system_us = rows[i].end.system_us;
    }
    return members_over(job) ? -1 : 0;
}
