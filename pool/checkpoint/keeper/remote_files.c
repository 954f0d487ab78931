/* The keeper's side of remote files: the mounts in the job's file tree, and the process of the file server. A tree of
 * the submit machine is a FUSE mount at its own name in the tree of `full`. A directory that this machine sees itself
 * (direct access) is a bind mount there. The mounts exist before the server has a stream: a process that reads them
 * waits. The keeper's wait calls do not report the server: it does not keep a job from ending, and it is not killed
 * with the rest of a job. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/keeper.h"
#include "remote/remote.h"
#include "remote_notify/remote_notify.h"
#include "sandbox/sandbox.h"

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

#define DEVICE "/dev/fuse"

static struct {
    int device[REMOTE_TREES], binds[REMOTE_TREES];
    int teller[REMOTE_TREES]; /* for what the server tells the kernel unasked (remote/own_files.c) */
    pid_t server;
    char covered[4096]; /* the top directory that was covered last */
} remote;

/* A tree that the job only reads: the kernel checks rights by itself, since it asks nothing at open. */
static int mount_fuse(int device, const char *path, uint32_t uid, uint32_t gid, bool only_read)
{
    char options[192];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other,max_read=%u%s", device,
             uid, gid, REMOTE_READ_MOST, only_read ? ",default_permissions" : "");
    return mount("poolnode", path, "fuse", MS_NOSUID | MS_NODEV | (only_read ? MS_RDONLY : 0), options);
}

/* Runs in a child that exits afterwards: whether the device can be opened, and its files mounted. */
int remote_try(void)
{
    int device = open(DEVICE, O_RDWR | O_CLOEXEC);
    return device < 0 ? -1 : mount_fuse(device, "/", geteuid(), getegid(), false);
}

