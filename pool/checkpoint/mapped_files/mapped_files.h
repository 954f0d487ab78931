/* File names that are ends of pipes: the side of the keeper and the job's processes. */
#ifndef POOL_MAPPED_FILES_H
#define POOL_MAPPED_FILES_H

#include "common/common.h"

/* mapped_files.c: files that processes open and that are ends of pipes */
int mapping_begin(struct job *job, int group, struct failure *f); /* before the members are forked */
int mapping_enter(const struct job *job, uint32_t member, struct failure *f); /* in a member, just before its program */
pid_t mapping_supervisor(void); /* 0: none */
int mapping_way(void); /* the socket for first messages to it (struct hello), or -1 */
int mapping_report(void); /* readable when the supervisor has a report, or -1 */
#define NO_MEMBER UINT32_MAX
bool mapping_read(char text[TEXT],
                  uint32_t *member); /* the reason to end the job, and the member at fault; false: there is none */
bool mapping_over(char text[TEXT], uint32_t *member); /* the same, after all members have ended */
bool mapping_reaped(pid_t pid);
void mapping_end(struct rusage *use); /* adds its CPU time to `use`, if given */
int mapping_await(const struct job *job, pid_t pid,
                  struct failure *f); /* instead of mapping_begin, for a restored job */
void mapping_ends(int *report, int *members);
void mapping_awaited(void);

/* spool.c */
int log_spool(const struct job *job); /* a file without a name in the job's scratch directory */

#endif
