/* Names of files that are ends of pipes: the keeper's and the job's processes' side. */
#ifndef POOL_MAPPED_FILES_H
#define POOL_MAPPED_FILES_H

#include "common/common.h"

/* mapped_files.c: files that processes open and that are ends of pipes */
int mapping_begin(struct job *job, int group, struct failure *f); /* before the members are forked */
int mapping_enter(const struct job *job, uint32_t member, struct failure *f); /* in one, just before its program */
pid_t mapping_supervisor(void); /* 0: none */
int mapping_way(void); /* where it is spoken to first (mapped_files/mapped_files.h), or -1 */
int mapping_report(void); /* readable when the supervisor has something to say, or -1 */
#define NO_MEMBER UINT32_MAX
bool mapping_read(char text[TEXT],
                  uint32_t *member); /* why the job has to end, and whose fault it is; false: nothing was said */
bool mapping_over(char text[TEXT], uint32_t *member); /* the same, when all members have ended */
bool mapping_reaped(pid_t pid);
void mapping_end(struct rusage *use); /* what it used is added there, or is nobody's */
int mapping_await(const struct job *job, pid_t pid,
                  struct failure *f); /* in place of mapping_begin for a job that is put back */
void mapping_ends(int *report, int *members);
void mapping_awaited(void);

/* spool.c */
int log_spool(const struct job *job); /* a file without a name in the job's scratch directory */

#endif
