/* Mapped file names, the side of the keeper and the job's processes: the keeper forks the supervisor before the
 * members, each member installs its filter just before its program, and the keeper reads reports of misuse. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fd_passing.h"
#include "mapped_files/parts.h"
#include "sandbox/sandbox.h"

#define LAST_WORD_MS 5000

static struct { /* of the running job */
    pid_t pid;
    int report; /* from the supervisor */
    int members; /* to the supervisor, for a first message (struct hello); -1: no mapped files */
    int its_report, its_members; /* the supervisor's ends, until it is forked */
    int first;
} at = {.report = -1, .members = -1, .its_report = -1, .its_members = -1};

int mapping_report(void) { return at.report; }

pid_t mapping_supervisor(void) { return at.pid; }

int mapping_way(void) { return at.members; }

/* The first high number: the range lies below the limit of select and below the job's limit. */
static int first_number(const struct job *job)
{
    struct rlimit now = {1024, 1024};
    uint64_t most = 1024;
    getrlimit(RLIMIT_NOFILE, &now);
    if (now.rlim_cur < most)
        most = now.rlim_cur;
    if (job->start->nofile < most)
        most = job->start->nofile;
    return most < 4 * SLOTS ? (int)most * 3 / 4 : (int)most - SLOTS;
}

static _Noreturn void supervise(struct supervisor *s, int keeper, int members)
{
    for (int place = UP; place <= CELL; place++) /* this process must not hold the cell's lock */
        close(place);
    s->keeper = keeper;
    mapping_serve(s, members, -1);
}

/* The ends are made before the fork, so that the processes can inherit theirs. The supervisor keeps its own copies. */
static int forked(struct job *job, struct supervisor *s, int group, struct failure *f)
{
    at.pid = cgroup_fork(group);
    if (at.pid < 0) {
        at.pid = 0;
        return set_failure(f, "fork", "the supervisor of mapped files");
    }
    if (at.pid == 0) {
        for (uint32_t i = 0; i < job->pipe_count; i++)
            for (int end = 0; end < 2; end++)
                if (job->pipes[i].ends[end] >= 0)
                    close(job->pipes[i].ends[end]);
        close(at.report);
        close(at.members);
        supervise(s, at.its_report, at.its_members);
    }
    return 0;
}

static void close_all(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->end_count; i++)
        if (s->ends[i].fd >= 0)
            close(s->ends[i].fd);
    for (uint32_t i = 0; i < s->log_count; i++) {
        if (s->logs[i].fd >= 0)
            close(s->logs[i].fd);
        for (uint32_t j = 0; j < s->logs[i].count; j++)
            close(s->logs[i].outlets[j].fd);
        free(s->logs[i].outlets);
        free(s->logs[i].ring);
    }
    free(s);
}

/* Makes the two connections with the keeper's side. */
static int ways(struct failure *f)
{
    int told[2], members[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, told) < 0)
        return set_failure(f, "socketpair", "");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, members) < 0) {
        close(told[0]);
        close(told[1]);
        return set_failure(f, "socketpair", "");
    }
    at.report = told[0];
    at.members = members[1];
    at.its_report = told[1];
    at.its_members = members[0];
    return 0;
}

static void close_its(void)
{
    if (at.its_report >= 0)
        close(at.its_report);
    if (at.its_members >= 0)
        close(at.its_members);
    at.its_report = at.its_members = -1;
}

int mapping_begin(struct job *job, int group, struct failure *f)
{
    if (!has_mapped_files(job))
        return 0;
    struct supervisor *s = calloc(1, sizeof *s);
    if (!s)
        return set_failure(f, "malloc", "mapped files");
    s->job = job;
    s->first = at.first = first_number(job);
    int done = ways(f) || links_plan(s, f) || links_join(job, s, f) || forked(job, s, group, f) ? -1 : 0;
    close_all(s);
    close_its();
    if (done)
        mapping_end(NULL);
    return done;
}

/* For a restored job: the restoring process makes the supervisor (state/mapped_files_restore.c), with this pid. */
int mapping_await(const struct job *job, pid_t pid, struct failure *f)
{
    if (!has_mapped_files(job))
        return 0;
    at.pid = pid;
    return ways(f);
}

