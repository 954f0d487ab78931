/* The kernel's side: reads its requests, dispatches them, writes answers, and parks requests that wait. FUSE with a
 * writeback cache: small writes become large ones, and repeated reads come from memory. So times and sizes of a file
 * that the kernel knows are the kernel's own (inodes.c). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "remote/parts.h"

#define BUFFER (MOST + 8192)
#define BACKGROUND 128 /* background requests of the kernel at a time */

/* An aborted request (ENOENT) or mount (ENODEV) needs no answer. */
void reply_parts(struct tree *tree, uint64_t unique, struct iovec *parts, int count)
{
    struct fuse_out_header head = {.unique = unique, .len = sizeof head};
    parts[0] = (struct iovec){&head, sizeof head};
    for (int i = 1; i < count; i++)
        head.len += (uint32_t)parts[i].iov_len;
    while (writev(tree->fd, parts, count) < 0 && errno == EINTR) {
    }
}

void reply(struct tree *tree, uint64_t unique, int error, const void *data, size_t size)
{
    struct fuse_out_header head = {
        .unique = unique, .error = -error, .len = (uint32_t)(sizeof head + (error ? 0 : size))};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)(uintptr_t)data, size}};
    if (!unique) /* no process waits */
        return;
    while (writev(tree->fd, parts, error || !size ? 1 : 2) < 0 && errno == EINTR) {
    }
}

static uint32_t shown_id(uint32_t id, uint32_t submit, uint32_t job)
{
    return id == submit || serving.own_users ? job : id ? 65534 : 0;
}

/* The rights that a class of users has and the others have not. */
static bool rights_beyond(uint32_t class, uint32_t others) { return (class & ~others & 5) != 0; }

/* In a tree without OPEN the kernel itself decides by these who may open a file. It knows neither the groups of the
 * owner on the submit side nor access lists. So a file is shown as one of the job's group if its group has more rights
 * than others have: the submit side decides when the file is read. */
static void fill_owner(struct fuse_attr *to, const struct node *node)
{
    const struct attr *a = &node->attr;
    to->uid = shown_id(a->uid, serving.submit_uid, serving.uid);
    to->gid = shown_id(a->gid, serving.submit_gid, serving.gid);
    if (!node->tree->without_open || a->uid == serving.submit_uid)
        return;
    if (!serving.submit_uid) {
        to->uid = serving.uid; /* root may read what others may */
        return;
    }
    if (to->uid == serving.uid)
        to->uid = 65534;
    if (rights_beyond(a->mode >> 3, a->mode))
        to->gid = serving.gid;
    else if (a->gid != serving.submit_gid && to->gid == serving.gid)
        to->gid = 65534;
}

static void fill_attr(struct fuse_attr *to, const struct node *node)
{
    const struct attr *a = &node->attr;
    /* not 0: another file system within the tree */
    uint64_t far = node->tree->root ? a->dev ^ node->tree->root->attr.dev : 0;
    *to = (struct fuse_attr){
        .ino = a->ino ^ far << 40,
        .size = S_ISREG(a->mode) ? node->size : a->size,
        .blocks = a->blocks,
        .atime = (uint64_t)(a->atime / 1000000000),
        .atimensec = (uint32_t)(a->atime % 1000000000),
        .mtime = (uint64_t)(a->mtime / 1000000000),
        .mtimensec = (uint32_t)(a->mtime % 1000000000),
        .ctime = (uint64_t)(a->ctime / 1000000000),
        .ctimensec = (uint32_t)(a->ctime % 1000000000),
        .mode = a->mode,
        .nlink = node->names || node == node->tree->root ? a->nlink : 0,
        .rdev = (uint32_t)a->rdev,
        .blksize = 65536,
    };
    fill_owner(to, node);
}

static uint64_t seconds_left(struct node *node, uint32_t *rest)
{
    uint64_t now = monotonic_ns(), left = node_believed(node) ? node->believed - now : 0;
    /* longer only what the kernel is told to ask about again, when the lease ends or the submit side reports a change
     */
    if (!node->leased || !node->tree->expires)
        left = left < BELIEVED_NS ? left : BELIEVED_NS;
    node->trusted |= left > BELIEVED_NS || (node->tree->without_open && node->leased && left);
    *rest = (uint32_t)(left % 1000000000);
    return left / 1000000000;
}

void fill_entry(struct fuse_entry_out *e, struct node *node)
{
    memset(e, 0, sizeof *e);
    e->nodeid = node_id(node);
    e->attr_valid = e->entry_valid = seconds_left(node, &e->attr_valid_nsec);
    e->entry_valid_nsec = e->attr_valid_nsec;
    if (must_ask_at_open(node))
        e->entry_valid = e->entry_valid_nsec = 0;
    fill_attr(&e->attr, node);
}

