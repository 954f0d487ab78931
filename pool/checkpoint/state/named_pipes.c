/* Named pipes that a job has open: opened again by name, with their contents. Opening one end waits for the other end,
 * or fails. So the first row is opened for both directions, which neither waits nor fails. The other rows are opened
 * from it. It is closed when all are there, so that a writer without a reader sees that again. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/state.h"

bool is_fifo(const struct file *f) { return f->kind == FILE_PLAIN && S_ISFIFO(f->mode) && !(f->flags & O_PATH); }

static int fill_pipe(const struct restoring *r, const struct file *row, int fd, const char *path, struct failure *f)
{
    if (row->size)
        fcntl(fd, F_SETPIPE_SZ, (int)row->size);
    if (row->contents.size &&
        write(fd, image_bytes(r->image, row->contents), row->contents.size) != (ssize_t)row->contents.size)
        return set_failure(f, "write", path);
    return 0;
}

int fifo_restore(struct restoring *r, uint32_t at, const struct file *row, struct failure *f)
{
    const int access = (int)(row->flags & O_ACCMODE);
    char path[4200];
    struct stat st;
    if (row->peer != NOBODY) {
        int fd = open_again(r->opened[row->peer], access | O_NONBLOCK);
        return fd < 0 ? set_failure(f, "reopen", image_string(r->image, row->path)) : fd;
    }
    moved_path(r->image, r->job, image_string(r->image, row->path), path, sizeof path);
    int both = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (both < 0 && errno == EACCES && !row->contents.size) /* the job may use only one direction */
        both = open(path, access | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (both < 0)
        return set_failure(f, "reopen", path);
    r->spare[at] = both;
    if (fstat(both, &st) < 0 || !S_ISFIFO(st.st_mode))
        return file_changed(f, path, "it is another kind of file than at the checkpoint; make a named pipe");
    if (fill_pipe(r, row, both, path, f))
        return -1;
    int fd = open_again(both, access | O_NONBLOCK);
    return fd < 0 ? set_failure(f, "reopen", path) : fd;
}
