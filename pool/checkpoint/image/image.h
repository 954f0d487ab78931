/* The layout of a checkpoint image, on disk and in memory. A directory holds `meta`, tables of fixed-size rows, each of
 * which is checked before it is used, and `pages`, the contents of memory. Contents are chunks, which are read and
 * checksummed whole; a chunk holds one or more extents. For much memory the second half is in `pages_2`, because a file
 * has only one writer at a time. An image may reuse chunks of earlier images, whose pages then lie beside it as
 * `pages.1`, `pages_2.1` and so on. `carried` holds programs and libraries.
 *
 * Rows refer to each other by index, and to texts and larger values by their offset in `bytes`. All numbers are in the
 * byte order of the processor that made the image; `arch` lets another kind of processor refuse it. */
#ifndef POOL_IMAGE_H
#define POOL_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/common.h"

#define IMAGE_MAGIC "POOLIMG\n"
#define IMAGE_VERSION 12
#define CHUNK (1ul << 20) /* at most; fits the CPU cache */
#define NOBODY UINT32_MAX
/* The number of `carried` among the contents files. Those before it are the `pages` files, one for each image. */
#define CARRIED 8u
#define MORE (CARRIED + 1) /* the first `pages_2`; those of earlier images follow */
#define SOURCES (MORE + CARRIED) /* contents files at most */
#define SOURCE_NAME 24

struct span { /* a range in `bytes`; a text includes its NUL */
    uint32_t at, size;
};

struct machine {
    char kernel[64];
    uint64_t features[8]; /* trace/x86_64.c defines the bits */
    int64_t monotonic_ns, boot_ns, wall_ns; /* the job's clocks at the dump */
    uint64_t vdso_sum;
    uint32_t xstate, vdso_size;
    uint64_t id, stored; /* id: of this image; stored: bytes of all its pages files */
    uint32_t sources; /* number of images whose pages it uses */
    uint32_t first; /* the first of the high numbers of mapped file descriptors; 0: no file is mapped to a pipe */
    uint32_t roots, unused; /* roots: 1 when a process with mapped files may have a root directory of its own */
    int64_t mapped_since; /* the time that stat reports for mapped files, in seconds of wall time */
    struct span scratch; /* path of the job's scratch directory where it ran */
};

struct layout { /* struct prctl_mm_map without its pointers */
    uint64_t start_code, end_code, start_data, end_data, start_brk, brk, start_stack, arg_start, arg_end, env_start,
        env_end;
};

enum { PROCESS_STOPPED = 1, PROCESS_ZOMBIE = 2, PROCESS_SUBREAPER = 4, PROCESS_NO_DUMP = 8, PROCESS_NO_THP = 16 };
struct process {
    int32_t pid, parent, group, session;
    /* status: of a zombie, as wait reports it; of a stopped process, the signal */
    uint32_t flags, status, umask, personality;
    int32_t nice, death_signal;
    struct span cwd, exe, auxv;
    struct layout layout;
    uint64_t limits[16][2];
    uint64_t timers[3][4]; /* setitimer: interval s, us, value s, us */
    uint64_t exe_size, exe_sum, born; /* born: start time in clock ticks, which identifies a process */
    uint32_t mapped; /* 1 + the index of the member whose mapped files it has; 0: none */
    int32_t out_of_memory; /* oom_score_adj */
    uint32_t dump_filter, membarrier;
    uint32_t terminal; /* 1 + the row in `files` of its controlling terminal's master; 0: none */
    /* 1 + the row in `files` of its current directory, if that was removed; 0: the directory has a name */
    uint32_t directory;
    uint32_t login, unused; /* login: /proc/PID/loginuid */
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
    uint64_t left; /* remaining ns of the timeout of its system call; 0: none */
    int32_t nice;
    uint32_t io_priority, umask; /* umask: if its current directory is not shared with the process */
    struct span cwd, processors; /* processors: a cpu_set_t, if its affinity is restricted */
};

