/* Turns a forked process (job_processes.c) into one of the job's programs: limits, rights, directory, files, execve.
 * Every step has the job's rights, and every failure is named. */
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
#include <sys/time.h>
#include <unistd.h>

#include "keeper/keeper.h"
#include "mapped_files/mapped_files.h"
#include "remote_notify/remote_notify.h"
#include "sandbox/sandbox.h"

/* Seconds to wait for the other end of a named pipe; or half of the lease if that is less. */
#define OTHER_END 30

static int set_limit(int which, uint64_t value, const char *name, struct failure *f)
{
    if (value == UNLIMITED)
        return 0;
    struct rlimit now, wanted = {value, value};
    /* The hard limit of CPU time is a little higher: first SIGXCPU, then SIGKILL for programs that ignore it. */
    if (which == RLIMIT_CPU)
        wanted.rlim_max = value + 5;
    bool known = getrlimit((__rlimit_resource_t)which, &now) == 0;
    if (known && which == RLIMIT_STACK) /* the program may raise it up to the machine's limit */
        wanted.rlim_max = now.rlim_max;
    if (known && wanted.rlim_max > now.rlim_max)
        wanted.rlim_max = now.rlim_max; /* the node's own limit is lower, so that applies */
    if (wanted.rlim_cur > wanted.rlim_max)
        wanted.rlim_cur = wanted.rlim_max;
    return setrlimit((__rlimit_resource_t)which, &wanted) < 0 ? set_failure(f, "setrlimit", name) : 0;
}

int limits_set(const struct start *s, struct failure *f)
{
    if (set_limit(RLIMIT_CPU, s->cpu, "cpu", f) || set_limit(RLIMIT_CORE, s->core, "core", f) ||
        set_limit(RLIMIT_FSIZE, s->fsize, "fsize", f) || set_limit(RLIMIT_NOFILE, s->nofile, "nofile", f) ||
        set_limit(RLIMIT_STACK, s->stack, "stack", f))
        return -1;
    /* The kernel counts the processes of a user, not of a job: if that is the node's own user, only the cgroup limits
     * them. */
    if (s->uid != geteuid() && set_limit(RLIMIT_NPROC, s->processes, "processes", f))
        return -1;
    errno = 0;
    if (s->nice && setpriority(PRIO_PROCESS, 0, s->nice) < 0)
        return set_failure(f, "setpriority", "nice");
    return 0;
}

static void on_alarm(int number) { (void)number; }

/* Opening a named pipe waits for its other end, so it is interrupted after a time. */
static int open_in_time(const char *path, int flags, uint64_t lease_us)
{
    struct sigaction interrupts = {.sa_handler = on_alarm}, before;
    uint64_t most = lease_us && lease_us / 2 < OTHER_END * 1000000 ? lease_us / 2 : OTHER_END * 1000000;
    struct itimerval bound = {.it_value = {(time_t)(most / 1000000), (suseconds_t)(most % 1000000)}}, none = {0};
    sigset_t alarms, mask;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigaction(SIGALRM, &interrupts, &before);
    sigprocmask(SIG_UNBLOCK, &alarms, &mask);
    setitimer(ITIMER_REAL, &bound, NULL);
    int fd = open(path, flags, 0666), err = errno;
    setitimer(ITIMER_REAL, &none, NULL);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    sigaction(SIGALRM, &before, NULL);
    errno = err;
    return fd;
}

static int open_as(const struct job *job, int place, const char *path, int flags, struct failure *f)
{
    static const char *const calls[] = {"open stdin", "open stdout", "open stderr"};
    int fd = open_in_time(*path ? path : "/dev/null", flags | O_NOCTTY, job->start->lease_us);
    if (fd < 0 && errno == EINTR) {
        char text[TEXT];
        snprintf(text, sizeof text, "%.400s\nit is a named pipe, and no process opened its other end in time", path);
        return set_failure(f, calls[place], text);
    }
    if (fd < 0)
        return set_failure(f, calls[place], path);
    if (fd != place) {
        if (dup2(fd, place) < 0)
            return set_failure(f, calls[place], path);
        close(fd);
    }
    return 0;
}

/* Moves the plain pipe ends of this process to their numbers. All other ends close on exec. */
static int place_ends(const struct job *job, uint32_t member, bool piped[2], struct failure *f)
{
    for (uint32_t i = 0; i < job->pipe_count; i++) {
        const struct conduit *c = &job->pipes[i];
        for (int end = 0; end < 2; end++) {
            int place = end_descriptor(end ? c->writer_file : c->reader_file, end);
            if ((end ? c->head->writer : c->head->reader) != (int32_t)member || c->ends[end] < 0)
                continue;
            if (dup2(c->ends[end], place) < 0)
                return set_failure(f, "dup", end ? c->writer_file : c->reader_file);
            if (place < 2)
                piped[place] = true;
        }
    }
    return 0;
}

static bool another_writes(const struct job *job, uint32_t member, const char *path)
{
    for (uint32_t i = 0; i < job->count && *path; i++)
        if (i != member && (strcmp(job->members[i].out, path) == 0 || strcmp(job->members[i].errors, path) == 0))
            return true;
    return false;
}

