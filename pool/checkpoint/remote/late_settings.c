/* Settings of a file that the job writes: mode, owner and times, which programs change one after the other once they
 * have written a file. They are gathered here for a moment, sent as one frame behind the file's writes, and no process
 * waits for the answer: close and fsync do, and report its error as that of a write. So a file that is unpacked costs
 * two answers to wait for instead of seven.
 *
 * Only changes that the submit side will not refuse are answered ahead: those of the owner's own file that is open for
 * writing, on a file system that has such settings (one that a lease is given for). */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/xattr.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "remote/parts.h"

#define UNCHANGED UINT32_MAX
#define OMIT UINT64_MAX
#define NOW (UINT64_MAX - 1)
#define SIDE (FATTR_FH | FATTR_CTIME | FATTR_LOCKOWNER | FATTR_KILL_SUIDGID)
#define TIMES (FATTR_ATIME | FATTR_MTIME | FATTR_ATIME_NOW | FATTR_MTIME_NOW)
#define SPECIAL (S_ISUID | S_ISGID) /* other changes may clear them */
#define LONGEST_NS 1000000u /* that settings wait while more of them come */

struct file_settings {
    uint32_t mode, ids[2];
    uint64_t times[2];
};

static struct {
    struct node *node; /* NULL: none */
    struct file_settings settings;
    uint64_t begun;
    bool asked; /* by a program, not only by the kernel, which sets the time of its own writes */
} late;

static bool unknown; /* the submit side has no such operation */

bool late_waits(void) { return late.node; }

static void on_set_by_path(struct request *r, int error, struct reader *answer)
{
    struct attr a = get_attr(answer);
    if (!error && !answer->bad)
        node_wrote(r->node, &a, r->unique);
    else
        not_kept(r->node, error ? error : EIO);
    node_settled(r->node);
}

static struct request *begin_by_path(struct node *n, uint16_t op)
{
    struct request *r = request_new(op, n, on_set_by_path);
    put_path(r, n, NULL);
    n->writing++;
    return r;
}

/* For a submit side without the operation, or without the open file: one frame for each, the times after all others. */
static void set_by_path(struct node *n, const struct file_settings *s)
{
    if (!n->names)
        return;
    if (s->ids[0] != UNCHANGED || s->ids[1] != UNCHANGED) {
        struct request *r = begin_by_path(n, R_CHOWN);
        put_number(r, s->ids[0], 4);
        put_number(r, s->ids[1], 4);
        request_send(r);
    }
    if (s->mode != UNCHANGED) {
        struct request *r = begin_by_path(n, R_CHMOD);
        put_number(r, s->mode, 4);
        request_send(r);
    }
    if (s->times[0] != OMIT || s->times[1] != OMIT) {
        n->times[0] = (int64_t)s->times[0];
        n->times[1] = (int64_t)s->times[1];
        n->times_wait = true;
    }
    if (n->times_wait && !n->writing)
        times_send(n);
}

/* The settings in a request of ours. */
static struct file_settings settings_of(const struct request *r)
{
    struct reader a = {r->frame + FRAME_HEAD, r->frame + r->size, false};
    struct file_settings s;
    get_number(&a, 8);
    s.mode = (uint32_t)get_number(&a, 4);
    for (int i = 0; i < 2; i++)
        s.ids[i] = (uint32_t)get_number(&a, 4);
    for (int i = 0; i < 2; i++)
        s.times[i] = get_number(&a, 8);
    return s;
}

static void on_set(struct request *r, int error, struct reader *answer)
{
    struct attr a = get_attr(answer);
    if (error == ENOSYS || error == EBADF) { /* EBADF: the file could not be opened again on a new stream */
        struct file_settings s = settings_of(r);
        unknown |= error == ENOSYS;
        set_by_path(r->node, &s);
    } else if (!error && !answer->bad) {
        node_wrote(r->node, &a, r->unique);
    } else if (r->a) {
        not_kept(r->node, error ? error : EIO);
    }
    node_settled(r->node);
}

/* The handle whose requests the submit side does in their order with the writes under way; NULL if there is none. */
static struct handle *handle_for(struct node *n)
{
    struct handle *h = n->writing ? n->writer : handle_writable(n);
    return h && h->writable && !h->append && handle_is_usable(h) ? h : NULL;
}

void late_send(void)
{
    struct node *n = late.node;
    if (!n)
        return;
    late.node = NULL;
    struct handle *h = handle_for(n);
    if (!h) {
        set_by_path(n, &late.settings);
        node_drop(n);
        return;
    }
    struct request *r = request_new(R_SETATTR, n, on_set);
    r->a = late.asked;
    put_number(r, h->id, 8);
    put_number(r, late.settings.mode, 4);
    for (int i = 0; i < 2; i++)
        put_number(r, late.settings.ids[i], 4);
    for (int i = 0; i < 2; i++)
        put_number(r, late.settings.times[i], 8);
    request_send(r);
    n->writer = h;
    n->touched = r->unique;
    n->writing++;
    node_drop(n);
}

