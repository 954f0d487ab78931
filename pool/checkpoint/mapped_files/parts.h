/* Names of files mapped to the ends of pipes (VS 4.4, 4.5), for unmodified programs.
 *
 * A process with such a file runs under a filter (filter.c) by which the kernel asks the supervisor, a child of the
 * keeper, about each call that names a file. If the name leads to a mapped file, by whatever way (resolve.c), the
 * program gets an end of a connection instead of the file. All other calls proceed normally.
 *
 * The kind of connection decides the rest. A pipe returns fewer bytes than asked for; reads that the supervisor tops up
 * would cost two context switches each; a growing file ends too early. So it is a stream socket with the highest
 * SO_RCVLOWAT: the kernel itself makes a plain read wait until it is complete or all writers have closed, and no
 * process is between the two programs. The socket's peek offset, which programs do not use, counts the bytes read, so
 * positions are known without a trap.
 *
 * The program gets the end at a high number, from `first` on. A filter sees only numbers: by them it tells calls on
 * mapped files from all others, which cost nothing. If the processes form a cycle, or a file has several readers, the
 * bytes pass through the supervisor (spool.c), which stores on disk more than the kernel would. */
#ifndef POOL_MAPPED_FILES_PARTS_H
#define POOL_MAPPED_FILES_PARTS_H

#include <stdarg.h>
#include <sys/stat.h>

#include "mapped_files/mapped_files.h"
#include "unotify/notification.h"
#include "unotify/filter_builder.h"

#define SLOTS TRAPPED_NUMBERS /* mapped file descriptors of one process at a time */
#define ENDS_MOST (2 * PIPES_MOST)
#define RING (1u << 20) /* bytes of a log in memory */

enum way { READS, WRITES };

struct log;

struct end { /* one direction of a member's mapped file; or an end that a log feeds or reads */
    uint32_t member;
    enum way way;
    bool mapped; /* by name; else an inherited file descriptor */
    bool pipe; /* a kernel pipe instead of a socket: its other end is some process's stdin or stdout, or its reader
                  accepts short reads */
    bool opened; /* once at least */
    bool told_empty; /* its reader was given a length of 0, before the length was known */
    bool unread; /* no process is left that could read it, and no bytes have come yet: `fd` is watched (unread.c) */
    char last[256];
    const char *name; /* as in the job description */
    dev_t device; /* of its directory, once its process has sent it */
    ino_t directory, inode; /* inode: of the end itself; 0: closed for good */
    ino_t shown; /* the inode that stat reports, unchanged after a restore */
    uint32_t conduit; /* the pipe of the job description */
    int fd; /* kept for the next open, or -1 */
    int guard; /* a copy of an end that is open for reading (readers.c), or -1 */
    struct end *peer; /* without a log: the other end */
    struct log *log;
    pid_t holder; /* the process that got it last, and the number there */
    int number;
};

struct outlet {
    struct end *end;
    int fd; /* -1: it has everything, or its reader is gone */
    uint64_t sent, seen;
    uint64_t moved_us;
};

struct log { /* the bytes of one writer's file between it and its readers */
    struct end *writer;
    int fd; /* -1: the writer has closed it */
    struct outlet *outlets;
    uint32_t count;
    char *ring;
    uint64_t end, kept; /* end: position after the last byte received; kept: position of the first byte in the ring */
    int spool;
    uint64_t punched, limit, bound;
    bool full_disk;
};

struct listener { /* of one member, for all processes that inherited its filter; after a restore, of one process */
    int fd; /* -1: all its processes are gone */
    uint32_t member;
};

struct supervisor {
    const struct job *job;
    struct end ends[ENDS_MOST];
    uint32_t end_count;
    struct log logs[PIPES_MOST];
    uint32_t log_count;
    int first; /* of the high numbers */
    struct listener *listeners;
    uint32_t listener_count;
    pid_t pids[MEMBERS_MOST];
    int keeper; /* receives reports of misuse */
    int poll;
    bool roots; /* a process may have a root directory of its own */
    dev_t root_device;
    ino_t root_inode;
    int64_t started;
    bool misused;
};

extern struct supervisor *over; /* the supervisor's own state */

struct accusation { /* to the keeper */
    uint32_t member; /* or NO_MEMBER */
    char text[TEXT]; /* without a NUL */
};

/* mapped_files.c: first messages to the supervisor */
struct hello {
    enum {
        HELLO_MEMBER = 1,
        HELLO_END,
        HELLO_PROCESS,
        HELLO_DUMPER,
        HELLO_OVER
    } what; /* HELLO_PROCESS: a restored process; HELLO_DUMPER: a dumper; HELLO_OVER: all members have ended */
    uint32_t member;
    pid_t pid;
    uint32_t conduit; /* HELLO_END: the directory of a mapped file, as its member finds it */
    enum way way;
    dev_t device;
    ino_t directory;
};
int hello_send(int to, const struct hello *hello, int fd); /* fd -1: none */
bool hello_take(int from, struct hello *hello, int *fd);

/* filter.c */
int mapping_filter(int first, struct failure *f); /* in a member: the listener's file descriptor */
const void *mapping_code(int first, size_t *instructions); /* the same filter for a restored process, or NULL */

