/* Numbers and layouts of the messages. Written by `python -m pool.checkpoint.messages_table`: change the table there,
 * not this file. */
#ifndef POOL_MESSAGES_LAYOUT_H
#define POOL_MESSAGES_LAYOUT_H

#include <stdint.h>

#define MAGIC 0x4b504f4fu
#define UNLIMITED UINT64_MAX
#define VERSION 13
#define TOO_BIG 65536 /* bytes; a larger start message is sent as a memory file */
#define TEXT 768 /* bytes of a report's text */
#define MARK_SHIFT 8 /* in CHECKPOINT's value, above its flags: the moment's number on the submit side; 0: none */
#define SIGNAL_SHIFT 56 /* in VACATE's value, above the grace in microseconds: the signal; 0: the start message's */
#define MEMBERS_MOST 64 /* processes of a job */
#define PIPES_MOST 256 /* pipes of a job */
#define CELL_SPEC 4096 /* offset of the start message in a cell */
#define CELL_REPORT 64 /* offset of the report of the end in a cell */

/* The kind of a message: to the fork server, to a keeper (in brackets the value of struct control), to the node. */
enum verb {
    START = 1, /* struct start and its strings; above TOO_BIG bytes in a memory file. Also to a waiting keeper */
    PING = 2, /* answered by PONG with the same number */
    ADOPT = 8, /* [none] with a file descriptor: the socket for answers from now on */
    SIGNAL = 9, /* [number] to the job's members, not to the processes that they forked */
    SUSPEND = 10,
    RESUME = 11,
    VACATE = 12, /* [grace in us] sends the soft signal now, and kills all processes after the grace */
    KILL = 13,
    RENEW = 14, /* [us of the boot clock] the end of the lease; an absolute time, since the message may be read late */
    USAGE = 15,
    CHECKPOINT = 16, /* [enum checkpoint] with a file descriptor of the directory for the image */
    IMAGE = 17, /* [none] to a keeper started with FLAG_IMAGE, with a file descriptor of the image's directory */
    REMOTE = 18, /* [none] if the job has remote trees, with a file descriptor: a stream to the submit side */
    END = 19, /* [index of a pipe] if the job has a pipe to another machine, with a file descriptor: the job's end */
    /* [none] of a job with a network of its own, with a socket, on which a packet socket of its wire is sent */
    WIRE = 20,
    /* [port, and 65536 for IPv6] of the job, with a socket, on which the connection to the port is sent */
    CONNECT = 21,
    SHELL = 22, /* [none] with a socket: a shell in the job, see keeper/shell.c */
    RETIRE = 31, /* to a waiting keeper: exit */
    HELLO = 32, /* the fork server is ready; code = abilities, text = one line for each ability that is missing */
    PONG = 33,
    STARTED = 34, /* the job's program runs */
    FAILED = 35, /* the job could not be started; call, text, err: the reason */
    ENDED = 36, /* of a job with members: the whole struct report, then a struct member_end for each */
    USED = 37,
    /* code = 1 done, 2 refused, 3 failed; user_us = time frozen, wall_us = duration, system_us = bytes of memory;
     * text = one line for each thing that cannot be saved, or the failure; if done, for each pipe in order a 1 if it
     * leads to another machine and a process of the image holds its end, else a 0 */
    CHECKPOINTED = 38,
    LET_GO = 39, /* the job runs again, while its image is still being written; text as for CHECKPOINTED */
    GONE = 63, /* a waiting keeper died; the number is of its last run */
};

/* Options of a checkpoint. */
enum checkpoint {
    CHECKPOINT_STOP = 1, /* the job ends with it */
    CHECKPOINT_EXAMINE = 2, /* nothing is written: only tests whether the job can be saved */
    CHECKPOINT_LOOSE = 4, /* the image is stored elsewhere, so it need not be synchronised to disk here */
    CHECKPOINT_CARRY = 8, /* includes mapped parts of programs and libraries, for a machine with other versions */
};

/* The condition of a keeper, in a report. */
enum condition {
    SUSPENDED = 1,
    WAITING = 2,
};

/* Why a job ended. LOST: its keeper was killed by others, and with it the job. */
enum cause {
    CAUSE_EXIT = 1,
    CAUSE_SIGNAL = 2,
    CAUSE_LEASE = 3,
    CAUSE_KILLED = 4,
    CAUSE_VACATED = 5,
    CAUSE_START = 6,
    CAUSE_MISUSE = 7,
    CAUSE_MEMORY = 8,
    CAUSE_LOST = 9,
};

