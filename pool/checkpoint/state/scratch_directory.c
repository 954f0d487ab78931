/* Saves the job's scratch directory as it is at the moment of the image. The node puts a file `taken` beside the image:
 * the files that it has already read, each with inode, size and times. While the job is frozen, all entries are listed
 * in `scratch`. A file that differs from `taken`, or is mapped so that it can change without a new time, is copied
 * (kept.ROW), by reflink where the file system supports it. So the freeze costs time only for recently changed files,
 * not for inputs. Without `taken` nothing is done: the job's files are on the submit side. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/state.h"

struct taken { /* the Python side of it and of `listed` is pool/starter/freezing.py */
    uint64_t inode, size;
    int64_t modified, changed; /* ns */
};

struct listed { /* followed by `name` bytes and `target` bytes */
    uint64_t inode, size;
    int64_t modified, changed;
    uint32_t mode, kept, name, target;
};

struct freeze {
    struct dump *d;
    int directory;
    FILE *list;
    struct taken *taken;
    uint64_t *mapped;
    size_t taken_count, mapped_count, rows;
    char path[4096]; /* of the current entry, relative to the scratch directory */
};

static int64_t ns(struct timespec t) { return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; }

/* Both structs begin with the inode. */
static int by_inode(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* 0: there is nothing to do, 1: the list was read. */
static int read_taken(struct freeze *z)
{
    struct stat st;
    int fd = openat(z->directory, "taken", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : set_failure(&z->d->failure, "open", "taken");
    int done = fstat(fd, &st) < 0 ? -1 : 0;
    size_t size = done ? 0 : (size_t)st.st_size / sizeof *z->taken * sizeof *z->taken;
    z->taken = malloc(size + 1);
    if (done || !z->taken || pread(fd, z->taken, size, 0) != (ssize_t)size)
        done = set_failure(&z->d->failure, "read", "taken");
    close(fd);
    z->taken_count = size / sizeof *z->taken;
    if (!done)
        qsort(z->taken, z->taken_count, sizeof *z->taken, by_inode);
    return done ? -1 : 1;
}

/* Files mapped for writing: only the first write through a mapping changes the file's time. */
static int find_mapped(struct freeze *z)
{
    const struct image *image = &z->d->image;
    z->mapped = malloc((image->areas.count + 1) * sizeof *z->mapped);
    if (!z->mapped)
        return set_failure(&z->d->failure, "malloc", "tables");
    EACH(image, areas, area, a)
        if (a->flags & MAP_SHARED && a->file < image->files.count)
            z->mapped[z->mapped_count++] = ((const struct file *)image->files.rows)[a->file].inode;
    qsort(z->mapped, z->mapped_count, sizeof *z->mapped, by_inode);
    return 0;
}

static bool as_taken(const struct freeze *z, const struct stat *st)
{
    uint64_t inode = st->st_ino;
    const struct taken *t = bsearch(&inode, z->taken, z->taken_count, sizeof *t, by_inode);
    return t && t->size == (uint64_t)st->st_size && t->modified == ns(st->st_mtim) && t->changed == ns(st->st_ctim) &&
           !bsearch(&inode, z->mapped, z->mapped_count, sizeof inode, by_inode);
}

static int copy_data(int from, int to, off_t size)
{
    static char buffer[1 << 20];
    off_t at = 0;
    if (ioctl(to, FICLONE, from) == 0)
        return 0;
    if (ftruncate(to, size) < 0)
        return -1;
    while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
        off_t end = lseek(from, at, SEEK_HOLE);
        while (at < end) {
            size_t wanted = (size_t)(end - at) < sizeof buffer ? (size_t)(end - at) : sizeof buffer;
            ssize_t n = pread(from, buffer, wanted, at);
            if (n < 0)
                return -1;
            if (n == 0)
                return 0;
            if (pwrite(to, buffer, (size_t)n, at) != n)
                return -1;
            at += n;
        }
    }
    return errno == ENXIO ? 0 : -1;
}

static int copy_file(struct freeze *z, int parent, const char *name, const struct stat *st)
{
    char to[32];
    snprintf(to, sizeof to, "kept.%zu", z->rows);
    struct stat opened;
    int in = openat(parent, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (in >= 0 && (fstat(in, &opened) < 0 || opened.st_dev != st->st_dev || opened.st_ino != st->st_ino)) {
        close(in); /* another process of the job's user has replaced the file */
        in = -1;
        errno = ESTALE;
    }
    int out = in < 0 ? -1 : openat(z->directory, to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int done = out < 0 || copy_data(in, out, st->st_size) < 0 ? set_failure(&z->d->failure, "copy", z->path) : 0;
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return done;
}

static int list_entry(struct freeze *z, int parent, const char *name, const struct stat *st)
{
    char target[4096];
    ssize_t n = S_ISLNK(st->st_mode) ? readlinkat(parent, name, target, sizeof target) : 0;
    struct listed row = {.inode = st->st_ino,
                         .size = (uint64_t)st->st_size,
                         .modified = ns(st->st_mtim),
                         .changed = ns(st->st_ctim),
                         .mode = st->st_mode,
                         .kept = S_ISREG(st->st_mode) && !as_taken(z, st),
                         .name = (uint32_t)strlen(z->path),
                         .target = (uint32_t)(n > 0 ? n : 0)};
    if (n < 0)
        return set_failure(&z->d->failure, "readlink", z->path);
    if (row.kept && copy_file(z, parent, name, st))
        return -1;
    z->rows++;
    fwrite(&row, sizeof row, 1, z->list);
    fwrite(z->path, row.name, 1, z->list);
    fwrite(target, row.target, 1, z->list);
    return 0;
}

static int walk_directory(struct freeze *z, int directory, size_t length)
{
    DIR *dir = fdopendir(directory);
    int done = 0;
    if (!dir) {
        close(directory);
        return set_failure(&z->d->failure, "open", *z->path ? z->path : "the scratch directory");
    }
    for (struct dirent *e; !done && (e = readdir(dir));) {
        struct stat st;
        size_t more = strlen(e->d_name);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (length + more + 2 > sizeof z->path) {
            add_unsupported(z->d, "a path in the scratch directory is longer than %zu bytes (shorten it)",
                            sizeof z->path);
            break;
        }
        snprintf(z->path + length, sizeof z->path - length, "%s%s", length ? "/" : "", e->d_name);
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            done = set_failure(&z->d->failure, "stat", z->path);
        else if (!S_ISSOCK(st.st_mode)) /* no process listens at it after the restore */
            done = list_entry(z, dirfd(dir), e->d_name, &st);
        if (!done && S_ISDIR(st.st_mode)) {
            int inner = openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            done = inner < 0 ? set_failure(&z->d->failure, "open", z->path)
                             : walk_directory(z, inner, length + more + (length > 0));
        }
        z->path[length] = 0;
    }
    closedir(dir);
    return done;
}

static int freeze_to(struct freeze *z)
{
    int list = openat(z->directory, "scratch", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (list < 0 || !(z->list = fdopen(list, "w")))
        return set_failure(&z->d->failure, "create", "scratch");
    int top = open(scratch_path(z->d->job), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int done = top < 0 ? set_failure(&z->d->failure, "open", "the scratch directory") : walk_directory(z, top, 0);
    bool wrong = ferror(z->list);
    wrong |= fclose(z->list) != 0;
    return done || !wrong ? done : set_failure(&z->d->failure, "write", "scratch");
}

int scratch_save(struct dump *d, int directory)
{
    struct freeze *z = calloc(1, sizeof *z);
    if (!z)
        return set_failure(&d->failure, "malloc", "tables");
    z->d = d;
    z->directory = directory;
    int done = read_taken(z);
    if (done > 0)
        done = find_mapped(z) || freeze_to(z) ? -1 : 0;
    free(z->taken);
    free(z->mapped);
    free(z);
    return done;
}
