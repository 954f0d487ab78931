/* Open files: opened on the submit side, closed there, opened there again on a new stream.
 *
 * A file that its owner may read is opened here at once, where its attributes are fresh; the submit side is told with
 * the first read that the kernel's cache cannot serve, which may be never. The answer to an open brings the data of a
 * small file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "remote/parts.h"

static struct handle *handles;
static uint64_t last_id;

struct handle *handle_new(struct node *node, uint32_t flags)
{
    struct handle *h = need(sizeof *h);
    *h = (struct handle){.id = ++last_id, .node = node_hold(node), .flags = flags, .next = handles};
    if (handles)
        handles->previous = h;
    handles = h;
    node->handles++;
    return h;
}

static void handle_free(struct handle *h)
{
    *(h->previous ? &h->previous->next : &handles) = h->next;
    if (h->next)
        h->next->previous = h->previous;
    chunks_drop(h);
    listing_free(h);
    locks_forget(h);
    unpark_refuse(&h->parked, EBADF);
    free(h->data);
    h->node->handles--;
    node_drop(h->node);
    free(h);
}

static void on_closed(struct request *r, int error, struct reader *answer)
{
    (void)error, (void)answer;
    handle_free(r->handle);
}

void handle_close(struct handle *h)
{
    if (h->node->writer == h)
        h->node->writer = NULL;
    h->closing = true;
    if (h->borrowers)
        return;
    struct handle *lender = h->lender;
    if (h->state == LAZY || h->state == LOST || lender) {
        handle_free(h);
        if (lender && !--lender->borrowers && lender->closing)
            handle_close(lender);
        return;
    }
    struct request *r = request_new(R_CLOSE, NULL, on_closed);
    r->handle = h;
    put_number(r, h->id, 8);
    request_send(r);
}

/* Whether the submit side has it open for certain. A handle that is being closed is open there only while another
 * handle borrows it. */
bool handle_is_usable(const struct handle *h) { return h->state == OPEN && (!h->closing || h->borrowers); }

/* A handle that is open for writing on the submit side, if possible for reading too. */
struct handle *handle_writable(struct node *node)
{
    struct handle *found = NULL;
    for (struct handle *h = handles; h; h = h->next) {
        if (h->node != node || !h->writable || !handle_is_usable(h))
            continue;
        found = h;
        if ((h->flags & O_ACCMODE) == O_RDWR)
            break;
    }
    return found;
}

void handles_changed(struct node *node)
{
    for (struct handle *h = node->handles ? handles : NULL; h; h = h->next)
        if (h->node == node) {
            chunks_drop(h);
            h->whole = false;
        }
}

static void put_open(struct request *r, const struct handle *h, const struct node *node, const char *name,
                     uint32_t flags, uint32_t mode)
{
    put_number(r, h->id, 8);
    put_path(r, node, name);
    put_number(r, flags, 4);
    put_number(r, mode, 4);
    put_number(r, h->comes ? SMALL : 0, 4);
}

/* Takes the data of a small file from the answer. For a file that is written, data in the answer means that the submit
 * side's disk is full. */
static void take_data(struct handle *h, const struct attr *a, struct reader *answer)
{
    uint32_t size;
    const uint8_t *data = get_string(answer, &size);
    if (h->writable && !h->comes && size && !answer->bad)
        tree_is_full(h->node->tree);
    /* 1: this open itself */
    h->whole = h->comes && !answer->bad && a->size <= SMALL && size == a->size && h->node->writing <= 1;
    h->comes = false;
    if (h->whole) {
        h->data = need(size);
        h->data_size = size;
        memcpy(h->data, data, size);
    }
}

static bool without_cache(const struct handle *h)
{
    return h->direct || h->append || (h->writable && !serving.notified && monotonic_ns() < h->node->tree->full);
}

static void reply_open(struct request *r, const struct handle *h)
{
    struct fuse_open_out out = {.fh = (uint64_t)(uintptr_t)h,
                                .open_flags = without_cache(h) ? FOPEN_DIRECT_IO : FOPEN_KEEP_CACHE | FOPEN_NOFLUSH};
    h->node->opened = true;
    reply(r->tree, r->asked, 0, &out, sizeof out);
}

/* A reader is opened anew by the next read. */
static void handle_failed(struct handle *h, int error)
{
    h->state = LOST;
    h->error = error;
    unpark(&h->parked);
    if (h->node->reader == h)
        reader_close(h->node);
}

