/* What checkpoints need of the kernel, and what they can do without: found out by doing it, since a version says nothing of what
 * a distribution or a container has left out. Each in a process of its own (sandbox/namespaces.c): 0, or -1 and errno. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/state.h"
#include "trace/pagemap_scan.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static int absent(void)
{
    errno = errno ? errno : ENOSYS;
    return -1;
}

/* A process under a number of our choice, held as a tracer does; open files that are compared; descriptors closed by the range. */
int probe_hold(void)
{
    pid_t wanted = 77;
    int ends[2];
    struct clone_args a = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&wanted, .set_tid_size = 1};
    if (pipe2(ends, O_CLOEXEC) < 0 || syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, ends[0], ends[0]) != 0 ||
        syscall(SYS_close_range, ~0u - 1, ~0u, 0) < 0)
        return absent();
    pid_t pid = (pid_t)syscall(SYS_clone3, &a, sizeof a);
    if (pid == 0)
        for (;;)
            pause();
    return pid < 0 || ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0 ? -1 : 0;
}

/* As dump/dirty_tracking.c does it, with a page of our own. */
int probe_track(void)
{
    struct region found[1];
    char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_api api = {.api = UFFD_API, .features = UNPOPULATED | ASYNCHRONOUS};
    int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY), of = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (page == MAP_FAILED || faults < 0 || map < 0 || of < 0 || syscall(SYS_pidfd_getfd, of, map, 0) < 0 || ioctl(faults, UFFDIO_API, &api) < 0)
        return absent();
    *page = 1;
    uint64_t at = (uint64_t)(uintptr_t)page;
    struct uffdio_register area = {.range = {at, PAGE}, .mode = UFFDIO_REGISTER_MODE_WP};
    struct scan all = {.size = sizeof all, .flags = SCAN_PROTECT, .start = at, .end = at + PAGE, .vector = (uint64_t)(uintptr_t)found,
                       .vector_size = 1, .mask = IS_WRITTEN, .wanted = IS_WRITTEN};
    return ioctl(faults, UFFDIO_REGISTER, &area) < 0 || ioctl(map, SCAN, &all) < 0 ? absent() : 0;
}

int probe_time(void)
{
    return unshare(CLONE_NEWTIME) < 0 || access("/proc/self/timens_offsets", W_OK) < 0 ? -1 : 0;
}
