/* Opens the files, each once, in the process from which all of the job's processes are forked: they inherit the files,
 * so shared ones are shared again. Paths are opened with the job's rights, not the keeper's: an image cannot name a
 * file that its job could not open. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mapped_files/mapped_files.h"
#include "restore/parts.h"

#define LARGE_FILE 0100000 /* O_LARGEFILE, which C libraries define as 0 */

/* Truncates the file to its length at the checkpoint: the job will write the rest again. */
static int restore_plain(struct restoring *r, const struct file *row, struct failure *f)
{
    const uint32_t once = O_CREAT | O_EXCL | O_TRUNC;
    char path[4200];
    struct stat st;
    moved_path(r->image, r->job, image_string(r->image, row->path), path, sizeof path);
    bool writes = (row->flags & O_ACCMODE) != O_RDONLY && S_ISREG(row->mode) && !(row->flags & O_PATH);
    int fd = open(path, (int)(row->flags & ~once) | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return set_failure(f, "reopen", path);
    if (fstat(fd, &st) < 0 || ((st.st_mode & S_IFMT) != (row->mode & S_IFMT) && !S_ISCHR(row->mode))) {
        close(fd);
        return file_changed(f, path, "it is another kind of file than at the checkpoint; restore the old one");
    }
    if (writes && (uint64_t)st.st_size < row->size) {
        close(fd);
        return file_changed(f, path, "it is shorter than at the checkpoint; restore its contents");
    }
    if (writes && (uint64_t)st.st_size > row->size && ftruncate(fd, (off_t)row->size) < 0) {
        close(fd);
        return set_failure(f, "truncate", path);
    }
    if (row->position && !(row->flags & O_PATH) && lseek(fd, row->position, SEEK_SET) < 0 && errno != ESPIPE) {
        close(fd);
        return set_failure(f, "seek", path);
    }
    return fd;
}

static bool written_through(const struct image *image, uint32_t row)
{
    EACH(image, areas, area, a)
        if (a->file == row && a->flags & MAP_SHARED)
            return true;
    return false;
}

/* The node already has the other end. It neither reads nor writes before the job runs. */
static int remote_pipe_end(struct restoring *r, const struct file *row, struct failure *f)
{
    int end = members_own_end(r->job, row->times[0] - 1), done = 0;
    int way = end < 0 ? -1 : open_again(end, O_WRONLY | O_NONBLOCK);
    if (way < 0)
        return set_failure(f, "reopen", "a pipe to another machine");
    if (row->size)
        fcntl(way, F_SETPIPE_SZ, (int)row->size);
    if (row->contents.size &&
        write(way, image_bytes(r->image, row->contents), row->contents.size) != (ssize_t)row->contents.size)
        done = set_failure(f, "write", "a pipe to another machine");
    close(way);
    if (done)
        return -1;
    int fd = open_again(end, (int)(row->flags & (O_ACCMODE | O_NONBLOCK)));
    return fd < 0 ? set_failure(f, "reopen", "a pipe to another machine") : fd;
}

/* The end as pipe() returned it, or opened by /proc: the flags show which. */
static int other_end(struct restoring *r, const struct file *row)
{
    int spare = r->spare[row->peer];
    if (!(row->flags & LARGE_FILE) && spare >= 0 &&
        (uint32_t)(fcntl(spare, F_GETFL) & O_ACCMODE) == (row->flags & O_ACCMODE)) {
        r->spare[row->peer] = -1; /* only the first row that it fits gets it */
        return spare;
    }
    return open_again(r->opened[row->peer], (int)(row->flags & (O_ACCMODE | O_NONBLOCK)));
}

static int pipe_end(struct restoring *r, uint32_t at, const struct file *row, struct failure *f)
{
    if (row->peer != NOBODY) {
        int fd = other_end(r, row);
        return fd < 0 ? set_failure(f, "reopen", "a pipe") : fd;
    }
    if (row->times[0])
        return remote_pipe_end(r, row, f);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return set_failure(f, "pipe", "");
    if (row->size)
        fcntl(ends[1], F_SETPIPE_SZ, (int)row->size);
    if (row->contents.size &&
        write(ends[1], image_bytes(r->image, row->contents), row->contents.size) != (ssize_t)row->contents.size)
        return set_failure(f, "write", "a pipe");
    if ((row->flags & O_ACCMODE) == O_RDWR) { /* a named pipe whose name was removed */
        int fd = open_again(ends[0], O_RDWR);
        close(ends[0]);
        close(ends[1]);
        return fd < 0 ? set_failure(f, "reopen", "a pipe") : fd;
    }
    bool writes = (row->flags & O_ACCMODE) == O_WRONLY;
    /* The other end stays open until its rows have it; after that only the job has it. */
    r->spare[at] = ends[!writes];
    return ends[writes];
}

static int restore_memory(struct restoring *r, uint32_t at, const struct file *row, struct failure *f)
{
    if (row->peer != NOBODY) {
        /* A file that is only mapped has no flags; it is opened for any mapping. */
        int fd = open_again(r->opened[row->peer],
                            row->mode ? (int)(row->flags & (O_ACCMODE | O_NONBLOCK | O_APPEND)) : O_RDWR);
        return fd < 0 || lseek(fd, row->position, SEEK_SET) < 0 ? set_failure(f, "reopen", "a memory file") : fd;
    }
    char name[200];
    copy_text(name, sizeof name, image_string(r->image, row->path));
    char *suffix = strstr(name, " (deleted)");
    bool had_name = suffix && name[0] == '/';
    if (suffix)
        *suffix = 0;
    for (char *c = name; *c; c++)
        *c = *c == '/' ? '-' : *c;
    int fd = row->number ? log_spool(r->job) : memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)row->size) < 0)
        return set_failure(f, "memfd_create", name);
    EACH(r->image, extents, extent, e) {
        if (e->file != at)
            continue;
        size_t size = e->at >= row->size ? 0 : e->size < row->size - e->at ? e->size : row->size - e->at;
        const char *contents = size ? extent_read(&r->in, e) : NULL;
        if (size && (!contents || pwrite(fd, contents, size, (off_t)e->at) != (ssize_t)size))
            return set_failure(f, "write", name);
    }
    /* Reopened with its original mode; a mapping alone has no mode. On the descriptor of memfd_create itself, inotify
     * reports nothing. */
    if (row->mode && ((row->flags & O_ACCMODE) != O_RDWR || had_name)) {
        int other = open_again(fd, (int)(row->flags & O_ACCMODE));
        if (other >= 0) {
            close(fd);
            fd = other;
        }
    }
    lseek(fd, row->position, SEEK_SET);
    return fd;
}

