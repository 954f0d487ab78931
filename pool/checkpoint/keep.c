/* The keeper of one job: process 1 of its pid namespace, parent and reaper of all its processes.
 *
 *     begin --exec failed--> FAILED
 *       | program runs
 *     running --lease over, KILL, memory--> killing (everything gets SIGKILL)
 *       | VACATE: soft signal, grace ------^
 *       | its own processes have ended, or one failed (members.c): whatever is left is killed
 *     ended: no process is left; the report is in the cell, then told to the node
 *       | nothing else is left either (again.c), and the node has another job that sees and may do the same
 *     begin
 *
 * It needs no node and no nursery: the lease is measured here, by the clock that goes on while the machine sleeps, and a
 * report waits in the cell. If it is killed the kernel ends its pid namespace and every process of the job with it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine.h"

#define MEMORY_EVERY_US 2000000
#define NEVER UINT64_MAX
/* A start is told this long after it: the end of a job that is shorter says it too, and the keeper and its node wake up
 * once less for it. */
#define HUSH_US 2000

static struct { /* of the keeper, whatever it runs */
    struct job job;
    uint32_t cell;
    pid_t own; /* as the node sees it */
    int timer, group;
    bool adopted; /* by a node that did not start it */
    uint64_t born_us;
} me;

static struct { /* of the job */
    uint64_t number;
    bool begun; /* it was forked; not while its image is awaited */
    int image;  /* its directory when it has come, while ends of pipes are awaited */
    pid_t restorer; /* -1 when there is none, 0 when it ended well */
    bool suspend_again; /* as soon as the checkpoint that is being made lets the job go */
    bool checkpoint_ends; /* that one is the job's last */
    int pipe;
    bool started, over, killing, suspended;
    bool draining; /* it is over, and what it wrote is on its way home */
    uint32_t cause;
    const char *text;
    char said[TEXT]; /* where `text` is made up */
    uint32_t guilty; /* the member for whose misuse the job is ended */
    uint64_t began_us, started_us, ended_us, peak_kib;
    uint64_t user_us, system_us, max_rss_kib; /* of those of its processes that were reaped */
    uint64_t memory_kills; /* counted in the cgroup before this job */
    uint64_t hush_end, lease_end, grace_end, memory_check, kill_again; /* boot time */
} k;

static _Noreturn void give_up(const struct failure *f)
{
    cell_note(CELL, NULL, CELL_FREE);
    close(CELL); /* unlocked before the node hears of it, which may use the cell again at once */
    report_failure(k.number, me.cell, f);
    _exit(0);
}