enum { AREA_ANON, AREA_FILE, AREA_SHARED, AREA_VDSO, AREA_VVAR, AREA_SYSV };
struct area {
    uint32_t owner, kind, prot, flags; /* flags of mmap */
    uint64_t start, end, offset;
    uint32_t file, advice; /* file: row in `files`, or NOBODY; advice: bits ADVICE_* */
    uint64_t sysv; /* id of the System V shared memory */
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

struct guard { /* guard pages (MADV_GUARD_INSTALL) */
    uint32_t owner, unused;
    uint64_t start, end;
};

struct chunk { /* of the contents file `source`; image.c has their names */
    uint64_t place, size, sum;
    uint32_t source, unused;
};

/* Memory of a process, or contents of a file if `file` is not NOBODY. The extents of one chunk follow each other. */
struct extent {
    uint32_t owner, file, chunk, offset; /* offset: within the chunk */
    uint64_t at, size;
};

enum kind {
    FILE_PLAIN, /* regular file, directory, named pipe, harmless device: opened again by its path */
    /* number: which pipe; its first row has the contents; times[0]: 1 + the index of the job's pipe to another
     * machine */
    FILE_PIPE,
    FILE_EVENT, /* number: the count */
    FILE_TIMER, /* number: the clock; times: interval and value in ns */
    FILE_EPOLL,
    /* memfd, shared anonymous memory, deleted file: contents in extents; number 1: the restored file lies on disk */
    FILE_MEMORY,
    FILE_PAIR, /* end of a connection of unix sockets within the job; state/sockets.c defines the contents */
    FILE_NAMED, /* unix socket that is not connected */
    FILE_SIGNAL, /* number: the signal mask */
    FILE_MAPPED, /* mapped, not open */
    FILE_INOTIFY, /* its watches are in `inotify` */
    FILE_TREE, /* file in the job's own /tmp, not open by this row; contents in extents, or the link's target */
    FILE_TERMINAL, /* end of a pseudo-terminal; state/terminals.c defines the contents */
    FILE_REMOVED, /* removed directory or symbolic link; contents: the link's target */
    FILE_PIDFD, /* number: the pid; 0: of a process that has exited */
    /* System V object: flags: its kind; number: its id; device: its key; state/sysv_ipc.c defines the rest */
    FILE_SYSV,
    FILE_INET, /* TCP or UDP socket of the job's own network; state/inet.h defines the contents */
    FILE_KINDS
};
struct file { /* an open file description, shared by all its file descriptors */
    uint32_t kind, flags, mode, peer; /* peer: the other end's row, or NOBODY */
    int64_t position;
    uint64_t size, sum, device, inode, number,
        times[2]; /* of a mapped file: 1 if its mapped contents are in extents, and its modification and change times */
    struct span path, contents;
    int32_t owner_kind, owner, signal; /* F_SETOWN_EX and F_SETSIG: the process to notify of input, and the signal */
    uint32_t seals; /* of a memory file */
};

struct descriptor {
    uint32_t owner, file;
    int32_t number;
    uint32_t close_on_exec;
};

struct file_lock { /* state/file_locks.c defines the kinds */
    uint32_t owner, file, kind, exclusive;
    int32_t number; /* a file descriptor of the owner's */
    uint32_t unused;
    uint64_t start, length; /* length 0: to the end of the file */
};

struct watch { /* an entry of an epoll */
    uint32_t file, target; /* rows of `file` */
    int32_t number;
    uint32_t events;
    uint64_t data;
};

#define INOTIFY_MOST (1 << 20)
struct inotify_watch { /* the watches of one file are in the order of their numbers */
    uint32_t file, target; /* rows of `file`; target: the watched file if it has no name, or NOBODY */
    int32_t number;
    uint32_t mask;
    struct span path;
};

struct handler {
    uint32_t owner, signal;
    uint64_t action[4]; /* the kernel's struct sigaction */
};

struct pending {
    uint32_t owner; /* a process, or a thread if `thread` is not 0 */
    int32_t thread;
    uint8_t info[128];
};

struct alarm_timer { /* timer_create */
    uint32_t owner;
    int32_t id, clock, notify, signal, thread;
    uint64_t value, times[4]; /* interval s, ns, value s, ns */
};

struct member_row { /* the job's members, in the order of the description */
    int32_t pid; /* 0: it has exited */
    uint32_t unused;
    struct member_end end; /* of a running one: its use so far */
};

/* State of the supervisor of mapped files (mapped_files/mapped_files.h), in its order. In the supervisor's message to a
 * dumper, file descriptors replace rows of `files`, and the inode identifies an end. */
struct mapped_end {
    uint64_t inode, shown;
    /* file: the end itself, NOBODY: closed; held: the descriptor that the supervisor keeps for the next open, or
     * NOBODY */
    uint32_t file, held;
    uint32_t opened, told_empty;
};

struct mapped_log {
    uint64_t end, kept, punched, limit;
    uint32_t file, spool; /* file: NOBODY if closed; spool: NOBODY if there is none */
    uint32_t full, unused;
    struct span ring; /* the bytes from `kept` to `end` */
};

struct mapped_outlet { /* in the order of the logs */
    uint64_t sent;
    uint32_t log, file;
};

struct mapped_stray { /* a file descriptor whose position differs from its pipe's */
    uint64_t inode, at;
    uint32_t end, file, kept, other;
    int32_t pid, number;
    char call[80];
};

struct mapped_seek { /* an interrupted call that skips bytes: when it is restarted, it skips to the same position */
    int32_t tid, number;
    int64_t by, to;
};

struct table {
    void *rows;
    uint32_t count, room, size;
};

/* Everything of an image except the pages. The tables are in the order of the file. */
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
    void *raw; /* the bytes of the file, after image_read */
};

