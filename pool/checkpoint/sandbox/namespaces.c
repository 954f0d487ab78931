/* Namespaces: they limit which parts of the host a job can see and reach. An ordinary user's fork server enters a user
 * namespace at its start, with the identity map of its own ids, and gains there the capabilities to make the other
 * namespaces for each job. A fork server that has the capabilities (root) needs none. A kernel or container may forbid
 * some of them: each step is tried in a child, and left out if it fails.
 *
 * Costs: a pid namespace is almost free beside fork and exec; a mount namespace costs in proportion to the mounts that
 * it copies. This file does not secure the network, unless the job is to have none, nor the system calls of a job
 * without a filter (filter.c). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <net/if.h>
#include <linux/sched.h>
#include <sys/ptrace.h>
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

#include "sandbox/network.h"
#include "sandbox/sandbox.h"

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

static int write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    int err = errno;
    close(fd);
    errno = err;
    return n < 0 ? -1 : 0;
}

/* One line for each map. setgroups comes first: without it the kernel refuses the group map (user_namespaces(7)). */
int ns_enter_user(void)
{
    char map[64];
    unsigned uid = geteuid(), gid = getegid();
    if (unshare(CLONE_NEWUSER) < 0 || write_file("/proc/self/setgroups", "deny") < 0)
        return -1;
    snprintf(map, sizeof map, "%u %u 1\n", uid, uid);
    if (write_file("/proc/self/uid_map", map) < 0)
        return -1;
    snprintf(map, sizeof map, "%u %u 1\n", gid, gid);
    return write_file("/proc/self/gid_map", map);
}

/* Mounts made here do not propagate to the host; later mounts of the host still appear here. */
int ns_enter_mount(void) { return unshare(CLONE_NEWNS) < 0 ? -1 : mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL); }

int ns_mount_proc(void) { return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL); }

int ns_in_new_pid(int (*then)(void))
{
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(!then || then() == 0 ? 0 : errno);
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return -1;
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
    return errno ? -1 : 0;
}

static bool is_full(const struct job *job) { return job->start->flags & FLAG_FULL && settings.able & ABLE_ROOT; }

bool has_own_tmp(const struct job *job)
{
    return settings.able & ABLE_MOUNT &&
           (is_full(job) || (job->start->flags & (FLAG_FULL | FLAG_PRIVATE_TMP)) == FLAG_PRIVATE_TMP);
}

const char *scratch_path(const struct job *job)
{
    return is_full(job) && *job->scratch && job->start->flags & FLAG_FIXED ? "/job" : job->scratch;
}

unsigned long ns_flags(const struct job *job)
{
    unsigned long flags = 0;
    if (settings.able & ABLE_PID)
        flags |= CLONE_NEWPID;
    if (settings.able & ABLE_IPC)
        flags |= CLONE_NEWIPC;
    if (settings.able & ABLE_MOUNT && !is_full(job)) /* full: copied from the fork server's tree instead */
        flags |= CLONE_NEWNS;
    if (job->start->flags & FLAG_NO_NETWORK)
        flags |= CLONE_NEWNET;
    if (job->start->flags & FLAG_PRIVATE_NETWORK)
        flags |= CLONE_NEWNET | CLONE_NEWUTS;
    return flags;
}

int ns_prepare(const struct job *job, struct failure *f)
{
    static char last[4096];
    if (job->start->flags & FLAG_NO_NETWORK && !(settings.able & ABLE_NETWORK)) {
        errno = EPERM;
        return set_failure(f, "network", "");
    }
    if (job->start->flags & FLAG_PRIVATE_NETWORK && !(settings.able & ABLE_PRIVATE_NETWORK)) {
        errno = EPERM;
        return set_failure(f, "network", "of its own");
    }
    char *slash = strrchr(job->scratch, '/');
    if (!is_full(job) || job->start->flags & FLAG_FIXED || !slash || slash == job->scratch ||
        path_is_under(job->scratch, "/tmp"))
        return 0;
    size_t length = (size_t)(slash - job->scratch);
    if (length < sizeof last && strncmp(last, job->scratch, length) == 0 && !last[length])
        return 0;
    if (make_path(ROOT_RW, job->scratch, false, f))
        return -1;
    if (length < sizeof last)
        copy_text(last, length + 1, job->scratch);
    return 0;
}