/* The file that a reader was to read was replaced, and the submit side has opened the other one. */
static void reader_misled(struct handle *h)
{
    h->state = OPEN;
    h->node->stale = true;
    unpark_refuse(&h->parked, ESTALE);
    if (h->node->reader == h)
        reader_close(h->node);
}

static void on_begun(struct request *r, int error, struct reader *answer)
{
    struct handle *h = r->handle;
    struct attr a = get_attr(answer);
    bool reader = r->tree->without_open;
    if (error == EMFILE && readers_shed()) {
        handle_begin(h);
    } else if (error || answer->bad) {
        bool gone = error == ENOENT || !r->node->names;
        handle_failed(h, reader && gone ? ESTALE : error ? error : EIO);
    } else if (reader && !is_same_file(r->node, &a)) {
        reader_misled(h);
    } else {
        r->node->stale |= node_changed(r->node, &a, r->unique);
        h->state = OPEN;
        take_data(h, &a, answer);
        unpark(&h->parked);
    }
    node_settled(r->node);
}

void handle_begin(struct handle *h)
{
    struct request *r = request_new(R_OPEN, h->node, on_begun);
    r->handle = h;
    h->state = OPENING;
    h->comes = (h->flags & O_ACCMODE) == O_RDONLY && h->node->size <= SMALL;
    h->node->writing++; /* operations on its name wait for this */
    put_open(r, h, h->node, NULL, h->flags, 0);
    request_send(r);
}

bool handles_begin(struct node *node)
{
    bool under_way = false;
    for (struct handle *h = node->handles ? handles : NULL; h; h = h->next) {
        if (h->node != node)
            continue;
        if (h->state == LAZY && S_ISREG(node->attr.mode))
            handle_begin(h);
        under_way |= h->state == OPENING;
    }
    return under_way && node->writing;
}

static void open_send(struct handle *h, uint64_t asked);
static void accept_open(struct request *r, const struct attr *a, struct reader *answer);

/* Writing parts of pages needs reading. A job that may only write bypasses the cache. */
static bool without_reading(struct request *r, int error)
{
    struct handle *h = r->handle;
    if (error != EACCES || (h->flags & O_ACCMODE) != O_RDWR || !r->a)
        return false;
    h->flags = (h->flags & ~(uint32_t)O_ACCMODE) | O_WRONLY;
    h->direct = true;
    return true;
}

/* Whether a changed file may replace the kernel's file: it was changed on the submit side, or is another file by now,
 * and the job has the old one not open. The alternative, a new lookup by the kernel, is done only once, and the file
 * may change again in the meantime. */
static bool may_adopt(const struct handle *h, const struct attr *a)
{
    const struct node *n = h->node;
    bool same = a->ino == n->attr.ino && a->dev == n->attr.dev;
    if (!S_ISREG(a->mode) || !n->names || (serving.notified && n->opened))
        return false;
    for (const struct handle *other = handles; other && !same; other = other->next)
        if (other != h && other->node == n && other->state != OPENING)
            return false;
    return true;
}

struct opening {
    struct tree *tree;
    struct handle *handle;
    uint64_t asked;
};

static void on_refreshed(struct node *n, void *context, int error)
{
    struct opening *o = context;
    struct request at_once = {.tree = o->tree, .asked = o->asked};
    if (error) {
        n->stale = true;
        reply(o->tree, o->asked, ESTALE, NULL, 0);
        handle_close(o->handle);
    } else {
        n->writers += o->handle->writable;
        reply_open(&at_once, o->handle);
    }
    free(o);
}

static void adopt_file(struct request *r, const struct attr *a, struct reader *answer)
{
    struct handle *h = r->handle;
    if (h->flags & O_TRUNC ||
        serving.notified) { /* the kernel truncates its own file; without FUSE there is no kernel cache to update */
        handles_changed(r->node);
        node_adopt(r->node, a);
        accept_open(r, a, answer);
        return;
    }
    h->flags &= ~(uint32_t)(O_CREAT | O_EXCL);
    struct opening *o = need(sizeof *o);
    *o = (struct opening){.tree = r->tree, .handle = h, .asked = r->asked};
    node_settled(r->node);
    refresh_to(r->node, a, r->unique, on_refreshed, o);
}

/* Whether others, not we, have changed the file. Also if the job has it open for writing: an open shows what others
 * have written. */
static bool others_wrote(const struct handle *h, const struct node *n, const struct attr *a, uint64_t unique)
{
    if (h->flags & O_TRUNC || n->writing || n->times_wait || unique <= n->touched)
        return false;
    return n->stale || node_differs(n, a);
}

