/* Makes a cgroup (version 2) for each cell, if the machine allows it. With a cgroup the kernel reaches every process of
 * a job, freezes it without its noticing, and limits its memory as a whole. The keeper stays outside. The job is born
 * inside (CLONE_INTO_CGROUP, Linux 5.7), which costs next to nothing; moving a process into a cgroup would block every
 * fork on the machine for a while.
 *
 * The cgroups lie below the node's own and are reused from job to job, like their cells. Without the memory controller
 * they still hold a job together. (A cgroup with processes of its own cannot pass the controller on, unless it is the
 * root.) Version 1 is not used. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/sandbox.h"

static int above = -1, base = -1; /* file descriptors of the node's cgroup, and of our directory in it */
static char base_name[64];

static int write_file(int directory, const char *file, const char *text)
{
    int fd = openat(directory, file, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n < 0 ? -1 : 0;
}

static bool read_file(int directory, const char *file, char *text, size_t size)
{
    int fd = openat(directory, file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = 0;
    return n >= 0;
}

static int own_cgroup(void)
{
    char text[8192], path[8300];
    const char *root =
        access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/unified";
    if (!read_file(AT_FDCWD, "/proc/self/cgroup", text, sizeof text))
        return -1;
    char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!line) {
        errno = ENOENT;
        return -1;
    }
    line = strstr(line, "0::") + 3;
    line[strcspn(line, "\n")] = 0;
    snprintf(path, sizeof path, "%s%s", root, line);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void clear_cgroups(void) /* removes empty cgroups that earlier fork servers left */
{
    int copy = dup(base);
    DIR *all = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;
    if (all)
        rewinddir(all); /* the copy shares the directory position */
    while (all && (e = readdir(all)))
        if (strncmp(e->d_name, "cell.", 5) == 0)
            unlinkat(base, e->d_name, AT_REMOVEDIR);
    if (all)
        closedir(all);
}

/* Forks, into the cgroup if there is one. */
pid_t cgroup_fork(int group)
{
    struct clone_args a = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)group};
    pid_t pid = group < 0 ? -1 : (pid_t)syscall(SYS_clone3, &a, sizeof a);
    return pid >= 0 ? pid : fork();
}

pid_t fork_as(pid_t pid, int group, uint64_t flags)
{
    struct clone_args a = {.flags = flags,
                           .exit_signal = flags & CLONE_PARENT ? 0 : SIGCHLD,
                           .set_tid = (uint64_t)(uintptr_t)&pid,
                           .set_tid_size = 1};
    if (group >= 0) {
        a.flags |= CLONE_INTO_CGROUP;
        a.cgroup = (uint64_t)group;
    }
    return (pid_t)syscall(SYS_clone3, &a, sizeof a);
}

static bool born_inside(void)
{
    int leaf = cgroup_of_cell(0);
    struct clone_args a = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)leaf};
    pid_t pid = leaf < 0 ? -1 : (pid_t)syscall(SYS_clone3, &a, sizeof a);
    if (pid == 0)
        _exit(0);
    int err = errno;
    if (pid > 0)
        waitpid(pid, NULL, 0);
    if (leaf >= 0)
        close(leaf);
    errno = err;
    return pid > 0;
}

/* Whether a controller can be enabled for the cgroups of the cells. */
static bool pass_on(const char *controller)
{
    /* fails if it is already enabled in the node's cgroup, or cannot be */
    write_file(above, "cgroup.subtree_control", controller);
    return write_file(base, "cgroup.subtree_control", controller) == 0;
}

uint32_t cgroup_open(void)
{
    struct stat st;
    if (fstat(DIRECTORY, &st) < 0 || (above = own_cgroup()) < 0)
        return 0;
    snprintf(base_name, sizeof base_name, "poolnode-%llx-%llx", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    if ((mkdirat(above, base_name, 0755) < 0 && errno != EEXIST) ||
        (base = openat(above, base_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return 0;
    clear_cgroups();
    if (!born_inside()) {
        int err = errno;
        cgroup_close();
        errno = err;
        return 0;
    }
    pass_on("+cpu");
    return ABLE_GROUP | (pass_on("+memory") ? ABLE_MEMORY : 0) | (pass_on("+pids") ? ABLE_COUNT : 0);
}

void cgroup_close(void)
{
    if (base >= 0) {
        clear_cgroups();
        unlinkat(above, base_name, AT_REMOVEDIR);
        close(base);
    }
    if (above >= 0)
        close(above);
    base = above = -1;
}

int cgroup_of_cell(uint32_t cell)
{
    char name[32];
    snprintf(name, sizeof name, "cell.%u", cell);
    if (base < 0 || (mkdirat(base, name, 0755) < 0 && errno != EEXIST))
        return -1;
    return openat(base, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* A cgroup in which nothing was ever killed. Linux 6.18 kills processes born into a cgroup in which cgroup.kill was
 * used before, so used cgroups are replaced. Processes that remain in it, because their keeper was killed while there
 * was no fork server, are killed here. */
int cgroup_fresh(uint32_t cell, int group)
{
    char name[32];
    snprintf(name, sizeof name, "cell.%u", cell);
    if (group >= 0)
        close(group);
    for (int tries = 0; base >= 0 && unlinkat(base, name, AT_REMOVEDIR) < 0 && errno == EBUSY; tries++) {
        int left = openat(base, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        cgroup_kill(left);
        if (left >= 0)
            close(left);
        if (tries == 200)
            return -1;
        usleep(1000);
    }
    return cgroup_of_cell(cell);
}

static int put_limit(int group, const char *file, uint64_t value)
{
    char text[32] = "max";
    if (value != UNLIMITED)
        snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return write_file(group, file, text);
}

/* Sets the limits of a job; without a limit it resets that of the job before. The CPU limit is a share among those that
 * want CPU time: a job may use idle CPUs. */
bool cgroup_limit(int group, const struct start *s)
{
    if (group < 0)
        return false;
    if (settings.able & ABLE_COUNT)
        put_limit(group, "pids.max", s->processes);
    uint64_t cpus = s->cpus == UNLIMITED ? 1 : s->cpus < 1 ? 1 : s->cpus > 100 ? 100 : s->cpus;
    if (settings.able & (ABLE_COUNT | ABLE_MEMORY))
        put_limit(group, "cpu.weight", cpus * 100); /* the file does not exist without the controller */
    if (!(settings.able & ABLE_MEMORY))
        return false;
    write_file(group, "memory.oom.group", "1");
    put_limit(group, "memory.swap.max", s->memory == UNLIMITED ? UNLIMITED : 0);
    return put_limit(group, "memory.max", s->memory) == 0;
}

/* The number of out-of-memory kills in the cgroup. */
uint64_t cgroup_memory_kills(int group)
{
    char text[512];
    if (group < 0 || !(settings.able & ABLE_MEMORY) || !read_file(group, "memory.events", text, sizeof text))
        return 0;
    char *at = strstr(text, "oom_kill ");
    return at ? strtoull(at + 9, NULL, 10) : 0;
}

bool cgroup_kill(int group) { return group >= 0 && write_file(group, "cgroup.kill", "1") == 0; }

bool cgroup_freeze(int group, bool still)
{
    return group >= 0 && write_file(group, "cgroup.freeze", still ? "1" : "0") == 0;
}
