/* A checkpoint as it lies on disk, and in memory while it is made or put back.
 *
 * Files in a directory: `meta`, tables of fixed-size rows, each checked before anything is done with it, and `pages`,
 * the contents of memory: chunks that are read and summed whole, each of one or more extents; of much memory the second
 * half is in `pages_2`, since who writes to a file keeps all others from it meanwhile. An image may take over chunks of
 * earlier ones, whose pages then lie beside it as `pages.1`, `pages_2.1` and so on; `carried` is of programs and
 * libraries. Rows name each other by their index, texts and larger values by their place in `bytes`. All numbers are of
 * the processor that made it; another one refuses it by `arch`. */
#ifndef POOL_IMAGE_H
#define POOL_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/common.h"

#define IMAGE_MAGIC "POOLIMG\n"
#define IMAGE_VERSION 11
#define CHUNK (1ul << 20) /* at most; fits the processor's cache */
#define NOBODY UINT32_MAX
/* CARRIED: which of the files of contents is `carried`; those before it are the `pages` of as many images. */
#define CARRIED 8u
#define MORE (CARRIED + 1) /* the first `pages_2`; those of earlier images follow it */
#define SOURCES (MORE + CARRIED) /* files of contents at most */
#define SOURCE_NAME 24

struct span { /* in `bytes`; a text has its NUL within */
    uint32_t at, size;
};

struct machine {
    char kernel[64];
    uint64_t features[8]; /* trace/x86_64.c says which */
    int64_t monotonic_ns, boot_ns, wall_ns; /* as the job's clocks stood */
    uint64_t vdso_sum;
    uint32_t xstate, vdso_size;
    uint64_t id, stored; /* of this image; bytes of all its files of pages */
    uint32_t sources; /* of how many images those are */
    uint32_t first; /* of the high numbers of mapped descriptors; 0: no file is mapped to a pipe */
    uint32_t roots, unused; /* roots: 1 when a process with mapped files may have a root directory of its own */
    int64_t mapped_since; /* what stat tells of mapped files, s of wall time */
    struct span scratch; /* the job's scratch directory where it ran */
};

struct layout { /* struct prctl_mm_map without its pointers */
    uint64_t start_code, end_code, start_data, end_data, start_brk, brk, start_stack, arg_start, arg_end, env_start,
        env_end;
};

enum { PROCESS_STOPPED = 1, PROCESS_ZOMBIE = 2, PROCESS_SUBREAPER = 4, PROCESS_NO_DUMP = 8, PROCESS_NO_THP = 16 };
struct process {
    int32_t pid, parent, group, session;
    uint32_t flags, status, umask, personality; /* status: of a zombie, as wait gives it; of a stopped one the signal */
    int32_t nice, death_signal;
    struct span cwd, exe, auxv;
    struct layout layout;
    uint64_t limits[16][2];
    uint64_t timers[3][4]; /* setitimer: interval s, us, value s, us */
    uint64_t exe_size, exe_sum, born; /* born: in clock ticks, by which a process is known again */
    uint32_t mapped; /* 1 and the index of the member whose mapped files it has; 0: none */
    int32_t out_of_memory; /* oom_score_adj */
    uint32_t dump_filter, membarrier;
    uint32_t terminal; /* 1 and the row in `files` of its controlling terminal's master; 0: none */
    uint32_t directory; /* 1 and the row in `files` of its current directory, which was removed; 0: it has a name */
    uint32_t login, unused; /* login: who logged in (/proc/PID/loginuid) */
};

struct thread {
    uint32_t owner; /* its process */
    int32_t tid;
    char name[16];
    uint64_t mask, clear_tid, robust, robust_size;
    uint64_t alt_at, alt_size, rseq_at;
    uint32_t alt_flags, rseq_size, rseq_signature, slack;
    int32_t policy, priority;
    struct span registers, xstate;
    uint64_t left; /* ns of the while that its system call waits; 0: none */
    int32_t nice;
    uint32_t io_priority, umask; /* umask: where it has a current directory of its own */
    struct span cwd, processors; /* processors: a cpu_set_t, where it is bound to some */
};

enum { AREA_ANON, AREA_FILE, AREA_SHARED, AREA_VDSO, AREA_VVAR, AREA_SYSV };
struct area {
    uint32_t owner, kind, prot, flags; /* flags of mmap */
    uint64_t start, end, offset;
    uint32_t file, advice; /* which `file`, or NOBODY; a bit for each ADVICE_* */
    uint64_t sysv; /* of System V shared memory the id */
};
enum {
    ADVICE_HUGE = 1,
    ADVICE_NO_HUGE = 2,
    ADVICE_NO_FORK = 4,
    ADVICE_NO_DUMP = 8,
    ADVICE_WIPE = 16,
    ADVICE_DROP = 32,
    ADVICE_RANDOM = 64,
    ADVICE_SEQUENTIAL = 128,
    ADVICE_MERGEABLE = 256,
    ADVICE_LOCKED = 512,
    ADVICE_ON_FAULT = 1024
};

