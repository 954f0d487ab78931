/* Names of files mapped to the ends of pipes (VS 4.4, 4.5), for programs that are as they are.
 *
 * A process of a job that has such a file runs under a filter of its own (filter.c) by which the kernel asks the
 * supervisor, a child of the keeper, about each call that names a file. Where the name leads to a mapped file, by
 * whatever way (resolve.c), the program is given an end of a connection in place of it; everything else goes on as if
 * nobody had asked.
 *
 * What the end is decides everything. A pipe gives less than was asked for; a read that the supervisor would top up
 * costs two changes of process each; a growing file ends too early. It is a stream socket with SO_RCVLOWAT at its
 * highest: the kernel itself lets a plain read wait until it is whole or all writers have closed, and nobody stands
 * between the two programs. The socket's peek offset, which nobody uses, counts down what is read: positions are known
 * without a trap.
 *
 * The program gets it at a high number, from `first` on. A filter sees numbers only: by this one the calls on mapped
 * descriptors are told from those on all others, which cost nothing.
 *
 * Where the processes are joined in a circle, or a file has several readers, the bytes pass through the supervisor
 * (spool.c), which holds on disk what the kernel would not. */
#ifndef POOL_MAPPING_H
#define POOL_MAPPING_H

#include <stdarg.h>
#include <sys/stat.h>

#include "mapped_files/mapped_files.h"
#include "unotify/notification.h"
#include "unotify/filter_builder.h"

#define SLOTS TRAPPED_NUMBERS /* mapped descriptors of one process at a time */
#define ENDS_MOST (2 * PIPES_MOST)
#define RING (1u << 20) /* of a log, in memory */

enum way { READS, WRITES };

struct log;

struct end { /* a mapped file of a member, one way; or an end that a log feeds or reads */
    uint32_t member;
    enum way way;
    bool mapped; /* by name; else a descriptor that the member is born with */
    bool pipe; /* a kernel pipe and no socket: the other end is one's stdin */
    bool opened; /* once at least */
    bool told_empty; /* to its reader, by a length of 0 that was not known yet */
    bool unread; /* nobody is left who could read it, and nothing has come yet: `fd` is watched (unread.c) */
    char last[256];
    const char *name; /* as the description has it */
    dev_t device; /* of its directory, once its process has said where that is */
    ino_t directory, inode; /* the end's own; 0: it is closed for good */
    ino_t shown; /* what stat tells, also where the end is another one after a checkpoint */
    uint32_t conduit; /* by which the description names it */
    int fd; /* held for whoever opens it, or -1 */
    int guard; /* a copy of what somebody has opened to read (readers.c), or -1 */
    struct end *peer; /* without a log: the other end */
    struct log *log;
    pid_t holder; /* who was given it last, and as what */
    int number;
};

struct outlet {
    struct end *end;
    int fd; /* -1: it has had all, or wants no more */
    uint64_t sent, seen;
    uint64_t moved_us;
};

struct log { /* the bytes of one writer's file between it and its readers */
    struct end *writer;
    int fd; /* -1: it has ended */
    struct outlet *outlets;
    uint32_t count;
    char *ring;
    uint64_t end, kept; /* positions: of all that came; of the first byte in the ring */
    int spool;
    uint64_t punched, limit, bound;
    bool full_disk;
};

struct listener { /* of one member, for all processes that have the filter from it; of one process after a checkpoint */
    int fd; /* -1: they are all gone */
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
    int keeper; /* told of misuse here */
    int poll;
    bool roots; /* a process may have a root directory of its own */
    dev_t root_device;
    ino_t root_inode;
    int64_t started;
    bool misused;
};

extern struct supervisor *over; /* in the supervisor */

struct accusation { /* to the keeper */
    uint32_t member; /* or NO_MEMBER */
    char text[TEXT]; /* without its end */
};

/* mapped_files.c: who speaks to the supervisor first */
struct hello {
    enum {
        HELLO_MEMBER = 1,
        HELLO_END,
        HELLO_PROCESS,
        HELLO_DUMPER,
        HELLO_OVER
    } what; /* a process that is put back; who makes a checkpoint;
                         all members have ended */
    uint32_t member;
    pid_t pid;
    uint32_t conduit; /* HELLO_END: where the member finds the directory of its mapped file */
    enum way way;
    dev_t device;
    ino_t directory;
};
int hello_send(int to, const struct hello *hello, int fd); /* fd -1: none */
bool hello_take(int from, struct hello *hello, int *fd);

/* filter.c */
int mapping_filter(int first, struct failure *f); /* in a member: the descriptor at which it is asked */
const void *mapping_code(int first, size_t *instructions); /* the same for a process that is put back, or NULL */

