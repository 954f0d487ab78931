/* Trees that the job only reads: the kernel opens and closes files there by itself, since OPEN is answered ENOSYS
 * (Linux: FUSE_NO_OPEN_SUPPORT), and neither waits for an answer of this server nor wakes it. What OPEN asks about, the
 * kernel knows before: a name that a lease covers is believed until it is told otherwise (expiry.c), any other is asked
 * about each time. Rights are checked by the kernel, from the attributes (fuse.c).
 *
 * No request tells of an open file or of its close. So each file has at most one handle, its reader, which the first
 * read opens. It stays open for the file's next reader until the kernel forgets the file or others were used since: so
 * a file that is removed or replaced on the submit side can still be read for a while, as an open file can. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "remote/parts.h"

#define READERS_MOST 128

static struct {
    struct handle *newest, *oldest;
    size_t count;
} readers;

int unopened_refuses(uint32_t op)
{
    switch (op) {
    case FUSE_OPEN: /* from now on the kernel does these by itself */
    case FUSE_FLUSH:
    case FUSE_FSYNC:
        return ENOSYS;
    case FUSE_LOOKUP:
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_GETATTR:
    case FUSE_READLINK:
    case FUSE_READ:
    case FUSE_LSEEK:
    case FUSE_STATFS:
    case FUSE_GETXATTR:
    case FUSE_LISTXATTR:
    case FUSE_INIT:
    case FUSE_DESTROY:
    case FUSE_OPENDIR:
    case FUSE_READDIR:
    case FUSE_READDIRPLUS:
    case FUSE_RELEASEDIR:
    case FUSE_FSYNCDIR:
    case FUSE_ACCESS:
    case FUSE_INTERRUPT:
    case FUSE_SYNCFS:
        return 0;
    case FUSE_RELEASE: /* of what was never opened */
    case FUSE_GETLK:
    case FUSE_SETLK:
    case FUSE_SETLKW:
    case FUSE_IOCTL:
    case FUSE_POLL:
        return ENOSYS;
    default:
        return EROFS;
    }
}

bool must_ask_at_open(const struct node *node)
{
    return node->tree->without_open && S_ISREG(node->attr.mode) && !(node->leased && node_believed(node));
}

bool unopened_waits(const struct handle *h) { return h->state == OPENING && h->node->tree->without_open; }

static void take_from_list(struct handle *h)
{
    *(h->newer ? &h->newer->older : &readers.newest) = h->older;
    *(h->older ? &h->older->newer : &readers.oldest) = h->newer;
    h->newer = h->older = NULL;
    readers.count--;
}

static void put_in_front(struct handle *h)
{
    h->older = readers.newest;
    *(h->older ? &h->older->newer : &readers.oldest) = h;
    readers.newest = h;
    readers.count++;
}

void reader_close(struct node *node)
{
    struct handle *h = node->reader;
    if (!h)
        return;
    node->reader = NULL;
    take_from_list(h);
    handle_close(h);
}

static bool is_idle(const struct handle *h) { return h->state != OPENING && !h->parked && !h->node->parked; }

/* Closes the readers that were used least lately, until so many are left; false: none could be closed. */
static bool close_until(size_t left)
{
    bool any = false;
    for (struct handle *h = readers.oldest, *newer; h && readers.count > left; h = newer) {
        newer = h->newer;
        if (!is_idle(h))
            continue;
        reader_close(h->node);
        any = true;
    }
    return any;
}

bool readers_shed(void) { return readers.count && close_until(readers.count / 2); }

static struct handle *reader_of(struct node *node)
{
    struct handle *h = node->reader;
    if (h) {
        take_from_list(h);
    } else {
        close_until(READERS_MOST - 1);
        h = node->reader = handle_new(node, O_RDONLY);
    }
    put_in_front(h);
    return h;
}

struct handle *handle_of(struct ask *q, uint64_t fh)
{
    return q->tree->without_open ? reader_of(q->node) : (struct handle *)(uintptr_t)fh;
}
