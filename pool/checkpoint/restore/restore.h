/* Restores a job from its image. */
#ifndef POOL_RESTORE_H
#define POOL_RESTORE_H

#include "common/common.h"

int restore_start(struct job *job, int directory, int group, int *pipe_end, pid_t *restorer, struct failure *f);

#endif
