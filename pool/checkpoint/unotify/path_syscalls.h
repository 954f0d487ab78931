/* System calls that take the name of a file. */
#ifndef POOL_PATH_SYSCALLS_H
#define POOL_PATH_SYSCALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum path_operation {
    OPENS,
    OPENS_2,
    CREATES,
    STATS,
    LOOKS,
    READS_LINK,
    REMOVES,
    REMOVES_DIRECTORY,
    MAKES_DIRECTORY,
    MAKES_NODE,
    MAKES_LINK,
    RENAMES,
    LINKS,
    MODES,
    OWNERS,
    TIMES,
    TRUNCATES,
    FILE_SYSTEM,
    ENTERS,
    RUNS,
    HANDLES,
    GETS_EXTRA,
    LISTS_EXTRA,
    SETS_EXTRA,
    REMOVES_EXTRA
};

/* Whether the call follows a symbolic link. UNLESS: unless AT_SYMLINK_NOFOLLOW is set; IF: if AT_SYMLINK_FOLLOW is
 * set. */
enum path_follow { NEVER, ALWAYS, UNLESS, IF, BY_OPEN };

struct path_syscall {
    long call;
    enum path_operation what;
    /* argument indices; -1: none. Those of a second name follow directly after the first's */
    int8_t directory, path, flags;
    enum path_follow follow;
};

extern const struct path_syscall path_syscalls[];
extern const size_t path_syscalls_count;

const struct path_syscall *path_syscall_of(long call); /* NULL: the call takes no file name */
/* whether it follows a symbolic link at the end of the name */
bool path_syscall_follows(const struct path_syscall *path_syscall, uint64_t flags);

#endif