static int mount_tree(int tree, const char *path, struct failure *f)
{
    if (syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return set_failure(f, "move_mount", path);
    close(tree);
    return 0;
}

static int open_tree_of(const char *path, struct failure *f)
{
    int tree = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    return tree < 0 ? set_failure(f, "open_tree", path) : tree;
}

static int cover_with_tmpfs(const char *path, const char *options, struct failure *f)
{
    if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
        return set_failure(f, "mount tmpfs", path);
    return 0;
}

static int private_tmp(const struct job *job, struct failure *f)
{
    char options[64];
    if (job->start->memory != UNLIMITED)
        snprintf(options, sizeof options, "mode=1777,size=%lluk", (unsigned long long)(job->start->memory >> 10) + 1);
    else
        snprintf(options, sizeof options, "mode=1777,size=50%%");
    return cover_with_tmpfs("/tmp", options, f);
}

/* Mounts the scratch directory at its own name, unless another was asked for. In the tree of `is_full` its parent
 * directory holds nothing else, so that the names of other jobs do not show. */
static int place_scratch(int tree, const char *path, struct failure *f)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        if (!path_is_under(path, "/tmp")) {
            char parent[4096];
            copy_text(parent, sizeof parent, path);
            char *slash = strrchr(parent, '/');
            *(slash == parent ? slash + 1 : slash) = 0;
            if (cover_with_tmpfs(parent, "mode=0755,size=64k,nr_inodes=16", f))
                return -1;
        }
        if (make_path(AT_FDCWD, path, true, f))
            return -1;
    }
    return mount_tree(tree, path, f);
}

/* A directory that does not exist is skipped. */
static int hide_path(const char *path, struct failure *f)
{
    if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64k,nr_inodes=64") < 0 && errno != ENOENT)
        return set_failure(f, "mount tmpfs", path);
    return 0;
}

/* Opens the covers that exist, before the job's remote files are mounted: such a tree may lie over a cover, and is not
 * served yet, so that the lookup of a path in it would wait for ever. */
static int open_covers(const struct job *job, int **covers, struct failure *f)
{
    uint32_t count = job->start->hides + 1;
    if (!(*covers = malloc(count * sizeof **covers)))
        return set_failure(f, "malloc", "");
    for (uint32_t i = 0; i < count; i++) {
        const char *path = i < count - 1 ? job->hide[i] : settings.directory;
        (*covers)[i] = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if ((*covers)[i] < 0 && errno != ENOENT)
            return set_failure(f, "open", path);
    }
    return 0;
}

/* Makes the covers read-only, so that nothing in them remains for the next job of this keeper. Mounts below them are
 * unchanged. */
static void close_covers(const struct job *job, int *covers)
{
    struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY};
    for (uint32_t i = 0; i < job->start->hides + 1; i++) {
        if (covers[i] < 0)
            continue;
        syscall(SYS_mount_setattr, covers[i], "", AT_EMPTY_PATH, &a, sizeof a);
        close(covers[i]);
    }
    free(covers);
}

static int hide_all(const struct job *job, struct failure *f)
{
    for (uint32_t i = 0; i < job->start->hides; i++)
        if (hide_path(job->hide[i], f))
            return -1;
    return hide_path(settings.directory, f);
}

/* Directories shown below /tmp are mounted again over the job's own /tmp. */
static int tmp_with_shown(const struct job *job, struct failure *f)
{
    int trees[16];
    size_t shows = settings.shows < 16 ? settings.shows : 16;
    for (size_t i = 0; i < shows; i++) {
        trees[i] = path_is_under(settings.show[i], "/tmp") && access(settings.show[i], F_OK) == 0
                       ? open_tree_of(settings.show[i], f)
                       : -2;
        if (trees[i] == -1)
            return -1;
    }
    if (private_tmp(job, f))
        return -1;
    for (size_t i = 0; i < shows; i++)
        if (trees[i] >= 0 &&
            (make_path(AT_FDCWD, settings.show[i], true, f) || mount_tree(trees[i], settings.show[i], f)))
            return -1;
    return 0;
}

/* Takes the accelerators of the job's slot from the host's /dev; a device that is gone is skipped. */
static int take_devices(const struct job *job, int trees[], struct failure *f)
{
    for (uint32_t i = 0; i < job->start->devices; i++) {
        struct stat st;
        trees[i] = -2;
        if (!is_accelerator(job->devices[i]) || lstat(job->devices[i], &st) < 0 || !S_ISCHR(st.st_mode))
            continue;
        if ((trees[i] = open_tree_of(job->devices[i], f)) < 0)
            return -1;
    }
    return 0;
}

static int put_devices(const struct job *job, int trees[], struct failure *f)
{
    for (uint32_t i = 0; i < job->start->devices; i++)
        if (trees[i] >= 0 && access(job->devices[i], F_OK) == 0 && mount_tree(trees[i], job->devices[i], f))
            return -1;
    return 0;
}

/* A devpts of the job's own, without the terminals of other jobs. */
static int own_terminals(struct failure *f)
{
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620") < 0)
        return set_failure(f, "mount", "devpts");
    return 0;
}

