/* The fork server: a small process that forks a keeper for each job, one for each startd. Forking it costs a fraction
 * of forking the node, and keepers need no exec. It exits with its node; its keepers go on, guarded by a copy of it
 * (guardian.c). It does not talk to the keepers: they answer the node directly. */
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/keeper.h"
#include "sandbox/sandbox.h"

static struct cell_entry { /* for each cell: its socket, its cgroup, and the last keeper */
    int socket, group;
    pid_t keeper;
} *cells;
static uint32_t cell_count;

static int cell_ready(uint32_t cell, struct failure *f)
{
    if (cell >= CELLS) {
        errno = ERANGE;
        return set_failure(f, "cell", "more jobs at a time than a fork server can have");
    }
    if (cell >= cell_count) {
        uint32_t count = (cell + 16) / 16 * 16;
        struct cell_entry *more = realloc(cells, count * sizeof *cells);
        if (!more)
            return set_failure(f, "realloc", "cells");
        cells = more;
        while (cell_count < count)
            cells[cell_count++] = (struct cell_entry){.socket = -1, .group = -1};
    }
    if (cells[cell].socket < 0)
        cells[cell].socket = cell_socket(cell, f);
    if (cells[cell].group < 0 && settings.able & ABLE_GROUP)
        cells[cell].group = cgroup_of_cell(cell);
    return cells[cell].socket < 0 ? -1 : 0;
}

/* True if an earlier fork server has started this run. Its keeper reads from the socket that it inherited, so the name
 * of the cell's socket must stay. */
static bool started_before(const struct head *start)
{
    struct cell c;
    bool ours = start->cell < cell_count && cells[start->cell].socket >= 0;
    return !ours && cell_look(start->cell, &c, true) && c.number >= start->number;
}

/* 0 also if nothing is to be done. */
static int start_job(void *message, size_t size, struct failure *f)
{
    struct job job;
    uint32_t cell = ((struct head *)message)->cell;
    if (started_before(message))
        return 0;
    memset(&job, 0, sizeof job);
    int taken = parse_start(&job, message, size, f);
    if (taken == 0 && (cell_ready(cell, f) || ns_prepare(&job, f)))
        taken = -1;
    if (taken == 0)
        taken = cell_take(cell, message, size, f);
    if (taken >= 0) {
        if (!(settings.able & ABLE_PID))
            cells[cell].group = cgroup_fresh(cell, cells[cell].group);
        pid_t pid = (pid_t)syscall(SYS_clone, ns_flags(&job) | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0)
            keep(&job, cells[cell].socket, taken, cells[cell].group);
        if (pid < 0) {
            set_failure(f, "clone", "a keeper in namespaces of its own");
            cell_note(taken, NULL, CELL_FREE);
        } else {
            cells[cell].keeper = pid;
            guardian_add(cell, pid, job.start->head.number, job.start->lease_us ? job.start->lease_end_us : 0);
        }
        close(taken);
        taken = pid < 0 ? -1 : 0;
    }
    free(job.kept);
    return taken == -1 ? -1 : 0;
}

static void handle_message(void *message, size_t size)
{
    struct head *head = message;
    struct failure f;
    struct report r;
    if (size < sizeof *head || head->magic != MAGIC || head->version != VERSION)
        return;
    struct pollfd up = {.fd = UP};
    bool node_gone = poll(&up, 1, 0) > 0 && up.revents & POLLHUP; /* a node that is gone starts no jobs */
    if (head->verb == START && !node_gone && start_job(message, size, &f) < 0)
        report_failure(head->number, head->cell, &f);
    if (head->verb == PING) {
        report_init(&r, PONG, head->number, head->cell);
        report_send(&r, NULL);
    }
}

static void obey_file(int fd)
{
    struct stat st;
    char *text = fstat(fd, &st) == 0 && st.st_size < 64 << 20 ? malloc((size_t)st.st_size + 1) : NULL;
    size_t got = 0;
    for (ssize_t n; text && got < (size_t)st.st_size; got += (size_t)n)
        if ((n = pread(fd, text + got, (size_t)st.st_size - got, (off_t)got)) <= 0)
            break;
    if (text)
        handle_message(text, got);
    free(text);
}

/* False: the node is gone. */
static bool read_messages(void)
{
    static union {
        struct start align;
        char room[TOO_BIG];
    } message;
    for (;;) {
        union {
            struct cmsghdr align;
            char room[CMSG_SPACE(sizeof(int))];
        } extra;
        struct iovec part = {&message, sizeof message};
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &extra, .msg_controllen = sizeof extra};
        ssize_t n = recvmsg(UP, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n <= 0)
            return n < 0 && (errno == EAGAIN || errno == EINTR);
        struct cmsghdr *held = CMSG_FIRSTHDR(&m);
        if (!held) {
            handle_message(&message, (size_t)n);
            continue;
        }
        int passed;
        memcpy(&passed, CMSG_DATA(held), sizeof passed);
        obey_file(passed);
        close(passed);
    }
}

/* Reports a keeper that was killed. The kernel ends its pid namespace before the parent is notified, so the job is
 * gone. Without a pid namespace, the job's processes have become children of the fork server (a subreaper in that
 * case), and are killed here. */
