/* Shells in a running job (`poolnode ssh`). The node sends a socket with the request. The keeper forks a process, which
 * takes the job's rights, opens a terminal as the job sees it, sends the terminal's master back, and forks the shell.
 * It waits for the shell, sends its wait status over the socket, and ends the shell's session when the node closes the
 * socket. Shells are processes of the job: they end with it. While one is open the job is not saved; before its last
 * checkpoint they are ended. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fd_passing.h"
#include "keeper/keeper.h"
#include "remote_notify/remote_notify.h"
#include "sandbox/sandbox.h"

#define SHELLS_MOST 16
#define REQUEST_MOST 16384
#define END_US 500000 /* for ended shells to be reaped */

static pid_t shells[SHELLS_MOST]; /* the processes that wait for them */

/* The request: "t" for a terminal or "p" for a stream, then strings that each end with a zero: the terminal's type, and
 * the command line; an empty one means an interactive shell. */
struct shell_request {
    bool terminal;
    const char *type, *command;
};

static bool read_request(int socket, struct shell_request *r)
{
    static char text[REQUEST_MOST];
    ssize_t n = recv(socket, text, sizeof text, 0);
    if (n < 3 || n == sizeof text || text[n - 1] || (text[0] != 't' && text[0] != 'p'))
        return false;
    r->terminal = text[0] == 't';
    r->type = text + 1;
    size_t length = strlen(r->type) + 2;
    r->command = text + length;
    return length < (size_t)n && length + strlen(r->command) + 1 == (size_t)n;
}

/* A terminal or a pair of connected sockets. ends[0] goes to the node. The terminal's other end is opened without its
 * name, which the job may not see. */