/* Called in the host's tree, before leaving it. */
static int remote_take(const struct job *job, struct failure *f)
{
    const struct start *s = job->start;
    if (s->remotes > REMOTE_TREES || s->binds > REMOTE_TREES) {
        errno = E2BIG;
        return set_failure(f, "mount", "more remote trees than can be shown");
    }
    for (uint32_t i = 0; i < s->remotes && !notify_used(job); i++)
        if ((remote.device[i] = open(DEVICE, O_RDWR | O_CLOEXEC | O_NONBLOCK)) < 0 ||
            (remote.teller[i] = open(DEVICE, O_RDWR | O_CLOEXEC | O_NONBLOCK)) < 0)
            return set_failure(f, "open", DEVICE);
    for (uint32_t i = 0; i < s->binds; i++) {
        remote.binds[i] = (int)syscall(SYS_open_tree, AT_FDCWD, job->binds[2 * i],
                                       OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
        if (remote.binds[i] < 0)
            return set_failure(f, "open_tree", job->binds[2 * i]);
    }
    return 0;
}

/* Makes a directory to mount on: where the job may make it itself, else in the tree of `full`. In that tree only the
 * first part of the path is made, visible to all jobs; the rest is made in an empty file system of this job's.
 * Directories that are not empty there are not covered. */
static int place_for(const char *path, struct failure *f)
{
    char top[4096];
    struct stat st;
    if (stat(path, &st) == 0) {
        errno = ENOTDIR;
        return S_ISDIR(st.st_mode) ? 0 : set_failure(f, "mount", path);
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
            return set_failure(f, "mount", top);
        copy_text(remote.covered, sizeof remote.covered, top);
    }
    return make_path(AT_FDCWD, path, true, f);
}

/* Moves a descriptor above another one. */
static int move_above(int *fd, int below)
{
    int moved = fcntl(*fd, F_DUPFD_CLOEXEC, below + 1);
    if (moved >= 0) {
        close(*fd);
        *fd = moved;
    }
    return moved;
}

/* Mounts one tree. Its descriptors are above those of the tree before. */
static int place_tree(const struct start *s, const char *path, uint32_t i, struct failure *f)
{
    int *device = &remote.device[i], *teller = &remote.teller[i];
    if (move_above(device, i ? remote.teller[i - 1] : FIRST_FREE - 1) < 0 || move_above(teller, *device) < 0)
        return set_failure(f, "open", DEVICE);
    if (place_for(path, f))
        return -1;
    if (mount_fuse(*device, path, s->uid, s->gid, s->static_remotes >> i & 1) < 0)
        return set_failure(f, "mount", path);
    uint32_t first = (uint32_t)*device;
    if (ioctl(*teller, FUSE_DEV_IOC_CLONE, &first) < 0)
        return set_failure(f, "clone", DEVICE);
    return 0;
}

static int remote_place(const struct job *job, struct failure *f)
{
    const struct start *s = job->start;
    struct mount_attr quiet = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    for (uint32_t i = 0; i < s->binds; i++) {
        const char *path = job->binds[2 * i + 1];
        syscall(SYS_mount_setattr, remote.binds[i], "", AT_EMPTY_PATH | AT_RECURSIVE, &quiet, sizeof quiet);
        if (place_for(path, f))
            return -1;
        if (syscall(SYS_move_mount, remote.binds[i], "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
            return set_failure(f, "move_mount", path);
        close(remote.binds[i]);
    }
    if (notify_used(job)) {
        for (uint32_t i = 0; i < s->remotes; i++)
            if (place_for(job->remote[i], f))
                return -1;
        if (notify_place(job, f))
            return -1;
        for (uint32_t i = 0; i < s->remotes; i++)
            remote.device[i] = notify_top(i), remote.teller[i] = -1;
        return 0;
    }
    for (uint32_t i = 0; i < s->remotes; i++)
        if (place_tree(s, job->remote[i], i, f))
            return -1;
    return 0;
}

const struct extra_mounts remote_mounts = {remote_take, remote_place};

int remote_device(uint32_t i) { return remote.device[i]; }

int remote_teller(uint32_t i) { return remote.teller[i]; }

/* Makes a socket pair for each tree: instead of the kernel, a supervisor sends the requests to the server. */
static int ask_by_sockets(uint32_t trees, int supervisor[], struct failure *f)
{
    int ends[2];
    for (uint32_t i = 0; i < trees; i++) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
            return set_failure(f, "socket", "the file server");
        supervisor[i] = fcntl(ends[0], F_DUPFD_CLOEXEC, FIRST_FREE);
        remote.device[i] = fcntl(ends[1], F_DUPFD_CLOEXEC, FIRST_FREE);
        close(ends[0]);
        close(ends[1]);
        if (supervisor[i] < 0 || remote.device[i] < 0 || fcntl(remote.device[i], F_SETFL, O_NONBLOCK) < 0)
            return set_failure(f, "socket", "the file server");
    }
    return 0;
}

static int fork_file_server(const struct job *job, struct remote_control ends, const int supervisor[],
                            struct failure *f)
{
    remote.server = (pid_t)syscall(SYS_clone, 0, 0, 0, 0, 0);
    if (remote.server == 0) {
        remote_control_close();
        for (uint32_t i = 0; i < job->start->remotes && supervisor; i++)
            close(supervisor[i]);
        remote_serve(job, remote.device, supervisor ? NULL : remote.teller, ends);
    }
    return remote.server < 0 ? set_failure(f, "fork", "the file server") : 0;
}

/* The server is a "clone" child (clone(2)): no signal reports its exit, and wait() skips it. */
int remote_begin(const struct job *job, struct failure *f)
{
    struct remote_control ends;
    int supervisor[REMOTE_TREES];
    bool notified = notify_used(job);
    if (!job->start->remotes)
        return 0;
    if (remote_control_open(&ends, f) || (notified && ask_by_sockets(job->start->remotes, supervisor, f)) ||
        fork_file_server(job, ends, notified ? supervisor : NULL, f))
        return -1;
    close(ends.control);
    close(ends.settle);
    settings.spared[0] = remote.server;
    for (uint32_t i = 0; i < job->start->remotes; i++) {
        close(remote.device[i]);
        if (!notified)
            close(remote.teller[i]);
    }
    if (!notified)
        return remote_control_tops(job, f);
    pid_t pid = notify_begin(job, supervisor, f);
    settings.spared[1] = pid > 0 ? pid : 0;
    for (uint32_t i = 0; i < job->start->remotes; i++)
        close(supervisor[i]);
    return pid < 0 ? -1 : 0;
}

/* Ends all waits for the server's answers. A thread of it that waits for the kernel may outlive it for a moment, and
 * the mounts with it, so these are cut off where the kernel allows it. */
void remote_kill(void)
{
    notify_kill();
    if (remote.server > 0)
        kill(remote.server, SIGKILL);
    remote_control_cut();
}