/* connect.c */
int links_plan(struct supervisor *s, struct failure *f);
int links_directory(const struct job *job, uint32_t member, const char *name, struct stat *st, struct failure *f);
int links_join(struct job *job, struct supervisor *s, struct failure *f);
ino_t inode_of(int fd);
void links_member_gone(struct supervisor *s, uint32_t member);
const char *partner(const struct end *e, char *text, size_t size); /* "pipe to geom" */

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
                             int gate); /* gate: closes when all are put back; or -1 */
void watch(int fd, enum source source, uint32_t which, uint32_t events);
void misuse(struct question *q, const struct end *e, const char *format, ...) __attribute__((format(printf, 3, 4)));
void accuse(uint32_t member, const char *text);
bool answer_descriptor(struct question *q, int fd, int at_least, bool on_exec_closed);
bool replace_descriptor(struct question *q, int fd, int number);

/* resolve.c */
/* The mapped files that a name leads to; false: none. */
struct found {
    struct end *way[2];
    dev_t device;
};
bool find_named(const struct question *q, int directory, const char *path, bool follow, struct found *found);

/* path_calls.c */
void handle(struct question *q);

/* open.c */
void open_named(struct question *q, const struct found *found, uint64_t flags);
void closing(struct question *q, struct end *e, int number);

/* fd_calls.c */
struct end *end_at(pid_t pid, int number);
bool handle_number(struct question *q, int number); /* false: not a mapped one */
void describe(const struct question *q, struct end *e, bool extended, void *into);
bool position(const struct end *e, uint64_t *at); /* bytes read or written so far; false: unknown */
enum { NOT_HELD = -1, UNSEEN = -2 }; /* unseen: a process of the job does not let itself be looked at */
int holder_of(const struct end *e, pid_t not_pid, int not_number,
              pid_t *pid); /* a descriptor of somebody's, or one of these */
ino_t inode_at(pid_t pid, int number);
int number_in(pid_t pid, ino_t inode, int but); /* the first, except one; or one of these */

/* readers.c */
bool reads_directly(const struct end *e);
void readers_begin(void);
void readers_keep(struct end *e, pid_t pid, int number);
void readers_stir(struct end *e);
void readers_event(uint32_t which, bool ended);
void readers_gone(struct end *e);
int readers_look(void); /* milliseconds until the next look; -1: when something happens */

/* unread.c */
uint64_t unread_length(const struct question *q, struct end *e);
bool unread_stays(struct end *e, int fd);
void unread_forget(struct end *e);
void unread_event(uint32_t which);
void unread_begin(void);
void unread_judge_all(void);

/* broken_pipe.c */
void shut(const struct end *writer, int fd); /* nobody reads any more what it writes */

/* seeks.c */
extern struct displaced { /* kept: what belongs there; other: the end of the socket that stays here */
    pid_t pid;
    int number, kept, other;
    struct end *end;
    ino_t inode;
    uint64_t at;
    char call[80];
} displaced[SLOTS];
extern uint32_t displaced_count;
void displaced_look(void);
void displaced_begin(struct question *q, struct end *e, int number, int64_t to, const char *call);
void displaced_back(struct question *q, struct displaced *d);
void displaced_forget(struct displaced *d);
void displaced_fill(int fd);
int displaced_kept(const struct end *e);
struct displaced *displaced_at(pid_t pid, int number);

/* skips.c */
void ahead_begin(struct question *q, int fd, uint64_t by, int64_t to); /* `fd` is its own then */
bool ahead_any(void);
void ahead_look(void);
void ahead_give_back(void);
bool ahead_again(const struct question *q, int64_t *to); /* where a call that was given back leads to */
extern struct again { /* calls that were given back and not made again yet */
    pid_t tid;
    int number;
    int64_t by, to;
} again[SLOTS];
extern uint32_t again_count;
uint32_t ahead_list(struct again *list); /* of those that wait; room for SLOTS */

/* quiesce.c: the supervisor stands still while a checkpoint is made, and tells all that it knows */
struct settled { /* then rows as in an image (image/image.h): of ends, logs, outlets, strays, seeks; then what is in the
                    rings */
    uint32_t ends, logs, outlets, strays, seeks, first, roots, unused;
    int64_t since;
};
#define ASK_MEMBER 0x706f6f6c /* a command of fcntl by which a held process is made to show whose files it has */
#define GIVEN_BACK 513 /* ERESTARTNOINTR, which the kernel and trace/tracee.c take for a call to be made again */
enum say { SAY_GIVE_BACK = 1, SAY_HELD, SAY_GO };
void settle(int talk);

/* spool.c */
void log_pump(struct log *l);
void log_gone(struct log *l, uint32_t outlet); /* that reader */
bool log_full(const struct log *l);
uint64_t log_held(const struct log *l);

/* deadlock.c */
bool member_of(const struct supervisor *s, pid_t session, uint32_t *member);
int stuck_look(struct supervisor *s); /* milliseconds until the next look; -1: when something happens */

#endif
