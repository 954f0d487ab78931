/* What travels between the node, the nursery and the keepers, and what lies in a cell.
 *
 * Everything is local to one machine and one version of the package: host byte order, natural alignment. The Python
 * side of it is pool/starter/messages.py; change both together, and VERSION with them.
 *
 * A message is one datagram: `head`, then what its verb says. The node and the nursery share one SEQPACKET pair;
 * each keeper inherits the nursery's end and answers the node directly, so the node has one descriptor to read however
 * many keepers there are. Towards a keeper the node writes to the datagram socket of its cell.
 *
 * A keeper whose job has ended and left nothing says WAITING with the end: the node may send it the next START, for a
 * job that sees and may do the same, or RETIRE.
 */
#ifndef POOL_WIRE_H
#define POOL_WIRE_H

#include <stdint.h>

#define MAGIC 0x4b504f4fu /* "OOPK" */
#define VERSION 11

enum verb {
    /* node to nursery */
    START = 1, /* struct start and its strings; over TOO_BIG bytes they come as a memory file. Also to a waiting keeper */
    PING,      /* answered by PONG with the same number */
    /* node to a keeper; the value of struct control in brackets */
    ADOPT = 8, /* [none] with a descriptor: the pair's end to answer on from now on */
    SIGNAL,    /* [number] to the job's own processes, not to what they started */
    SUSPEND,
    RESUME,
    VACATE, /* [grace in us] soft signal now, everything is killed after the grace */
    KILL,
    RENEW, /* [us of the boot clock] the lease ends then: a message may lie for a while until it is read */
    USAGE,
    CHECKPOINT, /* [enum checkpoint] with a descriptor of the directory that the image is written to */
    IMAGE,      /* [none] to a keeper started with FLAG_IMAGE, with a descriptor of the directory that it lies in */
    REMOTE,     /* [none] to a keeper whose job has remote trees, with a descriptor: a stream to the submit machine's home side,
                 * the first or the next one */
    END,        /* [index of a pipe] to a keeper whose job has a pipe that leads to another machine, with a descriptor: the end that
                 * is the job's. It begins, or is put back, when it has all of them */
    RETIRE = 31, /* to a waiting keeper: end */
    /* back to the node: struct report */
    HELLO = 32, /* nursery is ready; code = abilities, text = one line for each thing that failed */
    PONG,
    STARTED, /* the job's program runs */
    FAILED,  /* it could not be started; call, text, err say why */
    ENDED,   /* of a job of several processes: the whole struct report, then a struct member_end for each */
    USED,
    CHECKPOINTED, /* code = 1 done, 2 refused, 3 failed; user_us = stood still, wall_us = took, system_us = bytes of memory;
                   * text = a line for each thing that cannot be saved, or what failed; of an image that is made a 1 for each
                   * pipe whose end to another machine a process of it holds, a 0 for others, in their order */
    LET_GO,       /* the job runs again, whose image is still being written; the text as of one that is made */
    GONE = 63, /* a waiting keeper died; the number is of its last run */
};

/* CARRY: with what is mapped of programs and libraries, for a machine that has others.
 * LOOSE: the image is on its way to where it is kept, and need not be on the disk when it is told of. */
enum checkpoint { CHECKPOINT_STOP = 1, CHECKPOINT_EXAMINE = 2, CHECKPOINT_LOOSE = 4, CHECKPOINT_CARRY = 8 };

enum condition { SUSPENDED = 1, WAITING = 2 };

enum cause { CAUSE_EXIT = 1, CAUSE_SIGNAL, CAUSE_LEASE, CAUSE_KILLED, CAUSE_VACATED, CAUSE_START, CAUSE_MISUSE, CAUSE_MEMORY };

