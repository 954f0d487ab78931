/* Shadows: empty directories, symbolic links and programs at the place of the remote trees, for operations that only
 * the kernel can do with a name: change the working directory, open a directory, execute a program. They are made when
 * needed, and removed when the job removes or renames their originals. The job sees them read-only. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "remote_notify/parts.h"

static const char *within(uint32_t tree, const char *path)
{
    path += strlen(notifier->job->remote[tree]);
    return path + strspn(path, "/");
}

static void remove_at(int directory, const char *name)
{
    if (unlinkat(directory, name, 0) == 0 || errno == ENOENT || unlinkat(directory, name, AT_REMOVEDIR) == 0)
        return;
    int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *all = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; all && (e = readdir(all));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            remove_at(fd, e->d_name);
    if (all)
        closedir(all);
    unlinkat(directory, name, AT_REMOVEDIR);
}

/* Returns -1 with errno. Its parents exist: walk() makes all on its way. */
int shadow_directory(uint32_t tree, const char *path)
{
    const char *name = within(tree, path);
    struct stat st;
    if (!*name || mkdirat(notifier->tops[tree], name, 0755) == 0)
        return 0;
    if (errno != EEXIST)
        return -1;
    if (fstatat(notifier->tops[tree], name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        return 0;
    unlinkat(notifier->tops[tree], name, 0);
    return mkdirat(notifier->tops[tree], name, 0755);
}

/* Makes it with all its parents. */
int shadow_path(uint32_t tree, const char *path)
{
    char part[NAME_MOST];
    copy_text(part, sizeof part, path);
    for (char *slash = part + strlen(notifier->job->remote[tree]); (slash = strchr(slash + 1, '/')); *slash = '/') {
        *slash = 0;
        if (shadow_directory(tree, part))
            return -1;
    }
    return shadow_directory(tree, part);
}

int shadow_link(uint32_t tree, const char *path, const char *target)
{
    const char *name = within(tree, path);
    char old[NAME_MOST];
    ssize_t n = readlinkat(notifier->tops[tree], name, old, sizeof old - 1);
    if (n >= 0) {
        old[n] = 0;
        if (strcmp(old, target) == 0)
            return 0;
    }
    remove_at(notifier->tops[tree], name);
    return symlinkat(target, notifier->tops[tree], name);
}

/* Makes a complete copy of the stand-in. A program that runs under the name keeps its own copy. */
int shadow_program(uint32_t tree, const char *path, struct stand_in *s)
{
    char aside[NAME_MOST];
    struct stat st;
    off_t at = 0;
    const char *name = within(tree, path);
    if (fstat(s->fd, &st) < 0 || snprintf(aside, sizeof aside, "%.4000s.program", name) < 0)
        return -1;
    int fd = openat(notifier->tops[tree], aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    if (fd < 0)
        return -1;
    ssize_t n = 1;
    while (at < st.st_size && n > 0)
        n = sendfile(fd, s->fd, &at, (size_t)(st.st_size - at));
    int done = n <= 0 ? -1 : fchmod(fd, 0755);
    close(fd);
    if (!done && renameat(notifier->tops[tree], aside, notifier->tops[tree], name) < 0 && errno == EISDIR) {
        remove_at(notifier->tops[tree], name);
        done = renameat(notifier->tops[tree], aside, notifier->tops[tree], name);
    }
    if (done)
        unlinkat(notifier->tops[tree], aside, 0);
    return done;
}

void shadow_remove(uint32_t tree, const char *path)
{
    if (*within(tree, path))
        remove_at(notifier->tops[tree], within(tree, path));
}

/* Only a directory is renamed, since a process may be in it; other shadows are removed. */
void shadow_rename(uint32_t tree, const char *from, const char *to, uint32_t flags)
{
    const char *old = within(tree, from), *new = within(tree, to);
    struct stat st;
    bool directory = fstatat(notifier->tops[tree], old, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
    if (flags & RENAME_EXCHANGE) {
        if (syscall(SYS_renameat2, notifier->tops[tree], old, notifier->tops[tree], new, flags) < 0) {
            remove_at(notifier->tops[tree], old);
            remove_at(notifier->tops[tree], new);
        }
        return;
    }
    remove_at(notifier->tops[tree], new);
    if (!directory) {
        remove_at(notifier->tops[tree], old);
        return;
    }
    if (shadow_path(tree, to) == 0) /* an empty directory is replaced */
        renameat(notifier->tops[tree], old, notifier->tops[tree], new);
}
