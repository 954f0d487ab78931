/* Extended attributes: those of the user namespace are sent to the submit side; for others the answer is what a disk
 * gives to users other than root. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <linux/xattr.h>

#include "remote/parts.h"

static bool starts_with(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

/* Whether the request is answered here. Many programs ask about each file for attributes that no user may set. */
static bool is_refused_here(struct ask *q, const char *name, bool set)
{
    bool users = starts_with(name, XATTR_USER_PREFIX),
         roots = starts_with(name, XATTR_TRUSTED_PREFIX) || starts_with(name, XATTR_SECURITY_PREFIX);
    bool nameless = q->node != q->tree->root && !q->node->names; /* the submit side finds files by name */
    if (users && !nameless)
        return false;
    int error = users || roots ? set && roots ? EPERM : set ? EOPNOTSUPP : ENODATA : EOPNOTSUPP;
    reply(q->tree, q->head->unique, error, NULL, 0);
    return true;
}

static struct request *begin_request(struct ask *q, uint16_t op, void (*done)(struct request *, int, struct reader *))
{
    struct request *r = request_new(op, q->node, done);
    r->asked = q->head->unique;
    put_path(r, q->node, NULL);
    return r;
}

/* The caller has room for r->a bytes; without room it asks for the size. */
static void on_value(struct request *r, int error, struct reader *answer)
{
    uint32_t size;
    const uint8_t *value = get_string(answer, &size);
    struct fuse_getxattr_out out = {0};
    if (!error && answer->bad)
        error = EIO;
    if (!error && r->a && size > r->a)
        error = ERANGE;
    if (!error && !r->a) {
        out.size = size;
        reply(r->tree, r->asked, 0, &out, sizeof out);
        return;
    }
    reply(r->tree, r->asked, error, value, size);
}

void ask_getxattr(struct ask *q)
{
    const struct fuse_getxattr_in *in = q->body;
    const char *name = (const char *)(in + 1);
    if (is_refused_here(q, name, false))
        return;
    struct request *r = begin_request(q, R_XATTR, on_value);
    r->a = in->size;
    put_bytes(r, name, strlen(name));
    request_send(r);
}

void ask_listxattr(struct ask *q)
{
    const struct fuse_getxattr_in *in = q->body;
    struct fuse_getxattr_out none = {0};
    if (q->node != q->tree->root && !q->node->names) {
        reply(q->tree, q->head->unique, 0, &none, in->size ? 0 : sizeof none);
        return;
    }
    struct request *r = begin_request(q, R_XATTR, on_value);
    r->a = in->size;
    put_bytes(r, "", 0);
    request_send(r);
}

static void on_changed(struct request *r, int error, struct reader *answer)
{
    struct attr a = get_attr(answer);
    if (!error && answer->bad)
        error = EIO;
    if (!error)
        node_learn(r->node, &a, r->unique);
    reply(r->tree, r->asked, error, NULL, 0);
}

void ask_setxattr(struct ask *q)
{
    const struct fuse_setxattr_in *in = q->body; /* its first eight bytes: FUSE_SETXATTR_EXT is not requested */
    const char *name = (const char *)q->body + FUSE_COMPAT_SETXATTR_IN_SIZE;
    if (is_refused_here(q, name, true))
        return;
    struct request *r = begin_request(q, R_SETXATTR, on_changed);
    put_bytes(r, name, strlen(name));
    put_bytes(r, name + strlen(name) + 1, in->size);
    put_number(r, in->flags, 4);
    request_send(r);
}

void ask_removexattr(struct ask *q)
{
    const char *name = q->body;
    if (is_refused_here(q, name, true))
        return;
    struct request *r = begin_request(q, R_REMOVEXATTR, on_changed);
    put_bytes(r, name, strlen(name));
    request_send(r);
}
