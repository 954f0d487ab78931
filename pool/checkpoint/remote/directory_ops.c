/* Operations on names: lookup, create, remove, rename, link, and attributes. Each is one frame and its answer. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "remote/parts.h"

static struct request *begin_request(struct ask *q, uint16_t op, void (*done)(struct request *, int, struct reader *))
{
    struct request *r = request_new(op, q->node, done);
    r->asked = q->head->unique;
    return r;
}

static struct request *begin_name(struct ask *q, uint16_t op, const char *name,
                                  void (*done)(struct request *, int, struct reader *))
{
    struct request *r = begin_request(q, op, done);
    r->name = strdup(name);
    put_path(r, q->node, name);
    return r;
}

static void refuse_request(struct ask *q, int error) { reply(q->tree, q->head->unique, error, NULL, 0); }

static void on_entry(struct request *r, int error, struct reader *answer)
{
    struct attr a = get_attr(answer);
    if (!error && answer->bad)
        error = EIO;
    if (error) {
        reply(r->tree, r->asked, error, NULL, 0);
        return;
    }
    if (r->op != R_STAT)
        lease_changed(r->node, r->name);
    struct node *n = node_see(r->node, r->name, &a, r->unique);
    n->made |= r->op == R_MKDIR;
    if (r->op == R_STAT)
        lease_believe(n, r->unique);
    reply_entry(r->tree, r->asked, n);
}

/* The absence of a name is cached as long as its presence. */
static void on_looked_up(struct request *r, int error, struct reader *answer)
{
    if (error == ENOENT) {
        struct fuse_entry_out none = {.entry_valid = BELIEVED_NS / 1000000000};
        name_drop(r->node, r->name);
        reply(r->tree, r->asked, 0, &none, sizeof none);
        return;
    }
    on_entry(r, error, answer);
}

void ask_lookup(struct ask *q)
{
    const char *name = q->body;
    struct node *known = name_find(q->node, name);
    bool certain = known && !known->stale && (known->writing || node_believed(known)) && !must_ask_at_open(known);
    if (certain) {
        known->lookups++;
        reply_entry(q->tree, q->head->unique, known);
        return;
    }
    if (!known && listing_answers(q, name))
        return;
    lease_wish_again(q->node);
    listing_ahead(q->node);
    request_send(begin_name(q, R_STAT, name, on_looked_up));
}

static void on_attr(struct request *r, int error, struct reader *answer)
{
    struct attr a = get_attr(answer);
    if (error || answer->bad) {
        reply(r->tree, r->asked, error ? error : EIO, NULL, 0);
        return;
    }
    if (r->node == r->tree->root || (a.ino == r->node->attr.ino && a.dev == r->node->attr.dev)) {
        if (node_changed(r->node, &a, r->unique))
            r->node->stale = true;
        node_learn(r->node, &a, r->unique);
        lease_believe(r->node, r->unique);
    } else {
        r->node->stale = true; /* the name means another file by now */
    }
    reply_attr(r->tree, r->asked, r->node);
}

void ask_getattr(struct ask *q)
{
    struct node *n = q->node;
    const struct fuse_getattr_in *in = q->body;
    const struct handle *by = in->getattr_flags & FUSE_GETATTR_FH ? (struct handle *)(uintptr_t)in->fh : NULL;
    if (n->error && by && by->writable) { /* before a write: earlier writes have failed */
        reply(q->tree, q->head->unique, n->error, NULL, 0);
        return;
    }
    bool nameless = n != q->tree->root && !n->names, unseen = n == q->tree->root && !n->attr.ino;
    if (unseen && q->tree->without_open && !link_ready()) { /* whether the keeper may open the mount */
        reply_attr(q->tree, q->head->unique, n);
        return;
    }
    if (nameless || n->stale || n->writing || node_believed(n)) {
        if ((nameless || n->stale || n->writing) && !n->error) {
            n->believed = monotonic_ns() + BELIEVED_NS;
            n->leased = 0;
        }
        reply_attr(q->tree, q->head->unique, n);
        return;
    }
    if (S_ISDIR(n->attr.mode))
        lease_wish_again(n);
    else if (n->names)
        lease_wish_again(n->names->parent);
    struct request *r = begin_request(q, R_STAT, on_attr);
    put_path(r, n, NULL);
    request_send(r);
}

