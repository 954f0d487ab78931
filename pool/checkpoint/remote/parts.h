/* Remote system calls, the job's side: declarations that the files of the file server share. The server is a process of
 * the keeper. On one side the kernel sends it FUSE requests (<linux/fuse.h>), one file descriptor for each tree of the
 * submit machine. On the other side it sends frames to the submit side (pool/remoteio) over one stream. It has one
 * thread and never blocks: a request of the kernel becomes a frame, and the frame's answer becomes the answer to the
 * kernel. A request that cannot continue yet is parked whole, and dispatched again later. */
#ifndef POOL_REMOTE_PARTS_H
#define POOL_REMOTE_PARTS_H

#include <linux/fuse.h>
#include <sys/uio.h>

#include "remote/remote.h"

enum remote_op {
    R_HELLO = 1,
    R_STAT,
    R_READLINK,
    R_LIST,
    R_OPEN,
    R_REOPEN,
    R_READ,
    R_WRITE,
    R_SYNC,
    R_CLOSE,
    R_TRUNCATE,
    R_MKDIR,
    R_RMDIR,
    R_UNLINK,
    R_RENAME,
    R_LINK,
    R_SYMLINK,
    R_CHMOD,
    R_CHOWN,
    R_UTIMES,
    R_STATFS,
    R_LOCK,
    R_ACCESS,
    R_XATTR,
    R_MARK,
    R_MKNOD = 28,
    R_FALLOCATE,
    R_LEASE,
    R_NOTICE,
    R_SETXATTR,
    R_REMOVEXATTR,
    R_SEEK,
    R_SETATTR,
    R_UNLINK_NAMES,
};

#define FRAME_HEAD 16
#define FRAME_MOST (2u << 20)
#define MOST REMOTE_READ_MOST
#define CHUNK (512u << 10) /* bytes of one readahead request; chunks are aligned to it */
#define SMALL (64u << 10) /* a file up to this size is sent with the answer to its open */
#define AHEAD_MOST (32u << 20) /* bytes under way or ready for one reader */
#define GATHER_MOST (64u << 20) /* unanswered written bytes, above which writers wait */
#define BELIEVED_NS 1000000000u /* how long answers about a name or a file are cached */
#define LEASED_NS 60000000000u /* with a lease */
#define PATH_ROOM 8192

struct attr {
    uint64_t dev, ino, size, blocks, rdev;
    int64_t atime, mtime, ctime; /* ns */
    uint32_t mode, nlink, uid, gid;
    uint64_t changes; /* a number that changes with each change of the contents by a job */
};

struct reader { /* the body of an answer; bad: something was missing */
    const uint8_t *at, *end;
    bool bad;
};

struct tree { /* one mount */
    int fd, teller; /* teller: for what the kernel is told unasked, by threads with files of their own */
    const char *path;
    struct node *root;
    bool expires; /* the kernel can be told to forget what it believes about a name */
    bool without_open; /* the job only reads it, and the kernel asks nothing at open and close (unopened.c) */
    uint64_t full; /* until then writers wait for answers: the submit side's disk is full (tree_is_full) */
};

struct parked { /* a request of the kernel that waits */
    struct parked *next;
    struct tree *tree;
    size_t size;
    uint8_t bytes[];
};

struct node {
    struct tree *tree;
    struct name *names;
    struct name *entries; /* names in this directory */
    struct node *next; /* in the table of inodes */
    uint64_t lookups; /* lookups that the kernel has not forgotten */
    uint32_t held; /* references from requests, handles, and names in this directory */
    uint32_t handles, writers, writing; /* writing: unanswered changes of it */
    struct attr attr; /* latest attributes from the submit side */
    uint64_t believed; /* cached until then, monotonic ns */
    uint64_t leased; /* valid while this lease stands, 0 for none */
    bool trusted; /* the kernel believes it for longer than a second, and is to be told when it is not so */
    bool removing, changed; /* its name is being removed by us; the submit side has reported a change meanwhile */
    uint32_t expiring; /* of its names: the kernel is being told of so many changes that answers wait for */
    struct handle *reader; /* in a tree without OPEN: it is read through this handle */
    struct lease *lease; /* on this directory */
    struct listing *listing; /* of this directory, while the lease covers it */
    struct listing *ahead; /* the beginning of it, asked for because many of its names were */
    uint32_t misses; /* lookups of its names that were asked at the submit side */
    bool made; /* by the job: it has few entries, and is going to get more */
    uint64_t removable; /* the lease under which the submit side has removed a file in this directory, 0 for none */
    uint64_t refused; /* until then no lease is requested */
    uint32_t questions; /* requests about its entries */
    uint64_t size; /* as the kernel knows it */
    uint64_t seen_changes; /* the change counter of the contents that the kernel has */
    int64_t seen_mtime;
    uint64_t touched; /* the newest request that changes it: answers to older ones are outdated */
    struct handle *writer; /* the handle of the writes under way */
    int error; /* of writes, or of removals in it, that were answered before the submit side had made them */
    bool stale; /* changed on the submit side: the next lookup gives the kernel a new file */
    struct parked *parked; /* until no change is under way */
    int64_t times[2]; /* to be set when no change is under way */
    bool times_wait, locked;
    bool opened; /* at least once: processes may have some of its contents */
};

