/* Remote files by system-call notification, where there is no FUSE: the keeper's side. */
#ifndef POOL_REMOTE_NOTIFY_H
#define POOL_REMOTE_NOTIFY_H

#include "common/common.h"

/* remote_notify.c: remote files by system call notification, where there is no FUSE */
bool notify_used(const struct job *job);
int notify_try(void);
int notify_place(const struct job *job, struct failure *f); /* in the job's tree, over the places for its trees */
int notify_top(uint32_t i); /* of a tree's shadows, in ascending order */
pid_t notify_begin(const struct job *job, const int server[], struct failure *f); /* the supervisor */
int notify_enter(const struct job *job, uint32_t member,
                 struct failure *f); /* in a process of the job's, before it opens anything */
void notify_forked(void);
int notify_fd(void); /* readable when the supervisor has ended; -1: none */
bool notify_died(void);
void notify_kill(void);

#endif