void mapping_ends(int *report, int *members)
{
    *report = at.its_report;
    *members = at.its_members;
}

/* Called when it is forked. */
void mapping_awaited(void) { close_its(); }

/* Sends the directories of the member's mapped files; 1: it has some, 0: none. */
static int send_directories(const struct job *job, uint32_t member, struct failure *f)
{
    struct stat st;
    int any = 0;
    for (uint32_t i = 0; i < job->pipe_count; i++)
        for (enum way way = READS; way <= WRITES; way++) {
            const struct conduit *c = &job->pipes[i];
            const char *name = way == WRITES ? c->writer_file : c->reader_file;
            if ((way == WRITES ? c->head->writer : c->head->reader) != (int32_t)member ||
                end_descriptor(name, way) >= 0)
                continue;
            if (links_directory(job, member, name, &st, f))
                return -1;
            struct hello hello = {.what = HELLO_END,
                                  .member = member,
                                  .conduit = i,
                                  .way = way,
                                  .device = st.st_dev,
                                  .directory = st.st_ino};
            if (hello_send(at.members, &hello, -1) < 0)
                return set_failure(f, "send", "to the supervisor of mapped files");
            any = 1;
        }
    return any;
}

int hello_send(int to, const struct hello *hello, int fd)
{
    return send_with_fd(to, hello, sizeof *hello, fd, 0) < 0 ? -1 : 0;
}

bool hello_take(int from, struct hello *hello, int *fd)
{
    return receive_with_fd(from, hello, sizeof *hello, fd, MSG_DONTWAIT) == sizeof *hello;
}

/* Called in a member when it has opened all its other files. A member without mapped files only sends its pid. */
int mapping_enter(const struct job *job, uint32_t member, struct failure *f)
{
    struct hello hello = {.what = HELLO_MEMBER, .member = member, .pid = getpid()};
    int fd = -1;
    if (at.members < 0)
        return 0;
    int mapped = send_directories(job, member, f);
    if (mapped < 0 || (mapped && (fd = mapping_filter(at.first, f)) < 0))
        return -1;
    if (hello_send(at.members, &hello, fd) < 0)
        return set_failure(f, "send", "to the supervisor of mapped files");
    if (fd >= 0)
        syscall(SYS_close_range, fd, fd, 0); /* the filter may trap close itself */
    return 0;
}

/* Reads the supervisor's reason to end the job. False: there is none. */
bool mapping_read(char text[TEXT], uint32_t *member)
{
    struct accusation a = {.member = NO_MEMBER};
    ssize_t n = recv(at.report, &a, sizeof a - 1, MSG_DONTWAIT);
    if (n < 0)
        return false;
    *member = a.member;
    copy_text(text, TEXT, n ? a.text : "the supervisor of its mapped files died");
    if (n == 0) {
        close(at.report);
        at.report = -1;
    }
    return true;
}

/* Called when all members have ended: reads the supervisor's last report; then the supervisor exits. */
bool mapping_over(char text[TEXT], uint32_t *member)
{
    struct pollfd said = {.fd = at.report, .events = POLLIN};
    struct hello hello = {.what = HELLO_OVER};
    bool asked = at.pid > 0 && at.report >= 0 && hello_send(at.members, &hello, -1) == 0;
    return asked && poll(&said, 1, LAST_WORD_MS) > 0 && mapping_read(text, member) && at.report >= 0;
}

bool mapping_reaped(pid_t pid)
{
    if (!at.pid || pid != at.pid)
        return false;
    at.pid = 0;
    return true;
}

/* Ends the supervisor when the job's processes are over, or were never forked. Its CPU time counts as the job's. */
void mapping_end(struct rusage *use)
{
    struct rusage ignored;
    if (at.pid > 0) {
        kill(at.pid, SIGKILL);
        while (wait4(at.pid, NULL, 0, use ? use : &ignored) < 0 && errno == EINTR) {
        }
    }
    at.pid = 0;
    if (at.report >= 0)
        close(at.report);
    if (at.members >= 0)
        close(at.members);
    at.report = at.members = -1;
    close_its();
}
