/* The keeper of one job: process 1 of its pid namespace, parent and reaper of all its processes.
 *
 * States. begin: exec failed, then FAILED; or the program runs. running: VACATE sends the soft signal and starts the
 * grace; the lease's end, the grace's end, KILL or too much memory lead to killing, which sends SIGKILL to everything.
 * If the members have ended, or one failed (job_processes.c), all remaining processes are killed. ended: no process is
 * left; the report is written to the cell, then sent to the node. If nothing else is left either (reuse.c), and the
 * node has another job that sees and may do the same, it begins again.
 *
 * It needs neither node nor fork server. It measures the lease itself, by the clock that continues during suspend, and
 * a report waits in the cell. If it is killed, the kernel ends its pid namespace and every process of the job with
 * it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/keeper.h"
#include "mapped_files/mapped_files.h"
#include "remote/remote.h"
#include "remote_notify/remote_notify.h"
#include "restore/restore.h"
#include "sandbox/sandbox.h"

struct keeper_self keeper;
struct keeper_run job_run;

_Noreturn void give_up(const struct failure *f)
{
    cell_note(CELL, NULL, CELL_FREE);
    close(CELL); /* unlocked before the node is notified, which may use the cell again at once */
    report_failure(job_run.number, keeper.cell, f);
    _exit(0);
}

/* The pid in the namespace of the node's /proc. */
static pid_t pid_outside(void)
{
    char text[24];
    ssize_t n = readlink("/proc/self", text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    return n > 0 ? (pid_t)atol(text) : getpid();
}

void send_report(uint16_t verb, uint64_t sequence)
{
    struct report r;
    report_init(&r, verb, job_run.number, keeper.cell);
    r.pid = keeper.own;
    r.condition = job_run.suspended ? SUSPENDED : 0;
    r.started_us = job_run.started_us;
    r.wall_us = boot_us() - job_run.began_us;
    r.sequence = sequence;
    if (verb == USED) {
        /* copies look like processes of the job, and the job may be let go during the scan */
        bool held = checkpoint_holds();
        add_reaped(&r);
        tree_usage(&r);
        if (r.rss_kib > job_run.peak_kib && !held)
            job_run.peak_kib = r.rss_kib;
        if (job_run.peak_kib > r.max_rss_kib)
            r.max_rss_kib = job_run.peak_kib;
    }
    report_send(&r, NULL);
}

/* Starts the job's processes, if everything that they need has arrived. */
void start_processes(void)
{
    struct failure f;
    bool image = keeper.job.start->flags & FLAG_IMAGE;
    if (!members_whole(&keeper.job) || (image && job_run.image < 0))
        return;
    if (image ? restore_start(&keeper.job, job_run.image, keeper.group, &job_run.pipe, &job_run.restorer, &f)
              : members_start(&keeper.job, keeper.group, &job_run.pipe, &f))
        give_up(&f);
    if (image)
        close(job_run.image);
    job_run.begun = true;
}

static void begin_run(void)
{
    struct failure f;
    memset(&job_run, 0, sizeof job_run);
    job_run.number = keeper.job.start->head.number;
    job_run.began_us = boot_us();
    job_run.started_us = wall_us();
    job_run.pipe = job_run.image = -1;
    job_run.guilty = NO_MEMBER;
    job_run.memory_kills = cgroup_memory_kills(keeper.group);
    job_run.restorer = -1;
    time_begin();
    keeper.job.began_us = job_run.began_us;
    if (members_prepare(&keeper.job, &f))
        give_up(&f);
    start_processes();
}

/* Waits for another job of the same kind in the same namespaces. */
static void next_run(void)
{
    struct failure f;
    void *message;
    checkpoint_forget();
    clear_wake_up();
    size_t size = reuse_wait(&keeper.job, keeper.cell, &message);
    free(keeper.job.kept);
    memset(&keeper.job, 0, sizeof keeper.job);
    job_run.number = ((struct head *)message)->number;
    if (parse_start(&keeper.job, message, size, &f) || cell_retake(CELL, message, size, keeper.born_us, &f)) {
        report_failure(job_run.number, keeper.cell, &f);
        _exit(0);
    }
    begin_run();
}

static uint64_t pay_debt(uint64_t us, uint64_t *debt)
{
    uint64_t taken = us < *debt ? us : *debt;
    *debt -= taken;
    return us - taken;
}

/* CPU time of frozen copies is not the job's, though they are reaped with its processes. */
static void add_used(const struct rusage *use)
{
    job_run.user_us +=
        pay_debt((uint64_t)use->ru_utime.tv_sec * 1000000 + (uint64_t)use->ru_utime.tv_usec, &job_run.spent_us[0]);
    job_run.system_us +=
        pay_debt((uint64_t)use->ru_stime.tv_sec * 1000000 + (uint64_t)use->ru_stime.tv_usec, &job_run.spent_us[1]);
}

/* The supervisor of mapped files works for the job. */
static void end_mapping(void)
{
    struct rusage use = {0};
    mapping_end(&use);
    add_used(&use);
}

static void dumper_done(pid_t dumper)
{
    checkpoint_reaped(dumper, job_run.number, keeper.cell);
    checkpoint_spent(job_run.spent_us);
    job_run.user_us = pay_debt(job_run.user_us, &job_run.spent_us[0]);
    job_run.system_us = pay_debt(job_run.system_us, &job_run.spent_us[1]);
    job_run.checkpoint_ends &= checkpoint_made();
}

/* A process of the job has asked its parent, the keeper, to trace it (PTRACE_TRACEME). The keeper detaches, and the
 * process runs on. */
static void let_go(pid_t pid, int status)
{
    int number = WSTOPSIG(status);
    /* SIGTRAP comes from execve, for a debugger */
    ptrace(PTRACE_DETACH, pid, 0, number == SIGTRAP ? 0L : (long)number);
}

void reap(void)
{
    int status;
    struct rusage use;
    pid_t dumped = 0;
    for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &use)) != 0;) {
        if (pid < 0) {
            if (errno == EINTR)
                continue;
            break; /* ECHILD: no child is left */
        }
        if (WIFSTOPPED(status)) {
            let_go(pid, status);
            continue;
        }
        if (pid == checkpoint_dumper()) {
            dumped = pid;
            continue;
        }
        if (mapping_reaped(pid)) {
            add_used(&use);
            continue;
        }
        if (pid == job_run.restorer) {
            job_run.restorer = status ? -2 : 0;
            continue;
        }
        add_used(&use);
        if (shell_reaped(pid))
            continue;
        if ((uint64_t)use.ru_maxrss > job_run.max_rss_kib)
            job_run.max_rss_kib = (uint64_t)use.ru_maxrss;
        const struct member *m = members_reaped(&keeper.job, pid, status, &use, job_run.killing, job_run.guilty);
        if (m && members_over(&keeper.job)) {
            read_last_misuse();
            job_run.over = true;
            job_run.ended_us = boot_us();
        }
    }
    if (dumped)
        dumper_done(dumped); /* when its copies are reaped, too */
}