/* If several processes write to a file, each truncates it before any of them runs (await_others); then all append. */
static int how_to_open(const struct job *job, uint32_t member, const char *path, bool append)
{
    return O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC) | (another_writes(job, member, path) ? O_APPEND : 0);
}

static int open_three(const struct job *job, uint32_t member, struct failure *f)
{
    const struct member *m = &job->members[member];
    uint32_t flags = m->head->flags | (job->start->flags & FLAG_APPEND ? MEMBER_APPEND_OUT | MEMBER_APPEND_ERRORS : 0);
    int out = how_to_open(job, member, m->out, flags & MEMBER_APPEND_OUT);
    int errors = how_to_open(job, member, m->errors, flags & MEMBER_APPEND_ERRORS);
    bool piped[2] = {false, false};
    if (place_ends(job, member, piped, f))
        return -1;
    if ((!piped[0] && open_as(job, 0, m->in, O_RDONLY, f)) || (!piped[1] && open_as(job, 1, m->out, out, f)))
        return -1;
    if (flags & MEMBER_ERRORS_TO_OUT ||
        (!piped[1] && *m->errors && strcmp(m->out, m->errors) == 0)) /* one offset for both */
        return dup2(1, 2) < 0 ? set_failure(f, "open stderr", m->errors) : 0;
    return open_as(job, 2, m->errors, errors, f);
}

/* The interpreter that a script names, for the case that execve did not find it. */
static bool interpreter(const char *program, char *name, size_t size)
{
    char head[256];
    int fd = open(program, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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
    return set_failure(f, "exec", text);
}

/* Checks that execve can succeed: a pipe job starts only if all its processes can. */
static int try_program(const char *path, bool look)
{
    struct stat st;
    if (!look)
        return 1;
    if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0 || stat(path, &st) < 0)
        return -1;
    if (S_ISDIR(st.st_mode)) {
        errno = EACCES;
        return -1;
    }
    return 0;
}

/* Searches a name without a slash in the job's directory, then in the job's own PATH. `look`: only checks whether there
 * is a program. */
static int execute_program(const struct member *m, bool look, struct failure *f)
{
    const char *program = *m->program ? m->program : m->argv[0], *path = NULL;
    int found = try_program(program, look);
    if (found > 0)
        execve(program, m->argv, m->envp);
    if (found == 0)
        return 0;
    if (errno != ENOENT || strchr(program, '/'))
        return exec_failure(program, f);
    for (char **e = m->envp; *e && !path; e++)
        if (strncmp(*e, "PATH=", 5) == 0)
            path = *e + 5;
    while (path && *path) {
        char full[4096];
        int length = (int)strcspn(path, ":");
        snprintf(full, sizeof full, "%.*s/%s", length, path, program);
        if (length && (found = try_program(full, look)) > 0)
            execve(full, m->argv, m->envp);
        if (length && found == 0)
            return 0;
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

/* No program runs before all can. Each process closes its write end when it is ready, and reads: end of file when all
 * are ready, a byte if one cannot start. */
static void await_others(const struct job *job, const int gate[2])
{
    char byte;
    if (job->count < 2)
        return;
    close(gate[1]);
    while (true) {
        ssize_t n = read(gate[0], &byte, 1);
        if (n == 0)
            return;
        if (n > 0 || errno != EINTR)
            _exit(127);
    }
}

static void prepare_and_execute(const struct job *job, uint32_t member, pid_t keeper, const int gate[2],
                                struct failure *f)
{
    const struct member *m = &job->members[member];
    setsid();
    umask(022);
    if (limits_set(job->start, f) || rights_drop(job, f))
        return;
    /* Without a pid namespace this ends the job with its keeper. A change of user id clears it, so it comes after that
     * (prctl(2)); the keeper may have died before. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        _exit(127);
    if (notify_enter(job, member, f))
        return;
    if (chdir(*m->cwd ? m->cwd : "/") < 0) {
        set_failure(f, "chdir", m->cwd);
        return;
    }
    if (open_three(job, member, f) || (job->count > 1 && execute_program(m, true, f)))
        return;
    if (mapping_enter(job, member, f))
        return;
    plain_signals();
    await_others(job, gate);
    execute_program(m, false, f);
}

/* The third line of the text names the member. */
static void name_member(const struct job *job, const struct member *m, struct failure *f)
{
    size_t used = strlen(f->text);
    if (job->count > 1)
        snprintf(f->text + used, sizeof f->text - used, "%s\n%.200s", strchr(f->text, '\n') ? "" : "\n", m->name);
}

/* Runs in the forked process and does not return: the program runs, or a struct failure is written to `told`. */
_Noreturn void job_become(const struct job *job, uint32_t member, pid_t keeper, int told, const int gate[2])
{
    struct failure f;
    memset(&f, 0, sizeof f);
    prepare_and_execute(job, member, keeper, gate, &f);
    name_member(job, &job->members[member], &f);
    for (const char *at = (const char *)&f, *end = at + sizeof f; at < end;) {
        ssize_t n = write(told, at, (size_t)(end - at));
        if (n <= 0)
            break;
        at += n;
    }
    for (uint32_t i = 1; i < job->count; i++)
        if (write(gate[1], "", 1) < 0)
            break;
    _exit(127);
}
