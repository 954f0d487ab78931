/* A job's isolation: namespaces, file tree, user, system-call filter, cgroup. */
#ifndef POOL_SANDBOX_H
#define POOL_SANDBOX_H

#include "common/common.h"

/* namespaces.c */
/* Steps that a process tries, or that make the namespaces of the fork server: 0, or -1 and errno. */
int ns_enter_user(void);
int ns_enter_mount(void);
int ns_in_new_pid(int (*then)(void)); /* in a child */
int ns_mount_proc(void);

struct extra_mounts { /* of a job with its own file tree; the caller defines them */
    int (*take)(const struct job *job, struct failure *f); /* called in the host's tree, before leaving it */
    int (*place)(const struct job *job, struct failure *f); /* called in the job's tree */
};
unsigned long ns_flags(const struct job *job);
int ns_prepare(const struct job *job, struct failure *f); /* in the fork server: directories in the tree of `full` */
int ns_enter(const struct job *job, const struct extra_mounts *extra,
             struct failure *f); /* in the keeper: makes the job's mounts */
int image_take(const struct job *job,
               struct failure *f); /* image_root.c: a mount of the directory that is the job's root */
int image_enter(int image, struct failure *f); /* makes it the root of this namespace; /tmp and /job are empty */
int image_close(struct failure *f); /* makes the root read-only */
bool has_own_tmp(const struct job *job); /* whether its /tmp is its own */
const char *scratch_path(const struct job *job); /* the path of its scratch directory inside the job */
int rights_drop(const struct job *job, struct failure *f); /* in the job: sets user id and capabilities */
uint64_t rights_kept(const struct job *job); /* the capabilities that rights_drop leaves */
/* the keeper takes the job's rights, to open files as the job may */
int rights_as_job(const struct job *job, bool as, struct failure *f);

/* rootfs.c */
int root_build(struct failure *f); /* makes the tree of isolation `full` at ROOT and ROOT_RW */
int make_path(int at, const char *path, bool last, struct failure *f);
bool is_accelerator(const char *path);

/* filter.c */
void filter_build(void); /* in the fork server, when the abilities are known */
int filter_try(void);
int filter_enter_domain(const struct job *job, struct failure *f);
const void *filter_code(const struct job *job, size_t *instructions);
int filter_install(const struct job *job, struct failure *f); /* in the job: the last step before its program */

/* cgroup.c */
uint32_t cgroup_open(void); /* a set of ABLE_GROUP, ABLE_MEMORY and ABLE_COUNT; errno if none */
void cgroup_close(void);
int cgroup_of_cell(uint32_t cell); /* a directory's file descriptor, or -1 */
int cgroup_fresh(uint32_t cell, int group);
pid_t cgroup_fork(int group);
pid_t fork_as(pid_t pid, int group, uint64_t flags); /* with that pid; group -1: no cgroup */
bool cgroup_limit(int group, const struct start *s); /* true if the kernel limits the memory */
uint64_t cgroup_memory_kills(int group);
bool cgroup_kill(int group);
bool cgroup_freeze(int group, bool still);

#endif