static bool any_process_left(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void program_runs(void)
{
    struct failure f;
    size_t got = 0;
    for (ssize_t n; got < sizeof f && (n = read(job_run.pipe, (char *)&f + got, sizeof f - got)) != 0;) {
        if (n < 0 && errno != EINTR)
            break;
        got += n > 0 ? (size_t)n : 0;
    }
    close(job_run.pipe);
    job_run.pipe = -1;
    if (job_run.restorer > 0) { /* it is about to exit */
        int status = 0;
        waitpid(job_run.restorer, &status, 0);
        job_run.restorer = status ? -2 : 0;
    }
    if (job_run.restorer == -2 && got < sizeof f) {
        errno = EINTR;
        set_failure(&f, "restore", "its process was killed");
        got = sizeof f;
    }
    if (got == sizeof f) {
        if (job_run.restorer == -2 || keeper.job.count > 1)
            tree_kill();
        mapping_end(NULL);
        f.call[sizeof f.call - 1] = f.text[sizeof f.text - 1] = 0;
        while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {
        }
        give_up(&f);
    }
    job_run.started = true;
    if (!job_run.over) /* else the report of its end implies it */
        send_report(STARTED, 0);
}

/* Waits for an event and serves the file descriptors that are ready. SIGCHLD is unblocked only in ppoll(). */
static void serve_events(const sigset_t *open_to_all)
{
    struct timespec delay = {0};
    bool delayed = start_report_delayed(&delay);
    struct pollfd fds[6] = {{.fd = SOCKET, .events = POLLIN},
                            {.fd = keeper.timer, .events = POLLIN},
                            {.fd = delayed ? -1 : job_run.pipe, .events = POLLIN},
                            {.fd = mapping_report(), .events = POLLIN},
                            {.fd = remote_fd(), .events = POLLIN},
                            {.fd = notify_fd(), .events = POLLIN}};
    if (ppoll(fds, 6, delayed ? &delay : NULL, open_to_all) <= 0)
        return;
    if (fds[2].revents)
        program_runs();
    if (fds[3].revents)
        read_misuse();
    if (fds[0].revents)
        listen_to_node();
    if (fds[4].revents && !remote_heard() && !job_run.killing) /* else it was killed with the job */
        end_because(CAUSE_KILLED, "the server of its remote files died");
    if (fds[5].revents && notify_died() && !job_run.over && !job_run.killing)
        end_because(CAUSE_KILLED, "the supervisor of its remote files died");
}

/* The job is over, or one of its processes failed: kills the remaining processes, and finishes when none is left. */
static void end_if_over(void)
{
    if (!job_run.over && (job_run.killing || job_run.pipe >= 0 || !members_failed(&keeper.job)))
        return;
    if (any_process_left() && !job_run.killing)
        kill_all();
    else if (!any_process_left() && remote_writes_flushed()) {
        finish_run();
        next_run();
    }
}

static _Noreturn void serve_forever(void)
{
    sigset_t open_to_all;
    sigemptyset(&open_to_all);
    for (;;) {
        set_timer();
        serve_events(&open_to_all);
        check_time();
        checkpoint_look(job_run.number, keeper.cell); /* before the report that it is made */
        reap();
        if (job_run.suspend_again && !checkpoint_holds())
            suspend(true);
        if (job_run.over && job_run.pipe >= 0)
            program_runs();
        if (job_run.over)
            end_mapping();
        end_if_over();
    }
}

static void on_child(int signal) { (void)signal; }

static void quiet_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    struct sigaction a = {.sa_handler = on_child} /* no SA_NOCLDSTOP: also for a process that asked to be traced */;
    sigaction(SIGCHLD, &a, NULL);
}

