/* Locks on files that the job holds, taken again where it goes on: of an open file (flock, OFD) by who opens it, of a process
 * (POSIX) by the process itself. Leases are refused. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>

#include "restoring.h"

enum { OF_FLOCK, OF_OPEN_FILE, OF_PROCESS };

static bool same_inode(struct dump *d, uint32_t a, uint32_t b)
{
    const struct file *files = d->image.files.rows;
    return files[a].device == files[b].device && files[a].inode == files[b].inode;
}

/* A process's lock shows at each of its descriptors of that file; one serves that may be used so. */
static bool may_take(struct dump *d, const struct file_lock *l)
{
    uint32_t mode = ((struct file *)d->image.files.rows)[l->file].flags & O_ACCMODE;
    if (mode != O_RDWR && mode != (l->exclusive ? O_WRONLY : O_RDONLY))
        return false;
    for EACH(&d->image, locks, file_lock, other)
        if (other->kind == OF_PROCESS && other->owner == l->owner && other->start == l->start && same_inode(d, other->file, l->file))
            return false;
    return true;
}

/* `text` is what fdinfo says of a descriptor; `fresh`: its open file was not met before. */
void locks_save(struct dump *d, struct subject *s, uint32_t file, int number, const char *text, bool fresh)
{
    for (const char *at = text; (at = strstr(at, "\nlock:")); at++) {
        char kind[16], access[16], end[24];
        int pid;
        unsigned long start;
        if (sscanf(at, "\nlock: %*d: %15s %*s %15s %d %*s %lu %23s", kind, access, &pid, &start, end) != 5)
            continue;
        struct file_lock l = {.owner = s->row, .file = file, .number = number, .exclusive = strcmp(access, "WRITE") == 0, .start = start,
                              .length = strcmp(end, "EOF") == 0 ? 0 : strtoul(end, NULL, 10) - start + 1};
        if (strcmp(kind, "POSIX") == 0 && pid == s->pid) {
            l.kind = OF_PROCESS;
            if (may_take(d, &l))
                *(struct file_lock *)table_add(&d->image.locks) = l;
        } else if (fresh && (strcmp(kind, "FLOCK") == 0 || strcmp(kind, "OFDLCK") == 0)) {
            l.kind = kind[0] == 'F' ? OF_FLOCK : OF_OPEN_FILE;
            *(struct file_lock *)table_add(&d->image.locks) = l;
        } else if (strcmp(kind, "POSIX") != 0 && strcmp(kind, "FLOCK") != 0 && strcmp(kind, "OFDLCK") != 0) {
            refuse(d, "descriptor %d of process %d holds a lease on its file", number, s->pid);
        }
    }
}

static struct flock range_of(const struct file_lock *l)
{
    return (struct flock){.l_type = l->exclusive ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET, .l_start = (off_t)l->start, .l_len = (off_t)l->length};
}

static int not_taken(struct restoring *r, const struct file_lock *l, struct failure *f)
{
    return fail(f, "lock", image_string(r->image, ((struct file *)r->image->files.rows)[l->file].path));
}

int locks_of_files(struct restoring *r, struct failure *f)
{
    for EACH(r->image, locks, file_lock, l) {
        struct flock range = range_of(l);
        int fd = r->opened[l->file];
        if ((l->kind == OF_FLOCK && flock(fd, (l->exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) < 0) ||
            (l->kind == OF_OPEN_FILE && fcntl(fd, F_OFD_SETLK, &range) < 0))
            return not_taken(r, l, f);
    }
    return 0;
}

/* When it has closed all that is not the job's: with any descriptor of a file a process gives up its locks on it. */
int locks_of_process(struct restoring *r, uint32_t row, struct held *h, uint64_t room, struct failure *f)
{
    for EACH(r->image, locks, file_lock, l) {
        struct flock range = range_of(l);
        if (l->kind != OF_PROCESS || l->owner != row)
            continue;
        long done = held_write(h->tid, room, &range, sizeof range) < 0 ? -EFAULT : CALL(h, SYS_fcntl, l->number, F_SETLK, room);
        if (done < 0) {
            errno = (int)-done;
            return not_taken(r, l, f);
        }
    }
    return 0;
}