struct name { /* of an inode in a directory; an inode may have several */
    struct node *parent, *node;
    struct name *next, *other; /* next: in the table; other: of the same inode */
    struct name *after, *before; /* in the same directory */
    uint32_t hash;
    char text[];
};

struct chunk { /* of a file that is read sequentially */
    struct chunk *next;
    uint64_t at;
    uint32_t size, got;
    int error;
    bool there, unwanted;
    const uint8_t *data;
    uint8_t *room; /* the buffer that holds the data */
};

enum opened { LAZY, OPENING, OPEN, LOST };

struct handle {
    uint64_t id;
    struct node *node;
    struct handle *next, *previous;
    uint32_t flags; /* for the open on the submit side */
    enum opened state;
    int error;
    bool direct, append, writable, comes; /* comes: its data is sent with the answer to its open */
    struct handle *newer, *older; /* readers, by their last use */
    struct handle *lender; /* the handle whose open file it uses */
    uint32_t borrowers;
    bool closing; /* when no handle borrows it any more */
    uint8_t *data; /* the whole contents of a small file */
    uint32_t data_size;
    bool whole;
    uint64_t expected; /* where the next sequential read begins */
    uint32_t window;
    struct chunk *chunks;
    struct parked *parked;
    struct listing *listing;
    bool listed; /* some entries were read */
};

struct request { /* one frame, kept until its answer */
    struct request *next, *previous, *chain;
    uint64_t unique, asked; /* asked: the kernel's number, 0 if no process waits */
    uint64_t sent; /* monotonic ns */
    void (*done)(struct request *r, int error, struct reader *answer);
    uint8_t *room, *frame;
    size_t size, capacity;
    uint16_t op;
    bool urgent, interrupted;
    struct tree *tree;
    struct node *node, *other;
    struct handle *handle;
    struct chunk *chunk;
    uint64_t a, b;
    char *name, *name2;
};

struct ask { /* the kernel's current request; a function that takes the buffer sets it to NULL */
    struct tree *tree;
    const struct fuse_in_header *head;
    const void *body;
    size_t size;
    uint8_t *buffer;
    struct node *node;
};

/* Messages between keeper and server. The answer's value is an errno. */
enum { REMOTE_STREAM = 1, REMOTE_END, REMOTE_SETTLE };
struct remote_message {
    uint32_t what, unused;
    uint64_t value;
};

struct serving {
    struct tree trees[REMOTE_TREES];
    size_t count;
    uint32_t uid, gid, submit_uid, submit_gid; /* ids of the job on this machine, and of its owner on the submit side */
    /* requests come from the supervisor of remote_notify/, not the kernel; it exits when the job is over */
    bool notified;
    bool own_users; /* a user namespace with only one user */
    char job[256];
};
extern struct serving serving;

/* submit_link.c: the stream, and its unanswered requests */
struct request *request_new(uint16_t op, struct node *node, void (*done)(struct request *, int, struct reader *));
void put_number(struct request *r, uint64_t value, size_t bytes);
void put_bytes(struct request *r, const void *data, size_t size);
void put_path(struct request *r, const struct node *node, const char *name);
void request_send(struct request *r);
void link_open(int fd);
int link_fd(void);
bool link_ready(void);
bool link_wants_out(void);
void link_readable(void);
void link_flush(void);
void link_release(void); /* answers that waited for the kernel to be told of changes */
size_t link_unanswered(void);
uint64_t link_way(void); /* ns of a round trip, approximately */
uint64_t link_gathered(void);
uint64_t link_last(void); /* number of the newest request */
void link_skip(uint64_t count); /* numbers of requests in a frame that has the number after them */
uint8_t *link_take(void); /* takes the buffer of a large answer, in its `done` */
struct request *link_find(uint64_t asked, const struct tree *tree);
void request_free(struct request *r);