static void on_link(struct request *r, int error, struct reader *answer)
{
    uint32_t size;
    const uint8_t *text = get_string(answer, &size);
    if (!error && answer->bad)
        error = EIO;
    if (error == EINVAL) { /* no longer a symbolic link: the kernel looks the name up again */
        r->node->stale = true;
        error = ESTALE;
    }
    reply(r->tree, r->asked, error, text, size);
}

void ask_readlink(struct ask *q)
{
    struct request *r = begin_request(q, R_READLINK, on_link);
    put_path(r, q->node, NULL);
    request_send(r);
}

void ask_symlink(struct ask *q)
{
    const char *name = q->body, *target = name + strlen(name) + 1;
    struct request *r = begin_request(q, R_SYMLINK, on_entry);
    r->name = strdup(name);
    put_bytes(r, target, strlen(target));
    put_path(r, q->node, name);
    request_send(r);
}

void ask_mkdir(struct ask *q)
{
    const struct fuse_mkdir_in *in = q->body;
    struct request *r = begin_name(q, R_MKDIR, (const char *)(in + 1), on_entry);
    put_number(r, in->mode & 07777, 4);
    request_send(r);
}

/* Named pipes and sockets work in this machine's kernel, by their inode; the submit side has only the name. Without
 * FUSE there are only regular files. Devices cannot be created. */
void ask_mknod(struct ask *q)
{
    const struct fuse_mknod_in *in = q->body;
    const char *name = (const char *)(in + 1);
    if (!serving.notified && (S_ISFIFO(in->mode) || S_ISSOCK(in->mode))) {
        struct request *r = begin_name(q, R_MKNOD, name, on_entry);
        put_number(r, in->mode, 4);
        request_send(r);
        return;
    }
    if (!S_ISREG(in->mode)) {
        refuse_request(q, EPERM);
        return;
    }
    struct handle *h = handle_new(q->node, O_RDWR);
    struct request *r = request_new(R_OPEN, q->node, on_entry);
    r->asked = q->head->unique;
    r->name = strdup(name);
    put_number(r, h->id, 8);
    put_path(r, q->node, name);
    put_number(r, O_RDWR | O_CREAT | O_EXCL, 4);
    put_number(r, in->mode & 07777, 4);
    put_number(r, 0, 4);
    request_send(r);
    h->state = OPENING;
    handle_close(h); /* the close is sent after the open */
}

static void on_removed(struct request *r, int error, struct reader *answer)
{
    (void)answer;
    struct node *gone = name_find(r->node, r->name);
    if (gone && error && gone->changed)
        expire_name(r->node, r->name, gone);
    if (gone)
        gone->removing = gone->changed = false;
    if (!error) {
        if (gone) {
            gone->attr.nlink -= gone->attr.nlink > 0;
            gone->touched = r->unique;
            name_drop(r->node, r->name);
        }
        lease_changed(r->node, r->name);
        removal_succeeded(r);
    }
    reply(r->tree, r->asked, error, NULL, 0);
}

void ask_unlink(struct ask *q)
{
    const char *name = q->body;
    struct node *known = name_find(q->node, name);
    if (removal_refused(q) || removal_accepts(q, known))
        return;
    /* the pending changes are for this file, not for another file with its name */
    if (known && (known->writing || handles_begin(known))) {
        node_park(known, q);
        return;
    }
    lease_wish_again(q->node);
    if (known)
        known->removing = true;
    request_send(begin_name(q, q->head->opcode == FUSE_RMDIR ? R_RMDIR : R_UNLINK, name, on_removed));
}

