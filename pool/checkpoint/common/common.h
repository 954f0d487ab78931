/* The parts of the keeper program and what they know of each other. */
#ifndef POOL_KEEPER_H
#define POOL_KEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/messages.h"

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
    uint64_t carried_user_us, carried_system_us; /* of what it has used, before the checkpoint that this run goes on from */
};

struct conduit { /* a pipe of the job; see messages.h about its ends */
    const struct pipe_head *head;
    char *writer_file, *reader_file;
    int ends[2]; /* of a plain pipe, while the members are forked; of one from or to another machine as soon as it came */
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
    void *kept; /* what take_apart allocated */
};

struct settings { /* of one nursery */
    uint32_t able;
    uint32_t without; /* abilities not to be used, for trying what is left without them */
    pid_t keeper;      /* in a keeper: its own id in the /proc of the node */
    pid_t spared[2];   /* in a keeper: its file server and its supervisor, none of the job's processes; 0: none */
    char directory[4096]; /* of the cells: no job may look into it */
    char *const *show; /* directories that isolation `full` shows beside the system's */
    size_t shows;
};

/* keeper/main.c */
extern struct settings settings;
uint64_t boot_us(void);
uint64_t wall_us(void);
int fail(struct failure *f, const char *call, const char *text); /* notes errno; always -1 */
bool is_spared(pid_t pid);
void copy_text(char *to, size_t size, const char *from);

/* messages.c */
int take_apart(struct job *job, void *message, size_t size, struct failure *f); /* allocates job->kept */
void report_init(struct report *r, uint16_t verb, uint64_t number, uint32_t cell);
void report_send(struct report *r, const char *text);
void report_failure(uint64_t number, uint32_t cell, const struct failure *f);

/* keeper/cell.c */
int cell_take(uint32_t cell, const void *spec, size_t size, struct failure *f); /* -2: this run has it already */
int cell_retake(int fd, const void *spec, size_t size, uint64_t born_us, struct failure *f); /* the keeper's next run */
int cell_pid(int fd, int32_t pid);
int cell_note(int fd, const struct report *r, uint32_t state);
void cell_lease(int fd, uint64_t end_us); /* it ends then, or later if that is known */
bool cell_look(uint32_t cell, struct cell *c, bool held); /* false: nothing of ours, or (held) no keeper has it locked */
void cell_leave(int fd);                                  /* unlocks it */
int cell_end_for(uint32_t cell, struct report *r);        /* for a keeper that died: ENDED, or GONE when it waited */
int cell_socket(uint32_t cell, struct failure *f);

/* keeper/abilities.c, state/timeouts.c: 0, or -1 and errno */
int probe_hold(void);
int probe_track(void);
int probe_time(void);
int waits_try(void);

/* sandbox/namespaces.c */
uint32_t space_open(char *lines, size_t size); /* enters the nursery's namespaces, tries what is allowed */
unsigned long space_flags(const struct job *job);
int space_prepare(const struct job *job, struct failure *f); /* in the nursery: directories in the tree of `full` */
int space_enter(const struct job *job, struct failure *f);   /* in the keeper: the job's mounts */
int image_take(const struct job *job, struct failure *f); /* sandbox/image_root.c; a mount of the directory that is the job's root */
int image_enter(int image, struct failure *f);            /* it becomes the root of this namespace; /tmp and /job are empty */
int image_close(struct failure *f);                       /* nothing is made in the root any more */
const char *space_scratch(const struct job *job);            /* its scratch directory as the job sees it */
int space_drop(const struct job *job, struct failure *f);    /* in the job: user id and capabilities */
uint64_t space_kept(const struct job *job);                  /* the capabilities that it leaves */
int space_as_job(const struct job *job, bool as, struct failure *f); /* the keeper, for opening files as the job may */

/* sandbox/rootfs.c */
int root_build(struct failure *f); /* makes the tree of isolation `full` at ROOT and ROOT_RW */
int make_path(int at, const char *path, bool last, struct failure *f);
bool below(const char *path, const char *directory);
bool is_accelerator(const char *path);

/* keeper/exec.c */
_Noreturn void job_become(const struct job *job, uint32_t member, pid_t keeper, int told, const int gate[2]);

/* keeper/job_processes.c */
int members_prepare(struct job *job, struct failure *f);
int members_make_pipe(const struct job *job, int ends[2], struct failure *f); /* ends[0] reads */
int members_start(struct job *job, int group, int *pipe_end, struct failure *f);
bool members_whole(const struct job *job); /* no end of a pipe to another machine is missing */
void members_end(struct job *job, uint64_t pipe, int fd); /* one has come; takes it over */
int members_own_end(const struct job *job, uint64_t pipe); /* the one that came; -1: none */
void members_close_ends(const struct job *job); /* whoever needs them has them */
struct member *members_reaped(struct job *job, pid_t pid, int status, const struct rusage *use, bool killing, uint32_t guilty);
void members_accuse(struct job *job, uint32_t guilty);
bool members_over(const struct job *job);
bool members_failed(const struct job *job); /* one has, so that the job is to end */
const struct member *members_result(const struct job *job);
void members_signal(const struct job *job, int signal);
uint32_t members_report(const struct job *job, void *after); /* bytes written after a whole struct report */
int end_descriptor(const char *file, int standard); /* of a plain end of a pipe: where it goes; -1: it is mapped */

