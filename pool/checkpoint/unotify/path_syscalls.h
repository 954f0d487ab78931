/* Calls that take the name of a file. */
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

/* UNLESS: AT_SYMLINK_NOFOLLOW, IF: AT_SYMLINK_FOLLOW is among the flags. */
enum naming_follow { NEVER, ALWAYS, UNLESS, IF, BY_OPEN };

struct naming {
    long call;
    enum naming_what what;
    int8_t directory, path, flags; /* which arguments; -1: none. Those of a second name come right behind the first's */
    enum naming_follow follow;
};

extern const struct naming namings[];
extern const size_t namings_count;

const struct naming *naming_of(long call); /* NULL: it takes none */
bool naming_follows(const struct naming *naming, uint64_t flags); /* a link at the end of the name */

#endif