/* Its process id in the namespace of the /proc that the node sees. */
static pid_t pid_outside(void)
{
    char text[24];
    ssize_t n = readlink("/proc/self", text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    return n > 0 ? (pid_t)atol(text) : getpid();
}

static void kill_all(void)
{
    if (k.cause) /* whoever waits for the submit machine could not be killed otherwise */
        remote_kill();
    /* Without a pid namespace the cgroup's own kill is what no process gets away from. What is killed needs no thawing. */
    if (!(settings.able & ABLE_PID) && group_kill(me.group)) {
        k.killing = true;
        return;
    }
    if (!k.killing || !(settings.able & ABLE_PID))
        tree_kill();
    k.killing = true;
    k.kill_again = settings.able & ABLE_PID ? NEVER : boot_us() + 20000;
}

static void end_because(uint32_t cause, const char *text)
{
    if (k.over && !k.draining)
        return;
    if (!k.begun) {
        struct failure f;
        errno = ECANCELED;
        fail(&f, me.job.start->flags & FLAG_IMAGE ? "restore" : "start", "");
        give_up(&f);
    }
    if (!k.cause || cause == CAUSE_KILLED) {
        k.cause = cause;
        k.text = text;
    }
    kill_all();
}

static void add_gone(struct report *r)
{
    r->user_us += k.user_us;
    r->system_us += k.system_us;
    r->max_rss_kib = k.max_rss_kib;
}

static void send_report(uint16_t verb, uint64_t sequence)
{
    struct report r;
    report_init(&r, verb, k.number, me.cell);
    r.pid = me.own;
    r.condition = k.suspended ? SUSPENDED : 0;
    r.started_us = k.started_us;
    r.wall_us = boot_us() - k.began_us;
    r.sequence = sequence;
    if (verb == USED) {
        add_gone(&r);
        tree_usage(&r);
        if (r.rss_kib > k.peak_kib)
            k.peak_kib = r.rss_kib;
        if (k.peak_kib > r.max_rss_kib)
            r.max_rss_kib = k.peak_kib;
    }
    report_send(&r, NULL);
}

/* The job's processes, when nothing is waited for any more. */
static void set_out(void)
{
    struct failure f;
    bool image = me.job.start->flags & FLAG_IMAGE;
    if (!members_whole(&me.job) || (image && k.image < 0))
        return;
    if (image ? restore_start(&me.job, k.image, me.group, &k.pipe, &k.restorer, &f) : members_start(&me.job, me.group, &k.pipe, &f))
        give_up(&f);
    if (image)
        close(k.image);
    k.begun = true;
}

static void begin(void)
{
    struct failure f;
    const struct start *s = me.job.start;
    memset(&k, 0, sizeof k);
    k.number = s->head.number;
    k.began_us = boot_us();
    k.started_us = wall_us();
    k.pipe = k.image = -1;
    k.guilty = NO_MEMBER;
    /* A job that can reach its keeper is told of at once: it may be stopped before it tells. */
    k.hush_end = settings.able & ABLE_PID ? k.began_us + HUSH_US : 0;
    k.lease_end = s->lease_us ? k.began_us + s->lease_us : NEVER;
    k.memory_check = s->memory == UNLIMITED ? NEVER : k.began_us + MEMORY_EVERY_US;
    k.grace_end = k.kill_again = NEVER;
    k.memory_kills = group_memory_kills(me.group);
    if (group_limit(me.group, s))
        k.memory_check = NEVER;
    k.restorer = -1;
    me.job.began_us = k.began_us;
    if (members_prepare(&me.job, &f))
        give_up(&f);
    set_out();
}

/* Waits for another job of the same kind in the same namespaces. */
static void next(void)
{
    struct failure f;
    void *message;
    checkpoint_forget();
    size_t size = again_wait(&me.job, me.cell, &message);
    free(me.job.kept);
    memset(&me.job, 0, sizeof me.job);
    k.number = ((struct head *)message)->number;
    if (take_apart(&me.job, message, size, &f) || cell_retake(CELL, message, size, me.born_us, &f)) {
        report_failure(k.number, me.cell, &f);
        _exit(0);
    }
    begin();
}

/* What the job's end says of the process that it is the end of. */
static void name_result(const struct member *m)
{
    if (k.text || !(m->end->state & MEMBER_FAILED))
        return;
    const char *then = me.job.start->on_failure == FAILURE_ENDS && me.job.count > 1 ? "; the others were ended with it" : "";
    if (m->end->signal >= 0)
        snprintf(k.said, sizeof k.said, "process %.200s was killed by signal %d%s", m->name, m->end->signal, then);
    else
        snprintf(k.said, sizeof k.said, "process %.200s exited with %d%s", m->name, m->end->code, then);
    k.text = k.said;
}

/* The job is over and nobody is left. Returns when there is another one. */
static void finish(void)
{
    static struct {
        struct report r;
        char ends[MEMBERS_MOST * sizeof(struct member_end)];
    } end;
    const struct member *result = members_result(&me.job);
    bool again = !k.cause && !me.adopted && again_possible(&me.job); /* who was killed is done with whole */
    report_init(&end.r, ENDED, k.number, me.cell);
    end.r.pid = me.own;
    end.r.code = result->end->code;
    end.r.signal = result->end->signal;
    for (uint32_t i = 0; i < me.job.count; i++)
        end.r.core |= me.job.members[i].end->core;
    end.r.cause = k.cause ? k.cause : k.checkpoint_ends && end.r.signal == SIGKILL ? CAUSE_VACATED : end.r.signal >= 0 ? CAUSE_SIGNAL : CAUSE_EXIT;
    add_gone(&end.r);
    if (k.peak_kib > end.r.max_rss_kib)
        end.r.max_rss_kib = k.peak_kib;
    end.r.condition = again ? WAITING : 0;
    end.r.started_us = k.started_us;
    end.r.ended_us = wall_us();
    end.r.wall_us = k.ended_us - k.began_us;
    if (!k.cause && group_memory_kills(me.group) > k.memory_kills) {
        end.r.cause = CAUSE_KILLED;
        k.text = "used more memory than its limit";
    }
    if (k.suspended)
        group_freeze(me.group, false); /* for the next job */
    if (!k.cause && end.r.cause != CAUSE_VACATED)
        name_result(result);
    if (k.text) {
        copy_text(end.r.text, sizeof end.r.text, k.text);
        end.r.head.size = (uint32_t)(offsetof(struct report, text) + strlen(end.r.text));
    }
    if (me.job.start->members)
        end.r.head.size = (uint32_t)sizeof end.r + members_report(&me.job, end.ends);
    bool noted = cell_note(CELL, &end.r, CELL_ENDED) == 0;
    if (noted)
        cell_leave(CELL);
    else
        end.r.condition = again = 0;
    report_send(&end.r, NULL);
    while (!noted) { /* a disk that refuses even a page it has: keep the report here until it takes it */
        sleep(1);
        noted = cell_note(CELL, &end.r, CELL_ENDED) == 0;
    }
    if (!again)
        _exit(0);
    next();
}

static void suspend(bool stop);

static void add_used(const struct rusage *use)
{
    k.user_us += (uint64_t)use->ru_utime.tv_sec * 1000000 + (uint64_t)use->ru_utime.tv_usec;
    k.system_us += (uint64_t)use->ru_stime.tv_sec * 1000000 + (uint64_t)use->ru_stime.tv_usec;
}

/* What carries a job's bytes works for it. */
static void end_mapping(void)
{
    struct rusage use = {0};
    mapping_end(&use);
    add_used(&use);
}

static void reap(void)
{
    int status;
    struct rusage use;
    for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &use)) != 0;) {
        if (pid < 0) {
            if (errno == EINTR)
                continue;
            break; /* ECHILD: nobody is left */
        }
        if (checkpoint_reaped(pid, k.number, me.cell)) {
            k.checkpoint_ends &= checkpoint_made();
            continue;
        }
        if (mapping_reaped(pid)) {
            add_used(&use);
            continue;
        }
        if (pid == k.restorer) {
            k.restorer = status ? -2 : 0;
            continue;
        }
        add_used(&use);
        if ((uint64_t)use.ru_maxrss > k.max_rss_kib)
            k.max_rss_kib = (uint64_t)use.ru_maxrss;
        const struct member *m = members_reaped(&me.job, pid, status, &use, k.killing, k.guilty);
        if (m && members_over(&me.job)) {
            k.over = true;
            k.ended_us = boot_us();
        }
    }
}

