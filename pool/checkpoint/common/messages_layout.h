/* Numbers and layouts of the messages. Written by `python -m pool.checkpoint.messages_table`: change the table there,
 * not this file. */
#ifndef POOL_MESSAGES_LAYOUT_H
#define POOL_MESSAGES_LAYOUT_H

#include <stdint.h>

#define MAGIC 0x4b504f4fu
#define UNLIMITED UINT64_MAX
#define VERSION 11
#define TOO_BIG 65536 /* bytes of a start message beyond which it comes as a memory file */
#define TEXT 768 /* bytes of a report's text */
#define MARK_SHIFT 8 /* in CHECKPOINT's value, above its flags: the submit side's number of the moment; 0: none */
#define SIGNAL_SHIFT 56 /* in VACATE's value, above the grace in microseconds: the signal; 0: the start's */
#define MEMBERS_MOST 64 /* processes of a job */
#define PIPES_MOST 256 /* pipes of a job */
#define CELL_SPEC 4096 /* where the start message lies in a cell */
#define CELL_REPORT 64 /* where the report of the end lies in a cell */

/* The kind of a message: to the fork server, to a keeper (in brackets the value of struct control), to the node. */
enum verb {
    /* struct start and its strings; over TOO_BIG bytes they come as a memory file. Also to a waiting keeper */
    START = 1,
    PING = 2, /* answered by PONG with the same number */
    ADOPT = 8, /* [none] with a descriptor: the pair's end to answer on from now on */
    SIGNAL = 9, /* [number] to the job's own processes, not to those that they started */
    SUSPEND = 10,
    RESUME = 11,
    VACATE = 12, /* [grace in us] soft signal now, everything is killed after the grace */
    KILL = 13,
    RENEW = 14, /* [us of the boot clock] the lease ends then: a message may lie for a while until it is read */
    USAGE = 15,
    CHECKPOINT = 16, /* [enum checkpoint] with a descriptor of the directory that the image is written to */
    IMAGE = 17, /* [none] to a keeper started with FLAG_IMAGE, with a descriptor of the directory that it lies in */
    REMOTE = 18, /* [none] to a keeper whose job has remote trees, with a descriptor: a stream to the submit side */
    /* [index of a pipe] to a keeper whose job has a pipe to another machine, with a descriptor: the job's end */
    END = 19,
    RETIRE = 31, /* to a waiting keeper: exit */
    HELLO = 32, /* nursery is ready; code = abilities, text = one line for each thing that failed */
    PONG = 33,
    STARTED = 34, /* the job's program runs */
    FAILED = 35, /* it could not be started; call, text, err say why */
    ENDED = 36, /* of a job of several processes: the whole struct report, then a struct member_end for each */
    USED = 37,
    /* code = 1 done, 2 refused, 3 failed; user_us = stood still, wall_us = took, system_us = bytes of memory; text = a
     * line for each thing that cannot be saved, or the failure; of an image that is made a 1 for each pipe whose end to
     * another machine a process of it holds, a 0 for others, in their order */
    CHECKPOINTED = 38,
    LET_GO = 39, /* the job runs again, and its image is still being written; the text as of one that is made */
    GONE = 63, /* a waiting keeper died; the number is of its last run */
};

/* How a checkpoint is made. */
enum checkpoint {
    CHECKPOINT_STOP = 1, /* the job ends with it */
    CHECKPOINT_EXAMINE = 2, /* nothing is written: only whether it could be */
    CHECKPOINT_LOOSE = 4, /* the image is on its way to where it is kept, and need not be synchronised */
    CHECKPOINT_CARRY = 8, /* with what is mapped of programs and libraries, for a machine that has others */
};

/* Of a keeper that reports. */
enum condition {
    SUSPENDED = 1,
    WAITING = 2,
};

/* Why a job ended. */
enum cause {
    CAUSE_EXIT = 1,
    CAUSE_SIGNAL = 2,
    CAUSE_LEASE = 3,
    CAUSE_KILLED = 4,
    CAUSE_VACATED = 5,
    CAUSE_START = 6,
    CAUSE_MISUSE = 7,
    CAUSE_MEMORY = 8,
};

/* Abilities of a machine. */
enum ability {
    ABLE_USER = 1, /* user namespace made, or not needed because the nursery has the capabilities */
    ABLE_PID = 2, /* pid namespace: a keeper that dies takes its job with it */
    ABLE_MOUNT = 4, /* mount namespace */
    ABLE_IPC = 8, /* ipc namespace: System V objects go with the job */
    ABLE_PROC = 16, /* a /proc of the job's own */
    ABLE_ROOT = 32, /* the file tree of isolation `full` */
    ABLE_SETUID = 64, /* may run a job under another user id */
    ABLE_GROUP = 128, /* a cgroup (v2) for each job */
    ABLE_MEMORY = 256, /* ... that also limits memory */
    ABLE_NETWORK = 512, /* a network namespace for a job that is to have no network */
    ABLE_FILTER = 1024, /* a system-call filter */
    ABLE_COUNT = 2048, /* a cgroup that limits the number of processes */
    ABLE_CHECKPOINT = 4096, /* may hold a job's processes, and fork them again under their own numbers */
    ABLE_FUSE = 8192, /* may show a job the submit machine's files (remote/) */
    ABLE_NOTIFY = 16384, /* ... without FUSE, by answering their system calls (remote_notify/) */
    ABLE_TIME = 32768, /* time namespaces: monotonic clocks of a restored job go on where they stood */
    ABLE_TRACK = 65536, /* the kernel notes what a job writes: images build on each other */
    ABLE_WAITS = 131072, /* ... tells since when a thread waits */
    ABLE_SAME_VDSO = 1073741824, /* only to be done without: to take each kernel's vdso for another one */
};

