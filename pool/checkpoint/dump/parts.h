/* What the files of this folder share. */
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
    bool fresh, sound, lost, plain; /* not watched before; what follows is right; to be watched no more; never watched */
    struct ranges written, clean;
};
struct tracking {
    const struct trail *trail;
    size_t watched_count;
    struct watched *watched;
    uint64_t taken_over; /* bytes of the image before */
};

/* freeze.c, processes.c: processes and threads */
int family_stop(struct dump *d);      /* holds every thread of every process */
int family_list(struct dump *d);      /* without holding: for `examine` */
bool family_traced(struct dump *d, struct subject *s); /* refuses it where another process of the job holds it, as a debugger does */
void family_forget(struct dump *d);   /* those found, when nobody is held */
int family_state(struct dump *d, struct subject *s); /* what is known of process and threads but memory and files */
void family_go(struct dump *d);
int family_copy(struct subject *s);   /* makes the frozen copy */
void family_drop(struct dump *d);     /* ends the copies */

/* memory.c */
int memory_areas(struct dump *d, struct subject *s);
void memory_join(struct dump *d);
int memory_shared(struct dump *d, struct subject *s); /* while everything stands still */
int memory_left_out(struct dump *d, struct subject *s); /* of the copy: taken from the process itself */
int memory_write(struct dump *d, struct subject *s, pid_t from);

/* pages.c */
int pages_write(struct dump *d, struct subject *s, pid_t from); /* all that was planned */
size_t pages_take(int mem, uint64_t at, void *to, size_t size);

/* dirty_tracking.c */
int track_before(struct dump *d, bool stop, struct outcome *o);
void track_held(struct dump *d, bool stop);
const struct watched *track_of(struct dump *d, pid_t pid);
uint64_t track_clean(const struct watched *w, uint64_t at, uint64_t end, uint64_t *next);
const struct stretch *ranges_from(const struct ranges *r, uint64_t at);
void track_hand(struct dump *d);

/* parent_image.c */
void earlier_open(struct dump *d, int directory);
const struct image *earlier_image(void);
void earlier_begin(struct dump *d, const struct subject *s);
void earlier_plan(struct dump *d, uint32_t owner, uint64_t start, uint64_t end);
void earlier_finish(struct dump *d, uint32_t owner);
void earlier_close(struct dump *d, int directory);

/* carried_files.c */
int carry_all(struct dump *d, int directory); /* what is mapped of files that another machine may lack */

/* partial_io.c */
int calls_whole(struct dump *d);

/* quiet_moment.c */
int inotify_stop(struct dump *d, struct outcome *o); /* waits_note and family_stop, at a moment when the job has read what it was told */

#endif
