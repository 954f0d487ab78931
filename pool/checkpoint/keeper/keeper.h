/* Shared by the parts of a job's keeper: the keeper itself, and the state of its job's run. */
#ifndef POOL_KEEPER_H
#define POOL_KEEPER_H

#include "common/common.h"
#include "sandbox/sandbox.h"

#define NEVER UINT64_MAX

extern struct keeper_self { /* whatever it runs */
    struct job job;
    uint32_t cell;
    pid_t own; /* as the node sees it */
    int timer, group;
    bool adopted; /* by a node that did not start it */
    uint64_t born_us;
} keeper;

extern struct keeper_run { /* of the job */
    uint64_t number;
    bool begun; /* it was forked; not while its image is awaited */
    int image; /* its directory when it has come, while ends of pipes are awaited */
    pid_t restorer; /* -1 when there is none, 0 when it ended well */
    bool suspend_again; /* as soon as the checkpoint that is being made lets the job go */
    bool checkpoint_ends; /* that one is the job's last */
    int pipe;
    bool started, over, killing, suspended;
    bool draining; /* it is over, and what it wrote is on its way home */
    uint32_t cause;
    const char *text;
    char said[TEXT]; /* where `text` is made up */
    uint32_t guilty; /* the member for whose misuse the job is ended */
    uint64_t began_us, started_us, ended_us, peak_kib;
    uint64_t user_us, system_us, max_rss_kib; /* of those of its processes that were reaped */
    uint64_t spent_us[2]; /* what is to be taken from it yet: not the job's */
    uint64_t memory_kills; /* counted in the cgroup before this job */
    uint64_t start_report_at, lease_end, grace_end, memory_check, kill_again; /* boot time */
} job_run;

/* keeper.c */
void reap(void); /* whoever has ended */
_Noreturn void give_up(const struct failure *f); /* the job was never there */
void send_report(uint16_t verb, uint64_t sequence);
void set_out(void); /* the job's processes, when nothing is waited for any more */

/* commands.c: what the node asks for */
void listen_to_node(void);
void suspend(bool stop);

/* timers.c: what time brings */
void time_begin(void);
void set_timer(void);
void check_time(void);
bool start_report_delayed(struct timespec *left); /* a start that is not told yet, and how long not */

/* finish.c: how a job ends */
void kill_all(void);
void end_because(uint32_t cause, const char *text);
void hear_of_misuse(void);
void hear_last_of_misuse(void);
bool remote_writes_flushed(void); /* what the job wrote; waits as long as the job itself might have */
void add_gone(struct report *r);
void finish(void); /* the job is over and nobody is left; returns when there is another one to come */

/* cell.c */
int cell_take(uint32_t cell, const void *spec, size_t size, struct failure *f); /* -2: this run has it already */
int cell_retake(int fd, const void *spec, size_t size, uint64_t born_us, struct failure *f); /* the keeper's next run */
int cell_pid(int fd, int32_t pid);
int cell_note(int fd, const struct report *r, uint32_t state);
void cell_lease(int fd, uint64_t end_us); /* it ends then, or later if that is known */
bool cell_look(uint32_t cell, struct cell *c,
               bool held); /* false: nothing of ours, or (held) no keeper has it locked */
void cell_leave(int fd); /* unlocks it */
int cell_end_for(uint32_t cell, struct report *r); /* for a keeper that died: ENDED, or GONE when it waited */
int cell_socket(uint32_t cell, struct failure *f);

/* abilities.c */
uint32_t abilities_open(char *lines, size_t size); /* tries what is allowed, and enters the nursery's namespaces */

/* exec.c */
_Noreturn void job_become(const struct job *job, uint32_t member, pid_t keeper, int told, const int gate[2]);

/* job_processes.c */
int members_prepare(struct job *job, struct failure *f);
int members_start(struct job *job, int group, int *pipe_end, struct failure *f);
struct member *members_reaped(struct job *job, pid_t pid, int status, const struct rusage *use, bool killing,
                              uint32_t guilty);
void members_accuse(struct job *job, uint32_t guilty);
bool members_over(const struct job *job);
bool members_failed(const struct job *job); /* one has, so that the job is to end */
const struct member *members_result(const struct job *job);
void members_signal(const struct job *job, int signal);
uint32_t members_report(const struct job *job, void *after); /* bytes written after a whole struct report */

/* process_tree.c */
void tree_signal(int signal); /* to every process of the job */
void tree_stop_but(pid_t spared); /* a dumper, which goes on */
void tree_kill(void);
bool checkpoint_makes(pid_t pid, pid_t parent); /* it writes a checkpoint, or is a copy of the job's for one */
void tree_usage(struct report *r); /* adds times, memory, processes of the living */
void tree_sweep(const pid_t *known, size_t count); /* nursery: kills orphans that are nobody's keeper */

/* remote_files.c: remote system calls, seen from the keeper */
int remote_try(void);
extern const struct extra_mounts remote_mounts;
int remote_device(uint32_t i); /* in ascending order */
int remote_begin(const struct job *job, struct failure *f); /* the server */
void remote_kill(void);

/* reuse.c */
void reuse_prepare(void); /* before a job: how its /tmp is */
bool reuse_possible(const struct job *job); /* after it: nothing is left of it */
size_t reuse_wait(const struct job *job, uint32_t cell,
                  void **message); /* for the next start; does not return without */

/* dumper.c */
bool checkpoint_running(void);
bool checkpoint_holds(void); /* the job: it may not be suspended yet */
pid_t checkpoint_dumper(void);
bool checkpoint_made(void); /* the last one */
void checkpoint_forget(void); /* another job comes */
void checkpoint_begin(int directory, uint64_t how, uint64_t sequence, const struct job *job, uint32_t cell);
void checkpoint_look(uint64_t number, uint32_t cell); /* tells when the job runs again */
void checkpoint_spent(uint64_t us[2]); /* adds what is none of the job's, of what those took that ended */
bool checkpoint_reaped(pid_t pid, uint64_t number, uint32_t cell);

/* keeper.c */
_Noreturn void keep(struct job *job, int socket, int cell, int group);

/* guardian.c: in the nursery */
void guardian_find(void); /* what an earlier nursery left */
void guardian_add(uint32_t cell, pid_t pid, uint64_t number, uint64_t lease_end_us); /* a keeper was forked */
bool guardian_drop(uint32_t cell); /* it has ended; true: for its lease, by the guardian */
uint64_t guardian_look(bool at_all); /* kills what is due; the boot time of the next look */
void guardian_stay(void); /* the node is gone: a copy of the nursery goes on guarding */

/* fork_server.c */
#define CELLS 65536 /* jobs at a time */
int nursery(const char *directory);

#endif
