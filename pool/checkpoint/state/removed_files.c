/* Directories and symbolic links that were removed while a process has them open, or as its current directory: each is
 * made again at its place, or at a free one, opened, and removed again, with the job's rights. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/state.h"

#define SUFFIX " (deleted)"

/* Whether a link below /proc leads to a file without any name; `name` loses the kernel's " (deleted)". */
bool removed_is(const char *link, char *name)
{
    struct stat st;
    size_t n = strlen(name), end = sizeof SUFFIX - 1;
    if (n <= end || strcmp(name + n - end, SUFFIX) != 0 || stat(link, &st) < 0 ||
        (st.st_nlink && !path_is_under(name, "/proc")))
        return false;
    name[n - end] = 0;
    return true;
}

bool removed_save(struct dump *d, struct file *f, pid_t pid, int number, const char *name)
{
    const struct sample sample = {pid, number};
    char path[4200], target[4200];
    copy_text(path, sizeof path, name);
    path[strlen(path) - (sizeof SUFFIX - 1)] = 0;
    if (S_ISLNK(f->mode)) {
        int fd = descriptor_borrow(&sample);
        ssize_t n = fd < 0 ? -1 : readlinkat(fd, "", target, sizeof target - 1);
        if (fd >= 0)
            close(fd);
        if (n < 0)
            return false;
        target[n] = 0;
        f->contents = image_text(&d->image, target);
    } else if (!S_ISDIR(f->mode)) {
        return false;
    }
    f->kind = FILE_REMOVED;
    f->path = image_text(&d->image, path);
    return true;
}

/* Adds a row for a process's current directory; if a file descriptor of it exists, files_peers makes that the first
 * row. */
uint32_t removed_directory(struct dump *d, const char *link, const char *path)
{
    struct stat st;
    if (stat(link, &st) < 0)
        return NOBODY;
    struct span text = image_text(&d->image, path);
    struct file *f = table_add(&d->image.files);
    *(struct sample *)table_add(&d->samples) = (struct sample){.pid = 0, .fd = -1};
    *f = (struct file){.kind = FILE_REMOVED,
                       .peer = NOBODY,
                       .path = text,
                       .flags = O_PATH | O_DIRECTORY,
                       .mode = st.st_mode,
                       .device = st.st_dev,
                       .inode = st.st_ino};
    return d->image.files.count - 1;
}

/* Finds the parent directories that do not exist. The first `kept` bytes of the path are an existing directory. */
static bool make_way(char *path, size_t *kept)
{
    struct stat st;
    for (*kept = strlen(path); *kept && lstat(path, &st) < 0;) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return false;
        *slash = 0;
        *kept = (size_t)(slash - path);
    }
    return true;
}

static int make_and_open(const struct file *row, const char *path, const char *target)
{
    if (S_ISLNK(row->mode) ? symlink(target, path) : mkdir(path, 0700))
        return -1;
    int fd = open(path, (int)(row->flags & ~(uint32_t)(O_CREAT | O_EXCL | O_TRUNC)) | O_CLOEXEC | O_NOFOLLOW),
        err = errno;
    if (!S_ISLNK(row->mode) && chmod(path, row->mode & 07777) < 0)
        err = errno;
    if ((S_ISLNK(row->mode) ? unlink(path) : rmdir(path)) < 0 && fd >= 0) {
        close(fd);
        fd = -1;
    }
    errno = err;
    return fd;
}

/* Makes it with the missing parent directories. Existing directories keep their times. */
static int make_at(const struct file *row, const char *wanted, const char *target)
{
    char path[4200];
    size_t kept;
    struct stat before;
    copy_text(path, sizeof path, wanted);
    char *last = strrchr(path, '/');
    if (!last)
        return -1;
    *last = 0;
    if (!make_way(path, &kept) || stat(kept ? path : "/", &before) < 0)
        return -1;
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    size_t made = kept;
    for (const char *slash = wanted + kept; (slash = strchr(slash + 1, '/')); made = (size_t)(slash - wanted)) {
        copy_text(path, (size_t)(slash - wanted) + 1, wanted);
        if (mkdir(path, 0700) < 0)
            break;
    }
    int fd = make_and_open(row, wanted, target), err = errno;
    while (made > kept) {
        copy_text(path, made + 1, wanted);
        rmdir(path);
        made = (size_t)(strrchr(path, '/') - path);
    }
    path[kept] = 0;
    utimensat(AT_FDCWD, kept ? path : "/", times, 0); /* fails if the directory belongs to another user */
    errno = err;
    return fd;
}

int removed_restore(struct restoring *r, uint32_t at, const struct file *row, struct failure *f)
{
    char path[4200];
    const char *target = image_string(r->image, row->contents);
    if (row->peer != NOBODY) {
        int again =
            open_again(r->opened[row->peer], (int)(row->flags & ~(uint32_t)(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW)));
        return again < 0 ? set_failure(f, "reopen", image_string(r->image, row->path)) : again;
    }
    if (row->contents.size && !memchr(target, 0, row->contents.size)) {
        errno = EBADMSG;
        return set_failure(f, "read", "a link that was removed");
    }
    moved_path(r->image, r->job, image_string(r->image, row->path), path, sizeof path);
    int fd = make_at(row, path, target);
    const char *const others[] = {scratch_path(r->job), "/tmp"};
    for (size_t i = 0; fd < 0 && i < sizeof others / sizeof *others; i++) {
        snprintf(path, sizeof path, "%s/.removed-%u", others[i], at);
        fd = *others[i] ? make_at(row, path, target) : -1;
    }
    return fd < 0 ? set_failure(f, "reopen", image_string(r->image, row->path)) : fd;
}
