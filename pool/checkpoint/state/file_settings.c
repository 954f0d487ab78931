/* Settings of open files beyond their flags: the process that is signalled when a file can be read, the signal
 * (F_SETOWN, F_SETSIG), and the seals of memory files. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/state.h"

/* Called while the job is frozen. Files on disk send no signals, so they are skipped. */
void file_settings_save(struct dump *d)
{
    for (uint32_t i = 0; i < d->image.files.count; i++) {
        struct file *f = (struct file *)d->image.files.rows + i;
        const struct sample *sample = (struct sample *)d->samples.rows + i;
        if (sample->fd < 0 || f->flags & O_PATH || (f->kind == FILE_PLAIN && !S_ISFIFO(f->mode) && !S_ISCHR(f->mode)))
            continue;
        int fd = descriptor_borrow(sample);
        struct f_owner_ex owner = {0};
        if (fd < 0)
            continue;
        int seals = f->kind == FILE_MEMORY ? fcntl(fd, F_GET_SEALS) : -1;
        f->seals = seals < 0 ? 0 : (uint32_t)seals;
        if (f->kind != FILE_MEMORY && fcntl(fd, F_GETOWN_EX, &owner) == 0 && owner.pid) {
            f->owner_kind = owner.type;
            f->owner = owner.pid;
        }
        f->signal = f->kind == FILE_MEMORY ? 0 : fcntl(fd, F_GETSIG);
        close(fd);
    }
}

/* Set by a process that has the file, with the job's rights, since the kernel records them. All processes exist by now,
 * and this one's threads. */
void file_settings_restore_owners(const struct restoring *r, uint32_t row, struct tracee *h, uint64_t room)
{
    EACH(r->image, descriptors, descriptor, e) {
        const struct file *f = (struct file *)r->image->files.rows + e->file;
        struct f_owner_ex owner = {(__typeof__(owner.type))f->owner_kind, f->owner};
        if (e->owner != row || f->flags & O_PATH)
            continue;
        if (f->signal > 0)
            CALL(h, SYS_fcntl, e->number, F_SETSIG, f->signal);
        if (f->owner && tracee_write(h->tid, room, &owner, sizeof owner) == 0)
            CALL(h, SYS_fcntl, e->number, F_SETOWN_EX, room);
    }
}

/* Called when everything that maps the files is mapped. */
int file_settings_seal(struct restoring *r, struct failure *f)
{
    for (uint32_t i = 0; i < r->image->files.count; i++) {
        const struct file *row = (struct file *)r->image->files.rows + i;
        if (row->kind != FILE_MEMORY || row->peer != NOBODY || !row->seals || r->opened[i] < 0)
            continue;
        int fd = open_again(r->opened[i], O_RDWR);
        int done = fd < 0 || fcntl(fd, F_ADD_SEALS, row->seals) < 0
                       ? set_failure(f, "seal", image_string(r->image, row->path))
                       : 0;
        if (fd >= 0)
            close(fd);
        if (done && errno != EINVAL) /* this kind of file has no seals */
            return -1;
    }
    return 0;
}
