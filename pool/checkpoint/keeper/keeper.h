/* Declarations that the files of this folder share: the keeper itself, and the state of its job's run. */
#ifndef POOL_KEEPER_H
#define POOL_KEEPER_H

#include "common/common.h"
#include "sandbox/sandbox.h"

#define NEVER UINT64_MAX

extern struct keeper_self { /* independent of the run */
    struct job job;
    uint32_t cell;
    pid_t own; /* its pid as the node sees it */
    int timer, group;
    bool adopted; /* the node did not start it */
    uint64_t born_us;
} keeper;

extern struct keeper_run { /* of the job */
    uint64_t number;
    bool begun; /* it was forked; false while its image is awaited */
    int image; /* the image's directory, while ends of pipes are awaited */
    pid_t restorer; /* -1: there is none, 0: it exited with success */
    bool suspend_again; /* when the current checkpoint has let the job go */
    bool checkpoint_ends; /* the current checkpoint is the job's last */
    int pipe;
    bool started, over, killing, suspended;
    bool draining; /* it is over, and its last writes are on their way to the submit side */
    uint32_t cause;
    const char *text;
    char text_buffer[TEXT]; /* buffer for `text` */
    uint32_t guilty; /* the member whose misuse ended the job */
    uint64_t began_us, started_us, ended_us, peak_kib;
    uint64_t user_us, system_us, max_rss_kib; /* of reaped processes */
    uint64_t spent_us[2]; /* CPU time still to be subtracted: not the job's */
    uint64_t memory_kills; /* of the cgroup, before this job */
    uint64_t start_report_at, lease_end, grace_end, memory_check, kill_again; /* boot clock */
} job_run;

/* keeper.c */
void reap(void); /* reaps all processes that have exited */
_Noreturn void give_up(const struct failure *f); /* the job could not start */
void send_report(uint16_t verb, uint64_t sequence);
void start_processes(void); /* starts the job's processes if everything has arrived */

/* commands.c: the node's requests */
void listen_to_node(void);
void suspend(bool stop);

/* timers.c: deadlines */
void time_begin(void);
void set_timer(void);
void check_time(void);
void clear_wake_up(void); /* the keeper has no job, and no lease */
bool start_report_delayed(struct timespec *left); /* the start is not reported yet; `left`: until when */

/* finish.c: how a job ends */
void kill_all(void);
void end_because(uint32_t cause, const char *text);
void read_misuse(void);
void read_last_misuse(void);
bool remote_writes_flushed(void); /* true: the submit side has all that the job wrote, or the lease has ended */
void add_reaped(struct report *r);
void finish_run(void); /* called when the job is over and no process is left; returns if another job may follow */

/* cell.c */
int cell_take(uint32_t cell, const void *spec, size_t size, struct failure *f); /* -2: this run was taken before */
/* for the keeper's next run */
int cell_retake(int fd, const void *spec, size_t size, uint64_t born_us, struct failure *f);
int cell_pid(int fd, int32_t pid);
int cell_note(int fd, const struct report *r, uint32_t state);
uint64_t cell_lease_end(int fd); /* the recorded end of the lease; 0: none, or unreadable */
void cell_lease(int fd, uint64_t end_us); /* sets the end of the lease, if it is later than the recorded one */
bool cell_look(uint32_t cell, struct cell *c,
               bool held); /* false: not a cell of this version, or (held) no keeper has locked it */
void cell_leave(int fd); /* unlocks it */
int cell_end_for(uint32_t cell, struct report *r); /* for a keeper that died: ENDED, or GONE if it waited */
int cell_socket(uint32_t cell, struct failure *f);

/* abilities.c */
uint32_t abilities_open(char *lines, size_t size); /* tries the abilities, and enters the fork server's namespaces */

/* exec.c */
int limits_set(const struct start *s, struct failure *f);
_Noreturn void job_become(const struct job *job, uint32_t member, pid_t keeper, int told, const int gate[2]);

/* job_processes.c */
int members_prepare(struct job *job, struct failure *f);
int members_start(struct job *job, int group, int *pipe_end, struct failure *f);
struct member *members_reaped(struct job *job, pid_t pid, int status, const struct rusage *use, bool killing,
                              uint32_t guilty);
void members_accuse(struct job *job, uint32_t guilty);
bool members_over(const struct job *job);
bool members_failed(const struct job *job); /* a member failed, and the job has to end for it */
const struct member *members_result(const struct job *job);
void members_signal(const struct job *job, int signal);
uint32_t members_report(const struct job *job, void *after); /* returns the bytes written after struct report */

/* process_tree.c */
void tree_signal(int signal); /* to every process of the job */
void tree_stop_but(pid_t spared); /* stops all but the dumper */
void tree_kill(void);
bool checkpoint_makes(pid_t pid, pid_t parent); /* the dumper, or a frozen copy */
void tree_usage(struct report *r); /* adds times, memory and number of running processes */
void tree_sweep(const pid_t *known, size_t count); /* in the fork server: kills orphans that are not keepers */

/* remote_files.c: the keeper's side of remote files */
int remote_try(void);
extern const struct extra_mounts remote_mounts;
int remote_device(uint32_t i); /* file descriptors in ascending order: the first device, its teller, the next one */
int remote_teller(uint32_t i); /* -1: none */
int remote_begin(const struct job *job, struct failure *f); /* starts the file server */
void remote_kill(void);

/* reuse.c */
void reuse_prepare(void); /* before a job: records the state of its /tmp */
bool reuse_possible(const struct job *job); /* after a job: nothing of it is left */
size_t reuse_wait(const struct job *job, uint32_t cell,
                  void **message); /* waits for the next start; does not return without one */

/* dumper.c */
bool checkpoint_running(void);
bool checkpoint_holds(void); /* the job is frozen: it may not be suspended yet */
pid_t checkpoint_dumper(void);
bool checkpoint_made(void); /* the last one succeeded */
void checkpoint_forget(void); /* before another job */
void checkpoint_begin(int directory, uint64_t how, uint64_t sequence, const struct job *job, uint32_t cell);
void checkpoint_look(uint64_t number, uint32_t cell); /* reports when the job runs again */
void checkpoint_spent(uint64_t us[2]); /* adds the CPU time of exited copies, which is not the job's */
bool checkpoint_reaped(pid_t pid, uint64_t number, uint32_t cell);

/* shell.c */
void shell_begin(const struct job *job, int group, int socket);
bool shell_reaped(pid_t pid);
bool shells_open(void);
void shells_end(void);

/* keeper.c */
_Noreturn void keep(struct job *job, int socket, int cell, int group);

/* guardian.c: in the fork server */
void guardian_find(void); /* takes over keepers of an earlier fork server */
void guardian_add(uint32_t cell, pid_t pid, uint64_t number, uint64_t lease_end_us); /* a keeper was forked */
bool guardian_drop(uint32_t cell); /* it has exited; true: the guardian killed it at the end of its lease */
uint64_t guardian_look(bool at_all); /* kills keepers past their lease; returns the boot time of the next check */
void guardian_stay(void); /* the node is gone: a copy of the fork server stays as guardian */

/* fork_server.c */
#define CELLS 65536 /* jobs at a time */
int fork_server(const char *directory);

#endif
