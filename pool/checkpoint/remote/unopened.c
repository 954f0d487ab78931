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

/* Requests that are answered there; 1: ENOSYS, after which the kernel does it by itself. All others change something.
 */
static const uint8_t answered[] = {
    [FUSE_OPEN] = 1,     [FUSE_FLUSH] = 1,        [FUSE_FSYNC] = 1,     [FUSE_RELEASE] = 1,     [FUSE_GETLK] = 1,
    [FUSE_SETLK] = 1,    [FUSE_SETLKW] = 1,       [FUSE_IOCTL] = 1,     [FUSE_POLL] = 1,        [FUSE_LOOKUP] = 2,
    [FUSE_FORGET] = 2,   [FUSE_BATCH_FORGET] = 2, [FUSE_GETATTR] = 2,   [FUSE_READLINK] = 2,    [FUSE_READ] = 2,
    [FUSE_LSEEK] = 2,    [FUSE_STATFS] = 2,       [FUSE_GETXATTR] = 2,  [FUSE_LISTXATTR] = 2,   [FUSE_INIT] = 2,
    [FUSE_DESTROY] = 2,  [FUSE_OPENDIR] = 2,      [FUSE_READDIR] = 2,   [FUSE_READDIRPLUS] = 2, [FUSE_RELEASEDIR] = 2,
    [FUSE_FSYNCDIR] = 2, [FUSE_ACCESS] = 2,       [FUSE_INTERRUPT] = 2, [FUSE_SYNCFS] = 2,
};

int unopened_refuses(uint32_t op)
{
    uint8_t how = op < sizeof answered ? answered[op] : 1;
    return how == 2 ? 0 : how == 1 ? ENOSYS : EROFS;
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
