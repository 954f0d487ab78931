/* Dumps a job into an image, in a process of its own. */
#ifndef POOL_DUMP_H
#define POOL_DUMP_H

#include "common/common.h"

struct tracked { /* a process whose writes are tracked, as the keeper keeps it */
    pid_t pid;
    uint64_t born;
    int fd;
};
struct dirty_state { /* the state of dirty tracking since an image, which the keeper keeps for the next one */
    uint64_t id; /* of the image */
    struct tracked *all;
    size_t count;
    int handover; /* the dumper's end of a socket pair, by which it hands over the new list */
    bool stale_marks; /* a dumper died without handing over: processes may have marks that the list does not mention */
};
void dirty_state_take(struct dirty_state *dirty, int from, uint64_t id); /* takes the list from the dumper */

struct outcome { /* shared with the keeper */
    uint32_t done; /* 1: dumped, 2: refused, 3: failed */
    uint32_t processes;
    uint32_t let_go; /* the job runs while its image is still being written */
    uint64_t spent_us[2]; /* CPU time, as in struct dump */
    uint64_t bytes, standstill_us, took_us, id; /* id: of the image since which writes are tracked, or 0 */
    struct failure failure;
    char reasons[TEXT], held[PIPES_MOST + 1]; /* held: the text of CHECKPOINTED (common/messages.h) */
};
void dump_job(int directory, uint64_t how, const struct job *job, const struct dirty_state *dirty,
              struct outcome *o); /* how: enum checkpoint */

#endif
