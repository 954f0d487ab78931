/* Table 4.1 of the paper, the half of it that takes names: what each call does where the name leads to a mapped file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mapping.h"

enum what { OPENS, OPENS_2, CREATES, STATS, STATS_X, LOOKS, CHANGES, REMOVES, RENAMES, LINKS, TRUNCATES, READS_LINK, GETS_EXTRA, LISTS_EXTRA, SETS_EXTRA };
enum follow { NEVER, ALWAYS, UNLESS, IF, BY_OPEN }; /* UNLESS, IF: a bit of the flags */

static const struct {
    long call;
    enum what what;
    int8_t directory, path, flags; /* which arguments; -1: none */
    enum follow follow;
} names[] = {
    {SYS_openat, OPENS, 0, 1, 2, BY_OPEN},
    {SYS_openat2, OPENS_2, 0, 1, 2, BY_OPEN},
    {SYS_newfstatat, STATS, 0, 1, 3, UNLESS},
    {SYS_statx, STATS_X, 0, 1, 2, UNLESS},
    {SYS_faccessat, LOOKS, 0, 1, -1, ALWAYS},
    {SYS_faccessat2, LOOKS, 0, 1, 3, UNLESS},
    {SYS_unlinkat, REMOVES, 0, 1, 2, NEVER},
    {SYS_renameat2, RENAMES, 0, 1, -1, NEVER},
    {SYS_linkat, LINKS, 0, 1, 4, IF},
    {SYS_truncate, TRUNCATES, -1, 0, -1, ALWAYS},
    {SYS_fchmodat, CHANGES, 0, 1, -1, ALWAYS},
    {SYS_fchownat, CHANGES, 0, 1, 4, UNLESS},
    {SYS_utimensat, CHANGES, 0, 1, 3, UNLESS},
    {SYS_readlinkat, READS_LINK, 0, 1, -1, NEVER},
    {SYS_getxattr, GETS_EXTRA, -1, 0, -1, ALWAYS},
    {SYS_lgetxattr, GETS_EXTRA, -1, 0, -1, NEVER},
    {SYS_listxattr, LISTS_EXTRA, -1, 0, -1, ALWAYS},
    {SYS_llistxattr, LISTS_EXTRA, -1, 0, -1, NEVER},
    {SYS_setxattr, SETS_EXTRA, -1, 0, -1, ALWAYS},
    {SYS_lsetxattr, SETS_EXTRA, -1, 0, -1, NEVER},
#ifdef SYS_renameat
    {SYS_renameat, RENAMES, 0, 1, -1, NEVER},
#endif
#ifdef SYS_open
    {SYS_open, OPENS, -1, 0, 1, BY_OPEN},
    {SYS_creat, CREATES, -1, 0, -1, ALWAYS},
    {SYS_access, LOOKS, -1, 0, -1, ALWAYS},
    {SYS_stat, STATS, -1, 0, -1, ALWAYS},
    {SYS_lstat, STATS, -1, 0, -1, NEVER},
    {SYS_unlink, REMOVES, -1, 0, -1, NEVER},
    {SYS_rename, RENAMES, -1, 0, -1, NEVER},
    {SYS_link, LINKS, -1, 0, -1, NEVER},
    {SYS_chmod, CHANGES, -1, 0, -1, ALWAYS},
    {SYS_chown, CHANGES, -1, 0, -1, ALWAYS},
    {SYS_lchown, CHANGES, -1, 0, -1, NEVER},
    {SYS_utime, CHANGES, -1, 0, -1, ALWAYS},
    {SYS_utimes, CHANGES, -1, 0, -1, ALWAYS},
    {SYS_futimesat, CHANGES, 0, 1, -1, ALWAYS},
    {SYS_readlink, READS_LINK, -1, 0, -1, NEVER},
#endif
};

static uint64_t argument(const struct question *q, int which) { return q->notif->data.args[which]; }

static int directory_of(const struct question *q, int which) { return which < 0 ? AT_FDCWD : (int)argument(q, which); }

/* As the program finds it: what it writes is not there before it has been opened once. */
static struct end *seen(const struct found *found)
{
    if (found->way[READS] && (!found->way[WRITES] || !found->way[WRITES]->opened))
        return found->way[READS];
    return found->way[WRITES];
}

static bool there(const struct end *e) { return e->way == READS || e->opened; }