static int restore_mapped(struct restoring *r, uint32_t at, const struct file *row, struct failure *f)
{
    char path[4200];
    struct stat st;
    moved_path(r->image, r->job, image_string(r->image, row->path), path, sizeof path);
    bool shared = written_through(r->image, at);
    int fd = shared ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return row->number ? restore_memory(r, at, row, f) : set_failure(f, "reopen", path);
    if (fstat(fd, &st) == 0 && ((uint64_t)st.st_size == row->size || (shared && (uint64_t)st.st_size > row->size)) &&
        (shared || file_sum(fd) == row->sum))
        return fd;
    close(fd);
    if (row->number)
        return restore_memory(r, at, row, f);
    return file_changed(f, path, "the job maps it, and it is another file than at the checkpoint; restore the old one");
}

static int restore_event(const struct file *row)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | (row->size ? EFD_SEMAPHORE : 0));
    if (fd >= 0 && row->number && write(fd, &row->number, sizeof row->number) < 0)
        return -1;
    if (fd >= 0)
        fcntl(fd, F_SETFL, row->flags & O_NONBLOCK);
    return fd;
}

static int restore_row(struct restoring *r, uint32_t at, struct failure *f)
{
    const struct file *row = (struct file *)r->image->files.rows + at;
    switch ((enum kind)row->kind) {
    case FILE_PLAIN:
        return is_fifo(row) ? fifo_restore(r, at, row, f) : restore_plain(r, row, f);
    case FILE_MAPPED:
        return restore_mapped(r, at, row, f);
    case FILE_PIPE:
        return pipe_end(r, at, row, f);
    case FILE_MEMORY:
        return restore_memory(r, at, row, f);
    case FILE_PAIR:
        return socket_pair(r, at, row, f);
    case FILE_NAMED:
        return socket_named(r, row, f);
    case FILE_INET:
        return inet_socket(r, row, f);
    case FILE_TERMINAL:
        return pty_restore(r, at, row, f);
    case FILE_EVENT:
        return restore_event(row);
    case FILE_REMOVED:
        return removed_restore(r, at, row, f);
    case FILE_PIDFD:
        return pidfd_restore(r, row, f);
    case FILE_TIMER:
        return timerfd_restore(row);
    case FILE_EPOLL:
        return epoll_create1(EPOLL_CLOEXEC);
    case FILE_INOTIFY:
        return inotify_init1(IN_CLOEXEC);
    case FILE_SIGNAL:
        return (int)syscall(SYS_signalfd4, -1, &row->number, 8, SFD_CLOEXEC);
    default:
        errno = EBADMSG;
        return -1;
    }
}

