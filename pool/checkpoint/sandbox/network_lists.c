/* The kernel's lists of a network namespace, below /proc/PID/net. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/network.h"

/* The kernel lists the sockets, routes and counts of each network to everybody who sees a process in it. The entries
 * are the network's own, under every name that leads to them, and the owner of the namespace may change their rights.
 * That is root, but for an ordinary user's node: its user namespace has no root. */
int network_hide(uid_t uid, gid_t gid)
{
    const struct dirent *entry;
    struct stat st;
    int done = 0;
    DIR *lists = opendir("/proc/self/net");
    if (!lists)
        return -1;
    while (done == 0 && (entry = readdir(lists))) {
        if (entry->d_name[0] == '.')
            continue;
        int at = dirfd(lists);
        if (fstatat(at, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            (st.st_uid != uid && fchownat(at, entry->d_name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0) ||
            fchmodat(at, entry->d_name, st.st_mode & 0500, 0) < 0)
            done = errno == ENOENT ? 0 : -1; /* of a module that is being removed */
    }
    int err = errno;
    closedir(lists);
    errno = err;
    return done;
}