/* connect.c */
int links_plan(struct supervisor *s, struct failure *f);
int links_directory(const struct job *job, uint32_t member, const char *name, struct stat *st, struct failure *f);
int links_join(struct job *job, struct supervisor *s, struct failure *f);
ino_t inode_of(int fd);
void links_member_gone(struct supervisor *s, uint32_t member);
const char *partner(const struct end *e, char *text, size_t size); /* for example "pipe to geom" */

/* supervisor.c */
enum source {
    FROM_MEMBERS = 1,
    FROM_LISTENER,
    FROM_LOG,
    FROM_OUTLET,
    FROM_AHEAD,
    FROM_READER,
    FROM_HOLDER,
    FROM_UNREAD
};
_Noreturn void mapping_serve(struct supervisor *s, int members,
                             int gate); /* gate: closed when all processes are restored; or -1 */
void watch_fd(int fd, enum source source, uint32_t which, uint32_t events);
void misuse(struct notification *q, const struct end *e, const char *format, ...) __attribute__((format(printf, 3, 4)));
void accuse(uint32_t member, const char *text);
bool answer_descriptor(struct notification *q, int fd, int at_least, bool on_exec_closed);
bool replace_descriptor(struct notification *q, int fd, int number);

/* resolve.c */
/* The mapped files that a name leads to; false: none. */
struct found {
    struct end *way[2];
    dev_t device;
};
bool find_named(const struct notification *q, int directory, const char *path, bool follow, struct found *found);

/* path_calls.c */
void handle(struct notification *q);

/* open.c */
void open_named(struct notification *q, const struct found *found, uint64_t flags);
void closing(struct notification *q, struct end *e, int number);

/* fd_calls.c */
struct end *end_at(pid_t pid, int number);
bool handle_number(struct notification *q, int number); /* false: not a mapped file */
void describe_end(const struct notification *q, struct end *e, bool extended, void *into);
bool position(const struct end *e, uint64_t *at); /* bytes read or written so far; false: unknown */
enum { NOT_HELD = -1, UNSEEN = -2 }; /* UNSEEN: the supervisor may not read a process of the job */
int holder_of(const struct end *e, pid_t not_pid, int not_number,
              pid_t *pid); /* a file descriptor number of some process, or one of these */
ino_t inode_at(pid_t pid, int number);
int number_in(pid_t pid, const struct end *end, int but); /* the first number except `but`; or one of these */

/* readers.c */
bool reads_directly(const struct end *e);
bool shows_pipe(const struct end *e); /* its program is not shown a file, but the pipe that it is */
void readers_begin(void);
void readers_keep(struct end *e, pid_t pid, int number);
void readers_stir(struct end *e);
void readers_event(uint32_t which, bool ended);
void readers_gone(struct end *e);
int readers_look(void); /* milliseconds until the next check; -1: only on an event */

/* unread.c */
uint64_t unread_length(const struct notification *q, struct end *e);
bool unread_stays(struct end *e, int fd);
void unread_forget(struct end *e);
void unread_event(uint32_t which);
void unread_begin(void);
void unread_judge_all(void);

/* broken_pipe.c */
void shut_reading_end(const struct end *writer, int fd); /* when no process reads what it writes any more */

/* seeks.c */
extern struct displaced { /* kept: the mapped end; other: the other end of the socket that replaces it */
    pid_t pid;
    int number, kept, other;
    struct end *end;
    ino_t inode;
    uint64_t at;
    char call[80];
} displaced[SLOTS];
extern uint32_t displaced_count;
void displaced_look(void);
void displaced_begin(struct notification *q, struct end *e, int number, int64_t to, const char *call);
void displaced_back(struct notification *q, struct displaced *d);
void displaced_forget(struct displaced *d);
void displaced_fill(int fd);
int displaced_kept(const struct end *e);
struct displaced *displaced_at(pid_t pid, int number);

/* skips.c */
void ahead_begin(struct notification *q, int fd, uint64_t by, int64_t to); /* takes ownership of `fd` */
bool ahead_any(void);
void ahead_look(void);
void ahead_give_back(void);
bool ahead_again(const struct notification *q, int64_t *to); /* the target of a call that was returned to its caller */
extern struct again { /* calls that were returned and not repeated yet */
    pid_t tid;
    int number;
    int64_t by, to;
} again[SLOTS];
extern uint32_t again_count;
uint32_t ahead_list(struct again *list); /* lists the waiting calls; room for SLOTS */

/* quiesce.c: the supervisor pauses during a dump, and sends its state */
/* followed by rows as in an image (image/image.h): ends, logs, outlets, strays, seeks; then the contents of the
 * rings */
struct settled {
    uint32_t ends, logs, outlets, strays, seeks, first, roots, unused;
    int64_t since;
};
#define ASK_MEMBER 0x706f6f6c /* a command of fcntl by which the dumper makes a stopped process show its member */
#define GIVEN_BACK 513 /* ERESTARTNOINTR: the kernel and trace/tracee.c repeat such a call */
enum say { SAY_GIVE_BACK = 1, SAY_HELD, SAY_GO };
void settle(int talk);

/* spool.c */
void log_pump(struct log *l);
void log_gone(struct log *l, uint32_t outlet); /* that reader is gone */
bool log_full(const struct log *l);
uint64_t log_held(const struct log *l);

/* deadlock.c */
bool member_of(const struct supervisor *s, pid_t session, uint32_t *member);
int stuck_look(struct supervisor *s); /* milliseconds until the next check; -1: only on an event */

#endif