struct guard { /* pages that may not be touched */
    uint32_t owner, unused;
    uint64_t start, end;
};

struct chunk { /* of the file of that source: image.c has their names */
    uint64_t place, size, sum;
    uint32_t source, unused;
};

/* Of a process's memory, or of a file's contents where `file` is not NOBODY. Those of one chunk follow each other. */
struct extent {
    uint32_t owner, file, chunk, offset; /* offset: in the chunk */
    uint64_t at, size;
};

enum kind {
    FILE_PLAIN, /* regular, directory, fifo with a name, harmless device: opened again by its path */
    FILE_PIPE, /* number: which pipe; contents with the end that is read; times: the first is 1 + the index of one of
                * the job's pipes that leads to another machine */
    FILE_EVENT, /* number: the count */
    FILE_TIMER, /* number: the clock; times: interval and value in ns; */
    FILE_EPOLL,
    FILE_MEMORY, /* memfd, shared anonymous memory, a deleted file: contents in extents; number 1: it is to lie on disk
                  */
    FILE_PAIR, /* end of a connection of unix sockets within the job; state/sockets.c knows what is in it */
    FILE_NAMED, /* unix socket that is not connected */
    FILE_SIGNAL, /* number: the mask */
    FILE_MAPPED, /* only mapped */
    FILE_INOTIFY, /* its watches are in `inotify` */
    FILE_TREE, /* in the job's own /tmp: nobody has it open by this row; contents in extents, or of a link */
    FILE_TERMINAL, /* end of a pseudo-terminal; state/terminals.c knows what is in it */
    FILE_REMOVED, /* directory or symbolic link that has no name any more; contents of a link */
    FILE_PIDFD, /* number: of which process; 0: of one that has ended */
    FILE_SYSV, /* a System V object: flags: which kind; number: its id; device: its key; state/sysv_ipc.c knows the rest
                */
    FILE_KINDS
};
struct file { /* an open file, shared by every descriptor that names it */
    uint32_t kind, flags, mode, peer; /* peer: the other end's row, or NOBODY */
    int64_t position;
    uint64_t size, sum, device, inode, number,
        times[2]; /* of a mapped file: 1 when what is mapped of it is in extents, and its times of change */
    struct span path, contents;
    int32_t owner_kind, owner,
        signal; /* who is told when it can be read, and by which signal (F_SETOWN_EX, F_SETSIG) */
    uint32_t seals; /* of a memory file */
};

struct descriptor {
    uint32_t owner, file;
    int32_t number;
    uint32_t close_on_exec;
};

struct file_lock { /* state/file_locks.c knows the kinds */
    uint32_t owner, file, kind, exclusive;
    int32_t number; /* a descriptor of the owner's */
    uint32_t unused;
    uint64_t start, length; /* length 0: without end */
};

struct watch { /* of an epoll */
    uint32_t file, target; /* rows of `file` */
    int32_t number;
    uint32_t events;
    uint64_t data;
};

#define INOTIFY_MOST (1 << 20)
struct inotify_watch { /* those of one file in the order of their numbers */
    uint32_t file, target; /* rows of `file`; target: what is watched, where it has no name, or NOBODY */
    int32_t number;
    uint32_t mask;
    struct span path;
};

struct handler {
    uint32_t owner, signal;
    uint64_t action[4]; /* the kernel's struct sigaction */
};

struct pending {
    uint32_t owner; /* process, or thread where `thread` is not 0 */
    int32_t thread;
    uint8_t info[128];
};

struct alarm_timer { /* timer_create */
    uint32_t owner;
    int32_t id, clock, notify, signal, thread;
    uint64_t value, times[4]; /* interval s, ns, value s, ns */
};

struct member_row { /* of the job's own processes, in the order of the description */
    int32_t pid; /* 0: it is over */
    uint32_t unused;
    struct member_end end; /* of a living one what it has used so far */
};

/* What the supervisor of mapped files knows (mapped_files/mapped_files.h), in its order. Where it tells it to a dumper,
 * its own descriptors stand in place of rows of `files`, and the inode in place of an end's row. */
struct mapped_end {
    uint64_t inode, shown;
    uint32_t file,
        held; /* the end itself, NOBODY: closed; as which the supervisor keeps it for whoever opens it, or NOBODY */
    uint32_t opened, told_empty;
};

