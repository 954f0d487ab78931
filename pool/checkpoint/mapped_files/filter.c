/* The filter of a process with a mapped file: it asks the supervisor about calls with names always, and about calls
 * with file descriptors only for the numbers of mapped files. A program for another instruction set is reported at its
 * first call. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

#include "mapped_files/parts.h"
#include "unotify/path_syscalls.h"

static const struct {
    long call;
    int argument;
} by_number[] = {
    {SYS_close, 0},   {SYS_lseek, 0},           {SYS_fstat, 0},     {SYS_mmap, 4},       {SYS_fcntl, 0},
    {SYS_dup, 0},     {SYS_pread64, 0},         {SYS_pwrite64, 0},  {SYS_preadv, 0},     {SYS_pwritev, 0},
    {SYS_preadv2, 0}, {SYS_pwritev2, 0},        {SYS_fsync, 0},     {SYS_fdatasync, 0},  {SYS_ftruncate, 0},
    {SYS_flock, 0},   {SYS_fallocate, 0},       {SYS_fadvise64, 0}, {SYS_readahead, 0},  {SYS_fchmod, 0},
    {SYS_fchown, 0},  {SYS_sync_file_range, 0}, {SYS_fgetxattr, 0}, {SYS_flistxattr, 0}, {SYS_fsetxattr, 0},
};

/* Whether the operation can apply to a mapped file. */
static bool of_mapped(enum path_operation what)
{
    switch (what) {
    case REMOVES_DIRECTORY:
    case MAKES_DIRECTORY:
    case MAKES_NODE:
    case MAKES_LINK:
    case FILE_SYSTEM:
    case ENTERS:
    case RUNS:
    case HANDLES:
    case REMOVES_EXTRA:
        return false;
    default:
        return true;
    }
}

/* After one of these calls an absolute name may mean another file than for the supervisor. */
static const long changes_root[] = {SYS_chroot, SYS_pivot_root, SYS_setns};

static void build_filter(int first)
{
    traps_begin(SECCOMP_RET_USER_NOTIF);
    for (size_t i = 0; i < sizeof by_number / sizeof *by_number; i++)
        trap_number(by_number[i].call, by_number[i].argument, first);
    for (size_t i = 0; i < path_syscalls_count; i++)
        if (path_syscalls[i].what == STATS && path_syscalls[i].flags >= 0)
            trap_either(path_syscalls[i].call, path_syscalls[i].flags, first);
        else if (of_mapped(path_syscalls[i].what))
            trap_always(path_syscalls[i].call);
    for (size_t i = 0; i < sizeof changes_root / sizeof *changes_root; i++)
        trap_always(changes_root[i]);
}

const void *mapping_code(int first, size_t *instructions)
{
    build_filter(first);
    return traps_code(instructions);
}

int mapping_filter(int first, struct failure *f)
{
    build_filter(first);
    int fd = traps_install();
    return fd < 0 ? set_failure(f, "seccomp", "mapping of file names needs user notification (Linux 5.19)") : fd;
}