static void on_opened(struct request *r, int error, struct reader *answer)
{
    struct handle *h = r->handle;
    struct node *n = r->node;
    struct attr a = get_attr(answer);
    bool shed = error == EMFILE && readers_shed();
    if (shed)
        h->comes = r->a; /* as it was when this was sent */
    if (shed || without_reading(r, error)) {
        open_send(h, r->asked);
        node_settled(n);
        return;
    }
    h->state = error ? LOST : OPEN;
    n->writing--; /* not counting this open */
    bool other = !error && (a.ino != n->attr.ino || a.dev != n->attr.dev || others_wrote(h, n, &a, r->unique));
    n->writing++;
    if (!error && answer->bad)
        error = EIO;
    if (error == ENOENT) { /* the kernel still believes in the name: ESTALE makes it look the name up again */
        n->stale = true;
        error = ESTALE;
    }
    if (other && !error && r->asked && may_adopt(h, &a)) {
        adopt_file(r, &a, answer);
        return;
    }
    if (error || other || !r->asked) {
        n->stale |= other;
        reply(r->tree, r->asked, error ? error : ESTALE, NULL, 0); /* the kernel looks the name up again */
        handle_close(h);
        node_settled(n);
        return;
    }
    accept_open(r, &a, answer);
}

static void accept_open(struct request *r, const struct attr *a, struct reader *answer)
{
    struct handle *h = r->handle;
    struct node *n = r->node;
    if (h->flags & O_TRUNC) {
        n->size = 0;
        n->touched = r->unique;
        n->seen_changes = a->changes;
        n->seen_mtime = a->mtime;
        handles_changed(n);
    }
    node_learn(n, a, r->unique);
    lease_believe(n, r->unique);
    take_data(h, a, answer);
    h->flags &= ~(uint32_t)(O_TRUNC | O_CREAT | O_EXCL);
    n->writers += h->writable;
    reply_open(r, h);
    node_settled(n);
}

static void open_send(struct handle *h, uint64_t asked)
{
    struct request *r = request_new(R_OPEN, h->node, on_opened);
    r->handle = h;
    r->asked = asked;
    r->a = h->comes && h->writable; /* the job wants to write only; we need to read */
    h->comes = !h->writable;
    h->state = OPENING;
    h->node->writing++;
    put_open(r, h, h->node, NULL, h->flags, 0);
    request_send(r);
}

static uint32_t submit_flags(uint32_t flags, bool append)
{
    uint32_t how = flags & O_ACCMODE;
    return (how == O_WRONLY && !append ? O_RDWR : how) | (flags & (O_TRUNC | O_EXCL));
}

/* Opens a file without a name through /proc/PID/fd: it uses another handle that is open on the submit side. */
static void open_nameless(struct ask *q, uint32_t how)
{
    struct handle *found = handles;
    while (found &&
           (found->node != q->node || !handle_is_usable(found) || found->lender ||
            (how != O_RDONLY && !found->writable) || (how != O_WRONLY && (found->flags & O_ACCMODE) == O_WRONLY)))
        found = found->next;
    if (!found || ((const struct fuse_open_in *)q->body)->flags & O_TRUNC) {
        reply(q->tree, q->head->unique, ENOENT, NULL, 0);
        return;
    }
    struct handle *h = handle_new(q->node, found->flags);
    struct request at_once = {.tree = q->tree, .asked = q->head->unique};
    h->id = found->id;
    h->state = OPEN;
    h->lender = found;
    found->borrowers++;
    h->writable = how != O_RDONLY;
    q->node->writers += h->writable;
    reply_open(&at_once, h);
}

/* Only the submit side knows whether SQLite's file of shared memory may be opened, for reading too. */
static bool is_shared_memory(const struct node *n)
{
    static const char end[] = "-shm";
    size_t size = strlen(n->names->text);
    return size >= sizeof end - 1 && strcmp(n->names->text + size - (sizeof end - 1), end) == 0;
}