static bool anybody_left(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void program_runs(void)
{
    struct failure f;
    size_t got = 0;
    for (ssize_t n; got < sizeof f && (n = read(k.pipe, (char *)&f + got, sizeof f - got)) != 0;) {
        if (n < 0 && errno != EINTR)
            break;
        got += n > 0 ? (size_t)n : 0;
    }
    close(k.pipe);
    k.pipe = -1;
    if (k.restorer > 0) { /* it ends now */
        int status = 0;
        waitpid(k.restorer, &status, 0);
        k.restorer = status ? -2 : 0;
    }
    if (k.restorer == -2 && got < sizeof f) {
        errno = EINTR;
        fail(&f, "restore", "its process was killed");
        got = sizeof f;
    }
    if (got == sizeof f) {
        if (k.restorer == -2 || me.job.count > 1)
            tree_kill();
        mapping_end(NULL);
        f.call[sizeof f.call - 1] = f.text[sizeof f.text - 1] = 0;
        while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {
        }
        give_up(&f);
    }
    k.started = true;
    if (!k.over) /* else its end says so */
        send_report(STARTED, 0);
}

static void to_members(int signal)
{
    if (!k.over)
        members_signal(&me.job, signal);
}

static void suspend(bool stop)
{
    if (k.killing)
        return;
    k.suspend_again = stop && checkpoint_holds();
    if (k.suspended == stop || k.suspend_again)
        return;
    k.suspended = stop;
    if (group_freeze(me.group, stop))
        return;
    if (stop && checkpoint_running())
        tree_stop_but(checkpoint_dumper());
    else
        tree_signal(stop ? SIGSTOP : SIGCONT);
}

static void vacate(uint64_t grace_us)
{
    if (k.over || k.killing)
        return;
    if (!k.cause)
        k.cause = CAUSE_VACATED;
    k.grace_end = boot_us() + grace_us;
    to_members((int)me.job.start->soft_signal);
    suspend(false); /* a stopped job could not act on it */
}

/* A job that stands still is held as one that runs, and stands still again when it has been let go. */
static void checkpoint(const struct control *c, int directory)
{
    if (k.over || k.killing || !k.started)
        return;
    bool again = k.suspended && !checkpoint_running();
    if (again)
        suspend(false);
    k.suspend_again |= again;
    if (c->value & CHECKPOINT_STOP && !k.cause)
        k.checkpoint_ends = true;
    checkpoint_begin(directory, c->value, c->sequence, &me.job, me.cell);
}

/* True: the directory was taken over. */
static bool restore(int directory)
{
    struct failure f;
    if (k.begun || k.image >= 0 || !(me.job.start->flags & FLAG_IMAGE))
        return false;
    if (directory < 0) {
        errno = EBADF;
        fail(&f, "restore", "no directory");
        give_up(&f);
    }
    k.image = directory;
    set_out();
    return true;
}

/* True: the descriptor was taken over. */
static bool obey(const struct control *c, int passed)
{
    switch (c->head.verb) {
    case ADOPT:
        if (passed >= 0 && dup3(passed, UP, O_CLOEXEC) >= 0) {
            me.adopted = true;
            if (k.started)
                send_report(STARTED, c->sequence);
        }
        break;
    case SIGNAL:
        to_members((int)c->value);
        break;
    case SUSPEND:
    case RESUME:
        suspend(c->head.verb == SUSPEND);
        break;
    case VACATE:
        vacate(c->value);
        break;
    case KILL:
        end_because(CAUSE_KILLED, NULL);
        break;
    case RENEW:
        k.lease_end = boot_us() + c->value;
        break;
    case CHECKPOINT:
        checkpoint(c, passed);
        break;
    case IMAGE:
        return restore(passed);
    case REMOTE:
        if (passed >= 0)
            remote_stream(passed);
        break;
    case END:
        if (passed < 0 || k.begun)
            break;
        members_end(&me.job, c->value, passed);
        set_out();
        return true;
    case USAGE:
        send_report(USED, c->sequence);
        break;
    }
    return false;
}

static void listen_to_node(void)
{
    for (;;) {
        struct control c;
        union {
            struct cmsghdr align;
            char room[CMSG_SPACE(sizeof(int))];
        } extra;
        struct iovec part = {&c, sizeof c};
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &extra, .msg_controllen = sizeof extra};
        ssize_t n = recvmsg(SOCKET, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0)
            return;
        struct cmsghdr *held = CMSG_FIRSTHDR(&m);
        int passed = -1;
        bool taken = false;
        if (held && held->cmsg_level == SOL_SOCKET && held->cmsg_type == SCM_RIGHTS)
            memcpy(&passed, CMSG_DATA(held), sizeof passed);
        /* A message for an earlier job of this cell may still lie here. */
        if (n == sizeof c && c.head.magic == MAGIC && c.head.version == VERSION && c.head.number == k.number)
            taken = obey(&c, passed);
        if (passed >= 0 && !taken)
            close(passed);
    }
}

