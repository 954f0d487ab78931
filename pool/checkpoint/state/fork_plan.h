/* How the processes of an image are forked again: fork_plan.c. */
#ifndef POOL_BIRTHS_H
#define POOL_BIRTHS_H

#include "image/image.h"

enum { BORN_LATE, BORN_EARLY, BORN_ORPHAN, BORN_OF_PLACEHOLDER }; /* early: before its parent leads a session */
struct planned_fork {
    uint32_t kind, by; /* by: whose code forks it, NOBODY: the process that restores */
    pid_t session; /* in which it is born; 0: any */
    bool adopts; /* orphans come to it meanwhile */
};

struct planned_fork *fork_plan_make(const struct image *image, pid_t *wrong);
uint32_t group_maker(const struct image *image, pid_t group);

#endif
