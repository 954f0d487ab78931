/* Saves and restores a job's own /tmp, a file system that ends with its keeper. Sockets are left out (no process
 * listens at them after a restore), and so are files that the job itself may not read. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/state.h"

#define TOP "/tmp"

static int save_contents(struct dump *d, uint32_t row, const char *path)
{
    static char buffer[1 << 20];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), done = 0;
    for (off_t at = 0; fd >= 0 && !done && (at = lseek(fd, at, SEEK_DATA)) >= 0;) {
        off_t end = lseek(fd, at, SEEK_HOLE);
        at &= ~(off_t)(PAGE - 1);
        while (at < end && !done) {
            ssize_t n = pread(fd, buffer, sizeof buffer, at);
            if (n <= 0)
                break;
            size_t whole = ((size_t)n + PAGE - 1) & ~(PAGE - 1);
            memset(buffer + n, 0, whole - (size_t)n);
            done = writer_put(&d->out, 0, row, (uint64_t)at, buffer, whole, &d->failure);
            at += (off_t)whole;
        }
    }
    if (fd >= 0)
        close(fd);
    return done;
}

/* Directories shown there and the scratch directory are other file systems; directories that lead to them belong to
 * root. Both are skipped. */
static int save_entry(struct dump *d, const char *path, dev_t device)
{
    struct stat st;
    char target[4096];
    if (lstat(path, &st) < 0 || st.st_dev != device || st.st_uid != d->job->start->uid || S_ISSOCK(st.st_mode))
        return 0;
    struct file f = {.kind = FILE_TREE,
                     .peer = NOBODY,
                     .mode = st.st_mode,
                     .size = (uint64_t)st.st_size,
                     .device = st.st_dev,
                     .inode = st.st_ino,
                     .times = {(uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec}};
    f.path = image_text(&d->image, path);
    ssize_t n = S_ISLNK(st.st_mode) ? readlink(path, target, sizeof target - 1) : -1;
    if (n >= 0) {
        target[n] = 0;
        f.contents = image_text(&d->image, target);
    }
    uint32_t row = d->image.files.count;
    *(struct file *)table_add(&d->image.files) = f;
    *(struct sample *)table_add(&d->samples) = (struct sample){.fd = -1};
    return S_ISREG(st.st_mode) ? save_contents(d, row, path) : 0;
}

static int save_directory(struct dump *d, const char *directory, dev_t device)
{
    DIR *dir = opendir(directory);
    int done = 0;
    for (struct dirent *e; dir && !done && (e = readdir(dir));) {
        char path[4096];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", directory, e->d_name) < (int)sizeof path)
            done = save_entry(d, path, device);
        else
            add_unsupported(d, "a path below %.200s is longer than 4096 bytes (shorten it)", directory);
    }
    if (dir)
        closedir(dir);
    return done;
}

/* Directories are read breadth-first from the table: this uses one file descriptor and no stack, whatever the depth. */
int tmp_save(struct dump *d)
{
    char directory[4096];
    struct stat st;
    if (!has_own_tmp(d->job) || stat(TOP, &st) < 0)
        return 0;
    uint32_t at = d->image.files.count;
    int done = save_directory(d, TOP, st.st_dev);
    for (; !done && at < d->image.files.count; at++) {
        const struct file *f = (struct file *)d->image.files.rows + at;
        if (!S_ISDIR(f->mode))
            continue;
        copy_text(directory, sizeof directory, image_string(&d->image, f->path));
        done = save_directory(d, directory, st.st_dev);
    }
    return done;
}

static int put_contents(struct restoring *r, uint32_t at, const struct file *row, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int done = fd < 0 || ftruncate(fd, (off_t)row->size) < 0 ? -1 : 0;
    EACH(r->image, extents, extent, e) {
        if (done || e->file != at || e->at >= row->size)
            continue;
        size_t size = e->size < row->size - e->at ? e->size : row->size - e->at;
        const char *contents = extent_read(&r->in, e);
        if (!contents || pwrite(fd, contents, size, (off_t)e->at) != (ssize_t)size)
            done = -1;
    }
    int err = errno;
    if (fd >= 0)
        close(fd);
    errno = err;
    return done;
}

/* A file of the image's /tmp that cannot be restored because /tmp is the machine's; NULL if there is none. A directory
 * that exists here is accepted: it led to a directory that the previous machine showed there. */
const char *tmp_without_place(const struct restoring *r)
{
    EACH(r->image, files, file, f) {
        struct stat st;
        const char *path = image_string(r->image, f->path);
        if (f->kind == FILE_TREE && !has_own_tmp(r->job) &&
            !(S_ISDIR(f->mode) && lstat(path, &st) == 0 && S_ISDIR(st.st_mode)))
            return path;
    }
    return NULL;
}

/* Runs with the job's rights. Parents come before their entries; modes and times come last, since a directory may deny
 * its owner access. */
int tmp_restore(struct restoring *r, struct failure *f)
{
    struct file *files = r->image->files.rows;
    if (!has_own_tmp(r->job))
        return 0;
    for (uint32_t i = 0; i < r->image->files.count; i++) {
        const char *path = image_string(r->image, files[i].path);
        int done = 0;
        if (files[i].kind != FILE_TREE)
            continue;
        if (!path_is_under(path, TOP) || strstr(path, "/../")) {
            errno = EBADMSG;
            return set_failure(f, "restore", "a file of /tmp that is not there");
        }
        if (S_ISDIR(files[i].mode))
            done = mkdir(path, 0700) < 0 && errno != EEXIST ? -1 : 0;
        else if (S_ISLNK(files[i].mode))
            done = symlink(image_string(r->image, files[i].contents), path);
        else if (S_ISFIFO(files[i].mode))
            done = mkfifo(path, 0600);
        else if (S_ISREG(files[i].mode))
            done = put_contents(r, i, &files[i], path);
        if (done)
            return set_failure(f, "restore", path);
    }
    for (uint32_t i = r->image->files.count; i-- > 0;) {
        const char *path = image_string(r->image, files[i].path);
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {(time_t)files[i].times[0], (long)files[i].times[1]}};
        if (files[i].kind != FILE_TREE || S_ISLNK(files[i].mode))
            continue;
        if (chmod(path, files[i].mode & 07777) < 0 || utimensat(AT_FDCWD, path, times, 0) < 0)
            return set_failure(f, "restore", path);
    }
    return 0;
}