/* Abilities of a machine. */
enum ability {
    ABLE_USER = 1, /* user namespace made, or not needed because the fork server has the capabilities */
    ABLE_PID = 2, /* pid namespace: a keeper that dies takes its job with it */
    ABLE_MOUNT = 4, /* mount namespace */
    ABLE_IPC = 8, /* ipc namespace: System V objects end with the job */
    ABLE_PROC = 16, /* a /proc of the job's own */
    ABLE_ROOT = 32, /* the file tree of isolation `full` */
    ABLE_SETUID = 64, /* can run a job with another user id */
    ABLE_GROUP = 128, /* a cgroup (v2) for each job */
    ABLE_MEMORY = 256, /* ... that also limits memory */
    ABLE_NETWORK = 512, /* a network namespace for a job without network */
    ABLE_FILTER = 1024, /* a system-call filter */
    ABLE_COUNT = 2048, /* a cgroup that limits the number of processes */
    ABLE_CHECKPOINT = 4096, /* can stop a job's processes, and fork processes with given pids */
    ABLE_FUSE = 8192, /* can show a job the submit machine's files by FUSE (remote/) */
    ABLE_NOTIFY = 16384, /* ... without FUSE, by answering their system calls (remote_notify/) */
    ABLE_TIME = 32768, /* time namespaces: monotonic clocks of a restored job continue */
    ABLE_TRACK = 65536, /* dirty tracking: an image can build on the one before */
    ABLE_WAITS = 131072, /* the kernel reports since when a thread waits */
    ABLE_PRIVATE_NETWORK = 262144, /* a network of a job's own, with an address and a wire */
    ABLE_HIDE_SOCKETS = 524288, /* can hide the lists of such a network's sockets from other users */
    ABLE_SAME_VDSO = 1073741824, /* can only be switched off, for tests: then each vdso counts as another kernel's */
};

/* Flags of a start. */
enum flag {
    FLAG_FULL = 1,
    FLAG_APPEND = 2,
    FLAG_PRIVATE_TMP = 4,
    FLAG_GROUPS = 8,
    FLAG_FILTER = 16, /* system calls are filtered (sandbox/filter.c) */
    FLAG_NESTED = 32, /* ... but it may create namespaces */
    FLAG_NO_NETWORK = 64, /* no network but its own loopback */
    FLAG_IMAGE = 128, /* is restored from a checkpoint, which an IMAGE message brings */
    FLAG_FIXED = 256, /* in `full` its scratch directory is /job, on every machine */
    FLAG_KEPT_ROOT = 512, /* the root is an image that the node keeps, in a directory that is hidden from jobs */
    FLAG_PRIVATE_NETWORK = 1024, /* a network of its own (sandbox/network.c) */
    /* a restore resets connections to processes outside the job; otherwise no image is made */
    FLAG_RESET_CONNECTIONS = 2048,
};

/* The effect on a job when one of its members fails. */
enum on_failure {
    FAILURE_ENDS = 0, /* the job ends at once */
    FAILURE_WAITS = 1, /* the job fails when all members have ended */
    FAILURE_IGNORED = 2, /* the job does not fail */
};

/* Flags of a member. */
enum member_flag {
    MEMBER_APPEND_OUT = 1,
    MEMBER_APPEND_ERRORS = 2,
    MEMBER_ERRORS_TO_OUT = 4, /* stderr goes to the same file as stdout */
};

/* The state of a member at its end. */
enum member_state {
    MEMBER_OVER = 1,
    MEMBER_WITH_JOB = 2, /* killed with the job */
    MEMBER_FAILED = 4,
};

/* The state of a cell. */
enum state {
    CELL_FREE = 0,
    CELL_RUNNING = 1,
    CELL_ENDED = 2,
};

/* The head of every message. */
struct head {
    uint32_t magic;
    uint16_t version;
    uint16_t verb;
    uint64_t number; /* of the run; one more than the highest in the directory's cells */
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
    uint32_t network; /* strings about the job's network: sandbox/network.c */
    uint32_t unused;
    uint64_t static_remotes; /* bit i: the job only reads tree i (remote/unopened.c) */
    uint64_t lease_us; /* 0: none */
    uint64_t lease_end_us; /* boot clock; valid however late the message is read */
    uint64_t grace_us;
    uint64_t memory; /* UNLIMITED here and below: the node's own limit */
    uint64_t cpu;
    uint64_t core;
    uint64_t fsize;
    uint64_t nofile;
    uint64_t stack;
    uint64_t processes; /* number of processes at a time */
    uint64_t cpus; /* share of CPU time */
};
_Static_assert(sizeof(struct start) == 184, "start");

/* A member of a job. */
struct member_head {
    uint32_t argc;
    uint32_t envc;
    uint32_t flags;
    uint32_t unused;
    uint8_t fails[32]; /* one bit for each exit code that is a failure */
};
_Static_assert(sizeof(struct member_head) == 48, "member_head");

/* A pipe of a job. */
struct pipe_head {
    int32_t writer; /* index of the member; -1: on another machine */
    int32_t reader;
    uint64_t capacity; /* of the kernel's pipe, bytes; 0: the kernel's default */
    uint64_t buffer; /* bytes that a mapped pipe may store on disk */
    uint32_t short_reads; /* 1: the reader of a mapped pipe accepts short reads: it is a kernel's pipe */
    uint32_t unused;
};
_Static_assert(sizeof(struct pipe_head) == 32, "pipe_head");

/* How a member ended. Code and signal are -1 if there is none; the wall time counts from the job's start. */
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

/* A message to the node. Code and signal are -1 if there is none. */
struct report {
    struct head head;
    int32_t pid; /* of the keeper, as the node sees it */
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
    uint64_t born_us; /* start of the keeper, CLOCK_BOOTTIME */
    uint64_t started_us; /* start of the run, wall time */
    uint32_t checksum; /* CRC-32 of the report */
    uint32_t unused;
    uint64_t lease_end_us; /* boot clock; 0: none. Node and keeper record each renewal */
};
_Static_assert(sizeof(struct cell) == 56, "cell");

#endif