void reply_entry(struct tree *tree, uint64_t unique, struct node *node)
{
    struct fuse_entry_out e;
    fill_entry(&e, node);
    reply(tree, unique, 0, &e, sizeof e);
}

void reply_attr(struct tree *tree, uint64_t unique, struct node *node)
{
    struct fuse_attr_out a = {0};
    a.attr_valid = seconds_left(node, &a.attr_valid_nsec);
    fill_attr(&a.attr, node);
    reply(tree, unique, 0, &a, sizeof a);
}

void park(struct parked **list, struct ask *q)
{
    struct parked *p = need(sizeof *p + q->size);
    *p = (struct parked){.tree = q->tree, .size = q->size};
    memcpy(p->bytes, q->head, q->size);
    while (*list)
        list = &(*list)->next;
    *list = p;
}

static void take_request(struct tree *tree, uint8_t *buffer, size_t size, bool own);

/* In their order of arrival; a request that has to wait again goes after newer ones. */
void unpark(struct parked **list)
{
    struct parked *p = *list;
    *list = NULL;
    while (p) {
        struct parked *next = p->next;
        take_request(p->tree, p->bytes, p->size, false);
        free(p);
        p = next;
    }
}

void unpark_refuse(struct parked **list, int error)
{
    for (struct parked *p = *list, *next; p; p = next) {
        next = p->next;
        reply(p->tree, ((const struct fuse_in_header *)(const void *)p->bytes)->unique, error, NULL, 0);
        free(p);
    }
    *list = NULL;
}

/* Takes the whole request over. A small one is copied, so that the large buffer is reused. */
uint8_t *take_buffer(struct ask *q)
{
    if (q->buffer && q->size > SMALL) {
        uint8_t *taken = q->buffer;
        q->buffer = NULL;
        return taken;
    }
    uint8_t *copy = need(q->size);
    memcpy(copy, q->head, q->size);
    return copy;
}

/* Without a writeback cache the kernel asks nothing at close either, and without locks here it keeps them itself. The
 * text of a link belongs to its inode (inodes.c). */
static uint32_t wanted_without_open(void)
{
    return FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_DO_READDIRPLUS | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES |
           FUSE_NO_OPEN_SUPPORT | FUSE_CACHE_SYMLINKS | FUSE_INIT_EXT;
}

static void ask_init(struct ask *q)
{
    const struct fuse_init_in *in = q->body;
    const uint32_t wanted = FUSE_ASYNC_READ | FUSE_POSIX_LOCKS | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES |
                            FUSE_FLOCK_LOCKS | FUSE_DO_READDIRPLUS | FUSE_ASYNC_DIO | FUSE_WRITEBACK_CACHE |
                            FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES | FUSE_HANDLE_KILLPRIV_V2 | FUSE_INIT_EXT;
    const uint32_t wanted2 = 1u << (36 - 32); /* FUSE_DIRECT_IO_ALLOW_MMAP, Linux 6.6 */
    const uint32_t expire_only = 1u << (35 - 32); /* FUSE_HAS_EXPIRE_ONLY, Linux 6.2 */
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                                .minor = FUSE_KERNEL_MINOR_VERSION,
                                .max_readahead = MOST,
                                .flags = in->flags & wanted,
                                .max_background = BACKGROUND,
                                .congestion_threshold = BACKGROUND * 3 / 4,
                                .max_write = MOST,
                                .time_gran = 1,
                                .max_pages = MOST / 4096,
                                .flags2 = in->flags & FUSE_INIT_EXT ? in->flags2 & wanted2 : 0};
    q->tree->expires = in->flags & FUSE_INIT_EXT && in->flags2 & expire_only;
    q->tree->without_open &= q->tree->expires && in->flags & FUSE_NO_OPEN_SUPPORT;
    if (q->tree->without_open)
        out.flags = in->flags & wanted_without_open();
    reply(q->tree, q->head->unique, 0, &out, sizeof out);
}

static void ask_forget(struct ask *q)
{
    const struct fuse_forget_in *in = q->body;
    if (q->node != q->tree->root)
        node_forget(q->node, in->nlookup);
}

static void ask_forgets(struct ask *q)
{
    const struct fuse_batch_forget_in *in = q->body;
    const struct fuse_forget_one *each = (const void *)(in + 1);
    for (uint32_t i = 0; i < in->count; i++)
        if (each[i].nodeid != FUSE_ROOT_ID)
            node_forget(node_of(q->tree, each[i].nodeid), each[i].nlookup);
}