static void close_above(unsigned from)
{
    if (syscall(SYS_close_range, from, ~0u, 0) < 0)
        for (int fd = (int)from; fd < 4096; fd++)
            close(fd);
}

static unsigned close_between(unsigned from, int kept)
{
    for (int fd = (int)from; fd < kept; fd++)
        close(fd);
    return (unsigned)kept + 1;
}

_Noreturn void keep(struct job *job, int socket, int cell, int group)
{
    unsigned from = ROOT;
    struct failure f;
    memset(&f, 0, sizeof f);
    keeper.job = *job;
    keeper.cell = job->start->head.cell;
    job_run.number = job->start->head.number;
    keeper.born_us = boot_us();
    quiet_signals();
    setsid();
    if (!(settings.able & ABLE_PID))
        prctl(PR_SET_CHILD_SUBREAPER, 1);
    settings.keeper = keeper.own = pid_outside();
    if (dup3(cell, CELL, O_CLOEXEC) < 0 || dup3(socket, SOCKET, O_CLOEXEC) < 0 || cell_pid(CELL, keeper.own) < 0) {
        set_failure(&f, "prepare", "the keeper's descriptors");
        give_up(&f);
    }
    close(cell);
    keeper.group = group >= 0 && dup3(group, GROUP, O_CLOEXEC) >= 0 ? GROUP : -1;
    if (ns_enter(&keeper.job, &remote_mounts, &f))
        give_up(&f);
    for (uint32_t i = 0; i < keeper.job.start->remotes; i++) {
        from = close_between(from, remote_device(i));
        if (remote_teller(i) >= 0)
            from = close_between(from, remote_teller(i));
    }
    close_above(from);
    if (remote_begin(&keeper.job, &f))
        give_up(&f);
    keeper.timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    reuse_prepare();
    begin_run();
    serve_forever();
}