/* frame.c: the contents of frames */
uint64_t get_number(struct reader *a, size_t bytes);
const uint8_t *get_string(struct reader *a, uint32_t *size);
struct attr get_attr(struct reader *a);
void frame_number(uint8_t *at, uint64_t value, size_t bytes);
void *need(size_t size);

/* inodes.c */
struct node *node_root(struct tree *tree);
struct node *node_of(struct tree *tree, uint64_t id);
uint64_t node_id(const struct node *node);
struct node *node_see(struct node *parent, const char *name, const struct attr *a, uint64_t unique);
bool node_changed(const struct node *node, const struct attr *a, uint64_t unique);
bool is_same_file(const struct node *node, const struct attr *a);
/* whether its contents differ from those known here */
bool node_differs(const struct node *node, const struct attr *a);
void node_wrote(struct node *node, const struct attr *a, uint64_t unique); /* applies the answer to a change of ours */
void node_learn(struct node *node, const struct attr *a, uint64_t unique);
void node_adopt(struct node *node, const struct attr *a); /* takes over all attributes, including the size */
void node_forget(struct node *node, uint64_t count);
struct node *node_hold(struct node *node);
void node_drop(struct node *node);
struct node *name_find(const struct node *parent, const char *name);
void name_put(struct node *parent, const char *name, struct node *node);
void name_drop(struct node *parent, const char *name);
bool node_path(const struct node *node, const char *name, char *to, size_t size);
bool node_believed(const struct node *node);
void node_park(struct node *node, struct ask *q);
void node_settled(struct node *node); /* one change was answered */
bool owner_may(const struct node *node, uint32_t mask);

/* fuse.c: the kernel's side */
void reply(struct tree *tree, uint64_t unique, int error, const void *data, size_t size);
void reply_parts(struct tree *tree, uint64_t unique, struct iovec *parts, int count); /* parts[0] is for the header */
void reply_entry(struct tree *tree, uint64_t unique, struct node *node);
void reply_attr(struct tree *tree, uint64_t unique, struct node *node);
void fill_entry(struct fuse_entry_out *e, struct node *node);
bool kernel_readable(struct tree *tree); /* true: there was a request */
void dispatch(struct ask *q);
void park(struct parked **list, struct ask *q);
void unpark(struct parked **list);
void unpark_refuse(struct parked **list, int error);
uint8_t *take_buffer(struct ask *q);

/* directory_ops.c */
void ask_lookup(struct ask *q);
void ask_getattr(struct ask *q);
void ask_readlink(struct ask *q);
void ask_symlink(struct ask *q);
void ask_mknod(struct ask *q);
void ask_mkdir(struct ask *q);
void ask_unlink(struct ask *q);
void ask_rename(struct ask *q);
void ask_link(struct ask *q);
void ask_statfs(struct ask *q);
void ask_access(struct ask *q);

/* attributes.c */
void ask_setattr(struct ask *q);
void times_send(struct node *node);
uint32_t submit_id(bool given, uint32_t id, uint32_t job, uint32_t submit);

/* late_settings.c: settings of a file that the job writes; they are sent together, and no process waits for them */
bool late_accepts(struct ask *q); /* true: it was answered */
void late_before(const struct ask *q); /* called for each request of the kernel: sends what must not wait for it */
bool late_waits(void);
void late_send(void);

/* late_removals.c: files that the job removes one after the other; no process waits for the submit side */
bool removal_accepts(struct ask *q, struct node *file); /* true: it was answered */
bool removal_refused(struct ask *q); /* true: it was answered by the error of an earlier one in this directory */
void removal_succeeded(const struct request *r); /* the submit side has removed a name that was asked for alone */
bool removals_wait(void);
void removals_send(void); /* called before any other request is sent */
void removals_hurry(void); /* sends them if they have waited long enough */
void ask_fsyncdir(struct ask *q);
void ask_syncfs(struct ask *q);

/* handles.c */
void ask_open(struct ask *q);
void ask_create(struct ask *q);
void ask_release(struct ask *q);
void handle_begin(struct handle *h); /* opens a lazy handle now */
bool handles_begin(struct node *node); /* opens all lazy handles; true: some are under way */
void handles_reopen(void);
void handles_changed(struct node *node); /* data read earlier is outdated */
struct handle *handle_new(struct node *node, uint32_t flags);
struct handle *handle_writable(struct node *node);
bool handle_is_usable(const struct handle *h); /* whether the submit side has it open for certain */
void handle_close(struct handle *h); /* frees it when the submit side has closed it */

