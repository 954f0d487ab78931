/* The job as its start message describes it, and helpers that every folder uses. */
#ifndef POOL_COMMON_H
#define POOL_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

#include "common/messages.h"

#define PAGE 4096ul

/* File descriptors with fixed numbers. All are closed on exec. */
enum place { UP = 3, SOCKET, CELL, GROUP, ROOT, ROOT_RW, DIRECTORY, FIRST_FREE };

struct failure { /* why a job could not be started: errno, the call that failed, and its object */
    int err;
    char call[24];
    char text[TEXT];
};

struct member { /* a process that the job description names; the processes that it forks itself are not members */
    const struct member_head *head;
    char *name, *program, *cwd, *in, *out, *errors;
    char **argv, **envp;
    /* in the keeper's pid namespace; 0: not started, or already over in the checkpoint that this run was restored
     * from */
    pid_t pid;
    struct member_end *end; /* in memory shared with the dumper */
    uint64_t carried_user_us,
        carried_system_us; /* CPU time used before the checkpoint that this run was restored from */
};

struct conduit { /* a pipe of the job; messages.h explains its ends */
    const struct pipe_head *head;
    char *writer_file, *reader_file;
    /* of a plain pipe: only while the members are forked; of a pipe to another machine: as soon as the end has
     * arrived */
    int ends[2];
    uint64_t inode; /* of a pipe to another machine: identifies the end that a process holds */
};

/* A parsed start message; the strings point into it. A job of one process has one member and no pipes. */
struct job {
    const struct start *start;
    const uint32_t *groups;
    char *id, *scratch, *root;
    char **hide, **devices, **remote, **binds, **network; /* binds: in pairs */
    struct member *members;
    struct conduit *pipes;
    uint32_t count, pipe_count; /* count: members, at least 1; pipe_count: pipes */
    uint64_t began_us; /* start of this run, boot clock */
    void *kept; /* memory that parse_start allocated */
};

struct settings { /* of one fork server */
    uint32_t able;
    uint32_t without; /* abilities that are switched off, to test the program without them */
    uint64_t network; /* inode of the network namespace of the fork server, which is the machine's; 0: unknown */
    pid_t keeper; /* in a keeper: its own pid in the node's /proc */
    pid_t spared[2]; /* in a keeper: its file server and its supervisor, which are not processes of the job; 0: none */
    char directory[4096]; /* directory of the cells; no job may read it */
    char *const *show; /* directories that isolation `full` shows in addition to the system's */
    const bool *show_writable; /* those of them that jobs may write to */
    size_t shows;
};

/* common.c */
extern struct settings settings;
uint64_t clock_ns(clockid_t clock);
uint64_t monotonic_ns(void);
uint64_t boot_us(void); /* since the machine booted, including suspend; leases use this clock */
uint64_t wall_us(void);
int set_failure(struct failure *f, const char *call, const char *text); /* records errno; always -1 */
bool is_spared(pid_t pid);
void copy_text(char *to, size_t size, const char *from);
bool path_is_under(const char *path, const char *directory); /* or is the same */

/* proc.c */
struct stat_line { /* of /proc/PID/stat; times are in clock ticks */
    int parent, group, session, threads, nice, processor;
    char state;
    uint32_t terminal;
    uint32_t exit_code;
    uint64_t born, user, system, waited_user, waited_system, rss_pages;
    uint64_t start_code, end_code, start_stack, start_data, end_data, start_brk, arg_start, arg_end, env_start, env_end;
};
bool stat_read(pid_t pid, struct stat_line *s);
bool stat_read_at(int proc, pid_t task, struct stat_line *s); /* proc: a file descriptor of /proc */
bool thread_stat_read(pid_t pid, pid_t tid, struct stat_line *s);
size_t numbers_in(const char *directory, pid_t **all); /* entries whose names are numbers; the caller frees the array */
bool proc_text(pid_t pid, const char *name, char *text, size_t size);
uint64_t proc_field(pid_t pid, const char *name, const char *field, int base);

/* pipe_ends.c */
/* of a pipe to another machine: the index of the end on this machine; -1 for other pipes */
int own_end(const struct conduit *c);
bool has_mapped_files(const struct job *job); /* some processes open file names that are ends of pipes */
int members_make_pipe(const struct job *job, int ends[2], struct failure *f); /* ends[0] reads */
bool members_whole(const struct job *job); /* no end of a pipe to another machine is missing */
void members_end(struct job *job, uint64_t pipe, int fd); /* an end has arrived; takes ownership of fd */
int members_own_end(const struct job *job, uint64_t pipe); /* the end that has arrived; -1: none */
void members_close_ends(const struct job *job); /* after the processes have inherited them */
/* the file descriptor number of a plain end of a pipe; -1: the file is mapped */
int end_descriptor(const char *file, int standard);

/* messages.c */
int parse_start(struct job *job, void *message, size_t size, struct failure *f); /* allocates job->kept */
void report_init(struct report *r, uint16_t verb, uint64_t number, uint32_t cell);
void report_send(struct report *r, const char *text);
void report_failure(uint64_t number, uint32_t cell, const struct failure *f);

#endif
