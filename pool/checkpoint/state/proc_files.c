/* Files below /proc of the job's own processes: they exist only when the process does, so each process opens them
 * itself, with its own rights, once it has its memory and threads.
 *
 * Processes that shared such an open file have one each from then on: only the position was common. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/state.h"

bool proc_file_is(const struct image *image, const struct file *row)
{
    const char *path = image_string(image, row->path);
    int pid, end = 0;
    if (row->kind != FILE_PLAIN || sscanf(path, "/proc/%d%n", &pid, &end) != 1 || (path[end] && path[end] != '/'))
        return false;
    EACH(image, processes, process, p)
        if (p->pid == pid)
            return true;
    return false;
}

/* A file descriptor of the same open file that the process already has, or -1. */
static int had(const struct image *image, const struct descriptor *wanted)
{
    EACH(image, descriptors, descriptor, d)
        if (d < wanted && d->owner == wanted->owner && d->file == wanted->file)
            return d->number;
    return -1;
}

static long open_self(struct tracee *h, const struct file *row, const char *path, uint64_t room)
{
    if (tracee_write(h->tid, room, path, strlen(path) + 1) < 0)
        return -errno;
    return CALL(h, SYS_openat, AT_FDCWD, room, (row->flags & ~(uint32_t)(O_CREAT | O_EXCL | O_TRUNC)) | O_CLOEXEC, 0);
}

int proc_files_open(struct restoring *r, uint32_t owner, struct tracee *h, uint64_t room, struct failure *f)
{
    EACH(r->image, descriptors, descriptor, d) {
        const struct file *row = (struct file *)r->image->files.rows + d->file;
        if (d->owner != owner || !proc_file_is(r->image, row))
            continue;
        const char *path = image_string(r->image, row->path);
        int from = had(r->image, d);
        long fd = from >= 0 ? from : open_self(h, row, path, room), done = fd;
        if (fd >= 0 && fd != d->number)
            done = CALL(h, SYS_dup3, fd, d->number, d->close_on_exec ? O_CLOEXEC : 0);
        else if (fd >= 0)
            done = CALL(h, SYS_fcntl, fd, F_SETFD, d->close_on_exec ? FD_CLOEXEC : 0);
        if (from < 0 && fd >= 0 && fd != d->number)
            CALL(h, SYS_close, fd);
        if (done < 0) {
            errno = (int)-done;
            return set_failure(f, "reopen", path);
        }
    }
    return 0;
}

/* Restores positions in files such as /proc/PID/maps, whose length depends on the mappings. So it is done last, when
 * nothing of ours is mapped, by a system call instruction in the process's own code. */
void proc_files_seek(struct restoring *r, uint32_t owner, struct tracee *h)
{
    uint64_t call_at = 0;
    EACH(r->image, descriptors, descriptor, d) {
        const struct file *row = (struct file *)r->image->files.rows + d->file;
        if (d->owner != owner || !row->position || row->flags & O_PATH || !proc_file_is(r->image, row))
            continue;
        if (!call_at && !(call_at = h->call_at = find_syscall_instruction(h->tid)))
            return;
        CALL(h, SYS_lseek, d->number, row->position, SEEK_SET);
    }
}
