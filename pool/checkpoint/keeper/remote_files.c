/* The keeper's side of remote system calls: the mounts in the job's tree, the server's process, and what is asked of it.
 *
 * A tree of the submit machine is a FUSE mount under its own name in the tree of `full`; what this machine sees itself (direct
 * access) is bound there. The mounts are there before the server has a stream: whoever looks into them waits. The server is a
 * child that the keeper's waits do not count: it neither keeps a job from being over nor is ended with what a job left. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/remote.h"

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

#define DEVICE "/dev/fuse"
#define SETTLE_MS 30000 /* a job stands still meanwhile */
#define TREES (sizeof serving.trees / sizeof *serving.trees)

static struct {
    int device[TREES], top[TREES], binds[TREES];
    int control, settle;
    pid_t server;
    bool asked, drained;
    char covered[4096]; /* the top directory that was covered last */
} remote = {.control = -1, .settle = -1};

static int mount_fuse(int device, const char *path, uint32_t uid, uint32_t gid)
{
    char options[160];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other,max_read=%u", device, uid, gid, MOST);
    return mount("poolnode", path, "fuse", MS_NOSUID | MS_NODEV, options);
}

/* In a child that is given up: whether the device may be opened, and its files mounted here. */
int remote_try(void)
{
    int device = open(DEVICE, O_RDWR | O_CLOEXEC);
    return device < 0 ? -1 : mount_fuse(device, "/", geteuid(), getegid());
}