/* unopened.c: trees that the job only reads, where the kernel asks nothing at open and close */
int unopened_refuses(uint32_t op); /* errno of a request that is not answered there; 0: it is */
struct handle *handle_of(struct ask *q, uint64_t fh); /* of a request that reads */
bool must_ask_at_open(const struct node *node); /* no lease covers it, so that the kernel asks about its name */
bool unopened_waits(const struct handle *h); /* it is not certain yet which file the submit side opens */
void reader_close(struct node *node);
bool readers_shed(void); /* closes some of them; false: there are none to close */

/* leases.c */
void lease_wish(struct node *directory);
void lease_wish_again(struct node *directory); /* called for repeated requests */
void lease_drop(struct node *directory);
bool lease_covers(const struct node *directory,
                  uint64_t unique); /* whether this request's answer about its entries is still valid */
void lease_believe(struct node *node,
                   uint64_t unique); /* caches the answer to STAT, LIST or OPEN as long as it is valid */
bool lease_stands(uint64_t id);
uint64_t lease_number(const struct node *directory); /* of the one that was granted on it, 0 for none */
/* whether all changes in it since this request are reported */
bool lease_reports(const struct node *directory, uint64_t unique);
void lease_changed(struct node *directory, const char *name); /* we created, removed or renamed an entry ourselves */
void leases_told(struct reader *notice);
void leases_lost(void);

/* readahead.c */
void ask_read(struct ask *q);
void chunks_drop(struct handle *h);

/* writeback.c */
void ask_write(struct ask *q);
void tree_is_full(struct tree *tree); /* writers wait for answers for a while */
void not_kept(struct node *node, int error); /* the next write, flush or fsync of the file reports it */
void ask_flush(struct ask *q);
void ask_fsync(struct ask *q);
void ask_fallocate(struct ask *q);
void ask_lseek(struct ask *q); /* seek.c */

/* xattr.c */
void ask_getxattr(struct ask *q);
void ask_listxattr(struct ask *q);
void ask_setxattr(struct ask *q);
void ask_removexattr(struct ask *q);

/* readdir.c */
void ask_opendir(struct ask *q);
void ask_readdir(struct ask *q);
void ask_releasedir(struct ask *q);
void listing_free(struct handle *h);
void listing_forget(struct node *directory);
void listing_changed(struct node *directory, const char *name); /* a listing does not tell of this name any more */
void listing_ahead(struct node *directory); /* called for each name of it that the submit side is asked about */
bool listing_answers(struct ask *q, const char *name); /* true: it is known whether there is such a name */

/* locks.c */
void ask_lock(struct ask *q);
void locks_retake(struct handle *h); /* on a new stream, after the open */
void locks_forget(struct handle *h);
void locks_close(struct node *node, uint64_t owner);
void ask_interrupt(struct ask *q);

/* cache_refresh.c: makes the kernel write back and drop its data of a file; then applies new attributes */
void refresh_drop(struct node *node, void (*done)(struct node *, void *, int error), void *context);
void refresh_to(struct node *node, const struct attr *attr, uint64_t unique,
                void (*done)(struct node *, void *, int error), void *context);
void refresh_attributes(struct node *node); /* the kernel asks for them before the next write */
int refresh_fd(void);
void refresh_done(void);
bool refresh_asks(struct ask *q); /* true: the request came from the refreshing thread, and is answered */

/* own_files.c: called in a thread that may wait for the kernel */
void keep_files(int one, int other); /* and the trees' tellers; -1: none */

/* expiry.c: what the kernel believes about names longer than a second, until it is told otherwise */
void expire_name(struct node *directory, const char *name, struct node *child);
void expire_attributes(struct node *node);
void expire_entries(struct node *directory); /* of all names in it, and of itself */
bool expiry_awaited(void); /* the kernel is being told of a change in a tree without OPEN */
int expiry_fd(void);
void expiry_done(void);

/* busy_poll.c */
void follow_begin(void);
void follow_asked(const struct fuse_in_header *head);
bool follow_waits(void); /* waits without sleeping; false if it should sleep */
void follow_sleeps(void);
void follow_wakes(void);

/* server.c */

#endif