/* User id 0 may change kernel settings through files that it owns, even without any capability. Other users may not. */
static int close_kernel(const struct job *job, struct failure *f)
{
    static const char *const settings_of[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"};
    struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY};
    if (job->start->uid || !is_full(job) || !(settings.able & ABLE_SETUID))
        return 0;
    for (size_t i = 0; i < sizeof settings_of / sizeof *settings_of; i++) {
        const char *path = settings_of[i];
        if (access(path, F_OK) < 0)
            continue;
        int tree = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (tree < 0 || syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &a, sizeof a) < 0)
            return set_failure(f, "mount_setattr", path);
        if (mount_tree(tree, path, f))
            return -1;
    }
    return 0;
}

static int enter_full(const struct job *job, const struct extra_mounts *extra, struct failure *f)
{
    int tree = -1, image = -1, devices[64], *covers = NULL;
    if (job->start->devices > sizeof devices / sizeof *devices) {
        errno = E2BIG;
        return set_failure(f, "devices", "");
    }
    if (take_devices(job, devices, f))
        return -1;
    if (*job->scratch && (tree = open_tree_of(job->scratch, f)) < 0)
        return -1;
    if (extra->take(job, f) || (*job->root && (image = image_take(job, f)) < 0))
        return -1;
    if (setns(ROOT, CLONE_NEWNS) < 0 || unshare(CLONE_NEWNS) < 0)
        return set_failure(f, "setns", "the file tree of full isolation");
    if (image >= 0 && image_enter(image, f))
        return -1;
    if (put_devices(job, devices, f) || own_terminals(f))
        return -1;
    if (image >= 0 ? private_tmp(job, f) : tmp_with_shown(job, f) || (settings.shows && hide_all(job, f)))
        return -1;
    if (image < 0 && settings.shows && open_covers(job, &covers, f))
        return -1;
    if (tree >= 0 && place_scratch(tree, scratch_path(job), f))
        return -1;
    if (extra->place(job, f))
        return -1;
    if (image >= 0)
        return image_close(f);
    if (covers)
        close_covers(job, covers);
    return 0;
}

/* Directories in which the machine's programs leave files for each other. In the tree of `is_full` the last two are
 * links to /tmp. */
static const char *const for_all[] = {"/tmp", "/var/tmp", "/dev/shm"};

static bool is_covered(const char *path, const struct job *job)
{
    char real[4096];
    if (path_is_under(path, settings.directory))
        return true;
    for (size_t i = 0; has_own_tmp(job) && i < sizeof for_all / sizeof *for_all; i++)
        if (realpath(for_all[i], real) && path_is_under(path, real))
            return true;
    for (uint32_t i = 0; i < job->start->hides; i++) {
        if (realpath(job->hide[i], real) && path_is_under(path, real))
            return true;
    }
    return false;
}

/* One file system under three names, so that one limit, one check (reuse.c) and one walk (tmp_directory.c) suffice. */
static int own_tmp_everywhere(const struct job *job, struct failure *f)
{
    struct stat tmp, st;
    if (tmp_with_shown(job, f))
        return -1;
    if (stat(for_all[0], &tmp) < 0)
        return set_failure(f, "stat", for_all[0]);
    for (size_t i = 1; i < sizeof for_all / sizeof *for_all; i++) {
        const char *path = for_all[i];
        if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode) || (st.st_dev == tmp.st_dev && st.st_ino == tmp.st_ino))
            continue;
        if (mount(for_all[0], path, NULL, MS_BIND | MS_REC, NULL) < 0)
            return set_failure(f, "bind", path);
    }
    return 0;
}

static int enter_shared(const struct job *job, struct failure *f)
{
    int tree = -1, *covers;
    char scratch[4096];
    if (*job->scratch && realpath(job->scratch, scratch) && is_covered(scratch, job) &&
        (tree = open_tree_of(scratch, f)) < 0)
        return -1;
    if (hide_all(job, f) || (has_own_tmp(job) && own_tmp_everywhere(job, f)) || open_covers(job, &covers, f))
        return -1;
    if (tree >= 0 && (make_path(AT_FDCWD, scratch, true, f) || mount_tree(tree, scratch, f)))
        return -1;
    close_covers(job, covers);
    return own_terminals(f); /* their numbers are the job's, on every machine */
}

/* Starts the only device of a new network namespace. */
static int loopback_up(struct failure *f)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), done = fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &lo);
    if (done < 0)
        return set_failure(f, "loopback", "");
    close(fd);
    return 0;
}