/* mapped_files/mapped_files.c: files that processes open and that are ends of pipes */
bool mapping_used(const struct job *job);
int mapping_begin(struct job *job, int group, struct failure *f); /* before the members are forked */
int mapping_enter(const struct job *job, uint32_t member, struct failure *f); /* in one, just before its program */
pid_t mapping_supervisor(void); /* 0: none */
int mapping_way(void);          /* where it is spoken to first (mapped_files/mapped_files.h), or -1 */
int mapping_report(void); /* readable when the supervisor has something to say, or -1 */
#define NO_MEMBER UINT32_MAX
bool mapping_read(char text[TEXT], uint32_t *member); /* why the job has to end, and whose fault it is; false: nothing was said */
bool mapping_over(char text[TEXT], uint32_t *member); /* the same, when all members have ended */
bool mapping_reaped(pid_t pid);
void mapping_end(struct rusage *use); /* what it used is added there, or is nobody's */
int mapping_await(const struct job *job, pid_t pid, struct failure *f); /* in place of mapping_begin for a job that is put back */
void mapping_ends(int *report, int *members);
void mapping_awaited(void);

/* mapped_files/spool.c */
int log_spool(const struct job *job); /* a file without a name in the job's scratch directory */

/* sandbox/filter.c */
void filter_build(void); /* in the nursery, when it is known what is able */
int filter_try(void);
int filter_enter_domain(const struct job *job, struct failure *f);
const void *filter_code(const struct job *job, size_t *instructions);
int filter_install(const struct job *job, struct failure *f); /* in the job, last of all before its program */

/* keeper/process_tree.c */
void tree_signal(int signal);          /* to every process of the job */
void tree_stop_but(pid_t spared); /* a dumper, which goes on */
void tree_kill(void);
bool checkpoint_makes(pid_t pid, pid_t parent); /* it writes a checkpoint, or is a copy of the job's for one */
void tree_usage(struct report *r);     /* adds times, memory, processes of the living */
void tree_sweep(const pid_t *known, size_t count); /* nursery: kills orphans that are nobody's keeper */

/* sandbox/cgroup.c */
uint32_t group_open(void); /* which of ABLE_GROUP, ABLE_MEMORY and ABLE_COUNT; errno when none */
void group_close(void);
int group_leaf(uint32_t cell); /* a directory descriptor, or -1 */
int group_fresh(uint32_t cell, int group);
pid_t group_fork(int group);
bool group_limit(int group, const struct start *s); /* true when the kernel watches the memory */
uint64_t group_memory_kills(int group);
bool group_kill(int group);
bool group_freeze(int group, bool still);

/* keeper/remote_files.c: remote system calls, seen from the keeper */
int remote_try(void);
int remote_take(const struct job *job, struct failure *f);  /* in the host's tree */
int remote_place(const struct job *job, struct failure *f); /* in the job's */
int remote_device(uint32_t i); /* in ascending order */
int remote_begin(const struct job *job, struct failure *f); /* the server */
void remote_stream(int fd);
int remote_fd(void); /* to be polled; -1: none */
bool remote_heard(void); /* false when the server is gone */
bool remote_over(void);  /* all that the job wrote is at home; asks for it when it is first called */
void remote_kill(void);
int remote_settle(const struct job *job, uint64_t mark, struct failure *f); /* in the dumper */

/* remote_notify/remote_notify.c: remote files by system call notification, where there is no FUSE */
bool notify_used(const struct job *job);
int notify_try(void);
int notify_place(const struct job *job, struct failure *f); /* in the job's tree, over the places for its trees */
int notify_top(uint32_t i); /* of a tree's shadows, in ascending order */
pid_t notify_begin(const struct job *job, const int server[], struct failure *f); /* the supervisor */
int notify_enter(const struct job *job, uint32_t member, struct failure *f); /* in a process of the job's, before it opens anything */
void notify_forked(void);
int notify_fd(void);      /* readable when the supervisor has ended; -1: none */
bool notify_died(void);
void notify_kill(void);

/* keeper/reuse.c */
void again_note(void);                    /* before a job: how its /tmp is */
bool again_possible(const struct job *job); /* after it: nothing is left of it */
size_t again_wait(const struct job *job, uint32_t cell, void **message); /* for the next start; does not return without */

/* keeper/keeper.c */
_Noreturn void keep(struct job *job, int socket, int cell, int group);

/* keeper/guardian.c: in the nursery */
void guardian_find(void); /* what an earlier nursery left */
void guardian_add(uint32_t cell, pid_t pid, uint64_t number, uint64_t lease_end_us); /* a keeper was forked */
bool guardian_drop(uint32_t cell); /* it has ended; true: for its lease, by the guardian */
uint64_t guardian_look(bool at_all); /* kills what is due; the boot time of the next look */
void guardian_stay(void); /* the node is gone: a copy of the nursery goes on guarding */

/* keeper/fork_server.c */
#define CELLS 65536 /* jobs at a time */
int nursery(const char *directory);

#endif
