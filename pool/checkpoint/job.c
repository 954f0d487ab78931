/* The job's first process: from the fork to its own program, every step with the job's rights, every failure named. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper.h"

static int limit(int which, uint64_t value, const char *name, struct failure *f)
{
    if (value == UNLIMITED)
        return 0;
    struct rlimit now, wanted = {value, value};
    /* The hard limit of cpu time lies a little above: SIGXCPU first, SIGKILL for those who ignore it. */
    if (which == RLIMIT_CPU)
        wanted.rlim_max = value + 5;
    if (getrlimit((__rlimit_resource_t)which, &now) == 0 && wanted.rlim_max > now.rlim_max) {
        wanted.rlim_max = now.rlim_max; /* the node's own is lower: that one holds */
        if (wanted.rlim_cur > wanted.rlim_max)
            wanted.rlim_cur = wanted.rlim_max;
    }
    return setrlimit((__rlimit_resource_t)which, &wanted) < 0 ? fail(f, "setrlimit", name) : 0;
}

static int limits(const struct start *s, struct failure *f)
{
    if (limit(RLIMIT_CPU, s->cpu, "cpu", f) || limit(RLIMIT_CORE, s->core, "core", f) ||
        limit(RLIMIT_FSIZE, s->fsize, "fsize", f) || limit(RLIMIT_NOFILE, s->nofile, "nofile", f))
        return -1;
    /* The kernel counts a user's processes, not a job's: where the user is the node's own, the cgroup alone limits. */
    if (s->uid != geteuid() && limit(RLIMIT_NPROC, s->processes, "processes", f))
        return -1;
    errno = 0;
    if (s->nice && setpriority(PRIO_PROCESS, 0, s->nice) < 0)
        return fail(f, "setpriority", "nice");
    return 0;
}

static int open_as(int place, const char *path, int flags, struct failure *f)
{
    static const char *const calls[] = {"open stdin", "open stdout", "open stderr"};
    int fd = open(*path ? path : "/dev/null", flags | O_NOCTTY, 0666);
    if (fd < 0)
        return fail(f, calls[place], path);
    if (fd != place) {
        if (dup2(fd, place) < 0)
            return fail(f, calls[place], path);
        close(fd);
    }
    return 0;
}

static int open_three(const struct job *job, struct failure *f)
{
    int write = O_WRONLY | O_CREAT | (job->start->flags & FLAG_APPEND ? O_APPEND : O_TRUNC);
    if (open_as(0, job->in, O_RDONLY, f) || open_as(1, job->out, write, f))
        return -1;
    if (*job->errors && strcmp(job->out, job->errors) == 0) /* one file for both: one offset for both */
        return dup2(1, 2) < 0 ? fail(f, "open stderr", job->errors) : 0;
    return open_as(2, job->errors, write, f);
}

/* The interpreter a script names, when that is what execve did not find. */
static bool interpreter(const char *program, char *name, size_t size)
{
    char head[256];
    int fd = open(program, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, head, sizeof head - 1);
    if (fd >= 0)
        close(fd);
    if (got < 4)
        return false;
    head[got] = 0;
    if (memcmp(head, "\177ELF", 4) == 0) {
        copy_text(name, size, "the dynamic loader it was linked for");
        return true;
    }
    if (head[0] != '#' || head[1] != '!')
        return false;
    char *from = head + 2 + strspn(head + 2, " \t");
    from[strcspn(from, " \t\r\n")] = 0;
    copy_text(name, size, from);
    return true;
}

static int exec_failure(const char *program, struct failure *f)
{
    int err = errno;
    char text[TEXT], name[256];
    struct stat st;
    copy_text(text, sizeof text, program);
    if (err == ENOENT && stat(program, &st) == 0 && interpreter(program, name, sizeof name))
        snprintf(text, sizeof text, "%.400s\nits interpreter is missing: %s", program, name);
    else if (err == EACCES && stat(program, &st) == 0 && S_ISDIR(st.st_mode))
        snprintf(text, sizeof text, "%.400s\nit is a directory", program);
    else if (err == EACCES && stat(program, &st) == 0 && !(st.st_mode & 0111))
        snprintf(text, sizeof text, "%.400s\nit is not marked executable", program);
    else if (err == ENOEXEC)
        snprintf(text, sizeof text, "%.400s\nit is neither a program for this machine nor a script with a #! line",
                 program);
    errno = err;
    return fail(f, "exec", text);
}

/* A name without a slash is looked for in the job's directory, then along the job's own PATH. */
static int execute(const struct job *job, struct failure *f)
{
    const char *program = *job->program ? job->program : job->argv[0], *path = NULL;
    execve(program, job->argv, job->envp);
    if (errno != ENOENT || strchr(program, '/'))
        return exec_failure(program, f);
    for (char **e = job->envp; *e && !path; e++)
        if (strncmp(*e, "PATH=", 5) == 0)
            path = *e + 5;
    while (path && *path) {
        char full[4096];
        int length = (int)strcspn(path, ":");
        snprintf(full, sizeof full, "%.*s/%s", length, path, program);
        if (length)
            execve(full, job->argv, job->envp);
        if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
            return exec_failure(full, f);
        path += length + (path[length] == ':');
    }
    errno = ENOENT;
    return exec_failure(program, f);
}

static void plain_signals(void)
{
    sigset_t none;
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void become(const struct job *job, pid_t keeper, struct failure *f)
{
    setsid();
    umask(022);
    if (limits(job->start, f) || space_drop(job, f))
        return;
    /* Where there is no pid namespace this is what ends the job with its keeper. It is cleared by a change of user id,
     * so it comes after that (prctl(2)); the keeper may have died before it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        _exit(127);
    if (chdir(*job->cwd ? job->cwd : "/") < 0) {
        fail(f, "chdir", job->cwd);
        return;
    }
    if (open_three(job, f))
        return;
    plain_signals();
    execute(job, f);
}

/* Forks the job. The read end of a pipe tells how it went: end of file when the program runs (the other end closes on
 * exec), else a struct failure. A fork and not a vfork: an open that hangs (a fifo, a dead file server) must not stop the
 * keeper from watching the lease. */
pid_t job_start(const struct job *job, int group, int *pipe_end, struct failure *f)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return fail(f, "pipe", "");
    pid_t keeper = getpid(), pid = group_fork(group);
    if (pid == 0) {
        become(job, keeper, f);
        for (const char *at = (const char *)f, *end = at + sizeof *f; at < end;) {
            ssize_t n = write(ends[1], at, (size_t)(end - at));
            if (n <= 0)
                break;
            at += n;
        }
        _exit(127);
    }
    if (pid < 0) {
        fail(f, "fork", "");
        close(ends[0]);
    }
    close(ends[1]);
    *pipe_end = ends[0];
    return pid;
}
