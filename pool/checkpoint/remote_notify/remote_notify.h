/* Remote files by system call notification, without FUSE: the keeper's side. */
#ifndef POOL_REMOTE_NOTIFY_H
#define POOL_REMOTE_NOTIFY_H

#include "common/common.h"

/* remote_notify.c: remote files by system call notification, without FUSE */
bool notify_used(const struct job *job);
int notify_try(void);
/* in the job's tree, over the directories for its remote trees */
int notify_place(const struct job *job, struct failure *f);
int notify_top(uint32_t i); /* file descriptors of the shadows' roots, in ascending order */
pid_t notify_begin(const struct job *job, const int server[], struct failure *f); /* starts the supervisor */
int notify_enter(const struct job *job, uint32_t member,
                 struct failure *f); /* in a process of the job, before it opens any file */
void notify_forked(void);
int notify_fd(void); /* readable when the supervisor has exited; -1: none */
bool notify_died(void);
void notify_kill(void);

#endif