static void ask_nothing(struct ask *q) { reply(q->tree, q->head->unique, 0, NULL, 0); }

static void (*const answers[])(struct ask *) = {
    [FUSE_LOOKUP] = ask_lookup,
    [FUSE_FORGET] = ask_forget,
    [FUSE_GETATTR] = ask_getattr,
    [FUSE_SETATTR] = ask_setattr,
    [FUSE_READLINK] = ask_readlink,
    [FUSE_SYMLINK] = ask_symlink,
    [FUSE_MKNOD] = ask_mknod,
    [FUSE_MKDIR] = ask_mkdir,
    [FUSE_UNLINK] = ask_unlink,
    [FUSE_RMDIR] = ask_unlink,
    [FUSE_RENAME] = ask_rename,
    [FUSE_LINK] = ask_link,
    [FUSE_OPEN] = ask_open,
    [FUSE_READ] = ask_read,
    [FUSE_WRITE] = ask_write,
    [FUSE_STATFS] = ask_statfs,
    [FUSE_RELEASE] = ask_release,
    [FUSE_FSYNC] = ask_fsync,
    [FUSE_FLUSH] = ask_flush,
    [FUSE_INIT] = ask_init,
    [FUSE_OPENDIR] = ask_opendir,
    [FUSE_READDIR] = ask_readdir,
    [FUSE_RELEASEDIR] = ask_releasedir,
    [FUSE_FSYNCDIR] = ask_fsyncdir,
    [FUSE_GETLK] = ask_lock,
    [FUSE_SETLK] = ask_lock,
    [FUSE_SETLKW] = ask_lock,
    [FUSE_ACCESS] = ask_access,
    [FUSE_CREATE] = ask_create,
    [FUSE_INTERRUPT] = ask_interrupt,
    [FUSE_DESTROY] = ask_nothing,
    [FUSE_BATCH_FORGET] = ask_forgets,
    [FUSE_READDIRPLUS] = ask_readdir,
    [FUSE_RENAME2] = ask_rename,
    [FUSE_SYNCFS] = ask_syncfs,
    [FUSE_FALLOCATE] = ask_fallocate,
    [FUSE_GETXATTR] = ask_getxattr,
    [FUSE_LISTXATTR] = ask_listxattr,
    [FUSE_SETXATTR] = ask_setxattr,
    [FUSE_REMOVEXATTR] = ask_removexattr,
    [FUSE_LSEEK] = ask_lseek,
};

/* The kernel does not repeat operations answered by ENOSYS, or does them itself: copy_file_range, ioctl, poll. */
void dispatch(struct ask *q)
{
    uint32_t op = q->head->opcode;
    int refused = q->tree->without_open ? unopened_refuses(op) : 0;
    if (refused)
        reply(q->tree, q->head->unique, refused, NULL, 0);
    else if (op < sizeof answers / sizeof *answers && answers[op])
        answers[op](q);
    else
        reply(q->tree, q->head->unique, ENOSYS, NULL, 0);
}

static uint8_t *spare;

static void take_request(struct tree *tree, uint8_t *buffer, size_t size, bool own)
{
    struct ask q = {.tree = tree,
                    .head = (const void *)buffer,
                    .size = size,
                    .body = buffer + sizeof(struct fuse_in_header),
                    .buffer = own ? buffer : NULL};
    q.node = q.head->nodeid ? node_of(tree, q.head->nodeid) : NULL;
    late_before(&q);
    if (!refresh_asks(&q))
        dispatch(&q);
    if (own)
        spare = q.buffer;
}

bool kernel_readable(struct tree *tree)
{
    bool any = false;
    for (int turn = 0; turn < 64 && tree->fd >= 0; turn++) {
        if (!spare)
            spare = need(BUFFER);
        ssize_t n = read(tree->fd, spare, BUFFER);
        if (n < 0 && (errno == EINTR || errno == ENOENT)) /* ENOENT: aborted before it was read */
            continue;
        if (n < 0 && errno == EAGAIN)
            return any;
        if (n < (ssize_t)sizeof(struct fuse_in_header)) { /* the mount is gone */
            if (serving.notified)
                close(tree->fd); /* other threads may still write to a device */
            tree->fd = -1;
            return any;
        }
        any = true;
        /* a message that is shorter than its struct, of an older kernel, is padded with zeros */
        memset(spare + n, 0, 8);
        uint8_t *mine = spare;
        spare = NULL;
        follow_asked((const void *)mine);
        take_request(tree, mine, (size_t)n, true);
    }
    return any;
}
