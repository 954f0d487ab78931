/* Tests the abilities of this machine, when the fork server starts. Each is tried in a process of its own, since a
 * kernel's version does not tell what a distribution or a container has disabled. A step returns 0, or -1 and errno. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/sched.h>
#include <grp.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/keeper.h"
#include "remote_notify/remote_notify.h"
#include "sandbox/network.h"
#include "sandbox/sandbox.h"
#include "state/state.h"
#include "trace/pagemap_scan.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static int missing_ability(void)
{
    errno = errno ? errno : ENOSYS;
    return -1;
}

/* Needs: a process with a pid of our choice, ptrace, kcmp on open files, close_range. */
static int probe_hold(void)
{
    pid_t wanted = 77;
    int ends[2];
    struct clone_args a = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&wanted, .set_tid_size = 1};
    if (pipe2(ends, O_CLOEXEC) < 0 || syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, ends[0], ends[0]) != 0 ||
        syscall(SYS_close_range, ~0u - 1, ~0u, 0) < 0)
        return missing_ability();
    pid_t pid = (pid_t)syscall(SYS_clone3, &a, sizeof a);
    if (pid == 0)
        for (;;)
            pause();
    return pid < 0 || ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0 ? -1 : 0;
}

/* Does what dump/dirty_tracking.c does, with a page of our own. */
static int probe_track(void)
{
    struct region found[1];
    char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_api api = {.api = UFFD_API, .features = UNPOPULATED | ASYNCHRONOUS};
    int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY),
        of = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (page == MAP_FAILED || faults < 0 || map < 0 || of < 0 || syscall(SYS_pidfd_getfd, of, map, 0) < 0 ||
        ioctl(faults, UFFDIO_API, &api) < 0)
        return missing_ability();
    *page = 1;
    uint64_t at = (uint64_t)(uintptr_t)page;
    struct uffdio_register area = {.range = {at, PAGE}, .mode = UFFDIO_REGISTER_MODE_WP};
    struct scan all = {.size = sizeof all,
                       .flags = SCAN_PROTECT,
                       .start = at,
                       .end = at + PAGE,
                       .vector = (uint64_t)(uintptr_t)found,
                       .vector_size = 1,
                       .mask = IS_WRITTEN,
                       .wanted = IS_WRITTEN};
    return ioctl(faults, UFFDIO_REGISTER, &area) < 0 || ioctl(map, SCAN, &all) < 0 ? missing_ability() : 0;
}

static int probe_time(void)
{
    return unshare(CLONE_NEWTIME) < 0 || access("/proc/self/timens_offsets", W_OK) < 0 ? -1 : 0;
}

static bool own_user; /* whether the steps below start with a user namespace */

static int enter_user_first(void) { return own_user ? ns_enter_user() : 0; }
static int try_mount(void)
{
    return enter_user_first() || ns_enter_mount() || mount("tmpfs", "/", "tmpfs", MS_NOSUID, "size=64k") < 0 ? -1 : 0;
}
static int try_pid(void) { return enter_user_first() || ns_in_new_pid(NULL) ? -1 : 0; }
static int try_ipc(void) { return enter_user_first() || unshare(CLONE_NEWIPC) < 0 ? -1 : 0; }
static int try_network(void) { return enter_user_first() || unshare(CLONE_NEWNET) < 0 ? -1 : 0; }
static int try_private_network(void) { return enter_user_first() || network_try() ? -1 : 0; }
static int try_hide(void) { return try_network() || network_hide(geteuid(), getegid()) ? -1 : 0; }
static int try_proc(void) { return enter_user_first() || ns_enter_mount() || ns_in_new_pid(ns_mount_proc) ? -1 : 0; }
static int try_checkpoint(void) { return enter_user_first() || ns_in_new_pid(probe_hold) ? -1 : 0; }
static int try_time(void) { return enter_user_first() || probe_time() ? -1 : 0; }
static int try_remote(void) { return enter_user_first() || ns_enter_mount() || remote_try() ? -1 : 0; }
static int try_notify(void) { return enter_user_first() || notify_try() ? -1 : 0; }
static int try_setuid(void)
{
    gid_t none = 65534;
    return setgroups(1, &none) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534) ? -1 : 0;
}