struct mapped_log {
    uint64_t end, kept, punched, limit;
    uint32_t file, spool; /* NOBODY: it has ended; none */
    uint32_t full, unused;
    struct span ring; /* from `kept` to `end` */
};

struct mapped_outlet { /* in the order of the logs */
    uint64_t sent;
    uint32_t log, file;
};

struct mapped_stray { /* a descriptor that stands elsewhere than its pipe */
    uint64_t inode, at;
    uint32_t end, file, kept, other;
    int32_t pid, number;
    char call[80];
};

struct mapped_seek { /* a call that had begun to pass over what it leaves out: done again, it goes to the same place */
    int32_t tid, number;
    int64_t by, to;
};

struct table {
    void *rows;
    uint32_t count, room, size;
};

/* Everything of an image but the pages. The tables in the order of the file. */
/* clang-format off */
#define TABLES(X) \
    X(processes, process) \
    X(threads, thread) \
    X(areas, area) \
    X(chunks, chunk) \
    X(extents, extent) \
    X(files, file) \
    X(descriptors, descriptor) \
    X(locks, file_lock) \
    X(watches, watch) \
    X(inotify, inotify_watch) \
    X(handlers, handler) \
    X(pendings, pending) \
    X(alarms, alarm_timer) \
    X(members, member_row) \
    X(ends, mapped_end) \
    X(logs, mapped_log) \
    X(outlets, mapped_outlet) \
    X(strays, mapped_stray) \
    X(seeks, mapped_seek) \
    X(guards, guard)
/* clang-format on */
struct image {
    struct machine machine;
#define X(name, row) struct table name;
    TABLES(X)
#undef X
    struct table bytes;
    void *raw; /* what was read, when it was */
};

/* A loop over the rows of a table. */
#define EACH(image, table, row, at) \
    for (struct row *at = (image)->table.rows; at && at < (struct row *)(image)->table.rows + (image)->table.count; \
         at++)

void image_init(struct image *image);
void image_free(struct image *image);
void *table_add(struct table *table); /* a zeroed row; the process ends when there is no memory */
struct span image_put(struct image *image, const void *data, size_t size);
struct span image_text(struct image *image, const char *text);
const char *image_string(const struct image *image, struct span span); /* "" when there is none */
const void *image_bytes(const struct image *image, struct span span);
int image_write(const struct image *image, int directory, bool sync);
int image_read(struct image *image, int directory, const char *name, const uint64_t pages[SOURCES], const char **wrong);
const char *source_name(char name[SOURCE_NAME], unsigned source);
uint64_t checksum(const void *data, size_t size);

/* writer.c: contents on their way into an image */
struct image_writer {
    struct image *image;
    int directory, pages, more; /* descriptors; more: of the second file of pages, or -1 */
    uint64_t pages_size, more_size;
    bool open; /* more may be put into the last chunk */
    uint32_t moved; /* chunks before it are in `pages` */
};
int write_at(int fd, const void *data, size_t size, uint64_t place);
int writer_put(struct image_writer *w, uint32_t owner, uint32_t file, uint64_t at, const void *data, size_t size,
               struct failure *f);
void writer_plan(struct image_writer *w, uint32_t owner, uint64_t start,
                 uint64_t end); /* memory of a process, written later */
uint32_t writer_planned(const struct image_writer *w, uint32_t *firsts, uint64_t *bytes, uint32_t *parts);
void writer_place(struct image_writer *w, struct chunk *c, bool second);

/* reader.c: contents on their way out of an image; NULL: they cannot be read, or are damaged */
struct image_reader {
    struct image *image;
    int pages[SOURCES]; /* descriptors, or -1 */
    uint64_t sizes[SOURCES];
    const char *mapped[SOURCES]; /* or NULL */
};
void chunks_map(struct image_reader *r);
const char *chunk_look(struct image_reader *r, uint32_t chunk, char *buffer); /* where it is mapped, or in the buffer */
const char *chunk_read(struct image_reader *r, uint32_t chunk, char *buffer);
const char *extent_read(struct image_reader *r, const struct extent *e); /* until the next is */

/* workers.c: how many may work at a time; work that is shared out among processes. A unit of it: 0 or -1 and `f`. */
#define SLOWEST 200000 /* bytes in a millisecond, a tenth of what is usual */
#define MUCH (16ul << 20) /* bytes for which more than one are begun */
int workers_most(void);
typedef int unit_work(void *what, uint32_t unit, char *buffer, struct failure *f);
int workers_run(unit_work *work, void *what, uint32_t units, uint64_t bytes, bool behind,
                struct failure *f); /* behind: all others */

#endif