enum ability {
    ABLE_USER = 1,    /* user namespace made, or not needed because the nursery has the capabilities */
    ABLE_PID = 2,     /* pid namespace: a keeper that dies takes its job with it */
    ABLE_MOUNT = 4,   /* mount namespace */
    ABLE_IPC = 8,     /* ipc namespace: System V objects go with the job */
    ABLE_PROC = 16,   /* a /proc of the job's own */
    ABLE_ROOT = 32,   /* the file tree of isolation `full` */
    ABLE_SETUID = 64, /* may run a job under another user id */
    ABLE_GROUP = 128, /* a cgroup (v2) for each job */
    ABLE_MEMORY = 256, /* ... that also limits memory */
    ABLE_NETWORK = 512, /* a network namespace for a job that is to have no network */
    ABLE_FILTER = 1024, /* a system-call filter */
    ABLE_COUNT = 2048,  /* a cgroup that limits the number of processes */
    ABLE_CHECKPOINT = 4096, /* may hold a job's processes, and fork them again under their own numbers */
    ABLE_FUSE = 8192, /* may show a job the submit machine's files (remote/) */
    ABLE_NOTIFY = 16384, /* ... without FUSE, by answering their system calls (remote_notify/) */
    ABLE_TIME = 32768, /* time namespaces: monotonic clocks of a job that is put back go on where they stood */
    ABLE_TRACK = 65536, /* the kernel notes what a job writes: images build on each other */
    ABLE_WAITS = 131072, /* ... tells since when a thread waits */
    ABLE_SAME_VDSO = 1 << 30 /* only to be done without: to take each kernel's vdso for another one */
};

enum flag {
    FLAG_FULL = 1,
    FLAG_APPEND = 2,
    FLAG_PRIVATE_TMP = 4,
    FLAG_GROUPS = 8,
    FLAG_FILTER = 16,     /* system calls are filtered (sandbox/filter.c) */
    FLAG_NESTED = 32,     /* ... but not those for namespaces of the job's own */
    FLAG_NO_NETWORK = 64, /* no network but its own loopback */
    FLAG_IMAGE = 128,     /* goes on from a checkpoint, which comes in a message of its own */
    FLAG_FIXED = 256,     /* in `full` its scratch directory is seen as /job, on every machine */
    FLAG_KEPT_ROOT = 512, /* the root is an image that the node keeps, in a directory that is hidden from jobs */
};

/* What becomes of a job when one of its processes fails: it ends at once; it ends so when all have ended; nothing. */
enum on_failure { FAILURE_ENDS, FAILURE_WAITS, FAILURE_IGNORED };

enum member_flag { MEMBER_APPEND_OUT = 1, MEMBER_APPEND_ERRORS = 2, MEMBER_ERRORS_TO_OUT = 4 /* stderr is where stdout is */ };
enum member_state { MEMBER_OVER = 1, MEMBER_WITH_JOB = 2 /* was killed with the job */, MEMBER_FAILED = 4 };

#define MARK_SHIFT 8 /* in CHECKPOINT's value, above its flags: the number by which home notes the moment; 0: it does not */

#define SIGNAL_SHIFT 56 /* in VACATE's value, above the grace in microseconds: the signal; 0: the start's */

#define UNLIMITED UINT64_MAX
#define TOO_BIG 65536

struct head {
    uint32_t magic;
    uint16_t version;
    uint16_t verb;
    uint64_t number; /* of the run; goes on from the highest in the directory's cells */
    uint32_t cell;
    uint32_t size; /* of the whole message */
};

/* After it: struct member_head[members], struct pipe_head[pipes], uint32_t groups[groups], then these strings, each ended
 * by a NUL: id, claim, program, cwd, stdin, stdout, stderr, scratch, root (a directory of this machine that is the root of a
 * job of `full`; empty: the system's own tree), then `hides` times a directory that the job may not
 * look into, `devices` times a device that a job of `full` sees beside the harmless ones, `remotes` times a directory of the
 * submit machine that it sees there, `binds` times a directory of this machine and where it sees it, argc times an argument,
 * envc times NAME=value; for each member name, program, cwd, stdin, stdout, stderr, its arguments, its environment; for each
 * pipe the file at the writer's end and the one at the reader's.
 *
 * Without members the job is one process, as the fixed strings say; else they are those of its first and argv counts
 * for nothing. The file at a pipe's end is '' for stdout or stdin, /dev/fd/N for a descriptor that the process is born
 * with, anything else a name that the process opens, mapped to the pipe (mapped_files/mapped_files.c). Several pipes may begin at one file. */