int ns_enter(const struct job *job, const struct extra_mounts *extra, struct failure *f)
{
    const bool networked = job->start->flags & FLAG_PRIVATE_NETWORK;
    if ((job->start->flags & FLAG_NO_NETWORK && loopback_up(f)) || (networked && network_up(job, f)))
        return -1;
    if (*job->root && !is_full(job)) {
        errno = EOPNOTSUPP;
        return set_failure(f, "mount", "an image without a file tree of the job's own");
    }
    if (job->start->remotes + job->start->binds && !is_full(job)) {
        errno = EOPNOTSUPP;
        return set_failure(f, "mount", "remote trees without a file tree of the job's own");
    }
    if (settings.able & ABLE_MOUNT && (is_full(job) ? enter_full(job, extra, f) : enter_shared(job, f)))
        return -1;
    if (settings.able & ABLE_PROC && ns_mount_proc() < 0)
        return set_failure(f, "mount", "/proc");
    if (networked) {
        network_settings();
        network_show_devices();
    }
    const bool own_lists = networked || job->start->flags & FLAG_NO_NETWORK;
    if (own_lists && settings.able & ABLE_HIDE_SOCKETS && network_hide(job->start->uid, job->start->gid) < 0)
        return set_failure(f, "chmod", "/proc/self/net");
    if (networked && network_names(job, f))
        return -1;
    return close_kernel(job, f);
}

/* The capabilities that root's own jobs keep if they share the host's files: power over files, as programs expect of
 * root, and none over the machine. Jobs of other users, and all jobs of `is_full`, keep none. */
static uint64_t kept_capabilities(const struct job *job)
{
    if (job->start->uid || job->start->flags & FLAG_FULL || !(settings.able & ABLE_SETUID))
        return 0;
    return 1 << CAP_CHOWN | 1 << CAP_DAC_OVERRIDE | 1 << CAP_FOWNER | 1 << CAP_FSETID | 1 << CAP_KILL |
           1 << CAP_SETGID | 1 << CAP_SETUID | 1 << CAP_NET_BIND_SERVICE;
}

uint64_t rights_kept(const struct job *job) { return kept_capabilities(job); }

/* Gives the keeper the job's rights over files, and restores its own. Only the effective capabilities change; the
 * permitted ones remain. */
int rights_as_job(const struct job *job, bool as, struct failure *f)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {{0}};
    const struct start *s = job->start;
    if (!as && (seteuid(getuid()) < 0 || setegid(getgid()) < 0))
        return set_failure(f, "setuid", "back");
    if (as && s->flags & FLAG_GROUPS && setgroups(s->groups, job->groups) < 0)
        return set_failure(f, "setgroups", "");
    if (as && ((s->gid != getegid() && setegid(s->gid) < 0) || (s->uid != geteuid() && seteuid(s->uid) < 0)))
        return set_failure(f, "setuid", "the job's user");
    if (syscall(SYS_capget, &head, sets) < 0)
        return set_failure(f, "capget", "");
    sets[0].effective = as ? sets[0].permitted & (uint32_t)kept_capabilities(job) : sets[0].permitted;
    sets[1].effective = as ? 0 : sets[1].permitted;
    return syscall(SYS_capset, &head, sets) < 0 ? set_failure(f, "capset", "") : 0;
}

static int change_ids(const struct job *job, struct failure *f)
{
    const struct start *s = job->start;
    char text[64];
    if (s->flags & FLAG_GROUPS && setgroups(s->groups, job->groups) < 0)
        return set_failure(f, "setgroups", "");
    if (s->gid != getegid() && setresgid(s->gid, s->gid, s->gid) < 0) {
        snprintf(text, sizeof text, "group %u", s->gid);
        return set_failure(f, "setgid", text);
    }
    if (s->uid != geteuid() && setresuid(s->uid, s->uid, s->uid) < 0) {
        snprintf(text, sizeof text, "user %u", s->uid);
        return set_failure(f, "setuid", text);
    }
    return 0;
}

int rights_drop(const struct job *job, struct failure *f)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    uint64_t keep = kept_capabilities(job);
    struct __user_cap_data_struct sets[2] = {{.effective = (uint32_t)keep, .permitted = (uint32_t)keep}};
    if (change_ids(job, f))
        return -1;
    /* no_new_privs makes it permanent: a program of user id 0 gets no more than the permitted set of its caller */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return set_failure(f, "prctl", "no_new_privs");
    struct __user_cap_data_struct held[2] = {{0}};
    if (keep && syscall(SYS_capget, &head, held) == 0) { /* no more than the keeper has: root of a container has less */
        sets[0].permitted &= held[0].permitted;
        sets[0].effective &= held[0].permitted;
    }
    if (syscall(SYS_capset, &head, sets) < 0)
        return set_failure(f, "capset", "");
    return filter_install(job, f);
}
