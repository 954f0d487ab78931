/* The plan by which the processes of an image are forked (fork_plan.c). */
#ifndef POOL_FORK_PLAN_H
#define POOL_FORK_PLAN_H

#include "image/image.h"

/* early: before its parent becomes a session leader */
enum { BORN_LATE, BORN_EARLY, BORN_ORPHAN, BORN_OF_PLACEHOLDER };
struct planned_fork {
    uint32_t kind, by; /* by: row of the process whose code forks it, NOBODY: the restoring process */
    pid_t session; /* the session in which it is born; 0: any */
    bool adopts; /* orphans are reparented to it during the restore */
};

struct planned_fork *fork_plan_make(const struct image *image, pid_t *wrong);
uint32_t group_maker(const struct image *image, pid_t group);

#endif
