/* Opens files again by name or by file descriptor: helpers for all kinds of files at a restore. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/sandbox.h"
#include "state/state.h"

int open_again(int fd, int flags)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, flags | O_CLOEXEC | O_NOCTTY);
}

/* Replaces the scratch directory's old path by its path on this machine. */
void moved_path(const struct image *image, const struct job *job, const char *path, char *to, size_t size)
{
    const char *scratch = image_string(image, image->machine.scratch), *here = scratch_path(job);
    size_t n = strlen(scratch);
    if (n > 1 && *here && path_is_under(path, scratch))
        snprintf(to, size, "%s%s", here, path + n);
    else
        copy_text(to, size, path);
}

int file_changed(struct failure *f, const char *path, const char *how)
{
    char text[TEXT];
    snprintf(text, sizeof text, "%.400s\n%s", path, how);
    errno = ESTALE;
    return set_failure(f, "reopen", text);
}

/* Moves a file descriptor above all numbers that the job uses. */
int lift(int fd, int base)
{
    if (fd < 0 || fd >= base)
        return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, base);
    int err = errno;
    close(fd);
    errno = err;
    return high;
}
