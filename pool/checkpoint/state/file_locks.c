/* File locks that the job holds. The dump records them. A restore takes them again: those of an open file description
 * (OFD) in the process that opens it, all others in a process that held them, since the kernel records that process as
 * the owner. Read leases that nobody has begun to break are restored too; a write lease breaks as soon as its file is
 * copied. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>

#include "state/state.h"

enum { OF_FLOCK, OF_OPEN_FILE, OF_PROCESS, OF_LEASE };

static bool same_inode(struct dump *d, uint32_t a, uint32_t b)
{
    const struct file *files = d->image.files.rows;
    return files[a].device == files[b].device && files[a].inode == files[b].inode;
}

/* A process's lock is shown at each of its descriptors of the file. One descriptor whose access mode allows the lock is
 * enough. */
static bool may_take(struct dump *d, const struct file_lock *l)
{
    uint32_t mode = ((struct file *)d->image.files.rows)[l->file].flags & O_ACCMODE;
    if (mode != O_RDWR && mode != (l->exclusive ? O_WRONLY : O_RDONLY))
        return false;
    EACH(&d->image, locks, file_lock, other)
        if (other->kind == OF_PROCESS && other->owner == l->owner && other->start == l->start &&
            same_inode(d, other->file, l->file))
            return false;
    return true;
}

/* If several processes share the open file, the process that took the lock becomes its owner. */
static void prefer_holder(struct dump *d, const struct file_lock *l)
{
    EACH(&d->image, locks, file_lock, known)
        if (known->file == l->file && (known->kind == OF_FLOCK || known->kind == OF_LEASE)) {
            known->owner = l->owner;
            known->number = l->number;
        }
}

static void add_lock(struct dump *d, const struct file_lock *l, uint32_t kind)
{
    struct file_lock *row = table_add(&d->image.locks);
    *row = *l;
    row->kind = kind;
}

/* `text`: the descriptor's fdinfo; `fresh`: its open file was not met before. */
void locks_save(struct dump *d, struct dumped_process *s, uint32_t file, int number, const char *text, bool fresh)
{
    for (const char *at = text; (at = strstr(at, "\nlock:")); at++) {
        char kind[16], state[16], access[16], end[24];
        int pid;
        unsigned long start;
        if (sscanf(at, "\nlock: %*d: %15s %15s %15s %d %*s %lu %23s", kind, state, access, &pid, &start, end) != 6)
            continue;
        struct file_lock l = {.owner = s->row,
                              .file = file,
                              .number = number,
                              .exclusive = strcmp(access, "WRITE") == 0,
                              .start = start,
                              .length = strcmp(end, "EOF") == 0 ? 0 : strtoul(end, NULL, 10) - start + 1};
        bool of_file = strcmp(kind, "FLOCK") == 0,
             lease = strcmp(kind, "LEASE") == 0 && strcmp(state, "ACTIVE") == 0 && !l.exclusive;
        if (strcmp(kind, "POSIX") == 0) {
            l.kind = OF_PROCESS;
            if (pid == s->pid && may_take(d, &l))
                add_lock(d, &l, OF_PROCESS);
        } else if (!of_file && !lease && strcmp(kind, "OFDLCK") != 0) {
            add_unsupported(d,
                            "descriptor %d of process %d holds a lease on its file that a copy would break, or that is "
                            "being broken (give it up first)",
                            number, s->pid);
        } else if (fresh) {
            add_lock(d, &l, of_file ? OF_FLOCK : lease ? OF_LEASE : OF_OPEN_FILE);
        } else if ((of_file || lease) && pid == s->pid) {
            prefer_holder(d, &l);
        }
    }
}

static struct flock range_of(const struct file_lock *l)
{
    return (struct flock){.l_type = l->exclusive ? F_WRLCK : F_RDLCK,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)l->start,
                          .l_len = (off_t)l->length};
}

static int not_taken(struct restoring *r, const struct file_lock *l, struct failure *f)
{
    return set_failure(f, "lock", image_string(r->image, ((struct file *)r->image->files.rows)[l->file].path));
}

int locks_of_files(struct restoring *r, struct failure *f)
{
    EACH(r->image, locks, file_lock, l) {
        struct flock range = range_of(l);
        int fd = r->opened[l->file];
        if (l->kind == OF_OPEN_FILE && fcntl(fd, F_OFD_SETLK, &range) < 0)
            return not_taken(r, l, f);
    }
    return 0;
}

/* Called when the process has closed all files that are not the job's: a process that closes any descriptor of a file
 * loses its locks on it. */
int locks_of_process(struct restoring *r, uint32_t row, struct tracee *h, uint64_t room, struct failure *f)
{
    EACH(r->image, locks, file_lock, l) {
        struct flock range = range_of(l);
        if (l->kind == OF_OPEN_FILE || l->owner != row)
            continue;
        long done = tracee_write(h->tid, room, &range, sizeof range) < 0 ? -EFAULT : 0;
        if (!done && l->kind == OF_FLOCK)
            done = CALL(h, SYS_flock, l->number, (l->exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB);
        else if (!done && l->kind == OF_LEASE)
            done = CALL(h, SYS_fcntl, l->number, F_SETLEASE, l->exclusive ? F_WRLCK : F_RDLCK);
        else if (!done)
            done = CALL(h, SYS_fcntl, l->number, F_SETLK, room);
        if (done < 0) {
            errno = (int)-done;
            return not_taken(r, l, f);
        }
    }
    return 0;
}