static bool in_child(int (*step)(void))
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(step() == 0 ? 0 : errno ? errno : 255);
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return false;
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
    return errno == 0;
}

static void add_line(char *lines, size_t size, const char *what, const char *why)
{
    size_t used = strlen(lines);
    snprintf(lines + used, size - used, "%s: %s\n", what, why);
}

static void try_ability(uint32_t bit, int (*step)(void), const char *what, char *lines, size_t size)
{
    if (settings.without & bit)
        add_line(lines, size, what, "switched off");
    else if (in_child(step))
        settings.able |= bit;
    else
        add_line(lines, size, what, strerror(errno));
}

uint32_t abilities_open(char *lines, size_t size)
{
    struct failure f;
    settings.able = 0;
    if (geteuid() == 0)
        try_ability(ABLE_SETUID, try_setuid, "other user ids", lines, size);
    own_user = !in_child(try_mount);
    if (!own_user)
        settings.able |= settings.without & ABLE_USER ? 0 : ABLE_USER;
    else
        try_ability(ABLE_USER, ns_enter_user, "user namespace", lines, size);
    if (settings.able & ABLE_USER) {
        try_ability(ABLE_PID, try_pid, "pid namespace", lines, size);
        try_ability(ABLE_IPC, try_ipc, "ipc namespace", lines, size);
        try_ability(ABLE_MOUNT, try_mount, "mount namespace", lines, size);
        try_ability(ABLE_NETWORK, try_network, "network namespace", lines, size);
        if (settings.able & ABLE_NETWORK)
            try_ability(ABLE_PRIVATE_NETWORK, try_private_network, "private network", lines, size);
        if (settings.able & ABLE_NETWORK)
            try_ability(ABLE_HIDE_SOCKETS, try_hide, "hidden sockets", lines, size);
    }
    if (settings.able & ABLE_MOUNT && settings.able & ABLE_PID)
        try_ability(ABLE_PROC, try_proc, "own /proc", lines, size);
    if (settings.able & ABLE_PROC)
        try_ability(ABLE_CHECKPOINT, try_checkpoint, "checkpoint", lines, size);
    if (settings.able & ABLE_CHECKPOINT) {
        try_ability(ABLE_TIME, try_time, "time namespace", lines, size);
        try_ability(ABLE_TRACK, probe_track, "notes of writes", lines, size);
        try_ability(ABLE_WAITS, timeouts_try, "waits", lines, size);
    }
    if (settings.able & ABLE_PROC)
        try_ability(ABLE_FUSE, try_remote, "remote files", lines, size);
    if (settings.able & ABLE_PROC)
        try_ability(ABLE_NOTIFY, try_notify, "notification", lines, size);
    if (own_user && settings.able & ABLE_USER) {
        if (ns_enter_user() < 0)
            _exit(1);
        settings.able &= ~(uint32_t)ABLE_SETUID;
    }
    if (settings.able & ABLE_MOUNT && ns_enter_mount() < 0)
        _exit(1);
    filter_build();
    try_ability(ABLE_FILTER, filter_try, "system call filter", lines, size);
    if (settings.without & ABLE_GROUP)
        add_line(lines, size, "cgroup", "switched off");
    else if (!(settings.able |= cgroup_open() & ~settings.without, settings.able & ABLE_GROUP))
        add_line(lines, size, "cgroup", strerror(errno));
    /* Without its own /proc a job of `full` would have the host's, which shows more than the job may see. */
    if (settings.able & ABLE_PROC && !(settings.without & ABLE_ROOT)) {
        if (root_build(&f) == 0) {
            settings.able |= ABLE_ROOT;
        } else {
            char what[128];
            snprintf(what, sizeof what, "file tree of full isolation (%s %.60s)", f.call, f.text);
            add_line(lines, size, what, strerror(f.err));
        }
    }
    return settings.able;
}