/* Of a start. */
enum flag {
    FLAG_FULL = 1,
    FLAG_APPEND = 2,
    FLAG_PRIVATE_TMP = 4,
    FLAG_GROUPS = 8,
    FLAG_FILTER = 16, /* system calls are filtered (sandbox/filter.c) */
    FLAG_NESTED = 32, /* ... but not those for namespaces of the job's own */
    FLAG_NO_NETWORK = 64, /* no network but its own loopback */
    FLAG_IMAGE = 128, /* goes on from a checkpoint, which comes in a message of its own */
    FLAG_FIXED = 256, /* in `full` its scratch directory is seen as /job, on every machine */
    FLAG_KEPT_ROOT = 512, /* the root is an image that the node keeps, in a directory that is hidden from jobs */
};

/* The fate of a job when one of its processes fails. */
enum on_failure {
    FAILURE_ENDS = 0, /* it ends at once */
    FAILURE_WAITS = 1, /* it ends so when all have ended */
    FAILURE_IGNORED = 2, /* nothing */
};

/* Of one process of a job of several. */
enum member_flag {
    MEMBER_APPEND_OUT = 1,
    MEMBER_APPEND_ERRORS = 2,
    MEMBER_ERRORS_TO_OUT = 4, /* stderr is where stdout is */
};

/* Of one process of a job, at its end. */
enum member_state {
    MEMBER_OVER = 1,
    MEMBER_WITH_JOB = 2, /* was killed with the job */
    MEMBER_FAILED = 4,
};

/* Of a cell. */
enum state {
    CELL_FREE = 0,
    CELL_RUNNING = 1,
    CELL_ENDED = 2,
};

/* Of every message. */
struct head {
    uint32_t magic;
    uint16_t version;
    uint16_t verb;
    uint64_t number; /* of the run; goes on from the highest in the directory's cells */
    uint32_t cell;
    uint32_t size; /* of the whole message */
};
_Static_assert(sizeof(struct head) == 24, "head");

/* A job to start. Its strings follow it (see messages.h). */
struct start {
    struct head head;
    uint32_t uid;
    uint32_t gid;
    uint32_t groups;
    uint32_t argc;
    uint32_t envc;
    int32_t nice;
    uint32_t flags;
    uint32_t soft_signal;
    uint32_t hides;
    uint32_t devices;
    uint32_t members;
    uint32_t pipes;
    uint32_t on_failure; /* see enum */
    uint16_t remotes;
    uint16_t binds;
    uint64_t lease_us; /* 0: none */
    uint64_t lease_end_us; /* by the boot clock, however late a start is read */
    uint64_t grace_us;
    uint64_t memory; /* UNLIMITED, as those after it: as the node has it */
    uint64_t cpu;
    uint64_t core;
    uint64_t fsize;
    uint64_t nofile;
    uint64_t stack;
    uint64_t processes; /* at most so many at a time */
    uint64_t cpus; /* its share of the processors */
};
_Static_assert(sizeof(struct start) == 168, "start");

/* One process of a job of several. */
struct member_head {
    uint32_t argc;
    uint32_t envc;
    uint32_t flags;
    uint32_t unused;
    uint8_t fails[32]; /* a bit for each exit code that is a failure */
};
_Static_assert(sizeof(struct member_head) == 48, "member_head");

/* A pipe of a job. */
struct pipe_head {
    int32_t writer; /* index of the member; -1: outside this machine's part of the job */
    int32_t reader;
    uint64_t capacity; /* of the kernel's pipe, bytes; 0: the kernel's own */
    uint64_t buffer; /* what a mapped pipe may hold on disk, bytes */
};
_Static_assert(sizeof(struct pipe_head) == 24, "pipe_head");

/* How a process of a job ended. Code and signal are -1 when there is none; the wall time is from the job's start. */
struct member_end {
    int32_t code;
    int32_t signal;
    uint32_t core;
    uint32_t state; /* enum member_state */
    uint64_t user_us;
    uint64_t system_us;
    uint64_t wall_us;
    uint64_t max_rss_kib;
};
_Static_assert(sizeof(struct member_end) == 48, "member_end");

/* A request to a keeper. */
struct control {
    struct head head;
    uint64_t value;
    uint64_t sequence;
};
_Static_assert(sizeof(struct control) == 40, "control");

/* A message to the node. Code and signal are -1 when there is none. */
struct report {
    struct head head;
    int32_t pid; /* of the keeper as the node sees it */
    int32_t code;
    int32_t signal;
    uint32_t core;
    uint32_t cause;
    int32_t err;
    uint32_t condition;
    uint32_t processes;
    uint64_t user_us;
    uint64_t system_us;
    uint64_t wall_us;
    uint64_t max_rss_kib;
    uint64_t rss_kib;
    uint64_t started_us;
    uint64_t ended_us;
    uint64_t sequence;
    char call[24];
    char text[TEXT];
};
_Static_assert(sizeof(struct report) == 144 + TEXT, "report");

/* The head of a cell's file (see messages.h). */
struct cell {
    uint32_t magic;
    uint32_t version;
    uint32_t state;
    int32_t pid;
    uint64_t number;
    uint64_t born_us; /* the keeper's birth, CLOCK_BOOTTIME */
    uint64_t started_us; /* the run's start, wall time */
    uint32_t checksum; /* CRC-32 of the report */
    uint32_t unused;
    uint64_t lease_end_us; /* boot clock; 0: none. Each renewal is noted by the node and by the keeper */
};
_Static_assert(sizeof(struct cell) == 56, "cell");

#endif