static void report_lost(struct cell_entry *c, int status, const struct rusage *use, bool late)
{
    struct report r;
    char text[96];
    if (!(settings.able & ABLE_PID)) {
        cgroup_kill(c->group);
        pid_t known[256];
        size_t count = 0;
        for (uint32_t i = 0; i < cell_count && count < 256; i++)
            if (cells[i].keeper)
                known[count++] = cells[i].keeper;
        tree_sweep(known, count);
    }
    snprintf(text, sizeof text, WIFSIGNALED(status) ? "its keeper was killed by signal %d" : "its keeper failed (%d)",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (late)
        snprintf(text, sizeof text, "its lease ended, and its keeper was stopped and did not end it");
    report_init(&r, ENDED, 0, (uint32_t)(c - cells));
    r.cause = late ? CAUSE_LEASE : CAUSE_LOST;
    r.user_us = (uint64_t)use->ru_utime.tv_sec * 1000000 + (uint64_t)use->ru_utime.tv_usec;
    r.system_us = (uint64_t)use->ru_stime.tv_sec * 1000000 + (uint64_t)use->ru_stime.tv_usec;
    r.max_rss_kib = (uint64_t)use->ru_maxrss;
    r.ended_us = wall_us();
    copy_text(r.text, sizeof r.text, text);
    r.head.size = (uint32_t)(offsetof(struct report, text) + strlen(text));
    cell_end_for(r.head.cell, &r);
    report_send(&r, NULL);
}

static void reap_keepers(void)
{
    int status;
    struct rusage use;
    for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &use)) > 0;) {
        for (uint32_t i = 0; i < cell_count; i++) {
            if (cells[i].keeper != pid)
                continue;
            cells[i].keeper = 0;
            bool late = guardian_drop(i);
            if (!WIFEXITED(status) || WEXITSTATUS(status))
                report_lost(&cells[i], status, &use, late);
        }
    }
}

static void on_child(int signal) { (void)signal; }

static void plain_signals(void)
{
    sigset_t all;
    /* Not by the library's sigaction, which does not reset the two signals that it uses itself. All zero is the
     * kernel's struct sigaction for the default. */
    static const unsigned long plain[8];
    for (int s = 1; s < 65; s++)
        syscall(SYS_rt_sigaction, s, plain, NULL, 8);
    sigemptyset(&all);
    sigaddset(&all, SIGCHLD);
    sigprocmask(SIG_SETMASK, &all, NULL);
    struct sigaction a = {.sa_handler = on_child, .sa_flags = SA_NOCLDSTOP};
    sigaction(SIGCHLD, &a, NULL);
}

/* When memory is short, jobs are killed before the node; keepers are too small to be chosen. */
static void raise_oom_score(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = write(fd, "300", 3); /* refused if the node has a higher value already, which is as good */
    (void)n;
    close(fd);
}

static int set_fixed_fds(const char *directory)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (null < 0 || dir < 0)
        return -1;
    dir = fcntl(dir, F_DUPFD_CLOEXEC, FIRST_FREE);
    for (int fd = 0; fd < FIRST_FREE; fd++)
        if (fd != UP && dup3(null, fd, fd < UP ? 0 : O_CLOEXEC) < 0 && errno != EINVAL)
            return -1;
    fcntl(UP, F_SETFD, FD_CLOEXEC);
    return dup3(dir, DIRECTORY, O_CLOEXEC) < 0 || close(dir) < 0 ? -1 : 0;
}

/* One fork server for each directory: a new one waits until its predecessor has done its last start. It uses a record
 * lock, which the keepers do not inherit. The file is named `nursery`
 * because fork servers of earlier versions lock it under that name. */
static int lock_directory(void)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(DIRECTORY, "nursery", O_RDWR | O_CREAT | O_CLOEXEC, 0600), done = -1;
    while (fd >= 0 && (done = fcntl(fd, F_SETLKW, &whole)) < 0 && errno == EINTR) {
    }
    return done;
}

/* NULL: no limit. */
static const struct timespec *time_until(uint64_t when, struct timespec *left)
{
    uint64_t now = boot_us(), us = when > now ? when - now : 0;
    *left = (struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    return when == UINT64_MAX ? NULL : left;
}

int fork_server(const char *directory)
{
    struct stat st;
    if (fstat(UP, &st) < 0 || !S_ISSOCK(st.st_mode)) {
        fputs("keeper fork-server: descriptor 3 is not a socket: this program is started by a startd\n", stderr);
        return 2;
    }
    if (!realpath(directory, settings.directory) || set_fixed_fds(directory) < 0 || lock_directory() < 0) {
        fprintf(stderr, "keeper fork-server: cannot open %s: %s\n", directory, strerror(errno));
        return 1;
    }
    setsid();
    plain_signals();
    umask(022);
    if (chdir("/") < 0) /* keeps no directory of the node busy */
        return 1;
    raise_oom_score();
    settings.network = stat("/proc/self/ns/net", &st) < 0 ? 0 : st.st_ino;
    char lines[TEXT] = "";
    struct report r;
    report_init(&r, HELLO, 0, 0);
    r.pid = getpid();
    r.code = (int32_t)abilities_open(lines, sizeof lines);
    if (!(settings.able & ABLE_PID))
        prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* A job with this user id and without a pid namespace may neither trace nor read its keeper. Not earlier: the maps
     * of a user namespace can be written only while the process is dumpable. */
    prctl(PR_SET_DUMPABLE, 0);
    guardian_find();
    report_send(&r, lines);
    sigset_t open_to_all;
    sigemptyset(&open_to_all);
    for (;;) {
        struct pollfd up = {.fd = UP, .events = POLLIN};
        struct timespec left;
        int ready = ppoll(&up, 1, time_until(guardian_look(false), &left), &open_to_all);
        reap_keepers();
        if (ready > 0 && !read_messages()) {
            guardian_stay();
            cgroup_close();
            return 0;
        }
    }
}