/* Between two changes of a file the kernel asks for its capabilities: there are none (xattr.c). */
static bool asks_capabilities(const struct ask *q)
{
    const struct fuse_getxattr_in *in = q->body;
    return q->head->opcode == FUSE_GETXATTR && strcmp((const char *)(in + 1), XATTR_NAME_CAPS) == 0;
}

/* Every other request may need the settings to be on their way before. */
void late_before(const struct ask *q)
{
    bool more = q->head->opcode == FUSE_SETATTR && q->node == late.node;
    if (late.node && !more && !asks_capabilities(q))
        late_send();
}

static uint64_t time_of(uint32_t valid, uint32_t given, uint32_t now, uint64_t seconds, uint32_t rest)
{
    return valid & now ? NOW : valid & given ? (uint64_t)((int64_t)seconds * 1000000000 + rest) : OMIT;
}

static struct file_settings settings_in(const struct fuse_setattr_in *in)
{
    uint32_t valid = in->valid;
    return (struct file_settings){.mode = valid & FATTR_MODE ? in->mode & 07777 : UNCHANGED,
                                  .ids = {submit_id(valid & FATTR_UID, in->uid, serving.uid, serving.submit_uid),
                                          submit_id(valid & FATTR_GID, in->gid, serving.gid, serving.submit_gid)},
                                  .times = {time_of(valid, FATTR_ATIME, FATTR_ATIME_NOW, in->atime, in->atimensec),
                                            time_of(valid, FATTR_MTIME, FATTR_MTIME_NOW, in->mtime, in->mtimensec)}};
}

/* Whether the owner's process on the submit side certainly may make the changes. */
static bool is_allowed(const struct node *n, const struct file_settings *s)
{
    const struct node *in = n->names && !n->names->other ? n->names->parent : NULL;
    bool owner = !serving.submit_uid || n->attr.uid == serving.submit_uid;
    bool same =
        (s->ids[0] == UNCHANGED || s->ids[0] == n->attr.uid) && (s->ids[1] == UNCHANGED || s->ids[1] == n->attr.gid);
    bool special = (n->attr.mode | (s->mode == UNCHANGED ? 0 : s->mode)) & SPECIAL;
    return in && lease_reports(in, UINT64_MAX) && owner && same && !special;
}

static void apply_time(int64_t *to, uint64_t given)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (given != OMIT)
        *to = given == NOW ? now.tv_sec * 1000000000 + now.tv_nsec : (int64_t)given;
}

static void add_settings(const struct file_settings *s)
{
    if (s->mode != UNCHANGED)
        late.settings.mode = s->mode;
    for (int i = 0; i < 2; i++) {
        if (s->ids[i] != UNCHANGED)
            late.settings.ids[i] = s->ids[i];
        if (s->times[i] != OMIT)
            late.settings.times[i] = s->times[i];
    }
}

bool late_accepts(struct ask *q)
{
    const struct fuse_setattr_in *in = q->body;
    struct node *n = q->node;
    uint32_t valid = in->valid & ~(uint32_t)SIDE;
    struct file_settings s = settings_in(in);
    bool kernels = valid == FATTR_MTIME && n->touched;
    if (serving.notified || unknown || !valid || valid & ~(uint32_t)(FATTR_MODE | FATTR_UID | FATTR_GID | TIMES) ||
        !S_ISREG(n->attr.mode) || n->error || n->stale || n->times_wait || !handle_for(n) ||
        (!kernels && !is_allowed(n, &s))) {
        late_send();
        return false;
    }
    if (!late.node) {
        late.node = node_hold(n);
        late.settings = (struct file_settings){UNCHANGED, {UNCHANGED, UNCHANGED}, {OMIT, OMIT}};
        late.begun = monotonic_ns();
        late.asked = false;
    }
    add_settings(&s);
    late.asked |= !kernels;
    if (s.mode != UNCHANGED)
        n->attr.mode = (n->attr.mode & S_IFMT) | s.mode;
    apply_time(&n->attr.atime, s.times[0]);
    apply_time(&n->attr.mtime, s.times[1]);
    n->touched = link_last() + 1; /* answers under way do not show the change */
    reply_attr(q->tree, q->head->unique, n);
    if (monotonic_ns() - late.begun > LONGEST_NS)
        late_send();
    return true;
}
