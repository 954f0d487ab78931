/* Declarations that the files of this folder share. */
#ifndef POOL_DUMP_PARTS_H
#define POOL_DUMP_PARTS_H

#include "dump/dump.h"
#include "state/state.h"

struct stretch {
    uint64_t start, end;
};
struct ranges { /* in ascending order */
    struct stretch *all;
    size_t count, room;
};
struct watched { /* a tracked process, while an image is made */
    pid_t pid;
    int fd;
    uint64_t born;
    /* fresh: not tracked before; sound: its ranges are complete; lost: tracking ends; plain: it was never tracked
     * before */
    bool fresh, sound, lost, plain;
    struct ranges written, clean;
};
struct tracking {
    const struct dirty_state *dirty;
    size_t watched_count;
    struct watched *watched;
    uint64_t taken_over; /* bytes taken over from the parent image */
};

/* freeze.c, processes.c: processes and threads */
int freeze_job(struct dump *d); /* stops every thread of every process */
int list_processes(struct dump *d); /* without stopping them: for CHECKPOINT_EXAMINE */
/* refuses a process that another process of the job traces, as a debugger does */
bool refuse_traced(struct dump *d, struct dumped_process *s);
void forget_processes(struct dump *d); /* empties the list; no process may be stopped */
int describe_process(struct dump *d,
                     struct dumped_process *s); /* records the state of process and threads, except memory and files */
void let_job_go(struct dump *d);
int copy_process(struct dumped_process *s); /* makes the frozen copy */
void drop_copies(struct dump *d); /* kills the copies */

/* memory.c */
int memory_areas(struct dump *d, struct dumped_process *s);
void memory_join(struct dump *d);
int memory_shared(struct dump *d, struct dumped_process *s); /* while everything is frozen */
int memory_left_out(struct dump *d, struct dumped_process *s); /* memory that the copy lacks, from the process itself */
int memory_write(struct dump *d, struct dumped_process *s, pid_t from);

/* pages.c */
int pages_write(struct dump *d, struct dumped_process *s, pid_t from); /* all planned chunks */
size_t pages_take(int mem, uint64_t at, void *to, size_t size);

/* dirty_tracking.c */
int track_before(struct dump *d, bool stop, struct outcome *o);
void track_held(struct dump *d, bool stop);
const struct watched *track_of(struct dump *d, pid_t pid);
uint64_t track_clean(const struct watched *w, uint64_t at, uint64_t end, uint64_t *next);
const struct stretch *ranges_from(const struct ranges *r, uint64_t at);
void track_hand_over(struct dump *d);

/* parent_image.c */
void parent_open(struct dump *d, int directory);
const struct image *parent_image(void);
void parent_begin(struct dump *d, const struct dumped_process *s);
void parent_plan(struct dump *d, uint32_t owner, uint64_t start, uint64_t end);
void parent_finish(struct dump *d, uint32_t owner);
void parent_close(struct dump *d, int directory);

/* carried_files.c */
int carried_files_save(struct dump *d, int directory); /* mapped parts of files that another machine may lack */

/* partial_io.c */
int complete_partial_io(struct dump *d);

/* quiet_moment.c */
/* timeouts_note and freeze_job, at a moment when the job has read its inotify events */
int freeze_at_quiet_moment(struct dump *d, struct outcome *o);

#endif
