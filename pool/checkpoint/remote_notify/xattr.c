/* Extended attributes: checks the kernel's limits, and then asks the file server. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/limits.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "remote_notify/parts.h"

static uint64_t argument(const struct notification *q, int which) { return q->notif->data.args[which]; }

/* Without room the caller asks for the size. */
static void give_value(struct notification *q, ssize_t n, uint64_t address, uint64_t room, const char *value)
{
    if (n < 0)
        answer_error(q, (int)-n);
    else if (room && (uint64_t)n > room)
        answer_error(q, ERANGE);
    else if (room && !bytes_to(q, address, value, (size_t)n))
        answer_error(q, EFAULT);
    else
        answer_value(q, n);
}

static void get_extra(struct notification *q, uint32_t tree, uint64_t node, const char *name)
{
    static char value[XATTR_SIZE_MAX];
    struct fuse_getxattr_in in = {.size = sizeof value};
    ssize_t n = ask_name(tree, FUSE_GETXATTR, node, &in, sizeof in, name, value, sizeof value);
    give_value(q, n, argument(q, 2), argument(q, 3), value);
}

static void list_extras(struct notification *q, uint32_t tree, uint64_t node)
{
    static char names[XATTR_LIST_MAX];
    struct fuse_getxattr_in in = {.size = sizeof names};
    ssize_t n = ask(tree, FUSE_LISTXATTR, node, &in, sizeof in, names, sizeof names);
    give_value(q, n, argument(q, 1), argument(q, 2), names);
}

static void set_extra(struct notification *q, uint32_t tree, uint64_t node, const char *name)
{
    static char value[XATTR_SIZE_MAX];
    uint32_t in[2] = {(uint32_t)argument(q, 3),
                      (uint32_t)argument(q, 4)}; /* the struct of FUSE_COMPAT_SETXATTR_IN_SIZE */
    if (argument(q, 3) > sizeof value)
        return answer_error(q, E2BIG);
    if (argument(q, 4) & ~(uint64_t)(XATTR_CREATE | XATTR_REPLACE))
        return answer_error(q, EINVAL);
    if (in[0] && !bytes_of(q, argument(q, 2), value, in[0]))
        return answer_error(q, EFAULT);
    struct iovec parts[4] = {{0}, {in, sizeof in}, {(void *)(uintptr_t)name, strlen(name) + 1}, {value, in[0]}};
    answer_error(q, (int)-ask_parts(tree, FUSE_SETXATTR, node, parts, 4, NULL, 0));
}

bool of_extras(long call)
{
    switch (call) {
    case SYS_getxattr:
    case SYS_lgetxattr:
    case SYS_fgetxattr:
    case SYS_listxattr:
    case SYS_llistxattr:
    case SYS_flistxattr:
    case SYS_setxattr:
    case SYS_lsetxattr:
    case SYS_fsetxattr:
    case SYS_removexattr:
    case SYS_lremovexattr:
    case SYS_fremovexattr:
        return true;
    default:
        return false;
    }
}

void answer_extra(struct notification *q, uint32_t tree, uint64_t node)
{
    long call = q->notif->data.nr;
    char name[XATTR_NAME_MAX + 2];
    if (call == SYS_listxattr || call == SYS_llistxattr || call == SYS_flistxattr)
        return list_extras(q, tree, node);
    if (!text_of(q, argument(q, 1), name, sizeof name) || !*name || strlen(name) > XATTR_NAME_MAX)
        return answer_error(q, ERANGE);
    if (call == SYS_getxattr || call == SYS_lgetxattr || call == SYS_fgetxattr)
        return get_extra(q, tree, node, name);
    if (call == SYS_setxattr || call == SYS_lsetxattr || call == SYS_fsetxattr)
        return set_extra(q, tree, node, name);
    answer_error(q, (int)-ask_name(tree, FUSE_REMOVEXATTR, node, NULL, 0, name, NULL, 0));
}
