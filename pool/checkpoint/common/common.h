/* The job as its start message says it, and small things that every folder uses. */
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

/* Descriptors with a fixed place, all closed on exec. */
enum place { UP = 3, SOCKET, CELL, GROUP, ROOT, ROOT_RW, DIRECTORY, FIRST_FREE };

struct failure { /* why a job could not be started: errno first, then who and what */
    int err;
    char call[24];
    char text[TEXT];
};

struct member { /* one of the job's own processes; what they start themselves is nobody's */
    const struct member_head *head;
    char *name, *program, *cwd, *in, *out, *errors;
    char **argv, **envp;
    pid_t pid; /* as the keeper sees it; 0: not started, or over before the checkpoint that this run goes on from */
    struct member_end *end; /* in memory that a dumper shares */
    uint64_t carried_user_us,
        carried_system_us; /* of what it has used, before the checkpoint that this run goes on from */
};

struct conduit { /* a pipe of the job; see messages.h about its ends */
    const struct pipe_head *head;
    char *writer_file, *reader_file;
    int ends[2]; /* of a plain pipe, while the members are forked; of one from or to another machine as soon as it came
                  */
    uint64_t inode; /* of one from or to another machine: what a process's end of it is known by */
};

/* A start message, taken apart; the strings point into it. A job of one process has one member and no pipes. */
struct job {
    const struct start *start;
    const uint32_t *groups;
    char *id, *scratch, *root;
    char **hide, **devices, **remote, **binds; /* binds: by twos */
    struct member *members;
    struct conduit *pipes;
    uint32_t count, pipe_count; /* of members, at least 1; of pipes */
    uint64_t began_us; /* this run, boot time */
    void *kept; /* what parse_start allocated */
};

struct settings { /* of one nursery */
    uint32_t able;
    uint32_t without; /* abilities not to be used, for trying what is left without them */
    pid_t keeper; /* in a keeper: its own id in the /proc of the node */
    pid_t spared[2]; /* in a keeper: its file server and its supervisor, none of the job's processes; 0: none */
    char directory[4096]; /* of the cells: no job may look into it */
    char *const *show; /* directories that isolation `full` shows beside the system's */
    size_t shows;
};

/* common.c */
extern struct settings settings;
uint64_t clock_ns(clockid_t clock);
uint64_t monotonic_ns(void);
uint64_t boot_us(void); /* since the machine started, time asleep included: leases are measured by it */
uint64_t wall_us(void);
int set_failure(struct failure *f, const char *call, const char *text); /* notes errno; always -1 */
bool is_spared(pid_t pid);
void copy_text(char *to, size_t size, const char *from);
bool path_is_under(const char *path, const char *directory); /* or the same */

/* proc.c */
struct stat_line { /* of /proc/PID/stat; times in clock ticks */
    int parent, group, session, threads, nice, processor;
    char state;
    uint32_t terminal;
    uint32_t exit_code;
    uint64_t born, user, system, waited_user, waited_system, rss_pages;
    uint64_t start_code, end_code, start_stack, start_data, end_data, start_brk, arg_start, arg_end, env_start, env_end;
};
bool stat_read(pid_t pid, struct stat_line *s);
bool stat_read_at(int proc, pid_t task, struct stat_line *s); /* proc: a descriptor of /proc */
bool thread_stat_read(pid_t pid, pid_t tid, struct stat_line *s);
size_t numbers_in(const char *directory, pid_t **all); /* names that are numbers, to be freed */
bool proc_text(pid_t pid, const char *name, char *text, size_t size);
uint64_t proc_field(pid_t pid, const char *name, const char *field, int base);

/* pipe_ends.c */
int own_end(const struct conduit *c); /* the index of the one end that is here, of a pipe to another machine; -1 for
                                         other pipes */
bool has_mapped_files(const struct job *job); /* names of files that processes open and that are ends of pipes */
int members_make_pipe(const struct job *job, int ends[2], struct failure *f); /* ends[0] reads */
bool members_whole(const struct job *job); /* no end of a pipe to another machine is missing */
void members_end(struct job *job, uint64_t pipe, int fd); /* one has come; takes it over */
int members_own_end(const struct job *job, uint64_t pipe); /* the one that came; -1: none */
void members_close_ends(const struct job *job); /* whoever needs them has them */
int end_descriptor(const char *file, int standard); /* of a plain end of a pipe: where it goes; -1: it is mapped */

/* messages.c */
int parse_start(struct job *job, void *message, size_t size, struct failure *f); /* allocates job->kept */
void report_init(struct report *r, uint16_t verb, uint64_t number, uint32_t cell);
void report_send(struct report *r, const char *text);
void report_failure(uint64_t number, uint32_t cell, const struct failure *f);

#endif