static int make_ends(bool terminal, int ends[2])
{
    int unlocked = 0;
    if (!terminal)
        return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[0] < 0 || ioctl(ends[0], TIOCSPTLCK, &unlocked) < 0)
        return -1;
    ends[1] = ioctl(ends[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return ends[1] < 0 ? -1 : 0;
}

_Noreturn static void become_shell(const struct member *m, const struct shell_request *r, int end)
{
    static const char *const shell_programs[] = {"/bin/bash", "/bin/sh"};
    sigset_t none;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setsid();
    if (r->terminal)
        ioctl(end, TIOCSCTTY, 0);
    for (int i = 0; i < 3; i++)
        dup2(end, i);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    environ = m->envp;
    if (r->terminal && *r->type)
        setenv("TERM", r->type, 1);
    else
        unsetenv("TERM");
    for (size_t i = 0; i < 2; i++)
        if (*r->command)
            execl(shell_programs[i], "sh", "-c", r->command, NULL);
        else
            execl(shell_programs[i], "sh", r->terminal ? "-i" : NULL, NULL);
    dprintf(2, "there is no shell in the job: neither /bin/bash nor /bin/sh can be run\n");
    _exit(127);
}

/* Kills what is left of a shell's session, whose leader it is. */
static void end_session(pid_t shell)
{
    pid_t *pids;
    struct stat_line line, leader;
    size_t count = numbers_in("/proc", &pids);
    int session = stat_read(shell, &leader) ? leader.session : shell;
    for (size_t i = 0; i < count; i++)
        if (stat_read(pids[i], &line) && line.session == session)
            kill(pids[i], SIGKILL);
    free(pids);
    kill(shell, SIGKILL);
}

static volatile sig_atomic_t told_to_end;

static void on_end(int signal)
{
    (void)signal;
    told_to_end = 1;
}

static void on_child_end(int signal) { (void)signal; }

/* Waits for the shell's end, the node's, or SIGTERM by the keeper. Returns the shell's wait status. */
static int await_shell(pid_t shell, int socket)
{
    struct pollfd hangs_up = {.fd = socket, .events = POLLRDHUP};
    sigset_t none;
    int status = 0;
    sigemptyset(&none);
    while (waitpid(shell, &status, WNOHANG) == 0) {
        if (ppoll(&hangs_up, 1, NULL, &none) <= 0 && !told_to_end)
            continue;
        if (waitpid(shell, &status, WNOHANG) == 0) {
            end_session(shell);
            waitpid(shell, &status, 0);
        }
        break;
    }
    return status;
}

/* The keeper has blocked all signals. */
static void prepare_signals(void)
{
    struct sigaction ends = {.sa_handler = on_end}, child = {.sa_handler = on_child_end};
    sigaction(SIGTERM, &ends, NULL);
    sigaction(SIGCHLD, &child, NULL);
}

/* The keeper's own descriptors: the lock on its cell would outlive it here. */
static void close_all_but(int one, int other)
{
    unsigned first = (unsigned)(one < other ? one : other), last = (unsigned)(one < other ? other : one);
    if (first > 3)
        syscall(SYS_close_range, 3, first - 1, 0);
    if (last > first + 1)
        syscall(SYS_close_range, first + 1, last - 1, 0);
    syscall(SYS_close_range, last + 1, ~0u, 0);
}

_Noreturn static void serve_shell(const struct job *job, pid_t keeper_pid, int socket)
{
    struct failure f;
    struct shell_request r = {0};
    struct timeval patience = {.tv_sec = 5};
    const struct member *m = &job->members[0];
    int ends[2] = {-1, -1};
    int32_t err = 0;
    memset(&f, 0, sizeof f);
    prepare_signals();
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (limits_set(job->start, &f) || rights_drop(job, &f))
        err = f.err ? f.err : EPERM;
    else if (!read_request(socket, &r))
        err = EINVAL;
    else if (make_ends(r.terminal, ends) < 0)
        err = errno;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of user id, which clears it */
    if (getppid() != keeper_pid)
        _exit(127);
    send_with_fd(socket, &err, sizeof err, err ? -1 : ends[0], 0);
    if (err)
        _exit(1);
    close_all_but(socket, ends[1]);
    umask(022);
    if (chdir(*m->cwd ? m->cwd : "/") < 0 && chdir("/") < 0)
        _exit(127);
    pid_t shell = fork();
    if (shell == 0)
        become_shell(m, &r, ends[1]);
    close(ends[1]);
    int32_t status = shell < 0 ? 127 << 8 : await_shell(shell, socket);
    send(socket, &status, sizeof status, MSG_NOSIGNAL);
    _exit(0);
}

static void refuse_shell(int socket, int32_t err) { send_with_fd(socket, &err, sizeof err, -1, MSG_DONTWAIT); }

/* The caller closes its copy of the socket. */
void shell_begin(const struct job *job, int group, int socket)
{
    size_t place = 0;
    if (socket < 0)
        return;
    while (place < SHELLS_MOST && shells[place])
        place++;
    bool runs = job_run.started && !job_run.over && !job_run.killing;
    if (!runs || place == SHELLS_MOST || checkpoint_running()) {
        refuse_shell(socket, !runs ? ESRCH : checkpoint_running() ? EBUSY : EMFILE);
        return;
    }
    if (notify_fd() >= 0) { /* its files come by notifications, which only the job's own processes send */
        refuse_shell(socket, EOPNOTSUPP);
        return;
    }
    pid_t own = getpid(), pid = cgroup_fork(group);
    if (pid == 0)
        serve_shell(job, own, socket);
    if (pid < 0)
        refuse_shell(socket, errno);
    else
        shells[place] = pid;
}

bool shell_reaped(pid_t pid)
{
    for (size_t i = 0; i < SHELLS_MOST; i++)
        if (shells[i] == pid) {
            shells[i] = 0;
            return true;
        }
    return false;
}

bool shells_open(void)
{
    for (size_t i = 0; i < SHELLS_MOST; i++)
        if (shells[i])
            return true;
    return false;
}

/* Before the job's last checkpoint. */
void shells_end(void)
{
    uint64_t end = boot_us() + END_US;
    for (size_t i = 0; i < SHELLS_MOST; i++)
        if (shells[i])
            kill(shells[i], SIGTERM);
    while (shells_open() && boot_us() < end) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
        reap();
    }
}
