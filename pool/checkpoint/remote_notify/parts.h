/* Remote files without FUSE: declarations that the files of their supervisor share. On a machine without /dev/fuse, the
 * kernel asks a supervisor about the job's calls with names (seccomp user notification). The supervisor acts as the
 * kernel does towards the file server of remote/: it sends FUSE requests over a socket pair for each tree, so the file
 * server works the same.
 *
 * A file that the job opens is a *stand-in*: an unlinked file in the job's scratch directory with the remote file's
 * bytes; the job gets a file descriptor of it. Reads, writes, mappings and positions are the kernel's own, and all
 * processes that have the file open share its stand-in as they would share the kernel's cache. Written data is sent to
 * the submit side at close, fsync, exit, and every second: the blocks whose sums have changed.
 *
 * A directory that the job enters or opens is a *shadow*: an empty directory of the same name in a small file system,
 * at the place where the tree would be mounted. So working directories, directory descriptors and symbolic links are
 * the kernel's own, inherited and shared as usual; only the entries of the directories are asked for. Programs are
 * copied there for execve. */
#ifndef POOL_REMOTE_NOTIFY_PARTS_H
#define POOL_REMOTE_NOTIFY_PARTS_H

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
#define TRIES 4 /* a name may mean another file by the time it is opened or followed */
#define PIECE (128u << 10) /* bytes of one read or write request to the file server */
#define WHOLE_MOST (1u << 20) /* a larger file that is only read is fetched on demand */
/* A combination of flags that no socket uses: sendmmsg with exactly these is not trapped, so that a process can send
 * its listener's descriptor. If a program itself uses them, the files that it sends may lack data. */
#define UNASKED (MSG_NOSIGNAL | MSG_SYN | MSG_FIN | MSG_RST)

struct stand_in { /* a stand-in */
    struct stand_in *next;
    uint32_t tree;
    uint64_t node; /* the file server's inode number */
    int fd;
    dev_t device;
    ino_t inode;
    uint64_t reader, writer, appender; /* handles of the file server; 0: none */
    uint64_t size; /* on the submit side */
    uint64_t *sums; /* of its blocks, as on the submit side; 0: not fetched, or different here */
    size_t blocks;
    uint64_t ahead, expected; /* of a file that is fetched on demand */
    uint64_t used; /* time of the last open, monotonic ns */
    struct timespec changed;
    bool whole; /* completely fetched */
    bool plain; /* some process had it open for writing, not only for appending */
    bool mapped; /* some process maps it shared: its time does not show all changes */
    bool filled; /* we changed its time */
    int error; /* of sending its data, not yet reported */
};

struct found { /* the file to which a name leads */
    bool remote; /* below a tree; else the kernel executes the call */
    int error;
    uint32_t tree;
    uint64_t parent, node;
    char last[256]; /* its name in `parent`; '' for a tree's root, . and .. */
    bool there, slash;
    struct fuse_attr attr;
    char path[NAME_MOST]; /* without symbolic links */
};

struct notifier {
    const struct job *job;
    uint32_t trees;
    int server[TREES_MOST]; /* to the file server */
    int tops[TREES_MOST]; /* the roots of the trees' shadows, writable */
    dev_t device; /* of the shadows: the device that files appear to be on */
    int first; /* of the high numbers */
    int listeners[MEMBERS_MOST];
    struct stand_in *stands;
};
extern struct notifier *notifier; /* the supervisor's own state */

/* filter.c */
int notify_filter(int first, struct failure *f);
int notify_try(void);

/* supervisor.c */
_Noreturn void notify_serve(struct notifier *n, int members);

/* requests.c: requests to the file server. Negative results are errnos. */
ssize_t ask_parts(uint32_t tree, uint32_t op, uint64_t node, struct iovec *parts, int count, void *out,
                  size_t room); /* parts[0] is for the header */
ssize_t ask(uint32_t tree, uint32_t op, uint64_t node, const void *in, size_t size, void *out, size_t room);
ssize_t ask_name(uint32_t tree, uint32_t op, uint64_t node, const void *in, size_t size, const char *name, void *out,
                 size_t room);
int ask_entry(uint32_t tree, uint32_t op, uint64_t node, const void *in, size_t size, const char *name,
              struct fuse_entry_out *e);
int look_up(uint32_t tree, uint64_t parent, const char *name, uint64_t *node, struct fuse_attr *a);
int get_attr_of(uint32_t tree, uint64_t node, struct fuse_attr *a);
int set_attr_of(uint32_t tree, uint64_t node, struct fuse_setattr_in *in);
void names_changed(void); /* drops all cached names */
void names_forget(void); /* drops cached names if there are many; called between two calls of the job */
void node_seen(uint32_t tree, uint64_t node);

/* resolve.c */
enum { FOLLOW = 1, MAKE = 2 /* make the shadows of the directories on the way */ };
/* returns f->remote */
bool walk(const struct notification *q, int directory, const char *path, uint32_t how, struct found *f);
int tree_of(const char *path); /* -1: none */

/* shadows.c */
int shadow_directory(uint32_t tree, const char *path);
int shadow_path(uint32_t tree, const char *path); /* with all its parents */
int shadow_link(uint32_t tree, const char *path, const char *target);
int shadow_program(uint32_t tree, const char *path, struct stand_in *s);
void shadow_remove(uint32_t tree, const char *path);
void shadow_rename(uint32_t tree, const char *from, const char *to, uint32_t flags);

/* stand_ins.c */
struct stand_in *stand_find(uint32_t tree, uint64_t node);
struct stand_in *stand_of(uint32_t tree, uint64_t node, uint64_t size);
struct stand_in *stand_at(pid_t tid, int number);
int stand_fetch(struct stand_in *s, uint64_t from, uint64_t to);
int stand_whole(struct stand_in *s);
int stand_send(struct stand_in *s); /* sends written data, as far as the kernel of the submit side */
int stand_cut(struct stand_in *s, uint64_t size);
void stand_emptied(struct stand_in *s, uint64_t size); /* the submit side is known to have that size */
void stand_shown(struct stand_in *s, struct fuse_attr *a);
bool stand_writable(const struct stand_in *s);
int stands_send(void);
int stands_whole(void);
void stands_sweep(bool all); /* removes those that no process has open */

/* open.c */
void open_file(struct notification *q, int directory, const char *path, uint64_t flags, uint32_t mode);
int open_stand(const struct found *found, uint32_t flags, struct stand_in **s);
bool hand_out(struct notification *q, int fd, bool high, bool on_exec_closed);

/* path_calls.c */
void handle_call(struct notification *q);

/* directory_ops.c: return an errno, or whether it was one of these calls */
int remove_name(const struct found *f, bool directory);
int make_name(const struct notification *q, const struct found *f, bool directory,
              int at); /* the argument at `at` is the mode */
bool handle_two(struct notification *q);
bool handle_symlink(struct notification *q);

/* attributes.c */
void answer_stat(struct notification *q, const struct fuse_attr *a);
int change_times(const struct notification *q, uint32_t tree, uint64_t node);
int change_owner(const struct notification *q, uint32_t tree, uint64_t node, int at);

/* xattr.c */
bool of_extras(long call); /* whether the call is about extended attributes */
void answer_extra(struct notification *q, uint32_t tree, uint64_t node);

/* fd_calls.c */
void handle_descriptor(struct notification *q, int number);
void answer_statfs(struct notification *q, uint32_t tree, uint64_t node);

/* readdir.c */
bool list_directory(struct notification *q, int number, bool old);

#endif
