/* Table 4.1 of the paper, the calls with names: the effect of each call if the name leads to a mapped file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mapped_files/parts.h"
#include "unotify/path_syscalls.h"

static uint64_t argument(const struct notification *q, int which) { return q->notif->data.args[which]; }

static int directory_of(const struct notification *q, int which)
{
    return which < 0 ? AT_FDCWD : (int)argument(q, which);
}

/* The end as the program sees it: a file that it writes exists only after its first open. */
static struct end *seen(const struct found *found)
{
    if (found->way[READS] && (!found->way[WRITES] || !found->way[WRITES]->opened))
        return found->way[READS];
    return found->way[WRITES];
}

static bool there(const struct end *e) { return e->way == READS || e->opened; }

static void answer_stat(struct notification *q, struct end *e)
{
    struct stat st;
    struct statx stx;
    bool extended = q->notif->data.nr == SYS_statx;
    describe_end(q, e, extended, extended ? (void *)&stx : (void *)&st);
    int at = q->notif->data.nr == SYS_newfstatat ? 2 : extended ? 4 : 1;
    bool done =
        extended ? bytes_to(q, argument(q, at), &stx, sizeof stx) : bytes_to(q, argument(q, at), &st, sizeof st);
    if (!done)
        answer_error(q, EFAULT);
}

/* The default case: to rename or link a mapped file, its data would have to move, but the data only passes through. */
static void by_name(struct notification *q, enum path_operation what, const struct found *found)
{
    struct end *e = seen(found);
    uint64_t so_far = 0;
    if (!there(e) && what != RENAMES && what != LINKS) {
        answer_error(q, ENOENT);
        return;
    }
    switch (what) {
    case STATS:
        answer_stat(q, e);
        break;
    case LOOKS:
    case LISTS_EXTRA: /* none */
    case MODES:
    case OWNERS:
    case TIMES:
        break;
    case REMOVES: /* the name is the description's: it exists again at the next open */
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
            misuse(q, e, "truncate: data in a pipe cannot be removed; let the program write to an ordinary file");
        break;
    default:
        misuse(q, e, "%s: data in a pipe cannot get another name; let the program write to the final name itself",
               what == RENAMES ? "rename" : "link");
    }
}

static bool other_name(struct notification *q, const struct path_syscall *path_syscall, struct found *found)
{
    char path[4096];
    int after = path_syscall->path + (path_syscall->directory < 0 ? 1 : 2);
    return text_of(q, argument(q, after), path, sizeof path) &&
           find_named(q, directory_of(q, path_syscall->directory < 0 ? -1 : path_syscall->directory + 2), path, false,
                      found);
}

static void handle_name(struct notification *q, const struct path_syscall *path_syscall)
{
    char path[4096];
    struct found found;
    struct open_how how = {0};
    enum path_operation what = path_syscall->what;
    uint64_t flags = path_syscall->flags < 0 ? 0 : argument(q, path_syscall->flags);
    if (what == OPENS_2) {
        if (!bytes_of(q, flags, &how, sizeof how))
            return answer_pass(q);
        flags = how.flags;
    }
    if (what == CREATES)
        flags = O_WRONLY | O_CREAT | O_TRUNC;
    if (!text_of(q, argument(q, path_syscall->path), path, sizeof path))
        return answer_pass(q);
    if (strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/fd/", 8) == 0)
        know_process(q);
    bool ours = find_named(q, directory_of(q, path_syscall->directory), path, path_syscall_follows(path_syscall, flags),
                           &found);
    if (!ours && (what == RENAMES || what == LINKS))
        ours = other_name(q, path_syscall, &found);
    if (!ours)
        return answer_pass(q);
    know_process(q);
    if (!notification_valid(q))
        return;
    if (what == OPENS || what == OPENS_2 || what == CREATES)
        open_named(q, &found, flags);
    else
        by_name(q, what, &found);
}

void handle(struct notification *q)
{
    if (q->notif->data.arch != OWN_ARCH) {
        misuse(q, NULL,
               "its files are mapped to pipes, and it is a program for another instruction set (32 bits); use %s",
               "one for this machine");
        return;
    }
    long call = q->notif->data.nr;
    if ((call == SYS_newfstatat && argument(q, 3) & AT_EMPTY_PATH) ||
        (call == SYS_statx && argument(q, 2) & AT_EMPTY_PATH) || (call == SYS_utimensat && !argument(q, 1)) ||
        (call == SYS_fchownat && argument(q, 4) & AT_EMPTY_PATH)) {
        know_process(q);
        if (!handle_number(q, (int)argument(q, 0)))
            answer_pass(q);
        return;
    }
    const struct path_syscall *path_syscall = path_syscall_of(call);
    if (path_syscall)
        return handle_name(q, path_syscall);
    if (call == SYS_chroot || call == SYS_pivot_root || call == SYS_setns) {
        over->roots = true;
        return answer_pass(q);
    }
    know_process(q);
    if (!handle_number(q, (int)argument(q, call == SYS_mmap ? 4 : 0)))
        answer_pass(q);
}