/* A loop over the rows of a table. */
#define EACH(image, table, row, at) \
    for (struct row *at = (image)->table.rows; at && at < (struct row *)(image)->table.rows + (image)->table.count; \
         at++)

void image_init(struct image *image);
void image_free(struct image *image);
void *table_add(struct table *table); /* a zeroed row; the process exits if there is no memory */
struct span image_put(struct image *image, const void *data, size_t size);
struct span image_text(struct image *image, const char *text);
const char *image_string(const struct image *image, struct span span); /* "" if there is none */
const void *image_bytes(const struct image *image, struct span span);
int image_write(const struct image *image, int directory, bool sync);
int image_read(struct image *image, int directory, const char *name, const uint64_t pages[SOURCES], const char **wrong);
const char *source_name(char name[SOURCE_NAME], unsigned source);
uint64_t checksum(const void *data, size_t size);

/* writer.c: writes contents into an image */
struct image_writer {
    struct image *image;
    int directory, pages, more; /* file descriptors; more: of the second pages file, or -1 */
    uint64_t pages_size, more_size;
    bool open; /* the last chunk has room */
    uint32_t moved; /* chunks before this one are already in `pages` */
};
int write_at(int fd, const void *data, size_t size, uint64_t place);
int writer_put(struct image_writer *w, uint32_t owner, uint32_t file, uint64_t at, const void *data, size_t size,
               struct failure *f);
void writer_plan(struct image_writer *w, uint32_t owner, uint64_t start,
                 uint64_t end); /* plans memory of a process, which is written later */
uint32_t writer_planned(const struct image_writer *w, uint32_t *firsts, uint64_t *bytes, uint32_t *parts);
void writer_place(struct image_writer *w, struct chunk *c, bool second);

/* reader.c: reads contents of an image; NULL: they cannot be read, or are damaged */
struct image_reader {
    struct image *image;
    int pages[SOURCES]; /* descriptors, or -1 */
    uint64_t sizes[SOURCES];
    const char *mapped[SOURCES]; /* or NULL */
};
void chunks_map(struct image_reader *r);
const char *chunk_look(struct image_reader *r, uint32_t chunk, char *buffer); /* in the mapping, or in the buffer */
const char *chunk_read(struct image_reader *r, uint32_t chunk, char *buffer);
const char *extent_read(struct image_reader *r, const struct extent *e); /* valid until the next call */

/* workers.c: the number of worker processes, and work that they share. A unit of work returns 0, or -1 and sets `f`. */
#define SLOWEST 200000 /* bytes per millisecond, a tenth of the usual rate */
#define MUCH (16ul << 20) /* bytes from which on more than one process works */
int workers_most(void);
typedef int unit_work(void *what, uint32_t unit, char *buffer, struct failure *f);
int workers_run(unit_work *work, void *what, uint32_t units, uint64_t bytes, bool behind,
                struct failure *f); /* behind: in the background, by other processes */

#endif
