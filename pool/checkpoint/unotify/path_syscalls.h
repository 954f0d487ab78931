/* System calls that take the name of a file. */
#ifndef POOL_NAMING_H
#define POOL_NAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum naming_what {
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
enum naming_follow { NEVER, ALWAYS, UNLESS, IF, BY_OPEN };

struct naming {
    long call;
    enum naming_what what;
    /* argument indices; -1: none. Those of a second name follow directly after the first's */
    int8_t directory, path, flags;
    enum naming_follow follow;
};

extern const struct naming namings[];
extern const size_t namings_count;

const struct naming *naming_of(long call); /* NULL: the call takes no file name */
/* whether it follows a symbolic link at the end of the name */
bool naming_follows(const struct naming *naming, uint64_t flags);

#endif
