/* What the parts of a job's keeper share: the keeper itself, and how far it is with its job. */
#ifndef POOL_KEEP_H
#define POOL_KEEP_H

#include "state/state.h"

#define NEVER UINT64_MAX

extern struct keeper_self { /* whatever it runs */
    struct job job;
    uint32_t cell;
    pid_t own; /* as the node sees it */
    int timer, group;
    bool adopted; /* by a node that did not start it */
    uint64_t born_us;
} me;

extern struct keeper_run { /* of the job */
    uint64_t number;
    bool begun; /* it was forked; not while its image is awaited */
    int image;  /* its directory when it has come, while ends of pipes are awaited */
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
    uint64_t hush_end, lease_end, grace_end, memory_check, kill_again; /* boot time */
} run;

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
bool hushed(struct timespec *left); /* a start that is not told yet, and how long not */

/* finish.c: how a job ends */
void kill_all(void);
void end_because(uint32_t cause, const char *text);
void hear_of_misuse(void);
void hear_last_of_misuse(void);
bool all_at_home(void); /* what the job wrote; waits as long as the job itself might have */
void add_gone(struct report *r);
void finish(void); /* the job is over and nobody is left; returns when there is another one to come */

#endif
