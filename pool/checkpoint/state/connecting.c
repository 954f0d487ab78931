/* Threads that were interrupted in connect(). The kernel would begin the call again, and find that its connection was
 * made meanwhile. A socket that was restored, or whose client connected once more (tcp_handshake.c), counts as
 * connected: there the call would fail with EISCONN. So it is answered here as the kernel answers it. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

#include "state/inet.h"

struct interrupted {
    uint32_t owner, thread; /* rows of the image */
    int number; /* the descriptor */
    struct tracee *tracee;
};

static struct table all = {.size = sizeof(struct interrupted)};

/* Called with the registers as they were when the thread was stopped. */
void connecting_save(struct dump *d, struct tracee *h, const struct user_regs_struct *r, const struct thread *t)
{
    unsigned long a[6];
    long result = regs_result(r);
    if (regs_asked(r, a) != SYS_connect || ((result > -512 || result < -514) && result != -EINTR))
        return;
    struct interrupted *i = table_add(&all);
    i->owner = t->owner;
    i->thread = (uint32_t)(t - (struct thread *)d->image.threads.rows);
    i->number = (int)a[0];
    i->tracee = h;
}

/* Whether the socket is connected in the image. */
static bool is_made(const struct inet_row *row)
{
    return row->type == SOCK_STREAM && row->state != STATE_LISTEN && row->state != STATE_SYN_SENT &&
           row->state != STATE_SYN_RECV && !(row->flags & INET_REFUSED) &&
           (row->state != STATE_CLOSE || row->flags & INET_ENDED);
}

/* Called when the sockets' rows are complete. */
void connecting_settle(struct dump *d)
{
    for (size_t n = 0; n < all.count; n++) {
        struct interrupted *i = (struct interrupted *)all.rows + n;
        EACH(&d->image, descriptors, descriptor, at) {
            const struct file *f = (struct file *)d->image.files.rows + at->file;
            struct inet_row row;
            if (at->owner != i->owner || at->number != i->number || f->kind != FILE_INET ||
                f->contents.size < sizeof row)
                continue;
            memcpy(&row, (char *)d->image.bytes.rows + f->contents.at, sizeof row);
            if (!is_made(&row))
                continue;
            struct user_regs_struct r;
            char *place =
                (char *)d->image.bytes.rows + ((struct thread *)d->image.threads.rows)[i->thread].registers.at;
            memcpy(&r, place, sizeof r);
            regs_answer(&r, 0);
            memcpy(place, &r, sizeof r);
            if (row.flags & INET_AGAIN)
                regs_answer(&i->tracee->saved, 0);
        }
    }
    all.count = 0;
}