struct start {
    struct head head;
    uint32_t uid, gid, groups, argc, envc;
    int32_t nice;
    uint32_t flags, soft_signal, hides, devices;
    uint32_t members, pipes, on_failure;         /* on_failure: see enum */
    uint16_t remotes, binds;
    uint64_t lease_us, lease_end_us, grace_us;   /* lease 0: none; its end by the boot clock, however late a start is read */
    uint64_t memory, cpu, core, fsize, nofile, stack; /* UNLIMITED: as the node has it */
    uint64_t processes, cpus;                    /* at most so many at a time; its share of the processors, UNLIMITED: none */
};

#define MEMBERS_MOST 64
#define PIPES_MOST 256

struct member_head { /* one process of a job of several */
    uint32_t argc, envc, flags, unused;
    uint8_t fails[32]; /* a bit for each exit code that is a failure */
};

struct pipe_head {
    int32_t writer, reader; /* index of the member; -1: outside this machine's part of the job */
    uint64_t capacity;      /* of the kernel's pipe, bytes; 0: the kernel's own */
    uint64_t buffer;        /* what a mapped pipe may hold on disk, bytes */
};

struct member_end { /* code and signal are -1 when there is none; the wall time is from the job's start */
    int32_t code, signal;
    uint32_t core, state; /* enum member_state */
    uint64_t user_us, system_us, wall_us, max_rss_kib;
};

struct control {
    struct head head;
    uint64_t value, sequence;
};

#define TEXT 768
struct report {
    struct head head;
    int32_t pid, code, signal; /* pid of the keeper as the node sees it; code and signal are -1 when there is none */
    uint32_t core, cause;
    int32_t err;
    uint32_t condition, processes;
    uint64_t user_us, system_us, wall_us, max_rss_kib, rss_kib, started_us, ended_us, sequence;
    char call[24];
    char text[TEXT];
};

/* A cell: one file for one keeper at a time, used again and again. The keeper holds a lock (flock) on it while its job
 * has processes. The page at its head is written once at the start and once at the end, so that the end can be noted on
 * a full disk, and the lease's end whenever that is another one; the start message follows at CELL_SPEC for whoever finds the keeper again. */
#define CELL_SPEC 4096
#define CELL_REPORT 64
enum state { CELL_FREE, CELL_RUNNING, CELL_ENDED };
struct cell {
    uint32_t magic, version, state;
    int32_t pid;
    uint64_t number, born_us, started_us; /* the keeper's birth, CLOCK_BOOTTIME; the run's start, wall time */
    uint32_t checksum, unused; /* CRC-32 of the report */
    uint64_t lease_end_us; /* CLOCK_BOOTTIME; 0: none. Of each renewal, by the node that asks for it and by the keeper */
};

_Static_assert(sizeof(struct head) == 24, "head");
_Static_assert(sizeof(struct start) == 168, "start");
_Static_assert(sizeof(struct control) == 40, "control");
_Static_assert(sizeof(struct report) == 144 + TEXT, "report");
_Static_assert(sizeof(struct cell) == 56, "cell");
_Static_assert(sizeof(struct member_head) == 48 && sizeof(struct pipe_head) == 24 && sizeof(struct member_end) == 48, "members");
_Static_assert(CELL_REPORT + sizeof(struct report) + MEMBERS_MOST * sizeof(struct member_end) <= CELL_SPEC, "ends fit the page");

#endif