/* In the host's tree, before it is left. */
int remote_take(const struct job *job, struct failure *f)
{
    const struct start *s = job->start;
    if (s->remotes > TREES || s->binds > TREES) {
        errno = E2BIG;
        return fail(f, "mount", "more remote trees than can be shown");
    }
    for (uint32_t i = 0; i < s->remotes && !notify_used(job); i++)
        if ((remote.device[i] = open(DEVICE, O_RDWR | O_CLOEXEC | O_NONBLOCK)) < 0)
            return fail(f, "open", DEVICE);
    for (uint32_t i = 0; i < s->binds; i++) {
        remote.binds[i] = (int)syscall(SYS_open_tree, AT_FDCWD, job->binds[2 * i], OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
        if (remote.binds[i] < 0)
            return fail(f, "open_tree", job->binds[2 * i]);
    }
    return 0;
}

/* A directory to mount on: where the job may make it itself, or else in the tree of `full`. There only its first part is made
 * for all jobs to see, what is below in an empty file system of this job's; but for directories that are not empty there. */
static int place_for(const char *path, struct failure *f)
{
    char top[4096];
    struct stat st;
    if (stat(path, &st) == 0) {
        errno = ENOTDIR;
        return S_ISDIR(st.st_mode) ? 0 : fail(f, "mount", path);
    }
    if (make_path(AT_FDCWD, path, true, f) == 0 && stat(path, &st) == 0)
        return 0;
    copy_text(top, sizeof top, path);
    char *slash = strchr(top + 1, '/');
    if (slash)
        *slash = 0;
    bool empty = stat(top, &st) < 0 || strcmp(top, "/home") == 0 || strcmp(top, "/root") == 0;
    if (!slash || !empty)
        return make_path(ROOT_RW, path, true, f);
    if (make_path(ROOT_RW, top, true, f))
        return -1;
    if (strcmp(top, remote.covered) != 0) {
        if (mount("tmpfs", top, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64k,nr_inodes=256") < 0)
            return fail(f, "mount", top);
        copy_text(remote.covered, sizeof remote.covered, top);
    }
    return make_path(AT_FDCWD, path, true, f);
}

int remote_place(const struct job *job, struct failure *f)
{
    const struct start *s = job->start;
    struct mount_attr quiet = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    for (uint32_t i = 0; i < s->binds; i++) {
        const char *path = job->binds[2 * i + 1];
        syscall(SYS_mount_setattr, remote.binds[i], "", AT_EMPTY_PATH | AT_RECURSIVE, &quiet, sizeof quiet);
        if (place_for(path, f))
            return -1;
        if (syscall(SYS_move_mount, remote.binds[i], "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
            return fail(f, "move_mount", path);
        close(remote.binds[i]);
    }
    if (notify_used(job)) {
        for (uint32_t i = 0; i < s->remotes; i++)
            if (place_for(job->remote[i], f))
                return -1;
        if (notify_place(job, f))
            return -1;
        for (uint32_t i = 0; i < s->remotes; i++)
            remote.device[i] = notify_top(i);
        return 0;
    }
    for (uint32_t i = 0; i < s->remotes; i++) {
        int device = fcntl(remote.device[i], F_DUPFD_CLOEXEC, i ? remote.device[i - 1] + 1 : FIRST_FREE); /* ascending */
        if (device < 0 || place_for(job->remote[i], f))
            return device < 0 ? fail(f, "open", DEVICE) : -1;
        close(remote.device[i]);
        remote.device[i] = device;
        if (mount_fuse(device, job->remote[i], s->uid, s->gid) < 0)
            return fail(f, "mount", job->remote[i]);
    }
    return 0;
}

int remote_device(uint32_t i) { return remote.device[i]; }

static bool whole_machine(void)
{
    char text[64] = "";
    int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    unsigned long first = 0, outside = 0, count = 0;
    if (fd >= 0)
        close(fd);
    return n <= 0 || (sscanf(text, "%lu %lu %lu", &first, &outside, &count) == 3 && count > 1);
}

static _Noreturn void serve(const struct job *job, int control, int settle)
{
    serving.uid = job->start->uid;
    serving.gid = job->start->gid;
    serving.own_users = !whole_machine();
    copy_text(serving.job, sizeof serving.job, job->id);
    char *run = strrchr(serving.job, '.');
    if (run)
        *run = 0;
    for (uint32_t i = 0; i < job->start->remotes; i++)
        serving.trees[serving.count++] = (struct tree){.fd = remote.device[i], .path = job->remote[i]};
    serving.notified = notify_used(job);
    for (int place = UP; place < FIRST_FREE; place++)
        if (place != control && place != settle)
            close(place);
    remote_serve(control, settle);
}

/* Instead of the kernel a supervisor asks the server, over a pair of sockets for each tree. */
static int ask_by_sockets(uint32_t trees, int supervisor[], struct failure *f)
{
    int ends[2];
    for (uint32_t i = 0; i < trees; i++) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
            return fail(f, "socket", "the file server");
        supervisor[i] = fcntl(ends[0], F_DUPFD_CLOEXEC, FIRST_FREE);
        remote.device[i] = fcntl(ends[1], F_DUPFD_CLOEXEC, FIRST_FREE);
        close(ends[0]);
        close(ends[1]);
        if (supervisor[i] < 0 || remote.device[i] < 0 || fcntl(remote.device[i], F_SETFL, O_NONBLOCK) < 0)
            return fail(f, "socket", "the file server");
    }
    return 0;
}

static int fork_server(const struct job *job, const int control[2], const int settle[2], const int supervisor[], struct failure *f)
{
    remote.server = (pid_t)syscall(SYS_clone, 0, 0, 0, 0, 0);
    if (remote.server == 0) {
        close(control[0]);
        close(settle[0]);
        for (uint32_t i = 0; i < job->start->remotes && supervisor; i++)
            close(supervisor[i]);
        serve(job, control[1], settle[1]);
    }
    return remote.server < 0 ? fail(f, "fork", "the file server") : 0;
}

static int open_tops(const struct job *job, struct failure *f)
{
    for (uint32_t i = 0; i < job->start->remotes; i++)
        if ((remote.top[i] = open(job->remote[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
            return fail(f, "open", job->remote[i]);
    return 0;
}

/* Not among those whose end the keeper waits for: no signal tells of it (clone(2), "clone" children). */
int remote_begin(const struct job *job, struct failure *f)
{
    int control[2], settle[2], supervisor[TREES];
    bool notified = notify_used(job);
    if (!job->start->remotes)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, settle) < 0)
        return fail(f, "socket", "the file server");
    if ((notified && ask_by_sockets(job->start->remotes, supervisor, f)) || fork_server(job, control, settle, notified ? supervisor : NULL, f))
        return -1;
    close(control[1]);
    close(settle[1]);
    remote.control = control[0];
    remote.settle = settle[0];
    settings.spared[0] = remote.server;
    for (uint32_t i = 0; i < job->start->remotes; i++)
        close(remote.device[i]);
    if (!notified)
        return open_tops(job, f);
    pid_t pid = notify_begin(job, supervisor, f);
    settings.spared[1] = pid > 0 ? pid : 0;
    for (uint32_t i = 0; i < job->start->remotes; i++)
        close(supervisor[i]);
    return pid < 0 ? -1 : 0;
}

int remote_fd(void) { return remote.drained ? -1 : remote.control; }

static int send_to(int fd, uint32_t what, uint64_t value, int passed)
{
    struct remote_message m = {.what = what, .value = value};
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } extra;
    struct iovec part = {&m, sizeof m};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (passed >= 0) {
        message.msg_control = &extra;
        message.msg_controllen = sizeof extra;
        struct cmsghdr *held = CMSG_FIRSTHDR(&message);
        held->cmsg_level = SOL_SOCKET;
        held->cmsg_type = SCM_RIGHTS;
        held->cmsg_len = CMSG_LEN(sizeof passed);
        memcpy(CMSG_DATA(held), &passed, sizeof passed);
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -1 : 0;
}

void remote_stream(int fd)
{
    if (remote.control >= 0)
        send_to(remote.control, REMOTE_STREAM, 0, fd);
}

/* True while the server lives. It says one thing only: that all is at home. */
bool remote_heard(void)
{
    struct remote_message m;
    ssize_t n = recv(remote.control, &m, sizeof m, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    remote.drained = true;
    return n > 0;
}

/* After the job's last process: whether home has everything that it wrote. */
bool remote_over(void)
{
    if (remote.control < 0 || remote.drained)
        return true;
    if (!remote.asked && send_to(remote.control, REMOTE_END, 0, -1) < 0)
        return true;
    remote.asked = true;
    return false;
}

/* Whoever waits for an answer of it waits no more. */
void remote_kill(void)
{
    notify_kill();
    if (remote.server > 0)
        kill(remote.server, SIGKILL);
}

/* In the dumper, while the job stands still: all that it wrote is at home, and home has noted the moment. */
int remote_settle(const struct job *job, uint64_t mark, struct failure *f)
{
    struct remote_message m = {0};
    struct pollfd answer = {.fd = remote.settle, .events = POLLIN};
    if (remote.control < 0)
        return 0;
    while (recv(remote.settle, &m, sizeof m, MSG_DONTWAIT) > 0) { /* an answer that came too late for who asked before */
    }
    for (uint32_t i = 0; i < job->start->remotes; i++)
        if (syncfs(remote.top[i]) < 0)
            return fail(f, "sync", job->remote[i]);
    if (send_to(remote.settle, REMOTE_SETTLE, mark, -1) < 0)
        return fail(f, "sync", "the file server");
    if (poll(&answer, 1, SETTLE_MS) <= 0) {
        errno = ETIMEDOUT;
        return fail(f, "sync", "the submit machine does not answer");
    }
    if (recv(remote.settle, &m, sizeof m, 0) != sizeof m) {
        errno = EIO;
        return fail(f, "sync", "the file server");
    }
    errno = (int)m.value;
    return m.value ? fail(f, "sync", "the submit machine's note of the moment") : 0;
}