void ask_open(struct ask *q)
{
    const struct fuse_open_in *in = q->body;
    struct node *n = q->node;
    uint32_t how = in->flags & O_ACCMODE;
    if (!n->names && !n->stale) {
        open_nameless(q, how);
        return;
    }
    if (n->stale) {
        reply(q->tree, q->head->unique, ESTALE, NULL, 0);
        return;
    }
    if (in->flags & O_TRUNC && n->writing) {
        node_park(n, q);
        return;
    }
    struct handle *h = handle_new(n, submit_flags(in->flags & ~(uint32_t)O_EXCL, in->flags & O_APPEND));
    h->append = in->flags & O_APPEND && how != O_RDONLY;
    h->writable = how != O_RDONLY;
    h->comes = how == O_WRONLY;
    if (how == O_RDONLY && !(in->flags & O_TRUNC) && S_ISREG(n->attr.mode) && owner_may(n, R_OK) &&
        !is_shared_memory(n) && (n->writing || (n->leased && node_believed(n)))) {
        struct request at_once = {.tree = q->tree, .asked = q->head->unique};
        reply_open(&at_once, h);
        return;
    }
    open_send(h, q->head->unique);
}

static void create_send(struct handle *h, struct node *parent, const char *name, uint32_t mode, uint64_t asked,
                        bool only_write);

static void on_created(struct request *r, int error, struct reader *answer)
{
    struct handle *h = r->handle;
    struct attr a = get_attr(answer);
    struct {
        struct fuse_entry_out entry;
        struct fuse_open_out open;
    } out;
    bool shed = error == EMFILE && readers_shed();
    if (shed || without_reading(r, error)) {
        create_send(h, r->node, r->name, (uint32_t)r->b, r->asked, shed && r->a);
        return;
    }
    h->state = error ? LOST : OPEN;
    if (error || answer->bad || !r->asked) {
        reply(r->tree, r->asked, error ? error : EIO, NULL, 0);
        handle_close(h);
        return;
    }
    struct node *n = node_see(r->node, r->name, &a, r->unique);
    node_hold(n)->handles++;
    h->node->handles--;
    node_drop(h->node);
    h->node = n;
    h->flags &= ~(uint32_t)(O_TRUNC | O_CREAT | O_EXCL);
    take_data(h, &a, answer);
    n->writers += h->writable;
    n->opened = true;
    n->touched = r->unique;
    if (a.size == 0) {
        n->size = 0;
        n->seen_changes = a.changes;
        n->seen_mtime = a.mtime;
        handles_changed(n);
    }
    lease_changed(r->node, r->name);
    memset(&out, 0, sizeof out);
    fill_entry(&out.entry, n);
    out.open.fh = (uint64_t)(uintptr_t)h;
    out.open.open_flags = without_cache(h) ? FOPEN_DIRECT_IO : FOPEN_KEEP_CACHE;
    reply(r->tree, r->asked, 0, &out, sizeof out);
}

static void create_send(struct handle *h, struct node *parent, const char *name, uint32_t mode, uint64_t asked,
                        bool only_write)
{
    struct request *r = request_new(R_OPEN, parent, on_created);
    r->handle = h;
    r->asked = asked;
    r->name = strdup(name);
    r->a = only_write;
    r->b = mode;
    h->state = OPENING;
    put_open(r, h, parent, name, h->flags, mode);
    request_send(r);
}

void ask_create(struct ask *q)
{
    const struct fuse_create_in *in = q->body;
    const char *name = (const char *)(in + 1);
    struct handle *h = handle_new(q->node, submit_flags(in->flags, in->flags & O_APPEND) | O_CREAT);
    h->writable = (in->flags & O_ACCMODE) != O_RDONLY;
    h->append = in->flags & O_APPEND && h->writable;
    create_send(h, q->node, name, in->mode & 07777, q->head->unique, (in->flags & O_ACCMODE) == O_WRONLY);
}

void ask_release(struct ask *q)
{
    const struct fuse_release_in *in = q->body;
    struct handle *h = (struct handle *)(uintptr_t)in->fh;
    h->node->writers -= h->writable;
    reply(q->tree, q->head->unique, 0, NULL, 0);
    handle_close(h);
}

static void on_reopened(struct request *r, int error, struct reader *answer)
{
    (void)answer;
    if (error)
        handle_failed(r->handle, error == ENOENT ? ESTALE : error);
}

/* Requests to open that are still unanswered are sent again by the link. */
void handles_reopen(void)
{
    for (struct handle *h = handles; h; h = h->next) {
        if (h->state != OPEN || h->lender)
            continue;
        struct request *r = request_new(R_REOPEN, h->node, on_reopened);
        r->urgent = true;
        r->handle = h;
        put_open(r, h, h->node, NULL, h->flags, 0);
        put_number(r, h->node->attr.dev, 8);
        put_number(r, h->node->attr.ino, 8);
        put_number(r, !h->node->names, 1);
        request_send(r);
        locks_retake(h);
    }
}
