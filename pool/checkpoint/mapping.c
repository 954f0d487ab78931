/* The mapping of file names as the keeper and the job's processes see it: the supervisor is begun before they are forked, each
 * puts on its filter just before its program, and the keeper hears of misuse. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mapping.h"

static struct { /* of the job that runs */
    pid_t pid;
    int report;  /* from the supervisor */
    int members; /* to it, for the members to send their descriptors on; -1: no mapped files */
    int first;
    bool dead;
} at = {.report = -1, .members = -1};

int mapping_report(void) { return at.report; }

/* Numbers below what select can take, and what the job may have. */
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
    for (int place = UP; place <= CELL; place++) /* the cell's lock is not to stay with this process */
        close(place);
    s->keeper = keeper;
    mapping_serve(s, members);
}

/* Ends are made here, so that what processes are born with is at hand for them; what the supervisor holds is its own. */
static int forked(struct job *job, struct supervisor *s, int group, int told[2], int members[2], struct failure *f)
{
    at.pid = group_fork(group);
    if (at.pid < 0) {
        at.pid = 0;
        return fail(f, "fork", "the supervisor of mapped files");
    }
    if (at.pid == 0) {
        for (uint32_t i = 0; i < job->pipe_count; i++)
            for (int end = 0; end < 2; end++)
                if (job->pipes[i].ends[end] >= 0)
                    close(job->pipes[i].ends[end]);
        close(told[0]);
        close(members[1]);
        supervise(s, told[1], members[0]);
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

int mapping_begin(struct job *job, int group, struct failure *f)
{
    int told[2], members[2], done;
    at.dead = false;
    if (!mapping_used(job))
        return 0;
    struct supervisor *s = calloc(1, sizeof *s);
    if (!s)
        return fail(f, "malloc", "mapped files");
    s->job = job;
    s->first = at.first = first_number(job);
    memset(s->listeners, 0xff, sizeof s->listeners);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, told) < 0) {
        free(s);
        return fail(f, "socketpair", "");
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, members) < 0) {
        close(told[0]);
        close(told[1]);
        free(s);
        return fail(f, "socketpair", "");
    }
    done = links_make(job, s, f);
    if (!done)
        done = forked(job, s, group, told, members, f);
    close_all(s);
    close(told[1]);
    close(members[0]);
    at.report = told[0];
    at.members = members[1];
    if (done)
        mapping_end();
    return done;
}

static bool has_mapped(const struct job *job, uint32_t member)
{
    for (uint32_t i = 0; i < job->pipe_count; i++) {
        const struct conduit *c = &job->pipes[i];
        if ((c->head->writer == (int32_t)member && end_descriptor(c->writer_file, 1) < 0) ||
            (c->head->reader == (int32_t)member && end_descriptor(c->reader_file, 0) < 0))
            return true;
    }
    return false;
}

/* In a member, when all that it opens itself is open. One without mapped files only says who it is. */
int mapping_enter(const struct job *job, uint32_t member, struct failure *f)
{
    uint32_t hello[2] = {member, (uint32_t)getpid()};
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } extra;
    struct iovec part = {hello, sizeof hello};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (at.members < 0)
        return 0;
    int fd = -1;
    memset(&extra, 0, sizeof extra);
    if (has_mapped(job, member)) {
        if ((fd = mapping_filter(at.first, f)) < 0)
            return -1;
        m.msg_control = &extra;
        m.msg_controllen = sizeof extra;
        struct cmsghdr *held = CMSG_FIRSTHDR(&m);
        *held = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(held), &fd, sizeof fd);
    }
    if (sendmsg(at.members, &m, MSG_NOSIGNAL) < 0)
        return fail(f, "send", "to the supervisor of mapped files");
    if (fd >= 0)
        syscall(SYS_close_range, fd, fd, 0); /* close itself may be asked about */
    return 0;
}

/* One line for the job's end. False: nothing is to be said. */
bool mapping_read(char *text, size_t size)
{
    ssize_t n = recv(at.report, text, size - 1, MSG_DONTWAIT);
    if (n < 0)
        return false;
    text[n] = 0;
    if (n == 0) {
        copy_text(text, size, "the supervisor of its mapped files died");
        close(at.report);
        at.report = -1;
    }
    return true;
}

bool mapping_reaped(pid_t pid)
{
    if (!at.pid || pid != at.pid)
        return false;
    at.pid = 0;
    return true;
}

/* When the job's processes are over, or were never forked. */
void mapping_end(void)
{
    if (at.pid > 0) {
        kill(at.pid, SIGKILL);
        while (waitpid(at.pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    at.pid = 0;
    if (at.report >= 0)
        close(at.report);
    if (at.members >= 0)
        close(at.members);
    at.report = at.members = -1;
}