static void on_renamed(struct request *r, int error, struct reader *answer)
{
    (void)answer;
    struct node *from = name_find(r->node, r->name), *to = name_find(r->other, r->name2);
    if (!error && from != to) {
        if (from)
            node_hold(from);
        if (to)
            node_hold(to);
        name_drop(r->node, r->name);
        name_drop(r->other, r->name2);
        if (from)
            name_put(r->other, r->name2, from);
        if (to && r->a & RENAME_EXCHANGE)
            name_put(r->node, r->name, to);
        else if (to)
            to->attr.nlink -= to->attr.nlink > 0;
        if (from)
            node_drop(from);
        if (to)
            node_drop(to);
        lease_changed(r->node, r->name);
        lease_changed(r->other, r->name2);
    }
    reply(r->tree, r->asked, error, NULL, 0);
}

void ask_rename(struct ask *q)
{
    const struct fuse_rename2_in *in2 = q->body;
    const struct fuse_rename_in *in = q->body;
    bool two = q->head->opcode == FUSE_RENAME2;
    const char *name = two ? (const char *)(in2 + 1) : (const char *)(in + 1), *name2 = name + strlen(name) + 1;
    struct node *to = node_of(q->tree, two ? in2->newdir : in->newdir),
                *ends[2] = {name_find(q->node, name), name_find(to, name2)};
    for (int i = 0; i < 2; i++)
        if (ends[i] && (ends[i]->writing || handles_begin(ends[i]))) {
            node_park(ends[i], q);
            return;
        }
    struct request *r = begin_name(q, R_RENAME, name, on_renamed);
    r->other = node_hold(to);
    r->name2 = strdup(name2);
    r->a = two ? in2->flags : 0;
    put_path(r, to, name2);
    put_number(r, r->a, 4);
    request_send(r);
}

/* Another name for the same file: the kernel has its inode already. */
static void on_linked(struct request *r, int error, struct reader *answer)
{
    struct attr a = get_attr(answer);
    if (error || answer->bad) {
        reply(r->tree, r->asked, error ? error : EIO, NULL, 0);
        return;
    }
    lease_changed(r->node, r->name);
    node_learn(r->other, &a, r->unique);
    name_put(r->node, r->name, r->other);
    r->other->lookups++;
    reply_entry(r->tree, r->asked, r->other);
}

void ask_link(struct ask *q)
{
    const struct fuse_link_in *in = q->body;
    const char *name = (const char *)(in + 1);
    struct node *old = node_of(q->tree, in->oldnodeid);
    struct request *r = begin_request(q, R_LINK, on_linked);
    r->other = node_hold(old);
    r->name = strdup(name);
    put_path(r, old, NULL);
    put_path(r, q->node, name);
    request_send(r);
}

static void on_counted(struct request *r, int error, struct reader *answer)
{
    struct fuse_statfs_out out = {0};
    out.st.blocks = get_number(answer, 8);
    out.st.bfree = get_number(answer, 8);
    out.st.bavail = get_number(answer, 8);
    out.st.files = get_number(answer, 8);
    out.st.ffree = get_number(answer, 8);
    out.st.bsize = out.st.frsize = (uint32_t)get_number(answer, 4);
    out.st.namelen = (uint32_t)get_number(answer, 4);
    if (!error && answer->bad)
        error = EIO;
    reply(r->tree, r->asked, error, &out, sizeof out);
}

void ask_statfs(struct ask *q)
{
    struct request *r = begin_request(q, R_STATFS, on_counted);
    put_path(r, q->node, NULL);
    request_send(r);
}

static void on_permitted(struct request *r, int error, struct reader *answer)
{
    (void)answer;
    reply(r->tree, r->asked, error, NULL, 0);
}

/* Asks the submit side, except for what is certain here: the owner may read and enter his own files. */
void ask_access(struct ask *q)
{
    const struct fuse_access_in *in = q->body;
    if (node_believed(q->node) && !(in->mask & W_OK) && owner_may(q->node, in->mask & 7)) {
        refuse_request(q, 0);
        return;
    }
    struct request *r = begin_request(q, R_ACCESS, on_permitted);
    put_path(r, q->node, NULL);
    put_number(r, in->mask, 4);
    request_send(r);
}
