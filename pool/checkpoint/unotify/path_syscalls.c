/* The table of system calls that take a file name: the operation of each, and the arguments that hold directory, path
 * and flags. Both supervisors (mapped files, remote files without FUSE) use it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "unotify/path_syscalls.h"

const struct path_syscall path_syscalls[] = {
    {SYS_openat, OPENS, 0, 1, 2, BY_OPEN},
    {SYS_openat2, OPENS_2, 0, 1, 2, BY_OPEN},
    {SYS_newfstatat, STATS, 0, 1, 3, UNLESS},
    {SYS_statx, STATS, 0, 1, 2, UNLESS},
    {SYS_faccessat, LOOKS, 0, 1, -1, ALWAYS},
    {SYS_faccessat2, LOOKS, 0, 1, 3, UNLESS},
    {SYS_readlinkat, READS_LINK, 0, 1, -1, NEVER},
    {SYS_unlinkat, REMOVES, 0, 1, 2, NEVER},
    {SYS_mkdirat, MAKES_DIRECTORY, 0, 1, -1, NEVER},
    {SYS_mknodat, MAKES_NODE, 0, 1, -1, NEVER},
    {SYS_symlinkat, MAKES_LINK, 1, 2, -1, NEVER},
    {SYS_renameat2, RENAMES, 0, 1, 4, NEVER},
    {SYS_linkat, LINKS, 0, 1, 4, IF},
    {SYS_fchmodat, MODES, 0, 1, -1, ALWAYS},
#ifdef SYS_fchmodat2
    {SYS_fchmodat2, MODES, 0, 1, 3, UNLESS},
#endif
    {SYS_fchownat, OWNERS, 0, 1, 4, UNLESS},
    {SYS_utimensat, TIMES, 0, 1, 3, UNLESS},
    {SYS_truncate, TRUNCATES, -1, 0, -1, ALWAYS},
    {SYS_statfs, FILE_SYSTEM, -1, 0, -1, ALWAYS},
    {SYS_chdir, ENTERS, -1, 0, -1, ALWAYS},
    {SYS_execve, RUNS, -1, 0, -1, ALWAYS},
    {SYS_execveat, RUNS, 0, 1, 4, UNLESS},
    {SYS_name_to_handle_at, HANDLES, 0, 1, -1, NEVER},
    {SYS_getxattr, GETS_EXTRA, -1, 0, -1, ALWAYS},
    {SYS_lgetxattr, GETS_EXTRA, -1, 0, -1, NEVER},
    {SYS_listxattr, LISTS_EXTRA, -1, 0, -1, ALWAYS},
    {SYS_llistxattr, LISTS_EXTRA, -1, 0, -1, NEVER},
    {SYS_setxattr, SETS_EXTRA, -1, 0, -1, ALWAYS},
    {SYS_lsetxattr, SETS_EXTRA, -1, 0, -1, NEVER},
    {SYS_removexattr, REMOVES_EXTRA, -1, 0, -1, ALWAYS},
    {SYS_lremovexattr, REMOVES_EXTRA, -1, 0, -1, NEVER},
#ifdef SYS_renameat
    {SYS_renameat, RENAMES, 0, 1, -1, NEVER},
#endif
#ifdef SYS_open /* only on processors from before 2012 */
    {SYS_open, OPENS, -1, 0, 1, BY_OPEN},
    {SYS_creat, CREATES, -1, 0, -1, ALWAYS},
    {SYS_stat, STATS, -1, 0, -1, ALWAYS},
    {SYS_lstat, STATS, -1, 0, -1, NEVER},
    {SYS_access, LOOKS, -1, 0, -1, ALWAYS},
    {SYS_readlink, READS_LINK, -1, 0, -1, NEVER},
    {SYS_unlink, REMOVES, -1, 0, -1, NEVER},
    {SYS_rmdir, REMOVES_DIRECTORY, -1, 0, -1, NEVER},
    {SYS_mkdir, MAKES_DIRECTORY, -1, 0, -1, NEVER},
    {SYS_mknod, MAKES_NODE, -1, 0, -1, NEVER},
    {SYS_symlink, MAKES_LINK, -1, 1, -1, NEVER},
    {SYS_rename, RENAMES, -1, 0, -1, NEVER},
    {SYS_link, LINKS, -1, 0, -1, NEVER},
    {SYS_chmod, MODES, -1, 0, -1, ALWAYS},
    {SYS_chown, OWNERS, -1, 0, -1, ALWAYS},
    {SYS_lchown, OWNERS, -1, 0, -1, NEVER},
    {SYS_utime, TIMES, -1, 0, -1, ALWAYS},
    {SYS_utimes, TIMES, -1, 0, -1, ALWAYS},
    {SYS_futimesat, TIMES, 0, 1, -1, ALWAYS},
#endif
};

const size_t path_syscalls_count = sizeof path_syscalls / sizeof *path_syscalls;

const struct path_syscall *path_syscall_of(long call)
{
    for (size_t i = 0; i < path_syscalls_count; i++)
        if (path_syscalls[i].call == call)
            return &path_syscalls[i];
    return NULL;
}

bool path_syscall_follows(const struct path_syscall *path_syscall, uint64_t flags)
{
    switch (path_syscall->follow) {
    case BY_OPEN:
        return !(flags & O_NOFOLLOW) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);
    case UNLESS:
        return !(flags & AT_SYMLINK_NOFOLLOW);
    case IF:
        return (flags & AT_SYMLINK_FOLLOW) != 0;
    default:
        return path_syscall->follow == ALWAYS;
    }
}
