/* Remote files without FUSE: what the parts of their supervisor (folder remote_notify) know of each other.
 *
 * Where a machine has no /dev/fuse, the kernel asks a supervisor about the job's calls that name files (seccomp user
 * notification). It plays the kernel's part towards the file server of remote/: the requests are those of FUSE, over
 * a socket pair for each tree, so that all that is known of home's files, and the way home, is the same.
 *
 * A file that the job opens is a *stand-in*: an unlinked file in the job's scratch directory with home's bytes, of
 * which it is given a descriptor. Reads, writes, maps and positions are the kernel's own then, and all who have a file
 * open share its stand-in as they would share the kernel's cache. What was written goes home at close, fsync, exit, and
 * each second: the blocks whose sums have changed.
 *
 * A directory that the job enters or opens is a *shadow*: an empty one of the same name in a small file system where
 * the tree should be mounted. So working directories, directory descriptors and what follows links are the kernel's
 * own, inherited and shared as ever; only what is in the directories is asked. Programs are copied there for execve. */
#ifndef POOL_NOTIFY_H
#define POOL_NOTIFY_H

#include <linux/fuse.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "remote_notify/remote_notify.h"
#include "unotify/notification.h"
#include "unotify/filter_builder.h"

#define NAME_MOST 4096
#define TREES_MOST 64
#define BLOCK 4096u
#define TRIES 4 /* what a name led to may be another file when it is opened or followed */
#define PIECE (128u << 10) /* bytes of one read or write of the file server's */
#define WHOLE_MOST (1u << 20) /* a larger file that is only read is fetched as it is read */
/* Flags that mean nothing to any socket together: a sendmmsg with just these is not asked about, so that a process can
 * hand over the descriptor at which it is. A program that uses them itself sends files of which it may lack some. */
#define UNASKED (MSG_NOSIGNAL | MSG_SYN | MSG_FIN | MSG_RST)

struct stand { /* a stand-in */
    struct stand *next;
    uint32_t tree;
    uint64_t node; /* the file server's number of it */
    int fd;
    dev_t device;
    ino_t inode;
    uint64_t reader, writer, appender; /* handles of the file server; 0: none */
    uint64_t size; /* as home has it */
    uint64_t *sums; /* of its blocks, as home has them; 0: not fetched, or not as here */
    size_t blocks;
    uint64_t ahead, expected; /* of a file that is fetched as it is read */
    uint64_t used; /* when it was opened last, monotonic ns */
    struct timespec changed;
    bool whole; /* all of it has been fetched */
    bool plain; /* somebody had it open for writing anywhere, not only for appending */
    bool mapped; /* somebody maps it shared: its time does not tell whether it was changed */
    bool filled; /* its time was changed by us */
    int error; /* of writing it home, not yet told */
};

struct found { /* what a name leads to */
    bool remote; /* below a tree; else it is for the kernel */
    int error;
    uint32_t tree;
    uint64_t parent, node;
    char last[256]; /* its name in `parent`; '' for a tree's top, . and .. */
    bool there, slash;
    struct fuse_attr attr;
    char path[NAME_MOST]; /* without links */
};

struct notifier {
    const struct job *job;
    uint32_t trees;
    int server[TREES_MOST]; /* to the file server */
    int tops[TREES_MOST]; /* the trees' shadows, writable */
    dev_t device; /* of the shadows: what files seem to lie on */
    int first; /* of the high numbers */
    int listeners[MEMBERS_MOST];
    struct stand *stands;
};
extern struct notifier *notifier; /* in the supervisor */

/* filter.c */
int notify_filter(int first, struct failure *f);
int notify_try(void);

/* supervisor.c */
_Noreturn void notify_serve(struct notifier *n, int members);

/* requests.c: requests of the file server. Values below 0 are error numbers. */
ssize_t ask_parts(uint32_t tree, uint32_t op, uint64_t node, struct iovec *parts, int count, void *out,
                  size_t room); /* parts[0] is for the head */
ssize_t ask(uint32_t tree, uint32_t op, uint64_t node, const void *in, size_t size, void *out, size_t room);
ssize_t ask_name(uint32_t tree, uint32_t op, uint64_t node, const void *in, size_t size, const char *name, void *out,
                 size_t room);
int ask_entry(uint32_t tree, uint32_t op, uint64_t node, const void *in, size_t size, const char *name,
              struct fuse_entry_out *e);
int look_up(uint32_t tree, uint64_t parent, const char *name, uint64_t *node, struct fuse_attr *a);
int get_attr_of(uint32_t tree, uint64_t node, struct fuse_attr *a);
int set_attr_of(uint32_t tree, uint64_t node, struct fuse_setattr_in *in);
void names_changed(void); /* what was remembered counts for nothing */
void names_forget(void); /* when many are remembered; between two calls of the job's */
void node_seen(uint32_t tree, uint64_t node);

/* resolve.c */
enum { FOLLOW = 1, MAKE = 2 /* the shadows of what it leads through */ };
bool walk(const struct question *q, int directory, const char *path, uint32_t how, struct found *f); /* f->remote */
int tree_of(const char *path); /* -1: none */

/* shadows.c */
int shadow_directory(uint32_t tree, const char *path);
int shadow_path(uint32_t tree, const char *path); /* and what is above it */
int shadow_link(uint32_t tree, const char *path, const char *target);
int shadow_program(uint32_t tree, const char *path, struct stand *s);
void shadow_remove(uint32_t tree, const char *path);
void shadow_rename(uint32_t tree, const char *from, const char *to, uint32_t flags);

/* stand_ins.c */
struct stand *stand_find(uint32_t tree, uint64_t node);
struct stand *stand_of(uint32_t tree, uint64_t node, uint64_t size);
struct stand *stand_at(pid_t tid, int number);
int stand_fetch(struct stand *s, uint64_t from, uint64_t to);
int stand_whole(struct stand *s);
int stand_home(struct stand *s); /* what was written, as far as home's kernel */
int stand_cut(struct stand *s, uint64_t size);
void stand_emptied(struct stand *s, uint64_t size); /* home is known to have that */
void stand_shown(struct stand *s, struct fuse_attr *a);
bool stand_writable(const struct stand *s);
int stands_home(void);
int stands_whole(void);
void stands_sweep(bool all); /* those that nobody has open */

/* open.c */
void open_file(struct question *q, int directory, const char *path, uint64_t flags, uint32_t mode);
int open_stand(const struct found *found, uint32_t flags, struct stand **s);
bool hand_out(struct question *q, int fd, bool high, bool on_exec_closed);

/* path_calls.c */
void handle_call(struct question *q);

/* directory_ops.c: an error number, or whether it was one of these calls */
int remove_name(const struct found *f, bool directory);
int make_name(const struct question *q, const struct found *f, bool directory,
              int at); /* the mode is the argument at `at` */
bool handle_two(struct question *q);
bool handle_symlink(struct question *q);

/* attributes.c */
void answer_stat(struct question *q, const struct fuse_attr *a);
int change_times(const struct question *q, uint32_t tree, uint64_t node);
int change_owner(const struct question *q, uint32_t tree, uint64_t node, int at);

/* xattr.c */
bool of_extras(long call); /* whether it is one about extended attributes */
void answer_extra(struct question *q, uint32_t tree, uint64_t node);

/* fd_calls.c */
void handle_descriptor(struct question *q, int number);
void answer_statfs(struct question *q, uint32_t tree, uint64_t node);

/* readdir.c */
bool list_directory(struct question *q, int number, bool old);

#endif