/* First the rows that others are opened from. */
static int reopen_rows(struct restoring *r, bool peers, struct failure *f)
{
    const uint32_t settable = O_APPEND | O_NONBLOCK | O_DIRECT | O_NOATIME | O_ASYNC;
    for (uint32_t i = 0; i < r->image->files.count; i++) {
        const struct file *row = (struct file *)r->image->files.rows + i;
        if (row->kind == FILE_TREE || row->kind == FILE_SYSV || proc_file_is(r->image, row) || pidfd_lives(row) ||
            (row->peer != NOBODY) != peers)
            continue;
        f->call[0] = 0;
        int fd = lift(restore_row(r, i, f), r->base);
        if (r->spare[i] >= 0)
            r->spare[i] = lift(r->spare[i], r->base);
        if (fd < 0)
            return *f->call ? -1 : set_failure(f, "reopen", image_string(r->image, row->path));
        r->opened[i] = fd;
        if (row->kind != FILE_MAPPED && !(row->flags & O_PATH))
            fcntl(fd, F_SETFL, row->flags & settable);
    }
    return 0;
}

/* Restores mode and times of memory files and removed files. Last, since a mode may prevent opening them. */
static int set_attributes(struct restoring *r, struct failure *f)
{
    for (uint32_t i = 0; i < r->image->files.count; i++) {
        const struct file *row = (struct file *)r->image->files.rows + i;
        const struct timespec times[2] = {{(time_t)(row->times[0] / 1000000000), (long)(row->times[0] % 1000000000)},
                                          {(time_t)(row->times[1] / 1000000000), (long)(row->times[1] % 1000000000)}};
        if (row->kind != FILE_MEMORY || row->peer != NOBODY || !row->mode || row->number)
            continue;
        if (fchmod(r->opened[i], row->mode & 07777) < 0 || futimens(r->opened[i], times) < 0)
            return set_failure(f, "chmod", image_string(r->image, row->path));
    }
    return 0;
}

static bool carries(const struct image *image)
{
    EACH(image, files, file, f)
        if (f->kind == FILE_MAPPED && f->number)
            return true;
    return false;
}

int files_reopen(struct restoring *r, struct failure *f)
{
    if (reopen_rows(r, false, f) || reopen_rows(r, true, f) || set_attributes(r, f) || locks_of_files(r, f) ||
        sockets_connect(r, f))
        return -1;
    sockets_shut(r);
    pty_shut(r);
    members_close_ends(r->job);
    for (uint32_t i = 0; i < r->image->files.count; i++)
        if (r->spare[i] >= 0)
            close(r->spare[i]);
    for (uint32_t i = 0; i < r->image->processes.count; i++) {
        const struct process *p = (struct process *)r->image->processes.rows + i;
        char path[4200];
        moved_path(r->image, r->job, image_string(r->image, p->exe), path, sizeof path);
        r->programs[i] = -1;
        if (p->flags & PROCESS_ZOMBIE || !*path)
            continue;
        int fd = lift(open(path, O_RDONLY | O_CLOEXEC), r->base);
        /* if its pages are in the image, the process keeps the keeper's name in /proc/PID/exe */
        if (fd < 0 && !carries(r->image))
            return set_failure(f, "reopen", path);
        r->programs[i] = fd;
    }
    return 0;
}
