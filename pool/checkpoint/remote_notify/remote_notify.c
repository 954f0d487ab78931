/* Remote files without FUSE, the side of the keeper and the job's processes: the shadows in the job's file tree, the
 * supervisor's process, and the filter that each process installs before it opens any file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fd_passing.h"
#include "remote_notify/parts.h"

static struct {
    int tops[TREES_MOST];
    int members; /* to the supervisor: the members send their listeners on it */
    int first;
    pid_t pid;
    int watch; /* a pidfd of it, since no signal reports its exit */
} at = {.members = -1, .watch = -1};

/* The first high number: the range lies below the limit of select and below the job's limit. */
static int first_number(const struct job *job)
{
    struct rlimit now = {1024, 1024};
    uint64_t most = 1024;
    getrlimit(RLIMIT_NOFILE, &now);
    most = now.rlim_cur < most ? now.rlim_cur : most;
    most = job->start->nofile < most ? job->start->nofile : most;
    return most < 4 * TRAPPED_NUMBERS ? (int)most * 3 / 4 : (int)most - TRAPPED_NUMBERS;
}

bool notify_used(const struct job *job) { return job->start->remotes && !(settings.able & ABLE_FUSE); }

/* Mounts one small file system for all trees, read-only for the job, at the directories that were made for them. */
int notify_place(const struct job *job, struct failure *f)
{
    struct mount_attr quiet = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY};
    char path[4096 + 16];
    const char *bottom = job->remote[0];
    if (mount("tmpfs", bottom, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=25%") < 0)
        return set_failure(f, "mount", bottom);
    for (uint32_t i = 0; i < job->start->remotes; i++) {
        snprintf(path, sizeof path, "%s/%u", bottom, i);
        int top = mkdir(path, 0755) < 0 || chown(path, job->start->uid, job->start->gid) < 0
                      ? -1
                      : open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        at.tops[i] = top < 0 ? -1 : fcntl(top, F_DUPFD_CLOEXEC, i ? at.tops[i - 1] + 1 : FIRST_FREE); /* ascending */
        if (at.tops[i] < 0)
            return set_failure(f, "mkdir", path);
        close(top);
    }
    for (uint32_t i = job->start->remotes; i-- > 0;) { /* the first one covers them all, so it comes last */
        snprintf(path, sizeof path, "%s/%u", bottom, i);
        int tree = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (tree < 0 || syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &quiet, sizeof quiet) < 0 ||
            syscall(SYS_move_mount, tree, "", AT_FDCWD, job->remote[i], MOVE_MOUNT_F_EMPTY_PATH) < 0)
            return set_failure(f, "mount", job->remote[i]);
        close(tree);
    }
    return 0;
}

int notify_top(uint32_t i) { return at.tops[i]; }

static _Noreturn void supervise(const struct job *job, const int server[], int members)
{
    struct notifier *n = calloc(1, sizeof *n);
    if (!n)
        _exit(1);
    n->job = job;
    n->trees = job->start->remotes;
    n->first = at.first;
    memcpy(n->tops, at.tops, sizeof n->tops);
    memcpy(n->server, server, n->trees * sizeof *server);
    for (int place = UP; place <= CELL; place++) /* this process must not hold the cell's lock */
        close(place);
    notify_serve(n, members);
}

/* Forks the supervisor. `server`: its sockets to the file server; the caller closes them. */
pid_t notify_begin(const struct job *job, const int server[], struct failure *f)
{
    int members[2];
    if (has_mapped_files(job)) {
        errno = EOPNOTSUPP;
        return set_failure(f, "start",
                           "names mapped to pipes together with remote files need /dev/fuse on this machine");
    }
    if (job->start->flags & FLAG_IMAGE) {
        errno = EOPNOTSUPP;
        return set_failure(f, "restore",
                           "remote files of a job that goes on from a checkpoint need /dev/fuse on this machine");
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, members) < 0)
        return set_failure(f, "socketpair", "");
    for (int i = 0; i < 2; i++) {
        int high = fcntl(members[i], F_DUPFD_CLOEXEC, FIRST_FREE);
        close(members[i]);
        members[i] = high;
    }
    at.first = first_number(job);
    if (at.watch >= 0)
        close(at.watch); /* of the previous job */
    at.watch = -1;
    /* as for the file server, the keeper's wait() does not report it */
    at.pid = (pid_t)syscall(SYS_clone, 0, 0, 0, 0, 0);
    if (at.pid == 0) {
        close(members[1]);
        supervise(job, server, members[0]);
    }
    close(members[0]);
    at.members = members[1];
    int watch = at.pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, at.pid, 0);
    if (watch >= 0) {
        at.watch = fcntl(watch, F_DUPFD_CLOEXEC, FIRST_FREE);
        close(watch);
    }
    for (uint32_t i = 0; i < job->start->remotes; i++)
        close(at.tops[i]);
    return at.pid < 0 ? set_failure(f, "fork", "the supervisor of remote files") : at.pid;
}

/* Called in a process of the job, before it opens any file. */
int notify_enter(const struct job *job, uint32_t member, struct failure *f)
{
    struct fd_message m;
    if (!notify_used(job))
        return 0;
    int fd = notify_filter(at.first, f);
    if (fd < 0)
        return -1;
    fd_message_init(&m, &member, sizeof member, &fd, 1);
    struct mmsghdr one = {.msg_hdr = m.head};
    if (sendmmsg(at.members, &one, 1, UNASKED) < 1) /* not trapped: the supervisor has no listener yet */
        return set_failure(f, "send", "to the supervisor of remote files");
    close(fd); /* trapped already, and answered */
    return 0;
}

/* Called in the keeper when the job's processes are forked: the supervisor exits with them. */
void notify_forked(void)
{
    if (at.members >= 0)
        close(at.members);
    at.members = -1;
}

int notify_fd(void) { return at.watch; }

/* Called in the keeper when `notify_fd` is readable: whether the supervisor was killed; false: it exited with the
 * job. */
bool notify_died(void)
{
    int status = 0;
    if (waitpid(at.pid, &status, __WALL) != at.pid)
        status = 0;
    close(at.watch);
    at.watch = -1;
    at.pid = 0;
    return status != 0;
}

void notify_kill(void)
{
    if (at.pid > 0)
        kill(at.pid, SIGKILL);
}