static void tell(struct question *q, const struct end *e, bool extended)
{
    struct stat st;
    struct statx stx;
    describe(q, e, extended, extended ? (void *)&stx : (void *)&st);
    int at = q->notif->data.nr == SYS_newfstatat ? 2 : extended ? 4 : 1;
    bool done = extended ? bytes_to(q, argument(q, at), &stx, sizeof stx) : bytes_to(q, argument(q, at), &st, sizeof st);
    if (!done)
        answer_error(q, EFAULT);
}

/* Moving data under a mapped name, or away from one, would have to happen at once to what only passes. */
static void by_name(struct question *q, enum what what, const struct found *found)
{
    struct end *e = seen(found);
    uint64_t so_far = 0;
    if (!there(e) && what != RENAMES && what != LINKS) {
        answer_error(q, ENOENT);
        return;
    }
    switch (what) {
    case STATS:
    case STATS_X:
        tell(q, e, what == STATS_X);
        break;
    case LOOKS:
    case LISTS_EXTRA: /* none */
    case CHANGES:
        break;
    case REMOVES: /* the name is the description's: it is there again when it is opened again */
        break;
    case READS_LINK:
        answer_error(q, EINVAL);
        break;
    case GETS_EXTRA:
        answer_error(q, ENODATA);
        break;
    case SETS_EXTRA:
        answer_error(q, EOPNOTSUPP);
        break;
    case TRUNCATES:
        if (e->way == READS || argument(q, 1) || !position(e, &so_far) || so_far)
            misuse(q, e, "truncate: what is in a pipe cannot be shortened");
        break;
    default:
        misuse(q, e, "%s: data that goes through a pipe has no other name; let the program write to the name itself",
               what == RENAMES ? "rename" : "link");
    }
}

static bool other_name(struct question *q, size_t i, struct found *found)
{
    char path[4096];
    bool at = names[i].directory >= 0;
    return text_of(q, argument(q, at ? 3 : 1), path, sizeof path) &&
           find_named(q, at ? (int)argument(q, 2) : AT_FDCWD, path, false, found);
}

static bool follows(size_t i, uint64_t flags)
{
    switch (names[i].follow) {
    case BY_OPEN:
        return !(flags & O_NOFOLLOW) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);
    case UNLESS:
        return !(flags & AT_SYMLINK_NOFOLLOW);
    case IF:
        return (flags & AT_SYMLINK_FOLLOW) != 0;
    default:
        return names[i].follow == ALWAYS;
    }
}

static void handle_name(struct question *q, size_t i)
{
    char path[4096];
    struct found found;
    struct open_how how = {0};
    enum what what = names[i].what;
    uint64_t flags = names[i].flags < 0 ? 0 : argument(q, names[i].flags);
    if (what == OPENS_2) {
        if (!bytes_of(q, flags, &how, sizeof how))
            return answer_pass(q);
        flags = how.flags;
    }
    if (what == CREATES)
        flags = O_WRONLY | O_CREAT | O_TRUNC;
    if (!text_of(q, argument(q, names[i].path), path, sizeof path))
        return answer_pass(q);
    if (strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/fd/", 8) == 0)
        know_process(q);
    bool ours = find_named(q, directory_of(q, names[i].directory), path, follows(i, flags), &found);
    if (!ours && (what == RENAMES || what == LINKS))
        ours = other_name(q, i, &found);
    if (!ours)
        return answer_pass(q);
    know_process(q);
    if (!still_asked(q))
        return;
    if (what == OPENS || what == OPENS_2 || what == CREATES)
        open_named(q, &found, flags);
    else
        by_name(q, what, &found);
}

void handle(struct question *q)
{
    if (q->notif->data.arch != OWN_ARCH) {
        misuse(q, NULL, "its files are mapped to pipes, and it is a program for another instruction set (32 bits): run it as %s", "one for this machine");
        return;
    }
    long call = q->notif->data.nr;
    if ((call == SYS_newfstatat && argument(q, 3) & AT_EMPTY_PATH) || (call == SYS_statx && argument(q, 2) & AT_EMPTY_PATH) ||
        (call == SYS_utimensat && !argument(q, 1)) || (call == SYS_fchownat && argument(q, 4) & AT_EMPTY_PATH)) {
        know_process(q);
        if (!handle_number(q, (int)argument(q, 0)))
            answer_pass(q);
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].call == call)
            return handle_name(q, i);
    if (call == SYS_chroot || call == SYS_pivot_root || call == SYS_setns) {
        over->roots = true;
        return answer_pass(q);
    }
    know_process(q);
    if (!handle_number(q, (int)argument(q, call == SYS_mmap ? 4 : 0)))
        answer_pass(q);
}
