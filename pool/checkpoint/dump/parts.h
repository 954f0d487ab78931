/* Shared by the files of this folder. */
#ifndef POOL_DUMP_PARTS_H
#define POOL_DUMP_PARTS_H

#include "dump/dump.h"
#include "state/state.h"

struct stretch {
    uint64_t start, end;
};
struct ranges { /* one after the other */
    struct stretch *all;
    size_t count, room;
};
struct watched { /* a process whose writes are noted, while an image is made */
    pid_t pid;
    int fd;
    uint64_t born;
    bool fresh, sound, lost,
        plain; /* not watched before; what follows is right; to be watched no more; never watched */
    struct ranges written, clean;
};
struct tracking {
    const struct dirty_state *trail;
    size_t watched_count;
    struct watched *watched;
    uint64_t taken_over; /* bytes of the image before */
};

/* freeze.c, processes.c: processes and threads */
int freeze_job(struct dump *d); /* holds every thread of every process */
int list_processes(struct dump *d); /* without holding: for `examine` */
bool refuse_traced(struct dump *d, struct dumped_process *s); /* refuses it where another process of the job holds it,
                                                                 as a debugger does */
void forget_processes(struct dump *d); /* those found, when nobody is held */
int describe_process(struct dump *d,
                     struct dumped_process *s); /* what is known of process and threads but memory and files */
void let_job_go(struct dump *d);
int copy_process(struct dumped_process *s); /* makes the frozen copy */
void drop_copies(struct dump *d); /* ends the copies */

/* memory.c */
int memory_areas(struct dump *d, struct dumped_process *s);
void memory_join(struct dump *d);
int memory_shared(struct dump *d, struct dumped_process *s); /* while everything stands still */
int memory_left_out(struct dump *d, struct dumped_process *s); /* of the copy: taken from the process itself */
int memory_write(struct dump *d, struct dumped_process *s, pid_t from);

/* pages.c */
int pages_write(struct dump *d, struct dumped_process *s, pid_t from); /* all that was planned */
size_t pages_take(int mem, uint64_t at, void *to, size_t size);

/* dirty_tracking.c */
int track_before(struct dump *d, bool stop, struct outcome *o);
void track_held(struct dump *d, bool stop);
const struct watched *track_of(struct dump *d, pid_t pid);
uint64_t track_clean(const struct watched *w, uint64_t at, uint64_t end, uint64_t *next);
const struct stretch *ranges_from(const struct ranges *r, uint64_t at);
void track_hand(struct dump *d);

/* parent_image.c */
void parent_open(struct dump *d, int directory);
const struct image *parent_image(void);
void parent_begin(struct dump *d, const struct dumped_process *s);
void parent_plan(struct dump *d, uint32_t owner, uint64_t start, uint64_t end);
void parent_finish(struct dump *d, uint32_t owner);
void parent_close(struct dump *d, int directory);

/* carried_files.c */
int carried_files_save(struct dump *d, int directory); /* what is mapped of files that another machine may lack */

/* partial_io.c */
int complete_partial_io(struct dump *d);

/* quiet_moment.c */
int freeze_at_quiet_moment(struct dump *d, struct outcome *o); /* timeouts_note and freeze_job, at a moment when the job
                                                                  has read what it was told */

#endif