static void check_memory(void)
{
    static char text[160];
    struct report r;
    memset(&r, 0, sizeof r);
    tree_usage(&r);
    if (r.rss_kib > k.peak_kib)
        k.peak_kib = r.rss_kib;
    k.memory_check = boot_us() + MEMORY_EVERY_US;
    uint64_t limit = me.job.start->memory >> 10;
    if (r.rss_kib <= limit || checkpoint_running()) /* the frozen copies are not what it uses */
        return;
    snprintf(text, sizeof text, "used %llu MiB of memory, more than its limit of %llu MiB",
             (unsigned long long)(r.rss_kib >> 10), (unsigned long long)(limit >> 10));
    end_because(CAUSE_KILLED, text);
}

static uint64_t earliest(void)
{
    uint64_t when = k.lease_end < k.grace_end ? k.lease_end : k.grace_end;
    if (k.draining)
        when = k.lease_end;
    else if (k.killing)
        when = NEVER;
    else if (k.memory_check < when)
        when = k.memory_check;
    return k.kill_again < when ? k.kill_again : when;
}

static void set_timer(void)
{
    static uint64_t set = NEVER;
    uint64_t when = earliest();
    if (when == set)
        return;
    set = when;
    struct itimerspec at = {.it_value = {.tv_sec = (time_t)(when / 1000000), .tv_nsec = (long)(when % 1000000) * 1000}};
    if (when == NEVER)
        at.it_value = (struct timespec){0, 0};
    else if (when == 0)
        at.it_value.tv_nsec = 1;
    timerfd_settime(me.timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void check_time(void)
{
    uint64_t now = boot_us();
    if (!k.killing) {
        if (now >= k.lease_end)
            end_because(CAUSE_LEASE, "its lease ran out: the submit side was not heard of in time");
        else if (now >= k.grace_end)
            kill_all();
        else if (now >= k.memory_check)
            check_memory();
    } else if (now >= k.kill_again) {
        kill_all();
    }
}

static bool hushed(struct timespec *left)
{
    uint64_t now = k.hush_end ? boot_us() : 0;
    if (now >= k.hush_end)
        k.hush_end = 0;
    else
        left->tv_nsec = (long)(k.hush_end - now) * 1000;
    return k.hush_end != 0;
}

/* What is told first counts: the supervisor is killed with the job. */
static void hear_of_misuse(void)
{
    char line[TEXT];
    uint32_t member;
    if (!mapping_read(line, &member) || k.killing || k.over)
        return;
    if (mapping_report() < 0) { /* killed: no fault of the job's */
        copy_text(k.said, sizeof k.said, line);
        return end_because(CAUSE_KILLED, k.said);
    }
    k.guilty = member;
    copy_text(k.said, sizeof k.said, line);
    end_because(CAUSE_MISUSE, k.said);
}

/* What the job wrote and home has not answered. It waits as long as the job itself might have. */
static bool all_at_home(void)
{
    if (k.cause || remote_over())
        return true;
    k.draining = true;
    if (boot_us() < k.lease_end)
        return false;
    k.cause = CAUSE_LEASE;
    k.text = "its lease ran out: the submit side was not heard of in time, and may lack what the job wrote last";
    remote_kill();
    return true;
}

static _Noreturn void loop(void)
{
    sigset_t open_to_all;
    sigemptyset(&open_to_all);
    for (;;) {
        set_timer();
        struct timespec hush = {0};
        bool quiet = hushed(&hush);
        struct pollfd fds[6] = {{.fd = SOCKET, .events = POLLIN}, {.fd = me.timer, .events = POLLIN},
                                {.fd = quiet ? -1 : k.pipe, .events = POLLIN}, {.fd = mapping_report(), .events = POLLIN},
                                {.fd = remote_fd(), .events = POLLIN}, {.fd = notify_fd(), .events = POLLIN}};
        int ready = ppoll(fds, 6, quiet ? &hush : NULL, &open_to_all); /* SIGCHLD is let in only here */
        if (ready > 0 && fds[2].revents)
            program_runs();
        if (ready > 0 && fds[0].revents)
            listen_to_node();
        if (ready > 0 && fds[3].revents)
            hear_of_misuse();
        if (ready > 0 && fds[4].revents && !remote_heard())
            end_because(CAUSE_KILLED, "the server of its remote files died");
        if (ready > 0 && fds[5].revents && notify_died() && !k.over && !k.killing)
            end_because(CAUSE_KILLED, "the supervisor of its remote files died");
        check_time();
        checkpoint_look(k.number, me.cell); /* before the word that it is made */
        reap();
        if (k.suspend_again && !checkpoint_holds())
            suspend(true);
        if (k.over && k.pipe >= 0)
            program_runs();
        if (k.over)
            end_mapping();
        if (!k.over && (k.killing || k.pipe >= 0 || !members_failed(&me.job)))
            continue;
        if (anybody_left() && !k.killing)
            kill_all();
        else if (!anybody_left() && all_at_home())
            finish();
    }
}

static void on_child(int signal) { (void)signal; }

static void quiet_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    struct sigaction a = {.sa_handler = on_child, .sa_flags = SA_NOCLDSTOP};
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
    me.job = *job;
    me.cell = job->start->head.cell;
    k.number = job->start->head.number;
    me.born_us = boot_us();
    quiet_signals();
    setsid();
    if (!(settings.able & ABLE_PID))
        prctl(PR_SET_CHILD_SUBREAPER, 1);
    settings.keeper = me.own = pid_outside();
    if (dup3(cell, CELL, O_CLOEXEC) < 0 || dup3(socket, SOCKET, O_CLOEXEC) < 0 || cell_pid(CELL, me.own) < 0) {
        fail(&f, "prepare", "the keeper's descriptors");
        give_up(&f);
    }
    close(cell);
    me.group = group >= 0 && dup3(group, GROUP, O_CLOEXEC) >= 0 ? GROUP : -1;
    if (space_enter(&me.job, &f))
        give_up(&f);
    for (uint32_t i = 0; i < me.job.start->remotes; i++)
        from = close_between(from, remote_device(i));
    close_above(from);
    if (remote_begin(&me.job, &f))
        give_up(&f);
    me.timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    again_note();
    begin();
    loop();
}
